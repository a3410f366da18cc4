//! A page cache, the memory of its frames, a disk behind it and callers in the midst of their calls; and the model
//! that knows what every page must hold. Decides nothing: whoever drives it picks the next step.
//!
//! A page is two halves, each the number of the write that put it there. Numbers only grow, so a page on the medium
//! is new enough if both its halves are.

mod contents;
mod direct;

use contents::Contents;
use direct::{Going, halves_of};
use iopath_core::cache::{CacheConfig, Frame, Lookup, Outcome, PageCache, PageIo, Part, WriteStep};
use iopath_core::{Duration, Instant, IoError, Op, Page, PageRange};
use std::collections::BTreeSet;
use std::ops::Range;

/// Both halves of a page.
type Bytes = [u64; 2];

/// A call that somebody makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    Read(u64),
    Write(u64, Part),
    Flush,
    WriteBack(u64, u64),
    Invalidate(u64, u64),
    Discard(u64, u64),
    Prefetch(u64, u64),
    /// First half and count.
    DirectRead(usize, usize),
    DirectWrite(usize, usize),
    /// On the medium when it ends.
    DirectForced(usize, usize),
    /// From this page on.
    Truncate(u64),
}

/// How far a call has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    New,
    Waiting,
    /// Has a page and looks at it.
    Pinned(Frame, Bytes),
    /// Is copying into a page.
    Copying(Frame),
    Over,
}

#[derive(Debug)]
struct Task {
    call: Call,
    stage: Stage,
    /// Flush, write-back, direct read: what each half held when it was called, if that is known. Forced write: when the
    /// device had carried it out; nothing before.
    owes: Vec<Option<u64>>,
    /// Forced write: a flush of the device has failed since it went there.
    is_doomed: bool,
}

#[derive(Debug)]
struct InFlight {
    io: PageIo,
    frames: Vec<Frame>,
    /// Write: what was in the frames when it was submitted. Flush: what was in the device.
    bytes: Vec<Bytes>,
}

/// One thing that can happen next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// A caller goes on.
    Task(usize),
    /// The device ends an I/O: well or not.
    Io(usize, bool),
    /// The device ends a direct I/O: well or not.
    Direct(usize, bool),
}

/// What devices differ in: independent of one another.
#[allow(clippy::struct_excessive_bools)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Device {
    /// It takes what is in the frames when it ends a write, rather than when it began.
    pub(crate) writes_late: bool,
    /// It does a direct I/O when it ends it, rather than when it began.
    pub(crate) directs_late: bool,
    /// A failed flush loses what was not on the medium.
    pub(crate) flush_loses: bool,
    /// A flush saves what the device had taken when the flush began, rather than when it ended.
    pub(crate) flushes_early: bool,
}

pub(crate) struct World {
    cache: PageCache,
    arena: Vec<Bytes>,
    /// What a read of the device gives, and what is left without power.
    device: Vec<Bytes>,
    medium: Vec<Bytes>,
    contents: Contents,
    in_flight: Vec<InFlight>,
    direct: Vec<Going>,
    tasks: Vec<Task>,
    writes: u64,
    pub(crate) semantics: Device,
    pub(crate) now: Instant,
    lost: BTreeSet<usize>,
    /// Pages at the device to be read that nobody has dropped since.
    being_read: BTreeSet<u64>,
    pub(crate) done: u64,
    pub(crate) failed: u64,
}

impl World {
    pub(crate) fn new(config: CacheConfig, pages: usize) -> Self {
        Self {
            cache: PageCache::new(config),
            arena: vec![[u64::MAX; 2]; config.frames as usize],
            device: vec![[0; 2]; pages],
            medium: vec![[0; 2]; pages],
            contents: Contents::new(pages * 2),
            in_flight: Vec::new(),
            direct: Vec::new(),
            tasks: Vec::new(),
            writes: 0,
            semantics: Device::default(),
            now: Instant::ZERO,
            lost: BTreeSet::new(),
            being_read: BTreeSet::new(),
            done: 0,
            failed: 0,
        }
    }

    pub(crate) fn call(&mut self, call: Call) {
        let task = Task { call, stage: Stage::New, owes: Vec::new(), is_doomed: false };
        // A place that nobody waits at any more is used again.
        match self.tasks.iter().position(|task| task.stage == Stage::Over) {
            Some(place) => self.tasks[place] = task,
            None => self.tasks.push(task),
        }
    }

    /// Calls that are not over.
    pub(crate) fn open_calls(&self) -> usize {
        self.tasks.iter().filter(|task| task.stage != Stage::Over).count()
    }

