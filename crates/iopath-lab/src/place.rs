//! Where a workload's bytes are: a scratch file of ours, an existing file or block device, or nowhere. Decides what
//! may be touched; moves nothing.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use iopath_os::target::extents::{extents, first_unwritten};
use iopath_os::target::guard::Contents;
use iopath_os::target::{
    self, DioAlignment, Kind, Residency, Target, TargetError, drop_cached, open_exclusive, residency,
};

use crate::error::LabError;
use crate::path::PathRow;
use crate::progress::{Progress, Silent, Stage};
use crate::scratch::Scratch;
use crate::workload::{DEFAULT_SIZE_BYTES, Workload};

/// The size of a scratch file that is only asked what direct I/O in its directory needs.
const PROBE_BYTES: u64 = 64 << 10;

/// Where a workload's bytes are. One may serve many workloads, one after another.
#[derive(Debug)]
pub struct Place {
    /// None where nothing is touched.
    target: Option<Target>,
    size_bytes: u64,
    scratch: Option<Scratch>,
    /// The first offset that is not in a written extent, where the filesystem tells.
    unwritten: Option<u64>,
    /// Pages that the last attempt to drop them left in the page cache.
    stayed: AtomicU64,
    /// Keeps a block device that is written to from being mounted meanwhile.
    _claim: Option<File>,
}

impl Place {
    /// Finds or makes the place of a workload.
    pub fn prepare(
        workload: &Workload,
        row: &PathRow,
        progress: &mut dyn Progress,
    ) -> Result<Self, LabError> {
        let size_bytes = workload.size_bytes;
        if !row.needs_target {
            return Ok(Self::nowhere(size_bytes.unwrap_or(DEFAULT_SIZE_BYTES)));
        }
        let path = workload.target.as_deref().ok_or(LabError::NoTarget { path: row.name })?;
        let target = inspect(path)?;
        if target.kind == Kind::Directory {
            let size_bytes = size_bytes.unwrap_or(DEFAULT_SIZE_BYTES);
            workload.check_size(size_bytes)?;
            workload.check_warm(row, size_bytes)?;
            // Before minutes are spent on filling a large one.
            if row.direct || row.cached {
                let probe = Self::scratch(path, PROBE_BYTES, workload.seed, &mut Silent)?;
                probe.check_alignment(workload, row)?;
            }
            Self::scratch(path, size_bytes, workload.seed, progress)
        } else {
            Self::existing(target, workload)
        }
    }

    /// No place at all, for paths that move no byte.
    pub fn nowhere(size_bytes: u64) -> Self {
        Self {
            target: None,
            size_bytes,
            scratch: None,
            unwritten: None,
            stayed: AtomicU64::new(0),
            _claim: None,
        }
    }

    /// A scratch file in a directory, removed when this is dropped.
    pub fn scratch(
        directory: &Path,
        size_bytes: u64,
        seed: u64,
        progress: &mut dyn Progress,
    ) -> Result<Self, LabError> {
        progress.stage(&Stage::Scratch { directory: directory.to_owned(), bytes: size_bytes });
        let mut shown = 0;
        let scratch = Scratch::create(directory, size_bytes, seed, &mut |done| {
            if done * 100 / size_bytes > shown {
                shown = done * 100 / size_bytes;
                progress.advance(done as f64 / size_bytes as f64);
            }
        })?;
        let target = inspect(scratch.path())?;
        let unwritten = unwritten(&target, size_bytes);
        Ok(Self {
            target: Some(target),
            size_bytes,
            scratch: Some(scratch),
            unwritten,
            stayed: AtomicU64::new(0),
            _claim: None,
        })
    }

    /// The first `size_bytes` of this place, to read from, while this place is there.
    pub(crate) fn first(&self, size_bytes: u64) -> Self {
        Self {
            target: self.target.clone(),
            size_bytes: size_bytes.min(self.size_bytes),
            scratch: None,
            unwritten: self.unwritten,
            stayed: AtomicU64::new(0),
            _claim: None,
        }
    }

