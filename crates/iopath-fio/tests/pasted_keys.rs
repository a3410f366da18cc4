//! Keys of published command lines: verified patterns, histograms over time, locked memory, huge pages and polling.

use std::fs;
use std::path::Path;

use crate::support::Nothing;
use iopath_bench::progress::Silent;
use iopath_fio::{JobFile, RunSettings};
use iopath_report::result::Report;

fn run(text: &str) -> Result<Report, String> {
    let file =
        JobFile::parse("f.fio", text.as_bytes(), &Nothing, false).map_err(|error| error.to_string())?;
    let settings = RunSettings { keeps_files: true, ..RunSettings::default() };
    file.run(&settings, &mut Silent).map_err(|error| error.to_string())
}

fn job(directory: &Path, keys: &str) -> String {
    format!("[j]\nfilename={}\nsize=64k\n{keys}\n", directory.join("x").display())
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap()
}

#[test]
fn a_verified_pattern_is_that_of_fio_and_a_changed_byte_is_found() {
    let directory = directory();
    let keys = "verify=pattern\nverify_pattern=0xdeadbeef%o\"ab\"";
    let written = run(&job(directory.path(), &format!("rw=randwrite\n{keys}"))).unwrap();
    let verify = written.runs[0].verify.as_ref().unwrap();
    assert_eq!((verify.blocks, verify.faults()), (16, 0));
    let file = directory.path().join("x");
    let Ok(mut content) = fs::read(&file) else {
        return eprintln!("skipped: no extended attributes here, so the file is removed");
    };
    // As fio 3.33 writes the second block.
    let expected = b"\xde\xad\xbe\xef\0\x10\0\0\0\0\0\0ab\xde\xad\xbe\xef\0\x10";
    assert_eq!(content[4096..4096 + expected.len()], expected[..]);
    assert_eq!(content[4096 + 4088..4096 + 4096], [0xde, 0xad, 0xbe, 0xef, 0, 0x10, 0, 0]);
    let read = |keys: &str| run(&job(directory.path(), &format!("rw=read\n{keys}"))).unwrap();
    assert_eq!(read(keys).runs[0].verify.as_ref().unwrap().faults(), 0);
    content[3 * 4096 + 700] ^= 1;
    fs::write(&file, &content).unwrap();
    let verify = read(keys).runs[0].verify.clone().unwrap();
    assert_eq!((verify.corrupt, verify.faults()), (1, 1));
    assert_eq!((verify.first[0].offset, verify.first[0].first_bad), (3 * 4096, 3 * 4096 + 512));
    let other = read("verify=pattern\nverify_pattern=7");
    assert_eq!(other.runs[0].verify.as_ref().unwrap().corrupt, 16);
}

#[test]
fn a_pattern_needs_its_bytes_and_all_jobs_of_a_file_have_one() {
    let directory = directory();
    let error = run(&job(directory.path(), "rw=write\nverify=pattern")).unwrap_err();
    assert!(error.contains("add verify_pattern"), "{error}");
    let second = format!(
        "{}[k]\nstonewall\nfilename={}\nsize=64k\nrw=read\nverify=crc32c\n",
        job(directory.path(), "rw=write\nverify=pattern\nverify_pattern=1"),
        directory.path().join("x").display()
    );
    let error = run(&second).unwrap_err();
    assert!(error.contains("other contents of the same file than job j"), "{error}");
}

#[test]
fn histograms_have_the_classes_of_fio_and_all_transfers_of_their_intervals() {
    let directory = directory();
    let log = directory.path().join("h");
    let keys = format!(
        "rw=randrw\nruntime=1\ntime_based\nwrite_hist_log={}\nlog_hist_msec=100\nlog_hist_coarseness=4",
        log.display()
    );
    let report = run(&job(directory.path(), &keys)).unwrap();
    let text = fs::read_to_string(directory.path().join("h_clat_hist.1.log")).unwrap();
    let mut counted = 0;
    for line in text.lines() {
        let fields: Vec<u64> = line.split(", ").map(|field| field.parse().unwrap()).collect();
        // fio 3.33 writes as many for this coarseness.
        assert_eq!(fields.len(), 119, "{line}");
        assert!(fields[1] <= 1 && fields[2] == 4096, "{line}");
        counted += fields[3..].iter().sum::<u64>();
    }
    let all = report.runs[0].repeats[0].ios;
    assert!(counted > 0 && counted <= all, "{counted} of {all}");
    let warned = run(&job(directory.path(), &keys.replace("log_hist_msec=100\n", ""))).unwrap();
    assert!(warned.runs[0].warnings.iter().any(|warning| warning.contains("log_hist_msec")));
}

#[test]
fn locked_memory_polling_and_huge_pages_run_or_are_refused_with_the_reason() {
    let directory = directory();
    // More than the machine has.
    let error = run(&job(directory.path(), "rw=read\nlockmem=1p")).unwrap_err();
    assert!(error.contains("lockmem"), "{error}");
    for (keys, reason) in [
        ("lockmem=64k", "lockmem"),
        ("mem=mmaphuge", "vm.nr_hugepages"),
        ("ioengine=io_uring\ndirect=1\nsqthread_poll=1\niodepth=4", "io_uring"),
        ("ioengine=io_uring\ndirect=1\nhipri", "polled queues"),
    ] {
        match run(&job(directory.path(), &format!("rw=read\n{keys}"))) {
            Ok(report) => assert!(report.runs[0].repeats[0].ios == 16, "{keys}"),
            Err(error) if error.contains("direct I/O") => eprintln!("skipped: {error}"),
            Err(error) => assert!(error.contains(reason), "{keys}: {error}"),
        }
    }
    for keys in ["hipri", "sqthread_poll"] {
        let error = run(&job(directory.path(), &format!("rw=read\n{keys}"))).unwrap_err();
        assert!(error.contains("kernel-buffered waits for interrupts") && error.contains(keys), "{error}");
    }
    let error = run(&job(directory.path(), "rw=read\nioengine=iopath-buffered\nmem=shmhuge")).unwrap_err();
    assert!(error.contains("buffers of its own"), "{error}");
}

#[test]
fn the_use_of_a_disk_is_counted_once_for_all_files_and_with_the_ramp() {
    let directory = directory();
    let place = directory.path().display();
    let text = format!(
        "[j]\ndirectory={place}\nnumjobs=2\nnrfiles=2\nsize=1m\nrw=randread\nramp_time=1\nruntime=1\ntime_based\n"
    );
    let report = run(&text).unwrap();
    let [group] = &report.groups[..] else { panic!("one group") };
    let [disk] = &group.disks[..] else {
        return eprintln!("skipped: these files lie on {} disks", group.disks.len());
    };
    assert!(disk.seconds > group.seconds, "{} s of {} s", group.seconds, disk.seconds);
    let json: serde_json::Value = serde_json::from_str(&iopath_report::format::fio::json(
        &report,
        iopath_report::format::fio::Bins::No,
    ))
    .unwrap();
    let util = json["disk_util"][0]["util"].as_f64();
    assert_eq!(json["disk_util"][0]["name"], disk.name.as_str());
    assert!(util.is_none_or(|util| (0.0..=100.0).contains(&util)), "{util:?}");
}
