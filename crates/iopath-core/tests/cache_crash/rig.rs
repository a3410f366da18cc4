//! The buffered path, a device whose write cache can lose its content, and one caller after another. After every step
//! it checks the bytes that a power failure could leave. The test that drives it chooses the next step.
//!
//! A page is two halves, and each half is the number of the write that wrote it. The device may tear a page between the
//! halves.

#[path = "../cache_model/world/frames.rs"]
mod frames;

use frames::{FrameList, ModelFrames};
use iopath_core::buffered::{
    BufferedPath, BufferedRead, BufferedWrite, Geometry, PageBio, ReadStep, Step as PathStep, TakeStep,
};
use iopath_core::cache::{CacheConfig, DirectStep, DirectTag, Frame, IoTag, Outcome};
use iopath_core::{Duration, Instant, IoError, Op, Page, PageRange};

const PAGE_BYTES: u32 = 4096;

type Bytes = [u64; 2];
/// The possible values of a half.
type Values = Vec<u64>;
/// Chooses a number below its argument.
type Pick<'a> = &'a mut dyn FnMut(usize) -> usize;

/// An operation, from call to return.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Do {
    Read(u64),
    Write(u64),
    WritePart(u64),
    Flush,
    WriteBack(u64),
    /// A direct write, by rule 2 of the path; if forced, it is on the medium at completion.
    Direct {
        page: u64,
        forced: bool,
    },
    /// Zeroes the page on the device, direct.
    Zero(u64),
}

/// One half of a page.
#[derive(Debug, Clone)]
struct Half {
    /// The value that a read of the device returns.
    device: u64,
    /// The values that the device may have after a power failure: the value on the medium, then the values written
    /// since, each with the number of its completion.
    left: Vec<(u64, u64)>,
    /// The values that a read of the cache may return: one, unless an I/O failed.
    now: Values,
    /// The values that may remain after a power failure under the guarantees of the path.
    allowed: Values,
}

#[derive(Debug)]
enum InFlight {
    Cache { tag: IoTag, op: Op, pages: PageRange, frames: Vec<Frame>, bytes: Vec<Bytes>, begun_after: u64 },
    Direct { page: u64, value: u64 },
}

pub(crate) struct Rig {
    path: BufferedPath<ModelFrames>,
    arena: Vec<Bytes>,
    pages: Vec<[Half; 2]>,
    in_flight: Vec<InFlight>,
    /// The result of the caller's direct I/O.
    direct_result: Option<Result<(), IoError>>,
    writes: u64,
    completions: u64,
    now: Instant,
    /// The number of I/Os that may still fail.
    pub(crate) failures: u32,
    /// A flush that fails loses the bytes it should have saved.
    pub(crate) flush_loses: bool,
    /// Flushes and forced writes that reported success.
    pub(crate) promises: u64,
}

impl Rig {
    pub(crate) fn new(config: CacheConfig, pages: usize) -> Self {
        let size_bytes = pages as u64 * u64::from(PAGE_BYTES);
        let geometry =
            Geometry { page_bytes: PAGE_BYTES, block_bytes: 512, size_bytes, writes_last_block: false };
        let half = Half { device: 0, left: vec![(0, 0)], now: vec![0], allowed: vec![0] };
        Self {
            arena: vec![[u64::MAX; 2]; config.frames as usize],
            path: BufferedPath::new(config, None, geometry, ModelFrames { joins_all: true }),
            pages: vec![[half.clone(), half]; pages],
            in_flight: Vec::new(),
            direct_result: None,
            writes: 0,
            completions: 0,
            now: Instant::ZERO,
            failures: 0,
            flush_loses: false,
            promises: 0,
        }
    }

    pub(crate) fn pass_time(&mut self, duration: Duration) {
        self.now = self.now + duration;
    }

