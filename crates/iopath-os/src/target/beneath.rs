//! The layers between a target and its storage: files whose pages the kernel caches a second time, the disks at the
//! bottom, and the thread that submits the I/O. It reads tables and sysfs. `target/residency.rs` drops pages.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::Statx;

use super::disk::{attribute, node_dir};
use super::mounts::{Mount, Mounts};
use super::roots::{DeviceNumber, Roots, unescape_octal};
use super::transform::Transform;
use super::{Backing, Disk, Kind, Target};
use iopath_core::debug;

/// The maximum number of loop devices and device-mapper tables on the way down.
const LEVELS_MAX: u32 = 8;

/// The thread that submits the I/O of a target. It determines the counter that proves I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Submitter {
    /// The thread that reads or writes. `/proc/PID/io` of its process counts the bytes.
    Caller,
    /// A thread of the kernel, for example of a loop device. Only the disks at the bottom count the bytes.
    Kernel,
    /// A server: a FUSE process or another machine. The bytes come from disks or the network, but no counter of a
    /// process shows them.
    Server,
    /// No thread: the target lies in memory.
    Memory,
    /// Not known (for instance a filesystem of a virtual machine's host).
    Unknown,
}

/// The layers between a target and its storage.
#[derive(Clone, PartialEq, Eq)]
pub struct Beneath {
    /// Files beneath loop devices that the kernel reads through the page cache, nearest first.
    pub cached_files: Vec<PathBuf>,
    /// The disks at the bottom, by their names in the kernel.
    pub disks: Vec<String>,
    /// The thread that submits the I/O.
    pub submitter: Submitter,
    /// Layers that encrypt, compress or deduplicate, nearest first.
    pub transforms: Vec<Transform>,
}

impl fmt::Debug for Beneath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Beneath")
            .field("disks", &debug::List(&self.disks))
            .field("submitter", &self.submitter)
            .field("transforms", &debug::List(&self.transforms))
            .field("cached_files", &self.cached_files.len())
            .finish_non_exhaustive()
    }
}

impl Beneath {
    /// Finds the layers beneath a target.
    pub fn of(target: &Target) -> Self {
        Self::find(&Roots::live(), target)
    }

    /// [`Beneath::of`] with other roots for sysfs and procfs.
    pub fn find(roots: &Roots, target: &Target) -> Self {
        let submitter = submitter(target);
        let mut found =
            Self { cached_files: Vec::new(), disks: Vec::new(), submitter, transforms: Vec::new() };
        found.add_transforms(target);
        if let Some(disk) = target.backing.disk() {
            found.descend(roots, disk, LEVELS_MAX);
        }
        found
    }

    /// Adds the layers of a file: its filesystem, and its own attributes.
    fn add_transforms(&mut self, target: &Target) {
        let Some(filesystem) = &target.filesystem else { return };
        let of_filesystem = Transform::of_filesystem(filesystem);
        // The attribute of a file on a compressing filesystem states the same.
        let of_file =
            if of_filesystem.is_some() { Vec::new() } else { Transform::of_attributes(&target.path) };
        self.transforms.extend(of_filesystem.into_iter().chain(of_file));
    }

    fn descend(&mut self, roots: &Roots, disk: &Disk, levels: u32) {
        let Some(levels) = levels.checked_sub(1) else {
            self.submitter = Submitter::Unknown;
            return;
        };
        self.transforms.extend(Transform::of_disk(roots, disk));
        if let Some(file) = &disk.loop_backing {
            self.descend_loop(roots, disk, file, levels);
        } else if disk.slaves.is_empty() {
            self.disks.push(disk.name.clone());
        }
        for slave in &disk.slaves {
            match device_of(roots, slave).and_then(|device| Disk::find(roots, device)) {
                Some(slave) => self.descend(roots, &slave, levels),
                None => self.submitter = Submitter::Unknown,
            }
        }
    }

    fn descend_loop(&mut self, roots: &Roots, disk: &Disk, file: &Path, levels: u32) {
        self.submitter = self.submitter.max(Submitter::Kernel);
        let Ok(backing) = Target::inspect_in(roots, file) else {
            // The file is in another mount namespace, or was removed.
            self.submitter = Submitter::Unknown;
            return;
        };
        let is_direct = node_dir(roots, disk.device)
            .and_then(|node| attribute(&node, "loop/dio"))
            .is_some_and(|direct| direct == "1");
        if !is_direct {
            self.cached_files.push(backing.path.clone());
        }
        self.add_transforms(&backing);
        let below = submitter(&backing);
        if below != Submitter::Caller {
            self.submitter = self.submitter.max(below);
        }
        if let Some(disk) = backing.backing.disk() {
            self.descend(roots, disk, levels);
        }
    }
}

/// The device with this name in the kernel, a disk or a partition.
fn device_of(roots: &Roots, name: &str) -> Option<DeviceNumber> {
    DeviceNumber::parse(&attribute(&roots.sys.join("class/block").join(name.replace('/', "!")), "dev")?)
}

