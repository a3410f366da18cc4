//! Keys of the content, the durability, the files and the batches of a job: their effect on files and on models.

use std::fs;
use std::path::Path;

use iopath_bench::progress::Silent;
use iopath_fio::{JobFile, RunSettings};
use iopath_report::result::{Report, RunResult};

use crate::support::Nothing;

fn parse(text: &str) -> JobFile {
    JobFile::parse("f.fio", text.as_bytes(), &Nothing, false).unwrap()
}

/// Runs jobs that may write to the files of a directory.
fn run_in(directory: &Path, text: &str) -> Report {
    let mut settings = RunSettings { target: Some(directory.to_owned()), ..RunSettings::default() };
    settings.base.overwrite = true;
    parse(text).run(&settings, &mut Silent).unwrap()
}

fn fact<'a>(run: &'a RunResult, key: &str) -> Option<&'a str> {
    run.workload.as_ref()?.text(key)
}

const BYTES: usize = 64 << 10;

/// The content of a file of 64 KiB after a job has written it with these keys.
fn written(keys: &str) -> (Vec<u8>, Report) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("f");
    fs::write(&file, vec![9; BYTES]).unwrap();
    let report = run_in(directory.path(), &format!("[j]\nfilename=f\nrw=write\n{keys}\n"));
    (fs::read(&file).unwrap(), report)
}

#[test]
fn writes_have_the_content_of_their_keys() {
    let (zeroes, report) = written("zero_buffers");
    assert!(zeroes == vec![0; BYTES] && fact(&report.runs[0], "contents") == Some("zeroes"));
    let (pattern, report) = written("buffer_pattern=0xabcdef12");
    assert_eq!(pattern, [0xab, 0xcd, 0xef, 0x12].repeat(BYTES / 4));
    assert_eq!(fact(&report.runs[0], "contents"), Some("pattern 0xabcdef12"));
    let (half, _) = written("buffer_compress_percentage=50\nbuffer_compress_chunk=4k");
    for page in half.chunks(4096) {
        assert!(page[2048..].iter().all(|byte| *byte == 0) && page[..2048].iter().any(|byte| *byte != 0));
    }
    let (equal, report) = written("dedupe_percentage=100");
    assert!(equal.chunks(4096).all(|block| block == &equal[..4096]));
    assert_eq!(fact(&report.runs[0], "contents"), Some("100% duplicates, random"));
    let (unique, report) = written("");
    let blocks: std::collections::HashSet<_> = unique.chunks(4096).collect();
    assert_eq!((blocks.len(), fact(&report.runs[0], "contents")), (BYTES / 4096, None));
}

#[test]
fn synchronous_writes_are_a_fact_of_the_result() {
    for (value, expected) in [("1", Some("sync")), ("dsync", Some("dsync")), ("none", None)] {
        let (content, report) = written(&format!("sync={value}"));
        assert_ne!(content, vec![9; BYTES]);
        assert_eq!(fact(&report.runs[0], "sync"), expected, "{value}");
    }
}

#[test]
fn several_files_are_accessed_in_turn_or_one_after_another() {
    for (order, first) in
        [("roundrobin", ["a", "b"]), ("roundrobin:2", ["a", "a"]), ("sequential", ["a", "a"])]
    {
        let directory = tempfile::tempdir().unwrap();
        for name in ["a", "b"] {
            fs::write(directory.path().join(name), vec![9; BYTES]).unwrap();
        }
        let keys = format!("filename=a:b\nfile_service_type={order}\nrw=write\nzero_buffers\nnumber_ios=2");
        let report = run_in(directory.path(), &format!("[j]\n{keys}\n"));
        assert_eq!(report.runs[0].ios, 2);
        let zeroes = |name: &str| {
            let content = fs::read(directory.path().join(name)).unwrap();
            content.chunks(4096).filter(|block| *block == [0; 4096]).count()
        };
        let expected = ["a", "b"].map(|name| first.iter().filter(|one| **one == name).count());
        assert_eq!(["a", "b"].map(zeroes), expected, "{order}");
    }
}

#[test]
fn each_clone_has_its_own_files() {
    let directory = tempfile::tempdir().unwrap();
    let report = run_in(directory.path(), "[j]\nsize=256k\nnrfiles=4\nnumjobs=2\nrw=randrw\n");
    assert_eq!(report.runs[0].ios, 2 * 64);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "scratch files");
}

#[test]
fn files_of_a_directory_have_one_size() {
    let directory = tempfile::tempdir().unwrap();
    let (files, scratch) = (directory.path().join("files"), directory.path().join("scratch"));
    fs::create_dir_all(files.join("below")).unwrap();
    fs::create_dir(&scratch).unwrap();
    fs::write(files.join("a"), vec![9; BYTES]).unwrap();
    fs::write(files.join("below/b"), vec![9; BYTES]).unwrap();
    let text = format!("[j]\nopendir={}\n", files.display());
    let run = || parse(&text).run(&RunSettings::default(), &mut Silent);
    assert_eq!(run().unwrap().runs[0].bytes, 2 * BYTES as u64);
    fs::write(files.join("a"), vec![9; 2 * BYTES]).unwrap();
    let error = run().unwrap_err().to_string();
    assert!(error.contains("its files have different sizes"), "{error}");
}

#[test]
fn batches_of_completions_leave_the_depth_empty_for_a_while() {
    let iops = |keys: &str| {
        let text = format!(
            "[j]\nfilename=model\\:ssd-nvme\nioengine=libaio\ndirect=1\nrw=randread\nsize=1g\niodepth=16\nruntime=1\n\
             time_based\n{keys}\n"
        );
        parse(&text).run(&RunSettings::default(), &mut Silent).unwrap().runs[0].iops.mean as u64
    };
    let (usual, batches, low) = (iops(""), iops("iodepth_batch_complete=16"), iops("iodepth_low=1"));
    assert!(batches * 10 < usual * 9 && low * 10 < usual * 9, "{usual}, {batches}, {low}");
    assert_eq!(iops("iodepth_batch_complete=1\niodepth_batch=4\niodepth_low=16"), usual);
}

#[test]
fn blocks_of_several_sizes_need_a_path_that_splits_them() {
    let directory = tempfile::tempdir().unwrap();
    let settings = RunSettings { target: Some(directory.path().to_owned()), ..RunSettings::default() };
    let text = "[j]\nsize=256k\nnrfiles=2\nbsrange=4k-12k\n";
    let error = parse(text).run(&settings, &mut Silent).unwrap_err().to_string();
    assert!(error.contains("path kernel-buffered does not access"), "{error}");
    let report = parse(&format!("{text}ioengine=iopath-buffered\n")).run(&settings, &mut Silent).unwrap();
    assert_eq!(report.runs[0].bytes, 256 << 10);
}
