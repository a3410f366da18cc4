//! A second program that reads the file of a volume through a page cache of its own. The caches of two programs are not
//! coherent: a cached page stays as it was read. But the reader must see what was durable before it dropped its pages,
//! and, past its old end, what was durable before it followed the growth of the file. It must never write.

use iopath_core::buffered::{
    Advice, BufferedPath, BufferedRead, Geometry, ReadNext, ReadStep, Resize, ResizeStep, Step,
};
use iopath_core::cache::{Frame, IoTag, Outcome};
use iopath_core::volume::Ends;
use iopath_core::{Bio, Instant, IoError, Op, Priority, Stream, SubmitError};

use super::{OF_CACHE, PAGE, Queue, TAG_BITS, Volume};
use crate::arena::{Owner, PageFrames};
use crate::scenario::Do;

/// The maximum number of reads at the same time.
const READS_MAX: usize = 8;

/// The waiter of a follow in progress.
const FOLLOW: u64 = u64::MAX;

/// The reading program.
#[derive(Debug)]
pub(super) struct ReadingProgram {
    path: BufferedPath<PageFrames>,
    frames: PageFrames,
    queue: Queue,
    /// What was durable at this event is seen everywhere.
    fresh_since: u64,
    /// From this byte on, what was durable at that event is seen.
    followed: (u64, u64),
    reads: Vec<Option<Read>>,
    follow: Option<Follow>,
    tokens: u64,
}

#[derive(Debug)]
struct Read {
    pages: BufferedRead,
    offset: u64,
    bytes: u64,
    waits: bool,
}

#[derive(Debug)]
struct Follow {
    resize: Resize,
    size_bytes: u64,
    /// The event at which it began.
    since: u64,
}

impl ReadingProgram {
    pub(super) fn is_idle(&self) -> bool {
        self.reads.iter().all(Option::is_none)
            && self.follow.is_none()
            && self.queue.device.queue().bios_in() == 0
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        [self.path.poll_timeout(), self.queue.device.poll_timeout()].into_iter().flatten().min()
    }

    /// No page is older than this event.
    pub(super) const fn oldest(&self) -> u64 {
        self.fresh_since
    }

    /// The bytes that the program has read, before and after the old end that it has left last.
    fn since(&self, offset: u64) -> u64 {
        let (from, since) = self.followed;
        if offset >= from { since.max(self.fresh_since) } else { self.fresh_since }
    }
}

impl Volume {
    /// Starts the reading program, if there is one.
    pub(super) fn open_reader(&mut self) {
        let Some(cache) = self.plan.extras.reader else { return };
        let (config, readahead) = Self::cache_config(&cache);
        let geometry = Geometry {
            page_bytes: PAGE as u32,
            block_bytes: 512,
            size_bytes: self.size_bytes,
            writes_last_block: false,
        };
        let frames = PageFrames::new(&self.arena, cache.frames, PAGE as u32, Owner::Reader);
        let path = BufferedPath::new(config, readahead, geometry, frames);
        let mut queue = self.queue();
        queue.device.queue_mut().set_capacity(path.geometry().sectors());
        let fresh_since = self.tick();
        self.reader = Some(Box::new(ReadingProgram {
            path,
            frames,
            queue,
            fresh_since,
            followed: (u64::MAX, 0),
            reads: Vec::new(),
            follow: None,
            tokens: 0,
        }));
    }

    /// The reading program ends.
    pub(super) fn close_reader(&mut self) {
        if let Some(reader) = self.reader.take() {
            let ReadingProgram { frames, queue, path, .. } = *reader;
            drop((queue, path));
            frames.release(&self.arena);
        }
    }

