//! Files that `iopath fio` creates and keeps: no file of the user is destroyed, whenever it appears.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::support::Nothing;
use iopath_bench::kept_file::{Identity, is_kept};
use iopath_bench::progress::{Progress, Silent, Stage};
use iopath_bench::workload::Repetitions;
use iopath_fio::{JobFile, RunSettings};
use iopath_report::result::Report;

/// A directory whose filesystem stores marks; none elsewhere, with a line.
fn directory() -> Option<tempfile::TempDir> {
    let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let file = directory.path().join("probe");
    fs::write(&file, "").unwrap();
    let marked = Identity::of(&file).unwrap().mark(&file);
    fs::remove_file(&file).unwrap();
    if let Err(error) = &marked {
        eprintln!("skipped: no extended attributes here: {error}");
    }
    marked.ok().map(|()| directory)
}

fn keeping() -> RunSettings {
    RunSettings { keeps_files: true, ..RunSettings::default() }
}

fn run(settings: &RunSettings, text: &str, progress: &mut dyn Progress) -> Result<Report, String> {
    let file =
        JobFile::parse("f.fio", text.as_bytes(), &Nothing, false).map_err(|error| error.to_string())?;
    file.run(settings, progress).map_err(|error| error.to_string())
}

fn job(file: &Path, keys: &str) -> String {
    format!("[j]\nfilename={}\nsize=64k\n{keys}\n", file.display())
}

/// Writes a file of the user when a stage of this kind begins.
struct Intruder {
    at: fn(&Stage) -> bool,
    file: PathBuf,
    content: &'static str,
}

impl Progress for Intruder {
    fn stage(&mut self, stage: &Stage) {
        if (self.at)(stage) {
            fs::write(&self.file, self.content).unwrap();
        }
    }

    fn advance(&mut self, _done: f64) {}
}

#[test]
fn a_file_that_appears_while_the_scratch_file_is_filled_stays() {
    let Some(directory) = directory() else { return };
    let file = directory.path().join("x");
    let mut intruder =
        Intruder { at: |stage| matches!(stage, Stage::Scratch { .. }), file: file.clone(), content: "mine" };
    let error = run(&keeping(), &job(&file, "rw=write"), &mut intruder).unwrap_err();
    assert!(error.contains("exists"), "{error}");
    assert_eq!(fs::read(&file).unwrap(), b"mine");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "no other file stays");
    // The same for a kept file that becomes one of the user.
    fs::remove_file(&file).unwrap();
    run(&keeping(), &job(&file, "rw=write"), &mut Silent).unwrap();
    assert!(is_kept(&file));
    run(&keeping(), &job(&file, "rw=write\nsize=128k"), &mut intruder).unwrap_err();
    assert_eq!(fs::read(&file).unwrap(), b"mine");
}

#[test]
fn only_writes_of_jobs_renew_the_mark() {
    let Some(directory) = directory() else { return };
    let file = directory.path().join("x");
    run(&keeping(), &job(&file, "rw=write"), &mut Silent).unwrap();
    let is_begin = |stage: &Stage| matches!(stage, Stage::Jobs { .. });
    let content = "mine, and as long as one block of the job would be: it is read only";
    let mut intruder = Intruder { at: is_begin, file: file.clone(), content };
    // The outcome of the reads does not matter.
    let _ = run(&keeping(), &job(&file, "rw=read"), &mut intruder);
    assert!(!is_kept(&file), "the content is of another program");
    let error = run(&keeping(), &job(&file, "rw=write\nbs=1\nsize=64"), &mut Silent).unwrap_err();
    assert!(error.contains("destroys its contents"), "{error}");
    assert_eq!(fs::read(&file).unwrap(), content.as_bytes());
}

/// Replaces the file by another one when the jobs begin.
struct Replacer(PathBuf);

impl Progress for Replacer {
    fn stage(&mut self, stage: &Stage) {
        if matches!(stage, Stage::Jobs { .. }) {
            let new = self.0.with_extension("new");
            fs::write(&new, "mine").unwrap();
            fs::rename(&new, &self.0).unwrap();
        }
    }

