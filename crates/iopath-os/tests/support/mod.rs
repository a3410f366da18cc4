//! Real block devices for tests: loop devices over small files, which are removed even if a test panics.

#![allow(dead_code)] // Each test program uses only a part of this module.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use tempfile::TempDir;

/// Prints on stderr why the calling test is skipped, and returns from the test.
#[macro_export]
macro_rules! skip {
    ($($why:tt)*) => {{
        eprintln!("skipped: {}", format_args!($($why)*));
        return;
    }};
}

/// The value of a result. On an error, the test is skipped.
#[macro_export]
macro_rules! or_skip {
    ($step:expr) => {
        match $step {
            Ok(value) => value,
            Err(why) => $crate::skip!("{why}"),
        }
    };
}

/// Runs a program of the system. Returns its stdout, or the reason of the failure.
pub(crate) fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program)
        .args(arguments)
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .output()
        .map_err(|e| format!("{program}: {e}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    } else {
        Err(format!("{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr).trim()))
    }
}

/// Repeats a step for some seconds while its device is busy: udev opens a device for a moment after each change.
fn again_while_busy(step: impl Fn() -> Result<String, String>) -> Result<String, String> {
    for _ in 0..50 {
        match step() {
            Err(why) if why.contains("busy") => std::thread::sleep(std::time::Duration::from_millis(100)),
            ended => return ended,
        }
    }
    step()
}

/// The commands to run at the end of a test, in reverse order.
#[derive(Debug, Default)]
pub(crate) struct Cleanup(Vec<Vec<String>>);

impl Cleanup {
    /// Adds a command to run at the end, before the commands that were added earlier.
    pub(crate) fn add(&mut self, command: &[&str]) {
        self.0.push(command.iter().map(|&word| word.to_owned()).collect());
    }
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        for command in self.0.iter().rev() {
            let words: Vec<&str> = command.iter().map(String::as_str).collect();
            if let Err(why) = again_while_busy(|| run(words[0], &words[1..])) {
                eprintln!("not cleaned up: {why}");
            }
        }
    }
}

/// A process that is killed at the end of a test, also after a failure.
#[derive(Debug)]
pub(crate) struct Killed(pub(crate) Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A filesystem in memory, mounted on a temporary directory.
#[derive(Debug)]
pub(crate) struct MemoryFilesystem {
    // This field precedes the directory, so that the filesystem is unmounted before the directory is removed.
    _mounted: Cleanup,
    directory: TempDir,
}

impl MemoryFilesystem {
    /// Mounts one with options of `mount`, or returns the reason why that is impossible here.
    pub(crate) fn new(options: &str) -> Result<Self, String> {
        let directory = TempDir::new().map_err(|e| e.to_string())?;
        let mut mounted = Cleanup::default();
        run("mount", &["-t", "tmpfs", "-o", options, "tmpfs", text(directory.path())])?;
        mounted.add(&["umount", text(directory.path())]);
        Ok(Self { _mounted: mounted, directory })
    }

    /// The directory.
    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }
}

/// A machine-wide lock for loop devices. `losetup --find` of one test opens each free device for a moment, and another
/// test could find its own device busy.
#[derive(Debug)]
pub(crate) struct Alone(File);

impl Alone {
    /// Waits until no other test uses loop devices.
    pub(crate) fn wait() -> Result<Self, String> {
        // One lock for all: `TMPDIR` may differ between the tests of several users.
        let shared = Path::new("/tmp");
        let directory = if shared.is_dir() { shared.to_owned() } else { std::env::temp_dir() };
        let path = directory.join("iopath-tests-of-loop-devices.lock");
        // An existing file is opened read-only, since another user may own it.
        let file = File::open(&path).or_else(|_| File::create_new(&path)).or_else(|_| File::open(&path));
        let file = file.map_err(|e| format!("{}: {e}", path.display()))?;
        rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).map_err(|e| e.to_string())?;
        Ok(Self(file))
    }
}

/// A loop device over a sparse file in a temporary directory.
#[derive(Debug)]
pub(crate) struct Loop {
    /// `/dev/loopN`.
    pub(crate) device: PathBuf,
    /// The backing file.
    pub(crate) image: PathBuf,
    // This field precedes the directory, so that the device is detached before the file is deleted.
    cleanup: Cleanup,
    dir: TempDir,
}

impl Loop {
    /// Creates a loop device of `mib` MiB, or returns the reason why that is impossible here.
    pub(crate) fn new(_alone: &Alone, mib: u64, options: &[&str]) -> Result<Self, String> {
        let dir = TempDir::new().map_err(|e| e.to_string())?;
        let image = dir.path().join("image");
        File::create(&image).and_then(|file| file.set_len(mib << 20)).map_err(|e| e.to_string())?;
        let arguments = [&["--find", "--partscan", "--show"], options, &[text(&image)]].concat();
        let device = again_while_busy(|| run("losetup", &arguments))?;
        let mut cleanup = Cleanup::default();
        cleanup.add(&["losetup", "--detach", &device]);
        Ok(Self { device: device.into(), image, cleanup, dir })
    }

    /// Adds partition `number` (bounds in MiB) and returns its device. The partition is added in the kernel directly,
    /// without a partition table.
    pub(crate) fn partition(&mut self, number: u32, start_mib: u64, mib: u64) -> Result<PathBuf, String> {
        let (number, start, sectors) =
            (number.to_string(), (start_mib * 2048).to_string(), (mib * 2048).to_string());
        again_while_busy(|| run("addpart", &[text(&self.device), &number, &start, &sectors]))?;
        self.cleanup.add(&["delpart", text(&self.device), &number]);
        Ok(format!("{}p{number}", self.device.display()).into())
    }

    /// Mounts `device` in the temporary directory and returns the mount point.
    pub(crate) fn mount(&mut self, device: &Path) -> Result<PathBuf, String> {
        let at = self.dir.path().join("mounted here");
        std::fs::create_dir_all(&at).map_err(|e| e.to_string())?;
        run("mount", &[text(device), text(&at)])?;
        self.cleanup.add(&["umount", text(&at)]);
        Ok(at)
    }

    /// Adds a command to run at the end of the test.
    pub(crate) fn at_end(&mut self, command: &[&str]) {
        self.cleanup.add(command);
    }

    /// The temporary directory with the image.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }
}

/// A path made by these tests, which are all UTF-8.
pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("paths of tests are UTF-8")
}