    /// A call of the reading program.
    pub(crate) fn begin_reader(&mut self, what: &Do, now: Instant) {
        let since = self.tick();
        let length = self.file_length();
        let base = self.plan.base_bytes();
        let Some(reader) = self.reader.as_deref_mut() else { return };
        match *what {
            Do::ReaderReads { at, len } => {
                if reader.reads.iter().flatten().count() >= READS_MAX {
                    return;
                }
                let (offset, bytes) = (base + at * 64, len * 64);
                let read = BufferedRead::new(offset, bytes as usize, &reader.path);
                let free = reader.reads.iter().position(Option::is_none).unwrap_or(reader.reads.len());
                reader.reads.resize_with(reader.reads.len().max(free + 1), || None);
                reader.reads[free] = Some(Read { pages: read, offset, bytes, waits: false });
                self.log(now, free, "reader reads", offset, bytes);
            }
            Do::ReaderDrops => {
                let is_idle = reader.is_idle();
                let size_bytes = reader.path.geometry().size_bytes;
                reader.path.advise(0, size_bytes, Advice::DontNeed);
                if is_idle {
                    (reader.fresh_since, reader.followed) = (since, (u64::MAX, 0));
                }
                self.log(now, 0, "reader drops pages", 0, 0);
            }
            Do::ReaderFollows if reader.follow.is_none() => {
                let size_bytes = reader.path.geometry().size_bytes;
                let ends = Ends { size_bytes, file_bytes: 0 };
                let Some(size_bytes) = ends.grown_length(length, || u64::MAX) else { return };
                let resize = reader.path.begin_resize(size_bytes);
                reader.follow = Some(Follow { resize, size_bytes, since });
                self.log(now, 0, "reader follows", size_bytes, 0);
            }
            _ => {}
        }
    }

    /// Advances the reading program. Returns whether anything has changed.
    pub(super) fn advance_reader(&mut self, now: Instant) -> bool {
        // Taken out: its checks need the model of the volume.
        let Some(mut reader) = self.reader.take() else { return false };
        let mut is_changed = self.advance_reader_cache(&mut reader, now);
        while let Some(ready) = reader.path.poll_ready() {
            is_changed = true;
            self.wake_reader(&mut reader, ready.waiter, ready.outcome);
        }
        for index in 0..reader.reads.len() {
            while reader.reads[index].as_ref().is_some_and(|read| !read.waits) {
                is_changed = true;
                self.step_reader(&mut reader, index, now);
            }
        }
        is_changed |= self.continue_follow(&mut reader);
        self.reader = Some(reader);
        is_changed
    }

    fn advance_reader_cache(&self, reader: &mut ReadingProgram, now: Instant) -> bool {
        let mut is_changed = false;
        let ReadingProgram { path, frames, queue, tokens, .. } = reader;
        while let Some(step) = path.poll_step(now) {
            is_changed = true;
            match step {
                Step::Submit(bio) => {
                    assert_eq!(bio.op, Op::Read, "rule 2: a program that only reads writes {}", bio.extent);
                    *tokens += 1;
                    let token = OF_CACHE | *tokens << TAG_BITS | u64::from(bio.tag.0);
                    let (stream, priority) = (Stream(0), Priority::BestEffort);
                    let (op, extent, memory) = (bio.op, bio.extent, bio.memory);
                    let queued = Bio { op, extent, memory, fua: false, stream, priority, token };
                    if let Err(why) = queue.device.submit_bio(queued, now) {
                        let is_full = matches!(why, SubmitError::QueueFull(_));
                        assert!(is_full, "rule 8: the queue refuses I/O of a reader: {why}");
                        path.handle_refused(bio, &why, now);
                        break;
                    }
                }
                Step::Zero { frame, from } => {
                    self.arena.with(frames.whole(frame), |bytes| bytes[from..].fill(0));
                }
                Step::WriteTail { .. } => panic!("rule 2: a program that only reads writes {step:?}"),
            }
        }
        let device = &mut queue.device;
        device.collect(now);
        device.unplug(now);
        device.dispatch(now);
        device.commit(now);
        while let Some(done) = device.poll_completion() {
            is_changed = true;
            let tag = done.token as u32 & ((1 << TAG_BITS) - 1);
            path.handle_completion(IoTag(tag), done.result, now);
            path.handle_room();
        }
        is_changed
    }

    fn wake_reader(&mut self, reader: &mut ReadingProgram, waiter: u64, outcome: Outcome) {
        if waiter == FOLLOW {
            let follow = reader.follow.as_mut().expect("rule 8: a follow that has ended is woken");
            return follow.resize.handle_outcome(outcome);
        }
        let index = waiter as usize;
        let read = reader.reads[index].as_mut().expect("rule 8: a read that has ended is woken");
        read.waits = false;
        match outcome.pinned() {
            Ok(Some(frame)) => self.check_reader_page(reader, index, frame),
            Ok(None) => {}
            Err(why) => {
                reader.reads[index] = None;
                self.judge_reader_error(why);
            }
        }
    }

