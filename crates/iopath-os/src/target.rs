//! The properties of a target: kind, size, filesystem, disk. Reads statx, sysfs, `/proc/self/mountinfo` and ioctls.
//!
//! `target/guard.rs` decides whether a target may be overwritten; `target/alignment.rs` discovers the alignment of
//! direct I/O.

pub mod alignment;
pub mod beneath;
pub mod disk;
pub mod extents;
mod ffi;
pub mod guard;
mod known;
pub mod mounts;
pub mod residency;
pub mod roots;
pub mod signature;
mod stat;
pub mod swaps;
mod transform;
mod usage;
mod users;
mod version;

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use iopath_core::debug;
use rustix::fs::{AtFlags, CWD, FileType, Statx, StatxFlags};

pub use alignment::{AlignmentSource, DioAlignment, DioError};
pub use beneath::{Beneath, Submitter};
pub use disk::{Discard, Disk, Partition, Scheduler, WriteCache};
pub use extents::{ExtentError, FileExtent};
pub use guard::{FileLock, Refusal, lock, may_overwrite, open_exclusive, refusals};
pub use known::KnownFilesystems;
pub use residency::{Residency, ResidencyError, drop_cached, drop_cached_down_to, residency};
pub use roots::{DeviceNumber, FileId, Roots, TableError};
pub use stat::FileStat;
pub use transform::{Effect, Transform};
pub use users::Users;
pub use version::{FileVersion, Look};

use mounts::{Mount, Mounts};

/// The properties that statx(2) reports.
const WANTED: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::MNT_ID);

/// The properties of a target at the time of the inspection. They can change at any time: [`open_exclusive`] checks
/// again the properties that must hold during writes.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Target {
    /// The path, with symbolic links resolved.
    pub path: PathBuf,
    /// Regular file, directory or block device.
    pub kind: Kind,
    /// Identity of the file (of a block device: of its node).
    pub id: FileId,
    /// The device this target is; `None` unless it is a block device.
    pub device: Option<DeviceNumber>,
    /// The file's length or the device's capacity, in bytes; 0 for a directory.
    pub size_bytes: u64,
    /// Bytes allocated to a regular file (`st_blocks` × 512): less than `size_bytes` if it has holes or its filesystem
    /// compresses. `None` for other kinds.
    pub allocated_bytes: Option<u64>,
    /// Its filesystem; `None` for a block device, or if the mount table does not show it.
    pub filesystem: Option<Filesystem>,
    /// The disk beneath it, or the reason why none is known.
    pub backing: Backing,
    /// Mount points of a block device, its partitions, and the disk that it is a partition of.
    pub mount_points: Vec<PathBuf>,
}

/// The disk by its name: its own output has the rest.
impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let disk = match &self.backing {
            Backing::Disk(disk) => &disk.name,
            Backing::None { reason } => reason,
        };
        f.debug_struct("Target")
            .field("path", &debug::Text(&self.path))
            .field("kind", &self.kind)
            .field("size_bytes", &self.size_bytes)
            .field("filesystem", &self.filesystem)
            .field("disk", &debug::Text(disk))
            .finish_non_exhaustive()
    }
}

/// The kind of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// A regular file.
    RegularFile,
    /// A directory, for scratch files.
    Directory,
    /// A block device: a disk, a partition or a virtual device (loop, md, dm, zram).
    BlockDevice,
    /// Memory of this process, without a file.
    Memory,
    /// An export of a server.
    Remote,
    /// Storage that the program itself implements.
    Program,
}

/// The filesystem of a file or directory.
#[derive(Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Filesystem {
    /// Type as in the mount table: `ext4`, `xfs`, `btrfs`, `overlay`, …
    pub name: String,
    /// The mount point.
    pub mount_point: PathBuf,
    /// The mounted source: a device, or a name that the filesystem defines.
    pub source: PathBuf,
    /// Options of the mount and of the filesystem, comma-separated, mount options first.
    pub options: String,
    /// Bytes that an unprivileged caller can write; `None` if statvfs fails.
    pub available_bytes: Option<u64>,
}

/// Without the options, which have all directories of an overlay.
impl fmt::Debug for Filesystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Filesystem")
            .field("name", &debug::Text(&self.name))
            .field("mount_point", &debug::Text(&self.mount_point))
            .finish_non_exhaustive()
    }
}

impl Filesystem {
    fn new(mount: &Mount, target: &Path) -> Self {
        Self {
            name: mount.fs_type.clone(),
            mount_point: mount.mount_point.clone(),
            source: mount.source.clone(),
            options: format!("{},{}", mount.options, mount.super_options),
            available_bytes: rustix::fs::statvfs(target)
                .ok()
                .map(|fs| fs.f_bavail.saturating_mul(fs.f_frsize)),
        }
    }

    /// Whether an option enables compression: with zeroes and repeated blocks, I/O measures the compressor.
    pub fn compresses(&self) -> bool {
        self.options.split(',').any(|option| {
            let name = option.split('=').next().unwrap_or(option);
            let is_off = option.ends_with("=no") || option.ends_with("=none");
            matches!(name, "compress" | "compress-force" | "compress_algorithm" | "compression") && !is_off
        })
    }
}

