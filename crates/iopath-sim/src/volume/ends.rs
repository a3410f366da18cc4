//! Moves of the end of a volume that writes extend: executes the steps of `Extension` as the crate `iopath` does, one
//! call after another, and truncations, flushes that trim the file, and growth by another program. The oracle knows the
//! size that each move leaves, and the lengths that the file may have.

use iopath_core::volume::{Ends, ExtendStep, Extension, LockKind, Trim};
use iopath_core::{Instant, IoError, Op};

use super::Volume;
use super::call::{Call, Kind, Stage};
use super::request::{Direct, Exact, Goal, Move, Next};
use crate::random::Random;
use crate::scenario::{Do, Extends, Fine, Layout};

/// `EFBIG`: a file would be too long.
pub(super) const FILE_TOO_LARGE: IoError = IoError::Os(27);

/// The end of a volume that writes extend.
#[derive(Debug)]
pub(super) struct End {
    pub(super) plan: Extends,
    /// The call that moves the end.
    pub(super) owner: Option<usize>,
    /// The length to which the volume has extended its file.
    file_bytes: u64,
    /// The appends since the last flush.
    pub(super) appended_bytes: u64,
    /// The oracle: the size after the last move.
    pub(super) settled_bytes: u64,
    /// The oracle: the sizes that the volume has had since the last flush began, each with its event.
    sizes: Vec<(u64, u64)>,
    /// The oracle: the largest size that a move or another program has asked for since the last flush.
    pub(super) asked_bytes: u64,
    /// The length that another program gave the file.
    pub(super) outside_bytes: u64,
    /// Changes of the length that the system has refused.
    refused: u64,
    pub(super) random: Random,
}

impl End {
    pub(super) fn new(plan: Extends, size_bytes: u64, seed: u64) -> Self {
        Self {
            plan,
            owner: None,
            file_bytes: 0,
            appended_bytes: 0,
            settled_bytes: size_bytes,
            sizes: vec![(0, size_bytes)],
            asked_bytes: size_bytes,
            outside_bytes: 0,
            refused: 0,
            random: Random::new(seed ^ 0xE4D),
        }
    }

    /// Whether the system refuses the next change of the length.
    pub(super) fn refuses_length(&mut self) -> bool {
        let is_refused = self.plan.refuses > 0 && self.random.one_in(self.plan.refuses);
        self.refused += u64::from(is_refused);
        is_refused
    }

    pub(super) const fn refused(&self) -> u64 {
        self.refused
    }

    pub(super) const fn stop_faults(&mut self) {
        self.plan.refuses = 0;
    }

    /// A flush that began at this event has succeeded.
    pub(super) fn flushed(&mut self, start: u64) {
        let before = self.sizes.iter().take_while(|(event, _)| *event < start).count();
        self.sizes.drain(..before.saturating_sub(1));
        if self.owner.is_none() {
            self.asked_bytes = self.settled_bytes.max(self.outside_bytes);
        }
    }

    /// Whether a power failure may leave a file of this length.
    fn check_survivor(&self, length: u64) {
        let sizes = || self.sizes.iter().map(|(_, size)| *size);
        let least = sizes().min().unwrap_or(0);
        let asked = sizes().chain([self.asked_bytes]);
        let most = asked.map(|size| self.step_end(size)).max().unwrap_or(0).max(self.outside_bytes);
        assert!(
            (least..=most).contains(&length),
            "rule 1, durability: a power failure leaves a file of {length} bytes, not {least} to {most}"
        );
    }

    /// The length of a file that was extended in steps to this size.
    fn step_end(&self, size_bytes: u64) -> u64 {
        self.plan.step_bytes.map_or(size_bytes, |step| size_bytes.next_multiple_of(step))
    }
}

impl Volume {
    /// Whether the volume is a plain file that writes extend.
    pub(super) const fn is_plain_file(&self) -> bool {
        self.end.is_some() && matches!(self.plan.layout, Layout::Plain)
    }

