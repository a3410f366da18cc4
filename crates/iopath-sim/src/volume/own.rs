//! I/O of the page cache that the calling thread executes by a system call of its own, past the queue, as the crate
//! `iopath-os` does: of a flush, the only write and the flush of the device. The conditions are those of that crate;
//! the state machine selects the write. `append.rs` has appends.

use iopath_core::buffered::{BufferedPath, InlineIo};
use iopath_core::cache::IoTag;
use iopath_core::{Bio, Extent, Instant, IoError, Op, Priority, QueueConfig, QueuedDevice, Stream};

use super::Volume;
use super::call::{Call, Kind, Stage};
use crate::arena::Span;
use crate::device::Device;
use crate::random::Random;

/// The maximum number of segments of such a write.
const SEGMENTS_MAX: usize = 16;

/// More bios than all threads have.
const BIOS_MAX: u32 = 1024;

/// The system calls in progress.
#[derive(Debug)]
pub(super) struct Own {
    /// The kernel below them: it splits and merges, and has no elevator.
    device: QueuedDevice<Device>,
    ios: Vec<OwnIo>,
    begun: u64,
    /// The call that executes the next flush of the device, if that begins now.
    wants_flush: Option<usize>,
    random: Random,
}

#[derive(Debug)]
struct OwnIo {
    number: u64,
    /// `None` for the flush of a file without a page cache.
    tag: Option<IoTag>,
    op: Op,
    extent: Extent,
    pieces_left: usize,
    result: Result<(), IoError>,
    /// The call that executes it.
    owner: usize,
}

impl Own {
    /// The write in progress that overlaps with an extent.
    pub(super) fn write_in(&self, range: Extent) -> Option<(u64, Op, Extent)> {
        let mut writes = self.ios.iter().filter(|io| io.op == Op::Write);
        writes.find(|io| io.extent.overlaps(range)).map(|io| (io.number, io.op, io.extent))
    }

    pub(super) const fn is_idle(&self) -> bool {
        self.ios.is_empty()
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.device.poll_timeout()
    }
}

impl Volume {
    /// Lets threads bypass the queue, if the plan does.
    pub(super) fn open_own(&mut self) {
        if !self.plan.extras.bypasses_queue {
            return;
        }
        let config = QueueConfig {
            bios_max: BIOS_MAX,
            requests_max: BIOS_MAX,
            depth: self.plan.depth,
            plug_requests_max: self.plan.plug_requests_max,
            elevator: self.plan.elevator("none"),
        };
        let device = QueuedDevice::new(Device::Disks(Box::new(self.below())), &config);
        let random = Random::new(self.plan.seed ^ self.clock ^ 0x0E0);
        self.own = Some(Own { device, ios: Vec::new(), begun: 0, wants_flush: None, random });
    }

    /// Whether I/O of the calling thread may bypass the queue.
    pub(super) fn may_bypass_queue(&self) -> bool {
        self.own.is_some()
            && self.queues[0].device.queue().elevator() == "none"
            && !self.path.as_ref().is_some_and(BufferedPath::is_writing)
    }

    fn may_flush_inline(&self) -> bool {
        self.may_bypass_queue() && self.queues[0].device.queue().bios_in() == 0 && self.plan.has_write_cache
    }

    /// Advances the path for a call that has begun a flush. The call executes the I/O if it is one write or none.
    pub(super) fn flush_inline(&mut self, index: usize, now: Instant) {
        if self.own.is_none() {
            return;
        }
        if self.may_flush_inline() {
            let path = self.path.as_mut().expect("of a page cache");
            if let Some(InlineIo { tag, extent, segments }) = path.take_lone_write::<SEGMENTS_MAX>(now) {
                let segments: Vec<Span> = segments.into_iter().collect();
                return self.begin_own(index, Some(tag), Op::Write, extent, &segments, now);
            }
        }
        self.act_for_flush(index, now);
    }

    /// Advances the path for a call that waits for a flush, which executes the flush of the device if that begins.
    fn act_for_flush(&mut self, index: usize, now: Instant) {
        self.own.as_mut().expect("it bypasses the queue").wants_flush = Some(index);
        self.advance_path(now);
        self.own.as_mut().expect("it bypasses the queue").wants_flush = None;
    }