    /// Executes an operation, then completes as many of the I/Os in flight as the test chooses.
    pub(crate) fn execute(&mut self, what: Do, pick: Pick<'_>) {
        self.advance();
        match what {
            Do::Read(page) => self.read(page, pick),
            Do::Write(page) => self.write(page, 2, pick),
            Do::WritePart(page) => self.write(page, 1, pick),
            Do::Flush => self.flush(pick),
            Do::WriteBack(page) => {
                self.path.write_back(PageRange::new(Page(page), 1), 0);
                self.wait(pick);
            }
            Do::Direct { page, forced } => {
                let value = self.next_value();
                self.direct(page, value, forced, pick);
            }
            Do::Zero(page) => self.direct(page, 0, false, pick),
        }
        loop {
            self.advance();
            let ready = self.completable();
            match pick(ready.len() + 1) {
                0 => return,
                chosen => self.end(ready[chosen - 1], pick),
            }
        }
    }

    fn read(&mut self, page: u64, pick: Pick<'_>) {
        let mut read = BufferedRead::new(page * u64::from(PAGE_BYTES), 1, &self.path);
        let frame = match self.path.read(&mut read, 0, self.now) {
            ReadStep::Pinned(frame) => frame,
            ReadStep::Wait { .. } => match self.wait(pick).pinned() {
                Ok(Some(frame)) => frame,
                Ok(None) => return self.read(page, pick),
                Err(_) => return,
            },
            ReadStep::End => unreachable!("page {page} is in the volume"),
        };
        let found = self.arena[frame.0 as usize];
        for (half, found) in self.pages[page as usize].iter_mut().zip(found) {
            assert!(
                half.now.contains(&found),
                "a read of page {page} gives {found}, not one of {:?}",
                half.now
            );
            half.now = vec![found];
        }
        self.unpin(frame);
    }

    fn unpin(&mut self, frame: Frame) {
        if self.path.cache().hot().unpin(frame) {
            self.path.handle_unpinned();
        }
    }

    fn write(&mut self, page: u64, halves: usize, pick: Pick<'_>) {
        let page_bytes = PAGE_BYTES as usize;
        let write = BufferedWrite::new(page * u64::from(PAGE_BYTES), halves * page_bytes / 2);
        let mut write = write.expect("it is in the volume");
        while write.pieces().is_empty() {
            match self.path.take_pages(&mut write, 0) {
                Ok(TakeStep::Wait) => {
                    let outcome = self.wait(pick);
                    write.handle_outcome(outcome);
                }
                Ok(_) => {}
                Err(error) => return assert_ne!(error, IoError::EndOfDevice, "page {page} is in the volume"),
            }
        }
        let piece = write.pieces()[0];
        let frame = piece.frame;
        if let Some(from) = piece.copy_from {
            self.arena[frame.0 as usize] = self.arena[from.0 as usize];
            self.unpin(from);
        }
        let value = self.next_value();
        // The rest of the page has the bytes that the cache has read.
        for (half, rest) in
            self.pages[page as usize].iter_mut().zip(self.arena[frame.0 as usize]).skip(halves)
        {
            assert!(half.now.contains(&rest), "half of page {page} is {rest}, not one of {:?}", half.now);
            half.now = vec![rest];
        }
        self.arena[frame.0 as usize][..halves].fill(value);
        self.write_begins(page, halves, value);
        self.write_is_seen(page, halves, value);
        self.path.release_pages(&mut write, self.now);
        self.check("a write");
    }

    fn flush(&mut self, pick: Pick<'_>) {
        self.path.flush(0);
        match self.wait(pick) {
            Outcome::Done => {
                for half in self.pages.iter_mut().flatten() {
                    half.allowed.clone_from(&half.now);
                }
                self.promises += 1;
                self.check("a flush");
            }
            Outcome::Failed(_) => {}
            other => unreachable!("{other:?} for a flush"),
        }
    }