    fn advance(&mut self, _done: f64) {}
}

#[test]
fn a_file_that_takes_the_name_is_neither_marked_nor_removed() {
    let Some(directory) = directory() else { return };
    for keys in ["rw=write", "rw=write\nunlink=1"] {
        let file = directory.path().join("x");
        let _ = run(&keeping(), &job(&file, keys), &mut Replacer(file.clone()));
        assert!(!is_kept(&file), "{keys}");
        assert_eq!(fs::read(&file).unwrap(), b"mine", "{keys}");
        fs::remove_file(&file).unwrap();
    }
    let file = directory.path().join("x");
    run(&keeping(), &job(&file, "rw=write\nunlink=1"), &mut Silent).unwrap();
    assert!(!file.exists(), "its own file");
}

#[test]
fn a_directory_and_an_absolute_name_are_joined_as_texts() {
    let Some(directory) = directory() else { return };
    fs::create_dir(directory.path().join("sub")).unwrap();
    let text =
        format!("[j]\ndirectory={}\nfilename=/sub/y\nsize=64k\nrw=write\n", directory.path().display());
    let file = JobFile::parse("f.fio", text.as_bytes(), &Nothing, false).unwrap();
    let [named] = &keeping().named_files(&file)[..] else { panic!("one file") };
    run(&keeping(), &text, &mut Silent).unwrap();
    let expected = directory.path().join("sub/y");
    assert!(expected.exists() && named.canonicalize().unwrap() == expected.canonicalize().unwrap());
    let several = text.replace("/sub/y", "/sub/y:/sub/z");
    let _ = run(&RunSettings::default(), &several, &mut Silent);
    assert!(!Path::new("/sub").exists());
}

