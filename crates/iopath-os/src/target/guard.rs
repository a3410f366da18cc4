//! Refuses to overwrite targets that are in use or hold data of a known kind.
//!
//! Applies to targets other than scratch files. The caller first checks that the user has permitted overwriting
//! (`--overwrite`). No option disables a refusal: each refusal names the command that takes the target out of use.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::mounts::Mounts;
use super::roots::{FileId, Roots};
use super::usage::{self, Relation, Relative};
use super::{DeviceNumber, Kind, TableError, Target, ffi, signature, swaps};

/// Interval of the checks whether a lock without a process is released.
const RELEASE_INTERVAL: Duration = Duration::from_millis(10);

/// The number of these checks.
const RELEASE_CHECKS: u32 = 100;

/// The reason why a target is not overwritten, with a remedy.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// It is a directory.
    #[error("{target} is a directory; name a file in it, or measure with a scratch file there")]
    Directory {
        /// The target.
        target: PathBuf,
    },
    /// It, its disk or one of its partitions is mounted.
    #[error(
        "{target}: {subject} is mounted on {mount_point}; unmount it (umount {mount_point}) or choose another target"
    )]
    Mounted {
        /// The target.
        target: PathBuf,
        /// The part of it: "the device", "its partition sda1", "its disk sda".
        subject: String,
        /// The mount point.
        mount_point: PathBuf,
    },
    /// It, its disk or one of its partitions is an active swap area.
    #[error("{target}: {subject} is an active swap area ({area}); turn it off first: swapoff {area}")]
    Swap {
        /// The target.
        target: PathBuf,
        /// The part of it.
        subject: String,
        /// The area as `/proc/swaps` names it.
        area: PathBuf,
    },
    /// Another device is built on it, its disk or one of its partitions.
    #[error("{target}: {subject} is held by {holders}; stop those devices first (dm: dmsetup remove, md: mdadm --stop)",
        holders = holders.join(", "))]
    Held {
        /// The target.
        target: PathBuf,
        /// The part of it.
        subject: String,
        /// Names of the devices built on it (dm, md, bcache).
        holders: Vec<String>,
    },
    /// It is the backing file or device of a loop device.
    #[error(
        "{target}: {subject} is the backing of the loop device /dev/{device}; detach the loop device first: losetup -d /dev/{device}"
    )]
    LoopBacking {
        /// The target.
        target: PathBuf,
        /// The part of it.
        subject: String,
        /// Name of the loop device.
        device: String,
    },
    /// It is a loop device with a backing that is refused.
    #[error("{target} lies on {behind}, which is refused: {refusal}")]
    Beneath {
        /// The target.
        target: PathBuf,
        /// The backing file or device.
        behind: PathBuf,
        /// The refusal of the backing.
        #[source]
        refusal: Box<Refusal>,
    },
    /// The kernel reports an exclusive user, a running program or swap on it.
    #[error(
        "{target} is in use: {source}; find the device or process that uses it (lsblk, fuser -v {target}) and stop it first"
    )]
    Busy {
        /// The target.
        target: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A program has locked it: virtual machines lock their images, databases their files.
    #[error("{target} is locked by {holder}; stop the program first")]
    Locked {
        /// The target.
        target: PathBuf,
        /// "process 123", or "a program" where the lock belongs to an open file.
        holder: String,
    },
    /// It holds data of a known kind.
    #[error(
        "{target} holds {signature} (signature at byte {offset}); if that is no longer needed: wipefs -a {target}"
    )]
    Signature {
        /// The target.
        target: PathBuf,
        /// The kind of data.
        signature: &'static str,
        /// Offset of the signature, bytes from the start.
        offset: u64,
    },
    /// The path leads to another file than at the inspection.
    #[error("{target} has been replaced since it was inspected; run the command again if that is intended")]
    Replaced {
        /// The target.
        target: PathBuf,
    },
    /// It cannot be opened.
    #[error("cannot open {target} to {purpose}: {source}; check its permissions or choose another target")]
    Open {
        /// The target.
        target: PathBuf,
        /// "search for signatures" or "write", for example.
        purpose: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// A table or file that shows the use of the target cannot be read. A target is not overwritten if its use is
    /// unknown.
    #[error("cannot verify that {target} is unused: {source}")]
    Unknown {
        /// The target.
        target: PathBuf,
        /// The error of that table or file.
        source: TableError,
    },
    /// Sysfs has no entry for the device, so that its partitions and holders are unknown.
    #[error(
        "cannot verify that {target} is unused: {sys} has no entry for device {device}; mount sysfs there"
    )]
    NoSysfs {
        /// The target.
        target: PathBuf,
        /// Its device number.
        device: DeviceNumber,
        /// The directory without the entry.
        sys: PathBuf,
    },
}

