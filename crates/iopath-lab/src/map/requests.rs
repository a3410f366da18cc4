//! Counts the requests of direct reads: the core's read plan over the file's extents, within the disk's limits, and the
//! merges of the kernel's plug (`counter.rs`). Does no I/O.

use std::path::Path;

use iopath_core::mapper::{
    Boundary, ExtentMap, FileLayout, FileRange, IndirectShape, Mapper, ReadPlan, Step,
};
use iopath_core::{Extent, Limits, SECTOR_BYTES, Sector};
use iopath_os::REQUEST_BYTES;
use iopath_os::page_bytes;
use iopath_os::target::{Disk, FileExtent, Target};
use iopath_report::map::{ReadLimits, Requests};
use iopath_report::size::format_size;

use super::counter::{Counter, Memory};
use iopath_bench::error::BenchError;
use iopath_bench::field::Field;
use iopath_bench::refusal::WorkloadError;

/// The maximum number of reads that are counted: bounds the time for a large file.
const READS_MAX: u64 = 1 << 22;

/// A plan with this limit has one transfer for each contiguous range.
const UNLIMITED: u64 = 1 << 50;

/// A file's extents as a map of the core, on the whole disk.
#[derive(Debug)]
pub(super) struct Layout {
    /// The file with its last block as a whole: the kernel reads that to its end.
    map: ExtentMap,
    size_bytes: u64,
    /// Ranges without a known offset, in order.
    other: Vec<FileRange>,
    disk: Option<Disk>,
    shape: Option<IndirectShape>,
    extents: Vec<FileRange>,
}

impl Layout {
    pub(super) fn new(target: &Target, found: &[FileExtent], block_bytes: u32, is_blocks: bool) -> Self {
        let disk = target.backing.disk().cloned();
        let partition = disk.as_ref().and_then(|disk| disk.partition.as_ref());
        let offset = partition.and_then(|partition| partition.start_bytes).unwrap_or(0);
        let layout = |block_bytes: u32| FileLayout {
            block_bytes,
            size_bytes: target.size_bytes.checked_next_multiple_of(block_bytes.into()).unwrap_or(u64::MAX),
            capacity_bytes: u64::MAX,
        };
        let mut map = ExtentMap::new(&layout(block_bytes))
            .or_else(|_| ExtentMap::new(&layout(SECTOR_BYTES as u32)))
            .expect("every map can have blocks of a sector");
        let shape = is_blocks.then(|| IndirectShape::new(map.block_bytes()));
        if let Some(shape) = shape {
            map = map.with_boundaries(shape);
        }
        let (mut other, mut extents) = (Vec::new(), Vec::new());
        for extent in found {
            let file = FileRange::new(extent.logical, extent.bytes);
            let place = Extent::from_bytes(extent.physical.saturating_add(offset), extent.bytes);
            let place = place.filter(|_| extent.has_known_offset());
            if place.is_some_and(|place| map.add(extent.logical, place, extent.is_written())) {
                extents.push(file);
            } else {
                other.push(file);
            }
        }
        Self { map, size_bytes: target.size_bytes, other, disk, shape, extents }
    }

    /// The limits of reads. Without a known disk, the maximum size of iopath's own requests applies.
    pub(super) fn read_limits(&self, align_bytes: u32, boundary: Option<Boundary>) -> ReadLimits {
        let disk = self.disk.as_ref();
        ReadLimits {
            align_bytes,
            request_bytes_max: disk
                .and_then(|disk| disk.max_sectors_kb)
                .map_or(REQUEST_BYTES, |kib| kib << 10),
            chunk_bytes: disk.and_then(|disk| disk.chunk_bytes),
            segments_max: disk.and_then(|disk| disk.max_segments),
            page_bytes: page_bytes() as u32,
            boundary: boundary.map(Into::into),
        }
    }

    /// Bytes of `file` without a known offset.
    fn other_bytes(&self, file: FileRange) -> u64 {
        let first = self.other.partition_point(|other| other.end() <= file.start());
        let overlapping = self.other[first..].iter().take_while(|other| other.start() < file.end());
        overlapping.map(|other| other.and(file).bytes()).sum()
    }

