//! The buffered path, the memory of its frames, a disk, callers in the middle of their calls, and the model of the
//! bytes that every page must hold. The test that drives it chooses the next step.
//!
//! A page is two halves, and each half is the number of the write that wrote it. Numbers only grow, so a page on the
//! medium is new enough if both its halves are.

mod contents;
mod direct;
mod frames;
mod io;
mod writers;

use contents::Contents;
use direct::{Going, halves_of};
use frames::FrameList;
pub(crate) use frames::ModelFrames;
use iopath_core::buffered::{
    Advice, BufferedPath, BufferedRead, BufferedWrite, Geometry, PageBio, ReadStep, Resize, Step as PathStep,
};
use iopath_core::cache::{CacheConfig, DirectStep, DirectTag, Frame, Outcome, PageCache, Part};
use iopath_core::readahead::ReadaheadConfig;
use iopath_core::{Duration, Instant, IoError, Op, Page, PageRange};
use std::collections::BTreeSet;
use std::ops::Range;

/// Bytes of a page. The model checks its halves only.
pub(crate) const PAGE_BYTES: u32 = 4096;

/// Both halves of a page.
type Bytes = [u64; 2];

/// A call of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    Read(u64),
    Write(u64, Part),
    /// This many whole pages from this page on, by one call.
    WriteRun(u64, usize),
    Flush,
    WriteBack(u64, u64),
    Invalidate(u64, u64),
    Discard(u64, u64),
    Prefetch(u64, u64),
    /// First half and count.
    DirectRead(usize, usize),
    DirectWrite(usize, usize),
    /// On the medium at completion.
    DirectForced(usize, usize),
    /// The volume is truncated before this page.
    Truncate(u64),
    /// The volume gets its first size back.
    Grow,
}

/// The progress of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    New,
    Waiting,
    /// Reads a pinned page.
    Pinned(Frame, Bytes),
    /// Copies into pages.
    Copying,
    Done,
}

#[derive(Debug)]
struct Task {
    call: Call,
    stage: Stage,
    /// Write: its progress.
    write: Option<BufferedWrite>,
    /// Flush, write-back, direct read: the content of each half at the call, if known. Forced write: the content when
    /// the device had executed it; empty before.
    owes: Vec<Option<u64>>,
    /// Forced write: a flush of the device has failed since it was submitted.
    is_doomed: bool,
}

/// A bio at the device.
#[derive(Debug)]
struct InFlight {
    bio: PageBio<FrameList>,
    pages: PageRange,
    frames: Vec<Frame>,
    /// Write: the content of the frames at submission. Flush: the content of the device at submission.
    bytes: Vec<Bytes>,
}

/// A possible next event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// A caller continues.
    Task(usize),
    /// The device completes a bio, successfully or not.
    Io(usize, bool),
    /// The device completes a direct I/O, successfully or not.
    Direct(usize, bool),
}

/// Variants of device semantics, independent of each other.
#[allow(clippy::struct_excessive_bools)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Device {
    /// It takes the content of the frames at the end of a write instead of at its start.
    pub(crate) writes_late: bool,
    /// It performs a direct I/O at its end instead of at its start.
    pub(crate) directs_late: bool,
    /// A failed flush loses all bytes that were not on the medium.
    pub(crate) flush_loses: bool,
    /// A flush saves the bytes that the device had taken at the start of the flush instead of at its end.
    pub(crate) flushes_early: bool,
}

pub(crate) struct World {
    path: BufferedPath<ModelFrames>,
    arena: Vec<Bytes>,
    /// The bytes that a read of the device returns, and the bytes that survive a power failure.
    device: Vec<Bytes>,
    medium: Vec<Bytes>,
    contents: Contents,
    in_flight: Vec<InFlight>,
    direct: Vec<Going>,
    /// A resize that has begun.
    resize: Option<Resize>,
    /// The size of the device in pages.
    device_end: u64,
    tasks: Vec<Task>,
    writes: u64,
    pub(crate) semantics: Device,
    pub(crate) now: Instant,
    lost: BTreeSet<usize>,
    /// Pages being read that have not been dropped since.
    being_read: BTreeSet<u64>,
    pub(crate) done: u64,
    pub(crate) failed: u64,
}

