//! Advances a volume: the steps of the page cache, its queues, and rule 1 of their completions. `calls.rs` continues
//! the calls.

use iopath_core::buffered::{BufferedPath, PageBio, Step};
use iopath_core::cache::IoTag;
use iopath_core::{Bio, BlockDevice, Duration, Instant, Op, Priority, Stream, SubmitError};

use super::call::Call;
use super::own::Own;
use super::{OF_CACHE, Queue, ROUNDS_MAX, TAG_BITS, Volume};
use crate::arena::Span;
use crate::coverage::Coverage;

impl Volume {
    /// Executes all work that is due, until the volume waits for a time.
    pub(crate) fn advance(&mut self, now: Instant, coverage: &mut Coverage) {
        for round in 0.. {
            assert!(round < ROUNDS_MAX, "liveness: volume {} does not come to rest at {now:?}", self.number);
            let mut is_changed = self.advance_orphans(now);
            is_changed |= self.advance_path_for_any(now);
            is_changed |= self.advance_own(now);
            for queue in 0..self.queues.len() {
                is_changed |= self.advance_queue(queue, now);
            }
            is_changed |= self.advance_control(now);
            is_changed |= self.advance_reader(now) | self.release_frames();
            while let Some(ready) = self.path.as_mut().and_then(BufferedPath::poll_ready) {
                is_changed = true;
                self.wake(ready.waiter as usize, ready.outcome, now);
            }
            is_changed |= self.advance_calls(now);
            if !is_changed {
                break;
            }
        }
        self.check_frames();
        self.check_length();
        coverage.add(self.state());
    }

    pub(super) fn advance_path(&mut self, now: Instant) -> bool {
        let mut is_changed = false;
        while let Some(step) = self.path.as_mut().and_then(|path| path.poll_step(now)) {
            is_changed = true;
            match step {
                Step::Submit(bio) if bio.op == Op::Flush && self.take_flush(bio.tag, now) => {}
                Step::Submit(bio) => {
                    if !self.submit_of_cache(bio, now) {
                        break;
                    }
                }
                Step::Zero { frame, from } => {
                    let whole = self.frames.expect("a path has frames").whole(frame);
                    self.arena.with(whole, |bytes| bytes[from..].fill(0));
                }
                Step::WriteTail { tag, frame, from, bytes, offset } => {
                    let whole = self.frames.expect("a path has frames").whole(frame);
                    let tail = self.arena.with(whole, |memory| memory[from..from + bytes].to_vec());
                    self.platters[0].borrow_mut().write_tail(offset - self.plan.base_bytes(), &tail);
                    let path = self.path.as_mut().expect("it gave the step");
                    path.handle_completion(tag, Ok(()), now);
                }
            }
        }
        is_changed
    }

    /// Returns whether the queue had room.
    fn submit_of_cache(&mut self, bio: PageBio<Span>, now: Instant) -> bool {
        let PageBio { tag, op, extent, memory } = bio;
        // A read meets one only while the page is being cut off or discarded: then its bytes may be any.
        let own = self.own.as_ref().filter(|_| op.is_write()).and_then(|own| own.write_in(extent));
        assert!(own.is_none(), "rule 1: {op} of {extent} of the cache meets a write of a thread: {own:?}");
        let token = OF_CACHE | self.tick() << TAG_BITS | u64::from(tag.0);
        let stream = Stream(0);
        let priority = Priority::BestEffort;
        let queued = Bio { op, extent, memory, fua: false, stream, priority, token };
        let Queue { device, submitted, .. } = &mut self.queues[0];
        match device.submit_bio(queued, now) {
            Ok(()) => {
                submitted.push_back((token, op, extent));
                self.queues[0].check_limit(self.plan.bios_max);
                if op == Op::Flush {
                    self.begin_store(0, token);
                }
                true
            }
            Err(why) => {
                let is_full = matches!(why, SubmitError::QueueFull(_));
                let is_cut =
                    matches!(why, SubmitError::OutOfRange { .. }) && self.is_past_end(extent.end().0 * 512);
                assert!(is_full || is_cut, "rule 8: the queue refuses I/O of the cache: {why}");
                let path = self.path.as_mut().expect("it gave the step");
                path.handle_refused(bio, &why, now);
                let refused = why.into_bio();
                assert_eq!(
                    (refused.token, refused.extent),
                    (token, extent),
                    "rule 8: another bio comes back"
                );
                is_cut
            }
        }
    }

