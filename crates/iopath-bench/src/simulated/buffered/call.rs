//! One call of a job on the buffered path, as a state machine: a read, a write or a flush. It copies no data. The state
//! machine returns if the call must wait. With a host, it also returns for CPU work: for each page of a read, and for
//! each group of pages that a write holds together.

use std::time::Duration;

use iopath_core::buffered::{
    BufferedPath, BufferedRead, BufferedWrite, Frames, ReadNext, ReadStep, TakeStep,
};
use iopath_core::cache::{Frame, Outcome};
use iopath_core::{Instant, IoError};
use iopath_model::Work;

use crate::path::{Direction, Transfer};

/// The time of a call that does not wait, if there is no host: the resolution of the clock. Without a host, copies take
/// no time, but a run in which every read is a hit must end.
const CALL_MIN: Duration = Duration::from_nanos(1);

/// A call and its progress.
#[derive(Debug)]
pub(in crate::simulated) enum Call {
    /// No call is in progress.
    None,
    Read {
        read: BufferedRead,
        bytes: usize,
        outcome: Option<Outcome>,
        /// The frame from which the CPU copies.
        copied: Option<Frame>,
        is_begun: bool,
    },
    Write {
        write: Box<BufferedWrite>,
        is_begun: bool,
    },
    Flush {
        is_begun: bool,
        outcome: Option<Outcome>,
        /// The start of a flush between transfers; none for the flush at the end of a job.
        started: Option<Instant>,
    },
    /// The transfer is complete, and its time has passed.
    Done,
}

/// The next step of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::simulated) enum Next {
    /// The call waits until the state machine returns the number of its job with an outcome.
    Wait,
    /// The transfer completes at this time.
    Sleep(Instant),
    /// The thread executes this CPU work, and then the next step of the call.
    Work(Work),
    /// The transfer is complete.
    Made,
    /// The flush is complete.
    End,
}

impl Call {
    pub(in crate::simulated) fn new<F: Frames>(transfer: Transfer, path: &BufferedPath<F>) -> Self {
        let Transfer { direction, offset, bytes } = transfer;
        let (bytes, is_begun) = (bytes as usize, false);
        match direction {
            Direction::Read => {
                let read = BufferedRead::new(offset, bytes, path);
                Self::Read { read, bytes, outcome: None, copied: None, is_begun }
            }
            // A workload with trims is refused before: see `model.rs`.
            Direction::Write | Direction::Trim => {
                let write = BufferedWrite::new(offset, bytes);
                let write = Box::new(write.expect("a plan stays inside of the target"));
                Self::Write { write, is_begun }
            }
        }
    }

    pub(in crate::simulated) const fn is_done(&self) -> bool {
        matches!(self, Self::Done)
    }

    /// Stores the outcome of the wait.
    pub(in crate::simulated) fn set_outcome(&mut self, of_wait: Outcome) {
        match self {
            Self::Read { outcome, .. } | Self::Flush { outcome, .. } => *outcome = Some(of_wait),
            Self::Write { write, .. } => write.handle_outcome(of_wait),
            Self::None | Self::Done => {}
        }
    }

    /// Runs the call until it waits, has CPU work (if the caller is timed) or is complete.
    pub(in crate::simulated) fn step<F: Frames>(
        &mut self,
        caller: &mut Caller<'_, F>,
        now: Instant,
    ) -> Result<Next, IoError> {
        let next = match self {
            Self::Read { read, bytes, outcome, copied, is_begun } => {
                caller.read(read, *bytes, outcome.take(), copied, is_begun, now)?
            }
            Self::Write { write, is_begun } => caller.write(write, is_begun, now)?,
            Self::Flush { is_begun, outcome, .. } => match outcome.take() {
                None if *is_begun => Next::Wait,
                None => {
                    *is_begun = true;
                    caller.path.flush(caller.waiter);
                    Next::Wait
                }
                Some(Outcome::Failed(error)) => return Err(error),
                Some(_) => Next::End,
            },
            Self::None | Self::Done => Next::Wait,
        };
        if let Next::Sleep(_) | Next::Made = next {
            *self = Self::Done;
        }
        Ok(next)
    }
}

