//! Begins the calls of programs: their ranges, and the checks of the volume before a call. `calls.rs` continues them.

use iopath_core::buffered::{Advice, BufferedRead, BufferedWrite};
use iopath_core::volume::Route;
use iopath_core::{Duration, Instant, Op};

use super::call::{Call, Kind, Lock, Stage};
use super::request::{Direct, Exact, Sweep};
use super::{PAGE, Volume};
use crate::arena::Owner;
use crate::scenario::{Do, Fine};

impl Volume {
    /// Begins the call of an action, if it fits the volume.
    pub(crate) fn begin(&mut self, what: &Do, fine: Fine, now: Instant) {
        if self.calls_in_progress() >= self.plan.calls_max {
            return;
        }
        if self.begin_plain(what, fine, now) {
            return;
        }
        let is_buffered = self.path.is_some();
        if self.end.is_some()
            && matches!(
                what,
                Do::Append { .. }
                    | Do::Resize { .. }
                    | Do::Grow { .. }
                    | Do::GrowOutside { .. }
                    | Do::FollowGrowth
            )
        {
            return self.begin_move(what, fine, now);
        }
        match *what {
            Do::Flush { .. } | Do::FlushRange { .. } if is_buffered && self.end.is_some() => {
                self.begin_move(what, fine, now);
            }
            Do::FlushRange { at, len } if is_buffered => {
                let (offset, bytes) = self.range(at, len, fine);
                let kind = Kind::Flush { queue: 0, range: Some(offset..offset + bytes) };
                self.add(kind, offset, bytes, "flush range", now);
            }
            Do::Read { at, len, hold } if is_buffered => {
                let (offset, bytes) = self.range(at, len, fine);
                self.begin_read(offset, bytes, hold, "read", now);
            }
            Do::Write { at, len, hold } if is_buffered => {
                let (offset, bytes) = self.range(at, len, fine);
                self.add_write(offset, bytes, hold, None, now);
            }
            Do::Read { at, len, .. } => self.begin_any(Direct::of(Op::Read), at, len, fine, now),
            Do::Write { at, len, .. } => self.begin_any(Direct::of(Op::Write), at, len, fine, now),
            Do::Direct { op, at, len, forced, queue, stream } => {
                self.begin_any(Direct { op, forced, queue, stream, sweep: None }, at, len, fine, now);
            }
            Do::Sweep { op, at, len, stride, window, count, queue, stream } => {
                let sweep = Some(Sweep { stride_bytes: stride * window * 64, left: count / window });
                for nth in 0..window {
                    let direct = Direct { op, forced: false, queue, stream, sweep };
                    self.begin_direct(direct, at + nth * stride, len, now);
                }
            }
            Do::Flush { queue } => {
                self.add(Kind::Flush { queue, range: None }, 0, 0, "flush", now);
            }
            Do::WriteBack { at, len } if is_buffered => {
                let (offset, bytes) = self.range(at, len, fine);
                self.add(Kind::WriteBack, offset, bytes, "write back", now);
            }
            Do::Resize { cells } => self.begin_resize((cells * 64 - u64::from(fine.end)).max(64), now),
            Do::Grow { cells } => self.extend(self.size_bytes + cells * 64 - u64::from(fine.end), now),
            Do::SetBudget { frames } => self.set_budget(frames, now),
            Do::Prefetch { at, len } => self.advise(at, len, fine, Advice::WillNeed),
            Do::DropPages { at, len } => self.advise(at, len, fine, Advice::DontNeed),
            _ => {}
        }
    }