impl fmt::Debug for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        iopath_core::debug::error("Refusal", self, f)
    }
}

/// Checks that `target` may be overwritten.
///
/// # Errors
/// The first of [`refusals`].
pub fn may_overwrite(target: &Target) -> Result<(), Refusal> {
    refusals(target).into_iter().next().map_or(Ok(()), Err)
}

/// All reasons against overwriting `target`; empty if it is unused. Opens it for reading, a block device exclusively.
pub fn refusals(target: &Target) -> Vec<Refusal> {
    refusals_in(&Roots::live(), target)
}

/// [`refusals`] with other roots for sysfs and procfs.
pub fn refusals_in(roots: &Roots, target: &Target) -> Vec<Refusal> {
    let mut found = uses(roots, target, None);
    found.extend(busy(target));
    found.extend(locked_or_full(target));
    found
}

/// The treatment of data of a known kind on a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contents {
    /// Overwriting it is refused.
    Kept,
    /// Its owner has permitted overwriting. A target in use is refused nevertheless.
    Expendable,
}

/// Opens `target` for reading and writing, a block device exclusively (`O_EXCL`), with `O_DIRECT` if `direct`; then
/// checks the open file again, so that no change before the opening is missed. As long as the file is open, the device
/// cannot be mounted, used for swap or taken by another device.
///
/// # Errors
/// [`Refusal`].
pub fn open_exclusive(target: &Target, direct: bool, contents: Contents) -> Result<File, Refusal> {
    let exclusive = if target.kind == Kind::BlockDevice { libc::O_EXCL } else { 0 };
    let direct = if direct { libc::O_DIRECT } else { 0 };
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_CLOEXEC | exclusive | direct);
    let file = open(target, &options, "write")?;
    let mut found = uses(&Roots::live(), target, None);
    found.extend(locked_or_full(target));
    found.retain(|refusal| contents == Contents::Kept || !matches!(refusal, Refusal::Signature { .. }));
    found.into_iter().next().map_or(Ok(file), Err)
}

/// Locks an open target against other programs for as long as `file` is open: exclusively, or shared with other
/// readers. The lock is advisory: it stops programs that lock, too, such as QEMU. On a filesystem without locks it does
/// nothing.
///
/// # Errors
/// [`Refusal::Locked`]: a program has a conflicting lock. [`Refusal::Open`]: the system cannot tell.
pub fn lock(target: &Target, file: &File, is_exclusive: bool) -> Result<(), Refusal> {
    unless_locked(target, file, || match where_locks_exist(|| ffi::lock(file, is_exclusive))? {
        Some(false) => Ok(Some(ffi::lock_holder(file).ok().flatten().unwrap_or(-1))),
        Some(true) | None => Ok(None),
    })
}

/// The result of a call for locks, repeated after signals. `None` on a filesystem or kernel without such locks. Any
/// other error says nothing about the locks of other programs.
fn where_locks_exist<T>(call: impl Fn() -> io::Result<T>) -> io::Result<Option<T>> {
    loop {
        match call() {
            Ok(result) => return Ok(Some(result)),
            Err(error) => match error.raw_os_error() {
                Some(libc::EINTR) => {}
                Some(libc::EINVAL | libc::EOPNOTSUPP | libc::ENOSYS) => return Ok(None),
                _ => return Err(error),
            },
        }
    }
}

