//! A volume of several files or block devices, chunk by chunk (RAID 0). Cutting and waiting are the device's
//! (`iopath_os::Striped`); here members are opened, and their engines.

use crate::error::OpenError;
use crate::open::{Backing, Source};
use crate::options::Options;
use crate::tuning::Tuning;
use crate::volume::Volume;
use iopath_core::{Limits, SECTOR_BYTES, StripeConfig};
use iopath_os::target::{Kind, Target};
use iopath_os::{Engine, EngineConfig, EngineError, Opened, RealDevice, Striped, StripedError};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The members of a volume that is a stripe.
#[derive(Debug)]
pub(crate) struct Members {
    files: Vec<(Arc<File>, Limits)>,
    config: StripeConfig,
}

impl Volume {
    /// Opens several files or block devices as one volume that has `chunk_bytes` bytes on each in turn. Its size is so
    /// many times that of the smallest, rounded down to whole chunks.
    ///
    /// The same members in the same order and the same chunk hold the same data again. A member that fails fails what
    /// touches it; nothing is kept twice. Of the options, `create` says how large the volume is to be, `depth` and
    /// `elevator` hold for the volume, `request_bytes_max` for each member. [`Facts::path`](crate::Facts) is the
    /// members' paths with commas between them, [`Facts::target`](crate::Facts) what the first of them is.
    ///
    /// ```no_run
    /// use iopath::{Options, Volume};
    ///
    /// let volume = Volume::open_stripe(&["/dev/sdx", "/dev/sdy"], 512 << 10, &Options::new())?;
    /// println!("{} bytes", volume.size_bytes());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open_stripe(
        paths: &[impl AsRef<Path>],
        chunk_bytes: u64,
        options: &Options,
    ) -> Result<Self, OpenError> {
        let (source, target) = Source::stripe(paths, chunk_bytes, options)?;
        Self::of(source, target)
    }
}

impl Source {
    /// The members, opened, and what they are together.
    pub(crate) fn stripe(
        paths: &[impl AsRef<Path>],
        chunk_bytes: u64,
        options: &Options,
    ) -> Result<(Self, Target), OpenError> {
        if !chunk_bytes.is_multiple_of(SECTOR_BYTES) {
            return Err(OpenError::Chunk { chunk_bytes });
        }
        let config = StripeConfig { chunk_sectors: chunk_bytes / SECTOR_BYTES, ..StripeConfig::default() };
        let of_member =
            Options { create_bytes: member_bytes(options, paths.len(), chunk_bytes), ..options.clone() };
        let opened: Vec<_> =
            paths.iter().map(|path| Self::open(path.as_ref(), &of_member)).collect::<Result<_, _>>()?;
        let mut files = Vec::with_capacity(opened.len());
        let mut targets = Vec::with_capacity(opened.len());
        for (source, target) in opened {
            if let Backing::File(file) = source.backing {
                files.push((file, source.limits));
                targets.push(target);
            }
        }
        refuse_the_same(&files, &targets)?;
        let of_members: Vec<&Limits> = files.iter().map(|(_, limits)| limits).collect();
        let limits = config.limits(&of_members).map_err(StripedError::Layout)?;
        let path = names(targets.iter().map(|target| target.path.as_path()));
        let first = targets.into_iter().next().expect("a stripe of no members is refused");
        // Whole blocks at both ends, as a device has it, whatever the members are.
        let size_bytes = limits.capacity * SECTOR_BYTES;
        let target = Target { path, size_bytes, kind: Kind::BlockDevice, ..first };
        let (tuning, options) = (Tuning::new(options.elevator.parse()?), options.clone());
        let backing = Backing::Stripe(Members { files, config });
        Ok((Self { backing, limits, options, tuning }, target))
    }
}

/// How much of a volume of `create_bytes` each member holds.
fn member_bytes(options: &Options, members: usize, chunk_bytes: u64) -> Option<u64> {
    let of_each = options.create_bytes?.div_ceil(members.max(1) as u64);
    Some(of_each.checked_next_multiple_of(chunk_bytes).unwrap_or(of_each))
}

/// Refuses a file or device that is there twice, by whatever names.
fn refuse_the_same(files: &[(Arc<File>, Limits)], targets: &[Target]) -> Result<(), OpenError> {
    let mut seen = BTreeSet::new();
    for ((file, _), target) in files.iter().zip(targets) {
        let about = file.metadata();
        let about = about.map_err(|source| OpenError::System {
            path: target.path.clone(),
            what: "examined",
            source,
        })?;
        // A device may have several names with an inode each.
        let is_device = about.file_type().is_block_device();
        let identity = if is_device { (true, 0, about.rdev()) } else { (false, about.dev(), about.ino()) };
        if !seen.insert(identity) {
            return Err(OpenError::SameMember(target.path.clone()));
        }
    }
    Ok(())
}

/// The paths with commas between them.
fn names<'a>(paths: impl Iterator<Item = &'a Path>) -> PathBuf {
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
    /// A device that the calling thread uses alone.
    pub(crate) fn open(
        &self,
        engine: Engine,
        config: &EngineConfig,
    ) -> Result<Opened<Box<dyn RealDevice>>, OpenError> {
        let opened = self.open_each(|file, limits| engine.open(file, limits, config))?;
        Ok(Opened { device: Box::new(opened.device), engine: opened.engine, fallback: opened.fallback })
    }

    /// A device that several threads may use in turn.
    pub(crate) fn open_shared(
        &self,
        engine: Engine,
        config: &EngineConfig,
    ) -> Result<Opened<Box<dyn RealDevice + Send>>, OpenError> {
        let opened = self.open_each(|file, limits| engine.open_shared(file, limits, config))?;
        Ok(Opened { device: Box::new(opened.device), engine: opened.engine, fallback: opened.fallback })
    }

    /// All members with an engine each. The stripe's is that of the first which is not as asked for, and so says why.
    fn open_each<D: RealDevice>(
        &self,
        open: impl Fn(&Arc<File>, &Limits) -> Result<Opened<D>, EngineError>,
    ) -> Result<Opened<Striped<D>>, OpenError> {
        let mut members = Vec::with_capacity(self.files.len());
        let mut named: Option<(Engine, Option<_>)> = None;
        for (file, limits) in &self.files {
            let Opened { device, engine, fallback } = open(file, limits)?;
            members.push(device);
            if named.as_ref().is_none_or(|(_, told)| told.is_none() && fallback.is_some()) {
                named = Some((engine, fallback));
            }
        }
        let (engine, fallback) = named.ok_or(StripedError::Layout(iopath_core::StripeError::NoMembers))?;
        Ok(Opened { device: Striped::new(members, &self.config)?, engine, fallback })
    }
}