    /// Advances the path, sometimes for a thread that waits for a flush.
    pub(super) fn advance_path_for_any(&mut self, now: Instant) -> bool {
        let waits = |call: &Call| matches!((&call.kind, &call.stage), (Kind::Flush { .. }, Stage::Waiting));
        let Some(own) = &mut self.own else { return self.advance_path(now) };
        let is_free = |index: &usize| own.ios.iter().all(|io| io.owner != *index);
        let is_waiting = |index: &usize| self.calls[*index].as_ref().is_some_and(waits) && is_free(index);
        own.wants_flush = (0..self.calls.len()).find(is_waiting).filter(|_| own.random.one_in(2));
        let is_changed = self.advance_path(now);
        self.own.as_mut().expect("as before").wants_flush = None;
        is_changed
    }

    /// Takes a flush of the device from the steps, if a call executes it. Returns whether one does.
    pub(super) fn take_flush(&mut self, tag: IoTag, now: Instant) -> bool {
        if !self.may_flush_inline() {
            return false;
        }
        let Some(index) = self.own.as_mut().and_then(|own| own.wants_flush.take()) else { return false };
        self.begin_own(index, Some(tag), Op::Flush, Extent::EMPTY, &[], now);
        true
    }

    pub(super) fn begin_own(
        &mut self,
        owner: usize,
        tag: Option<IoTag>,
        op: Op,
        extent: Extent,
        segments: &[Span],
        now: Instant,
    ) {
        let what = if op == Op::Flush { "own flush" } else { "own write" };
        self.log(now, owner, what, extent.offset(), extent.bytes());
        if op == Op::Write {
            let other = self.has_write_in(extent.offset(), extent.bytes());
            assert!(other.is_none(), "rule 1: a write of a thread to {extent} meets {other:?}");
        }
        let own = self.own.as_mut().expect("it bypasses the queue");
        own.begun += 1;
        let number = own.begun;
        let pieces_left = segments.len().max(1);
        own.ios.push(OwnIo { number, tag, op, extent, pieces_left, result: Ok(()), owner });
        let (stream, priority) = (Stream(0), Priority::BestEffort);
        let bio = |extent, memory| Bio { op, extent, memory, fua: false, stream, priority, token: number };
        let mut rest = extent;
        let mut bios = Vec::with_capacity(pieces_left);
        for memory in segments {
            let (piece, after) = rest.split_at(iopath_core::Memory::bytes(memory) / 512);
            bios.push(bio(piece, Some(*memory)));
            rest = after;
        }
        assert!(rest.is_empty(), "rule 6: a write of a thread has no bytes for {rest}");
        if op == Op::Flush {
            bios.push(bio(extent, None));
        }
        for bio in bios {
            own.device.submit_bio(bio, now).unwrap_or_else(|why| panic!("a system call is refused: {why}"));
        }
    }

    /// Advances the system calls. Returns whether one has ended.
    pub(super) fn advance_own(&mut self, now: Instant) -> bool {
        let Some(own) = &mut self.own else { return false };
        own.device.collect(now);
        own.device.unplug(now);
        own.device.dispatch(now);
        own.device.commit(now);
        self.take_damage();
        let mut is_changed = false;
        while let Some(done) = self.own.as_mut().and_then(|own| own.device.poll_completion()) {
            is_changed = true;
            let own = self.own.as_mut().expect("as before");
            let place = own.ios.iter().position(|io| io.number == done.token);
            let place = place.expect("rule 8: a system call ends twice");
            let io = &mut own.ios[place];
            io.pieces_left -= 1;
            io.result = io.result.and(done.result);
            if io.pieces_left == 0 {
                let io = own.ios.swap_remove(place);
                self.end_own(&io, now);
            }
        }
        is_changed
    }

    fn end_own(&mut self, io: &OwnIo, now: Instant) {
        let OwnIo { tag, op, result, owner, .. } = *io;
        self.log_result(now, owner, "own I/O", result);
        self.has_failed_flush |= op == Op::Flush && result.is_err();
        let Some(tag) = tag else { return self.end_plain_flush(owner, result, now) };
        self.path.as_mut().expect("of a page cache").handle_completion(tag, result, now);
        if op == Op::Write {
            self.act_for_flush(owner, now);
        }
    }
}
