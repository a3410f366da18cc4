//! Parses the mount table, `/proc/self/mountinfo` (proc(5)).
//!
//! A line that does not parse is an error, since the guard must not miss a mount.

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use super::roots::{DeviceNumber, Roots, TableError, unescape_octal};
use iopath_core::debug;

/// The size of most tables.
const TABLE_BYTES: usize = 16 << 10;

/// One mount.
#[derive(Clone, PartialEq, Eq)]
pub struct Mount {
    /// Its id, as in statx.
    pub id: u64,
    /// Device number, the `st_dev` of files on it.
    pub device: DeviceNumber,
    /// The directory of the filesystem that is mounted: `/` unless it is a bind mount of another.
    pub root: PathBuf,
    /// The mount point.
    pub mount_point: PathBuf,
    /// Options of this mount.
    pub options: String,
    /// Filesystem type.
    pub fs_type: String,
    /// The mounted source.
    pub source: PathBuf,
    /// Options of the filesystem.
    pub super_options: String,
}

impl fmt::Debug for Mount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mount")
            .field("id", &self.id)
            .field("device", &self.device)
            .field("mount_point", &debug::Text(&self.mount_point))
            .field("fs_type", &debug::Text(&self.fs_type))
            .field("source", &debug::Text(&self.source))
            .finish_non_exhaustive()
    }
}

/// All mounts in the namespace of this process, oldest first.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Mounts(Vec<Mount>);

impl fmt::Debug for Mounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mounts").field("mounts", &self.0.len()).finish_non_exhaustive()
    }
}

impl Mounts {
    /// Reads `self/mountinfo` below the procfs of `roots`.
    ///
    /// # Errors
    /// [`TableError::Read`] or [`TableError::Malformed`].
    pub fn load(roots: &Roots) -> Result<Self, TableError> {
        let path = roots.proc.join("self/mountinfo");
        // The file states no size: `fs::read` would begin with many small reads.
        let mut text = Vec::with_capacity(TABLE_BYTES);
        let read = File::open(&path).and_then(|mut file| file.read_to_end(&mut text));
        read.map_err(|source| TableError::Read { path: path.clone(), source })?;
        Self::parse(&text).map_err(|(line, text)| TableError::Malformed { path, line, text })
    }

    /// Parses the table.
    ///
    /// # Errors
    /// Number (from 1) and text of the first line of unknown form.
    pub fn parse(table: &[u8]) -> Result<Self, (usize, String)> {
        let lines = table.split(|&byte| byte == b'\n').enumerate().filter(|(_, line)| !line.is_empty());
        lines
            .map(|(at, line)| {
                parse_line(line).ok_or_else(|| (at + 1, String::from_utf8_lossy(line).into_owned()))
            })
            .collect::<Result<Vec<_>, _>>()
            .map(Self)
    }

    /// The mounts, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Mount> {
        self.0.iter()
    }

    /// The mount of the file at `path` (absolute, links resolved). If the kernel reports a mount id, this is the mount
    /// with that id. Otherwise the candidates are the mounts of `device` above the file, or all mounts above the file
    /// if none is of `device`. The candidate with the longest mount point is returned; of equal ones, the newest.
    pub fn holding(&self, id: Option<u64>, device: DeviceNumber, path: &Path) -> Option<&Mount> {
        if let Some(found) = id.and_then(|id| self.iter().find(|mount| mount.id == id)) {
            return Some(found);
        }
        let above = || self.iter().filter(|mount| path.starts_with(&mount.mount_point));
        let depth = |mount: &&Mount| mount.mount_point.components().count();
        above().filter(|mount| mount.device == device).max_by_key(depth).or_else(|| above().max_by_key(depth))
    }
}

/// `36 35 98:0 /root /mount/point options tag:1 … - type source super,options`
fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|&byte| byte == b' ');
    let id = text(fields.next()?).parse().ok()?;
    let _parent_id: u64 = text(fields.next()?).parse().ok()?;
    let device = DeviceNumber::parse(&text(fields.next()?))?;
    let root = path(fields.next()?);
    let mount_point = path(fields.next()?);
    let options = text(fields.next()?);
    fields.by_ref().find(|field| *field == b"-")?;
    let fs_type = text(fields.next()?);
    let source = path(fields.next()?);
    let super_options = text(fields.next().unwrap_or_default());
    Some(Mount { id, device, root, mount_point, options, fs_type, source, super_options })
}

fn text(field: &[u8]) -> String {
    String::from_utf8_lossy(field).into_owned()
}

fn path(field: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(unescape_octal(field)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TABLE: &[u8] = b"\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 master:2 - ext4 /dev/vda rw,discard
40 27 8:1 /sub /mnt/my\\040disk rw - xfs /dev/sda1 rw,attr2
41 27 0:40 / /mnt rw - btrfs /dev/sdb rw,compress=zstd:3
42 41 0:41 / /mnt rw - tmpfs none rw
";

    fn table() -> Mounts {
        Mounts::parse(TABLE).expect("the table is well-formed")
    }

    #[test]
    fn fields_are_found_with_any_number_of_tags() {
        let mounts = table();
        let root = mounts.iter().find(|m| m.id == 27).expect("line 2");
        assert_eq!((root.device, root.fs_type.as_str()), (DeviceNumber { major: 254, minor: 0 }, "ext4"));
        assert_eq!(
            (root.source.as_path(), root.super_options.as_str()),
            (Path::new("/dev/vda"), "rw,discard")
        );
        let disk = mounts.iter().find(|m| m.id == 40).expect("line 3");
        assert_eq!(
            (disk.root.as_path(), disk.mount_point.as_path()),
            (Path::new("/sub"), Path::new("/mnt/my disk"))
        );
    }

    #[test]
    fn the_mount_id_decides_over_paths() {
        let vda = DeviceNumber { major: 254, minor: 0 };
        let found = table().holding(Some(40), vda, Path::new("/mnt/x")).map(|m| m.id);
        assert_eq!(found, Some(40));
    }

    #[test]
    fn without_an_id_the_device_then_the_longest_and_newest_path_decides() {
        let holding = |major, minor, path| {
            table().holding(None, DeviceNumber { major, minor }, Path::new(path)).map(|m| m.id)
        };
        assert_eq!(holding(254, 0, "/home/x"), Some(27));
        assert_eq!(holding(0, 40, "/mnt/x"), Some(41), "same device wins over the newer mount");
        assert_eq!(
            holding(0, 99, "/mnt/x"),
            Some(42),
            "unknown device (btrfs subvolume): newest of the longest"
        );
        assert_eq!(holding(0, 99, "/mntx"), Some(27), "a path is not a prefix of letters");
    }

    #[test]
    fn a_line_of_unknown_form_is_an_error() {
        let (line, text) = Mounts::parse(b"22 27 0:21 / /proc rw - proc proc rw\nrubbish\n").unwrap_err();
        assert_eq!((line, text.as_str()), (2, "rubbish"));
    }

    proptest! {
        #[test]
        fn parsing_any_bytes_does_not_panic(bytes: Vec<u8>) {
            let _ = Mounts::parse(&bytes);
        }

        #[test]
        fn parsing_a_damaged_table_does_not_panic(at in 0..TABLE.len(), byte: u8) {
            let mut damaged = TABLE.to_vec();
            damaged[at] = byte;
            if let Ok(mounts) = Mounts::parse(&damaged) {
                prop_assert!(mounts.iter().count() <= 6);
            }
        }
    }
}