    /// Begins an I/O on a volume that writes extend, and checks that the volume accepts what it must.
    pub(super) fn begin_exact(&mut self, exact: Exact, parent: Option<usize>, now: Instant) {
        let Exact { direct, offset, bytes, hold, address } = exact;
        let size_bytes = self.size_bytes;
        let Some(direct) = direct else {
            if offset + bytes <= size_bytes {
                self.add_write(offset, bytes, hold, parent, now);
            }
            return;
        };
        let op = direct.op;
        if bytes == 0 || !self.supports(op) {
            return;
        }
        let is_routed = self.path.is_none() && op.has_memory();
        let is_aligned = (offset | bytes).is_multiple_of(512) && address.is_multiple_of(4);
        let is_bounced = self.shape.bounces && !is_aligned;
        let expected = if is_bounced { Route::Bounced } else { Route::Direct };
        if is_routed {
            let route = self.shape.route(offset, bytes, address);
            assert_eq!(route, expected, "rule 3: {exact:?}");
        }
        if is_routed && is_bounced {
            return self.add_bounced(direct, offset, bytes, parent, now);
        }
        let checked = self.shape.extent(op, offset, bytes, size_bytes);
        let available = size_bytes.saturating_sub(offset).min(bytes);
        let is_whole = (offset | bytes).is_multiple_of(512);
        let is_accepted = is_whole && (op == Op::Read || available == bytes);
        assert_eq!(checked.is_ok(), is_accepted, "rule 3: {exact:?} of {size_bytes} bytes is {checked:?}");
        let Ok((extent, in_volume)) = checked else {
            assert!(
                parent.is_none(),
                "rule 5: the volume is extended for a write that it refuses: {exact:?}"
            );
            return;
        };
        assert_eq!(in_volume, available, "rule 5: {exact:?} of {size_bytes} bytes");
        if !extent.is_empty() {
            assert_eq!((extent.offset(), extent.bytes()), (offset, available.next_multiple_of(512)));
            self.add_direct(direct, offset, extent.bytes(), parent, now);
        }
    }

    fn supports(&self, op: Op) -> bool {
        let survives_power = self.plan.extras.survives_power;
        // The blocks of a discard could be used again before the flush.
        op.has_memory() || self.has_discard() && !(op == Op::Discard && survives_power)
    }

    fn add_write(&mut self, offset: u64, bytes: u64, hold: Duration, parent: Option<usize>, now: Instant) {
        if bytes > 0 && self.may_write(offset, bytes) {
            let write = BufferedWrite::new(offset, bytes as usize).expect("it has offsets");
            self.add_for(parent, Kind::Write { write, hold }, offset, bytes, "write", now);
        }
    }

    fn begin_read(&mut self, offset: u64, bytes: u64, hold: Duration, what: &'static str, now: Instant) {
        let path = self.path.as_ref().expect("of a page cache");
        let read = BufferedRead::new(offset, bytes as usize, path);
        self.add(Kind::Read { read, begun: self.clock, hold }, offset, bytes, what, now);
    }

    fn advise(&mut self, at: u64, len: u64, fine: Fine, advice: Advice) {
        let (offset, bytes) = self.range(at, len, fine);
        if let Some(path) = &mut self.path {
            path.advise(offset, bytes, advice);
        }
    }

    /// A range in cells, without some of its bytes, limited to the volume.
    pub(super) fn range(&self, at: u64, len: u64, fine: Fine) -> (u64, u64) {
        let Fine { start, end } = fine;
        if self.end.is_some() {
            let bytes = (len * 64).saturating_sub(u64::from(start) + u64::from(end)).max(1);
            let offset = at * 64 + u64::from(start);
            // Half of the calls may reach past the end.
            let last = if at.is_multiple_of(2) { self.plan.bytes } else { self.size_bytes };
            let offset = offset.min(last.saturating_sub(bytes.min(64)));
            return (offset, bytes.min(last - offset));
        }
        let base = self.plan.base_bytes();
        let offset = base + (at * 64).min(self.size_bytes - base - 64) + u64::from(start);
        let bytes = (len * 64).saturating_sub(u64::from(start) + u64::from(end)).max(1);
        (offset, bytes.min(self.size_bytes - offset))
    }

    pub(super) fn begin_direct(&mut self, direct: Direct, at: u64, len: u64, now: Instant) {
        let (offset, bytes) = self.range(at, len, Fine::NONE);
        let start = offset / 512 * 512;
        let end = (offset + bytes).next_multiple_of(512).min(self.size_bytes / 512 * 512);
        if self.supports(direct.op) && start < end {
            self.add_direct(direct, start, end - start, None, now);
        }
    }

