//! One call of a job on the buffered path as a state machine: a read, a write or a flush. It copies nothing. If the call
//! has to wait, the state machine returns.

use std::time::Duration;

use iopath_core::buffered::{BufferedPath, BufferedWrite, Frames, ReadStep, TakeStep};
use iopath_core::cache::{Absent, Frame, Outcome};
use iopath_core::{Instant, IoError, PageRange};

use crate::path::{Direction, Transfer};

/// The time of a call that does not wait: the resolution of the clock. The modelled host copies in no time, but a run in
/// which every read is a hit must end.
const CALL_MIN: Duration = Duration::from_nanos(1);

/// A call and its progress.
#[derive(Debug)]
pub(super) enum Call {
    /// None is in progress.
    None,
    /// The bytes from `at` to `end` are left.
    Read {
        at: u64,
        end: u64,
        outcome: Option<Outcome>,
    },
    Write {
        write: Box<BufferedWrite>,
        outcome: Option<Outcome>,
    },
    Flush {
        is_begun: bool,
        outcome: Option<Outcome>,
    },
    /// A transfer has been made and its time has passed.
    Done,
}

/// The next step of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// The state machine names the waiter.
    Wait,
    /// The transfer is made at this time.
    Sleep(Instant),
    /// The flush is done.
    End,
}

impl Call {
    pub(super) fn new(transfer: Transfer) -> Self {
        let Transfer { direction, offset, bytes } = transfer;
        match direction {
            Direction::Read => Self::Read { at: offset, end: offset + u64::from(bytes), outcome: None },
            Direction::Write => {
                let write = BufferedWrite::new(offset, bytes as usize);
                let write = Box::new(write.expect("a plan stays inside of the target"));
                Self::Write { write, outcome: None }
            }
        }
    }

    pub(super) const fn is_done(&self) -> bool {
        matches!(self, Self::Done)
    }

    /// The outcome of the wait.
    pub(super) fn set_outcome(&mut self, of_wait: Outcome) {
        match self {
            Self::Read { outcome, .. } | Self::Write { outcome, .. } | Self::Flush { outcome, .. } => {
                *outcome = Some(of_wait);
            }
            Self::None | Self::Done => {}
        }
    }

    /// Runs the call until it waits or is complete. Counts in `hits` the pages that were found without the state machine.
    pub(super) fn step<F: Frames>(
        &mut self,
        path: &mut BufferedPath<F>,
        waiter: u64,
        hits: &mut u64,
        now: Instant,
    ) -> Result<Next, IoError> {
        let next = match self {
            Self::Read { at, end, outcome } => read(path, at, *end, outcome.take(), waiter, hits, now)?,
            Self::Write { write: of, outcome } => write(path, of, outcome.take(), waiter, now)?,
            Self::Flush { is_begun, outcome } => match outcome.take() {
                None if *is_begun => Next::Wait,
                None => {
                    *is_begun = true;
                    path.flush(waiter);
                    Next::Wait
                }
                Some(Outcome::Failed(error)) => return Err(error),
                Some(_) => Next::End,
            },
            Self::None | Self::Done => Next::Wait,
        };
        if let Next::Sleep(_) = next {
            *self = Self::Done;
        }
        Ok(next)
    }
}

fn read<F: Frames>(
    path: &mut BufferedPath<F>,
    at: &mut u64,
    end: u64,
    outcome: Option<Outcome>,
    waiter: u64,
    hits: &mut u64,
    now: Instant,
) -> Result<Next, IoError> {
    let page_bytes = u64::from(path.geometry().page_bytes);
    let mut frame = match outcome {
        Some(Outcome::Failed(error)) => return Err(error),
        Some(Outcome::Pinned(frame)) => Some(frame),
        _ => None,
    };
    while *at < end {
        let range = path.geometry().pages(*at, end - *at);
        let frame = match frame.take() {
            Some(frame) => frame,
            None => match pin(path, range, waiter, hits, now)? {
                Some(frame) => frame,
                None => return Ok(Next::Wait),
            },
        };
        unpin(path, frame);
        *at = (*at / page_bytes + 1) * page_bytes;
    }
    Ok(Next::Sleep(now + CALL_MIN))
}

/// Pins the first page of a range; none if the call has to wait for it.
fn pin<F: Frames>(
    path: &mut BufferedPath<F>,
    range: PageRange,
    waiter: u64,
    hits: &mut u64,
    now: Instant,
) -> Result<Option<Frame>, IoError> {
    match path.cache().hot().try_pin(range.start()) {
        Ok(pinned) => {
            *hits += 1;
            if pinned.is_marked {
                path.handle_marker(range, now);
            }
            return Ok(Some(pinned.frame));
        }
        Err(Absent { frees_frame: true }) => path.handle_unpinned(),
        Err(_) => {}
    }
    match path.read(range, waiter, now) {
        ReadStep::Pinned(frame) => Ok(Some(frame)),
        ReadStep::Wait { .. } => Ok(None),
        ReadStep::End => Err(IoError::EndOfDevice),
    }
}

fn write<F: Frames>(
    path: &mut BufferedPath<F>,
    write: &mut BufferedWrite,
    outcome: Option<Outcome>,
    waiter: u64,
    now: Instant,
) -> Result<Next, IoError> {
    if let Some(outcome) = outcome {
        write.handle_outcome(outcome, path.geometry())?;
    }
    loop {
        let step = path.take_pages(write, waiter)?;
        for index in 0..write.pieces().len() {
            if let Some(from) = write.pieces_mut()[index].copy_from.take() {
                unpin(path, from);
            }
        }
        path.release_pages(write, now);
        if step == TakeStep::FillThenWait {
            return Ok(Next::Wait);
        }
        if write.is_all_taken() {
            let pause = path.take_pause().unwrap_or_default();
            return Ok(Next::Sleep(now + pause.max(CALL_MIN)));
        }
    }
}

fn unpin<F: Frames>(path: &mut BufferedPath<F>, frame: Frame) {
    if path.cache().hot().unpin(frame) {
        path.handle_unpinned();
    }
}