    fn direct(&mut self, page: u64, value: u64, forced: bool, pick: Pick<'_>) {
        let op = if value == 0 { Op::WriteZeroes } else { Op::Write };
        let page_bytes = u64::from(PAGE_BYTES);
        let tag = match self.path.begin_direct(op, page * page_bytes, page_bytes, 1, 0) {
            DirectStep::Go(tag) => tag,
            DirectStep::Wait => match self.wait(pick) {
                Outcome::Direct(tag) => tag,
                Outcome::Failed(_) => return,
                other => unreachable!("{other:?} for direct I/O"),
            },
        };
        match self.at_device(page, value, pick) {
            Ok(()) => {
                self.write_is_seen(page, 2, value);
                if forced {
                    self.force(tag, page, value, pick);
                    return;
                }
            }
            Err(_) => self.pages[page as usize].iter_mut().for_each(|half| half.now.push(value)),
        }
        self.path.end_direct(tag);
        self.check("direct I/O");
    }

    /// Waits until a direct write is on the medium, with the next flush of the device.
    fn force(&mut self, tag: DirectTag, page: u64, value: u64, pick: Pick<'_>) {
        let forced = self.path.end_forced(tag);
        self.path.await_forced(forced, 0);
        match self.wait(pick) {
            Outcome::Done => {
                assert_eq!(self.path.forced(forced), Some(Ok(())));
                self.pages[page as usize].iter_mut().for_each(|half| half.allowed = vec![value]);
                self.promises += 1;
            }
            Outcome::Failed(error) => assert_eq!(self.path.forced(forced), Some(Err(error))),
            other => unreachable!("{other:?} for a forced write"),
        }
        self.check("a forced write");
    }

    /// Writes directly to the device, and waits for it.
    fn at_device(&mut self, page: u64, value: u64, pick: Pick<'_>) -> Result<(), IoError> {
        self.write_begins(page, 2, value);
        self.in_flight.push(InFlight::Direct { page, value });
        loop {
            self.advance();
            let ready = self.completable();
            self.end(ready[pick(ready.len())], pick);
            if let Some(result) = self.direct_result.take() {
                return result;
            }
        }
    }

    fn next_value(&mut self) -> u64 {
        self.writes += 1;
        self.writes
    }

    /// From now on the value may survive a power failure.
    fn write_begins(&mut self, page: u64, halves: usize, value: u64) {
        self.pages[page as usize][..halves].iter_mut().for_each(|half| half.allowed.push(value));
    }

    /// From now on reads must return it.
    fn write_is_seen(&mut self, page: u64, halves: usize, value: u64) {
        self.pages[page as usize][..halves].iter_mut().for_each(|half| half.now = vec![value]);
    }

    /// Completes I/O in the order that the test chooses, until the caller's outcome is known.
    fn wait(&mut self, pick: Pick<'_>) -> Outcome {
        loop {
            if let Some(ready) = self.path.poll_ready() {
                return ready.outcome;
            }
            self.advance();
            if let Some(ready) = self.path.poll_ready() {
                return ready.outcome;
            }
            let ready = self.completable();
            if ready.is_empty() {
                let due = self.path.poll_timeout().expect("a waiter has a time limit");
                self.now = self.now.max(due);
            } else {
                self.end(ready[pick(ready.len())], pick);
            }
        }
    }

    /// Submits all I/O of the buffered path.
    fn advance(&mut self) {
        while let Some(step) = self.path.poll_step(self.now) {
            let PathStep::Submit(PageBio { tag, op, extent, memory }) = step else {
                unreachable!("{step:?} in a volume of whole pages")
            };
            let frames: Vec<Frame> = memory.iter().flat_map(FrameList::frames).collect();
            let bytes = frames.iter().map(|frame| self.arena[frame.0 as usize]).collect();
            let first = Page(extent.start().0 * 512 / u64::from(PAGE_BYTES));
            let pages = PageRange::new(first, frames.len() as u64);
            self.in_flight.push(InFlight::Cache {
                tag,
                op,
                pages,
                frames,
                bytes,
                begun_after: self.completions,
            });
        }
        self.check("an I/O began");
    }

