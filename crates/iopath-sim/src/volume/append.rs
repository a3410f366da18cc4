//! Small appends that pass the page cache: the calling thread writes them to the file, as `Buffered::append` of the
//! crate `iopath-os` does, and the crate `iopath` around it. The oracle knows the bytes that the file has accepted.

use std::ops::Range;

use iopath_core::buffered::{BufferedWrite, TakeStep};
use iopath_core::cache::Outcome;
use iopath_core::volume::{Appends, Ends};
use iopath_core::{Extent, FaultSource, Instant, IoError, Op, Outcome as Transfer};

use super::call::{Append, Call, Kind, Stage};
use super::ends::FILE_TOO_LARGE;
use super::request::{Exact, Goal};
use super::{PAGE, Volume};
use crate::contents::{NO_QUEUE, fill};

impl Volume {
    /// Begins to append a first part of a write past the page cache, if that is the better way. Returns whether it
    /// does.
    pub(super) fn begin_passing(&mut self, index: usize, ends: Ends, now: Instant) -> bool {
        let Goal::Write { write, appended_bytes, .. } = &mut self.move_of(index).goal else {
            unreachable!("a write")
        };
        let Exact { offset, bytes, hold, .. } = *write;
        if appended_bytes.is_some() {
            return false;
        }
        *appended_bytes = Some(0);
        let end = self.end_mut();
        let appends = Appends { bytes: end.appended_bytes };
        end.appended_bytes += bytes;
        let (step_bytes, limit_bytes) = (end.plan.step_bytes, end.plan.limit_bytes);
        let passes_cache = step_bytes.is_some_and(|step| appends.passes_cache(ends, offset, bytes, step))
            && self.path.is_some()
            && offset + bytes <= limit_bytes;
        if !passes_cache || !self.may_bypass_queue() {
            return false;
        }
        let append = Append {
            write: BufferedWrite::appending(offset, bytes as usize).expect("it has offsets"),
            hold,
            has_begun: false,
            outcome: None,
            held: None,
            written: None,
            appended_bytes: 0,
            is_over: false,
        };
        self.begin_child(index, Kind::Append(append), offset, bytes, "pass the cache", now);
        true
    }

    fn append_of(&mut self, index: usize) -> &mut Append {
        let Kind::Append(append) = &mut self.call(index).kind else { unreachable!("an append") };
        append
    }

    /// Continues an append that does not wait.
    pub(super) fn step_append(&mut self, index: usize, now: Instant) {
        if !self.append_of(index).has_begun {
            self.append_of(index).has_begun = true;
            if !self.may_bypass_queue() {
                return self.end(index, Ok(()), now);
            }
        }
        let append = self.append_of(index);
        let outcome = append.outcome.take();
        if append.is_over {
            return self.leave_append(index, outcome, now);
        }
        if let Some(outcome) = outcome {
            append.write.handle_outcome(outcome);
        }
        let call = self.calls[index].as_mut().expect("in progress");
        let Kind::Append(append) = &mut call.kind else { unreachable!("an append") };
        match self.path.as_mut().expect("of a page cache").take_pages(&mut append.write, index as u64) {
            Ok(TakeStep::Fill) => self.append_held(index, now),
            Ok(TakeStep::Wait) => call.stage = Stage::Waiting,
            Ok(TakeStep::Done { .. }) => self.end(index, Ok(()), now),
            Err(error) => self.end(index, Err(error), now),
        }
    }

    /// The file has not taken all: the append ends, once no page is granted to it any more.
    fn leave_append(&mut self, index: usize, outcome: Option<Outcome>, now: Instant) {
        match outcome {
            None => return self.call(index).stage = Stage::Waiting,
            Some(Outcome::Writable(frame)) => {
                self.path.as_mut().expect("of a page cache").abandon_write(frame, now);
                self.unpin(frame);
            }
            Some(Outcome::Unwritable { source, .. }) => return self.end(index, Err(source), now),
            Some(_) => {}
        }
        self.end(index, Ok(()), now);
    }

    /// Begins to write the bytes of the pages that the append holds.
    fn append_held(&mut self, index: usize, now: Instant) {
        let may_bypass = self.may_bypass_queue();
        let call = self.calls[index].as_mut().expect("in progress");
        let (offset, token) = (call.offset, call.token);
        let Kind::Append(append) = &mut call.kind else { unreachable!("an append") };
        let path = self.path.as_mut().expect("of a page cache");
        let held = path.begin_append(&mut append.write).filter(|_| may_bypass);
        let Some(held) = held else {
            self.copy_moved(index);
            return self.end_appending(index, now);
        };
        self.copy_moved(index);
        let range = offset + held.start as u64..offset + held.end as u64;
        self.log(now, index, "append", range.start, held.len() as u64);
        let event = self.tick();
        self.contents.begin_write(&range, token, event, NO_QUEUE);
        self.check_pages(&range);
        self.append_of(index).held = Some((held, event));
        if self.plan.writes_early {
            self.write_appended(index);
        }
        let until = now + self.plan.latency + self.append_of(index).hold;
        self.call(index).stage = Stage::Appending { until };
    }

    /// The kernel accesses these pages in its own page cache: no other write to them is in flight.
    fn check_pages(&self, range: &Range<u64>) {
        let start = range.start / PAGE * PAGE;
        self.check_no_write(start, range.end.next_multiple_of(PAGE) - start);
    }

