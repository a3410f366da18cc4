//! Where a file lies, and which requests a direct read of it becomes. Asks the filesystem and the disk; reads no byte of
//! the file. How it looks to people is in `map/view.rs`.

mod requests;
mod view;

use std::fs::File;
use std::path::PathBuf;

use iopath_core::mapper::Boundary;
use iopath_os::target::extents::{ExtentFlags, FileExtent, extents};
use iopath_os::target::{DioAlignment, Kind, Target};
use serde::{Deserialize, Serialize};

use crate::error::LabError;
use crate::result::DiskFacts;
use crate::target::inspect;
use requests::{Layout, requests};

pub use requests::Requests;

/// The name and version of the form.
pub const SCHEMA: &str = "iopath.map/1";

/// What to look at.
#[derive(Debug, Clone)]
pub struct MapOptions {
    /// The file.
    pub file: PathBuf,
    /// Sizes of reads to lay over it, in bytes.
    pub block_bytes: Vec<u64>,
    /// What a boundary does to a read; where nothing is said, what is right.
    pub boundary: Option<Boundary>,
}

/// Where a file lies, and what reads of it become: the whole of what `--json` writes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FileMap {
    /// [`SCHEMA`].
    pub schema: String,
    /// The file, symbolic links followed; what is no UTF-8 in it is replaced.
    pub path: String,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// The type of the filesystem.
    pub filesystem: Option<String>,
    /// The filesystem's block, bytes.
    pub block_bytes: u32,
    /// `extents`, or `blocks` where an inode and indirect blocks point to single blocks.
    pub mapped_by: String,
    /// The disk beneath; none where there is no single one.
    pub disk: Option<DiskFacts>,
    /// In order of offset; what lies between them are holes.
    pub extents: Vec<MapExtent>,
    /// What a direct read must be aligned to and is cut to; none where there is no direct I/O.
    pub limits: Option<ReadLimits>,
    /// One for each block size.
    pub requests: Vec<Requests>,
    /// What there is to say against it.
    pub warnings: Vec<String>,
}

/// A run of a file that lies in one piece.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapExtent {
    /// Offset in the file, bytes.
    pub logical_bytes: u64,
    /// Offset on the filesystem's device, bytes; none where there is no place that could be told.
    pub physical_bytes: Option<u64>,
    /// Length, bytes. The last may reach beyond the end of the file.
    pub bytes: u64,
    /// What is special about it, in words.
    pub flags: Vec<String>,
}

/// What a direct read must be aligned to and is cut to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadLimits {
    /// Offset and length are multiples of this, bytes.
    pub align_bytes: u32,
    /// The largest request the kernel sends to the disk, bytes.
    pub request_bytes_max: u64,
    /// Requests do not cross multiples of this on the disk, bytes; none where it has no such limit.
    pub chunk_bytes: Option<u64>,
    /// What a boundary does; none where the file has none.
    pub boundary: Option<BoundaryName>,
}

/// What a boundary does, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BoundaryName {
    /// Every block of a mapping before a boundary is a request.
    EveryBlock,
    /// A request ends at a boundary.
    Once,
    /// Nothing.
    Ignore,
}

impl From<Boundary> for BoundaryName {
    fn from(boundary: Boundary) -> Self {
        match boundary {
            Boundary::EveryBlock => Self::EveryBlock,
            Boundary::Once => Self::Once,
            Boundary::Ignore => Self::Ignore,
        }
    }
}

impl FileMap {
    /// As JSON, indented, ending in a newline.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("strings and numbers have a form in JSON") + "\n"
    }

    /// Extents that reads reach the disk for.
    pub fn written(&self) -> usize {
        let is_written = |extent: &&MapExtent| {
            extent.physical_bytes.is_some() && !extent.flags.iter().any(|flag| flag == "unwritten")
        };
        self.extents.iter().filter(is_written).count()
    }
}

