//! The limits of a stripe, derived from those of its members.

use super::{StripeConfig, StripeError};
use crate::block::bio::Op;
use crate::block::limits::Limits;
use crate::sector::{SECTOR_SHIFT, Sector};

/// The maximum number of segments of a request, and of its chunks on each member: the limit of `preadv(2)`.
const SEGMENTS_MAX: u64 = 1024;

/// The maximum number of requests in flight, for any number of members.
const DEPTH_MAX: u32 = 1 << 16;

/// The smallest value of each limit among the members.
struct Least {
    capacity: u64,
    chunks: u64,
    segments: u64,
    depth: u32,
}

/// The limits of a stripe of `members`.
///
/// The largest request is as many whole rows of chunks as each member accepts in one request. A request that starts
/// inside a chunk has one more chunk on one member, and that member's queue splits it.
pub(super) fn derive(members: &[&Limits], config: &StripeConfig) -> Result<Limits, StripeError> {
    let count = members.len() as u64;
    let chunk_sectors = config.chunk_sectors;
    let block_bytes = members.iter().map(|member| member.logical_block_bytes).max();
    let block_bytes = block_bytes.ok_or(StripeError::NoMembers)?;
    if chunk_sectors == 0 || !(chunk_sectors << SECTOR_SHIFT).is_multiple_of(block_bytes.into()) {
        return Err(StripeError::Chunk { chunk_sectors, block_bytes });
    }
    let least = least_of(members, chunk_sectors)?;
    let capacity = (least.capacity / chunk_sectors * chunk_sectors).checked_mul(count);
    let capacity = capacity.filter(|sectors| *sectors <= Sector::MAX.0);
    let capacity =
        capacity.ok_or(StripeError::TooLarge { members: members.len(), capacity: least.capacity })?;
    let together = |op| {
        let least = members.iter().map(|member| whole_blocks_max(member, op)).min();
        least.unwrap_or(0).saturating_mul(count)
    };
    Ok(Limits {
        logical_block_bytes: block_bytes,
        memory_align_bytes: members.iter().map(|member| member.memory_align_bytes).max().unwrap_or(1),
        request_bytes_max: (count * least.chunks * chunk_sectors) << SECTOR_SHIFT,
        segments_max: (least.segments * count).min(SEGMENTS_MAX) as u16,
        depth_max: least.depth.saturating_mul(count as u32).min(DEPTH_MAX),
        discard_bytes_max: together(Op::Discard),
        write_zeroes_bytes_max: together(Op::WriteZeroes),
        volatile_cache: members.iter().any(|member| member.volatile_cache),
        // The queue of a member without FUA sends a flush after the write, to that member only.
        fua: true,
        ..Limits::with_capacity(capacity)
    })
}

fn least_of(members: &[&Limits], chunk_sectors: u64) -> Result<Least, StripeError> {
    let mut least = Least { capacity: u64::MAX, chunks: u64::MAX, segments: u64::MAX, depth: u32::MAX };
    for (member, limits) in members.iter().enumerate() {
        let capacity = limits.capacity;
        if capacity < chunk_sectors {
            return Err(StripeError::MemberTooSmall { member, capacity, chunk_sectors });
        }
        // The chunks of one member are not adjacent in memory: each is a segment.
        let chunks = (limits.sectors_max(Op::Read) / chunk_sectors).min(limits.segments_max.into());
        let chunks = chunks.min(SEGMENTS_MAX);
        least = Least {
            capacity: least.capacity.min(capacity),
            chunks: least.chunks.min(chunks.max(1)),
            segments: least.segments.min(limits.segments_max.into()),
            depth: least.depth.min(limits.depth_max.max(1)),
        };
    }
    // Bounded by the capacity, so that products do not overflow.
    least.chunks = least.chunks.min(least.capacity / chunk_sectors);
    Ok(least)
}

/// The maximum bytes of one request of `op`, in whole blocks and within the member's capacity; 0 if it does not support
/// `op`.
fn whole_blocks_max(member: &Limits, op: Op) -> u64 {
    let sectors = member.sectors_max(op).min(member.capacity);
    (sectors / member.block_sectors() * member.block_sectors()) << SECTOR_SHIFT
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(chunk_sectors: u64) -> StripeConfig {
        StripeConfig { chunk_sectors, ..StripeConfig::default() }
    }

    fn of_four(member: &Limits, chunk_sectors: u64) -> Limits {
        derive(&[member; 4], &config(chunk_sectors)).unwrap()
    }

    #[test]
    fn capacity_is_the_smallest_member_in_whole_chunks_times_the_members() {
        let (large, small) = (Limits::with_capacity(1000), Limits::with_capacity(100));
        assert_eq!(derive(&[&large, &small, &large], &config(8)).unwrap().capacity, 3 * 96);
    }

    #[test]
    fn a_full_request_is_a_full_request_to_each_member() {
        let member = Limits::with_capacity(1 << 20);
        assert_eq!(of_four(&member, 128).request_bytes_max, 4 << 20);
        let few_segments = Limits { segments_max: 4, ..member.clone() };
        assert_eq!(of_four(&few_segments, 128).request_bytes_max, 4 * 4 * 65536);
        assert_eq!(of_four(&member, 4096).request_bytes_max, 4 * 2_097_152, "a row of chunks at least");
    }

    #[test]
    fn the_strictest_alignment_holds_for_all() {
        let fine = Limits::with_capacity(1 << 20);
        let coarse =
            Limits { logical_block_bytes: 4096, memory_align_bytes: 512, ..Limits::with_capacity(1 << 20) };
        let limits = derive(&[&fine, &coarse], &config(8)).unwrap();
        assert_eq!((limits.logical_block_bytes, limits.memory_align_bytes), (4096, 512));
        let refused = derive(&[&fine, &coarse], &config(12));
        assert_eq!(refused, Err(StripeError::Chunk { chunk_sectors: 12, block_bytes: 4096 }));
    }

    #[test]
    fn the_stripe_supports_an_operation_only_if_all_members_do() {
        let able = Limits { discard_bytes_max: 8192, volatile_cache: true, ..Limits::with_capacity(1 << 20) };
        let unable = Limits::with_capacity(1 << 20);
        assert_eq!(of_four(&able, 8).discard_bytes_max, 4 * 8192);
        let mixed = derive(&[&able, &unable], &config(8)).unwrap();
        assert_eq!((mixed.discard_bytes_max, mixed.volatile_cache), (0, true));
    }

    #[test]
    fn errors_name_the_invalid_number() {
        let member = Limits::with_capacity(100);
        assert_eq!(derive(&[], &config(8)), Err(StripeError::NoMembers));
        assert_eq!(
            derive(&[&member], &config(0)),
            Err(StripeError::Chunk { chunk_sectors: 0, block_bytes: 512 })
        );
        let error = derive(&[&member, &member], &config(101)).unwrap_err().to_string();
        assert_eq!(
            error,
            "member 0 has 100 sectors, less than a chunk of 101; choose a smaller chunk or a larger member"
        );
        let vast = Limits::with_capacity(Sector::MAX.0);
        assert!(matches!(derive(&[&vast, &vast], &config(8)), Err(StripeError::TooLarge { members: 2, .. })));
        assert_eq!(derive(&[&vast], &config(8)).unwrap().capacity, Sector::MAX.0 / 8 * 8);
    }
}
