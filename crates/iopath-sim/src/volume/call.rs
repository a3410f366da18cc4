//! A call of a program as a state: its kind, its progress, and its place in the model. `calls.rs` and `direct.rs`
//! continue it.

use std::ops::Range;

use iopath_core::buffered::{BufferedRead, BufferedWrite, Resize, Starvation};
use iopath_core::cache::{DirectTag, Forced, Frame, Outcome};
use iopath_core::volume::{BouncedRead, BouncedWrite, LockKind, Ticket};
use iopath_core::{Duration, Instant, IoError, Op};

use super::request::{Move, Sweep};
use crate::arena::{Arena, Span};
use crate::scenario::{Do, Fine};

/// A call in progress.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) kind: Kind,
    /// The bytes of the volume.
    pub(super) offset: u64,
    pub(super) bytes: u64,
    /// The event at which the model begins to count it.
    pub(super) start: u64,
    pub(super) token: u64,
    /// Its write is in the model.
    pub(super) is_begun: bool,
    /// The bytes of its write before the end of the volume. A write to the last sector loses the others.
    pub(super) kept_bytes: u64,
    pub(super) stage: Stage,
    /// The range of a write on a volume with bounced I/O.
    pub(super) lock: Lock,
    /// It lacks a frame.
    pub(super) starvation: Option<Starved>,
    /// The call that has begun it, and waits for it.
    pub(super) parent: Option<usize>,
}

#[allow(clippy::large_enum_variant, reason = "few calls at a time")]
#[derive(Debug)]
pub(super) enum Kind {
    Read {
        read: BufferedRead,
        /// The event at which the call began; each page of it begins later.
        begun: u64,
        hold: Duration,
    },
    Write {
        write: BufferedWrite,
        hold: Duration,
    },
    Direct {
        op: Op,
        forced: bool,
        queue: usize,
        stream: u32,
        memory: Option<Span>,
        gate: Option<DirectTag>,
        sweep: Option<Sweep>,
    },
    /// Unaligned direct I/O.
    Bounced(Bounced),
    /// An append that passes the page cache.
    Append(Append),
    /// A system call on a new file without a page cache.
    Plain(Plain),
    /// A flush of the page cache or a range of it, or of a queue.
    Flush {
        queue: usize,
        range: Option<Range<u64>>,
    },
    WriteBack,
    /// A resize of a file; its range is the bytes between the old and the new end.
    Resize {
        size_bytes: u64,
        /// The part of the page cache.
        resize: Option<Resize>,
        /// The file has that length already.
        keeps_length: bool,
    },
    /// A call that moves the end of a volume that writes extend.
    Move(Move),
}

/// A system call on a new file without a page cache.
#[derive(Debug)]
pub(super) enum Plain {
    Write(PlainWrite),
    Flush,
}

#[derive(Debug, Clone)]
pub(super) struct PlainWrite {
    /// The action of the program.
    pub(super) what: Do,
    pub(super) fine: Fine,
    /// The event at which it began.
    pub(super) event: u64,
    /// The bytes that the file has taken, and the result.
    pub(super) written: Option<(u64, Result<(), IoError>)>,
}

/// An append in progress.
#[derive(Debug)]
pub(super) struct Append {
    pub(super) write: BufferedWrite,
    /// The time that each write takes longer.
    pub(super) hold: Duration,
    pub(super) has_begun: bool,
    /// The outcome of its wait.
    pub(super) outcome: Option<Outcome>,
    /// The bytes that the thread writes, and the event at which it began.
    pub(super) held: Option<(Range<usize>, u64)>,
    /// The bytes that the file has taken, and the result of the write.
    pub(super) written: Option<(u64, Result<(), IoError>)>,
    /// The bytes that are in the file and in the cache.
    pub(super) appended_bytes: u64,
    /// It only waits for the page after those that it could not append.
    pub(super) is_over: bool,
}

/// A read or write through a bounce buffer.
#[derive(Debug)]
pub(super) struct Bounced {
    pub(super) io: BouncedIo,
    pub(super) queue: usize,
    pub(super) forced: bool,
    /// The bytes of the program.
    pub(super) memory: Span,
    pub(super) buffer: Span,
    /// The blocks that are being read: their offset, and how many of their bytes the volume had before the read.
    pub(super) reading: (u64, u64),
}

