//! A block device whose settings are read and written: its identity and its attributes in sysfs. Does not restore
//! settings: see `session.rs`.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use iopath_os::target::{DeviceNumber, Disk, Roots, Scheduler, Target};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::error::SettingsError;
use super::table::{IOSCHED, SETTINGS, SettingName, SettingValues};

/// The attributes of a disk: files of sysfs, or those of a simulated kernel in tests.
pub(super) trait Attributes: Send {
    /// The text of a file, relative to the directory of the disk.
    fn read(&self, file: &str) -> io::Result<String>;

    /// Writes a value to a file.
    fn write(&self, file: &str, value: &str) -> io::Result<()>;

    /// The names of the tunables of the current scheduler, sorted.
    fn tunables(&self) -> Vec<String>;
}

/// The attributes of a disk in sysfs.
struct Sysfs {
    directory: PathBuf,
}

impl Attributes for Sysfs {
    fn read(&self, file: &str) -> io::Result<String> {
        let bytes = fs::read(self.directory.join(file))?;
        Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    fn write(&self, file: &str, value: &str) -> io::Result<()> {
        // Neither created nor truncated: the attribute exists, and the kernel takes the whole value in one write.
        fs::OpenOptions::new().write(true).open(self.directory.join(file))?.write_all(value.as_bytes())
    }

    fn tunables(&self) -> Vec<String> {
        let entries = fs::read_dir(self.directory.join("queue/iosched")).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }
}

/// The identity of a device. The kernel gives a free number or name to the next device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Identity {
    /// The name in the kernel.
    pub(super) name: String,
    /// `MAJOR:MINOR`.
    pub(super) number: String,
    /// Differs for each device, and for each medium, since boot (Linux 5.15).
    pub(super) diskseq: Option<u64>,
    /// The capacity in bytes.
    pub(super) size_bytes: u64,
    /// The model that the drive reports.
    pub(super) model: Option<String>,
    /// The file beneath a loop device.
    pub(super) backing: Option<PathBuf>,
}

impl Identity {
    /// The difference to another device at the same number, in words; none for the same device.
    pub(super) fn difference(&self, now: &Self) -> Option<String> {
        if let (Some(was), Some(is)) = (self.diskseq, now.diskseq) {
            return (was != is).then(|| format!("disk sequence number {was}, now {is}"));
        }
        if self.size_bytes != now.size_bytes {
            return Some(format!("{} bytes, now {}", self.size_bytes, now.size_bytes));
        }
        (self != now).then(|| "another name, model or backing file".to_owned())
    }
}

/// A setting, its value and its valid values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// The name.
    pub name: SettingName,
    /// The value.
    pub value: String,
    /// The valid values in words.
    pub range: String,
}

/// A whole disk whose settings are read and written.
pub struct SettingsDevice {
    identity: Identity,
    directory: PathBuf,
    attributes: Box<dyn Attributes>,
}

impl std::fmt::Debug for SettingsDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SettingsDevice").field("identity", &self.identity).finish_non_exhaustive()
    }
}

impl SettingsDevice {
    /// The device with a path (`/dev/sda`, a partition, or a file or directory on a disk), or with a name (`sda`).
    ///
    /// # Errors
    /// [`SettingsError`]: there is no single disk, or sysfs does not show its settings.
    pub fn find(device: &Path) -> Result<Self, SettingsError> {
        Self::find_in(&Roots::live(), device)
    }

    pub(super) fn find_in(roots: &Roots, device: &Path) -> Result<Self, SettingsError> {
        let no_device =
            |reason: String| SettingsError::NoDevice { device: device.display().to_string(), reason };
        let by_name = device.to_str().filter(|name| !name.contains('/') && !device.exists());
        let number = by_name
            .and_then(|name| fs::read_to_string(roots.sys.join("block").join(name).join("dev")).ok())
            .and_then(|text| DeviceNumber::parse(text.trim()));
        if let Some(number) = number {
            return Self::numbered(roots, number);
        }
        if !device.exists() {
            return Err(no_device("there is no such device".to_owned()));
        }
        let target = Target::inspect_in(roots, device).map_err(|error| no_device(error.to_string()))?;
        match target.backing.known_disk() {
            Ok(disk) => Self::numbered(roots, disk.device),
            Err(reason) => Err(no_device(format!("no disk: {reason}"))),
        }
    }

