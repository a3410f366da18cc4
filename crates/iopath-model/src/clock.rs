//! The virtual clock: a time that changes only by jumps. `event_loop.rs` decides when it jumps.

use iopath_core::Instant;

/// A clock that stands still between jumps. Its time never decreases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VirtualClock {
    now: Instant,
}

/// The end of virtual time, 584 years after its beginning, was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("virtual time ends 584 years after its beginning")]
pub struct EndOfTime;

impl VirtualClock {
    /// The last time that the clock can represent. Times saturate at it, so an event with this time may be due later.
    pub const END: Instant = Instant::from_nanos(u64::MAX);

    /// A clock at `now`.
    pub const fn at(now: Instant) -> Self {
        Self { now }
    }

    /// The time.
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// Jumps to `time`; does not change if `time` is earlier. Returns whether it has changed.
    ///
    /// # Errors
    /// [`EndOfTime`] if `time` is [`VirtualClock::END`]; the clock does not change.
    pub fn jump_to(&mut self, time: Instant) -> Result<bool, EndOfTime> {
        if time == Self::END {
            return Err(EndOfTime);
        }
        let is_later = time > self.now;
        if is_later {
            self.now = time;
        }
        Ok(is_later)
    }
}

impl Default for VirtualClock {
    /// A clock at the beginning of time.
    fn default() -> Self {
        Self::at(Instant::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_jumps_forward_only_and_stops_before_the_end() {
        let mut clock = VirtualClock::default();
        assert_eq!(clock.jump_to(Instant::from_nanos(7)), Ok(true));
        assert_eq!(clock.jump_to(Instant::from_nanos(7)), Ok(false));
        assert_eq!(clock.jump_to(Instant::from_nanos(3)), Ok(false));
        assert_eq!(clock.now(), Instant::from_nanos(7));
        assert_eq!(clock.jump_to(VirtualClock::END), Err(EndOfTime));
        assert_eq!(clock.now(), Instant::from_nanos(7));
    }
}
