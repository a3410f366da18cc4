//! Direct I/O and resizes in the model. They use a separate queue, so only the cache orders them with write-back. A
//! device takes the bytes at the start or at the end of an I/O.

use super::contents::HalfNumber;
use super::{Call, PAGE_BYTES, Stage, Task, World};
use iopath_core::buffered::ResizeStep;
use iopath_core::cache::{DirectStep, DirectTag, Forced};
use iopath_core::{Op, Page, PageRange};
use std::ops::Range;

/// A direct I/O in flight.
#[derive(Debug)]
pub(super) struct Going {
    task: usize,
    /// `None`: a read that did not take the lock.
    tag: Option<DirectTag>,
    /// The value of a write.
    number: Option<u64>,
    halves: Range<HalfNumber>,
    /// The device takes the bytes at its end.
    is_late: bool,
    /// The device was resized since the I/O began.
    is_resized: bool,
    /// The values that a read has returned.
    found: Vec<u64>,
}

impl Going {
    /// Whether it changes a part of a page.
    fn writes_to(&self, page: u64) -> bool {
        self.number.is_some() && pages_of(&self.halves).contains(Page(page))
    }
}

pub(super) fn halves_of(pages: PageRange) -> Range<HalfNumber> {
    pages.start().0 as usize * 2..pages.end().0 as usize * 2
}

fn pages_of(halves: &Range<HalfNumber>) -> PageRange {
    PageRange::touched_by(halves.start as u64, halves.len() as u64, 2)
}

impl World {
    /// The halves of a direct call.
    fn direct_halves(&self, call: Call) -> Range<HalfNumber> {
        match call {
            Call::DirectRead(start, halves)
            | Call::DirectWrite(start, halves)
            | Call::DirectForced(start, halves) => start..start + halves,
            Call::Truncate(end) => end as usize * 2..self.device.len() * 2,
            Call::Grow => 0..0,
            call => unreachable!("{call:?} is not direct"),
        }
    }

    pub(super) fn begin_direct(&mut self, index: usize) {
        let (call, waiter) = (self.tasks[index].call, index as u64);
        let page_bytes = u64::from(PAGE_BYTES);
        match call {
            Call::Truncate(end) => return self.begin_resize(index, end * page_bytes),
            Call::Grow => return self.begin_resize(index, self.device.len() as u64 * page_bytes),
            _ => {}
        }
        let halves = self.direct_halves(call);
        if pages_of(&halves).end() > self.path.geometry().end() {
            // The caller refuses it.
            self.tasks[index].stage = Stage::Done;
            return;
        }
        let op = if matches!(call, Call::DirectRead(..)) { Op::Read } else { Op::Write };
        if op == Op::Read {
            self.tasks[index].owes = self.contents.oldest_of_all();
            if self.cache().hot().is_clean() {
                return self.start_direct(index, None);
            }
        }
        let (offset, bytes) = (halves.start as u64 * page_bytes / 2, halves.len() as u64 * page_bytes / 2);
        if let DirectStep::Go(tag) = self.path.begin_direct(op, offset, bytes, 1, waiter) {
            self.start_direct(index, Some(tag));
        }
    }

    fn begin_resize(&mut self, index: usize, size_bytes: u64) {
        let old_bytes = self.path.geometry().size_bytes;
        let call = self.tasks[index].call;
        let is_cut = matches!(call, Call::Truncate(_));
        if size_bytes == old_bytes || is_cut != (size_bytes < old_bytes) {
            self.tasks[index].stage = Stage::Done;
            return;
        }
        if is_cut {
            let halves = self.direct_halves(call);
            self.contents.begin_cut(halves.clone());
            self.forget_owed(halves);
        }
        self.resize = Some(self.path.begin_resize(size_bytes));
        self.continue_resize(index);
    }

    pub(super) fn continue_resize(&mut self, index: usize) {
        let resize = self.resize.as_mut().expect("it has begun");
        let step = self.path.continue_resize(resize, index as u64);
        if step.expect("a page that cannot be written is truncated") == ResizeStep::Resize {
            self.start_direct(index, None);
        }
    }

    pub(super) fn start_direct(&mut self, task: usize, tag: Option<DirectTag>) {
        let call = self.tasks[task].call;
        let halves = self.direct_halves(call);
        self.tasks[task].stage = Stage::Waiting;
        let mut going = Going {
            task,
            tag,
            number: None,
            halves,
            is_late: self.semantics.directs_late,
            is_resized: false,
            found: Vec::new(),
        };
        let is_resize = matches!(call, Call::Truncate(_) | Call::Grow);
        if !is_resize && pages_of(&going.halves).end() > self.path.geometry().end() {
            // The volume was truncated meanwhile: the caller refuses the I/O.
            going.tag.into_iter().for_each(|tag| self.path.end_direct(tag));
            self.tasks[task].stage = Stage::Done;
            return;
        }
        if !matches!(call, Call::DirectRead(..) | Call::Grow) {
            self.writes += 1;
            going.number = Some(self.writes);
            self.check_range_is_free(&going, call);
            self.contents.begin_direct(self.writes, going.halves.clone());
        }
        if !going.is_late {
            self.transfer(&mut going, true);
        }
        self.direct.push(going);
    }

