//! A new file while its page cache is not open: a thread writes and flushes it by system calls of its own, as the crate
//! `iopath` does. Other calls wait for that thread, and the first one that needs the cache opens it.

use std::ops::Range;

use iopath_core::volume::{Appends, NewFile};
use iopath_core::{Duration, Extent, Instant, IoError, Op};

use super::Volume;
use super::call::{Call, Kind, Plain, PlainWrite, Stage};
use crate::contents::NO_QUEUE;
use crate::scenario::{Do, Fine};

/// A new file without a page cache.
#[derive(Debug, Default)]
pub(super) struct WithoutCache {
    file: NewFile,
    /// The calls that wait for the thread that uses it.
    waiting: Vec<(Do, Fine)>,
}

impl Volume {
    /// The volume is opened: whether it can do without its page cache.
    pub(super) fn open_new_file(&mut self) {
        let is_new = self.is_plain_file() && self.size_bytes == 0 && self.outsider.is_none();
        let has_steps = self.end.as_ref().is_some_and(|end| end.plan.step_bytes.is_some());
        let can_do_without = is_new && has_steps && self.own.is_some();
        self.without_cache = can_do_without.then(WithoutCache::default);
    }

    /// What the page cache of a new file would have to know, if it were opened now.
    pub(super) fn new_file_parts(&self) -> Option<(Range<u64>, Option<IoError>)> {
        self.without_cache.as_ref().map(|without| without.file.clone().into_parts())
    }

    /// Begins the call of an action on a new file. Returns `false` if the page cache is open now.
    pub(super) fn begin_plain(&mut self, what: &Do, fine: Fine, now: Instant) -> bool {
        let is_busy = self.calls_in_progress() > 0;
        let Some(without) = &mut self.without_cache else { return false };
        if matches!(what, Do::GrowOutside { .. } | Do::SetBudget { .. }) {
            // No call of the program.
            return false;
        }
        if is_busy {
            without.waiting.push((what.clone(), fine));
            return true;
        }
        match *what {
            Do::Flush { .. } => {
                self.end_mut().appended_bytes = 0;
                self.add(Kind::Plain(Plain::Flush), 0, 0, "plain flush", now);
                return true;
            }
            Do::Append { hold, is_direct: false, .. } | Do::Write { hold, .. } => {
                if let Some((offset, bytes)) = self.plain_range(what, fine) {
                    self.begin_plain_write(what, fine, offset, bytes, hold, now);
                    return true;
                }
            }
            _ => {}
        }
        self.open_cache(now);
        false
    }

    /// The range of a write, if a plain write may execute it.
    fn plain_range(&mut self, what: &Do, fine: Fine) -> Option<(u64, u64)> {
        let (offset, bytes) = match *what {
            Do::Append { back, gap, len, .. } => {
                let offset = (self.size_bytes.saturating_sub(back * 64) + gap * 64).min(self.plan.bytes);
                let left_out = u64::from(fine.start) + u64::from(fine.end);
                (offset + u64::from(fine.start), (len * 64).saturating_sub(left_out).max(1))
            }
            Do::Write { at, len, .. } => self.range(at, len, fine),
            _ => unreachable!("{what:?} is no write"),
        };
        let size_bytes = self.size_bytes;
        let end = self.end_mut();
        let written = Appends { bytes: end.appended_bytes };
        let (step_bytes, limit_bytes) = (end.plan.step_bytes.expect("of a new file"), end.plan.limit_bytes);
        let is_accepted = self.without().file.accepts(size_bytes, offset, bytes, written, step_bytes)
            && offset + bytes <= limit_bytes;
        (is_accepted && bytes > 0 && self.may_bypass_queue()).then_some((offset, bytes))
    }

    fn begin_plain_write(
        &mut self,
        what: &Do,
        fine: Fine,
        offset: u64,
        bytes: u64,
        hold: Duration,
        now: Instant,
    ) {
        let event = self.tick();
        let write = PlainWrite { what: what.clone(), fine, event, written: None };
        self.add(Kind::Plain(Plain::Write(write)), offset, bytes, "plain write", now);
        let index = self.calls.iter().position(Option::is_some).expect("the only call");
        let token = self.call(index).token;
        let range = offset..offset + bytes;
        self.contents.begin_write(&range, token, event, NO_QUEUE);
        self.without().file.handle_write(range);
        let end = self.end_mut();
        (end.owner, end.asked_bytes) = (Some(index), end.asked_bytes.max(offset + bytes));
        if self.plan.writes_early {
            self.execute_plain(index);
        }
        self.call(index).stage = Stage::Appending { until: now + self.plan.latency + hold };
    }

