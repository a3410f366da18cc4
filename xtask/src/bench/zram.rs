//! `/dev/zram0` as a RAM-backed target: set up only if it is unused, and reset afterwards.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::scratch;
use super::side::TargetFile;
use crate::workspace;

const DEVICE: &str = "/dev/zram0";
const SYSFS: &str = "/sys/block/zram0";
const SIZE_MIB: u64 = 512;

/// Attempts to reset: udev opens the device for a moment.
const RESETS_MAX: u32 = 20;

/// The device after its setup. Drop resets the device: it then has no size and no content.
#[derive(Debug)]
pub(super) struct Zram {
    sysfs: PathBuf,
    /// A file that records the setup. If this process is killed before the reset, the next start finds it and resets
    /// the device.
    mark: PathBuf,
}

/// The result of the setup.
#[derive(Debug)]
pub(super) enum SetUp {
    Ours(Zram),
    /// With the reason.
    Unusable(String),
}

impl Zram {
    /// If the device is unused, sets its size and fills it with incompressible bytes.
    pub(super) fn set_up() -> Result<SetUp> {
        if !workspace::is_root() || !Path::new(DEVICE).exists() {
            return Ok(SetUp::Unusable(format!("needs root and {DEVICE} (modprobe zram)")));
        }
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let set_up = Self::claim(SYSFS.into(), workspace::target_dir().join("zram0-is-ours"), boot.trim())?;
        if let SetUp::Ours(_) = &set_up {
            eprintln!("writing {SIZE_MIB} MiB to {DEVICE}");
            scratch::fill(&Self::target())?;
        }
        Ok(set_up)
    }

    pub(super) fn target() -> TargetFile {
        TargetFile { path: DEVICE.into(), mib: SIZE_MIB }
    }

    /// Sets the size, only if the device has no size, or a size that we have set since this `boot`.
    fn claim(sysfs: PathBuf, mark: PathBuf, boot: &str) -> Result<SetUp> {
        let size_file = sysfs.join("disksize");
        let size =
            fs::read_to_string(&size_file).with_context(|| format!("cannot read {}", size_file.display()))?;
        let size = size.trim();
        let left_by_us = size == size_bytes() && fs::read_to_string(&mark).is_ok_and(|mark| mark == boot);
        if size != "0" && !left_by_us {
            return Ok(SetUp::Unusable(format!("{DEVICE} is in use ({size} bytes)")));
        }
        fs::write(&mark, boot).with_context(|| format!("cannot write {}", mark.display()))?;
        let zram = Self { sysfs, mark };
        if left_by_us {
            zram.reset()?;
        }
        fs::write(&size_file, size_bytes()).with_context(|| format!("cannot set {}", size_file.display()))?;
        Ok(SetUp::Ours(zram))
    }

    fn reset(&self) -> Result<()> {
        let file = self.sysfs.join("reset");
        for _ in 1..RESETS_MAX {
            if fs::write(&file, "1").is_ok() {
                return Ok(());
            }
            sleep(Duration::from_millis(100));
        }
        if let Err(error) = fs::write(&file, "1") {
            bail!(
                "{DEVICE} stays in use: {}: {error}; `echo 1 > {}` resets it",
                file.display(),
                file.display()
            );
        }
        Ok(())
    }
}

impl Drop for Zram {
    fn drop(&mut self) {
        match self.reset() {
            Ok(()) => drop(fs::remove_file(&self.mark)),
            Err(error) => eprintln!("{error:#}"),
        }
    }
}

fn size_bytes() -> String {
    (SIZE_MIB << 20).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOT: &str = "boot-1";

    /// A folder like the device's folder in sysfs, with `disksize` of `size`.
    fn device(size: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("a folder");
        fs::write(dir.path().join("disksize"), size).expect("a file");
        dir
    }

    fn claim(dir: &Path) -> SetUp {
        Zram::claim(dir.to_owned(), dir.join("mark"), BOOT).expect("the folder can be written")
    }

    fn disksize(dir: &Path) -> String {
        fs::read_to_string(dir.join("disksize")).expect("a file")
    }

    #[test]
    fn a_device_without_size_is_used_and_reset() {
        let dir = device("0\n");
        let SetUp::Ours(zram) = claim(dir.path()) else { panic!("it is unused") };
        assert_eq!(disksize(dir.path()), "536870912");
        assert!(!dir.path().join("reset").exists());
        drop(zram);
        assert_eq!(fs::read_to_string(dir.path().join("reset")).expect("it was reset"), "1");
        assert!(!dir.path().join("mark").exists());
    }

    #[test]
    fn a_device_in_use_is_left_alone() {
        for (size, mark) in [("1073741824", Some(BOOT)), ("536870912", None), ("536870912", Some("boot-0"))] {
            let dir = device(size);
            if let Some(mark) = mark {
                fs::write(dir.path().join("mark"), mark).expect("a file");
            }
            let SetUp::Unusable(reason) = claim(dir.path()) else { panic!("{size} {mark:?}: not ours") };
            assert!(reason.contains(size), "{reason}");
            assert!(!dir.path().join("reset").exists());
            assert_eq!(disksize(dir.path()), size);
        }
    }

    #[test]
    fn a_device_of_a_killed_bench_is_reset() {
        let dir = device("536870912");
        fs::write(dir.path().join("mark"), BOOT).expect("a file");
        let SetUp::Ours(zram) = claim(dir.path()) else { panic!("it is ours") };
        assert!(dir.path().join("reset").exists(), "reset before its size is set again");
        drop(zram);
    }
}
