//! The record of a device: its target and options, for a server that continues it, and for the list. It is in the
//! directory of runtime files, which is empty after a start of the machine, as the devices are.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{AttachRequest, VolumeRequest};
use iopath_bench::own_file;
use iopath_ublk::DeviceInfo;

/// A device, as a file of JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Record {
    /// The target; a path is absolute.
    pub(super) target: PathBuf,
    /// The process of the server, which a stopped device does not name.
    pub(super) server: u32,
    instance: u32,
    volume: VolumeRequest,
}

impl Record {
    pub(super) fn of(request: &AttachRequest, target: &Path, instance: u32) -> Self {
        let (target, server, volume) = (absolute(target), std::process::id(), request.volume.clone());
        Self { target, server, instance, volume }
    }

    /// The request that continues the device.
    pub(super) fn request(&self) -> AttachRequest {
        AttachRequest {
            targets: vec![self.target.clone()],
            volume: self.volume.clone(),
            queues: None,
            device: None,
        }
    }

    /// Whether the device has this target.
    pub(super) fn is_of(&self, target: &Path) -> bool {
        self.target == absolute(target)
    }

    /// The record of a device; `None` if there is none that can be read. That of an earlier device is none.
    pub(super) fn load(device: &DeviceInfo) -> Option<Self> {
        let record: Self = serde_json::from_slice(&fs::read(file_of(device.device)).ok()?).ok()?;
        (record.instance == device.instance).then_some(record)
    }

    /// # Errors
    /// The error of the system.
    pub(super) fn store(&self, device: &DeviceInfo) -> std::io::Result<()> {
        let file = file_of(device.device);
        fs::create_dir_all(own_file::directory_of(&file))?;
        own_file::replace(&file, &serde_json::to_vec(self)?)
    }

    /// A record that stays is replaced by that of the next device of the number, which may be there already.
    pub(super) fn remove(device: &DeviceInfo) {
        if Self::load(device).is_some() {
            let _ = fs::remove_file(file_of(device.device));
        }
    }
}

fn absolute(target: &Path) -> PathBuf {
    fs::canonicalize(target).unwrap_or_else(|_| target.to_owned())
}

fn file_of(device: u32) -> PathBuf {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let directory = match runtime {
        _ if rustix::process::geteuid().is_root() => PathBuf::from("/run"),
        Some(runtime) if runtime.is_absolute() => runtime,
        _ => std::env::temp_dir(),
    };
    directory.join(format!("iopath/ublk-{device}.json"))
}
