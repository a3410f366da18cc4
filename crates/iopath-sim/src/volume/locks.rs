//! The range locks of a volume with bounced I/O: its writes, discards and moves of the end take them.

use std::ops::Range;

use iopath_core::volume::{LockKind, Wake};
use iopath_core::{Duration, Instant};

use super::Volume;
use super::call::{Call, Kind, Lock, Stage};

/// The interval at which a program tries to lock whole blocks, which does not wait.
const POLL: Duration = Duration::from_micros(50);

impl Volume {
    /// Locks the range of a call that writes, if the volume has bounced I/O. Returns false if the call has to wait.
    pub(super) fn lock_call(&mut self, index: usize, now: Instant) -> bool {
        let call = self.calls[index].as_ref().expect("in progress");
        let (kind, range) = match call.kind {
            // A thread, a batch, and a batch of shared memory.
            Kind::Direct { op, stream, .. } if op.is_write() => {
                let kinds = [LockKind::Write, LockKind::Kept, LockKind::Whole, LockKind::Write];
                (kinds[stream as usize], self.shape.lock_range(call.offset, call.bytes))
            }
            Kind::Resize { size_bytes, .. } => {
                (LockKind::Write, self.shape.moved_range(self.size_bytes, size_bytes))
            }
            _ => return true,
        };
        !self.shape.bounces || self.try_lock(index, kind, range, now)
    }

    /// Locks a range for a call, or lets it wait.
    pub(super) fn try_lock(&mut self, index: usize, kind: LockKind, range: Range<u64>, now: Instant) -> bool {
        let call = self.calls[index].as_mut().expect("in progress");
        match &mut call.lock {
            Lock::Held { .. } => return true,
            Lock::Waits { ticket, is_woken, kind, range } => {
                *is_woken = false;
                let Some(wake) = self.locks.try_waiting(*ticket) else {
                    call.stage = Stage::Locking;
                    return false;
                };
                call.lock = Lock::Held { kind: *kind, range: range.clone() };
                self.wake_lockers(wake);
                return true;
            }
            Lock::None | Lock::Polls { .. } => {}
        }
        if self.locks.try_lock(kind, &range) {
            call.lock = Lock::Held { kind, range };
            return true;
        }
        call.stage = Stage::Locking;
        call.lock = if kind == LockKind::Whole {
            Lock::Polls { until: now + POLL }
        } else {
            let ticket = self.locks.wait(kind, range.clone());
            Lock::Waits { ticket, kind, range, is_woken: false }
        };
        false
    }

    /// A call that waits for its lock continues, if it was woken or polls. Returns whether it does.
    pub(super) fn continue_locking(&mut self, index: usize, now: Instant) -> bool {
        let call = self.call(index);
        let continues = match call.lock {
            Lock::Waits { is_woken, .. } => is_woken,
            Lock::Polls { until } => until <= now,
            Lock::None | Lock::Held { .. } => unreachable!("it waits for a lock"),
        };
        if continues {
            call.stage = Stage::Ready;
        }
        continues
    }

    /// Unlocks the range of a call that goes on.
    pub(super) fn release_lock(&mut self, index: usize) {
        let lock = std::mem::replace(&mut self.call(index).lock, Lock::None);
        if let Lock::Held { kind, range } = lock {
            let wake = self.locks.unlock(kind, &range);
            self.wake_lockers(wake);
        }
    }

    /// Unlocks the range of a call that has ended.
    pub(super) fn unlock_call(&mut self, call: &Call) {
        if let Lock::Held { kind, range } = &call.lock {
            let wake = self.locks.unlock(*kind, range);
            self.wake_lockers(wake);
        }
    }

    /// Locks the bytes that a move of the end adds, moves it, and unlocks them, unless a write is in flight there.
    pub(super) fn with_moved_range(&mut self, size_bytes: u64, act: impl FnOnce(&mut Self)) {
        if !self.shape.bounces {
            return act(self);
        }
        let range = self.shape.moved_range(self.size_bytes, size_bytes);
        if self.locks.try_lock(LockKind::Write, &range) {
            act(self);
            let wake = self.locks.unlock(LockKind::Write, &range);
            self.wake_lockers(wake);
        }
    }

    fn wake_lockers(&mut self, wake: Wake) {
        if wake == Wake::None {
            return;
        }
        for call in self.calls.iter_mut().flatten() {
            if let Lock::Waits { is_woken, .. } = &mut call.lock {
                *is_woken = true;
            }
        }
    }
}
