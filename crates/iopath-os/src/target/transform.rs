//! Layers beneath a target that change the bytes on their way to storage: encryption, compression, deduplication. Reads
//! sysfs, the options of mounts and the attributes of the file. Does not measure what a layer does.

use std::fmt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags};

use super::disk::{attribute, node_dir};
use super::roots::Roots;
use super::{Disk, Filesystem};
use iopath_core::debug;

/// The effect of a layer on the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Every byte costs CPU time of the kernel.
    Encrypts,
    /// Storage transfers fewer bytes than the caller.
    Compresses,
    /// Equal blocks are stored once, and blocks may be compressed.
    Deduplicates,
    /// It may compress or deduplicate: no table of the kernel shows the setting.
    MayReduce,
}

/// A layer that changes the bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Transform {
    /// Its name, with the program or format in parentheses.
    pub layer: String,
    /// Its effect.
    pub effect: Effect,
}

impl fmt::Debug for Transform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transform")
            .field("layer", &debug::Text(&self.layer))
            .field("effect", &self.effect)
            .finish()
    }
}

impl Transform {
    /// Whether the effect depends on the content: random bytes of a scratch file are neither compressed nor repeated.
    pub fn depends_on_content(&self) -> bool {
        self.effect != Effect::Encrypts
    }

    /// The layer of a block device.
    pub(super) fn of_disk(roots: &Roots, disk: &Disk) -> Option<Self> {
        let name = &disk.name;
        let is_numbered = |prefix: &str| {
            let rest = name.strip_prefix(prefix).unwrap_or_default();
            !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit())
        };
        if is_numbered("zram") {
            return Some(Self { layer: format!("{name} (memory)"), effect: Effect::Compresses });
        }
        if is_numbered("zd") {
            return Some(Self { layer: format!("{name} (a volume of ZFS)"), effect: Effect::MayReduce });
        }
        let uuid = attribute(&node_dir(roots, disk.device)?, "dm/uuid")?;
        // `CRYPT-TYPE-…` of cryptsetup; its types VERITY and INTEGRITY do not encrypt.
        if let Some(kind) = uuid.strip_prefix("CRYPT-").and_then(|rest| rest.split('-').next()) {
            let layer = format!("{name} (dm-crypt, {kind})");
            let encrypts = !["VERITY", "INTEGRITY"].contains(&kind);
            return encrypts.then_some(Self { layer, effect: Effect::Encrypts });
        }
        let is_vdo = uuid.starts_with("VDO-") || uuid.ends_with("-vpool");
        is_vdo.then(|| Self { layer: format!("{name} (VDO)"), effect: Effect::Deduplicates })
    }

    /// The layer of a filesystem.
    pub(super) fn of_filesystem(filesystem: &Filesystem) -> Option<Self> {
        let name = filesystem.name.as_str();
        let effect = match name {
            "zfs" => Effect::MayReduce,
            "ecryptfs" | "fuse.gocryptfs" | "fuse.encfs" | "fuse.cryfs" | "fuse.securefs" => Effect::Encrypts,
            _ if filesystem.compresses() => Effect::Compresses,
            _ => return None,
        };
        Some(Self { layer: format!("{name} at {}", filesystem.mount_point.display()), effect })
    }

    /// What the attributes of a file or directory show; a new file has those of its directory.
    pub(super) fn of_attributes(path: &Path) -> Vec<Self> {
        let Ok(found) = rustix::fs::statx(CWD, path, AtFlags::empty(), StatxFlags::empty()) else {
            return Vec::new();
        };
        let known = [
            (StatxAttributes::ENCRYPTED, Effect::Encrypts, "fscrypt"),
            (StatxAttributes::COMPRESSED, Effect::Compresses, "compressed"),
        ];
        let set = known.into_iter().filter(|(bit, ..)| found.stx_attributes.contains(*bit));
        set.map(|(_, effect, word)| Self { layer: format!("{} ({word})", path.display()), effect }).collect()
    }
}

impl fmt::Display for Transform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { layer, effect } = self;
        match effect {
            Effect::Encrypts => {
                write!(f, "{layer} encrypts: each byte costs CPU time, which may limit the rate")
            }
            Effect::Compresses => {
                write!(f, "{layer} compresses: the disk transfers fewer bytes than the run counts")
            }
            Effect::Deduplicates => write!(
                f,
                "{layer} deduplicates and may compress: the disk transfers fewer bytes than the run counts"
            ),
            Effect::MayReduce => write!(
                f,
                "{layer} may compress or deduplicate (`zfs get compression,dedup`): the disk may transfer fewer bytes \
                 than the run counts"
            ),
        }
    }
}
