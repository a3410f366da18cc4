//! Sequential buffered reads of real storage for `unplug` and `dip`: through the page cache of the kernel with settings
//! of readahead and of the largest request, and through the page cache of iopath. Reads only.
//!
//! The target lies below a read-only loop device, so the settings are those of the loop device, and the settings of the
//! target stay as they are. A loop device needs root and the program `losetup`. Without them, only iopath reads the
//! target.
//!
//! ```text
//!   kernel-buffered ─▶ page cache ─▶ read_ahead_kb, max_sectors_kb ─▶ loop device ─▶ direct I/O ─▶ file or device
//!   iopath-buffered ─▶ page cache of iopath ─▶ direct I/O ────────────────┘
//! ```

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use iopath::Readahead;
use iopath_os::target::Kind;
use iopath_report::Rw;
use iopath_report::experiment::Settings;

use super::error::ExperimentError;
use super::on_target::TargetRun;
use iopath_bench::cache::CacheSettings;
use iopath_bench::device_settings::{Change, Session, SettingsDevice, Until};
use iopath_bench::paths::{iopath_buffered, kernel_buffered};
use iopath_bench::target::{Target, inspect};
use iopath_bench::workload::{BlockSize, Repetitions, Workload};

/// The size of a read, unless the caller sets another.
const SIZE_MIB: u64 = 256;

/// The top half of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Top {
    /// The page cache of the kernel, with these settings of the device.
    Kernel { readahead_kib: u64, max_sectors_kib: u64 },
    /// The page cache and readahead of iopath, which unplugs at once.
    Iopath,
}

/// The device that is read.
#[derive(Debug)]
pub(super) struct Reads {
    /// Before the loop device, since fields are dropped in this order: the settings are restored while it exists.
    settings: Option<Session>,
    device: PathBuf,
    _loop: Option<LoopDevice>,
    _scratch: Option<Target>,
    size_bytes: u64,
    /// The reason why the kernel does not read.
    pub(super) skipped: Option<String>,
}

impl Reads {
    /// Attaches a loop device to the target: to a scratch file in a directory, or to a file or block device.
    ///
    /// # Errors
    /// [`ExperimentError`]: the directory has no space for the scratch file, or the target is not readable or too
    /// small.
    pub(super) fn prepare(run: &mut TargetRun<'_>) -> Result<Self, ExperimentError> {
        let mut size_bytes = size_mib(run.settings()) << 20;
        let info = inspect(run.target())?;
        let (backing, scratch) = if info.kind == Kind::Directory {
            let scratch = run.scratch(size_bytes, 1)?;
            let file = scratch.file().expect("a scratch file has a path").to_owned();
            (file, Some(scratch))
        } else {
            size_bytes =
                if run.settings().is_set("size_mib") { size_bytes } else { size_bytes.min(info.size_bytes) };
            (info.path, None)
        };
        let attached = LoopDevice::attach(&backing).and_then(|device| {
            let settings = SettingsDevice::find(&device.path).map_err(|error| error.to_string())?;
            let session = Session::begin(settings, Until::Exit).map_err(|error| error.to_string())?;
            Ok((device, session))
        });
        let (of_loop, settings, skipped) = match attached {
            Ok((device, session)) => (Some(device), Some(session), None),
            Err(why) => (None, None, Some(why)),
        };
        let device = of_loop.as_ref().map_or(backing, |device| device.path.clone());
        Ok(Self { settings, device, _loop: of_loop, _scratch: scratch, size_bytes, skipped })
    }

    /// The throughput in MiB/s of one pass in calls of this size. `None` for [`Top::Kernel`] without a loop device.
    ///
    /// # Errors
    /// [`ExperimentError`]: the device refuses a setting, or a transfer failed.
    pub(super) fn mib_per_s(
        &self,
        run: &mut TargetRun<'_>,
        top: Top,
        block_bytes: u64,
    ) -> Result<Option<f64>, ExperimentError> {
        let path = match top {
            Top::Kernel { readahead_kib, max_sectors_kib } => {
                let Some(settings) = &self.settings else { return Ok(None) };
                let changes =
                    [format!("max_sectors={max_sectors_kib}k"), format!("readahead={readahead_kib}k")];
                settings.set(&Change::parse_all(&changes)?)?;
                &kernel_buffered::ROW
            }
            Top::Iopath => &iopath_buffered::ROW,
        };
        let workload = Workload {
            path,
            target: Some(self.device.clone()),
            rw: Rw::Read,
            block_size: BlockSize::new(block_bytes.min(self.size_bytes))?,
            size_bytes: Some(self.size_bytes),
            cache: CacheSettings {
                readahead: (top == Top::Iopath).then_some(Readahead::Auto),
                ..CacheSettings::default()
            },
            repetitions: Repetitions::constant(3),
            ..Workload::default()
        };
        let result = run.measure_existing(&workload)?;
        Ok(Some(result.bytes_per_second.mean / f64::from(1 << 20)))
    }

