//! Finds the current users of a block device or file: mounts, swap, holders, loop devices. Compares by number, not by
//! name.
//!
//! `target/guard.rs` decides. An exclusive open there detects further users (mounts of other namespaces), but cannot
//! name them.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::disk::{attribute, name_of, names_in, node_dir, whole_disk_dir};
use super::mounts::Mounts;
use super::roots::{DeviceNumber, FileId, Roots};
use super::{Disk, Target, ffi};

/// A device with a mounted filesystem.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct MountedDevice {
    pub(super) device: DeviceNumber,
    pub(super) at: PathBuf,
}

/// All devices with a mounted filesystem: devices whose number is in the mount table, devices that the table names as a
/// source, and all members of btrfs filesystems. (For btrfs and some others, the table has a number that is not of a
/// device.)
pub(super) fn mounted_devices(roots: &Roots, mounts: &Mounts) -> Vec<MountedDevice> {
    let mut found = Vec::new();
    for mount in mounts.iter() {
        let mut add = |device| found.push(MountedDevice { device, at: mount.mount_point.clone() });
        if mount.device.major != 0 {
            add(mount.device);
        }
        if mount.source.is_absolute() {
            source_devices(&mount.source).for_each(&mut add);
        }
        if mount.fs_type == "btrfs" {
            btrfs_devices_of(roots, &mount.source).into_iter().for_each(&mut add);
        }
    }
    found.sort();
    found.dedup();
    found
}

/// The devices of a source. bcachefs separates them by colons.
fn source_devices(source: &Path) -> impl Iterator<Item = DeviceNumber> {
    let joined = source.as_os_str().as_encoded_bytes();
    joined
        .split(|&byte| byte == b':')
        .filter_map(|path| DeviceNumber::of_block_device(Path::new(&OsString::from_vec(path.to_owned()))))
}

/// The devices of the btrfs filesystem that the device at `source` belongs to; empty if sysfs shows none.
pub(super) fn btrfs_devices_of(roots: &Roots, source: &Path) -> Vec<DeviceNumber> {
    let Some(source) = DeviceNumber::of_block_device(source) else { return Vec::new() };
    let filesystems = fs::read_dir(roots.sys.join("fs/btrfs")).into_iter().flatten().flatten();
    let members = |dir: PathBuf| -> Vec<DeviceNumber> {
        fs::read_dir(dir.join("devices"))
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|e| device_of(&e.path()))
            .collect()
    };
    filesystems
        .map(|entry| members(entry.path()))
        .find(|members| members.contains(&source))
        .unwrap_or_default()
}

fn device_of(dir: &Path) -> Option<DeviceNumber> {
    DeviceNumber::parse(&attribute(dir, "dev")?)
}

/// The relation of a device to the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Relation {
    Itself,
    Partition,
    WholeDisk,
}

/// A device that shares bytes with the target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Relative {
    pub(super) relation: Relation,
    pub(super) name: String,
    pub(super) device: DeviceNumber,
    pub(super) holders: Vec<String>,
}

/// The target's device, then its partitions, or the disk that it is a partition of. Empty if sysfs has no entry.
pub(super) fn family(roots: &Roots, device: DeviceNumber) -> Vec<Relative> {
    let Some(node) = node_dir(roots, device) else { return Vec::new() };
    let relative = |relation, dir: &Path| {
        Some(Relative {
            relation,
            name: name_of(dir),
            device: device_of(dir)?,
            holders: names_in(&dir.join("holders")),
        })
    };
    let whole = whole_disk_dir(&node);
    let mut found: Vec<Relative> = relative(Relation::Itself, &node).into_iter().collect();
    if whole == node {
        let children = fs::read_dir(&node).into_iter().flatten().flatten().map(|entry| entry.path());
        let partitions = children.filter(|child| child.join("partition").exists());
        found.extend(partitions.filter_map(|child| relative(Relation::Partition, &child)));
    } else {
        found.extend(relative(Relation::WholeDisk, whole));
    }
    found.sort_by(|a, b| (a.relation as u8, &a.name).cmp(&(b.relation as u8, &b.name)));
    found
}

/// The names of loop devices, other than `except`, with the target as backing.
pub(super) fn loops_over(roots: &Roots, target: &Target, except: Option<&str>) -> Vec<String> {
    let names = names_in(&roots.sys.join("block"));
    names
        .into_iter()
        .filter(|name| Some(name.as_str()) != except)
        .filter(|name| loop_has_backing(roots, name, target))
        .collect()
}

/// Compares the path in sysfs, and the numbers of the loop driver. The path may belong to another mount namespace, or
/// the file may be renamed. The driver requires permission to open the device.
fn loop_has_backing(roots: &Roots, name: &str, target: &Target) -> bool {
    let dir = roots.sys.join("block").join(name);
    let Some(path) = attribute(&dir, "loop/backing_file") else { return false };
    let by_path = match target.device {
        Some(device) => DeviceNumber::of_block_device(Path::new(&path)) == Some(device),
        None => FileId::of(Path::new(&path)) == Some(target.id),
    };
    by_path
        || File::open(roots.dev.join(name)).and_then(|file| ffi::loop_info(&file)).is_ok_and(|info| {
            match target.device {
                Some(device) => info.rdevice != 0 && DeviceNumber::from_raw(info.rdevice) == device,
                None => {
                    target.id == FileId { device: DeviceNumber::from_raw(info.device), inode: info.inode }
                }
            }
        })
}

/// The name and the backing of the target's disk, if that is a loop device in use.
pub(super) fn behind_loop(disk: Option<&Disk>) -> Option<(&str, &Path)> {
    let disk = disk?;
    Some((disk.name.as_str(), disk.loop_backing.as_deref()?))
}

/// A process with a lock of an open file on `file`, as `/proc/PID/fdinfo` shows it. `None` if no process that this one
/// may examine has such a lock.
pub(super) fn process_with_lock(file: &File) -> Option<u32> {
    let about = file.metadata().ok()?;
    let number = DeviceNumber::from_raw(about.dev());
    // "lock: 1: OFDLCK ADVISORY WRITE -1 fe:00:123 0 EOF"
    let place = format!(" {:02x}:{:02x}:{} ", number.major, number.minor, about.ino());
    let is_lock = |line: &str| line.starts_with("lock:") && line.contains("OFDLCK") && line.contains(&place);
    let processes = fs::read_dir("/proc").ok()?.flatten();
    processes.filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path()))).find_map(
        |(pid, path): (u32, PathBuf)| {
            let descriptors = fs::read_dir(path.join("fdinfo")).ok()?.flatten();
            let mut texts = descriptors.filter_map(|entry| fs::read_to_string(entry.path()).ok());
            texts.any(|text| text.lines().any(is_lock)).then_some(pid)
        },
    )
}