    /// A file or block device that is not ours: written to only if the workload says so and nothing speaks against.
    fn existing(target: Target, workload: &Workload) -> Result<Self, LabError> {
        let mut claim = None;
        if workload.rw.writes() {
            if !workload.overwrite {
                return Err(LabError::Overwrite { target: target.path });
            }
            target::may_overwrite(&target)?;
            claim = Some(open_exclusive(&target, false, Contents::Kept)?);
        }
        let (has, wanted) = (target.size_bytes, workload.size_bytes.unwrap_or(workload.size_bytes_min()));
        if wanted > has {
            return Err(LabError::TooSmall { target: target.path, has, wanted });
        }
        let size_bytes = workload.size_bytes.unwrap_or(has);
        let unwritten = unwritten(&target, size_bytes);
        Ok(Self {
            target: Some(target),
            size_bytes,
            scratch: None,
            unwritten,
            stayed: AtomicU64::new(0),
            _claim: claim,
        })
    }

    /// The file or device; none where nothing is touched.
    pub fn file(&self) -> Option<&Path> {
        self.target.as_ref().map(|target| target.path.as_path())
    }

    /// What it is; none where nothing is touched.
    pub fn target(&self) -> Option<&Target> {
        self.target.as_ref()
    }

    /// Whether the file is one of ours, there for this only.
    pub fn is_scratch(&self) -> bool {
        self.scratch.is_some()
    }

    /// The bytes that may be touched, from offset zero.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// The kernel's name of the disk beneath, if there is one.
    pub fn disk(&self) -> Option<&str> {
        self.target.as_ref().and_then(|target| target.backing.disk()).map(|disk| disk.name.as_str())
    }

    /// The first offset in bytes that lies in a hole or an unwritten extent, if the filesystem says so: reads there
    /// do not reach the disk.
    pub fn unwritten(&self) -> Option<u64> {
        self.unwritten
    }

    /// What offsets and lengths of direct I/O have to be multiples of, in bytes; an error where there is none.
    pub fn direct_align_bytes(&self) -> Result<u32, LabError> {
        let Some(file) = self.file() else { return Ok(1) };
        Ok(DioAlignment::discover(file)?.offset_bytes)
    }

    /// Direct I/O of blocks that do not suit the device is refused before it begins.
    pub(crate) fn check_alignment(&self, workload: &Workload, row: &PathRow) -> Result<(), LabError> {
        // A page cache of iopath's takes any block, but does direct I/O itself.
        let Some(target) = self.file().filter(|_| row.direct || row.cached) else { return Ok(()) };
        let alignment = u64::from(self.direct_align_bytes()?);
        let block_bytes = u64::from(workload.block_bytes);
        if row.cached || block_bytes.is_multiple_of(alignment) {
            return Ok(());
        }
        Err(LabError::Unaligned { block_bytes, alignment, target: target.to_owned() })
    }

    /// Drops the target's pages from the page cache; says what could not be dropped. Only looks where there is no more
    /// than what stayed last time: trying takes long, and filesystems in memory keep everything.
    pub(crate) fn drop_cached(&self) -> Result<Option<Residency>, LabError> {
        let Some(path) = self.file() else { return Ok(None) };
        let file = File::open(path).map_err(|source| match source.kind() {
            // It was there when it was looked at first.
            io::ErrorKind::NotFound => LabError::Gone { target: path.to_owned() },
            _ => LabError::open(path, false)(source),
        })?;
        let found = residency(&file, 0..self.size_bytes)?;
        if found.resident <= self.stayed.load(Ordering::Relaxed) {
            return Ok(Some(found));
        }
        let left = drop_cached(&file, 0..self.size_bytes)?;
        self.stayed.store(left.resident, Ordering::Relaxed);
        Ok(Some(left))
    }
}

/// Nothing where there is no file, or the filesystem does not tell.
fn unwritten(target: &Target, size_bytes: u64) -> Option<u64> {
    let file = File::open(&target.path).ok().filter(|_| target.kind == Kind::RegularFile)?;
    first_unwritten(&extents(&file).ok()?, size_bytes)
}

/// What a path is.
pub(crate) fn inspect(path: &Path) -> Result<Target, LabError> {
    Target::inspect(path).map_err(|error| match error {
        TargetError::Stat { path, source } => LabError::open(&path, false)(source),
        other => LabError::Target(other),
    })
}
