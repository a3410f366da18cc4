//! The journal of changed settings: the values before the first change, on disk before any change. Does not write to
//! sysfs.
//!
//! A journal is one line of JSON and one line with its CRC-32. It is written to a new file, which replaces the previous
//! one after `fsync`: a crash leaves the previous journal or the new one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process;

use rustix::fs::{FlockOperation, OFlags, flock};
use serde::{Deserialize, Serialize};

use super::device::Identity;
use super::error::SettingsError;
use crate::own_file;

/// The name and version of the format.
const SCHEMA: &str = "iopath.settings-journal/1";

/// The environment variable that names another directory.
const DIRECTORY_VARIABLE: &str = "IOPATH_STATE_DIR";

/// The default directory. Settings of sysfs are lost on reboot, and so are most of its files.
const DIRECTORY: &str = "/run/iopath";

/// The largest journal that is read.
const BYTES_MAX: u64 = 1 << 20;

/// The time at which a journal ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// The end of the process. The next start of the program restores the settings if the process was killed.
    Exit,
    /// `iopath tune --restore`.
    Restore,
}

impl Until {
    fn suffix(self) -> &'static str {
        match self {
            Self::Exit => "exit.json",
            Self::Restore => "restore.json",
        }
    }

    /// The name of the journal of a device with a number.
    pub(super) fn file(self, number: &str) -> String {
        format!("{}.{}", number.replace(':', "-"), self.suffix())
    }

    /// The number of the device in the name of a journal.
    pub(super) fn number(self, journal: &Path) -> String {
        let name = journal.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let number = name.strip_suffix(self.suffix()).and_then(|name| name.strip_suffix('.'));
        number.unwrap_or_default().replace('-', ":")
    }
}

/// The content of a journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Content {
    schema: String,
    /// The boot in which the settings were changed.
    pub(super) boot: String,
    /// The process in words.
    pub(super) owner: String,
    /// The device.
    pub(super) device: Identity,
    /// The settings with their values before the first change, in the order of writes.
    pub(super) before: Vec<(String, String)>,
    /// The settings that may have changed.
    pub(super) changed: Vec<String>,
}

impl Content {
    pub(super) fn new(device: Identity, before: Vec<(String, String)>) -> Self {
        let (schema, boot) = (SCHEMA.to_owned(), boot());
        Self { schema, boot, owner: owner(), device, before, changed: Vec::new() }
    }

    fn encode(&self) -> String {
        let json = serde_json::to_string(self).expect("JSON can represent all fields");
        let sum = crc32fast::hash(json.as_bytes());
        format!("{json}\ncrc32 {sum:08x}\n")
    }

    /// Parses a journal; the error is in words.
    pub(super) fn decode(text: &str) -> Result<Self, String> {
        let (json, rest) = text.split_once('\n').ok_or("it is cut off")?;
        let sum = rest.strip_suffix('\n').and_then(|line| line.strip_prefix("crc32 "));
        let sum = sum.filter(|sum| sum.len() == 8).and_then(|sum| u32::from_str_radix(sum, 16).ok());
        if sum.ok_or("it is cut off")? != crc32fast::hash(json.as_bytes()) {
            return Err("its checksum is wrong".to_owned());
        }
        let content: Self = serde_json::from_str(json).map_err(|error| error.to_string())?;
        if content.schema != SCHEMA {
            return Err(format!("its format is `{}`, and this version reads `{SCHEMA}`", content.schema));
        }
        Ok(content)
    }
}

/// The identifier of this boot; empty without procfs.
pub(super) fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// This process in words: `process 123 (iopath sweep)`.
fn owner() -> String {
    let verb = std::env::args().nth(1).filter(|verb| !verb.starts_with('-'));
    let verb = verb.map_or_else(String::new, |verb| format!(" {}", verb.escape_default()));
    format!("process {} (iopath{verb})", process::id())
}

/// The directory of journals and locks.
pub(super) fn directory() -> PathBuf {
    let named = std::env::var_os(DIRECTORY_VARIABLE).filter(|name| !name.is_empty());
    named.map_or_else(|| PathBuf::from(DIRECTORY), PathBuf::from)
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SettingsError {
    let path = path.to_owned();
    move |source| SettingsError::State { action, path, source }
}

/// The exclusive right to change the settings of a device. Ends with the process.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
    directory: PathBuf,
    /// The number of the device.
    number: String,
}

