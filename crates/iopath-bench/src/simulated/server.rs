//! A remote block target with a page cache. Its threads take commands, read through the cache and readahead of the
//! library, and reply. For the machine that sends the commands, the target is a device. A link between both is a stage
//! in front of it. The target executes only reads. CPU contention is not modelled: each thread has a CPU.
//!
//! ```text
//!   commands ─▶ threads ─▶ BufferedPath ─▶ queue, plug ─▶ contexts.rs ─▶ array
//!   replies  ◀── (the thread that became free last takes the next command)
//! ```

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use iopath_core::buffered::{BufferedPath, BufferedRead, Geometry, ReadStep};
use iopath_core::cache::{CacheConfig, Frame, Outcome};
use iopath_core::elevator::ElevatorSpec;
use iopath_core::readahead::{ReadaheadConfig, WindowPolicy};
use iopath_core::{
    BlockDevice, Busy, Completion, Instant, Io, IoError, Limits, Op, Page, QueueConfig, QueuedDevice,
    SECTOR_BYTES, Stream, Tag,
};
use iopath_model::event_loop::earlier;

use super::contexts::{ContextTimes, Contexts};
use super::page_io::PageIo;
use super::span::{FrameSpans, Span};
use super::unplug::{Unplug, Unplugger};

/// The size of a page.
const PAGE_BYTES: u32 = 4096;

/// The maximum number of pages that a thread copies before it continues to read.
const COPIED_MAX: u32 = 16;

/// The maximum number of bios in the queue of the target.
const BIOS_MAX: u32 = 4096;

/// The parameters of a target.
#[derive(Debug, Clone)]
pub struct ServerSettings {
    /// Threads that serve commands.
    pub threads: u32,
    /// The size of the page cache.
    pub cache_bytes: u64,
    /// The maximum size of a readahead window of Linux.
    pub readahead_bytes: u64,
    /// The largest request of the queue in front of the array.
    pub request_bytes_max: u64,
    /// The condition to start plugged requests of that queue.
    pub unplug: Unplug,
    /// Whether a completion also starts them. On a software RAID it does so only at the queue of its own disk.
    pub completion_unplugs: bool,
    /// The scheduler between that queue and the array.
    pub contexts: ContextTimes,
    /// CPU time of a command.
    pub command: Duration,
    /// CPU time of a page: look-up and copy.
    pub page: Duration,
    /// The largest command.
    pub command_bytes_max: u64,
    /// Commands in flight.
    pub commands_max: u32,
}

/// A target in front of an array.
pub struct Server<D: BlockDevice<Memory = Span>> {
    limits: Limits,
    pages: PageIo<Contexts<D>>,
    command: Duration,
    page: Duration,
    threads: Vec<Thread>,
    /// Threads without a command. The last thread executes the next command.
    free: Vec<u32>,
    /// The thread that ran last. New page I/O belongs to its context.
    current: u32,
    commands: VecDeque<Command>,
    commands_left: u32,
    /// Threads that execute CPU work, each with the end of this work.
    busy: BinaryHeap<Reverse<(Instant, u64, u32)>>,
    slept: u64,
    done: VecDeque<Completion>,
}

#[derive(Debug, Clone, Copy)]
struct Command {
    tag: Tag,
    at: u64,
    end: u64,
}

#[derive(Debug)]
struct Thread {
    command: Option<Command>,
    outcome: Option<Outcome>,
    busy_until: Option<Instant>,
    /// The end of the last read of its open file.
    previous_end: Page,
}

impl Thread {
    const fn new(previous_end: Page) -> Self {
        Self { command: None, outcome: None, busy_until: None, previous_end }
    }
}

impl<D: BlockDevice<Memory = Span>> Server<D> {
    /// A target with an empty cache.
    pub fn new(array: D, settings: &ServerSettings) -> Self {
        let ServerSettings { threads, cache_bytes, unplug, contexts, command, page, commands_max, .. } =
            *settings;
        let of_array = array.limits();
        let limits = Limits {
            request_bytes_max: settings.command_bytes_max,
            depth_max: commands_max,
            ..of_array.clone()
        };
        let of_queue = Limits { request_bytes_max: settings.request_bytes_max, ..of_array.clone() };
        let geometry = Geometry {
            page_bytes: PAGE_BYTES,
            block_bytes: limits.logical_block_bytes,
            size_bytes: limits.capacity * SECTOR_BYTES,
            writes_last_block: true,
        };
        let cache = CacheConfig::for_device(cache_bytes, PAGE_BYTES, &of_queue);
        let readahead = ReadaheadConfig::linux(settings.readahead_bytes, cache_bytes, PAGE_BYTES, &of_queue)
            .map(|readahead| ReadaheadConfig { policy: WindowPolicy::LinuxByFile, ..readahead });
        let queue = QueueConfig {
            bios_max: BIOS_MAX,
            requests_max: BIOS_MAX,
            depth: of_queue.depth_max,
            plug_requests_max: unplug.plug_requests_max(),
            elevator: ElevatorSpec::default(),
        };
        Self {
            limits,
            pages: PageIo {
                path: BufferedPath::new(cache, readahead, geometry, FrameSpans { page_bytes: PAGE_BYTES }),
                queue: QueuedDevice::new(Contexts::new(array, of_queue, contexts), &queue),
                unplugger: Unplugger::new(unplug),
                completion_unplugs: settings.completion_unplugs,
            },
            command,
            page,
            threads: (0..threads).map(|_| Thread::new(Page::MAX)).collect(),
            free: (0..threads).rev().collect(),
            current: 0,
            commands: VecDeque::new(),
            commands_left: commands_max,
            busy: BinaryHeap::new(),
            slept: 0,
            done: VecDeque::new(),
        }
    }

