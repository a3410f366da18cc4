//! A stripe (RAID 0) of any sources as a source. `iopath_os::Striped` splits requests.

#[cfg(feature = "testing")]
use super::MemorySource;
#[cfg(feature = "remote")]
use super::RemoteSource;
use super::ranges::push;
use super::{DeviceSetup, FileSource, OpenedDevice, Source, SourceError, limits_of};
use crate::caches::Identity;
use crate::error::OpenError;
use crate::options::Options;
use iopath_core::debug;
use iopath_core::{Limits, QueueConfig, SECTOR_BYTES, SECTOR_SHIFT, StripeConfig, StripeError};
#[cfg(feature = "testing")]
use iopath_os::MemoryDisk;
#[cfg(feature = "remote")]
use iopath_os::Remote;
use iopath_os::target::{Kind, Target};
use iopath_os::{RealDevice, Striped, StripedError};
use std::collections::HashSet;
use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A member of a stripe: see [`Volume::open_stripe_of`](crate::Volume::open_stripe_of).
#[derive(Clone, Copy)]
#[non_exhaustive]
pub enum Member<'a> {
    /// A file or block device.
    Path(&'a Path),
    /// An export of a server.
    #[cfg(feature = "remote")]
    Remote(&'a Remote),
    /// A disk in memory.
    #[cfg(feature = "testing")]
    Memory(&'a MemoryDisk),
    /// Storage of the program, or of a function of the module [`source`](crate::source).
    Source(&'a Arc<dyn Source>),
}

impl fmt::Debug for Member<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => f.debug_tuple("Path").field(&debug::Text(path)).finish(),
            #[cfg(feature = "remote")]
            Self::Remote(remote) => f.debug_tuple("Remote").field(remote).finish(),
            #[cfg(feature = "testing")]
            Self::Memory(disk) => f.debug_tuple("Memory").field(disk).finish(),
            Self::Source(source) => f.debug_tuple("Source").field(&debug::Text(source.name())).finish(),
        }
    }
}

/// An open member.
#[derive(Debug)]
struct Part {
    source: Arc<dyn Source>,
    limits: Limits,
}

/// Recognises a member that is named twice: a file or device also under different names.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Named {
    Stored(Identity),
    Export(PathBuf),
    /// The address of a disk in memory, or of a source of the program.
    Object(usize),
}

/// A stripe of several sources.
#[derive(Debug)]
pub(crate) struct StripeSource {
    parts: Vec<Part>,
    config: StripeConfig,
    limits: Limits,
    target: Arc<Target>,
}

impl StripeSource {
    pub(crate) fn open(
        members: &[Member<'_>],
        chunk_bytes: u64,
        options: &Options,
    ) -> Result<Self, OpenError> {
        if !chunk_bytes.is_multiple_of(SECTOR_BYTES) {
            return Err(OpenError::Chunk { chunk_bytes });
        }
        let config = StripeConfig { chunk_sectors: chunk_bytes / SECTOR_BYTES, ..StripeConfig::default() };
        let create_bytes = member_bytes(options.create_bytes, members.len(), chunk_bytes);
        let of_member = Options { create_bytes, ..options.clone() };
        let mut parts = Vec::with_capacity(members.len());
        let mut targets = Vec::with_capacity(members.len());
        let mut named = HashSet::new();
        for member in members {
            let (part, target) = Part::open(member, &of_member)?;
            if !named.insert(Named::of(member, &*part.source, &target)?) {
                return Err(OpenError::SameMember(target.path.clone()));
            }
            parts.push(part);
            targets.push(target);
        }
        let of_members: Vec<&Limits> = parts.iter().map(|part| &part.limits).collect();
        let limits = config.limits(&of_members).map_err(StripedError::Layout)?;
        let mut target = Arc::clone(targets.first().expect("a stripe of no members is refused"));
        let of_stripe = Arc::make_mut(&mut target);
        of_stripe.path = names(targets.iter().map(|target| target.path.as_path()));
        of_stripe.size_bytes = limits.capacity * SECTOR_BYTES;
        // A stripe is a device even if its members are files: its size is a multiple of a block.
        of_stripe.kind = Kind::BlockDevice;
        Ok(Self { parts, config, limits, target })
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
            let depth = setup.depth.min(limits.depth_max);
            let of_member = DeviceSetup { limits: limits.clone(), depth, ..setup.clone() };
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
    fn open(member: &Member<'_>, options: &Options) -> Result<(Self, Arc<Target>), OpenError> {
        let source: Arc<dyn Source> = match *member {
            Member::Path(path) => Arc::new(FileSource::open(path, options)?),
            #[cfg(feature = "remote")]
            Member::Remote(remote) => Arc::new(RemoteSource::new(remote, options)?),
            #[cfg(feature = "testing")]
            Member::Memory(disk) => Arc::new(MemorySource::new(disk, options)),
            Member::Source(source) => Arc::clone(source),
        };
        let target = source.target();
        let limits = limits_of(&*source, &target, options)?;
        // The last block of a member may be partial. A stripe has whole blocks only.
        let capacity = limits.capacity.min(target.size_bytes / SECTOR_BYTES);
        Ok((Self { source, limits: Limits { capacity, ..limits } }, target))
    }
}

impl Named {
    fn of(member: &Member<'_>, source: &dyn Source, target: &Target) -> Result<Self, OpenError> {
        if let Some(file) = source.file() {
            let path = || target.path.clone();
            let found = Identity::of(file);
            let found =
                found.map_err(|source| OpenError::System { path: path(), what: "examined", source })?;
            return Ok(Self::Stored(found));
        }
        Ok(match *member {
            #[cfg(feature = "testing")]
            Member::Memory(disk) => Self::Object(disk.address()),
            Member::Source(source) => Self::Object(Arc::as_ptr(source).cast::<()>().addr()),
            _ => Self::Export(target.path.clone()),
        })
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
        self.target.path.clone()
    }

    fn target(&self) -> Arc<Target> {
        Arc::clone(&self.target)
    }

    fn device_depth(&self) -> u32 {
        QueueConfig::DEVICE_DEPTH.saturating_mul(self.parts.len() as u32)
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

    /// All sizes of blocks are powers of two: the largest is a multiple of all.
    fn write_unit_bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.source.write_unit_bytes()).max().unwrap_or(1)
    }

    /// Those of the members: a chunk has whole blocks.
    fn discard_zeroes(&self) -> bool {
        self.parts.iter().all(|part| part.source.discard_zeroes())
    }

    fn files(&self) -> Vec<Arc<File>> {
        self.parts.iter().flat_map(|part| part.source.files()).collect()
    }

    fn has_whole_files(&self) -> bool {
        self.parts.iter().all(|part| part.source.has_whole_files() || part.source.files().is_empty())
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
