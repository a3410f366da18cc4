//! Device I/O of a run while another process uses the disk. The only test of its program, because the counters cover
//! the whole process.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use iopath_bench::paths::find_path;
use iopath_bench::progress::Silent;
use iopath_bench::{BenchError, End, Lab, Repetitions, Target, Workload};

const MIB: u64 = 1 << 20;

/// A process that reads a file with direct I/O in a loop until it is dropped.
struct OtherProcess(std::process::Child);

impl OtherProcess {
    fn reads(file: &Path) -> Option<Self> {
        let script = "while dd if=\"$0\" of=/dev/null bs=64k iflag=direct status=none; do :; done";
        let mut command = std::process::Command::new("sh");
        let child = command.args(["-c", script]).arg(file).stderr(std::process::Stdio::null()).spawn();
        child.map(Self).map_err(|error| eprintln!("skipped: no shell: {error}")).ok()
    }
}

impl Drop for OtherProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn io_of_other_processes_is_not_device_io_of_a_run() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let [file, others] = ["hits", "others"].map(|name| directory.path().join(name));
    for path in [&file, &others] {
        let file = File::create(path).unwrap();
        std::io::Write::write_all(&mut &file, &vec![7; 4 * MIB as usize]).unwrap();
        file.sync_all().unwrap();
    }
    let hits = Workload {
        path: find_path("iopath-buffered").unwrap(),
        target: Some(file),
        warm: true,
        size_bytes: Some(MIB),
        end: End::Time(Duration::from_millis(300)),
        repetitions: Repetitions::constant(1),
        ..Workload::default()
    };
    let Some(_other) = OtherProcess::reads(&others) else { return };
    let target = Target::prepare(&hits, &mut Silent).unwrap();
    let lab = Lab::new(Duration::from_millis(1), &mut Silent);
    let result = match lab.run(&hits, &target, &mut Silent) {
        Err(BenchError::Direct(error)) => {
            eprintln!("skipped: {error}");
            return;
        }
        result => result.unwrap(),
    };
    let Some(device) = result.device else {
        eprintln!("skipped: no single disk");
        return;
    };
    // The run may read a block of metadata. Each read of the other process has 64 KiB.
    assert!(device.read_bytes < 64 << 10, "{device:?}");
}