    pub(super) fn end_mut(&mut self) -> &mut End {
        self.end.as_mut().expect("of a volume that writes extend")
    }

    /// The length of the file, if it is known.
    pub(super) fn file_length(&self) -> Option<u64> {
        self.platters[0].borrow().length()
    }

    pub(super) fn ends(&self) -> Ends {
        let file_bytes = self.end.as_ref().map_or(0, |end| end.file_bytes);
        Ends { size_bytes: self.size_bytes, file_bytes }
    }

    /// The volume is opened: it has the size of its file.
    pub(super) fn open_end(&mut self) {
        let Some(size_bytes) = self.file_length() else { return };
        self.size_bytes = size_bytes;
        let event = self.tick();
        let end = self.end_mut();
        (end.owner, end.file_bytes, end.settled_bytes, end.asked_bytes) = (None, 0, size_bytes, size_bytes);
        end.appended_bytes = 0;
        end.sizes.push((event, size_bytes));
    }

    /// Power has failed, and the file has a length that it has had since the last flush.
    pub(super) fn check_length_after_power(&mut self) {
        let Some(length) = self.file_length() else { return };
        let end = self.end_mut();
        end.check_survivor(length);
        end.sizes.clear();
        // A write may be left only as far as the file goes.
        self.contents.add_end(length);
    }

    /// Begins a call that moves the end.
    pub(super) fn begin_move(&mut self, what: &Do, fine: Fine, now: Instant) {
        match *what {
            Do::Append { back, gap, len, .. } => {
                let offset = (self.size_bytes.saturating_sub(back * 64) + gap * 64).min(self.plan.bytes);
                self.begin_append(what, offset, len, fine, now);
            }
            Do::Resize { cells } => {
                let size_bytes = (cells * 64).saturating_sub(fine.end.into()).min(self.plan.bytes);
                self.add_move(Goal::Resize { size_bytes }, "resize", now);
            }
            Do::Grow { cells } => {
                let size_bytes = (self.size_bytes + cells * 64).min(self.plan.bytes);
                self.add_move(Goal::Resize { size_bytes }, "grow", now);
            }
            Do::Flush { .. } => self.add_move(Goal::flush(None), "flush", now),
            Do::FlushRange { at, len } => {
                let (offset, bytes) = self.range(at, len, fine);
                self.add_move(Goal::flush(Some(offset..offset + bytes)), "flush range", now);
            }
            Do::FollowGrowth if self.is_plain_file() => self.add_move(Goal::Follow, "follow", now),
            Do::GrowOutside { cells } if self.is_plain_file() => self.grow_outside(cells, now),
            _ => {}
        }
    }

    fn begin_append(&mut self, what: &Do, mut offset: u64, len: u64, fine: Fine, now: Instant) {
        let Do::Append { hold, forced, is_direct, queue, stream, .. } = *what else {
            unreachable!("a write")
        };
        let mut bytes = len * 64;
        let is_direct = is_direct || self.path.is_none();
        if self.shape.accepts_any_range() && (self.path.is_none() || !is_direct) {
            offset += u64::from(fine.start);
            bytes = bytes.saturating_sub(u64::from(fine.start) + u64::from(fine.end)).max(1);
        } else if len.is_multiple_of(8) {
            offset = offset / 512 * 512;
        }
        if !self.is_plain_file() {
            // A mapped file has no larger size.
            bytes = bytes.min(self.plan.bytes.saturating_sub(offset));
        }
        let direct = is_direct.then(|| Direct::new(Op::Write, false, queue, stream));
        let write = Exact { direct, offset, bytes, hold, address: self.address() };
        let end = offset + bytes;
        if bytes == 0 || end <= self.size_bytes || is_direct && self.path.is_some() {
            // The direct path of a volume with a page cache does not extend it.
            return self.begin_exact(write, None, now);
        }
        let checked = self.shape.check_extending(offset, bytes, write.address, self.size_bytes);
        let is_whole = (offset | bytes).is_multiple_of(512) && write.address.is_multiple_of(4);
        let accepts_any = self.path.is_some() || self.shape.bounces;
        assert_eq!(checked.is_ok(), accepts_any || is_whole, "rule 3: {write:?} is {checked:?}");
        if checked.is_ok() {
            let goal =
                Goal::Write { write, forced, appended_bytes: None, extension: None, is_extended: false };
            self.add_move(goal, "append", now);
        }
    }