/// A lock of [`lock`], which its drop releases at once. Without it, the kernel releases the lock when it closes the
/// file, for an `io_uring` instance a moment after the program has closed it.
#[derive(Debug)]
pub struct FileLock(Arc<File>);

impl FileLock {
    /// The lock that `file` has.
    pub const fn of(file: Arc<File>) -> Self {
        Self(file)
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // A failure is harmless: the lock ends with the file.
        let _ = ffi::unlock(&self.0);
    }
}

/// Refuses a target while `conflict` returns the process id of a conflicting lock, or -1 for a lock of an open file.
/// That lock names no process: then a process is named that shows such a lock.
fn unless_locked(
    target: &Target,
    file: &File,
    conflict: impl Fn() -> io::Result<Option<i32>>,
) -> Result<(), Refusal> {
    let unknown =
        |source| Refusal::Open { target: target.path.clone(), purpose: "lock it or find its locks", source };
    // The kernel closes the files of an io_uring instance, with their locks, a moment after the end of its process.
    for _ in 0..RELEASE_CHECKS {
        let Some(pid) = conflict().map_err(unknown)? else { return Ok(()) };
        let process = u32::try_from(pid).ok().or_else(|| usage::process_with_lock(file));
        if let Some(pid) = process {
            return Err(Refusal::Locked { target: target.path.clone(), holder: format!("process {pid}") });
        }
        thread::sleep(RELEASE_INTERVAL);
    }
    Err(Refusal::Locked { target: target.path.clone(), holder: "a program".to_owned() })
}

fn open(target: &Target, options: &OpenOptions, purpose: &'static str) -> Result<File, Refusal> {
    let path = || target.path.clone();
    let file = options.open(&target.path).map_err(|source| match source.raw_os_error() {
        Some(libc::EBUSY | libc::ETXTBSY) => Refusal::Busy { target: path(), source },
        _ => Refusal::Open { target: path(), purpose, source },
    })?;
    let meta = file.metadata().map_err(|source| Refusal::Open { target: path(), purpose, source })?;
    let is_same = match target.device {
        Some(device) => DeviceNumber::of(&meta) == Some(device),
        None => FileId::from(&meta) == target.id,
    };
    if is_same { Ok(file) } else { Err(Refusal::Replaced { target: path() }) }
}

/// Opens a block device exclusively: the only check that detects mounts of other namespaces and filesystems with
/// several devices.
fn busy(target: &Target) -> Option<Refusal> {
    if target.kind != Kind::BlockDevice {
        return None;
    }
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_EXCL | libc::O_CLOEXEC | libc::O_NONBLOCK);
    open(target, &options, "open it exclusively").err()
}

/// Locks and signatures on the target. A directory is refused.
fn locked_or_full(target: &Target) -> Vec<Refusal> {
    if target.kind == Kind::Directory {
        return vec![Refusal::Directory { target: target.path.clone() }];
    }
    look_inside(target).unwrap_or_else(|refusal| vec![refusal])
}

fn look_inside(target: &Target) -> Result<Vec<Refusal>, Refusal> {
    let purpose = "search for signatures";
    let unreadable = |source| Refusal::Open { target: target.path.clone(), purpose, source };
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_CLOEXEC | libc::O_NONBLOCK);
    let file = open(target, &options, purpose)?;
    // A filesystem without locks has no locked files.
    let holder = || where_locks_exist(|| ffi::lock_holder(&file)).map(Option::flatten);
    let locked = unless_locked(target, &file, holder).err();
    let signatures = signature::find(&file, target.size_bytes).map_err(unreadable)?.into_iter();
    let known = signatures.map(|signature::Found { name, offset }| Refusal::Signature {
        target: target.path.clone(),
        signature: name,
        offset,
    });
    Ok(locked.into_iter().chain(known).collect())
}