    /// I/Os that may complete now. I/Os of the cache must not pass earlier overlapping I/Os (rule 1 of the path).
    /// Direct I/O uses other queues, and there is no order between queues.
    fn completable(&self) -> Vec<usize> {
        let in_the_way = |earlier: &InFlight, later: &InFlight| match (earlier, later) {
            (
                InFlight::Cache { op: first_op, pages: first, .. },
                InFlight::Cache { op: then_op, pages: then, .. },
            ) => [first_op, then_op].contains(&&Op::Write) && !first.and(*then).is_empty(),
            _ => false,
        };
        let is_free = |index: &usize| {
            let (earlier, later) = self.in_flight.split_at(*index);
            !earlier.iter().any(|earlier| in_the_way(earlier, &later[0]))
        };
        (0..self.in_flight.len()).filter(is_free).collect()
    }

    fn end(&mut self, index: usize, pick: Pick<'_>) {
        let is_ok = self.failures == 0 || pick(2) == 0;
        self.failures -= u32::from(!is_ok);
        self.completions += 1;
        let result = if is_ok { Ok(()) } else { Err(IoError::Media) };
        match self.in_flight.remove(index) {
            InFlight::Direct { page, value } => {
                self.store(page, [value; 2], is_ok);
                self.direct_result = Some(result);
            }
            InFlight::Cache { tag, op, pages, frames, bytes, begun_after } => {
                match op {
                    Op::Read => {
                        for (page, frame) in pages.iter().zip(&frames) {
                            let device = self.pages[page.0 as usize].each_ref().map(|half| half.device);
                            self.arena[frame.0 as usize] = if is_ok { device } else { [u64::MAX; 2] };
                        }
                    }
                    Op::Write => {
                        for (page, bytes) in pages.iter().zip(bytes) {
                            self.store(page.0, bytes, is_ok);
                        }
                    }
                    _ if is_ok => self.saved(begun_after),
                    _ => self.flush_failed(),
                }
                self.path.handle_completion(tag, result, self.now);
            }
        }
        self.check("an I/O ended");
    }

    /// Records that the device has written a page, or a part of it if the write failed.
    fn store(&mut self, page: u64, bytes: Bytes, is_ok: bool) {
        for (half, value) in self.pages[page as usize].iter_mut().zip(bytes) {
            // A failed write may have reached the device. The next flush saves the value that reads return.
            let place = half.left.len() - usize::from(!is_ok);
            half.left.insert(place, (value, self.completions));
            if is_ok {
                half.device = value;
            }
        }
    }

    /// A flush has completed: writes that had completed before it began are on the medium.
    fn saved(&mut self, begun_after: u64) {
        for half in self.pages.iter_mut().flatten() {
            let covered = half.left.iter().rposition(|(_, completion)| *completion <= begun_after);
            half.left.drain(..covered.unwrap_or(0));
        }
    }

    fn flush_failed(&mut self) {
        if self.flush_loses {
            for half in self.pages.iter_mut().flatten() {
                half.left.truncate(1);
                half.device = half.left[0].0;
                // Cached pages keep their values; other pages have the values on the medium.
                if !half.now.contains(&half.device) {
                    half.now.push(half.device);
                }
            }
        }
    }

    /// Checks that a power failure now could leave only allowed values.
    fn check(&self, after: &str) {
        for (number, page) in self.pages.iter().enumerate() {
            for (place, half) in page.iter().enumerate() {
                for (value, _) in &half.left {
                    assert!(
                        half.allowed.contains(value),
                        "after {after} page {number} may be left with {value} in half {place}, not one of {:?}",
                        half.allowed
                    );
                }
            }
        }
        for flying in &self.in_flight {
            let InFlight::Cache { op: Op::Write, pages, bytes, .. } = flying else { continue };
            for (page, bytes) in pages.iter().zip(bytes) {
                for (half, value) in self.pages[page.0 as usize].iter().zip(bytes) {
                    assert!(
                        half.allowed.contains(value),
                        "after {after} page {page} is being written with {value}, not one of {:?}",
                        half.allowed
                    );
                }
            }
        }
    }
}
