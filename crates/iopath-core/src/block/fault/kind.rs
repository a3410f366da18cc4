//! The faults of a device: their kinds, the rules that select requests, and the damage that a fault leaves on the
//! medium. `plan.rs` draws faults from rules; `fault.rs` executes them.

use crate::block::bio::Op;
use crate::error::IoError;
use crate::sector::Extent;
use crate::time::Duration;

/// A kind of fault.
#[derive(Debug, Clone, Copy)]
pub struct FaultKind {
    /// The name, for messages.
    pub name: &'static str,
    /// The fault in one line.
    pub about: &'static str,
    /// Whether the request succeeds although the medium does not have the bytes of its writer. The fault source gets
    /// the [`Damage`].
    pub is_silent: bool,
    /// A rule that gives this fault to each request that can have it.
    pub make: fn() -> Fault,
}

/// All kinds of faults.
pub const FAULTS: &[FaultKind] = &[
    FaultKind {
        name: "error",
        about: "a part of the request is executed, then the request fails",
        is_silent: false,
        make: || Fault::error(IoError::Media),
    },
    FaultKind {
        name: "short",
        about: "a transfer moves fewer bytes than the request has, and the device continues it",
        is_silent: false,
        make: Fault::short,
    },
    FaultKind {
        name: "delay",
        about: "the device begins the request late",
        is_silent: false,
        make: || Fault::delay(Duration::from_millis(50)),
    },
    FaultKind {
        name: "stuck",
        about: "the device does not execute the request until the fault source releases it",
        is_silent: false,
        make: Fault::stuck,
    },
    FaultKind {
        name: "torn-write",
        about: "a part of the blocks reaches the medium, and the write succeeds",
        is_silent: true,
        make: Fault::torn_write,
    },
    FaultKind {
        name: "lost-write",
        about: "no block reaches the medium, and the write succeeds",
        is_silent: true,
        make: Fault::lost_write,
    },
    FaultKind {
        name: "misdirected-write",
        about: "the blocks reach another place of the medium, and the write succeeds",
        is_silent: true,
        make: Fault::misdirected_write,
    },
    FaultKind {
        name: "bit-rot",
        about: "a bit on the medium changes before a read",
        is_silent: true,
        make: Fault::bit_rot,
    },
];

/// A rule: a fault, and the requests that get it.
///
/// ```
/// use iopath_core::{Duration, Extent, Fault, IoError, Op};
///
/// let bad_sector = Fault::error(IoError::Media).on(Op::Read).within(Extent::from_bytes(8192, 512).unwrap());
/// let short_transfers = Fault::short().one_in(20);
/// let first_flush = Fault::error(IoError::Media).on(Op::Flush).times(1);
/// let latency_spikes = Fault::delay(Duration::from_millis(200)).one_in(1000);
/// # let _ = (bad_sector, short_transfers, first_flush, latency_spikes);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    pub(super) kind: Kind,
    op: Option<Op>,
    pub(super) extent: Option<Extent>,
    pub(super) one_in: u64,
    pub(super) times: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Error(IoError),
    Short,
    Delay(Duration),
    Stuck,
    TornWrite,
    LostWrite,
    MisdirectedWrite,
    BitRot,
}

impl Fault {
    const fn of(kind: Kind) -> Self {
        Self { kind, op: None, extent: None, one_in: 1, times: u64::MAX }
    }

    /// The device executes a random number of blocks of the request, from none to all, then fails the request with
    /// `error`. With [`Fault::within`], it executes at most the blocks before the extent of the rule.
    pub const fn error(error: IoError) -> Self {
        Self::of(Kind::Error(error))
    }

    /// A transfer moves fewer bytes than the request has; the device continues with the rest.
    pub const fn short() -> Self {
        Self::of(Kind::Short)
    }

    /// A latency spike: the device begins the request after a random time, at most `longest`.
    pub const fn delay(longest: Duration) -> Self {
        Self::of(Kind::Delay(longest))
    }