/// The disk beneath a target.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Backing {
    /// The whole disk, with the partition if the target is one or lies on one.
    Disk(Box<Disk>),
    /// No single disk: several disks, memory, a network, or not shown by sysfs.
    None {
        /// The reason, in words that fit after "no disk: ".
        reason: String,
    },
}

impl fmt::Debug for Backing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disk(disk) => f.debug_tuple("Disk").field(disk).finish(),
            Self::None { reason } => f.debug_struct("None").field("reason", &debug::Text(reason)).finish(),
        }
    }
}

impl Backing {
    /// The disk, if there is one.
    pub fn disk(&self) -> Option<&Disk> {
        match self {
            Self::Disk(disk) => Some(disk),
            Self::None { .. } => None,
        }
    }

    /// The disk, or the reason why none is known, in words that fit after "no disk: ".
    ///
    /// # Errors
    /// The reason.
    pub fn known_disk(&self) -> Result<&Disk, &str> {
        match self {
            Self::Disk(disk) => Ok(disk),
            Self::None { reason } => Err(reason),
        }
    }
}

/// The reason why a target cannot be inspected.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// The file does not exist, or a directory of the path may not be searched.
    #[error("cannot inspect {path}: {source}; check the path and its permissions")]
    Stat {
        /// The path as given.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A kind of file that has no blocks.
    #[error("{path} is a {kind}; name a regular file, a directory or a block device")]
    NotATarget {
        /// The path as given.
        path: PathBuf,
        /// The kind.
        kind: &'static str,
    },
    /// The size of a block device is neither in sysfs nor reported by the device.
    #[error("cannot read the size of {path}: {source}; run as a user with read access to the device")]
    Size {
        /// The device.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl fmt::Debug for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug::error("TargetError", self, f)
    }
}

impl TargetError {
    /// Whether there is no such file.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Stat { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

impl Target {
    /// Resolves symbolic links and collects the properties. Opens at most a block device for reading. Properties from a
    /// missing sysfs or procfs are unknown.
    ///
    /// # Errors
    /// [`TargetError`]: it does not exist, or has a kind that holds no blocks.
    pub fn inspect(path: impl AsRef<Path>) -> Result<Self, TargetError> {
        Self::inspect_in(&Roots::live(), path.as_ref())
    }

    /// [`Target::inspect`] with other roots for sysfs and procfs.
    ///
    /// # Errors
    /// Returns the errors of [`Target::inspect`].
    pub fn inspect_in(roots: &Roots, given: &Path) -> Result<Self, TargetError> {
        let (path, stat) = path_and_stat(given)?;
        Self::of_stat(roots, given, path, &stat)
    }

    /// The properties of an open file. If it has no path any more, because it was removed or replaced, its path is that
    /// of its descriptor in `/proc`, which leads to it as long as the descriptor is open.
    ///
    /// # Errors
    /// [`TargetError`]: it has a kind that holds no blocks.
    pub fn inspect_open(file: &File) -> Result<Self, TargetError> {
        let given = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let stat = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, WANTED)
            .map_err(|e| TargetError::Stat { path: given.clone(), source: e.into() })?;
        match Self::inspect(&given) {
            Ok(target) if target.id == FileId::from(&stat) => Ok(target),
            _ => Self::of_stat(&Roots::live(), &given, given.clone(), &stat),
        }
    }

    fn of_stat(roots: &Roots, given: &Path, path: PathBuf, stat: &Statx) -> Result<Self, TargetError> {
        let kind = kind_of(stat).map_err(|kind| TargetError::NotATarget { path: given.to_owned(), kind })?;
        if kind == Kind::BlockDevice {
            return Self::of_device(roots, path, stat);
        }
        Ok(Self::of_file(roots, path, kind, stat))
    }

    /// The properties of memory as a target.
    pub fn of_memory(size_bytes: u64) -> Self {
        Self::without_file(Kind::Memory, PathBuf::from("memory"), size_bytes, "it is memory")
    }

    /// The properties of an export of a server. `name` is its URI.
    pub fn of_remote(name: &str, size_bytes: u64) -> Self {
        Self::without_file(Kind::Remote, PathBuf::from(name), size_bytes, "it is an export of a server")
    }

    /// The properties of storage of the program, by its name.
    pub fn of_program(name: PathBuf, size_bytes: u64) -> Self {
        Self::without_file(Kind::Program, name, size_bytes, "it is storage of the program")
    }

    fn without_file(kind: Kind, path: PathBuf, size_bytes: u64, reason: &str) -> Self {
        Self {
            path,
            kind,
            id: FileId { device: DeviceNumber { major: 0, minor: 0 }, inode: 0 },
            device: None,
            size_bytes,
            allocated_bytes: None,
            filesystem: None,
            backing: Backing::None { reason: reason.to_owned() },
            mount_points: Vec::new(),
        }
    }