    fn add_direct(&mut self, direct: Direct, offset: u64, bytes: u64, parent: Option<usize>, now: Instant) {
        let Direct { op, forced, queue, stream, sweep } = direct;
        if op.is_write() && !self.may_write(offset, bytes) {
            return;
        }
        let memory = op.has_memory().then(|| self.arena.take(bytes as usize, Owner::Program));
        let forced = forced && op == Op::Write && (self.path.is_some() || !self.plan.extras.survives_power);
        let kind = Kind::Direct { op, forced, queue, stream, memory, gate: None, sweep };
        self.add_for(parent, kind, offset, bytes, "direct", now);
    }

    /// A call of a sweep has ended: begins the next, if it is within the volume.
    pub(super) fn continue_sweep(&mut self, direct: Direct, offset: u64, bytes: u64, now: Instant) {
        let Some(Sweep { stride_bytes, left }) = direct.sweep else { return };
        let next = offset + stride_bytes;
        if left > 0 && next + bytes <= self.size_bytes {
            let sweep = Some(Sweep { stride_bytes, left: left - 1 });
            let at = (next - self.plan.base_bytes()) / 64;
            self.begin_direct(Direct { sweep, ..direct }, at, bytes / 64, now);
        }
    }

    fn has_discard(&self) -> bool {
        let limits = self.queues[0].device.queue().limits();
        limits.discard_bytes_max > 0 && limits.write_zeroes_bytes_max > 0
    }

    pub(super) fn add(&mut self, kind: Kind, offset: u64, bytes: u64, what: &'static str, now: Instant) {
        self.add_for(None, kind, offset, bytes, what, now);
    }

    /// Adds a call for which another one waits.
    pub(super) fn begin_child(
        &mut self,
        parent: usize,
        kind: Kind,
        offset: u64,
        bytes: u64,
        what: &'static str,
        now: Instant,
    ) {
        self.add_for(Some(parent), kind, offset, bytes, what, now);
    }

    pub(super) fn add_for(
        &mut self,
        parent: Option<usize>,
        kind: Kind,
        offset: u64,
        bytes: u64,
        what: &'static str,
        now: Instant,
    ) {
        if let Some(parent) = parent {
            self.call(parent).stage = Stage::ForChild;
        }
        let start = self.tick();
        self.writes += 1;
        let token = self.writes;
        let stage = Stage::Ready;
        let call = Call {
            kind,
            offset,
            bytes,
            start,
            token,
            is_begun: false,
            kept_bytes: 0,
            stage,
            lock: Lock::None,
            starvation: None,
            parent,
        };
        let free = self.calls.iter().position(Option::is_none);
        let index = free.unwrap_or(self.calls.len());
        self.calls.resize_with(self.calls.len().max(index + 1), || None);
        self.log(now, index, what, offset, bytes);
        let is_buffered_write = matches!(call.kind, Kind::Write { .. });
        self.calls[index] = Some(call);
        if is_buffered_write {
            self.begin_model_write(index);
        }
    }

    /// Reads the whole volume, and flushes it: the last calls of a run.
    pub(crate) fn begin_last_calls(&mut self, now: Instant) {
        self.begin(&Do::Flush { queue: 0 }, Fine::NONE, now);
    }

    /// Reads all bytes, through the page cache if there is one, and by direct I/O.
    pub(crate) fn begin_last_reads(&mut self, now: Instant) {
        self.open_cache(now);
        let base = self.plan.base_bytes();
        for place in (0..self.size_bytes - base).step_by(PAGE as usize) {
            let offset = base + place;
            let bytes = PAGE.min(self.size_bytes - offset);
            if self.path.is_some() {
                self.begin_read(offset, bytes, Duration::ZERO, "last read", now);
            }
            self.begin_any(Direct::of(Op::Read), place / 64, bytes.div_ceil(64), Fine::NONE, now);
        }
    }

    /// Drops all pages that are not dirty, so that the next reads come from the disks.
    pub(crate) fn drop_pages(&mut self) {
        self.advise(0, u64::MAX / 64, Fine::NONE, Advice::DontNeed);
    }
}