    /// The setup of the measurement, and the parts that were skipped.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = vec![format!(
            "Reads {} MiB. Only the directions have a meaning: the source has another machine and a remote target. Neither a \
             kernel of today nor iopath lets a reader wait while its requests are plugged, so the patch cannot be switched off.",
            self.size_bytes >> 20
        )];
        notes.extend(self.skipped.as_ref().map(|why| {
            format!("Skipped: the reads of the kernel. They need a loop device, for settings of readahead and requests: {why}")
        }));
        notes
    }
}

/// The size of a read: less than the published one unless the caller sets it.
fn size_mib(settings: &Settings) -> u64 {
    if settings.is_set("size_mib") { settings.count("size_mib") } else { SIZE_MIB }
}

/// A read-only loop device, which the kernel detaches when this process has closed it, also when it is killed.
#[derive(Debug)]
struct LoopDevice {
    path: PathBuf,
    _open: File,
}

impl LoopDevice {
    /// A loop device of a file or block device. Otherwise the reason why there is none.
    fn attach(backing: &Path) -> Result<Self, String> {
        let options = ["--find", "--show", "--read-only", "--direct-io=on"].map(OsStr::new);
        let path = PathBuf::from(losetup(&[&options[..], &[backing.as_os_str()]].concat())?);
        let open = File::open(&path).map_err(|error| format!("{}: {error}", path.display()));
        // The device is in use, so this sets it to detach itself at its last close.
        let detached = losetup(&[OsStr::new("--detach"), path.as_os_str()]);
        let device = Self { _open: open?, path };
        detached.map(|_| device)
    }
}

/// Runs `losetup`, and returns its output.
fn losetup(arguments: &[&OsStr]) -> Result<String, String> {
    let output =
        Command::new("losetup").args(arguments).output().map_err(|error| format!("losetup: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    let message = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
    Err(if message.is_empty() { format!("losetup: {}", output.status) } else { message })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::remote::MODEL;
    use super::*;
    use iopath_bench::progress::Silent;
    use iopath_bench::run::Lab;

    #[test]
    fn a_directory_and_a_file_are_read_and_settings_apply_to_the_loop_device_only() {
        let directory = tempfile::tempdir().unwrap();
        let settings = Settings::new(&MODEL, &["size_mib=16".to_owned()]).unwrap();
        let (lab, file) = (Lab::new(Duration::ZERO, &mut Silent), directory.path().join("file"));
        std::fs::write(&file, vec![7; 16 << 20]).unwrap();
        for target in [directory.path(), &file] {
            let mut silent = Silent;
            let mut run = TargetRun::new(&lab, target, &settings, &mut silent);
            let reads = Reads::prepare(&mut run).unwrap();
            let rate = reads.mib_per_s(&mut run, Top::Iopath, 1 << 20).unwrap().unwrap();
            assert!(rate > 0.0);
            let kernel = Top::Kernel { readahead_kib: 128, max_sectors_kib: 64 };
            let rate = reads.mib_per_s(&mut run, kernel, 1 << 20).unwrap();
            assert_eq!(rate.is_some(), reads.skipped.is_none());
            if let Some(why) = &reads.skipped {
                eprintln!("skipped: reads of the kernel: {why}");
                assert!(reads.notes()[1].contains(why));
                continue;
            }
            let device = reads.device.clone();
            assert!(device.starts_with("/dev"));
            let queue = Path::new("/sys/block").join(device.file_name().unwrap()).join("queue");
            let setting = |name| std::fs::read_to_string(queue.join(name)).unwrap().trim().to_owned();
            assert_eq!([setting("read_ahead_kb"), setting("max_sectors_kb")], ["128", "64"]);
            drop(reads);
            // The device has detached itself; another program may have attached it to another file since.
            let backing = std::fs::read_to_string(queue.with_file_name("loop").join("backing_file"));
            assert!(!backing.unwrap_or_default().contains(directory.path().to_str().unwrap()));
        }
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "only the file remains");
    }

    #[test]
    fn a_backing_file_that_does_not_exist_is_a_reason_to_skip() {
        let why = LoopDevice::attach(Path::new("/none/such")).unwrap_err();
        assert!(!why.is_empty() && !why.contains('\n'), "{why}");
    }
}