    /// All that can happen next. An I/O ends only after those before it that it must not pass (rule 1 of the path).
    pub(crate) fn steps(&self, may_fail: bool) -> Vec<Step> {
        let goes_on = |task: &Task| !matches!(task.stage, Stage::Waiting | Stage::Over);
        let tasks = self.tasks.iter().enumerate().filter(|(_, task)| goes_on(task));
        let mut steps: Vec<Step> = tasks.map(|(index, _)| Step::Task(index)).collect();
        for (index, later) in self.in_flight.iter().enumerate() {
            let in_the_way = |earlier: &InFlight| {
                let overlaps = !earlier.io.pages.and(later.io.pages).is_empty();
                overlaps && (earlier.io.op == Op::Write || later.io.op == Op::Write)
            };
            if !self.in_flight[..index].iter().any(in_the_way) {
                steps.push(Step::Io(index, true));
                if may_fail {
                    steps.push(Step::Io(index, false));
                }
            }
        }
        for index in 0..self.direct.len() {
            steps.push(Step::Direct(index, true));
            if may_fail {
                steps.push(Step::Direct(index, false));
            }
        }
        steps
    }

    pub(crate) fn take(&mut self, step: Step) {
        match step {
            Step::Task(index) => self.go_on(index),
            Step::Io(index, is_ok) => self.end_io(index, is_ok),
            Step::Direct(index, is_ok) => self.end_direct(index, is_ok),
        }
        self.settle();
    }

    /// Everything the state machine wants done now.
    fn settle(&mut self) {
        while let Some(ready) = self.cache.poll_ready() {
            self.wake(ready.waiter as usize, ready.outcome);
        }
        while let Some(io) = self.cache.poll_io(self.now) {
            let frames: Vec<Frame> = self.cache.frames_of(io.tag).collect();
            assert_eq!(frames.len() as u64, io.pages.pages());
            let overlaps =
                |other: &InFlight| other.io.op == Op::Write && !other.io.pages.and(io.pages).is_empty();
            assert!(
                io.op != Op::Write || !self.in_flight.iter().any(overlaps),
                "{io:?}: two writes of a page"
            );
            if io.op == Op::Read {
                for page in io.pages.iter() {
                    // A truncation drops pages some time after it was called.
                    let is_first =
                        self.being_read.insert(page.0) || self.contents.is_cut(page.0 as usize * 2);
                    assert!(is_first, "page {page} is read twice at once");
                }
            }
            let bytes = match io.op {
                Op::Flush => self.device.clone(),
                _ => frames.iter().map(|frame| self.arena[frame.0 as usize]).collect(),
            };
            self.in_flight.push(InFlight { io, frames, bytes });
        }
        while self.cache.poll_evicted_unused().is_some() {}
        assert_eq!(self.cache.hot().is_clean(), self.cache.stats().dirty == 0);
        for InFlight { io, frames, bytes } in self.in_flight.iter().filter(|it| it.io.op == Op::Write) {
            let there = frames.iter().map(|frame| self.arena[frame.0 as usize]);
            assert!(there.eq(bytes.iter().copied()), "{io:?} changes on its way");
        }
        for task in &self.tasks {
            if let Stage::Pinned(frame, bytes) = task.stage {
                assert_eq!(self.arena[frame.0 as usize], bytes, "{task:?} sees its page change");
            }
        }
    }

    fn go_on(&mut self, index: usize) {
        let Task { call, stage, .. } = self.tasks[index];
        match (stage, call) {
            (Stage::Pinned(frame, _), _) => {
                self.tasks[index].stage = Stage::Over;
                if self.cache.hot().unpin(frame) {
                    self.cache.handle_unpinned();
                }
            }
            (Stage::Copying(frame), Call::Write(page, part)) => self.end_write(index, frame, page, part),
            (Stage::New, _) => self.begin(index),
            _ => unreachable!("{:?} cannot go on", self.tasks[index]),
        }
    }

    fn begin(&mut self, index: usize) {
        let waiter = index as u64;
        self.tasks[index].stage = Stage::Waiting;
        match self.tasks[index].call {
            Call::Read(page) => {
                if let Lookup::Hit(pinned) = self.cache.read(Page(page), waiter) {
                    self.look_at(index, pinned.frame);
                }
            }
            Call::Write(page, part) => match self.cache.begin_write(Page(page), part, waiter) {
                WriteStep::Into(frame) => self.start_write(index, frame),
                WriteStep::Copy { from, to } => {
                    self.arena[to.0 as usize] = self.arena[from.0 as usize];
                    if self.cache.hot().unpin(from) {
                        self.cache.handle_unpinned();
                    }
                    self.start_write(index, to);
                }
                WriteStep::Wait => {}
            },
            Call::Flush => {
                self.tasks[index].owes = self.contents.oldest_of_all();
                self.cache.flush(waiter);
            }
            Call::WriteBack(start, pages) => {
                self.tasks[index].owes = self.contents.oldest_of_all();
                self.cache.write_back(PageRange::new(Page(start), pages), waiter);
            }
            Call::Invalidate(start, pages) => {
                let range = PageRange::new(Page(start), pages);
                self.being_read.retain(|page| !range.contains(Page(*page)));
                self.cache.invalidate(range);
                self.tasks[index].stage = Stage::Over;
            }
            Call::Discard(start, pages) => self.discard(index, PageRange::new(Page(start), pages)),
            Call::Prefetch(start, pages) => {
                self.cache.read_ahead(PageRange::new(Page(start), pages), |_| true);
                self.tasks[index].stage = Stage::Over;
            }
            Call::DirectRead(..) | Call::DirectWrite(..) | Call::DirectForced(..) | Call::Truncate(_) => {
                self.begin_direct(index);
            }
        }
    }