    /// Writes the bytes to the file.
    fn write_appended(&mut self, index: usize) {
        let Call { offset, token, .. } = *self.call(index);
        let (held, _) = self.append_of(index).held.clone().expect("it writes");
        let start = offset + held.start as u64;
        self.append_of(index).written = Some(self.write_plainly(start, held.len(), token));
    }

    /// Writes the bytes of a call to the file. Returns how many the file has taken.
    pub(super) fn write_plainly(
        &mut self,
        start: u64,
        bytes: usize,
        token: u64,
    ) -> (u64, Result<(), IoError>) {
        let mut bytes = vec![0; bytes];
        fill(start, &mut bytes, token);
        let (moved, result) = self.taken_by_file(start, bytes.len() as u64);
        if moved > 0 {
            // A part of a write may end inside a cell.
            self.contents.add_end(start + moved);
            self.platters[0].borrow_mut().write_tail(start, &bytes[..moved as usize]);
        }
        (moved, result)
    }

    /// The bytes of a plain write that the file takes, and the result.
    fn taken_by_file(&mut self, start: u64, bytes: u64) -> (u64, Result<(), IoError>) {
        let extends = start + bytes > self.size_bytes;
        let end = self.end_mut();
        if extends && end.refuses_length() {
            return (end.random.below(bytes), Err(FILE_TOO_LARGE));
        }
        let first = start / 512 * 512;
        let extent = Extent::from_bytes(first, (start + bytes).next_multiple_of(512) - first);
        let extent = extent.expect("within the address space");
        match self.faults[0].borrow_mut().draw(Op::Write, extent, 512, 512) {
            // The system has done a part: it never fails after the last byte.
            Transfer::Error { moved, error } => {
                ((first + moved).saturating_sub(start).min(bytes - 1), Err(error))
            }
            // The caller continues a short write. Delays and silent faults are those of direct I/O.
            _ => (bytes, Ok(())),
        }
    }

    /// The write has ended: releases the pages.
    pub(super) fn end_appending(&mut self, index: usize, now: Instant) {
        let held = self.append_of(index).held.clone();
        if let Some((held, _)) = &held {
            let offset = self.call(index).offset;
            self.check_pages(&(offset + held.start as u64..offset + held.end as u64));
            if self.append_of(index).written.is_none() {
                self.write_appended(index);
            }
        }
        let append = self.append_of(index);
        append.held = None;
        let written = append.written.take();
        let is_written = matches!(written, Some((_, Ok(()))));
        match (written, &held) {
            (Some((_, Ok(()))), _) => self.fill_pieces(index),
            // Before the last page is released.
            (Some((moved, Err(_))), Some((held, _))) => {
                let start = self.call(index).offset + held.start as u64;
                self.cut_refused(start, moved);
            }
            _ => {}
        }
        let call = self.calls[index].as_mut().expect("in progress");
        let offset = call.offset;
        let Kind::Append(append) = &mut call.kind else { unreachable!("an append") };
        let path = self.path.as_mut().expect("of a page cache");
        if is_written {
            path.end_append(&mut append.write, now);
        } else {
            path.cancel_append(&mut append.write, now);
        }
        let size_bytes = path.geometry().size_bytes;
        if let Some((held, event)) = held {
            let range = offset + held.start as u64..offset + held.end as u64;
            let clock = self.tick();
            self.contents.end_write(&range, event, clock, is_written, false);
            if is_written {
                self.append_of(index).appended_bytes = held.end as u64;
                assert_eq!(size_bytes, range.end, "rule 5: an append moves the end to another byte");
                self.end_mut().settled_bytes = range.end;
                self.move_end(range.end);
            }
        }
        if let Some((_, Err(why))) = written {
            self.failed(index, why);
        }
        let append = self.append_of(index);
        if append.appended_bytes < append.write.taken() as u64 {
            if !append.write.is_waiting() {
                return self.end(index, Ok(()), now);
            }
            append.is_over = true;
        }
        self.call(index).stage = Stage::Ready;
    }

    /// An append has ended, and its caller goes on.
    pub(super) fn pass_appended(&mut self, append: &Append, parent: usize) {
        let Goal::Write { appended_bytes, .. } = &mut self.move_of(parent).goal else {
            unreachable!("a write")
        };
        *appended_bytes = Some(append.appended_bytes);
    }

    /// The caller of an append takes the bytes that are in the file from its write. Returns whether none is left.
    pub(super) fn take_appended(&mut self, index: usize) -> bool {
        let Goal::Write { write, appended_bytes, .. } = &mut self.move_of(index).goal else {
            unreachable!("a write")
        };
        let bytes = appended_bytes.replace(0).expect("it has appended");
        write.offset += bytes;
        write.bytes -= bytes;
        write.bytes == 0
    }

    /// Removes the part of a refused write, `written` bytes from `offset` on, that the file may have past the end of
    /// the volume. A system that refuses a longer file does not refuse this.
    pub(super) fn cut_refused(&mut self, offset: u64, written: u64) {
        if Appends::has_refused_part(self.size_bytes, offset, written, self.file_length()) {
            self.change_length(self.size_bytes);
        }
        let (length, size_bytes) = (self.file_length(), self.size_bytes);
        let outside_bytes = self.end_mut().outside_bytes;
        assert!(
            length.is_none_or(|length| length <= size_bytes || length == outside_bytes),
            "rule 5: a refused write leaves a file of {length:?} bytes, the volume has {size_bytes}"
        );
    }
}
