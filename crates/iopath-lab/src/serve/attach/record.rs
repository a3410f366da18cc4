//! The record of a device: its target and options, for a server that continues it, and for the list. It is in the
//! directory of runtime files, which is empty after a start of the machine, as the devices are.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::AttachRequest;
use iopath_bench::own_file;

/// A device, as a file of JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    /// The target; a path is absolute.
    pub(super) target: PathBuf,
    path: String,
    elevator: Option<String>,
    cache_bytes: Option<u64>,
    is_writable: bool,
    overwrite: bool,
    is_shared: bool,
}

impl Record {
    pub(super) fn of(request: &AttachRequest, target: &Path) -> Self {
        Self {
            target: fs::canonicalize(target).unwrap_or_else(|_| target.to_owned()),
            path: request.mode.name().to_owned(),
            elevator: request.elevator.as_ref().map(ToString::to_string),
            cache_bytes: request.cache_bytes,
            is_writable: request.is_writable,
            overwrite: request.overwrite,
            is_shared: request.is_shared,
        }
    }

    /// The request that the record is of.
    pub(super) fn request(&self) -> Option<AttachRequest> {
        let Self { target, path, elevator, cache_bytes, is_writable, overwrite, is_shared } = self.clone();
        Some(AttachRequest {
            targets: vec![target],
            mode: path.parse().ok()?,
            elevator: elevator.map(|elevator| elevator.parse()).transpose().ok()?,
            cache_bytes,
            is_writable,
            overwrite,
            is_shared,
            queues: None,
            device: None,
        })
    }

    /// The record of a device; `None` if there is none that can be read.
    pub(super) fn load(device: u32) -> Option<Self> {
        serde_json::from_slice(&fs::read(file_of(device)).ok()?).ok()
    }

    /// # Errors
    /// The error of the system.
    pub(super) fn store(&self, device: u32) -> std::io::Result<()> {
        let file = file_of(device);
        fs::create_dir_all(own_file::directory_of(&file))?;
        own_file::replace(&file, &serde_json::to_vec(self)?)
    }

    /// A record that stays is replaced by that of the next device.
    pub(super) fn remove(device: u32) {
        let _ = fs::remove_file(file_of(device));
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::ServeMode;

    #[test]
    fn a_record_has_the_target_and_options_of_its_request() {
        let request = AttachRequest {
            targets: vec!["model:hdd-20tb".into()],
            mode: ServeMode::ALL[1],
            elevator: Some("deadline:read_expire_ms=100".parse().unwrap()),
            cache_bytes: Some(1 << 20),
            is_writable: false,
            overwrite: true,
            is_shared: true,
            queues: None,
            device: None,
        };
        let record = Record::of(&request, &request.targets[0]);
        let text = serde_json::to_string(&record).unwrap();
        let read: Record = serde_json::from_str(&text).unwrap();
        assert_eq!(read, record);
        assert_eq!(format!("{:?}", read.request().unwrap()), format!("{request:?}"));
        assert!(Record { path: "unknown".into(), ..record }.request().is_none());
    }
}
