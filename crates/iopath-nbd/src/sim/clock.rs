//! The virtual time of a run, which all of its parts share.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Nanoseconds since the start of the run.
pub(super) type Nanos = u64;

pub(super) const MILLISECOND: Nanos = 1_000_000;
pub(super) const SECOND: Nanos = 1_000_000_000;

/// The clock of a run.
#[derive(Debug, Clone)]
pub(super) struct Clock {
    now: Rc<Cell<Nanos>>,
    /// Channels pass bytes in large pieces from now on: at the end of a run.
    pub(super) is_fast: Rc<Cell<bool>>,
    /// The server's instants have no zero: this one is arbitrary, and only differences matter.
    base: Instant,
}

impl Clock {
    pub(super) fn new() -> Self {
        Self { now: Rc::default(), is_fast: Rc::default(), base: Instant::now() }
    }

    pub(super) fn now(&self) -> Nanos {
        self.now.get()
    }

    pub(super) fn set(&self, now: Nanos) {
        assert!(now >= self.now.get(), "time does not go back");
        self.now.set(now);
    }

    /// The time as the server has it.
    pub(super) fn of_server(&self) -> Instant {
        self.base + Duration::from_nanos(self.now())
    }

    /// The time as the client has it.
    pub(super) fn of_client(&self) -> iopath::remote::Instant {
        iopath::remote::Instant::from_nanos(self.now())
    }
}

/// A time of the client.
pub(super) fn nanos_of(time: iopath::remote::Instant) -> Nanos {
    time.saturating_since(iopath::remote::Instant::from_nanos(0)).as_nanos() as Nanos
}