    fn without(&mut self) -> &mut WithoutCache {
        self.without_cache.as_mut().expect("of a new file")
    }

    /// Writes the bytes to the file.
    fn execute_plain(&mut self, index: usize) {
        let Call { offset, bytes, token, .. } = *self.call(index);
        self.plain_of(index).written = Some(self.write_plainly(offset, bytes as usize, token));
    }

    fn plain_of(&mut self, index: usize) -> &mut PlainWrite {
        let Kind::Plain(Plain::Write(write)) = &mut self.call(index).kind else {
            unreachable!("a plain write")
        };
        write
    }

    /// Begins a flush that the thread executes.
    pub(super) fn step_plain(&mut self, index: usize, now: Instant) {
        self.call(index).stage = Stage::AtDevice;
        self.begin_own(index, None, Op::Flush, Extent::EMPTY, &[], now);
    }

    /// A plain write has ended.
    pub(super) fn end_plain_write(&mut self, index: usize, now: Instant) {
        let Call { offset, bytes, .. } = *self.call(index);
        if self.plain_of(index).written.is_none() {
            self.execute_plain(index);
        }
        let PlainWrite { what, fine, event, written } = self.plain_of(index).clone();
        let (moved, result) = written.expect("it was executed above");
        let end = offset + bytes;
        let clock = self.tick();
        self.contents.end_write(&(offset..end), event, clock, result.is_ok(), false);
        if result.is_ok() {
            self.end_mut().appended_bytes += bytes;
            if end > self.size_bytes {
                self.end_mut().settled_bytes = end;
                self.move_end(end);
            }
        } else {
            self.cut_refused(offset, moved);
        }
        self.end_mut().owner = None;
        self.finish(index, result.is_ok(), now);
        let next = match what {
            // The way through the page cache reports the error.
            _ if result.is_err() => Some((what, fine)),
            Do::Append { forced: true, .. } => Some((Do::Flush { queue: 0 }, Fine::NONE)),
            _ => None,
        };
        self.begin_next(next, result.is_err(), now);
    }

    /// Begins what the thread does next, and the calls that have waited for it: two threads need the page cache.
    fn begin_next(&mut self, next: Option<(Do, Fine)>, needs_cache: bool, now: Instant) {
        let waiting = std::mem::take(&mut self.without().waiting);
        if needs_cache || !waiting.is_empty() {
            self.open_cache(now);
        }
        for (what, fine) in next.into_iter().chain(waiting) {
            self.begin(&what, fine, now);
        }
    }

    /// A flush that a thread has executed has ended.
    pub(super) fn end_plain_flush(&mut self, index: usize, result: Result<(), IoError>, now: Instant) {
        let flushed = self.without().file.handle_flush(result);
        self.end(index, flushed, now);
        self.begin_next(None, false, now);
    }

    /// Opens the page cache, unless it is.
    pub(super) fn open_cache(&mut self, now: Instant) {
        if self.calls_in_progress() > 0 {
            return;
        }
        let Some(WithoutCache { file, waiting }) = self.without_cache.take() else { return };
        assert!(waiting.is_empty(), "rule 8: calls wait for a thread that has ended: {waiting:?}");
        self.log(now, 0, "open cache", 0, self.size_bytes);
        let (unflushed, lost) = file.into_parts();
        let cache = self.plan.cache.expect("of a page cache");
        let mut path = self.new_path(&cache);
        path.handle_earlier_writes(unflushed, lost);
        self.path = Some(path);
    }

    /// The program accepts the loss of bytes.
    pub(super) fn accept_loss(&mut self) {
        if let Some(without) = &mut self.without_cache {
            without.file.accept_loss();
        }
        if let Some(path) = &mut self.path {
            path.accept_loss();
            self.contents.accept_loss();
        }
    }
}