    /// Indirect blocks on the paths to the blocks of `file`, each once.
    fn metadata_requests(&self, file: FileRange) -> u64 {
        let Some(shape) = self.shape else { return 0 };
        let unit = u64::from(shape.block_bytes());
        let (mut total, mut last) = (0, None);
        for extent in self.extents.iter().map(|extent| extent.and(file)).filter(|extent| !extent.is_empty()) {
            let (first, end) = (extent.start() / unit, extent.end().div_ceil(unit));
            let known = last.map_or(0, |last| shape.indirect_blocks_shared(last, first));
            total += shape.indirect_blocks(first, end - first) - known;
            last = Some(end - 1);
        }
        total
    }
}

/// Counts the requests of sequential reads of `block_bytes`.
pub(super) fn requests(
    layout: &Layout,
    limits: &ReadLimits,
    block_bytes: u64,
    boundary: Boundary,
    file: &Path,
) -> Result<Requests, BenchError> {
    let alignment = u64::from(limits.align_bytes);
    if block_bytes == 0 || !block_bytes.is_multiple_of(alignment) {
        let range = format!(
            "a multiple of {}, the alignment of direct reads of {}",
            format_size(alignment),
            file.display()
        );
        return Err(WorkloadError::OutOfRange { field: Field::BLOCK_SIZE, value: block_bytes, range }.into());
    }
    let size_bytes = layout.size_bytes;
    let device = Limits {
        // A block of a filesystem consists of whole blocks of its disk, even if direct I/O requires a larger alignment.
        logical_block_bytes: limits.align_bytes.min(layout.map.block_bytes()),
        request_bytes_max: limits.request_bytes_max.max(alignment),
        chunk_sectors: limits.chunk_bytes.unwrap_or(0) / SECTOR_BYTES,
        ..Limits::with_capacity(Sector::MAX.0)
    };
    let unlimited = Limits { request_bytes_max: UNLIMITED, ..device };
    // A plug merges what is adjacent on the disk. A boundary submits the requests before it.
    let merges = boundary == Boundary::Ignore || layout.shape.is_none();
    let counter = |memory| Counter::new(device.request_bytes_max, device.chunk_sectors, memory, merges);
    let mut whole = counter(Memory::Contiguous);
    let pages = limits.segments_max.filter(|segments| *segments > 0).map(|segments_max| Memory::Pages {
        page_bytes: limits.page_bytes.into(),
        segments_max: segments_max.into(),
    });
    let mut pages = pages.map(counter);
    let reads = size_bytes.div_ceil(block_bytes).min(READS_MAX);
    let covered = FileRange::between(0, size_bytes.min(reads.saturating_mul(block_bytes)));
    let mut found = Requests {
        block_bytes,
        reads,
        covered_bytes: covered.bytes(),
        requests: 0,
        requests_of_pages: None,
        request_bytes: 0,
        requests_of_a_read_max: 0,
        zero_bytes: 0,
        other_bytes: 0,
        metadata_requests: layout.metadata_requests(covered),
    };
    for read in 0..reads {
        let range = FileRange::new(read * block_bytes, block_bytes);
        let plan =
            |limits| ReadPlan::new(range, &layout.map, limits, boundary).expect("whole blocks, as checked");
        let before = whole.count();
        add(&mut found, &mut whole, plan(&device), layout, &device);
        found.requests_of_a_read_max = found.requests_of_a_read_max.max(whole.count() - before);
        let Some(pages) = &mut pages else { continue };
        let mut plan = plan(&unlimited);
        pages.begin_read();
        while let Some(step) = plan.poll_step(&layout.map, &unlimited) {
            if let Step::Transfer { file, extent } = step {
                pages.add(extent, file.start() - range.start());
            }
        }
    }
    found.requests = whole.count();
    found.requests_of_pages = pages.map(|pages| pages.count());
    Ok(found)
}

/// Counts one read.
fn add(found: &mut Requests, counter: &mut Counter, mut plan: ReadPlan, layout: &Layout, device: &Limits) {
    let inside = FileRange::between(0, layout.size_bytes);
    counter.begin_read();
    while let Some(step) = plan.poll_step(&layout.map, device) {
        match step {
            Step::Transfer { extent, .. } => {
                counter.add(extent, 0);
                found.request_bytes += extent.bytes();
            }
            Step::Zeroes { file } => {
                let file = file.and(inside);
                let other = layout.other_bytes(file);
                found.other_bytes += other;
                found.zero_bytes += file.bytes() - other;
            }
            _ => {}
        }
    }
}
