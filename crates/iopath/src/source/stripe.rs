//! The members of a stripe (RAID 0) and their engines. `iopath_os::Striped` splits requests.

use super::On;
use crate::error::OpenError;
use iopath_core::{Limits, SECTOR_SHIFT, StripeConfig};
use iopath_os::target::Target;
use iopath_os::{Engine, EngineConfig, RealDevice, Remote, Striped, StripedError};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A member of a stripe: see [`Volume::open_stripe_of`](crate::Volume::open_stripe_of).
#[derive(Debug, Clone, Copy)]
pub enum Member<'a> {
    /// A file or block device.
    Path(&'a Path),
    /// An export of a server.
    Remote(&'a Remote),
}

/// An open member.
#[derive(Debug)]
pub(crate) enum Part {
    File(Arc<File>),
    Remote(Remote),
}

/// The members of a stripe.
#[derive(Debug)]
pub(crate) struct Members {
    pub(crate) parts: Vec<(Part, Limits)>,
    pub(super) config: StripeConfig,
}

impl Members {
    /// Consecutive bytes on one member.
    pub(crate) const fn chunk_bytes(&self) -> u64 {
        self.config.chunk_sectors << SECTOR_SHIFT
    }
}

/// The share of each member in a stripe of `create_bytes`.
pub(super) fn member_bytes(create_bytes: Option<u64>, members: usize, chunk_bytes: u64) -> Option<u64> {
    let of_each = create_bytes?.div_ceil(members.max(1) as u64);
    Some(of_each.checked_next_multiple_of(chunk_bytes).unwrap_or(of_each))
}

/// Refuses a file, device or export that is named twice. Files and devices are also recognised under different names.
pub(super) fn refuse_the_same(parts: &[(Part, Limits)], targets: &[Target]) -> Result<(), OpenError> {
    let mut seen = BTreeSet::new();
    let mut exports = BTreeSet::new();
    for ((part, _), target) in parts.iter().zip(targets) {
        let file = match part {
            Part::File(file) => file,
            Part::Remote(remote) if exports.insert(remote.name()) => continue,
            Part::Remote(_) => return Err(OpenError::SameMember(target.path.clone())),
        };
        let about = file.metadata();
        let about = about.map_err(|source| OpenError::System {
            path: target.path.clone(),
            what: "examined",
            source,
        })?;
        // A device may have several names, each with its own inode.
        let is_device = about.file_type().is_block_device();
        let identity = if is_device { (true, 0, about.rdev()) } else { (false, about.dev(), about.ino()) };
        if !seen.insert(identity) {
            return Err(OpenError::SameMember(target.path.clone()));
        }
    }
    Ok(())
}

/// The paths with commas between them.
pub(super) fn names<'a>(paths: impl Iterator<Item = &'a Path>) -> PathBuf {
    let mut names = OsString::new();
    for path in paths {
        if !names.is_empty() {
            names.push(",");
        }
        names.push(path);
    }
    names.into()
}

impl Members {
    /// A device for one thread.
    pub(super) fn open(
        &self,
        engine: Engine,
        config: &EngineConfig,
    ) -> Result<On<dyn RealDevice>, OpenError> {
        let On { device, engine, fallback } = self.open_each(|part, limits| {
            Ok(match part {
                Part::File(file) => On::of(engine.open(file, limits, config)?),
                Part::Remote(remote) => On::remote(Box::new(remote.device(limits, config.depth))),
            })
        })?;
        Ok(On { device, engine, fallback })
    }

    /// A device that may move between threads.
    pub(super) fn open_shared(
        &self,
        engine: Engine,
        config: &EngineConfig,
    ) -> Result<On<dyn RealDevice + Send>, OpenError> {
        let On { device, engine, fallback } = self.open_each(|part, limits| {
            Ok(match part {
                Part::File(file) => On::of(engine.open_shared(file, limits, config)?),
                Part::Remote(remote) => On::remote(Box::new(remote.device(limits, config.depth))),
            })
        })?;
        Ok(On { device, engine, fallback })
    }

    /// Opens an engine for each member. The stripe reports the engine of the first member that fell back, with the
    /// reason.
    fn open_each<D: RealDevice + ?Sized>(
        &self,
        open: impl Fn(&Part, &Limits) -> Result<On<D>, OpenError>,
    ) -> Result<On<Striped<Box<D>>>, OpenError> {
        let mut members = Vec::with_capacity(self.parts.len());
        let mut named: Option<(&'static str, Option<_>)> = None;
        for (part, limits) in &self.parts {
            let On { device, engine, fallback } = open(part, limits)?;
            members.push(device);
            if named.as_ref().is_none_or(|(_, reason)| reason.is_none() && fallback.is_some()) {
                named = Some((engine, fallback));
            }
        }
        let (engine, fallback) = named.ok_or(StripedError::Layout(iopath_core::StripeError::NoMembers))?;
        Ok(On { device: Box::new(Striped::new(members, &self.config)?), engine, fallback })
    }

    /// The members that are files or block devices.
    pub(super) fn files(&self) -> impl Iterator<Item = &Arc<File>> {
        self.parts.iter().filter_map(|(part, _)| match part {
            Part::File(file) => Some(file),
            Part::Remote(_) => None,
        })
    }

    /// The members that are exports of servers.
    pub(super) fn remotes(&self) -> impl Iterator<Item = &Remote> {
        self.parts.iter().filter_map(|(part, _)| match part {
            Part::Remote(remote) => Some(remote),
            Part::File(_) => None,
        })
    }
}