    /// The disk with a number in sysfs.
    pub(super) fn numbered(roots: &Roots, number: DeviceNumber) -> Result<Self, SettingsError> {
        let directory = roots.sys.join("dev/block").join(number.to_string());
        let gone = || SettingsError::NoDevice {
            device: number.to_string(),
            reason: "sysfs has no entry for this device".to_owned(),
        };
        let disk = Disk::find(roots, number).ok_or_else(gone)?;
        let attributes = Sysfs { directory: directory.clone() };
        attributes.read("queue/read_ahead_kb").map_err(|source| SettingsError::Unreadable {
            device: disk.name.clone(),
            path: directory.join("queue"),
            source,
        })?;
        let identity = Identity {
            diskseq: attributes.read("diskseq").ok().and_then(|text| text.parse().ok()),
            name: disk.name,
            number: number.to_string(),
            size_bytes: disk.size_bytes,
            model: disk.model,
            backing: disk.loop_backing,
        };
        Ok(Self { identity, directory, attributes: Box::new(attributes) })
    }

    #[cfg(test)]
    pub(super) fn simulated(name: &str, attributes: Box<dyn Attributes>) -> Self {
        let identity = Identity {
            name: name.to_owned(),
            number: "7:0".to_owned(),
            diskseq: Some(1),
            size_bytes: 1 << 20,
            model: None,
            backing: None,
        };
        Self { identity, directory: PathBuf::from("/sys/none"), attributes }
    }

    /// The name in the kernel.
    pub fn name(&self) -> &str {
        &self.identity.name
    }

    pub(super) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Whether a file or directory lies on this disk; else its place, in words.
    ///
    /// # Errors
    /// The reason.
    pub fn holds(&self, target: &Path) -> Result<(), String> {
        let info = Target::inspect(target).map_err(|error| error.to_string())?;
        match info.backing.known_disk() {
            Ok(disk) if disk.name == self.identity.name => Ok(()),
            Ok(disk) => Err(format!("it is on {}", disk.name)),
            Err(reason) => Err(format!("no disk: {reason}")),
        }
    }

    /// The device in words, for a heading.
    pub fn description(&self) -> String {
        let size = iopath_report::size::format_size(self.identity.size_bytes);
        let rest = match (&self.identity.backing, &self.identity.model) {
            (Some(file), _) => format!(", loop device of {}", file.display()),
            (None, Some(model)) => format!(", {model}"),
            (None, None) => String::new(),
        };
        format!("{}, {size}{rest}", self.identity.name)
    }

    /// All settings that the device has, in the order of writes.
    pub fn settings(&self) -> Vec<Setting> {
        let of = |name: SettingName| {
            let value = self.value(&name).ok()?;
            let range = self.range(&name);
            Some(Setting { name, value, range })
        };
        self.names().into_iter().filter_map(of).collect()
    }

    /// The names of the settings that the device may have, in the order of writes.
    fn names(&self) -> Vec<SettingName> {
        let rows = SETTINGS.iter().filter_map(|row| SettingName::find(row.name).ok());
        let tunables = self.attributes.tunables().into_iter();
        let tunables = tunables.filter_map(|name| SettingName::find(&format!("{IOSCHED}{name}")).ok());
        let mut names: Vec<SettingName> = rows.chain(tunables).collect();
        names.sort_by_key(SettingName::rank);
        names
    }

    /// The values of all settings, in the order of writes.
    pub(super) fn values(&self) -> Vec<(SettingName, String)> {
        self.settings().into_iter().map(|setting| (setting.name, setting.value)).collect()
    }