/// Mounts, swap areas, holders and loop devices on the target, and on the backing if it is a loop device. `beneath` is
/// the loop device that led to this target; it is no reason for a refusal.
fn uses(roots: &Roots, target: &Target, beneath: Option<&str>) -> Vec<Refusal> {
    match uses_by_tables(roots, target, beneath) {
        Ok(found) => found,
        Err(source) => vec![Refusal::Unknown { target: target.path.clone(), source }],
    }
}

fn uses_by_tables(roots: &Roots, target: &Target, beneath: Option<&str>) -> Result<Vec<Refusal>, TableError> {
    let family = target.device.map_or_else(Vec::new, |device| usage::family(roots, device));
    let mut found = Vec::new();
    if let Some(device) = target.device.filter(|_| family.is_empty()) {
        let (target, sys) = (target.path.clone(), roots.sys.clone());
        found.push(Refusal::NoSysfs { target, device, sys });
    }
    found.extend(mounted(roots, target, &family)?);
    found.extend(swapped(roots, target, &family)?);
    found.extend(held(target, &family));
    let loops = usage::loops_over(roots, target, beneath).into_iter();
    found.extend(loops.map(|device| Refusal::LoopBacking {
        target: target.path.clone(),
        subject: subject(None),
        device,
    }));
    found.extend(behind(roots, target));
    Ok(found)
}

fn mounted(roots: &Roots, target: &Target, family: &[Relative]) -> Result<Vec<Refusal>, TableError> {
    let mounted = usage::mounted_devices(roots, &Mounts::load(roots)?);
    Ok(mounted
        .into_iter()
        .filter_map(|mount| {
            let relative = family.iter().find(|relative| relative.device == mount.device)?;
            let target = target.path.clone();
            let subject = subject(Some(relative));
            Some(Refusal::Mounted { target, subject, mount_point: mount.at })
        })
        .collect())
}

fn swapped(roots: &Roots, target: &Target, family: &[Relative]) -> Result<Vec<Refusal>, TableError> {
    let refuse =
        |relative, area| Refusal::Swap { target: target.path.clone(), subject: subject(relative), area };
    let matching = |area: PathBuf| match DeviceNumber::of_block_device(&area) {
        Some(device) => family
            .iter()
            .find(|relative| relative.device == device)
            .map(|relative| refuse(Some(relative), area)),
        None => (FileId::of(&area) == Some(target.id)).then(|| refuse(None, area)),
    };
    Ok(swaps::load(roots)?.into_iter().filter_map(matching).collect())
}

fn held<'a>(target: &'a Target, family: &'a [Relative]) -> impl Iterator<Item = Refusal> + 'a {
    family.iter().filter(|relative| !relative.holders.is_empty()).map(|relative| Refusal::Held {
        target: target.path.clone(),
        subject: subject(Some(relative)),
        holders: relative.holders.clone(),
    })
}

/// Refusals of the backing of a loop device: its bytes are those of the device.
fn behind(roots: &Roots, target: &Target) -> Vec<Refusal> {
    let disk = target.device.and(target.backing.disk());
    let Some((name, path)) = usage::behind_loop(disk) else { return Vec::new() };
    let Some(inner) = inspect_behind(roots, path) else { return Vec::new() };
    let refused = uses(roots, &inner, Some(name)).into_iter().chain(busy(&inner));
    refused
        .map(|refusal| Refusal::Beneath {
            target: target.path.clone(),
            behind: path.to_owned(),
            refusal: Box::new(refusal),
        })
        .collect()
}

/// `None` if it was deleted and so has no other user, or if it lies in another mount namespace.
fn inspect_behind(roots: &Roots, path: &Path) -> Option<Target> {
    Target::inspect_in(roots, path).ok()
}

fn subject(relative: Option<&Relative>) -> String {
    match relative.map(|relative| (relative.relation, &relative.name)) {
        None => "it".to_owned(),
        Some((Relation::Itself, name)) => format!("{name} itself"),
        Some((Relation::Partition, name)) => format!("its partition {name}"),
        Some((Relation::WholeDisk, name)) => format!("its disk {name}"),
    }
}
