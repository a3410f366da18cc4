//! Maps a file to its extents on the device, and counts the requests of direct reads. Reads the metadata of the file,
//! not its content. `map/requests.rs` counts the requests, `iopath-report/src/map/view.rs` prints the map.

mod counter;
mod error;
mod requests;

use std::fs::File;
use std::path::PathBuf;

use iopath_core::mapper::Boundary;
use iopath_os::target::extents::{ExtentFlags, FileExtent, extents};
use iopath_os::target::{DioAlignment, Kind, Target, TargetError};
use iopath_report::map::{FileMap, MapExtent, SCHEMA};

use iopath_bench::error::BenchError;
use iopath_bench::host::{disk_facts, this_machine};
use iopath_bench::target::inspect;
use requests::{Layout, requests};

pub use error::MapError;

/// The treatment of boundaries without an option: direct I/O of Linux has had no boundary flag since its reads and
/// writes of block-mapped files go through iomap.
pub const DEFAULT_BOUNDARY: Boundary = Boundary::Ignore;

/// The options of a map.
#[derive(Debug, Clone)]
pub struct MapOptions {
    /// The file.
    pub file: PathBuf,
    /// Block sizes of the reads to count, in bytes.
    pub block_bytes: Vec<u64>,
    /// The treatment of boundaries; unset means `ignore`, as direct I/O of the kernel.
    pub boundary: Option<Boundary>,
}

/// Finds the extents of a file and counts the requests of reads.
///
/// # Errors
/// [`MapError`]: the file is missing or not a regular file, its filesystem does not support FIEMAP, or a block size is
/// not a multiple of the alignment of direct I/O.
pub fn map(options: &MapOptions) -> Result<FileMap, MapError> {
    let target = inspect(&options.file).map_err(|error| match error {
        BenchError::Missing { target } => MapError::Missing { target },
        BenchError::Target(TargetError::NotATarget { kind, .. }) => {
            MapError::NotAFile { target: options.file.clone(), kind }
        }
        other => other.into(),
    })?;
    let kind = match target.kind {
        Kind::RegularFile => None,
        Kind::Directory => Some("directory"),
        Kind::BlockDevice => Some("block device"),
        Kind::Memory => Some("range of memory"),
        Kind::Remote => Some("export of a server"),
        Kind::Program => Some("storage of a program"),
        _ => Some("target of another kind"),
    };
    if let Some(kind) = kind {
        return Err(MapError::NotAFile { target: options.file.clone(), kind });
    }
    let file = File::open(&target.path).map_err(BenchError::open(&options.file, false))?;
    let found =
        extents(&file).map_err(|source| MapError::Extents { target: options.file.clone(), source })?;
    let stat = rustix::fs::fstatvfs(&file).map_err(|errno| {
        BenchError::io("read the properties of the filesystem of", &options.file)(errno.into())
    })?;
    let block_bytes = stat.f_frsize as u32;
    let is_blocks = found.iter().any(|extent| extent.flags.intersects(ExtentFlags::MERGED));
    let mut map = FileMap {
        schema: SCHEMA.to_owned(),
        host: Some(this_machine(None)),
        path: target.path.to_string_lossy().into_owned(),
        size_bytes: target.size_bytes,
        filesystem: target.filesystem.as_ref().map(|filesystem| filesystem.name.clone()),
        block_bytes,
        mapped_by: if is_blocks { "blocks" } else { "extents" }.to_owned(),
        disk: target.backing.disk().map(disk_facts),
        extents: found.iter().map(map_extent).collect(),
        limits: None,
        requests: Vec::new(),
        warnings: warnings(&target, &found, is_blocks, options.boundary),
    };
    let boundary = options.boundary.unwrap_or(DEFAULT_BOUNDARY);
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

/// Reasons why the map is not exact.
fn warnings(
    target: &Target,
    found: &[FileExtent],
    is_blocks: bool,
    boundary: Option<Boundary>,
) -> Vec<String> {
    let mut warnings = Vec::new();
    let filesystem = target.filesystem.as_ref().map(|filesystem| filesystem.name.as_str());
    if filesystem == Some("btrfs") {
        warnings.push("physical offsets are addresses of the btrfs volume, not of its disks".to_owned());
    }
    if let Err(reason) = target.backing.known_disk() {
        warnings.push(format!("the disk and its limits are not known: {reason}"));
    }
    if found.iter().any(|extent| !extent.has_known_offset()) {
        warnings.push(
            "some extents are compressed, inline or without a known offset: their requests are not counted"
                .to_owned(),
        );
    }
    if let (Some(boundary), false) = (boundary, is_blocks) {
        warnings.push(format!(
            "the file is mapped by extents, which have no boundaries: --boundary {boundary} has no effect"
        ));
    }
    warnings
}