    fn add_move(&mut self, goal: Goal, what: &'static str, now: Instant) {
        let (offset, bytes) = match &goal {
            Goal::Write { write, .. } => (write.offset, write.bytes),
            Goal::Resize { size_bytes } => (*size_bytes, 0),
            Goal::Flush { .. } | Goal::Follow => (0, 0),
        };
        self.add(Kind::Move(Move::new(goal)), offset, bytes, what, now);
    }

    pub(super) fn move_of(&mut self, index: usize) -> &mut Move {
        let Kind::Move(moved) = &mut self.call(index).kind else { unreachable!("a move of the end") };
        moved
    }

    /// The call for which this one waits has ended.
    pub(super) fn child_ended(&mut self, index: usize, is_ok: bool) {
        self.move_of(index).child = Some(is_ok);
        self.call(index).stage = Stage::Ready;
    }

    /// Continues a call that moves the end. The calls that it has begun report their own errors.
    pub(super) fn step_move(&mut self, index: usize, now: Instant) {
        let moved = self.move_of(index);
        let child = moved.child.take();
        match moved.next {
            Next::Lock if child == Some(false) => self.finish(index, false, now),
            Next::Lock => self.lock_end(index, now),
            Next::Move => self.continue_move(index, child, now),
            Next::Unlock => {
                self.settle_end(index, child == Some(true));
                match self.flush_after(index).filter(|_| child == Some(true)) {
                    Some(flush) => {
                        self.move_of(index).next = Next::End;
                        self.begin_child(index, flush, 0, 0, "flush", now);
                    }
                    None => self.finish(index, child == Some(true), now),
                }
            }
            Next::End => self.finish(index, child == Some(true), now),
        }
    }

    /// The page cache cannot write back the last page.
    pub(super) fn fail_move(&mut self, index: usize, error: IoError) {
        self.failed(index, error);
        let moved = self.move_of(index);
        (moved.next, moved.child) = (Next::Unlock, Some(false));
        self.call(index).stage = Stage::Ready;
    }

    /// Locks the end. A flush does so only if there is something to trim.
    fn lock_end(&mut self, index: usize, now: Instant) {
        let needs_trim = self.ends().needs_trim();
        let owner = self.end_mut().owner;
        let size_bytes = self.size_bytes;
        let moved = self.move_of(index);
        if let Goal::Flush { range, has_begun } = &mut moved.goal
            && !std::mem::replace(has_begun, true)
        {
            if range.is_none() && needs_trim {
                // Before the file is truncated: its last page is then written back with all others.
                return self.begin_child(index, Kind::WriteBack, 0, size_bytes, "write back", now);
            }
            self.end_mut().appended_bytes = 0;
            return;
        }
        if matches!(moved.goal, Goal::Flush { .. }) && !needs_trim {
            // Nothing to unlock.
            (moved.next, moved.child) = (Next::Unlock, Some(true));
        } else if owner.is_none() {
            moved.next = Next::Move;
            let asked_bytes = match &moved.goal {
                Goal::Write { write, .. } => write.offset + write.bytes,
                Goal::Resize { size_bytes } => *size_bytes,
                Goal::Flush { .. } | Goal::Follow => 0,
            };
            let end = self.end_mut();
            (end.owner, end.asked_bytes) = (Some(index), end.asked_bytes.max(asked_bytes));
        } else if matches!(moved.goal, Goal::Follow) {
            (moved.next, moved.child) = (Next::End, Some(true));
        } else {
            self.call(index).stage = Stage::ForEnd;
        }
    }

