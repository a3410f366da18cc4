//! Direct I/O and flushes of queues: the gate of the page cache, the submission of a bio, and its completion.

use iopath_core::cache::{DirectStep, DirectTag};
use iopath_core::{Bio, Duration, Extent, Instant, IoError, Op, Stream, SubmitError};

use super::Volume;
use super::call::{Kind, Stage};
use crate::arena::Span;
use crate::contents::fill;
use crate::scenario::{Extras, Layout};

impl Volume {
    pub(super) fn submit_direct(&mut self, index: usize, now: Instant) -> bool {
        let call = self.calls[index].as_mut().expect("in progress");
        let Kind::Direct { op, queue, memory, gate, .. } = &mut call.kind else { unreachable!("direct") };
        let op = *op;
        let memory = *memory;
        let is_gated = gate.is_some();
        let queue = *queue;
        if self.path.is_none() {
            return self.submit(index, queue, op, memory, now);
        }
        if is_gated {
            // Queue 0 belongs to the cache.
            return self.submit(index, queue + 1, op, memory, now);
        }
        if op == Op::Discard {
            // The cache drops dirty pages at once, before the discard reaches the device.
            self.begin_model_write(index);
        }
        let Some(path) = &mut self.path else { unreachable!("checked before") };
        let call = self.calls[index].as_mut().expect("in progress");
        let unit_bytes = if matches!(self.plan.layout, Layout::Mapped { .. }) { 4096 } else { 1 };
        let (offset, bytes) = (call.offset, call.bytes);
        call.stage = Stage::Waiting;
        if let DirectStep::Go(tag) = path.begin_direct(op, offset, bytes, unit_bytes, index as u64) {
            self.pass_gate(index, tag);
        }
        true
    }

    /// The direct I/O may begin: the pages of its range are written back or dropped.
    pub(super) fn pass_gate(&mut self, index: usize, tag: DirectTag) {
        let call = self.call(index);
        let Kind::Direct { op, gate, .. } = &mut call.kind else { unreachable!("direct") };
        *gate = Some(tag);
        call.stage = Stage::Ready;
        let begins = op.is_write() && !call.is_begun;
        if begins {
            self.begin_model_write(index);
        }
    }

    /// Submits the bio of a call. Returns false if the queue is full.
    pub(super) fn submit(
        &mut self,
        index: usize,
        queue: usize,
        op: Op,
        memory: Option<Span>,
        now: Instant,
    ) -> bool {
        let has_path = self.path.is_some();
        let call = self.calls[index].as_mut().expect("in progress");
        let (offset, bytes, token) = (call.offset, call.bytes, call.token);
        let (fua, stream) = match call.kind {
            // With a page cache, only the cache flushes the device: it forces the write.
            Kind::Direct { forced, stream, .. } => (forced && !has_path, Stream(stream)),
            _ => (false, Stream(0)),
        };
        let extent = match op {
            Op::Flush => Extent::EMPTY,
            _ => Extent::from_bytes(offset, bytes).expect("whole sectors"),
        };
        if let (Op::Write, Some(memory)) = (op, memory) {
            self.arena.with(memory, |memory| fill(offset, memory, token));
        }
        let Extras { priorities, plug_time, .. } = self.plan.extras;
        let priority = priorities[stream.0 as usize];
        let bio = Bio { op, extent, memory, fua, stream, priority, token: index as u64 };
        if self.must_wait_for_end() {
            return false;
        }
        if self.is_plain_file() && op.is_write() && offset + bytes > self.size_bytes {
            // The end has moved since the first check.
            self.call(index).stage = Stage::AtDevice;
            self.at_device_done(index, Err(IoError::EndOfDevice), now);
            return true;
        }
        let target = &mut self.queues[queue];
        if let Err(why) = target.device.submit_bio(bio, now) {
            if matches!(why, SubmitError::OutOfRange { .. }) && self.is_past_end(offset + bytes) {
                // The end has moved below it.
                self.call(index).stage = Stage::AtDevice;
                self.at_device_done(index, Err(IoError::EndOfDevice), now);
                return true;
            }
            assert!(matches!(why, SubmitError::QueueFull(_)), "rule 8: the queue refuses a valid bio: {why}");
            let refused = why.into_bio();
            assert_eq!(
                (refused.token, refused.extent),
                (index as u64, extent),
                "rule 8: another bio comes back"
            );
            return false;
        }
        target.submitted.push_back((index as u64, op, extent));
        target.check_limit(self.plan.bios_max);
        // Queue 0 of a volume with a page cache belongs to the cache, which unplugs it.
        if plug_time > Duration::ZERO && target.plugged_until.is_none() && (queue > 0 || !has_path) {
            target.plugged_until = Some(now + plug_time);
        }
        if op == Op::Flush {
            self.begin_store(queue, index as u64);
        }
        let call = self.call(index);
        call.stage = Stage::AtDevice;
        if !has_path {
            if op.is_write() {
                self.begin_model_write(index);
            } else {
                let clock = self.tick();
                self.call(index).start = clock;
            }
        }
        true
    }

    /// The bio of a call has completed.
    pub(super) fn at_device_done(&mut self, index: usize, result: Result<(), IoError>, now: Instant) {
        let has_path = self.path.is_some();
        let call = self.calls[index].as_mut().expect("in progress");
        assert!(matches!(call.stage, Stage::AtDevice), "rule 8: call {index} completes twice");
        if matches!(call.kind, Kind::Bounced(_)) {
            return self.bounced_done(index, result, now);
        }
        let Kind::Direct { forced, gate, .. } = &mut call.kind else { return self.end(index, result, now) };
        let forced = *forced;
        let gate = gate.take();
        if let (true, Some(tag)) = (has_path, gate) {
            let path = self.path.as_mut().expect("it gave the tag");
            if forced && result.is_ok() {
                let mark = path.end_forced(tag);
                path.await_forced(mark, index as u64);
                self.call(index).stage = Stage::Forcing(mark);
                return;
            }
            path.end_direct(tag);
        }
        self.end(index, result, now);
    }
}
