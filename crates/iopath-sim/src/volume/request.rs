//! What a call is to do, before it begins: direct I/O and its place in a sweep, I/O with an exact range, moves of the
//! end.

use std::ops::Range;

use iopath_core::cache::DirectTag;
use iopath_core::volume::Extension;
use iopath_core::{Duration, Op};

/// A direct I/O to begin.
#[derive(Debug, Clone, Copy)]
pub(super) struct Direct {
    pub(super) op: Op,
    pub(super) forced: bool,
    pub(super) queue: usize,
    pub(super) stream: u32,
    pub(super) sweep: Option<Sweep>,
}

impl Direct {
    pub(super) const fn of(op: Op) -> Self {
        Self::new(op, false, 0, 0)
    }

    pub(super) const fn new(op: Op, forced: bool, queue: usize, stream: u32) -> Self {
        Self { op, forced, queue, stream, sweep: None }
    }
}

/// An I/O on a volume that writes extend: its range is as the program has it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Exact {
    /// A buffered write if not set.
    pub(super) direct: Option<Direct>,
    pub(super) offset: u64,
    pub(super) bytes: u64,
    pub(super) hold: Duration,
    /// Of the memory.
    pub(super) address: usize,
}

/// The rest of a sweep: direct I/O that begins when this one ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sweep {
    /// From its offset to the next.
    pub(super) stride_bytes: u64,
    pub(super) left: u64,
}

/// A call that moves the end, and the call that it executes meanwhile.
#[derive(Debug)]
pub(super) struct Move {
    pub(super) goal: Goal,
    pub(super) next: Next,
    /// The result of the last call that it began.
    pub(super) child: Option<bool>,
    pub(super) gate: Option<DirectTag>,
}

#[derive(Debug)]
pub(super) enum Goal {
    /// A write past the end.
    Write {
        write: Exact,
        forced: bool,
        /// The part that has passed the page cache; none before the decision.
        appended_bytes: Option<u64>,
        extension: Option<Extension>,
        is_extended: bool,
    },
    Resize {
        size_bytes: u64,
    },
    /// A flush of a page cache, or of a range of it.
    Flush {
        range: Option<Range<u64>>,
        has_begun: bool,
    },
    /// Follows another program.
    Follow,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    Lock,
    Move,
    Unlock,
    End,
}

impl Goal {
    pub(super) const fn flush(range: Option<Range<u64>>) -> Self {
        Self::Flush { range, has_begun: false }
    }
}

impl Move {
    pub(super) const fn new(goal: Goal) -> Self {
        Self { goal, next: Next::Lock, child: None, gate: None }
    }

    /// The page cache lets a change of the length begin.
    pub(super) const fn pass_gate(&mut self, tag: DirectTag) {
        self.gate = Some(tag);
    }
}