impl Lock {
    /// Locks the device with a number in a directory. Its name is for messages.
    ///
    /// # Errors
    /// [`SettingsError`]: another process has the lock, or the directory is not writable.
    pub(super) fn take(directory: &Path, number: &str, device: &str) -> Result<Self, SettingsError> {
        let create = fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
        create.map_err(failed("create the directory of journals", directory))?;
        let path = directory.join(format!("{}.lock", number.replace(':', "-")));
        let opened = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
            .open(&path);
        let mut file = opened.map_err(failed("open the lock", &path))?;
        if let Err(error) = flock(&file, FlockOperation::NonBlockingLockExclusive) {
            if error != rustix::io::Errno::WOULDBLOCK {
                return Err(failed("lock", &path)(error.into()));
            }
            let mut owner = String::new();
            let _ = (&file).take(256).read_to_string(&mut owner);
            let owner =
                if owner.trim().is_empty() { "another process".to_owned() } else { owner.trim().to_owned() };
            return Err(SettingsError::InUse { device: device.to_owned(), owner });
        }
        // The name is only for messages.
        let _ = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "{}", owner()));
        Ok(Self { _file: file, directory: directory.to_owned(), number: number.to_owned() })
    }

    /// The file of the journal of this device.
    pub(super) fn journal(&self, until: Until) -> PathBuf {
        self.directory.join(until.file(&self.number))
    }
}

/// The journals in a directory that end at `until`, sorted. Empty if the directory is missing or unreadable.
pub(super) fn journals(directory: &Path, until: Until) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let is_journal = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.strip_suffix(until.suffix()).is_some_and(|number| number.ends_with('.'))
    };
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_journal).collect();
    files.sort();
    files
}

/// Reads a journal. A file of another user is refused: its values would be written with the rights of this user.
///
/// # Errors
/// In words: the file cannot be read, or is damaged.
pub(super) fn read(path: &Path) -> Result<Content, String> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file =
        OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(|error| error.to_string())?;
    let about = file.metadata().map_err(|error| error.to_string())?;
    if !about.is_file() || about.uid() != rustix::process::geteuid().as_raw() {
        return Err("it is not a file of this user".to_owned());
    }
    let mut text = String::new();
    file.take(BYTES_MAX).read_to_string(&mut text).map_err(|error| error.to_string())?;
    Content::decode(&text)
}

/// Writes a journal. It is on the medium on return.
pub(super) fn write(path: &Path, content: &Content) -> Result<(), SettingsError> {
    let written = own_file::replace(path, content.encode().as_bytes());
    written.and_then(|()| sync_directory(path)).map_err(failed("write the journal", path))
}

/// Removes a journal whose settings are restored.
pub(super) fn remove(path: &Path) -> Result<(), SettingsError> {
    let removed = match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    };
    removed.and_then(|()| sync_directory(path)).map_err(failed("remove the journal", path))
}

/// Renames a journal that cannot be used, so that it is reported once and its text stays readable.
pub(super) fn set_aside(path: &Path) -> PathBuf {
    let aside = path.with_extension("damaged");
    let _ = fs::rename(path, &aside).and_then(|()| sync_directory(path));
    aside
}

fn sync_directory(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content() -> Content {
        let device = Identity {
            name: "loop0".to_owned(),
            number: "7:0".to_owned(),
            diskseq: Some(9),
            size_bytes: 4096,
            model: None,
            backing: Some(PathBuf::from("/tmp/a \"file\"\n")),
        };
        Content::new(device, vec![("read_ahead_kb".to_owned(), "128".to_owned())])
    }

    #[test]
    fn a_journal_is_read_as_it_was_written_and_any_damage_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("7-0.exit.json");
        write(&path, &content()).unwrap();
        assert_eq!(read(&path).unwrap(), content());
        let bytes = fs::read(&path).unwrap();
        for length in 0..bytes.len() {
            fs::write(&path, &bytes[..length]).unwrap();
            read(&path).unwrap_err();
        }
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            fs::write(&path, &damaged).unwrap();
            assert!(read(&path).is_err(), "byte {at}");
        }
        assert_eq!(journals(directory.path(), Until::Exit), std::slice::from_ref(&path));
        assert!(journals(directory.path(), Until::Restore).is_empty());
        remove(&path).unwrap();
        remove(&path).unwrap();
    }

    #[test]
    fn a_link_is_no_journal_and_a_format_of_the_future_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("7-0.exit.json");
        let later = Content { schema: "iopath.settings-journal/9".to_owned(), ..content() };
        write(&path, &later).unwrap();
        assert!(read(&path).unwrap_err().contains("settings-journal/9"));
        let link = directory.path().join("7-1.exit.json");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        read(&link).unwrap_err();
    }

    #[test]
    fn a_second_lock_names_the_process_of_the_first_one() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("new/state");
        let take = || Lock::take(&place, "7:0", "loop0");
        let first = take().unwrap();
        let text = take().unwrap_err().to_string();
        assert!(text.contains("loop0") && text.contains(&format!("process {}", process::id())), "{text}");
        drop(first);
        take().unwrap();
    }
}
