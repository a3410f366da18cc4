//! Errors of the settings of block devices. The messages are complete: one line with the object, the value and the
//! remedy.

use std::io;
use std::path::PathBuf;

use rustix::io::Errno;
use thiserror::Error;

/// A setting that cannot be read, changed or restored.
#[derive(Debug, Error)]
pub enum SettingsError {
    /// The device has no settings of its own, or does not exist.
    #[error("{device}: {reason}; name a block device, such as /dev/sda, or a file on one")]
    NoDevice {
        /// The device as given.
        device: String,
        /// The reason, in words.
        reason: String,
    },
    /// sysfs does not show the queue of the device.
    #[error("cannot read the settings of {device} in {}: {source}; check that sysfs is mounted and readable", path.display())]
    Unreadable {
        /// The name of the device.
        device: String,
        /// The directory of its settings.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Not of the form NAME=VALUE.
    #[error("`{0}` is not a setting; write NAME=VALUE")]
    Form(String),
    /// No setting has the name.
    #[error("`{name}` is not a setting of block devices; settings: {}, and the tunables of the scheduler as iosched/NAME", known.join(", "))]
    Unknown {
        /// The name.
        name: String,
        /// The names of the table.
        known: Vec<&'static str>,
    },
    /// The device or its scheduler does not have the setting.
    #[error("{device} has no setting {name}{}", if name.starts_with("iosched/") {
        " with its current scheduler; iopath tune DEVICE lists the settings"
    } else {
        ": its driver or the kernel does not have it"
    })]
    Missing {
        /// The name of the device.
        device: String,
        /// The setting.
        name: String,
    },
    /// The value is outside of the setting's range.
    #[error("{name} cannot be `{value}`; it is {values}")]
    Value {
        /// The setting.
        name: String,
        /// The value.
        value: String,
        /// The valid values.
        values: String,
    },
    /// A setting is named twice.
    #[error("{0} is set twice")]
    Twice(String),
    /// The kernel refused to change the setting.
    #[error("cannot set {name} of {device} to {value}: {source}{}", write_advice(source))]
    Write {
        /// The name of the device.
        device: String,
        /// The setting.
        name: String,
        /// The value.
        value: String,
        /// The system's error.
        source: io::Error,
    },
    /// The kernel accepted the value and set another one.
    #[error(
        "the kernel set {name} of {device} to {found} instead of {value}; use a value that the device accepts"
    )]
    Rounded {
        /// The name of the device.
        device: String,
        /// The setting.
        name: String,
        /// The requested value.
        value: String,
        /// The value that the kernel shows.
        found: String,
    },
    /// Another process changes settings of the device.
    #[error("the settings of {device} are in use by {owner}; wait for its end")]
    InUse {
        /// The name of the device.
        device: String,
        /// The process in words.
        owner: String,
    },
    /// The journal cannot be written. Without a journal, no setting is changed.
    #[error(
        "cannot {action} {}: {source}; settings change only after a journal is written: run as root, or set IOPATH_STATE_DIR \
         to a directory on a writable filesystem", path.display()
    )]
    State {
        /// The operation.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Settings do not have their previous values.
    #[error("not all settings of {device} are restored: {details}; the journal {} stays, run iopath tune --restore", journal.display())]
    NotRestored {
        /// The name of the device.
        device: String,
        /// Each setting, its previous value and the cause.
        details: String,
        /// The journal.
        journal: PathBuf,
    },
    /// The target of the workload is not on the device.
    #[error("{} is not on {device}: {reason}; name a --target on {device}", target.display())]
    OtherDevice {
        /// The target of the workload.
        target: PathBuf,
        /// The device whose settings change.
        device: String,
        /// The place of the target, in words.
        reason: String,
    },
    /// The process ends: a signal has restored the settings.
    #[error("interrupted")]
    Interrupted,
}

impl SettingsError {
    /// Whether the device refuses one value, and may accept others.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Value { .. } | Self::Write { .. } | Self::Rounded { .. } | Self::Missing { .. })
    }

    /// Whether the arguments are wrong on every machine.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Form(_) | Self::Unknown { .. } | Self::Value { .. } | Self::Twice(_))
    }
}

/// The remedy for a refused write.
fn write_advice(error: &io::Error) -> &'static str {
    match Errno::from_io_error(error) {
        Some(Errno::ACCESS | Errno::PERM) => "; run as root",
        Some(Errno::ROFS) => {
            "; sysfs is mounted read-only here, as in containers: change the setting outside"
        }
        Some(Errno::INVAL) => "; the device or the kernel does not support this value",
        Some(Errno::NODEV | Errno::NXIO | Errno::NOENT) => {
            "; the device is gone, or its driver does not have the setting"
        }
        Some(Errno::BUSY) => "; the device is busy: try again",
        _ => "",
    }
}