    pub(super) fn is_end_free(&self) -> bool {
        self.end.as_ref().is_some_and(|end| end.owner.is_none())
    }

    /// Unlocks the end, and checks where it is.
    fn settle_end(&mut self, index: usize, is_ok: bool) {
        let length = self.file_length();
        let size_bytes = self.size_bytes;
        let Kind::Move(Move { goal, .. }) = &self.calls[index].as_ref().expect("in progress").kind else {
            unreachable!("a move of the end")
        };
        let end = self.end.as_mut().expect("it was moved");
        if end.owner != Some(index) {
            return;
        }
        end.owner = None;
        let settled_bytes = match goal {
            Goal::Write { write, is_extended: true, .. } => end.settled_bytes.max(write.offset + write.bytes),
            Goal::Resize { size_bytes } if is_ok => *size_bytes,
            Goal::Follow if is_ok && (end.settled_bytes..=length.unwrap_or(0)).contains(&size_bytes) => {
                size_bytes
            }
            _ => end.settled_bytes,
        };
        assert_eq!(size_bytes, settled_bytes, "rule 5: {goal:?} leaves another size");
        end.settled_bytes = settled_bytes;
        let is_trimmed = is_ok && matches!(goal, Goal::Flush { .. } | Goal::Resize { .. });
        if let (true, Some(length)) = (is_trimmed, length) {
            let is_others = length == end.outside_bytes && matches!(goal, Goal::Flush { .. });
            assert!(
                length == size_bytes || is_others,
                "rule 5: {goal:?} leaves a file of {length} bytes for {size_bytes}"
            );
        }
    }

    /// The lengths that the file may have while nothing moves the end.
    pub(super) fn check_length(&mut self) {
        let (Some(length), size_bytes) = (self.file_length(), self.size_bytes) else { return };
        let end = self.end_mut();
        if end.owner.is_some() {
            return;
        }
        assert_eq!(size_bytes, end.settled_bytes, "rule 5: the size changes, and nothing has moved the end");
        if length != end.outside_bytes {
            end.outside_bytes = 0;
        }
        let is_right = length == size_bytes || length == end.step_end(size_bytes);
        assert!(
            is_right || length == end.outside_bytes && length > size_bytes,
            "rule 5: the file has {length} bytes, the volume {size_bytes}"
        );
    }

    /// The last flush has trimmed the file.
    pub(super) fn check_trimmed(&self) {
        let (Some(length), Some(end)) = (self.file_length(), &self.end) else { return };
        assert!(
            length == self.size_bytes || length == end.outside_bytes,
            "rule 5: after a flush, the file has {length} bytes, the volume {}",
            self.size_bytes
        );
    }

    /// The end is locked: the next step of the move.
    fn continue_move(&mut self, index: usize, child: Option<bool>, now: Instant) {
        let length = self.file_length();
        let ends = self.ends();
        let moved = self.move_of(index);
        match &mut moved.goal {
            Goal::Write { .. } => self.continue_extension(index, child, now),
            Goal::Resize { size_bytes } => {
                let size_bytes = *size_bytes;
                moved.next = Next::Unlock;
                self.begin_child_resize(index, size_bytes, false, now);
            }
            Goal::Flush { .. } if moved.gate.is_some() => self.call(index).stage = Stage::Alone,
            Goal::Flush { .. } => {
                match ends.trim(length) {
                    Trim::Truncate => return self.hold_page(index, ends.size_bytes),
                    Trim::Forget => self.end_mut().file_bytes = ends.size_bytes,
                    Trim::Nothing => {}
                }
                let moved = self.move_of(index);
                (moved.next, moved.child) = (Next::Unlock, Some(true));
            }
            Goal::Follow => {
                moved.next = Next::Unlock;
                let limit = self.end_mut().plan.limit_bytes;
                match ends.grown_length(length, || limit) {
                    Some(length) if self.path.is_some() => {
                        return self.begin_child_resize(index, length, true, now);
                    }
                    Some(length) if self.is_alone() => {
                        self.with_moved_range(length, |volume| volume.move_end(length));
                    }
                    _ => {}
                }
                self.move_of(index).child = Some(true);
            }
        }
    }