fn submitter(target: &Target) -> Submitter {
    match (target.kind, &target.filesystem) {
        (Kind::Memory, _) => Submitter::Memory,
        (Kind::Remote, _) => Submitter::Server,
        (Kind::BlockDevice, _) => Submitter::Caller,
        (Kind::Program, _) | (_, None) => Submitter::Unknown,
        (_, Some(filesystem)) => match filesystem.name.as_str() {
            "tmpfs" | "ramfs" | "devtmpfs" | "hugetlbfs" => Submitter::Memory,
            "zfs" | "nfs" | "nfs4" | "cifs" | "smb3" | "ceph" | "afs" | "gfs2" | "ocfs2" => Submitter::Server,
            name if name == "fuse" || name.starts_with("fuse.") || name == "fuseblk" => Submitter::Server,
            // The bytes of a file on persistent memory are mapped: there is no I/O to count.
            _ if filesystem.options.split(',').any(|option| option == "dax" || option == "dax=always") => {
                Submitter::Unknown
            }
            "overlay" | "btrfs" | "bcachefs" => Submitter::Caller,
            _ if target.backing.disk().is_some() => Submitter::Caller,
            _ => Submitter::Unknown,
        },
    }
}

/// The file in a layer of an overlay mount that currently holds the bytes of `path`; `None` if no layer shows it. In a
/// container, the layers lie outside its mounts.
pub(super) fn overlay_file(mount: &Mount, path: &Path, stat: &Statx) -> Option<PathBuf> {
    let inside = mount.root.join(path.strip_prefix(&mount.mount_point).ok()?);
    let inside = inside.strip_prefix("/").unwrap_or(&inside);
    let layers = overlay_layers(&mount.super_options);
    layers.into_iter().map(|layer| layer.join(inside)).find(|candidate| {
        std::fs::symlink_metadata(candidate).is_ok_and(|found| {
            let time = (found.mtime(), found.mtime_nsec());
            // The upper half of an overlay's inode number may hold the layer's (option xino).
            found.is_file()
                && found.ino() as u32 == stat.stx_ino as u32
                && found.len() == stat.stx_size
                && time == (stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec.into())
        })
    })
}

/// The directories of an overlay mount, the upper first. A relative directory depends on the directory in which
/// mount(8) ran. That is not known, so relative directories are omitted.
fn overlay_layers(options: &str) -> Vec<PathBuf> {
    let mut layers = Vec::new();
    for (name, value) in options.split(',').filter_map(|option| option.split_once('=')) {
        // The table escapes commas and backslashes as octal numbers.
        let value = unescape_octal(value.as_bytes());
        match name {
            "upperdir" => layers.insert(0, value),
            "lowerdir" => layers.extend(split_at_colons(&value)),
            "lowerdir+" | "datadir+" => layers.push(value),
            _ => {}
        }
    }
    let paths = layers.into_iter().map(|layer| PathBuf::from(OsString::from_vec(layer)));
    paths.filter(|layer| layer.is_absolute()).collect()
}

/// Splits a list of directories, in which a backslash makes a colon part of a name.
fn split_at_colons(list: &[u8]) -> Vec<Vec<u8>> {
    let mut parts = vec![Vec::new()];
    let mut is_escaped = false;
    for &byte in list {
        let Some(part) = parts.last_mut() else { break };
        match byte {
            b'\\' if !is_escaped => is_escaped = true,
            b':' if !is_escaped => parts.push(Vec::new()),
            _ => {
                part.push(byte);
                is_escaped = false;
            }
        }
    }
    parts
}

/// The disk of a file on an overlay, by the file in a layer.
pub(super) fn overlay_backing(
    roots: &Roots,
    mount: &Mount,
    mounts: &Mounts,
    path: &Path,
    stat: &Statx,
) -> Backing {
    let real = overlay_file(mount, path, stat);
    let target =
        real.filter(|real| !is_overlay(mounts, real)).and_then(|real| Target::inspect_in(roots, &real).ok());
    target.map_or_else(
        || Backing::None { reason: "overlay lies on other filesystems".to_owned() },
        |target| target.backing,
    )
}

/// Whether a path lies on an overlay. A layer on an overlay is not followed, so that no mount table causes a cycle.
fn is_overlay(mounts: &Mounts, path: &Path) -> bool {
    let number = |path: &Path| path.metadata().map(|found| DeviceNumber::from_raw(found.dev())).ok();
    let device = number(path);
    mounts.iter().any(|mount| mount.fs_type == "overlay" && Some(mount.device) == device)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_upper_first_and_relative_ones_are_omitted() {
        let layers = |options: &str| {
            overlay_layers(options).iter().map(|layer| layer.display().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(layers("rw,lowerdir=/a:/b::/c,upperdir=/up,workdir=/w"), ["/up", "/a", "/b", "/c"]);
        assert_eq!(layers(r"rw,lowerdir=/a\134:b:/c\054d,xino=on"), ["/a:b", "/c,d"]);
        assert_eq!(layers("rw,lowerdir=l/AB:l/CD,upperdir=up"), Vec::<String>::new());
        assert_eq!(layers("rw,lowerdir+=/a,lowerdir+=/b,datadir+=/data"), ["/a", "/b", "/data"]);
        assert_eq!(layers(""), Vec::<String>::new());
    }
}
