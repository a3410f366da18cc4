//! Which pieces of I/O may become one request, and if not, why. Rules only: who looks for candidates
//! and joins them is `queue/merge.rs`.

use crate::block::limits::Limits;
use crate::block::request::Chain;
use crate::sector::Extent;

/// Why two pieces of I/O are not merged. The order is part of the log's format: new reasons go last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum NoMerge {
    /// Nothing queued touches it.
    NotAdjacent,
    /// One does something else than the other.
    Direction,
    /// The request would have more bytes than the device takes.
    SizeLimit,
    /// The request would have more segments than the device takes.
    SegmentLimit,
    /// The request would cross a chunk boundary of the device.
    Boundary,
    /// One of them must stay as it is: forced unit access, or tried again after a failure.
    Barrier,
    /// The elevator does not want it, for a reason of its own.
    Elevator,
    /// The elevator's latency bound: others that wait would wait too long.
    LatencyBound,
    /// The elevator's starvation bound: it has been passed over as often as it may.
    StarvationBound,
    /// One is more urgent than the other.
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

    /// Its place in [`NoMerge::ALL`], for tables of counts.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Its code in a log record, from 1 on.
    pub const fn code(self) -> u8 {
        self as u8 + 1
    }

    /// The reason of that code.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code).wrapping_sub(1)).copied()
    }
}

/// On which side of a request something is added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// After its end.
    Back,
    /// Before its start.
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

/// Whether `low` and the `high` that follows it may be one request, in `segments` segments together.
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
    fn neighbours_of_one_kind_merge() {
        let joined = may_merge(&chain(Op::Read, 0, 8), &chain(Op::Read, 8, 8), 2, &limits());
        assert_eq!(joined, Ok(Extent::new(Sector(0), 16).unwrap()));
    }

    #[test]
    fn each_limit_gives_its_own_reason() {
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
    fn reasons_know_their_place() {
        for (index, reason) in NoMerge::ALL.into_iter().enumerate() {
            assert_eq!(reason.index(), index);
            assert_eq!(NoMerge::from_code(reason.code()), Some(reason));
        }
        assert_eq!(NoMerge::from_code(0), None);
    }
}
