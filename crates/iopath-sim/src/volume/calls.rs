//! The calls of programs on a volume: buffered reads and writes page by page, flushes and write-back. A call that waits
//! is a state; `Volume::advance` continues it. `begin.rs` begins calls, `direct.rs` has direct I/O.

use std::ops::Range;

use iopath_core::buffered::{ReadNext, ReadStep, TakeStep};
use iopath_core::cache::{Frame, Outcome};
use iopath_core::{Duration, Instant, IoError, Op, PageRange};

use super::call::{Call, Kind, Plain, Stage};
use super::request::Direct;
use super::{PAGE, Volume};
use crate::contents::{ANY, CACHED, NO_QUEUE, Reader, fill};
use crate::scenario::Layout;

impl Volume {
    pub(super) fn call(&mut self, index: usize) -> &mut Call {
        self.calls[index].as_mut().expect("the call is in progress")
    }

    /// Adds the write of a call to the model: from now on, a read may return it.
    pub(super) fn begin_model_write(&mut self, index: usize) {
        let clock = self.tick();
        let queue_of = self.model_queue(index);
        let end = self.size_bytes;
        let Call { kind, offset, bytes, start, token, is_begun, kept_bytes, .. } = self.call(index);
        (*start, *is_begun, *kept_bytes) = (clock, true, end.saturating_sub(*offset).min(*bytes));
        let token = match kind {
            Kind::Direct { op: Op::WriteZeroes, .. } => 0,
            Kind::Direct { op: Op::Discard, .. } | Kind::Resize { .. } => ANY,
            _ => *token,
        };
        let range = *offset..*offset + *bytes;
        self.contents.begin_write(&range, token, clock, queue_of);
    }

    /// The queue whose order the model may rely on: direct I/O of a volume with a page cache waits for pages first.
    fn model_queue(&mut self, index: usize) -> u8 {
        let has_path = self.path.is_some();
        match self.call(index).kind {
            Kind::Direct { queue, .. } if !has_path => queue as u8,
            Kind::Write { .. } => CACHED,
            _ => NO_QUEUE,
        }
    }

    /// Continues all calls that can continue. Returns whether any did.
    pub(super) fn advance_calls(&mut self, now: Instant) -> bool {
        let mut is_changed = false;
        for index in 0..self.calls.len() {
            let Some(call) = &self.calls[index] else { continue };
            let is_due = call.due().is_some_and(|due| due <= now);
            match call.stage {
                Stage::Ready => is_changed |= self.step(index, now),
                Stage::Holding { .. } if is_due => {
                    is_changed = true;
                    self.end_hold(index, now);
                }
                Stage::Filling { .. } if is_due => {
                    is_changed = true;
                    self.end_fill(index, now);
                }
                Stage::Appending { .. } if is_due => {
                    is_changed = true;
                    match call.kind {
                        Kind::Plain(_) => self.end_plain_write(index, now),
                        _ => self.end_appending(index, now),
                    }
                }
                Stage::Waiting => is_changed |= self.check_starvation(index, now),
                Stage::Locking => is_changed |= self.continue_locking(index, now),
                Stage::ForEnd if self.is_end_free() => {
                    is_changed = true;
                    self.call(index).stage = Stage::Ready;
                }
                Stage::Alone => is_changed |= self.continue_alone(index, now),
                _ => {}
            }
        }
        is_changed
    }

    /// Continues a call that is ready. Returns whether it made progress.
    fn step(&mut self, index: usize, now: Instant) -> bool {
        if !self.lock_call(index, now) {
            return true;
        }
        match self.call(index).kind {
            Kind::Append(_) => self.step_append(index, now),
            Kind::Plain(_) => self.step_plain(index, now),
            Kind::Read { .. } => self.read_page(index, now),
            Kind::Write { .. } => self.take_pages(index, now),
            Kind::Direct { .. } => return self.submit_direct(index, now),
            Kind::Bounced(_) => return self.step_bounced(index, now),
            Kind::Flush { queue, .. } => {
                if self.path.is_none() {
                    return self.submit(index, queue, Op::Flush, None, now);
                }
                self.flush_pages(index, now);
            }
            Kind::Resize { .. } => self.continue_resize(index, now),
            Kind::Move(_) => self.step_move(index, now),
            Kind::WriteBack => {
                let Call { offset, bytes, .. } = *self.call(index);
                let range = PageRange::touched_by(offset, bytes, PAGE as u32);
                self.call(index).stage = Stage::Waiting;
                self.path.as_mut().expect("of a page cache").write_back(range, index as u64);
            }
        }
        true
    }