    /// Executes the steps of an extension.
    fn continue_extension(&mut self, index: usize, child: Option<bool>, now: Instant) {
        let is_plain = self.is_plain_file();
        let (ends, length) = (self.ends(), self.file_length());
        let Extends { step_bytes, limit_bytes, .. } = self.end_mut().plan;
        if child == Some(false) {
            // The append or the resize has failed.
            self.move_of(index).next = Next::Unlock;
            self.move_of(index).child = child;
            return;
        }
        if child == Some(true) && !self.has_extension(index) && self.take_appended(index) {
            let moved = self.move_of(index);
            (moved.next, moved.child) = (Next::Unlock, Some(true));
            return;
        }
        if self.begin_passing(index, ends, now) {
            return;
        }
        let Move { goal: Goal::Write { write, extension, is_extended, .. }, next, gate, .. } =
            self.move_of(index)
        else {
            unreachable!("a write")
        };
        let write = *write;
        let to = write.offset + write.bytes;
        let is_new = extension.is_none();
        let extension = extension.get_or_insert_with(|| Extension::new(ends, to, step_bytes));
        if child == Some(true) && !is_new {
            extension.handle_done();
        }
        match extension.poll() {
            ExtendStep::Length => {
                extension.handle_length(length, if is_plain { limit_bytes } else { u64::MAX });
            }
            ExtendStep::SetLength { bytes, last: None } => {
                let is_set = self.set_file_length(bytes, true).is_ok();
                self.extension_of(index).handle_set_length(is_set);
            }
            ExtendStep::SetLength { last: Some(last), .. } => {
                if gate.is_some() {
                    self.call(index).stage = Stage::Alone;
                    return;
                }
                self.hold_page(index, last.offset());
            }
            ExtendStep::MoveEnd => {
                if let Some(path) = &mut self.path {
                    path.extend(to);
                    self.move_end(to);
                    return self.extension_of(index).handle_done();
                }
                let range = self.shape.moved_range(self.size_bytes, to);
                if !self.shape.bounces || self.try_lock(index, LockKind::Write, range, now) {
                    self.call(index).stage = Stage::Alone;
                }
            }
            ExtendStep::Resize => self.begin_child_resize(index, to, false, now),
            ExtendStep::Done => {
                (*is_extended, *next) = (true, Next::Unlock);
                let size_bytes = self.size_bytes;
                assert!(to <= size_bytes, "rule 5: a write to {to} finds a volume of {size_bytes} bytes");
                self.begin_exact(write, Some(index), now);
            }
        }
    }

    fn has_extension(&mut self, index: usize) -> bool {
        matches!(&self.move_of(index).goal, Goal::Write { extension: Some(_), .. })
    }

    fn extension_of(&mut self, index: usize) -> &mut Extension {
        let Goal::Write { extension: Some(extension), .. } = &mut self.move_of(index).goal else {
            unreachable!("it extends the volume")
        };
        extension
    }

    /// A call that needs that no direct I/O is in flight continues, if none is. Returns whether it does.
    pub(super) fn continue_alone(&mut self, index: usize, now: Instant) -> bool {
        if !self.is_alone() {
            return false;
        }
        self.call(index).stage = Stage::Ready;
        if matches!(self.call(index).kind, Kind::Resize { .. }) {
            self.resize_plain(index, now);
            return true;
        }
        if matches!(self.move_of(index).goal, Goal::Flush { .. }) {
            self.trim(index);
            return true;
        }
        match self.extension_of(index).poll() {
            ExtendStep::SetLength { bytes, .. } => {
                let is_set = self.set_file_length(bytes, true).is_ok();
                self.extension_of(index).handle_set_length(is_set);
                let gate = self.move_of(index).gate.take().expect("it has passed the gate");
                self.path.as_mut().expect("it gave the tag").end_direct(gate);
            }
            ExtendStep::MoveEnd => {
                let Goal::Write { write, .. } = &self.move_of(index).goal else { unreachable!("a write") };
                let to = write.offset + write.bytes;
                self.move_end(to);
                self.release_lock(index);
                self.extension_of(index).handle_done();
            }
            step => unreachable!("{step:?} needs nothing"),
        }
        true
    }

