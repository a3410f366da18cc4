//! The members of a stripe (RAID 0) and their engines. `iopath_os::Striped` splits requests.

use crate::error::OpenError;
use iopath_core::{Limits, StripeConfig};
use iopath_os::target::Target;
use iopath_os::{Engine, EngineConfig, EngineError, Opened, RealDevice, Striped, StripedError};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The members of a stripe.
#[derive(Debug)]
pub(crate) struct Members {
    pub(super) files: Vec<(Arc<File>, Limits)>,
    pub(super) config: StripeConfig,
}

/// The share of each member in a stripe of `create_bytes`.
pub(super) fn member_bytes(create_bytes: Option<u64>, members: usize, chunk_bytes: u64) -> Option<u64> {
    let of_each = create_bytes?.div_ceil(members.max(1) as u64);
    Some(of_each.checked_next_multiple_of(chunk_bytes).unwrap_or(of_each))
}

/// Refuses a file or device that is named twice, also under different names.
pub(super) fn refuse_the_same(files: &[(Arc<File>, Limits)], targets: &[Target]) -> Result<(), OpenError> {
    let mut seen = BTreeSet::new();
    for ((file, _), target) in files.iter().zip(targets) {
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
    pub(crate) fn open(
        &self,
        engine: Engine,
        config: &EngineConfig,
    ) -> Result<Opened<Box<dyn RealDevice>>, OpenError> {
        let opened = self.open_each(|file, limits| engine.open(file, limits, config))?;
        Ok(Opened { device: Box::new(opened.device), engine: opened.engine, fallback: opened.fallback })
    }

    /// A device that may move between threads.
    pub(crate) fn open_shared(
        &self,
        engine: Engine,
        config: &EngineConfig,
    ) -> Result<Opened<Box<dyn RealDevice + Send>>, OpenError> {
        let opened = self.open_each(|file, limits| engine.open_shared(file, limits, config))?;
        Ok(Opened { device: Box::new(opened.device), engine: opened.engine, fallback: opened.fallback })
    }

    /// Opens an engine for each member. The stripe reports the engine of the first member that fell back, with the reason.
    fn open_each<D: RealDevice>(
        &self,
        open: impl Fn(&Arc<File>, &Limits) -> Result<Opened<D>, EngineError>,
    ) -> Result<Opened<Striped<D>>, OpenError> {
        let mut members = Vec::with_capacity(self.files.len());
        let mut named: Option<(Engine, Option<_>)> = None;
        for (file, limits) in &self.files {
            let Opened { device, engine, fallback } = open(file, limits)?;
            members.push(device);
            if named.as_ref().is_none_or(|(_, reason)| reason.is_none() && fallback.is_some()) {
                named = Some((engine, fallback));
            }
        }
        let (engine, fallback) = named.ok_or(StripedError::Layout(iopath_core::StripeError::NoMembers))?;
        Ok(Opened { device: Striped::new(members, &self.config)?, engine, fallback })
    }
}
