//! Restores the settings of journals whose process has ended: after SIGKILL, a crash, or `iopath tune NAME=VALUE`. Does
//! not write journals.

use std::fmt;
use std::path::{Path, PathBuf};

use iopath_os::target::{DeviceNumber, Roots};

use super::device::SettingsDevice;
use super::error::SettingsError;
use super::journal::{self, Content, Lock, Until};
use super::restore::{affected, restore};
use super::table::SettingName;

/// The largest value of a setting, in bytes.
const VALUE_BYTES_MAX: usize = 256;

/// The outcome for one journal. Its text is one line.
#[derive(Debug)]
pub enum Leftover {
    /// The previous values are back.
    Restored {
        /// The name of the device.
        device: String,
        /// The process that changed them, in words.
        owner: String,
        /// The settings with their values.
        values: Vec<String>,
    },
    /// The journal does not apply any more, and is removed.
    Obsolete {
        /// The name of the device.
        device: String,
        /// The reason, in words.
        reason: String,
        /// The settings with their values in the journal; empty if they are of no use.
        values: Vec<String>,
    },
    /// The journal cannot be read. It was renamed.
    Damaged {
        /// The file, renamed.
        path: PathBuf,
        /// The damage in words.
        reason: String,
    },
    /// The values are not restored. The journal stays.
    Failed(SettingsError),
}

impl fmt::Display for Leftover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Restored { device, owner, values } => {
                write!(f, "restored settings of {device} that {owner} had changed: {}", values.join(" "))
            }
            Self::Obsolete { device, reason, values } if values.is_empty() => {
                write!(f, "nothing to restore on {device}: {reason}")
            }
            Self::Obsolete { device, reason, values } => write!(
                f,
                "settings of {device} are not restored: {reason}; the values in the journal were {}",
                values.join(" ")
            ),
            Self::Damaged { path, reason } => write!(
                f,
                "a journal of settings cannot be used: {reason}; it may still show the previous values: {}",
                path.display()
            ),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

/// Restores the settings that killed processes left changed. Returns no outcome for devices in use by a process, and
/// none without journals.
pub fn restore_killed() -> Vec<Leftover> {
    restore_in(&Roots::live(), &journal::directory(), &[Until::Exit], None)
}

/// Restores all changed settings of a device, or of all devices. A device that another process uses is a failure.
pub fn restore_all(device: Option<&SettingsDevice>) -> Vec<Leftover> {
    // The settings of a killed process were changed after those that last until a restore.
    restore_in(&Roots::live(), &journal::directory(), &[Until::Exit, Until::Restore], device)
}

/// See [`restore_all`].
pub(super) fn restore_in(
    roots: &Roots,
    directory: &Path,
    kinds: &[Until],
    only: Option<&SettingsDevice>,
) -> Vec<Leftover> {
    let is_requested = kinds.contains(&Until::Restore);
    let mut outcomes = Vec::new();
    for kind in kinds {
        for path in journal::journals(directory, *kind) {
            if only.is_some_and(|only| !path.ends_with(kind.file(&only.identity().number))) {
                continue;
            }
            let number = kind.number(&path);
            let name = journal::read(&path).map_or_else(|_| number.clone(), |content| content.device.name);
            // Before the decision: the process that has the lock replaces and removes the journal.
            let lock = match Lock::take(directory, &number, &name) {
                Ok(lock) => lock,
                Err(SettingsError::InUse { .. }) if !is_requested => continue,
                Err(error) => {
                    outcomes.push(Leftover::Failed(error));
                    continue;
                }
            };
            outcomes.push(match journal::read(&path) {
                // Another process restored it before this process had the lock.
                _ if !path.exists() => continue,
                Ok(content) if path.ends_with(kind.file(&content.device.number)) => {
                    restore_journal(roots, &lock, *kind, &content)
                }
                other => {
                    let reason =
                        other.err().unwrap_or_else(|| "its name is that of another device".to_owned());
                    Leftover::Damaged { path: journal::set_aside(&path), reason }
                }
            });
        }
    }
    outcomes
}

/// Restores the values of a journal on its device, and removes the journal.
pub(super) fn restore_journal(roots: &Roots, lock: &Lock, kind: Until, content: &Content) -> Leftover {
    let path = lock.journal(kind);
    let device = content.device.name.clone();
    let (before, changed) = match names(content) {
        Ok(names) => names,
        Err(reason) => return Leftover::Damaged { path: journal::set_aside(&path), reason },
    };
    let values: Vec<String> =
        affected(&before, &changed).iter().map(|(name, value)| format!("{name}={value}")).collect();
    let obsolete = |reason: String, values| match journal::remove(&path) {
        Ok(()) => Leftover::Obsolete { device: device.clone(), reason, values },
        Err(error) => Leftover::Failed(error),
    };
    if content.boot != journal::boot() {
        return obsolete("the machine was restarted since, which resets all settings".to_owned(), Vec::new());
    }
    let found =
        DeviceNumber::parse(&content.device.number).map(|number| SettingsDevice::numbered(roots, number));
    let found = match found {
        Some(Ok(found)) => found,
        Some(Err(SettingsError::NoDevice { .. })) | None => {
            return obsolete("the device is gone".to_owned(), Vec::new());
        }
        Some(Err(error)) => return Leftover::Failed(error),
    };
    if let Some(difference) = content.device.difference(found.identity()) {
        return obsolete(
            format!("it is another device than at the time of the change ({difference})"),
            values,
        );
    }
    match restore(&found, &before, &changed) {
        Ok(()) => match journal::remove(&path) {
            Ok(()) => Leftover::Restored { device, owner: content.owner.clone(), values },
            Err(error) => Leftover::Failed(error),
        },
        Err(details) => Leftover::Failed(SettingsError::NotRestored { device, details, journal: path }),
    }
}

/// The values before, and the changed settings.
pub(super) type Names = (Vec<(SettingName, String)>, Vec<SettingName>);

/// The names of a journal. A name or value that this program would not have written is refused.
pub(super) fn names(content: &Content) -> Result<Names, String> {
    let name = |text: &String| SettingName::find(text).map_err(|error| error.to_string());
    let value = |value: &String| {
        let is_plain = value.len() <= VALUE_BYTES_MAX && !value.chars().any(char::is_control);
        if is_plain { Ok(value.clone()) } else { Err("a value has control characters".to_owned()) }
    };
    let before = content.before.iter().map(|(text, old)| Ok((name(text)?, value(old)?)));
    let changed = content.changed.iter().map(name);
    Ok((before.collect::<Result<_, String>>()?, changed.collect::<Result<_, _>>()?))
}

/// The settings of a device that `iopath tune --restore` would restore, with their previous values. Empty if the
/// journal is missing, unreadable or of another device.
pub fn pending(device: &SettingsDevice) -> Vec<(SettingName, String)> {
    let path = journal::directory().join(Until::Restore.file(&device.identity().number));
    let content = journal::read(&path).ok().filter(|content| {
        content.boot == journal::boot() && content.device.difference(device.identity()).is_none()
    });
    let Some(Ok((before, changed))) = content.as_ref().map(names) else { return Vec::new() };
    let differs = |(name, value): &&(SettingName, String)| device.value(name).ok().as_ref() != Some(value);
    affected(&before, &changed).into_iter().filter(differs).cloned().collect()
}
