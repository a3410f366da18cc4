//! The last events of a run, for the report of a failure, and a hash of all of them, which shows whether two runs are
//! the same.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;

use iopath_core::{Instant, IoError};

/// The number of events kept.
const KEPT: usize = 60;

/// An event of a volume.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Event {
    pub(crate) now: Instant,
    pub(crate) volume: usize,
    pub(crate) task: usize,
    pub(crate) what: &'static str,
    pub(crate) at: u64,
    pub(crate) bytes: u64,
    pub(crate) result: Option<Result<(), IoError>>,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { now, volume, task, what, at, bytes, .. } = self;
        let micros = now.saturating_since(Instant::ZERO).as_nanos() as f64 / 1e3;
        write!(
            f,
            "{micros:14.3} µs  volume {volume}  call {task:<3} {what:<16} {bytes:>7} bytes at {at:<8}"
        )?;
        match self.result {
            Some(Ok(())) => write!(f, " ok"),
            Some(Err(error)) => write!(f, " {error:?}"),
            None => Ok(()),
        }
    }
}

/// A list of events that the parts of a run share.
#[derive(Debug, Clone, Default)]
pub(crate) struct Trace(Rc<RefCell<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    events: VecDeque<Event>,
    hash: u64,
    steps: u64,
}

impl Trace {
    pub(crate) fn add(&self, event: Event) {
        let inner = &mut *self.0.borrow_mut();
        let code = match event.result {
            None => 0,
            Some(Ok(())) => 1,
            Some(Err(error)) => 2 + error.errno().unsigned_abs() as u64,
        };
        let nanos = event.now.saturating_since(Instant::ZERO).as_nanos() as u64;
        let place = (event.volume as u64) << 32 | event.task as u64;
        for word in [nanos, place, event.at, event.bytes, code, event.what.len() as u64] {
            inner.hash = (inner.hash ^ word).wrapping_mul(0x0000_0100_0000_01B3).rotate_left(5);
        }
        inner.steps += 1;
        if inner.events.len() == KEPT {
            inner.events.pop_front();
        }
        inner.events.push_back(event);
    }

    pub(crate) fn hash(&self) -> u64 {
        self.0.borrow().hash
    }

    pub(crate) fn steps(&self) -> u64 {
        self.0.borrow().steps
    }

    /// The last events, one in a line.
    pub(crate) fn excerpt(&self) -> Vec<String> {
        self.0.borrow().events.iter().map(Event::to_string).collect()
    }
}