    fn flush_pages(&mut self, index: usize, now: Instant) {
        let call = self.calls[index].as_mut().expect("in progress");
        let Kind::Flush { range, .. } = &call.kind else { unreachable!("a flush") };
        let path = self.path.as_mut().expect("of a page cache");
        match range {
            Some(range) => path.flush_range(range.start, range.end - range.start, index as u64),
            None => path.flush(index as u64),
        }
        call.stage = Stage::Waiting;
        self.flush_inline(index, now);
    }

    fn read_page(&mut self, index: usize, now: Instant) {
        let clock = self.tick();
        let path = self.path.as_mut().expect("of a page cache");
        let call = self.calls[index].as_mut().expect("in progress");
        let Kind::Read { read, begun, .. } = &mut call.kind else { unreachable!("a read") };
        match read.poll(path) {
            ReadNext::Copy(_) => {
                // Each page is a read of its own: the model orders it by its own start.
                call.start = clock;
                match path.read(read, index as u64, now) {
                    ReadStep::Pinned(frame) => self.read_pinned(index, frame, now),
                    ReadStep::Wait { .. } => call.stage = Stage::Waiting,
                    ReadStep::End => {}
                }
            }
            ReadNext::Again => {}
            ReadNext::Done(bytes) => {
                let (begun, end) = (*begun, call.offset + bytes as u64);
                assert!(
                    bytes as u64 == call.bytes || self.is_past_end(end + 1) || self.has_resized_since(begun),
                    "rule 6: a read of volume {} ends at byte {end}, and the volume does not",
                    self.number
                );
                assert!(
                    bytes == 0 || end <= self.size_bytes || self.has_resized_since(begun),
                    "rule 5: a read ends at byte {end}, past the end"
                );
                self.end(index, Ok(()), now);
            }
        }
    }

    fn read_pinned(&mut self, index: usize, frame: Frame, now: Instant) {
        let whole = self.frames.expect("of a page cache").whole(frame);
        let call = self.call(index);
        let Kind::Read { read, hold, .. } = &mut call.kind else { unreachable!("only reads get pins") };
        let piece = read.next_piece().expect("it reads a page");
        read.handle_copied(&piece);
        let at = call.offset + piece.start as u64;
        let hold = *hold;
        let reader = Reader { start: call.start, queue: NO_QUEUE };
        let copy = self.arena.with(whole, |memory| memory.to_vec());
        self.check_read(at, &copy[piece.from..piece.from + piece.bytes()], reader);
        // Rule 5: the bytes of a page past the end of the volume are zeroes, unless the page was pinned before the end
        // moved.
        let end = self.size_bytes.saturating_sub(at / PAGE * PAGE).min(PAGE) as usize;
        let are_zeroes = copy[end..].iter().all(|byte| *byte == 0);
        assert!(
            are_zeroes || self.is_end_damaged || self.has_resized_since(reader.start),
            "rule 5: bytes past the end are not zeroes"
        );
        if hold == Duration::ZERO {
            self.unpin(frame);
            self.call(index).stage = Stage::Ready;
        } else {
            self.call(index).stage = Stage::Holding { until: now + hold, frame, bytes: copy };
        }
    }

    pub(super) fn unpin(&mut self, frame: Frame) {
        let path = self.path.as_mut().expect("of a page cache");
        if path.cache().hot().unpin(frame) {
            path.handle_unpinned();
        }
    }

    fn end_hold(&mut self, index: usize, now: Instant) {
        let stage = std::mem::replace(&mut self.call(index).stage, Stage::Ready);
        let Stage::Holding { frame, bytes, .. } = stage else { unreachable!("it holds a page") };
        let whole = self.frames.expect("of a page cache").whole(frame);
        let is_same = self.arena.with(whole, |memory| *memory == bytes[..]);
        assert!(is_same, "rule 2: the bytes of a borrowed page change at {now:?}");
        self.unpin(frame);
    }