    /// A writer has the page to itself.
    fn start_write(&mut self, index: usize, frame: Frame) {
        let Call::Write(page, _) = self.tasks[index].call else {
            unreachable!("only writes are given frames")
        };
        assert!(!self.is_under_direct(page), "a writer in page {page} under direct I/O");
        self.tasks[index].stage = Stage::Copying(frame);
    }

    fn discard(&mut self, index: usize, range: PageRange) {
        self.tasks[index].stage = Stage::Over;
        self.cache.discard(range);
        for page in range.iter() {
            self.being_read.remove(&page.0);
            // What a writer is in the midst of is kept.
            if !self.cache.is_cached(page) {
                self.forget(page.0 as usize);
            }
        }
    }

    fn end_write(&mut self, index: usize, frame: Frame, page: u64, part: Part) {
        self.writes += 1;
        let bytes = &mut self.arena[frame.0 as usize];
        let half = page as usize * 2;
        if part == Part::Some {
            self.contents.look(half, bytes[0]);
            self.contents.look(half + 1, bytes[1]);
            bytes[0] = self.writes;
        } else {
            *bytes = [self.writes; 2];
            self.contents.write(half + 1, self.writes);
        }
        self.contents.write(half, self.writes);
        self.cache.end_write(frame, self.now);
        self.tasks[index].stage = Stage::Over;
    }

    fn look_at(&mut self, index: usize, frame: Frame) {
        let Call::Read(page) = self.tasks[index].call else { unreachable!("only reads are given pins") };
        let bytes = self.arena[frame.0 as usize];
        self.contents.look(page as usize * 2, bytes[0]);
        self.contents.look(page as usize * 2 + 1, bytes[1]);
        self.tasks[index].stage = Stage::Pinned(frame, bytes);
    }

    fn wake(&mut self, index: usize, outcome: Outcome) {
        assert_eq!(self.tasks[index].stage, Stage::Waiting, "woken without waiting: {outcome:?}");
        match outcome {
            Outcome::Pinned(frame) => self.look_at(index, frame),
            Outcome::Writable(frame) => self.start_write(index, frame),
            Outcome::Direct(tag) => self.start_direct(index, Some(tag)),
            Outcome::Retry => self.tasks[index].stage = Stage::New,
            Outcome::Failed(_) => {
                let Task { call, owes, is_doomed, .. } = &self.tasks[index];
                let may_fail = *is_doomed || owes.is_empty() || !matches!(call, Call::DirectForced(..));
                assert!(may_fail, "{call:?} fails though the write went well and no flush has failed since");
                assert!(!matches!(self.tasks[index].call, Call::Truncate(_)), "what fails is cut off");
                self.failed += 1;
                self.tasks[index].stage = Stage::Over;
            }
            Outcome::Done => {
                self.done += 1;
                self.check_done(index);
                self.tasks[index].stage = Stage::Over;
            }
        }
    }

    /// What a flush or write-back promised when it said that it was done.
    fn check_done(&self, index: usize) {
        let Task { call, owes, is_doomed, .. } = &self.tasks[index];
        assert!(!is_doomed, "{call:?} is done though a flush failed that may have lost it");
        let (range, place, bytes) = match *call {
            Call::Flush | Call::DirectForced(..) => (PageRange::ALL, "medium", &self.medium),
            Call::WriteBack(start, pages) => (PageRange::new(Page(start), pages), "device", &self.device),
            call => unreachable!("{call:?} is not done but over"),
        };
        assert!(
            self.lost.is_empty() || *call != Call::Flush,
            "a flush is done though {:?} are lost",
            self.lost
        );
        for (half, owed) in owes.iter().enumerate() {
            let Some(owed) = owed.filter(|_| range.contains(Page(half as u64 / 2))) else { continue };
            let held = bytes[half / 2][half % 2];
            assert!(held >= owed, "{call:?}: half {half} holds {held} on the {place}, {owed} is owed");
        }
    }