impl World {
    /// Without readahead, and with one bio for each page I/O, so that current are few schedules.
    pub(crate) fn new(config: CacheConfig, pages: usize) -> Self {
        Self::with(config, pages, None, ModelFrames { joins_all: true })
    }

    pub(crate) fn with(
        config: CacheConfig,
        pages: usize,
        readahead: Option<ReadaheadConfig>,
        frames: ModelFrames,
    ) -> Self {
        let size_bytes = pages as u64 * u64::from(PAGE_BYTES);
        let geometry =
            Geometry { page_bytes: PAGE_BYTES, block_bytes: 512, size_bytes, writes_last_block: false };
        Self {
            path: BufferedPath::new(config, readahead, geometry, frames),
            resize: None,
            device_end: pages as u64,
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

    /// Changes the budget of the cache.
    pub(crate) fn set_budget(&mut self, frames: u32) {
        self.path.set_budget(frames);
        self.advance();
    }

    pub(crate) fn call(&mut self, call: Call) {
        let page_bytes = u64::from(PAGE_BYTES);
        let write = match call {
            Call::Write(page, Part::Whole) => BufferedWrite::new(page * page_bytes, 4096).ok(),
            Call::Write(page, Part::Some) => BufferedWrite::new(page * page_bytes, 2048).ok(),
            Call::WriteRun(page, pages) => BufferedWrite::new(page * page_bytes, pages * 4096).ok(),
            _ => None,
        };
        let task = Task { call, stage: Stage::New, write, owes: Vec::new(), is_doomed: false };
        // The slot of a completed call is reused.
        match self.tasks.iter().position(|task| task.stage == Stage::Done) {
            Some(place) => self.tasks[place] = task,
            None => self.tasks.push(task),
        }
    }

    /// The number of calls that have not completed.
    pub(crate) fn open_calls(&self) -> usize {
        self.tasks.iter().filter(|task| task.stage != Stage::Done).count()
    }

    /// All steps that are possible next. A bio completes only after earlier ones that it must not pass (rule 1 of the
    /// path).
    pub(crate) fn steps(&self, may_fail: bool) -> Vec<Step> {
        let is_resize = |call: Call| matches!(call, Call::Truncate(_) | Call::Grow);
        // The caller resizes a volume from one thread at a time.
        let must_wait =
            |task: &Task| self.resize.is_some() && task.stage == Stage::New && is_resize(task.call);
        let can_go_on = |task: &Task| !matches!(task.stage, Stage::Waiting | Stage::Done) && !must_wait(task);
        let tasks = self.tasks.iter().enumerate().filter(|(_, task)| can_go_on(task));
        let mut steps: Vec<Step> = tasks.map(|(index, _)| Step::Task(index)).collect();
        for (index, later) in self.in_flight.iter().enumerate() {
            let in_the_way = |earlier: &InFlight| {
                let overlaps = !earlier.pages.and(later.pages).is_empty();
                overlaps && (earlier.bio.op == Op::Write || later.bio.op == Op::Write)
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

    pub(crate) fn execute(&mut self, step: Step) {
        match step {
            Step::Task(index) => self.advance_task(index),
            Step::Io(index, is_ok) => self.end_io(index, is_ok),
            Step::Direct(index, is_ok) => self.end_direct(index, is_ok),
        }
        self.advance();
    }

    fn cache(&self) -> &PageCache {
        self.path.cache()
    }

    /// Executes all steps, and passes outcomes to their callers.
    fn advance(&mut self) {
        loop {
            while let Some(step) = self.path.poll_step(self.now) {
                match step {
                    PathStep::Submit(bio) => self.submit(bio),
                    PathStep::Zero { frame, from: 0 } => self.arena[frame.0 as usize] = [0; 2],
                    other => unreachable!("{other:?} in a volume of whole pages"),
                }
            }
            let Some(ready) = self.path.poll_ready() else { break };
            self.wake(ready.waiter as usize, ready.outcome);
        }
        assert_eq!(self.cache().hot().is_clean(), self.cache().stats().dirty == 0);
        while let Some(Frame(frame)) = self.path.poll_vacated() {
            // The memory of a vacated frame is released: any access to it is found.
            self.arena[frame as usize] = [u64::MAX; 2];
        }
        for InFlight { bio, frames, bytes, .. } in self.in_flight.iter().filter(|it| it.bio.op == Op::Write) {
            let bytes_now = frames.iter().map(|frame| self.arena[frame.0 as usize]);
            assert!(bytes_now.eq(bytes.iter().copied()), "{bio:?} changes while it is in flight");
        }
        for task in &self.tasks {
            if let Stage::Pinned(frame, bytes) = task.stage {
                assert_eq!(self.arena[frame.0 as usize], bytes, "{task:?} sees its page change");
            }
        }
    }

    fn advance_task(&mut self, index: usize) {
        let Task { call, stage, .. } = self.tasks[index];
        match (stage, call) {
            (Stage::Pinned(frame, _), _) => {
                self.tasks[index].stage = Stage::Done;
                self.unpin(frame);
            }
            (Stage::Copying, _) => self.end_pages(index),
            (Stage::New, _) => self.begin(index),
            _ => unreachable!("{:?} cannot go on", self.tasks[index]),
        }
    }

    fn unpin(&mut self, frame: Frame) {
        if self.cache().hot().unpin(frame) {
            self.path.handle_unpinned();
        }
    }

    fn begin(&mut self, index: usize) {
        let waiter = index as u64;
        self.tasks[index].stage = Stage::Waiting;
        match self.tasks[index].call {
            Call::Read(page) => {
                let mut read = BufferedRead::new(page * u64::from(PAGE_BYTES), 1, &self.path);
                match self.path.read(&mut read, waiter, self.now) {
                    ReadStep::Pinned(frame) => self.read_pinned(index, frame),
                    ReadStep::Wait { .. } => {}
                    ReadStep::End => self.tasks[index].stage = Stage::Done,
                }
            }
            Call::Write(..) | Call::WriteRun(..) => self.take_pages(index),
            Call::Flush => {
                self.tasks[index].owes = self.contents.oldest_of_all();
                self.path.flush(waiter);
            }
            Call::WriteBack(start, pages) => {
                self.tasks[index].owes = self.contents.oldest_of_all();
                self.path.write_back(PageRange::new(Page(start), pages), waiter);
            }
            Call::Invalidate(start, pages) => {
                let range = PageRange::new(Page(start), pages);
                self.being_read.retain(|page| !range.contains(Page(*page)));
                self.advise(range, Advice::DontNeed);
                self.tasks[index].stage = Stage::Done;
            }
            Call::Discard(start, pages) => self.discard(index, PageRange::new(Page(start), pages)),
            Call::Prefetch(start, pages) => {
                self.advise(PageRange::new(Page(start), pages), Advice::WillNeed);
                self.tasks[index].stage = Stage::Done;
            }
            Call::DirectRead(..)
            | Call::DirectWrite(..)
            | Call::DirectForced(..)
            | Call::Truncate(_)
            | Call::Grow => self.begin_direct(index),
        }
    }

    fn advise(&mut self, pages: PageRange, advice: Advice) {
        let page_bytes = u64::from(PAGE_BYTES);
        self.path.advise(pages.start().0 * page_bytes, pages.pages() * page_bytes, advice);
    }

    /// A discard that changes nothing on the device: dirty pages are dropped.
    fn discard(&mut self, index: usize, range: PageRange) {
        let page_bytes = u64::from(PAGE_BYTES);
        let (offset, bytes) = (range.start().0 * page_bytes, range.pages() * page_bytes);
        if let DirectStep::Go(tag) = self.path.begin_direct(Op::Discard, offset, bytes, 1, index as u64) {
            self.end_discard(index, range, tag);
        }
        for page in range.iter() {
            self.being_read.remove(&page.0);
            // A page that a writer holds is kept.
            if !self.cache().is_cached(page) {
                self.forget(page.0 as usize);
            }
        }
    }

    fn end_discard(&mut self, index: usize, range: PageRange, tag: DirectTag) {
        self.being_read.retain(|page| !range.contains(Page(*page)));
        self.path.end_direct(tag);
        self.tasks[index].stage = Stage::Done;
    }

    fn read_pinned(&mut self, index: usize, frame: Frame) {
        let Call::Read(page) = self.tasks[index].call else { unreachable!("only reads are given pins") };
        let bytes = self.arena[frame.0 as usize];
        self.contents.observe(page as usize * 2, bytes[0]);
        self.contents.observe(page as usize * 2 + 1, bytes[1]);
        self.tasks[index].stage = Stage::Pinned(frame, bytes);
    }

    fn wake(&mut self, index: usize, outcome: Outcome) {
        let task = &mut self.tasks[index];
        if let Outcome::Failed(error) = outcome {
            assert_ne!(error, IoError::EndOfDevice, "{:?} meets an end that has moved", task.call);
        }
        if let Some(write) = &mut task.write {
            write.handle_outcome(outcome);
            if task.stage == Stage::Waiting {
                self.take_pages(index);
            }
            return;
        }
        assert_eq!(task.stage, Stage::Waiting, "woken without waiting: {outcome:?}");
        if matches!(task.call, Call::Truncate(_) | Call::Grow) {
            self.resize.as_mut().expect("it has begun").handle_outcome(outcome);
            return self.continue_resize(index);
        }
        match outcome {
            Outcome::Pinned(frame) => self.read_pinned(index, frame),
            Outcome::Writable(_) | Outcome::Unwritable { .. } => unreachable!("{outcome:?} for no write"),
            Outcome::Direct(tag) => match self.tasks[index].call {
                Call::Discard(start, pages) => {
                    self.end_discard(index, PageRange::new(Page(start), pages), tag);
                }
                _ => self.start_direct(index, Some(tag)),
            },
            Outcome::Retry => self.tasks[index].stage = Stage::New,
            Outcome::Failed(_) => {
                let Task { call, owes, is_doomed, .. } = &self.tasks[index];
                let may_fail = *is_doomed || owes.is_empty() || !matches!(call, Call::DirectForced(..));
                assert!(may_fail, "{call:?} fails though the write went well and no flush has failed since");
                self.failed += 1;
                self.tasks[index].stage = Stage::Done;
            }
            Outcome::Done => {
                self.done += 1;
                self.check_done(index);
                self.tasks[index].stage = Stage::Done;
            }
        }
    }

    /// Checks the guarantee of a flush or write-back that reports success.
    fn check_done(&self, index: usize) {
        let Task { call, owes, is_doomed, .. } = &self.tasks[index];
        assert!(!is_doomed, "{call:?} is done though a flush failed that may have lost it");
        let (range, place, bytes) = match *call {
            Call::Flush | Call::DirectForced(..) => (PageRange::ALL, "medium", &self.medium),
            Call::WriteBack(start, pages) => (PageRange::new(Page(start), pages), "device", &self.device),
            call => unreachable!("{call:?} has another outcome"),
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

    /// The content of the page is unknown until a read.
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

    /// Whether the cache has the bytes of a page, not only a frame for them.
    fn holds(&self, page: u64) -> bool {
        let pinned = self.cache().hot().try_pin(Page(page));
        pinned.map(|pinned| self.cache().hot().unpin(pinned.frame)).is_ok()
    }

    /// The owner accepts the loss.
    pub(crate) fn forget_loss(&mut self) {
        self.lost.clear();
        self.path.accept_loss();
    }

    /// Completes all I/O successfully, and checks that no call remains.
    pub(crate) fn end(&mut self) {
        self.finish_all();
        self.forget_loss();
        let done = self.done;
        self.call(Call::Flush);
        self.finish_all();
        assert_eq!(self.done, done + 1, "a flush fails though the device does not");
        let stats = self.cache().stats();
        assert_eq!((stats.dirty, stats.writing, stats.failed), (0, 0, 0));
        for page in 0..self.device.len() as u64 {
            self.call(Call::Read(page));
            self.finish_all();
        }
        self.advance();
        assert!(self.cache().used_frames() <= self.cache().budget(), "clean frames exceed the budget");
    }

    fn finish_all(&mut self) {
        // Each step completes an I/O or a call, or one of the few waiting calls retries.
        for _ in 0..10_000 {
            if let Some(step) = self.steps(false).first() {
                self.execute(*step);
                self.now = self.now + Duration::from_micros(10);
            } else if let Some(due) = self.path.poll_timeout().filter(|_| self.open_calls() > 0) {
                self.now = self.now.max(due);
                self.advance();
            } else {
                break;
            }
        }
        assert_eq!(self.open_calls(), 0, "calls wait forever: {:?}", self.tasks);
        assert!(self.in_flight.is_empty() && self.direct.is_empty());
    }
}