    fn of_file(roots: &Roots, path: PathBuf, kind: Kind, stat: &Statx) -> Self {
        let id = FileId::from(stat);
        let mounts = Mounts::load(roots).unwrap_or_default();
        let mount = mounts.holding(mount_id(stat), id.device, &path);
        let backing = match mount.filter(|mount| mount.fs_type == "overlay" && kind == Kind::RegularFile) {
            Some(overlay) => beneath::overlay_backing(roots, overlay, &mounts, &path, stat),
            None => backing_of_file(roots, id.device, mount),
        };
        let filesystem = mount.map(|mount| Filesystem::new(mount, &path));
        Self::on_filesystem(path, kind, stat, filesystem, backing)
    }

    /// A file or directory on a filesystem.
    fn on_filesystem(
        path: PathBuf,
        kind: Kind,
        stat: &Statx,
        filesystem: Option<Filesystem>,
        backing: Backing,
    ) -> Self {
        let regular = kind == Kind::RegularFile;
        Self {
            path,
            kind,
            id: FileId::from(stat),
            device: None,
            size_bytes: if regular { stat.stx_size } else { 0 },
            allocated_bytes: regular.then(|| stat.stx_blocks.saturating_mul(512)),
            filesystem,
            backing,
            mount_points: Vec::new(),
        }
    }

    fn of_device(roots: &Roots, path: PathBuf, stat: &Statx) -> Result<Self, TargetError> {
        let device = DeviceNumber { major: stat.stx_rdev_major, minor: stat.stx_rdev_minor };
        let backing = disk_or_reason(roots, device);
        let size_bytes = match backing.disk() {
            Some(disk) => disk.partition.as_ref().map_or(disk.size_bytes, |part| part.size_bytes),
            None => device_size(&path).map_err(|source| TargetError::Size { path: path.clone(), source })?,
        };
        let mounted = usage::mounted_devices(roots, &Mounts::load(roots).unwrap_or_default());
        let family = usage::family(roots, device);
        let mount_points = mounted
            .into_iter()
            .filter(|m| family.iter().any(|f| f.device == m.device))
            .map(|m| m.at)
            .collect();
        Ok(Self {
            path,
            kind: Kind::BlockDevice,
            id: FileId::from(stat),
            device: Some(device),
            size_bytes,
            allocated_bytes: None,
            filesystem: None,
            backing,
            mount_points,
        })
    }
}

/// The path with symbolic links resolved, and the properties of the file there.
fn path_and_stat(given: &Path) -> Result<(PathBuf, Statx), TargetError> {
    let failed = |source: io::Error| TargetError::Stat { path: given.to_owned(), source };
    let path = given.canonicalize().map_err(failed)?;
    let stat = rustix::fs::statx(CWD, &path, AtFlags::empty(), WANTED).map_err(|e| failed(e.into()))?;
    Ok((path, stat))
}

fn kind_of(stat: &Statx) -> Result<Kind, &'static str> {
    match FileType::from_raw_mode(stat.stx_mode.into()) {
        FileType::RegularFile => Ok(Kind::RegularFile),
        FileType::Directory => Ok(Kind::Directory),
        FileType::BlockDevice => Ok(Kind::BlockDevice),
        FileType::CharacterDevice => Err("character device"),
        FileType::Fifo => Err("pipe"),
        FileType::Socket => Err("socket"),
        _ => Err("file of unknown type"),
    }
}

/// The mount's id as `/proc/self/mountinfo` counts; `None` before Linux 5.8.
fn mount_id(stat: &Statx) -> Option<u64> {
    (stat.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(stat.stx_mnt_id)
}

fn device_size(path: &Path) -> io::Result<u64> {
    // Non-blocking, so that a drive without a medium fails at once.
    let file: File =
        OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC).open(path)?;
    ffi::block_device_bytes(&file)
}

fn disk_or_reason(roots: &Roots, device: DeviceNumber) -> Backing {
    match Disk::find(roots, device) {
        Some(disk) => Backing::Disk(Box::new(disk)),
        None => Backing::None { reason: format!("sysfs has no entry for block device {device}") },
    }
}

/// The disk of the filesystem with device number `device`. Filesystems without a device have major number 0; for btrfs
/// on one disk, sysfs shows the disk.
fn backing_of_file(roots: &Roots, device: DeviceNumber, mount: Option<&Mount>) -> Backing {
    if device.major != 0 {
        return disk_or_reason(roots, device);
    }
    let Some(mount) = mount else {
        return Backing::None { reason: "the mount table does not show its filesystem".to_owned() };
    };
    let reason = match mount.fs_type.as_str() {
        "btrfs" => match usage::btrfs_devices_of(roots, &mount.source).as_slice() {
            [only] => return disk_or_reason(roots, *only),
            [] => "btrfs shows no devices in sysfs".to_owned(),
            several => format!("btrfs spreads over {} devices", several.len()),
        },
        "tmpfs" | "ramfs" | "devtmpfs" | "hugetlbfs" => format!("{} lies in memory", mount.fs_type),
        "overlay" => "overlay lies on other filesystems".to_owned(),
        "zfs" => "zfs spreads over the devices of its pool".to_owned(),
        other => format!("{other} has no block device of its own"),
    };
    Backing::None { reason }
}