    fn advance_queue(&mut self, index: usize, now: Instant) -> bool {
        let Queue { device: queue, plugged_until, .. } = &mut self.queues[index];
        // A completion can give its slot to a waiting bio, which the plug then holds.
        queue.collect(now);
        *plugged_until = plugged_until.filter(|until| *until > now);
        if plugged_until.is_some() {
            // A plug that is full is emptied nevertheless.
        } else if self.plan.stays_plugged {
            queue.empty_plug(now);
        } else {
            queue.unplug(now);
        }
        queue.dispatch(now);
        queue.commit(now);
        // Before a completion: a lost write may complete at once.
        self.take_damage();
        let mut is_changed = false;
        if !self.reads_completions(index, now) {
            return false;
        }
        while let Some(done) = self.queues[index].device.poll_completion() {
            is_changed = true;
            let op = self.check_order(index, done.token);
            self.has_failed_flush |= op == Op::Flush && done.result.is_err();
            self.end_store(index, done.token, done.result.is_ok());
            if done.token & OF_CACHE > 0 {
                let tag = done.token as u32 & ((1 << TAG_BITS) - 1);
                self.log_result(now, tag as usize, "cache I/O", done.result);
                let path = self.path.as_mut().expect("only a cache has such tokens");
                path.handle_completion(IoTag(tag), done.result, now);
            } else {
                self.at_device_done(done.token as usize, done.result, now);
                if let (0, Some(path)) = (index, &mut self.path) {
                    path.handle_room();
                }
            }
        }
        is_changed
    }

    /// Whether the program reads the completions of a queue now. A slow one does so from time to time.
    fn reads_completions(&mut self, index: usize, now: Instant) -> bool {
        let interval = self.plan.extras.disks.read_interval;
        let Queue { device, reads_at, .. } = &mut self.queues[index];
        if interval == Duration::ZERO || device.queue().bios_in() == 0 {
            *reads_at = None;
            return true;
        }
        match *reads_at {
            Some(due) if due > now => false,
            Some(_) => {
                *reads_at = None;
                true
            }
            None => {
                *reads_at = Some(now + interval);
                false
            }
        }
    }

    /// Rule 1: a bio completes after all earlier bios of its queue that overlap with it, if one of the two writes.
    /// Returns the operation of the bio.
    fn check_order(&mut self, index: usize, token: u64) -> Op {
        let submitted = &mut self.queues[index].submitted;
        let place = submitted.iter().position(|(other, ..)| *other == token);
        let place = place.expect("rule 8: a bio completes twice");
        let (_, op, extent) = submitted[place];
        for (earlier, other, over) in submitted.range(..place) {
            let is_ordered = op.is_write() || other.is_write();
            assert!(
                !is_ordered || !over.overlaps(extent),
                "rule 1: {op} of {extent} (call {token}) completes before the earlier {other} of {over} ({earlier})"
            );
        }
        submitted.remove(place);
        op
    }

    /// The earliest time at which the volume has work.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let path = self.path.as_ref().and_then(BufferedPath::poll_timeout);
        let queues = self.queues.iter().filter_map(|queue| queue.device.poll_timeout());
        let plugs = self.queues.iter().filter_map(|queue| queue.plugged_until);
        let calls = self.calls.iter().flatten().filter_map(Call::due);
        let control = self.control.as_deref().and_then(BlockDevice::poll_timeout);
        let reads = self.queues.iter().filter_map(|queue| queue.reads_at);
        let orphans = self.platters.iter().filter_map(|platter| platter.borrow().orphans_due());
        let reader = self.reader.as_ref().and_then(|reader| reader.poll_timeout());
        let own = self.own.as_ref().and_then(Own::poll_timeout);
        let of_disks = queues.chain(control).chain(orphans).chain(reader).chain(own);
        path.into_iter().chain(of_disks).chain(plugs).chain(reads).chain(calls).min()
    }

    /// The times at which the parts of the volume have work, for the message of a failure.
    pub(crate) fn describe_due(&self) -> String {
        let path = self.path.as_ref().and_then(BufferedPath::poll_timeout);
        let calls = self.calls.iter().flatten().filter_map(Call::due).min();
        let queues: Vec<_> = self
            .queues
            .iter()
            .map(|Queue { device, .. }| {
                let requests = device.queue();
                (requests.poll_timeout(), device.device().poll_timeout(), requests.in_flight())
            })
            .collect();
        format!(
            "volume {}: cache {path:?}, calls {calls:?}, queues, devices, in flight {queues:?}",
            self.number
        )
    }
}
