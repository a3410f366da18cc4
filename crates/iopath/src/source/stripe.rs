//! A stripe (RAID 0) of files, block devices and exports as a source. `iopath_os::Striped` splits requests.

use super::file::FileSource;
use super::ranges::push;
#[cfg(feature = "remote")]
use super::remote::RemoteSource;
use super::{DeviceSetup, OpenedDevice, Source, SourceError};
use crate::error::OpenError;
use crate::options::Options;
use iopath_core::{Limits, QueueConfig, SECTOR_BYTES, SECTOR_SHIFT, StripeConfig, StripeError};
#[cfg(feature = "remote")]
use iopath_os::Remote;
use iopath_os::target::{Kind, Target};
use iopath_os::{RealDevice, Striped, StripedError};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A member of a stripe: see [`Volume::open_stripe_of`](crate::Volume::open_stripe_of).
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Member<'a> {
    /// A file or block device.
    Path(&'a Path),
    /// An export of a server.
    #[cfg(feature = "remote")]
    Remote(&'a Remote),
}

/// An open member.
#[derive(Debug)]
struct Part {
    source: Box<dyn Source>,
    limits: Limits,
}

/// A stripe of several sources.
#[derive(Debug)]
pub(crate) struct StripeSource {
    parts: Vec<Part>,
    config: StripeConfig,
    limits: Limits,
    name: PathBuf,
}

impl StripeSource {
    pub(crate) fn open(
        members: &[Member<'_>],
        chunk_bytes: u64,
        options: &Options,
    ) -> Result<(Self, Target), OpenError> {
        if !chunk_bytes.is_multiple_of(SECTOR_BYTES) {
            return Err(OpenError::Chunk { chunk_bytes });
        }
        let config = StripeConfig { chunk_sectors: chunk_bytes / SECTOR_BYTES, ..StripeConfig::default() };
        let create_bytes = member_bytes(options.create_bytes, members.len(), chunk_bytes);
        let of_member = Options { create_bytes, ..options.clone() };
        let mut parts = Vec::with_capacity(members.len());
        let mut targets = Vec::with_capacity(members.len());
        for member in members {
            let (part, target) = Part::open(member, &of_member)?;
            parts.push(part);
            targets.push(target);
        }
        refuse_the_same(&parts)?;
        let of_members: Vec<&Limits> = parts.iter().map(|part| &part.limits).collect();
        let limits = config.limits(&of_members).map_err(StripedError::Layout)?;
        let name = names(targets.iter().map(|target| target.path.as_path()));
        let first = targets.into_iter().next().expect("a stripe of no members is refused");
        // A stripe is a device even if its members are files: its size is a multiple of a block.
        let size_bytes = limits.capacity * SECTOR_BYTES;
        let mut target = first;
        (target.path, target.size_bytes, target.kind) = (name.clone(), size_bytes, Kind::BlockDevice);
        Ok((Self { parts, config, limits, name }, target))
    }

    /// The maximum number of requests at the device of a shared queue.
    pub(crate) const fn device_depth(&self) -> u32 {
        QueueConfig::DEVICE_DEPTH.saturating_mul(self.parts.len() as u32)
    }

    /// Consecutive bytes on one member.
    const fn chunk_bytes(&self) -> u64 {
        self.config.chunk_sectors << SECTOR_SHIFT
    }

    /// Opens a device for each member. The stripe reports the engine of the first member that fell back, with the
    /// reason.
    fn open_each<D: RealDevice + ?Sized>(
        &self,
        setup: &DeviceSetup,
        open: impl Fn(&dyn Source, &DeviceSetup) -> Result<OpenedDevice<D>, OpenError>,
    ) -> Result<OpenedDevice<Striped<Box<D>>>, OpenError> {
        let mut members = Vec::with_capacity(self.parts.len());
        let mut named: Option<(&'static str, Option<_>)> = None;
        for Part { source, limits } in &self.parts {
            let of_member = DeviceSetup { limits: limits.clone(), ..setup.clone() };
            let OpenedDevice { device, engine, fallback } = open(&**source, &of_member)?;
            members.push(device);
            if named.as_ref().is_none_or(|(_, reason)| reason.is_none() && fallback.is_some()) {
                named = Some((engine, fallback));
            }
        }
        let (engine, fallback) = named.ok_or(StripedError::Layout(StripeError::NoMembers))?;
        Ok(OpenedDevice { device: Box::new(Striped::new(members, &self.config)?), engine, fallback })
    }
}

impl Part {
    fn open(member: &Member<'_>, options: &Options) -> Result<(Self, Target), OpenError> {
        let (source, target): (Box<dyn Source>, Target) = match *member {
            Member::Path(path) => {
                let (file, target) = FileSource::open(path, options)?;
                (Box::new(file), target)
            }
            #[cfg(feature = "remote")]
            Member::Remote(remote) => {
                let (remote, target) = RemoteSource::open(remote, options)?;
                (Box::new(remote), target)
            }
        };
        let limits = source.limits();
        // The last block of a file may be partial. A stripe has whole blocks only.
        let capacity = limits.capacity.min(target.size_bytes / SECTOR_BYTES);
        Ok((Self { source, limits: Limits { capacity, ..limits } }, target))
    }
}

impl Source for StripeSource {
    fn limits(&self) -> Limits {
        self.limits.clone()
    }

    fn open(&self, setup: &DeviceSetup) -> Result<OpenedDevice<dyn RealDevice + Send>, OpenError> {
        let OpenedDevice { device, engine, fallback } =
            self.open_each(setup, |source, setup| source.open(setup))?;
        Ok(OpenedDevice { device, engine, fallback })
    }

    fn open_local(&self, setup: &DeviceSetup) -> Result<OpenedDevice<dyn RealDevice>, OpenError> {
        let OpenedDevice { device, engine, fallback } =
            self.open_each(setup, |source, setup| source.open_local(setup))?;
        Ok(OpenedDevice { device, engine, fallback })
    }

    fn name(&self) -> PathBuf {
        self.name.clone()
    }

    /// It has whole blocks only.
    fn writes_last_block(&self) -> bool {
        false
    }

    /// Finds the data of each member once, then goes through the chunks.
    fn data_ranges(&self, range: Range<u64>, _ranges_max: usize) -> Result<Vec<Range<u64>>, SourceError> {
        let count = self.parts.len() as u64;
        let chunk = self.chunk_bytes();
        let (first, last) = (range.start / chunk, (range.end - 1) / chunk);
        let of_member = first / count * chunk..(last / count + 1) * chunk;
        let of_part = |part: &Part| part.source.data_ranges(of_member.clone(), usize::MAX);
        let data = self.parts.iter().map(of_part).collect::<Result<Vec<_>, _>>()?;
        let mut next = vec![0; data.len()];
        let mut found = Vec::new();
        for number in first..=last {
            let start = number * chunk;
            let of_member = number / count * chunk;
            let member = (number % count) as usize;
            while let Some(run) = data[member].get(next[member]).filter(|run| run.start < of_member + chunk) {
                let from = start + run.start.saturating_sub(of_member);
                push(&mut found, from, start + (run.end - of_member).min(chunk), &range);
                if run.end > of_member + chunk {
                    // It continues in the next chunk of this member.
                    break;
                }
                next[member] += 1;
            }
        }
        Ok(found)
    }

    fn files(&self) -> Vec<Arc<File>> {
        self.parts.iter().flat_map(|part| part.source.files()).collect()
    }

    fn failure(&self) -> Option<String> {
        self.parts.iter().find_map(|part| part.source.failure())
    }
}

/// The share of each member in a stripe of `create_bytes`.
fn member_bytes(create_bytes: Option<u64>, members: usize, chunk_bytes: u64) -> Option<u64> {
    let of_each = create_bytes?.div_ceil(members.max(1) as u64);
    Some(of_each.checked_next_multiple_of(chunk_bytes).unwrap_or(of_each))
}

/// Refuses a file, device or export that is named twice. Files and devices are also recognised under different names.
fn refuse_the_same(parts: &[Part]) -> Result<(), OpenError> {
    let mut seen = BTreeSet::new();
    let mut exports = BTreeSet::new();
    for Part { source, .. } in parts {
        let path = source.name();
        let Some(file) = source.file() else {
            if exports.insert(path.clone()) {
                continue;
            }
            return Err(OpenError::SameMember(path));
        };
        let about = match file.metadata() {
            Ok(about) => about,
            Err(source) => return Err(OpenError::System { path, what: "examined", source }),
        };
        // A device may have several names, each with its own inode.
        let is_device = about.file_type().is_block_device();
        let identity = if is_device { (true, 0, about.rdev()) } else { (false, about.dev(), about.ino()) };
        if !seen.insert(identity) {
            return Err(OpenError::SameMember(path));
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