    /// The value of a setting: of a list, the current name.
    pub(super) fn value(&self, name: &SettingName) -> io::Result<String> {
        let text = self.attributes.read(&name.file())?;
        match name.row().map(|row| row.values) {
            Some(SettingValues::Listed) => Scheduler::parse(&text)
                .map(|scheduler| scheduler.current)
                .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("`{text}`"))),
            _ => Ok(text),
        }
    }

    /// The names that a list offers; empty for other settings.
    pub fn choices(&self, name: &SettingName) -> Vec<String> {
        let is_list = name.row().is_some_and(|row| row.values == SettingValues::Listed);
        let text = if is_list { self.attributes.read(&name.file()).ok() } else { None };
        text.and_then(|text| Scheduler::parse(&text)).map_or_else(Vec::new, |found| found.available)
    }

    /// The maximum of a size, where the device states one.
    pub fn maximum(&self, name: &SettingName) -> Option<u64> {
        let Some(SettingValues::Kib(_, Some(file))) = name.row().map(|row| row.values) else { return None };
        self.attributes.read(file).ok()?.parse().ok()
    }

    /// The valid values of a setting on this device, in words.
    pub(super) fn range(&self, name: &SettingName) -> String {
        match name.row().map(|row| row.values) {
            Some(SettingValues::Listed) => self.choices(name).join(" "),
            Some(SettingValues::Flag) => "0 1".to_owned(),
            Some(SettingValues::Number(min, max, _)) => format!("{min}–{max}"),
            Some(SettingValues::Kib(min, _)) => {
                self.maximum(name).map_or_else(|| format!("{min} or more"), |max| format!("{min}–{max}"))
            }
            None => String::new(),
        }
    }

    /// Checks a value that depends on the device.
    ///
    /// # Errors
    /// [`SettingsError`]: the device does not have the setting or the value.
    pub fn check(&self, name: &SettingName, value: &str) -> Result<(), SettingsError> {
        let choices = self.choices(name);
        let exceeds = self.maximum(name).is_some_and(|max| value.parse::<u64>().is_ok_and(|kib| kib > max));
        if exceeds || (!choices.is_empty() && !choices.iter().any(|choice| choice == value)) {
            let values = if choices.is_empty() {
                format!("{} KiB on {}", self.range(name), self.name())
            } else {
                format!("one of: {} on {}", choices.join(", "), self.name())
            };
            let (name, value) = (name.to_string(), value.to_owned());
            return Err(SettingsError::Value { name, value, values });
        }
        Ok(())
    }

    /// Writes a value.
    pub(super) fn write(&self, name: &SettingName, value: &str) -> Result<(), SettingsError> {
        let written = self.attributes.write(&name.file(), value);
        written.map_err(|source| match source.kind() {
            io::ErrorKind::NotFound if !self.is_gone() => {
                SettingsError::Missing { device: self.name().to_owned(), name: name.to_string() }
            }
            _ => SettingsError::Write {
                device: self.name().to_owned(),
                name: name.to_string(),
                value: value.to_owned(),
                source,
            },
        })
    }

    /// Whether the device is removed, or another device has its number. A failure to read, such as a lack of
    /// descriptors, is no removal.
    pub(super) fn is_gone(&self) -> bool {
        let diskseq = self.attributes.read("diskseq").ok().and_then(|text| text.parse().ok());
        let is_same = self.identity.diskseq.is_none_or(|was| diskseq.is_none_or(|is: u64| is == was));
        let removed = [Errno::NOENT, Errno::NODEV, Errno::NXIO].map(|errno| Some(errno.raw_os_error()));
        !is_same
            || self.attributes.read("queue/read_ahead_kb").is_err_and(|error| {
                error.kind() == io::ErrorKind::NotFound || removed.contains(&error.raw_os_error())
            })
    }

    /// The directory of the disk in sysfs.
    pub fn directory(&self) -> &Path {
        &self.directory
    }
}