    /// The device does not begin the request until [`FaultPlan::release`](crate::FaultPlan::release) or
    /// [`FaultPlan::stop`](crate::FaultPlan::stop).
    pub const fn stuck() -> Self {
        Self::of(Kind::Stuck)
    }

    /// The device executes some blocks of a write of two or more, from the start, from the end, or from both, then
    /// reports success. It executes at least one block and omits at least one. A torn write that reports an error is
    /// [`Fault::error`].
    pub const fn torn_write() -> Self {
        Self::of(Kind::TornWrite)
    }

    /// The device reports the success of a write and executes none of its blocks.
    pub const fn lost_write() -> Self {
        Self::of(Kind::LostWrite)
    }

    /// The device executes a write at another place of the same length, outside all requests in flight, and reports
    /// success. If there is no such place, it executes the write without a fault.
    pub const fn misdirected_write() -> Self {
        Self::of(Kind::MisdirectedWrite)
    }

    /// One bit of the extent of a read changes on the medium before the read. A device cannot do this with requests:
    /// the owner of the bytes flips the bit in [`FaultSource::on_damage`](crate::FaultSource::on_damage).
    pub const fn bit_rot() -> Self {
        Self::of(Kind::BitRot)
    }

    /// Limits the rule to requests of this operation.
    #[must_use]
    pub const fn on(mut self, op: Op) -> Self {
        self.op = Some(op);
        self
    }

    /// Limits the rule to requests that overlap `extent`.
    #[must_use]
    pub const fn within(mut self, extent: Extent) -> Self {
        self.extent = Some(extent);
        self
    }

    /// Limits the rule to one in `requests` requests, chosen at random.
    #[must_use]
    pub const fn one_in(mut self, requests: u64) -> Self {
        self.one_in = requests;
        self
    }

    /// Limits the rule to its first `times` faults.
    #[must_use]
    pub const fn times(mut self, times: u64) -> Self {
        self.times = times;
        self
    }

    pub(super) fn applies_to(&self, op: Op, extent: Extent) -> bool {
        let can_have_it = match self.kind {
            Kind::Error(_) | Kind::Delay(_) | Kind::Stuck => true,
            Kind::Short => op.has_memory(),
            // After a discard, any bytes are valid.
            Kind::TornWrite | Kind::LostWrite | Kind::MisdirectedWrite => {
                matches!(op, Op::Write | Op::WriteZeroes)
            }
            Kind::BitRot => op == Op::Read,
        };
        let is_within = self.extent.is_none_or(|within| within.overlaps(extent));
        self.times > 0 && can_have_it && self.op.is_none_or(|only| only == op) && is_within
    }
}

/// The outcome of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The transfer is complete.
    Whole,
    /// The transfer moves only the first bytes.
    Short {
        /// The bytes that it moves.
        moved: u64,
    },
    /// The transfer moves the first bytes, then the request fails.
    Error {
        /// The bytes that it moves.
        moved: u64,
        /// The error of the request.
        error: IoError,
    },
    /// The device waits this long, then executes the request.
    Delayed(Duration),
    /// The device executes the request after the next release of stuck requests.
    Stuck,
    /// The transfer moves `moved` bytes. The next `omitted` bytes count as moved.
    Omitted {
        /// Bytes before the gap, in whole blocks.
        moved: u64,
        /// Bytes of the gap, in whole blocks, at least one.
        omitted: u64,
    },
    /// The transfer is complete, but at another place.
    Misdirected,
    /// A bit changes on the medium, then the transfer is complete.
    BitFlipped {
        /// The bit, counted from the start of the rest of the request.
        bit: u64,
    },
}

/// A difference between the medium and the writes that succeeded: the trace of a silent fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Damage {
    /// A write of this extent succeeds, but the medium keeps its earlier bytes.
    NotWritten(Extent),
    /// The medium has bytes in this extent that belong elsewhere.
    Overwritten(Extent),
    /// A bit on the medium changes.
    BitFlipped {
        /// The offset of the byte on the medium.
        offset: u64,
        /// The bit in the byte, from 0 on.
        bit: u8,
    },
}