/// Looks where a file lies and lays reads over it.
///
/// # Errors
/// [`LabError`]: it is missing, no regular file, on a filesystem that does not tell extents, or a block size does not fit
/// direct I/O there.
pub fn map(options: &MapOptions) -> Result<FileMap, LabError> {
    let target = inspect(&options.file).map_err(|error| match error {
        LabError::Missing { target } => LabError::NoFile { target },
        other => other,
    })?;
    let kind = match target.kind {
        Kind::RegularFile => None,
        Kind::Directory => Some("directory"),
        Kind::BlockDevice => Some("block device"),
        Kind::Memory => Some("piece of memory"),
    };
    if let Some(kind) = kind {
        return Err(LabError::NotAFile { target: options.file.clone(), kind });
    }
    let file = File::open(&target.path).map_err(LabError::open(&options.file, false))?;
    let found =
        extents(&file).map_err(|source| LabError::Extents { target: options.file.clone(), source })?;
    let stat = rustix::fs::fstatvfs(&file)
        .map_err(|errno| LabError::io("look at the filesystem of", &options.file)(errno.into()))?;
    let block_bytes = stat.f_frsize as u32;
    let is_blocks = found.iter().any(|extent| extent.flags.intersects(ExtentFlags::MERGED));
    let mut map = FileMap {
        schema: SCHEMA.to_owned(),
        path: target.path.to_string_lossy().into_owned(),
        size_bytes: target.size_bytes,
        filesystem: target.filesystem.as_ref().map(|filesystem| filesystem.name.clone()),
        block_bytes,
        mapped_by: if is_blocks { "blocks" } else { "extents" }.to_owned(),
        disk: target.backing.disk().map(DiskFacts::of),
        extents: found.iter().map(map_extent).collect(),
        limits: None,
        requests: Vec::new(),
        warnings: warnings(&target, &found, is_blocks, options.boundary),
    };
    let boundary = options.boundary.unwrap_or_default();
    match DioAlignment::discover(&target.path) {
        Ok(alignment) => {
            let layout = Layout::new(&target, &found, block_bytes, is_blocks);
            let limits = layout.read_limits(alignment.read_offset_bytes, is_blocks.then_some(boundary));
            map.requests = options
                .block_bytes
                .iter()
                .map(|bytes| requests(&layout, &limits, *bytes, boundary, &options.file))
                .collect::<Result<_, _>>()?;
            map.limits = Some(limits);
        }
        Err(refused) => map.warnings.push(refused.to_string()),
    }
    Ok(map)
}

fn map_extent(extent: &FileExtent) -> MapExtent {
    let is_known = !extent.flags.intersects(ExtentFlags::UNKNOWN);
    MapExtent {
        logical_bytes: extent.logical,
        physical_bytes: is_known.then_some(extent.physical),
        bytes: extent.bytes,
        flags: extent.flags.words().map(str::to_owned).collect(),
    }
}

/// What makes the map less than the truth.
fn warnings(
    target: &Target,
    found: &[FileExtent],
    is_blocks: bool,
    boundary: Option<Boundary>,
) -> Vec<String> {
    let mut warnings = Vec::new();
    let filesystem = target.filesystem.as_ref().map(|filesystem| filesystem.name.as_str());
    if filesystem == Some("btrfs") {
        warnings
            .push("places are addresses of the btrfs volume, which may lie elsewhere on its disk".to_owned());
    }
    if let iopath_os::target::Backing::None { reason } = &target.backing {
        warnings.push(format!("no disk ({reason}): its limits are not known"));
    }
    if found.iter().any(|extent| !extent.has_place()) {
        warnings.push(
            "some bytes are compressed, inline or without a place: the kernel reads them its own way"
                .to_owned(),
        );
    }
    if let (Some(boundary), false) = (boundary, is_blocks) {
        warnings.push(format!(
            "the file is mapped by extents, which have no boundaries: {boundary} changes nothing"
        ));
    }
    warnings
}