#[test]
fn a_read_only_run_creates_no_file() {
    let Some(directory) = directory() else { return };
    let readonly = RunSettings { is_readonly: true, ..keeping() };
    let file = directory.path().join("x");
    let of_clone = format!("[j]\ndirectory={}\nsize=64k\n", directory.path().display());
    let several = format!("[j]\nnrfiles=2\ndirectory={}\nsize=64k\n", directory.path().display());
    for text in [job(&file, "rw=read"), of_clone, several] {
        let error = run(&readonly, &text, &mut Silent).unwrap_err();
        assert!(error.contains("--readonly"), "{error}");
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    run(&keeping(), &job(&file, "rw=write"), &mut Silent).unwrap();
    let error = run(&readonly, &job(&file, "rw=read\nsize=128k"), &mut Silent).unwrap_err();
    assert!(error.contains("too small"), "{error}");
    run(&readonly, &job(&file, "rw=read\nunlink=1"), &mut Silent).unwrap();
    assert!(is_kept(&file), "neither removed nor changed");
}

#[test]
fn a_kept_file_has_the_permissions_of_one_of_fio() {
    let Some(directory) = directory() else { return };
    let mode = |file: &Path| fs::metadata(file).unwrap().permissions().mode() & 0o777;
    let (file, other) = (directory.path().join("x"), directory.path().join("other"));
    run(&keeping(), &job(&file, "rw=write"), &mut Silent).unwrap();
    fs::write(&other, "").unwrap();
    assert_eq!(mode(&file), mode(&other) & 0o644);
}

#[test]
fn a_series_does_not_replace_a_file_of_the_user() {
    let Some(directory) = directory() else { return };
    let file = directory.path().join("x");
    let keys = format!("rw=write\nwrite_bw_log={}\nlog_avg_msec=100", directory.path().join("s").display());
    let log = directory.path().join("s_bw.1.log");
    fs::write(&log, "mine").unwrap();
    let error = run(&keeping(), &job(&file, &keys), &mut Silent).unwrap_err();
    assert!(error.contains("s_bw.1.log exists and was not written by iopath"), "{error}");
    assert_eq!(fs::read(&log).unwrap(), b"mine");
    assert!(!file.exists(), "refused before anything is created");
    fs::remove_file(&log).unwrap();
    for _ in 0..2 {
        run(&keeping(), &job(&file, &keys), &mut Silent).unwrap();
    }
    assert!(fs::read_to_string(&log).unwrap().contains(", 1, "), "its own series is replaced");
}

#[test]
fn warnings_remain_if_no_job_runs() {
    let Some(directory) = directory() else { return };
    let keys = "rw=write\ncreate_only=1\ntime_based=1";
    let report = run(&keeping(), &job(&directory.path().join("x"), keys), &mut Silent).unwrap();
    assert!(report.runs.is_empty());
    assert!(report.warnings.iter().any(|warning| warning.contains("time_based has no effect")));
}

#[test]
fn a_later_run_checks_the_stamps_of_random_writes() {
    let Some(directory) = directory() else { return };
    let file = directory.path().join("x");
    let keys = "rw=randwrite\nverify=crc32c";
    run(&keeping(), &job(&file, keys), &mut Silent).unwrap();
    let read = run(&keeping(), &job(&file, "rw=read\nverify=crc32c"), &mut Silent).unwrap();
    let verify = read.runs[0].verify.as_ref().unwrap();
    assert_eq!((verify.blocks, verify.faults()), (16, 0), "each block was written once");
    // Blocks that were never written have no stamp, which is not corruption.
    fs::remove_file(&file).unwrap();
    run(&keeping(), &job(&file, &format!("{keys}\nio_size=32k")), &mut Silent).unwrap();
    let read = run(&keeping(), &job(&file, "rw=read\nverify=crc32c"), &mut Silent).unwrap();
    let verify = read.runs[0].verify.as_ref().unwrap();
    assert_eq!((verify.unstamped, verify.corrupt, verify.faults()), (8, 0, 8));
}

#[test]
fn one_series_of_several_jobs_has_the_lines_of_all() {
    let Some(directory) = directory() else { return };
    let log = directory.path().join("s");
    let text = format!(
        "[global]\nfilename={}\nsize=64k\nper_job_logs=0\nwrite_bw_log={}\n[a]\nrw=write\n[b]\nstonewall\nrw=read\nnumjobs=2\n",
        directory.path().join("x").display(),
        log.display()
    );
    for _ in 0..2 {
        run(&keeping(), &text, &mut Silent).unwrap();
        let written = fs::read_to_string(directory.path().join("s_bw.log")).unwrap();
        let of = |direction: &str| written.lines().filter(|line| line.contains(direction)).count();
        // A line for each transfer, and a new file in each run.
        assert_eq!([of(", 1, 4096"), of(", 0, 4096")], [16, 32]);
    }
}

#[test]
fn a_new_file_may_lie_in_new_directories() {
    let Some(directory) = directory() else { return };
    let file = directory.path().join("new/below/x");
    run(&keeping(), &job(&file, "rw=write"), &mut Silent).unwrap();
    assert!(is_kept(&file));
    let text = format!("[j]\ndirectory={}\nsize=64k\n", directory.path().join("other").display());
    run(&keeping(), &text, &mut Silent).unwrap_err();
    assert!(!directory.path().join("other").exists(), "as in fio, a directory of the key exists");
}

#[test]
fn files_of_a_job_with_several_are_kept_and_written_again() {
    let Some(directory) = directory() else { return };
    let place = |file: &str| directory.path().join(file);
    let named = format!("filename={}:{}", place("a").display(), place("b").display());
    let own = format!("directory={}\nnrfiles=3\nnumjobs=2", directory.path().display());
    for (keys, names, bytes) in [
        (&named, &["a", "b"][..], 32 << 10),
        (&own, &["j.0.0", "j.0.1", "j.0.2", "j.1.0", "j.1.1", "j.1.2"][..], 24 << 10),
    ] {
        let text = format!("[j]\n{keys}\nsize={}\nrw=write\n", bytes * names.len().min(3));
        for _ in 0..2 {
            run(&keeping(), &text, &mut Silent).unwrap();
            for name in names {
                assert!(is_kept(&place(name)), "{name}");
                assert_eq!(fs::metadata(place(name)).unwrap().len(), bytes as u64, "{name}");
            }
        }
        // A larger range replaces them, and a job that only reads leaves them as they are.
        let larger = text.replace("size=", "size=1");
        run(&keeping(), &larger, &mut Silent).unwrap();
        assert!(names.iter().all(|name| fs::metadata(place(name)).unwrap().len() > bytes as u64));
        run(&keeping(), &text.replace("rw=write", "rw=read\nunlink=1"), &mut Silent).unwrap();
        assert!(names.iter().all(|name| !place(name).exists()), "unlink=1");
    }
}

#[test]
fn a_file_of_the_user_among_several_is_not_written() {
    let Some(directory) = directory() else { return };
    let (a, b) = (directory.path().join("a"), directory.path().join("b"));
    let content = vec![7; 64 << 10];
    fs::write(&a, &content).unwrap();
    let text = format!("[j]\nfilename={}:{}\nsize=64k\nrw=write\n", a.display(), b.display());
    let error = run(&keeping(), &text, &mut Silent).unwrap_err();
    assert!(error.contains("destroys its contents"), "{error}");
    assert!(fs::read(&a).unwrap() == content && !b.exists());
    let mut permitted = keeping();
    permitted.base.overwrite = true;
    run(&permitted, &text, &mut Silent).unwrap();
    assert!(!is_kept(&a) && is_kept(&b), "the file of the user stays his own");
}

#[test]
fn jobs_share_a_file_of_several() {
    let Some(directory) = directory() else { return };
    let file = |name: &str| directory.path().join(name).display().to_string();
    let text = format!(
        "[one]\nfilename={0}\nsize=96k\nrw=write\n[both]\nstonewall\nfilename={0}:{1}\nsize=64k\nrw=write\n",
        file("a"),
        file("b")
    );
    for _ in 0..2 {
        run(&keeping(), &text, &mut Silent).unwrap();
        let bytes = |name| fs::metadata(file(name)).unwrap().len();
        assert_eq!([bytes("a"), bytes("b")], [96 << 10, 32 << 10]);
        assert!(is_kept(Path::new(&file("a"))) && is_kept(Path::new(&file("b"))));
    }
}

#[test]
fn a_character_device_is_refused_with_the_engine_that_needs_no_storage() {
    for device in ["/dev/null", "/dev/zero"] {
        let error = run(&keeping(), &job(Path::new(device), "rw=write"), &mut Silent).unwrap_err();
        assert!(error.contains(device) && error.contains("ioengine=null"), "{error}");
        run(&keeping(), &job(Path::new(device), "rw=write\nioengine=null"), &mut Silent).unwrap();
    }
}

#[test]
fn a_new_file_of_jobs_that_only_write_is_allocated_and_not_written_as_in_fio() {
    let Some(directory) = directory() else { return };
    let file = directory.path().join("x");
    let second_half = |keys: &str| {
        let _ = fs::remove_file(&file);
        run(&keeping(), &job(&file, &format!("io_size=32k\n{keys}")), &mut Silent).unwrap();
        let content = fs::read(&file).unwrap();
        assert_eq!(content.len(), 64 << 10, "{keys}");
        assert!(content[..32 << 10].iter().any(|byte| *byte != 0), "{keys}");
        content[32 << 10..].iter().any(|byte| *byte != 0)
    };
    for keys in ["rw=write", "rw=write\nfallocate=none", "rw=write\ndirect=1\nbs=16k"] {
        assert!(!second_half(keys), "{keys}");
    }
    for keys in ["rw=write\noverwrite=1", "rw=read", "rw=rw\nrwmixread=1"] {
        assert!(second_half(keys), "{keys}");
    }
    // A later repetition would find the blocks of the first one written.
    let mut repeated = keeping();
    repeated.base.repetitions = Repetitions::constant(2);
    fs::remove_file(&file).unwrap();
    run(&repeated, &job(&file, "rw=write\nio_size=32k"), &mut Silent).unwrap();
    assert!(fs::read(&file).unwrap()[32 << 10..].iter().any(|byte| *byte != 0));
}