    /// Whether neither this program nor a dead one has direct I/O in flight.
    fn is_alone(&self) -> bool {
        let is_in_flight = |call: &Call| matches!(call.stage, Stage::AtDevice);
        !self.calls.iter().flatten().any(is_in_flight)
            && self.platters.iter().all(|platter| platter.borrow().orphans_due().is_none())
    }

    /// Whether direct I/O must wait because a call waits until none is in flight.
    pub(super) fn must_wait_for_end(&self) -> bool {
        self.end.is_some() && self.calls.iter().flatten().any(|call| matches!(call.stage, Stage::Alone))
    }

    /// The end of the volume is at this byte from now on.
    pub(super) fn move_end(&mut self, size_bytes: u64) {
        self.contents.add_end(self.size_bytes.min(size_bytes));
        self.size_bytes = size_bytes;
        self.set_capacity(size_bytes);
        self.resized_at = self.tick();
        let event = self.resized_at;
        self.end_mut().sizes.push((event, size_bytes));
    }

    /// Changes the length of the file, as the system does.
    pub(super) fn set_file_length(&mut self, bytes: u64, is_step: bool) -> Result<(), IoError> {
        let size_bytes = self.size_bytes;
        let end = self.end_mut();
        let is_too_long = bytes > end.plan.limit_bytes && (is_step || bytes > size_bytes);
        end.refused += u64::from(is_too_long);
        if is_too_long || end.refuses_length() {
            return Err(FILE_TOO_LARGE);
        }
        self.change_length(bytes);
        Ok(())
    }

    pub(super) fn change_length(&mut self, bytes: u64) {
        self.check_last_page(bytes);
        self.check_cut(bytes);
        let end = self.end_mut();
        (end.file_bytes, end.outside_bytes) = (bytes, 0);
        self.platters[0].borrow_mut().set_length(bytes);
    }

    /// Only a resize by the program makes a file shorter that another program has made longer.
    fn check_cut(&self, bytes: u64) {
        let (Some(length), Some(end)) = (self.file_length(), &self.end) else { return };
        let owner = end.owner.and_then(|owner| self.calls[owner].as_ref());
        let is_resize = owner
            .is_some_and(|call| matches!(&call.kind, Kind::Move(Move { goal: Goal::Resize { .. }, .. })));
        let is_others = length > 0 && length == end.outside_bytes;
        assert!(
            bytes >= length || is_resize || !is_others,
            "rule 5: a file that another program has made {length} bytes long is cut to {bytes}"
        );
    }

    /// The kernel zeroes the rest of the last page in its page cache: no write to this page may be in flight.
    fn check_last_page(&self, bytes: u64) {
        let Some(length) = self.file_length().filter(|length| *length != bytes) else { return };
        let last = length.min(bytes);
        let page = self.shape.page_bytes.into();
        if !last.is_multiple_of(page) {
            self.check_no_write(last / page * page, page);
        }
    }

    /// Another program makes the file longer.
    fn grow_outside(&mut self, cells: u64, now: Instant) {
        let length = self.file_length().expect("a plain file");
        let limit = self.end_mut().plan.limit_bytes;
        let grown = (length + cells * 64).min(limit);
        let page = u64::from(self.shape.page_bytes);
        // Two programs must not extend a file at the same time.
        let is_free = self.is_end_free();
        if is_free && grown > length && self.has_write_in(length / page * page, page).is_none() {
            self.log(now, 0, "grow outside", length, grown - length);
            self.platters[0].borrow_mut().set_length(grown);
            let end = self.end_mut();
            (end.outside_bytes, end.asked_bytes) = (grown, end.asked_bytes.max(grown));
        }
    }
}