/// The caller of a call.
pub(in crate::simulated) struct Caller<'a, F: Frames> {
    pub(in crate::simulated) path: &'a mut BufferedPath<F>,
    pub(in crate::simulated) waiter: u64,
    /// Whether CPU work takes time.
    pub(in crate::simulated) is_timed: bool,
}

impl<F: Frames> Caller<'_, F> {
    fn read(
        &mut self,
        read: &mut BufferedRead,
        bytes: usize,
        outcome: Option<Outcome>,
        copied: &mut Option<Frame>,
        is_begun: &mut bool,
        now: Instant,
    ) -> Result<Next, IoError> {
        let Self { path, waiter, is_timed } = self;
        let mut pinned = outcome.map(Outcome::pinned).transpose()?.flatten();
        if let (Some(frame), Some(piece)) = (copied.take(), read.next_piece()) {
            unpin(path, frame);
            read.handle_copied(&piece);
        }
        loop {
            let piece = match read.poll(*path) {
                ReadNext::Copy(piece) => piece,
                ReadNext::Again => continue,
                ReadNext::Done(there) if there < bytes => return Err(IoError::EndOfDevice),
                ReadNext::Done(_) if *is_timed => return Ok(Next::Made),
                ReadNext::Done(_) => return Ok(Next::Sleep(now + CALL_MIN)),
            };
            let step = pinned.take().map_or_else(|| path.read(read, *waiter, now), ReadStep::Pinned);
            let frame = match step {
                ReadStep::Pinned(frame) => frame,
                ReadStep::Wait { .. } => return Ok(Next::Wait),
                ReadStep::End => continue,
            };
            if *is_timed {
                *copied = Some(frame);
                let (bytes_copied, calls) = (piece.bytes() as u64, begin(is_begun));
                return Ok(Next::Work(Work { calls, pages: 1, bytes_copied, ..Work::default() }));
            }
            unpin(path, frame);
            read.handle_copied(&piece);
        }
    }

    fn write(
        &mut self,
        write: &mut BufferedWrite,
        is_begun: &mut bool,
        now: Instant,
    ) -> Result<Next, IoError> {
        loop {
            // Their copy has ended.
            self.path.release_pages(write, now);
            match self.path.take_pages(write, self.waiter)? {
                TakeStep::Fill => {
                    let work = self.copy(write);
                    if self.is_timed {
                        return Ok(Next::Work(Work { calls: begin(is_begun), ..work }));
                    }
                }
                TakeStep::Wait => return Ok(Next::Wait),
                TakeStep::Done { pause: None } if self.is_timed => return Ok(Next::Made),
                TakeStep::Done { pause } => {
                    return Ok(Next::Sleep(now + pause.unwrap_or_default().max(CALL_MIN)));
                }
            }
        }
    }

    /// The CPU work to fill the pages that a write holds.
    fn copy(&mut self, write: &mut BufferedWrite) -> Work {
        let mut work = Work { pages: write.pieces().len() as u32, ..Work::default() };
        for piece in write.pieces_mut() {
            work.bytes_copied += (piece.end - piece.start) as u64;
            if let Some(from) = piece.copy_from.take() {
                work.bytes_copied += u64::from(self.path.geometry().page_bytes);
                unpin(self.path, from);
            }
        }
        work
    }
}

/// The number of calls to add to a piece of work: 1 for the first piece of a call, then 0.
fn begin(is_begun: &mut bool) -> u32 {
    u32::from(!std::mem::replace(is_begun, true))
}

fn unpin<F: Frames>(path: &mut BufferedPath<F>, frame: Frame) {
    if path.cache().hot().unpin(frame) {
        path.handle_unpinned();
    }
}