    fn take_pages(&mut self, index: usize, now: Instant) {
        let call = self.calls[index].as_mut().expect("in progress");
        let Kind::Write { write, hold } = &mut call.kind else { unreachable!("a write") };
        let path = self.path.as_mut().expect("of a page cache");
        match path.take_pages(write, index as u64) {
            Ok(TakeStep::Fill) => {
                call.stage = Stage::Filling { until: now + *hold };
                self.fill_pieces(index);
            }
            Ok(TakeStep::Wait) => call.stage = Stage::Waiting,
            Ok(TakeStep::Done { .. }) => self.end(index, Ok(()), now),
            Err(error) => self.end(index, Err(error), now),
        }
    }

    /// Writes the bytes of the call into the pages that it holds.
    pub(super) fn fill_pieces(&mut self, index: usize) {
        self.copy_moved(index);
        let frames = self.frames.expect("of a page cache");
        let call = self.calls[index].as_mut().expect("in progress");
        let (offset, token) = (call.offset, call.token);
        for piece in call.pages().pieces() {
            self.arena.with(frames.whole(piece.frame), |memory| {
                let bytes = &mut memory[piece.to..piece.to + (piece.end - piece.start)];
                fill(offset + piece.start as u64, bytes, token);
                if piece.is_rest_zero {
                    memory[piece.to + (piece.end - piece.start)..].fill(0);
                }
            });
        }
    }

    /// Copies the pages that have moved to other frames for the call.
    pub(super) fn copy_moved(&mut self, index: usize) {
        let frames = self.frames.expect("of a page cache");
        let mut sources = Vec::new();
        let call = self.calls[index].as_mut().expect("in progress");
        for piece in call.pages().pieces_mut() {
            if let Some(from) = piece.copy_from.take() {
                let copy = self.arena.with(frames.whole(from), |bytes| bytes.to_vec());
                self.arena.with(frames.whole(piece.frame), |bytes| bytes.copy_from_slice(&copy));
                sources.push(from);
            }
        }
        for frame in sources {
            self.unpin(frame);
        }
    }

    fn end_fill(&mut self, index: usize, now: Instant) {
        let call = self.calls[index].as_mut().expect("in progress");
        let Kind::Write { write, .. } = &mut call.kind else { unreachable!("a write") };
        self.path.as_mut().expect("of a page cache").release_pages(write, now);
        call.stage = Stage::Ready;
    }

    /// The path knows the outcome of a call that waits.
    pub(super) fn wake(&mut self, index: usize, outcome: Outcome, now: Instant) {
        let call = self.calls[index].as_mut().expect("rule 8: a call that has ended is woken");
        call.starvation = None;
        match &mut call.kind {
            Kind::Write { write, .. } => write.handle_outcome(outcome),
            Kind::Append(append) => append.outcome = Some(outcome),
            Kind::Resize { resize: Some(resize), .. } => resize.handle_outcome(outcome),
            _ => return self.end_wait(index, outcome, now),
        }
        // A writer that still fills pages continues later.
        if matches!(call.stage, Stage::Waiting) {
            call.stage = Stage::Ready;
        }
    }

    fn end_wait(&mut self, index: usize, outcome: Outcome, now: Instant) {
        let call = self.call(index);
        match call.stage {
            Stage::Forcing(mark) => {
                let known = self.path.as_ref().and_then(|path| path.forced(mark));
                let result = known.expect("rule 1: a forced write is woken without a result");
                return self.end(index, result, now);
            }
            Stage::Waiting => {}
            ref stage => panic!("rule 8: call {index} is woken in stage {stage:?}: {outcome:?}"),
        }
        match outcome {
            Outcome::Pinned(frame) => self.read_pinned(index, frame, now),
            Outcome::Direct(tag) => match &mut call.kind {
                Kind::Move(moved) => {
                    moved.pass_gate(tag);
                    call.stage = Stage::Ready;
                }
                _ => self.pass_gate(index, tag),
            },
            Outcome::Retry => call.stage = Stage::Ready,
            Outcome::Done => self.end(index, Ok(()), now),
            Outcome::Failed(error) if matches!(self.call(index).kind, Kind::Move(_)) => {
                self.fail_move(index, error);
            }
            Outcome::Failed(error) => self.end(index, Err(error), now),
            Outcome::Writable(_) | Outcome::Unwritable { .. } => unreachable!("{outcome:?} for no write"),
        }
    }