    /// A reader gets an error only if a fault was injected, or if the file has become shorter.
    fn judge_reader_error(&mut self, why: IoError) {
        self.failed_calls += 1;
        let is_cut = why == IoError::EndOfDevice && self.file_length().is_some();
        let faults = self.injected();
        assert!(
            is_cut || faults > 0,
            "rule 6: a read of another program fails with {why:?}, without a fault"
        );
    }

    fn step_reader(&mut self, reader: &mut ReadingProgram, index: usize, now: Instant) {
        let read = reader.reads[index].as_mut().expect("in progress");
        match read.pages.poll(&reader.path) {
            ReadNext::Copy(_) => match reader.path.read(&mut read.pages, index as u64, now) {
                ReadStep::Pinned(frame) => self.check_reader_page(reader, index, frame),
                ReadStep::Wait { .. } => read.waits = true,
                ReadStep::End => {}
            },
            ReadNext::Again => {}
            ReadNext::Done(bytes) => {
                let size_bytes = reader.path.geometry().size_bytes;
                let expected = size_bytes.saturating_sub(read.offset).min(read.bytes);
                let Read { offset, .. } = *read;
                assert!(
                    bytes as u64 <= expected,
                    "rule 5: a reader gets {bytes} bytes at {offset} of {size_bytes}"
                );
                reader.reads[index] = None;
                self.completed_calls += 1;
            }
        }
    }

    /// A page of a read is pinned: checks its bytes, and releases it.
    fn check_reader_page(&mut self, reader: &mut ReadingProgram, index: usize, frame: Frame) {
        let copy = self.arena.with(reader.frames.whole(frame), |memory| memory.to_vec());
        let read = reader.reads[index].as_mut().expect("in progress");
        let piece = read.pages.next_piece().expect("it reads a page");
        read.pages.handle_copied(&piece);
        let at = read.offset + piece.start as u64;
        let bytes = &copy[piece.from..piece.from + piece.bytes()];
        // The part before the old end may be older.
        let (head, tail) =
            bytes.split_at(reader.followed.0.saturating_sub(at).min(bytes.len() as u64) as usize);
        for (offset, bytes) in [(at, head), (at + head.len() as u64, tail)] {
            self.checked_bytes += bytes.len() as u64;
            match self.contents.check_stale(offset, bytes, reader.since(offset)) {
                Ok(damaged) => self.damaged_cells += damaged,
                Err(wrong) => panic!("rule 2: another program reads a wrong byte: {wrong}"),
            }
        }
        if reader.path.cache().hot().unpin(frame) {
            reader.path.handle_unpinned();
        }
    }

    fn continue_follow(&mut self, reader: &mut ReadingProgram) -> bool {
        let ReadingProgram { path, follow, queue, followed, fresh_since, .. } = reader;
        let Some(Follow { resize, .. }) = follow else { return false };
        match path.continue_resize(resize, FOLLOW) {
            Ok(ResizeStep::Wait) => return false,
            Ok(ResizeStep::Resize) => {
                let Follow { resize, size_bytes, since } = follow.take().expect("in progress");
                let old_bytes = path.geometry().size_bytes;
                path.end_resize(resize, true);
                queue.device.queue_mut().set_capacity(path.geometry().sectors());
                assert_eq!(path.geometry().size_bytes, size_bytes, "rule 5: a reader follows to another end");
                // Only the last end counts: pages before it may be older.
                *followed = (old_bytes, since.max(*fresh_since));
            }
            Err(why) => {
                *follow = None;
                self.judge_reader_error(why);
            }
        }
        true
    }

    /// Drops the pages of the reading program, and reads its file from the disks.
    pub(crate) fn read_all_of_reader(&mut self, now: Instant) {
        self.begin_reader(&Do::ReaderDrops, now);
        let cells = self.plan.bytes.div_ceil(64);
        self.begin_reader(&Do::ReaderReads { at: 0, len: cells }, now);
    }
}