    /// Executes all work that is due.
    fn advance(&mut self, now: Instant) {
        loop {
            self.pump(now);
            if let Some(ready) = self.pages.path.poll_ready() {
                let number = ready.waiter as u32;
                let thread = &mut self.threads[number as usize];
                thread.outcome = Some(ready.outcome);
                match thread.busy_until.take().filter(|until| *until > now) {
                    Some(until) => self.compute(number, until),
                    None => self.run_thread(number, now),
                }
            } else if let Some(&Reverse((_, _, number))) =
                self.busy.peek().filter(|Reverse((until, ..))| *until <= now)
            {
                self.busy.pop();
                self.run_thread(number, now);
            } else if !self.free.is_empty() && !self.commands.is_empty() {
                let (number, command) = (self.free.pop(), self.commands.pop_front());
                let number = number.unwrap_or_default();
                self.threads[number as usize].command = command;
                self.compute(number, now + self.command);
            } else {
                return;
            }
        }
    }

    fn compute(&mut self, number: u32, until: Instant) {
        self.slept += 1;
        self.busy.push(Reverse((until, self.slept, number)));
    }

    /// Moves page I/O between the cache, the queue and the array.
    fn pump(&mut self, now: Instant) {
        let stream = Stream(self.current);
        self.pages.pump(stream, |contexts| contexts.idles_for(stream), now);
    }

    /// Reads pages of the thread's command until it waits, copies or replies.
    fn run_thread(&mut self, number: u32, now: Instant) {
        let thread = &mut self.threads[number as usize];
        let (Some(mut command), outcome) = (thread.command, thread.outcome.take()) else { return };
        self.current = number;
        let mut pinned = match outcome.map(Outcome::pinned).transpose() {
            Ok(pinned) => pinned.flatten(),
            Err(error) => return self.reply(number, command.tag, Err(error)),
        };
        if command.at >= command.end {
            return self.reply(number, command.tag, Ok(()));
        }
        let mut copied = 0;
        while command.at < command.end && copied < COPIED_MAX {
            match pinned.take().map_or_else(|| self.read(number, command, now), ReadStep::Pinned) {
                ReadStep::Pinned(frame) => self.unpin(frame),
                ReadStep::Wait { .. } => break,
                ReadStep::End => return self.reply(number, command.tag, Err(IoError::EndOfDevice)),
            }
            copied += 1;
            command.at = (command.at / u64::from(PAGE_BYTES) + 1) * u64::from(PAGE_BYTES);
        }
        self.pages.handle_windows();
        let until = now + self.page * copied;
        let thread = &mut self.threads[number as usize];
        thread.command = Some(command);
        if command.at < command.end && copied < COPIED_MAX {
            thread.busy_until = Some(until);
            self.pages.unplugger.handle_wait();
        } else {
            self.compute(number, until);
        }
    }

    /// Reads a page of the thread's open file. The vectors of a target have an entry for each page, and the kernel
    /// reads each entry by itself.
    fn read(&mut self, number: u32, command: Command, now: Instant) -> ReadStep {
        let bytes = (command.end - command.at).min(PAGE_BYTES.into());
        let path = &mut self.pages.path;
        let mut read = BufferedRead::new(command.at, bytes as usize, path);
        let previous_end = &mut self.threads[number as usize].previous_end;
        path.readahead_mut().select_file(number as usize, *previous_end);
        *previous_end = read.pages().end();
        path.read(&mut read, number.into(), now)
    }

    fn unpin(&mut self, frame: Frame) {
        if self.pages.path.cache().hot().unpin(frame) {
            self.pages.path.handle_unpinned();
        }
    }

    fn reply(&mut self, number: u32, tag: Tag, result: Result<(), IoError>) {
        let thread = &mut self.threads[number as usize];
        *thread = Thread::new(thread.previous_end);
        self.free.push(number);
        self.done.push_back(Completion { tag, result });
    }
}

impl<D: BlockDevice<Memory = Span>> BlockDevice for Server<D> {
    type Memory = Span;

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn submit(&mut self, io: &Io<'_, Span>, _now: Instant) -> Result<(), Busy> {
        if self.commands_left == 0 {
            return Err(Busy { tag: io.tag });
        }
        self.commands_left -= 1;
        let (at, bytes) = (io.extent.start().0 * SECTOR_BYTES, io.extent.bytes());
        if io.op == Op::Read {
            self.commands.push_back(Command { tag: io.tag, at, end: at + bytes });
        } else {
            self.done.push_back(Completion { tag: io.tag, result: Err(IoError::Unsupported) });
        }
        Ok(())
    }

    fn commit(&mut self, now: Instant) {
        self.advance(now);
    }

    fn poll_completion(&mut self, now: Instant) -> Option<Completion> {
        self.advance(now);
        let done = self.done.pop_front()?;
        self.commands_left += 1;
        Some(done)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        earlier(self.pages.poll_timeout(), self.busy.peek().map(|Reverse((until, ..))| *until))
    }
}