#[derive(Debug)]
pub(super) enum BouncedIo {
    Read(BouncedRead),
    Write(BouncedWrite),
}

impl Bounced {
    pub(super) const fn spans(&self) -> [Span; 2] {
        [self.memory, self.buffer]
    }
}

/// The lock of a call.
#[derive(Debug)]
pub(super) enum Lock {
    None,
    Waits {
        ticket: Ticket,
        kind: LockKind,
        range: Range<u64>,
        /// It was woken, and has not tried yet.
        is_woken: bool,
    },
    /// Tries again at this time.
    Polls {
        until: Instant,
    },
    Held {
        kind: LockKind,
        range: Range<u64>,
    },
}

impl Lock {
    /// The time at which a call that waits tries again by itself.
    pub(super) const fn due(&self) -> Option<Instant> {
        match self {
            Self::Polls { until } => Some(*until),
            Self::None | Self::Waits { .. } | Self::Held { .. } => None,
        }
    }
}

#[derive(Debug)]
pub(super) enum Stage {
    /// It can continue now.
    Ready,
    /// The path will name it.
    Waiting,
    /// It borrows a page.
    Holding {
        until: Instant,
        frame: Frame,
        bytes: Vec<u8>,
    },
    /// It copies into pages.
    Filling {
        until: Instant,
    },
    /// It writes to the file.
    Appending {
        until: Instant,
    },
    AtDevice,
    /// It waits for its range lock.
    Locking,
    /// The file is being resized.
    AtControl,
    /// It waits until no other call moves the end.
    ForEnd,
    /// It waits until no direct I/O is in flight.
    Alone,
    /// It waits for a call that it has begun.
    ForChild,
    /// Its forced write waits for a flush.
    Forcing(Forced),
}

/// The wait of a call for any frame.
#[derive(Debug)]
pub(super) struct Starved {
    pub(super) limit: Starvation,
    /// The time of the next check.
    pub(super) check: Instant,
    pub(super) since: Instant,
    /// No I/O was in progress at `since`.
    pub(super) is_idle: bool,
    /// The time without I/O.
    pub(super) idle: Duration,
}

impl Call {
    /// The pages of a buffered write or of an append.
    pub(super) fn pages(&mut self) -> &mut BufferedWrite {
        match &mut self.kind {
            Kind::Write { write, .. } => write,
            Kind::Append(append) => &mut append.write,
            kind => unreachable!("{kind:?} writes to no pages"),
        }
    }

    /// The time at which it continues.
    pub(super) fn due(&self) -> Option<Instant> {
        match self.stage {
            Stage::Holding { until, .. } | Stage::Filling { until } | Stage::Appending { until } => {
                Some(until)
            }
            Stage::Locking => self.lock.due(),
            _ => self.starvation.as_ref().map(|starved| starved.check),
        }
    }

    pub(super) const fn oldest(&self) -> u64 {
        self.start
    }

    pub(super) const fn holds_page(&self) -> bool {
        matches!(self.stage, Stage::Holding { .. } | Stage::Filling { .. } | Stage::Appending { .. })
    }

    pub(super) const fn is_appending(&self) -> bool {
        matches!(self.stage, Stage::Appending { .. })
    }

    pub(super) const fn waits_for_gate(&self) -> bool {
        matches!(self.stage, Stage::Waiting) && matches!(self.kind, Kind::Direct { .. })
    }

    pub(super) const fn waits_for_lock(&self) -> bool {
        matches!(self.stage, Stage::Locking)
    }

    pub(super) const fn waits_for_frame(&self) -> bool {
        self.starvation.is_some()
    }

    /// Releases its memory: power has failed.
    pub(super) fn abandon(self, arena: &Arena) {
        match self.kind {
            Kind::Direct { memory: Some(memory), .. } => arena.release(memory),
            Kind::Bounced(bounced) => bounced.spans().into_iter().for_each(|span| arena.release(span)),
            _ => {}
        }
    }
}
