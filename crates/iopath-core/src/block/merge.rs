//! The conditions for a merge. The search for candidates and the merge itself are in `queue/merge.rs`.

use crate::block::limits::Limits;
use crate::block::request::Chain;
use crate::sector::Extent;

/// The reason why two I/Os are not merged. The log stores the index: add new reasons at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum NoMerge {
    /// No queued request is adjacent.
    NotAdjacent,
    /// The operations differ.
    Direction,
    /// The request would exceed the maximum size of the device.
    SizeLimit,
    /// The request would exceed the maximum number of segments of the device.
    SegmentLimit,
    /// The request would cross a chunk boundary of the device.
    Boundary,
    /// One of the two must not be merged: it has forced unit access, or is a retry after a failure.
    Barrier,
    /// Another reason of the elevator, not listed below.
    Elevator,
    /// The latency bound of the elevator: other queued requests would wait too long.
    LatencyBound,
    /// The starvation bound of the elevator: a queued request may not be passed again.
    StarvationBound,
    /// The I/O priorities differ.
    Priority,
}

impl NoMerge {
    /// All reasons, in the order of [`NoMerge::index`].
    pub const ALL: [Self; 10] = [
        Self::NotAdjacent,
        Self::Direction,
        Self::SizeLimit,
        Self::SegmentLimit,
        Self::Boundary,
        Self::Barrier,
        Self::Elevator,
        Self::LatencyBound,
        Self::StarvationBound,
        Self::Priority,
    ];

    /// The index in [`NoMerge::ALL`], for tables of counts.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The code in a log record, from 1.
    pub const fn code(self) -> u8 {
        self as u8 + 1
    }

    /// The reason with that code.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code).wrapping_sub(1)).copied()
    }
}

/// The side of a request at which another is merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// At the end.
    Back,
    /// At the start.
    Front,
}

impl Side {
    /// The other side.
    #[must_use]
    pub const fn opposite(self) -> Self {
        match self {
            Self::Back => Self::Front,
            Self::Front => Self::Back,
        }
    }
}

/// Whether `low` and `high` may become one request of `segments` segments. Returns its extent.
pub(crate) fn may_merge(
    low: &Chain,
    high: &Chain,
    segments: u32,
    limits: &Limits,
) -> Result<Extent, NoMerge> {
    let extent = low.extent.join(high.extent).ok_or(NoMerge::NotAdjacent)?;
    if low.op != high.op {
        return Err(NoMerge::Direction);
    }
    if low.priority != high.priority {
        return Err(NoMerge::Priority);
    }
    if low.fua || high.fua {
        return Err(NoMerge::Barrier);
    }
    if extent.sectors() > limits.sectors_max(low.op) {
        return Err(NoMerge::SizeLimit);
    }
    if limits.crosses_chunk(extent) {
        return Err(NoMerge::Boundary);
    }
    if segments > u32::from(limits.segments_max) {
        return Err(NoMerge::SegmentLimit);
    }
    Ok(extent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::bio::{Op, Priority};
    use crate::sector::Sector;

    fn chain(op: Op, start: u64, sectors: u64) -> Chain {
        let extent = Extent::new(Sector(start), sectors).unwrap();
        Chain { extent, op, segments: 1, ..Chain::EMPTY }
    }

    fn limits() -> Limits {
        Limits {
            request_bytes_max: 64 << 9,
            segments_max: 4,
            chunk_sectors: 96,
            ..Limits::with_capacity(1 << 20)
        }
    }

    #[test]
    fn adjacent_requests_of_one_kind_merge() {
        let joined = may_merge(&chain(Op::Read, 0, 8), &chain(Op::Read, 8, 8), 2, &limits());
        assert_eq!(joined, Ok(Extent::new(Sector(0), 16).unwrap()));
    }

    #[test]
    fn each_limit_has_its_own_reason() {
        let read = chain(Op::Read, 0, 8);
        let reason =
            |low: &Chain, high: &Chain, segments| may_merge(low, high, segments, &limits()).unwrap_err();
        assert_eq!(reason(&read, &chain(Op::Read, 9, 8), 2), NoMerge::NotAdjacent);
        assert_eq!(reason(&read, &chain(Op::Write, 8, 8), 2), NoMerge::Direction);
        assert_eq!(reason(&read, &chain(Op::Read, 8, 57), 2), NoMerge::SizeLimit);
        assert_eq!(reason(&read, &chain(Op::Read, 8, 8), 5), NoMerge::SegmentLimit);
        assert_eq!(reason(&chain(Op::Read, 88, 8), &chain(Op::Read, 96, 8), 2), NoMerge::Boundary);
        let urgent = Chain { priority: Priority::RealTime, ..chain(Op::Read, 8, 8) };
        assert_eq!(reason(&read, &urgent, 2), NoMerge::Priority);
        assert_eq!(reason(&read, &Chain { fua: true, ..chain(Op::Read, 8, 8) }, 2), NoMerge::Barrier);
    }

    #[test]
    fn reasons_survive_a_round_trip() {
        for (index, reason) in NoMerge::ALL.into_iter().enumerate() {
            assert_eq!(reason.index(), index);
            assert_eq!(NoMerge::from_code(reason.code()), Some(reason));
        }
        assert_eq!(NoMerge::from_code(0), None);
    }
}