    fn end_io(&mut self, index: usize, is_ok: bool) {
        let InFlight { io, frames, bytes } = self.in_flight.remove(index);
        let mut lost = Vec::new();
        match io.op {
            Op::Read => {
                for (page, frame) in io.pages.iter().zip(&frames) {
                    self.being_read.remove(&page.0);
                    self.arena[frame.0 as usize] =
                        if is_ok { self.device[page.0 as usize] } else { [u64::MAX; 2] };
                }
            }
            Op::Write if is_ok => {
                for ((page, frame), early) in io.pages.iter().zip(&frames).zip(bytes) {
                    let late = self.arena[frame.0 as usize];
                    self.device[page.0 as usize] = if self.semantics.writes_late { late } else { early };
                }
            }
            Op::Write => {}
            _ if is_ok && self.semantics.flushes_early => self.medium = bytes,
            _ if is_ok => self.medium.clone_from(&self.device),
            _ => lost = self.fail_flush(),
        }
        let result = if is_ok { Ok(()) } else { Err(IoError::Media) };
        self.cache.handle_completion(io.tag, result, self.now);
        if io.op == Op::Flush && !is_ok {
            self.doom_forced();
            // What was being read while the device lost something is read again.
            self.being_read.retain(|page| self.cache.is_cached(Page(*page)));
        }
        self.check_loss(lost);
    }

    /// A flush fails; which pages the device has lost.
    fn fail_flush(&mut self) -> Vec<usize> {
        if !self.semantics.flush_loses {
            return Vec::new();
        }
        self.lose_direct();
        let is_lost = |half: usize| {
            let (taken, left) = (self.device[half / 2][half % 2], self.medium[half / 2][half % 2]);
            taken != left && !self.contents.accepts(half, left)
        };
        let lost = (0..self.device.len()).filter(|page| is_lost(page * 2) || is_lost(page * 2 + 1));
        let lost = lost.collect();
        self.device.clone_from(&self.medium);
        lost
    }

    /// What the device has lost the cache must write again, or know that it cannot.
    fn check_loss(&mut self, pages: Vec<usize>) {
        for page in pages {
            // A writer may be overwriting what was lost: then the cache may say so or not.
            let is_written = self.is_written(page as u64) && self.cache.loss().is_none();
            let is_gone = !self.holds(page as u64) && !is_written;
            if is_gone {
                assert!(self.cache.loss().is_some(), "page {page} is lost, and nobody knows");
                self.lost.insert(page);
                self.forget(page);
            }
        }
    }

    /// Nobody knows what the page holds until somebody looks.
    fn forget(&mut self, page: usize) {
        let halves = halves_of(PageRange::new(Page(page as u64), 1));
        self.contents.forget(halves.clone());
        self.forget_owed(halves);
    }

    fn forget_owed(&mut self, halves: Range<usize>) {
        let forgets =
            |task: &&mut Task| !task.owes.is_empty() && !matches!(task.call, Call::DirectForced(..));
        for task in self.tasks.iter_mut().filter(forgets) {
            task.owes[halves.clone()].fill(None);
        }
    }

    /// Whether the cache has the bytes of a page, not merely a place for them.
    fn holds(&self, page: u64) -> bool {
        let pinned = self.cache.hot().try_pin(Page(page));
        pinned.map(|pinned| self.cache.hot().unpin(pinned.frame)).is_ok()
    }

    fn is_written(&self, page: u64) -> bool {
        let is_writer = |task: &Task| matches!(task.call, Call::Write(other, _) if other == page);
        self.tasks.iter().any(|task| matches!(task.stage, Stage::Copying(_)) && is_writer(task))
    }

    /// The owner has seen to what is lost.
    pub(crate) fn forget_loss(&mut self) {
        self.lost.clear();
        self.cache.forget_loss();
    }

    /// Lets everything end well, and checks that nothing is left behind.
    pub(crate) fn end(&mut self) {
        self.finish_all();
        self.forget_loss();
        let done = self.done;
        self.call(Call::Flush);
        self.finish_all();
        assert_eq!(self.done, done + 1, "a flush fails though the device does not");
        let stats = self.cache.stats();
        assert_eq!((stats.dirty, stats.writing, stats.failed), (0, 0, 0));
        for page in 0..self.device.len() as u64 {
            self.call(Call::Read(page));
            self.finish_all();
        }
    }

    fn finish_all(&mut self) {
        // Each step ends something, or one of the few that wait tries again.
        for _ in 0..10_000 {
            if let Some(step) = self.steps(false).first() {
                self.take(*step);
                self.now = self.now + Duration::from_micros(10);
            } else if let Some(due) = self.cache.poll_timeout().filter(|_| self.open_calls() > 0) {
                self.now = self.now.max(due);
                self.settle();
            } else {
                break;
            }
        }
        assert_eq!(self.open_calls(), 0, "calls wait for ever: {:?}", self.tasks);
        assert!(self.in_flight.is_empty() && self.direct.is_empty());
    }
}