    pub(super) fn end(&mut self, index: usize, result: Result<(), IoError>, now: Instant) {
        self.log_result(now, index, "ends", result);
        if let Err(error) = result {
            self.failed(index, error);
        }
        self.finish(index, result.is_ok(), now);
    }

    /// Removes a call, and checks what it has returned.
    pub(super) fn finish(&mut self, index: usize, is_ok: bool, now: Instant) {
        let queue = self.model_queue(index);
        let clock = self.tick();
        let call = self.calls[index].take().expect("in progress");
        self.unlock_call(&call);
        self.completed_calls += 1;
        let Call { kind, offset, bytes, start, is_begun, kept_bytes, parent, .. } = call;
        let range = offset..offset + bytes;
        if is_begun {
            let is_forced = match &kind {
                Kind::Direct { forced, .. } => *forced,
                Kind::Bounced(bounced) => bounced.forced,
                _ => false,
            };
            self.contents.end_write(&range, start, clock, is_ok, is_forced);
            if kept_bytes < bytes && !matches!(kind, Kind::Resize { .. }) {
                let past_end = offset + kept_bytes..offset + bytes;
                if self.size_bytes > past_end.start || self.is_resizing() {
                    // The end moved meanwhile: the write was executed before that or after it.
                    self.contents.begin_write(&past_end, 0, start, NO_QUEUE);
                    self.contents.end_write(&past_end, start, clock, true, false);
                } else {
                    self.write_zeroes_to_model(&past_end);
                }
            }
        }
        match kind {
            Kind::Direct { op, forced, queue: of_queue, stream, memory, sweep, .. } => {
                if is_ok && op.has_memory() {
                    self.direct.add(op, bytes);
                }
                if let (true, Some(memory)) = (is_ok, memory) {
                    let copy = self.arena.with(memory, |bytes| bytes.to_vec());
                    self.check_read(offset, &copy, Reader { start, queue });
                }
                if let Some(memory) = memory {
                    self.arena.release(memory);
                }
                if op.is_write() && forced && is_ok {
                    self.check_medium();
                }
                if op == Op::Discard && is_ok && matches!(self.plan.layout, Layout::Mapped { .. }) {
                    self.zeroed(&range, start);
                }
                let direct = Direct { op, forced, queue: of_queue, stream, sweep };
                self.continue_sweep(direct, offset, bytes, now);
            }
            Kind::Bounced(bounced) => {
                bounced.spans().into_iter().for_each(|span| self.arena.release(span));
                if bounced.forced && is_ok {
                    self.check_medium();
                }
            }
            Kind::Flush { range, .. } if is_ok => self.flushed(range.as_ref(), start),
            Kind::Plain(Plain::Flush) if is_ok => self.flushed(None, start),
            Kind::Append(append) => self.pass_appended(&append, parent.expect("of a write")),
            Kind::Resize { .. } if is_ok && is_begun => self.zeroed(&range, start),
            Kind::Move(_)
            | Kind::Plain(_)
            | Kind::Resize { .. }
            | Kind::Flush { .. }
            | Kind::WriteBack
            | Kind::Read { .. }
            | Kind::Write { .. } => {}
        }
        if let Some(parent) = parent {
            self.child_ended(parent, is_ok);
        }
    }

    /// Rule 5: a discard of a mapped file has succeeded, and left a hole.
    fn zeroed(&mut self, range: &Range<u64>, start: u64) {
        if self.path.is_none() {
            return self.contents.punched(range, start);
        }
        // Dirty pages were dropped when it began, so a read that began before its end may have older bytes.
        self.write_zeroes_to_model(range);
    }

    fn write_zeroes_to_model(&mut self, range: &Range<u64>) {
        let start = self.tick();
        self.contents.begin_write(range, 0, start, NO_QUEUE);
        let end = self.tick();
        self.contents.end_write(range, start, end, true, false);
    }
}
