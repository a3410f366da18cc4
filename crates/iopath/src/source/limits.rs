//! The limits of a volume on a source: those of the source, within the options. Refuses limits that no queue can use.

use super::Source;
use crate::error::OpenError;
use crate::options::Options;
use iopath_core::{Limits, SECTOR_BYTES};
use iopath_os::target::Target;

/// The largest size of a volume: that of a file. Ends of ranges, rounded up to a block, do not overflow.
pub(crate) const SIZE_BYTES_MAX: u64 = i64::MAX.cast_unsigned();

/// The limits of a volume with these options. `target` is that of the source.
///
/// # Errors
/// [`OpenError::TooLarge`] and [`OpenError::Limits`].
pub(crate) fn limits_of(
    source: &dyn Source,
    target: &Target,
    options: &Options,
) -> Result<Limits, OpenError> {
    if target.size_bytes > SIZE_BYTES_MAX {
        return Err(OpenError::TooLarge { path: target.path.clone(), size_bytes: target.size_bytes });
    }
    let mut limits = source.limits();
    check(&limits, target)?;
    if let Some(bytes) = options.request_bytes_max {
        limits.request_bytes_max = whole_blocks(bytes.min(limits.request_bytes_max), &limits);
    }
    if !options.write {
        (limits.discard_bytes_max, limits.write_zeroes_bytes_max) = (0, 0);
    }
    Ok(limits)
}

/// Bytes of a request, rounded down to whole blocks, at least one.
pub(super) fn whole_blocks(bytes: u64, limits: &Limits) -> u64 {
    let block = u64::from(limits.logical_block_bytes);
    (bytes / block * block).max(block)
}

/// The largest block.
const BLOCK_BYTES_MAX: u32 = 64 << 10;

/// Refuses limits that no queue can use.
fn check(limits: &Limits, target: &Target) -> Result<(), OpenError> {
    let Limits { capacity, logical_block_bytes: block, memory_align_bytes: align, .. } = *limits;
    let blocks = SECTOR_BYTES as u32..=BLOCK_BYTES_MAX;
    let is_block = block.is_power_of_two() && blocks.contains(&block);
    let is_whole = |bytes: u64| is_block && bytes.is_multiple_of(u64::from(block));
    let checks = [
        (is_block, "logical_block_bytes must be a power of two from 512 to 65,536"),
        (align.is_power_of_two(), "memory_align_bytes must be a power of two"),
        (limits.depth_max > 0 && limits.segments_max > 0, "depth_max and segments_max must not be 0"),
        (limits.request_bytes_max > 0, "request_bytes_max must not be 0"),
        (is_whole(limits.request_bytes_max), "request_bytes_max must be a multiple of a block"),
        (
            is_whole(limits.chunk_sectors.saturating_mul(SECTOR_BYTES)),
            "a chunk must be a multiple of a block",
        ),
        (is_whole(capacity.saturating_mul(SECTOR_BYTES)), "the capacity must be a multiple of a block"),
        (target.size_bytes.div_ceil(SECTOR_BYTES) <= capacity, "the size must be within the capacity"),
    ];
    match checks.iter().find(|(holds, _)| !holds) {
        Some((_, rule)) => Err(OpenError::Limits { path: target.path.clone(), rule }),
        None => Ok(()),
    }
}