    /// Checks that no writer is in the range, and that the device has all earlier writes.
    fn check_range_is_free(&mut self, going: &Going, call: Call) {
        let pages = pages_of(&going.halves);
        self.being_read.retain(|page| !pages.contains(Page(*page)));
        for page in pages.iter() {
            assert!(!self.is_written(page.0), "{call:?} goes while a writer is in page {page}");
        }
        for half in halves_of(pages) {
            let value = self.device[half / 2][half % 2];
            let is_there = self.contents.accepts(half, value);
            assert!(is_there, "{call:?} goes while half {half} is {value} on the device");
        }
    }

    /// Moves bytes between caller and device: all of them or, if it fails, the first.
    fn transfer(&mut self, going: &mut Going, is_ok: bool) {
        let halves = going.halves.clone();
        match self.tasks[going.task].call {
            Call::Truncate(_) | Call::Grow if !is_ok => return,
            Call::Truncate(end) => (self.device_end, going.is_resized) = (end, true),
            Call::Grow => (self.device_end, going.is_resized) = (self.device.len() as u64, true),
            _ => {}
        }
        let Some(number) = going.number else {
            going.found = halves.map(|half| self.device[half / 2][half % 2]).collect();
            return;
        };
        let moved = if is_ok { halves.len() } else { 1 };
        halves.take(moved).for_each(|half| self.device[half / 2][half % 2] = number);
    }

    pub(super) fn end_direct(&mut self, index: usize, is_ok: bool) {
        let mut going = self.direct.remove(index);
        let call = self.tasks[going.task].call;
        let is_resize = matches!(call, Call::Truncate(_) | Call::Grow);
        // The file was resized, also if the I/O fails.
        let is_ok = is_ok || going.is_resized;
        if going.is_late {
            self.transfer(&mut going, is_ok);
        }
        let is_forced = is_ok && matches!(call, Call::DirectForced(..));
        if is_resize {
            self.end_resize(is_ok);
        }
        let forced = self.cache_ends(&going, is_forced);
        match going.number {
            Some(number) => self.end_direct_write(&going, number, is_ok),
            None if is_ok => self.check_found(&going),
            None => {}
        }
        self.tasks[going.task].stage = Stage::Done;
        if let Some(forced) = forced {
            let task = &mut self.tasks[going.task];
            task.stage = Stage::Waiting;
            task.owes = vec![None; self.device.len() * 2];
            for half in going.halves.clone() {
                task.owes[half] = self.contents.oldest(half);
            }
            self.path.await_forced(forced, going.task as u64);
        }
        self.failed += u64::from(!is_ok);
    }

    fn end_resize(&mut self, is_ok: bool) {
        let resize = self.resize.take().expect("it has begun");
        let is_withdrawn = resize.is_cut() && !is_ok;
        self.path.end_resize(resize, is_ok);
        if is_withdrawn && self.cache().loss().is_some() {
            // Dirty pages were dropped: flushes fail from now on.
            self.lost.insert(self.device.len());
        }
    }

    fn cache_ends(&mut self, going: &Going, is_forced: bool) -> Option<Forced> {
        let mut forced = None;
        match going.tag {
            Some(tag) if is_forced => forced = Some(self.path.end_forced(tag)),
            Some(tag) => self.path.end_direct(tag),
            None => {}
        }
        if going.number.is_some() {
            let pages = pages_of(&going.halves);
            self.being_read.retain(|page| !pages.contains(Page(*page)));
        }
        forced
    }

    /// A flush of the device has failed: forced writes in flight, and those that wait for a flush, may be lost.
    pub(super) fn doom_forced(&mut self) {
        for going in &self.direct {
            self.tasks[going.task].is_doomed = true;
        }
        let waits = |task: &&mut Task| task.stage == Stage::Waiting && !task.owes.is_empty();
        let forced = |task: &&mut Task| matches!(task.call, Call::DirectForced(..));
        self.tasks.iter_mut().filter(waits).filter(forced).for_each(|task| task.is_doomed = true);
    }

    fn end_direct_write(&mut self, going: &Going, number: u64, is_ok: bool) {
        if matches!(self.tasks[going.task].call, Call::Truncate(_)) {
            self.contents.end_cut(going.halves.clone());
        }
        self.contents.end_direct(number, is_ok);
        for half in going.halves.clone() {
            self.contents.determine(half, self.device[half / 2][half % 2]);
        }
    }

    /// Checks that a direct read has returned no value older than the values at its call.
    fn check_found(&self, going: &Going) {
        let Task { call, owes, .. } = &self.tasks[going.task];
        for (half, found) in going.halves.clone().zip(&going.found) {
            let is_new = owes[half].is_none_or(|owed| *found >= owed);
            assert!(is_new, "{call:?} finds {found} in half {half}, {owes:?} was there");
        }
    }

    pub(super) fn is_under_direct(&self, page: u64) -> bool {
        self.direct.iter().any(|going| going.writes_to(page))
    }

    /// The device loses the bytes of direct writes in flight, and takes them again. A read in flight may return the old
    /// bytes.
    pub(super) fn lose_direct(&mut self) {
        for going in &mut self.direct {
            going.is_late |= going.number.is_some();
            if going.number.is_none() {
                self.tasks[going.task].owes.fill(None);
            }
        }
    }
}
