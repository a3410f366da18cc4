//! A volume of a run: its disks, queues, page cache and calls in progress, and the model of its bytes. `calls.rs`,
//! `direct.rs` and `resize.rs` execute the calls, `settings.rs` changes settings, `medium.rs` has silent faults and
//! power failures, `full_disk.rs` disks without space. This file builds the volume, advances it, and checks it as a
//! whole.

mod call;
mod calls;
mod direct;
mod full_disk;
mod medium;
mod resize;
mod settings;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use iopath_core::buffered::{BufferedPath, Geometry, PageBio, Step};
use iopath_core::cache::{CacheConfig, IoTag};
use iopath_core::mapped::{MappedDevice, MappedFile};
use iopath_core::mapper::{FileLayout, FreeSpace, MAPPERS};
use iopath_core::readahead::ReadaheadConfig;
use iopath_core::{
    Bio, BlockDevice, Duration, Extent, FaultPlan, FaultyDevice, Instant, IoError, Limits, Op, Priority,
    QueueConfig, QueuedDevice, Sector, Stream, Stripe, StripeConfig, SubmitError,
};

use crate::arena::{Arena, Owner, PageFrames, Span};
use crate::contents::{Contents, Reader};
use crate::coverage::{Coverage, State};
use crate::device::{Below, Device, DiskFaults, Faults, Faulty, Host};
use crate::disk::{DiskConfig, Platter, Port};
use crate::map::KeptMap;
use crate::scenario::{Layout, VolumePlan};
use crate::space::ReusedSpace;
use crate::trace::{Event, Trace};
use call::{Call, Kind};
use medium::Kept;

pub(crate) const PAGE: u64 = 4096;

/// The chunk of a stripe below a mapped file.
const MAPPED_CHUNK_SECTORS: u64 = 16;

/// The bit of a bio's token that marks an I/O of the page cache.
const OF_CACHE: u64 = 1 << 63;

/// The bits of such a token that hold the tag of the I/O. The others hold a number, because several bios have one tag.
const TAG_BITS: u32 = 24;

/// The number of rounds in which a volume must come to rest at one time.
const ROUNDS_MAX: u32 = 100_000;

#[derive(Debug)]
pub(crate) struct Volume {
    number: usize,
    plan: VolumePlan,
    arena: Arena,
    trace: Trace,
    platters: Vec<Rc<RefCell<Platter>>>,
    faults: Vec<Faults>,
    queues: Vec<Queue>,
    path: Option<BufferedPath<PageFrames>>,
    frames: Option<PageFrames>,
    host: Option<Host>,
    /// The map of a mapped file that survives power failures.
    kept: Option<Kept>,
    /// The engine that resizes a mapped file.
    control: Option<Box<MappedDevice<Below, Host>>>,
    /// The present size in bytes; the size of the plan is the largest.
    size_bytes: u64,
    /// The event at which the last resize ended.
    resized_at: u64,
    contents: Contents,
    /// A silent fault may have changed the bytes of the last block past the end.
    is_end_damaged: bool,
    has_damage: bool,
    /// A flush of the device has failed: the pages that it may have lost are dirty again, possibly the whole cache.
    has_failed_flush: bool,
    calls: Vec<Option<Call>>,
    /// Counts the events that the model orders.
    clock: u64,
    writes: u64,
    pub(crate) checked_bytes: u64,
    pub(crate) damaged_cells: u64,
    pub(crate) failed_calls: u64,
    pub(crate) completed_calls: u64,
    direct: DirectBytes,
}

/// The bytes of completed direct reads and writes.
#[derive(Debug, Clone, Copy, Default)]
struct DirectBytes {
    read: u64,
    written: u64,
}

impl DirectBytes {
    const fn add(&mut self, op: Op, bytes: u64) {
        match op {
            Op::Read => self.read += bytes,
            _ => self.written += bytes,
        }
    }
}

/// A queue on a device, and its bios in the order of submission, to check rule 1.
#[derive(Debug)]
struct Queue {
    device: QueuedDevice<Device>,
    submitted: VecDeque<(u64, Op, Extent)>,
    /// A batch is being submitted: the queue stays plugged until then.
    plugged_until: Option<Instant>,
}

impl Volume {
    pub(crate) fn new(number: usize, plan: &VolumePlan, arena: &Arena, trace: &Trace) -> Self {
        let members = match plan.layout {
            Layout::Plain => 1,
            Layout::Striped { members, .. } | Layout::Mapped { members, .. } => members,
        };
        let is_mapped = matches!(plan.layout, Layout::Mapped { .. });
        // A mapped file has room for metadata and for blocks that wait in quarantine.
        let needed = if is_mapped { plan.bytes * 3 + (1 << 20) } else { plan.bytes };
        let capacity =
            needed.div_ceil(members as u64 * 512).next_multiple_of(if is_mapped { 128 } else { 1 });
        let limits = Limits {
            request_bytes_max: plan.request_bytes_max,
            segments_max: plan.segments_max,
            depth_max: plan.disk_depth,
            discard_bytes_max: if plan.has_discard { 1 << 20 } else { 0 },
            write_zeroes_bytes_max: if plan.has_discard { 1 << 16 } else { 0 },
            chunk_sectors: plan.chunk_sectors,
            volatile_cache: plan.has_write_cache,
            fua: plan.has_fua && plan.has_write_cache,
            ..Limits::with_capacity(capacity)
        };
        let config = DiskConfig {
            limits,
            latency: plan.latency,
            seek_nanos: plan.seek_nanos,
            channels: plan.channels,
            writes_early: plan.writes_early,
            discard_zeroes: plan.discard_zeroes,
            // A new file must never show the earlier bytes of the disk.
            fill: if is_mapped { 0xEE } else { 0 },
        };
        let platters = (0..members).map(|_| Platter::new(config.clone())).collect();
        let faults = (0..members as u64)
            .map(|member| {
                let mut faults = FaultPlan::new(plan.seed ^ member << 32);
                plan.faults.iter().for_each(|fault| faults.add(fault.clone()));
                faults.shuffle(plan.is_shuffled);
                faults.keep_damage();
                // The model of a mapped file cannot know which metadata a failed flush has lost.
                let flush_loses = plan.flush_loses && !is_mapped;
                Rc::new(RefCell::new(DiskFaults {
                    plan: faults,
                    flush_loses,
                    is_cache_lost: false,
                    is_full: false,
                    refused: 0,
                }))
            })
            .collect();
        let mut volume = Self {
            number,
            plan: plan.clone(),
            arena: arena.clone(),
            trace: trace.clone(),
            platters,
            faults,
            queues: Vec::new(),
            path: None,
            frames: None,
            host: None,
            kept: None,
            control: None,
            size_bytes: plan.extras.first_bytes.unwrap_or(plan.bytes),
            resized_at: 0,
            contents: Contents::new(plan.bytes),
            is_end_damaged: false,
            has_damage: false,
            has_failed_flush: false,
            calls: Vec::new(),
            clock: 1,
            writes: 0,
            checked_bytes: 0,
            damaged_cells: 0,
            failed_calls: 0,
            completed_calls: 0,
            direct: DirectBytes::default(),
        };
        let file = volume.new_file();
        volume.open(file);
        volume
    }

    /// A new mapped file, if the volume is one.
    fn new_file(&mut self) -> Option<MappedFile> {
        let Layout::Mapped { mapper, .. } = self.plan.layout else { return None };
        let layout = self.file_layout();
        let first = u64::from(layout.block_bytes) / 512;
        let all =
            Extent::new(Sector(first), layout.capacity_sectors() - first).expect("within the address space");
        if self.plan.extras.survives_power {
            let map = KeptMap::new(mapper, &layout);
            self.kept = Some(Kept::new(&map));
            return Some(MappedFile::new(Box::new(map), Box::new(FreeSpace::new(all))));
        }
        if self.plan.extras.reuses_space {
            let kind = MAPPERS.iter().find(|kind| kind.name == mapper).expect("the mapper is in the table");
            let made = (kind.make)(&layout).expect("it fits the disks");
            return Some(MappedFile::new(made, Box::new(ReusedSpace::new(all))));
        }
        Some(MappedFile::fresh(mapper, &layout).expect("the disks have room for the file"))
    }

    fn file_layout(&self) -> FileLayout {
        let capacity_bytes = self.platters.iter().map(|platter| platter.borrow().bytes().len() as u64).sum();
        FileLayout { block_bytes: 4096, size_bytes: self.plan.bytes, capacity_bytes }
    }

    /// Makes queues and an empty page cache on the disks.
    fn open(&mut self, file: Option<MappedFile>) {
        self.host = file.map(|file| Host::new(file, &self.arena));
        self.has_failed_flush = false;
        let plan = &self.plan;
        let count = plan.queues + usize::from(plan.cache.is_some());
        self.queues = (0..count).map(|_| self.queue()).collect();
        self.control = if self.plan.extras.resizes { self.engine().map(Box::new) } else { None };
        self.set_capacity(self.size_bytes);
        let Some(cache) = self.plan.cache else { return };
        let config = CacheConfig {
            frames: cache.frames,
            page_bytes: PAGE as u32,
            io_pages_max: cache.io_pages_max,
            reads_max: cache.reads_max,
            writes_max: cache.writes_max,
            background_percent: cache.background_percent,
            limit_percent: 60.max(cache.background_percent),
            expire: cache.expire,
        };
        let readahead = cache.readahead.map(|policy| ReadaheadConfig {
            page_bytes: PAGE as u32,
            request_bytes: u64::from(cache.io_pages_max) * PAGE,
            budget_bytes: u64::from(cache.frames.div_ceil(2)) * PAGE,
            streams_max: 4,
            policy,
        });
        let geometry = Geometry {
            page_bytes: PAGE as u32,
            block_bytes: 512,
            size_bytes: self.size_bytes,
            writes_last_block: matches!(self.plan.layout, Layout::Mapped { .. }),
        };
        let frames = PageFrames::new(&self.arena, cache.frames, PAGE as u32);
        self.frames = Some(frames);
        self.path = Some(BufferedPath::new(config, readahead, geometry, frames));
    }

    /// The disks, for one more queue.
    fn below(&self) -> Below {
        let mut disks: Vec<Faulty> = self
            .platters
            .iter()
            .zip(&self.faults)
            .map(|(platter, faults)| FaultyDevice::new(Port::new(platter, &self.arena), Rc::clone(faults)))
            .collect();
        if disks.len() == 1 {
            return Below::One(disks.remove(0));
        }
        let chunk_sectors = match self.plan.layout {
            Layout::Striped { chunk_sectors, .. } => chunk_sectors,
            _ => MAPPED_CHUNK_SECTORS,
        };
        let config = StripeConfig { chunk_sectors, ..StripeConfig::default() };
        Below::Several(Stripe::new(disks, &config).expect("equal disks form a stripe"))
    }

    /// An engine on the mapped file, if the volume is one.
    fn engine(&self) -> Option<MappedDevice<Below, Host>> {
        let (Some(host), Layout::Mapped { boundary, .. }) = (&self.host, self.plan.layout) else {
            return None;
        };
        let engine = MappedDevice::new(self.below(), host.clone(), host.add_engine(), boundary);
        Some(engine.expect("the file fits the disks"))
    }

    fn queue(&self) -> Queue {
        let device = match self.engine() {
            Some(mapped) => Device::Mapped(Box::new(mapped)),
            None => Device::Disks(Box::new(self.below())),
        };
        let plan = &self.plan;
        let config = QueueConfig {
            bios_max: plan.bios_max,
            requests_max: plan.requests_max,
            depth: plan.depth,
            plug_requests_max: plan.plug_requests_max,
            elevator: plan.elevator(&plan.elevator),
        };
        let device = QueuedDevice::new(device, &config);
        Queue { device, submitted: VecDeque::new(), plugged_until: None }
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn log(&self, now: Instant, task: usize, what: &'static str, at: u64, bytes: u64) {
        self.trace.add(Event { now, volume: self.number, task, what, at, bytes, result: None });
    }

    fn log_result(&self, now: Instant, task: usize, what: &'static str, result: Result<(), IoError>) {
        let event = Event { now, volume: self.number, task, what, at: 0, bytes: 0, result: Some(result) };
        self.trace.add(event);
    }

    /// Executes all work that is due, until the volume waits for a time.
    pub(crate) fn advance(&mut self, now: Instant, coverage: &mut Coverage) {
        for round in 0.. {
            assert!(round < ROUNDS_MAX, "liveness: volume {} does not come to rest at {now:?}", self.number);
            let mut is_changed = self.advance_path(now);
            for queue in 0..self.queues.len() {
                is_changed |= self.advance_queue(queue, now);
            }
            is_changed |= self.advance_control(now);
            while let Some(ready) = self.path.as_mut().and_then(BufferedPath::poll_ready) {
                is_changed = true;
                self.wake(ready.waiter as usize, ready.outcome, now);
            }
            is_changed |= self.advance_calls(now);
            if !is_changed {
                break;
            }
        }
        self.check_frames();
        coverage.add(self.state());
    }

    fn advance_path(&mut self, now: Instant) -> bool {
        let mut is_changed = false;
        while let Some(step) = self.path.as_mut().and_then(|path| path.poll_step(now)) {
            is_changed = true;
            match step {
                Step::Submit(bio) => {
                    if !self.submit_of_cache(bio, now) {
                        break;
                    }
                }
                Step::Zero { frame, from } => {
                    let whole = self.frames.expect("a path has frames").whole(frame);
                    self.arena.with(whole, |bytes| bytes[from..].fill(0));
                }
                Step::WriteTail { tag, frame, from, bytes, offset } => {
                    let whole = self.frames.expect("a path has frames").whole(frame);
                    let tail = self.arena.with(whole, |memory| memory[from..from + bytes].to_vec());
                    self.platters[0].borrow_mut().write_tail(offset, &tail);
                    let path = self.path.as_mut().expect("it gave the step");
                    path.handle_completion(tag, Ok(()), now);
                }
            }
        }
        is_changed
    }

    /// Returns whether the queue had room.
    fn submit_of_cache(&mut self, bio: PageBio<Span>, now: Instant) -> bool {
        let PageBio { tag, op, extent, memory } = bio;
        let token = OF_CACHE | self.tick() << TAG_BITS | u64::from(tag.0);
        let stream = Stream(0);
        let priority = Priority::BestEffort;
        let queued = Bio { op, extent, memory, fua: false, stream, priority, token };
        let Queue { device, submitted, .. } = &mut self.queues[0];
        match device.submit_bio(queued, now) {
            Ok(()) => {
                submitted.push_back((token, op, extent));
                if op == Op::Flush {
                    self.begin_store(0, token);
                }
                true
            }
            Err(why) => {
                let is_full = matches!(why, SubmitError::QueueFull(_));
                let is_cut =
                    matches!(why, SubmitError::OutOfRange { .. }) && self.is_past_end(extent.end().0 * 512);
                assert!(is_full || is_cut, "rule 8: the queue refuses I/O of the cache: {why}");
                let path = self.path.as_mut().expect("it gave the step");
                path.handle_refused(bio, &why, now);
                let refused = why.into_bio();
                assert_eq!(
                    (refused.token, refused.extent),
                    (token, extent),
                    "rule 8: another bio comes back"
                );
                is_cut
            }
        }
    }

    fn advance_queue(&mut self, index: usize, now: Instant) -> bool {
        let Queue { device: queue, plugged_until, .. } = &mut self.queues[index];
        // A completion can give its slot to a waiting bio, which the plug then holds.
        queue.collect(now);
        *plugged_until = plugged_until.filter(|until| *until > now);
        if plugged_until.is_some() {
            // A plug that is full is emptied nevertheless.
        } else if self.plan.stays_plugged {
            queue.empty_plug(now);
        } else {
            queue.unplug(now);
        }
        queue.dispatch(now);
        queue.commit(now);
        // Before a completion: a lost write may complete at once.
        self.take_damage();
        let mut is_changed = false;
        while let Some(done) = self.queues[index].device.poll_completion() {
            is_changed = true;
            let op = self.check_order(index, done.token);
            self.has_failed_flush |= op == Op::Flush && done.result.is_err();
            self.end_store(index, done.token, done.result.is_ok());
            if done.token & OF_CACHE > 0 {
                let tag = done.token as u32 & ((1 << TAG_BITS) - 1);
                self.log_result(now, tag as usize, "cache I/O", done.result);
                let path = self.path.as_mut().expect("only a cache has such tokens");
                path.handle_completion(IoTag(tag), done.result, now);
            } else {
                self.at_device_done(done.token as usize, done.result, now);
                if let (0, Some(path)) = (index, &mut self.path) {
                    path.handle_room();
                }
            }
        }
        is_changed
    }

    /// Rule 1: a bio completes after all earlier bios of its queue that overlap with it, if one of the two writes.
    /// Returns the operation of the bio.
    fn check_order(&mut self, index: usize, token: u64) -> Op {
        let submitted = &mut self.queues[index].submitted;
        let place = submitted.iter().position(|(other, ..)| *other == token);
        let place = place.expect("rule 8: a bio completes twice");
        let (_, op, extent) = submitted[place];
        for (earlier, other, over) in submitted.range(..place) {
            let is_ordered = op.is_write() || other.is_write();
            assert!(
                !is_ordered || !over.overlaps(extent),
                "rule 1: {op} of {extent} (call {token}) completes before the earlier {other} of {over} ({earlier})"
            );
        }
        submitted.remove(place);
        op
    }

    /// The earliest time at which the volume has work.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let path = self.path.as_ref().and_then(BufferedPath::poll_timeout);
        let queues = self.queues.iter().filter_map(|queue| queue.device.poll_timeout());
        let plugs = self.queues.iter().filter_map(|queue| queue.plugged_until);
        let calls = self.calls.iter().flatten().filter_map(Call::due);
        let control = self.control.as_deref().and_then(BlockDevice::poll_timeout);
        path.into_iter().chain(queues).chain(control).chain(plugs).chain(calls).min()
    }

    /// The times at which the parts of the volume have work, for the message of a failure.
    pub(crate) fn describe_due(&self) -> String {
        let path = self.path.as_ref().and_then(BufferedPath::poll_timeout);
        let calls = self.calls.iter().flatten().filter_map(Call::due).min();
        let queues: Vec<_> = self
            .queues
            .iter()
            .map(|Queue { device, .. }| {
                let requests = device.queue();
                (requests.poll_timeout(), device.device().poll_timeout(), requests.in_flight())
            })
            .collect();
        format!(
            "volume {}: cache {path:?}, calls {calls:?}, queues, devices, in flight {queues:?}",
            self.number
        )
    }

    pub(crate) fn calls_in_progress(&self) -> usize {
        self.calls.iter().flatten().count()
    }

    /// Whether neither a call nor a bio is in progress.
    pub(crate) fn is_idle(&self) -> bool {
        self.calls_in_progress() == 0 && self.queues.iter().all(|queue| queue.device.queue().bios_in() == 0)
    }

    pub(crate) fn injected(&self) -> u64 {
        self.faults.iter().map(|faults| faults.borrow().plan.injected()).sum()
    }

    pub(crate) fn executed(&self) -> u64 {
        self.platters.iter().map(|platter| platter.borrow().executed()).sum()
    }

    pub(crate) fn release_stuck(&mut self) {
        self.faults.iter().for_each(|faults| faults.borrow_mut().plan.release());
        if let Some(path) = &mut self.path {
            path.accept_loss();
            self.contents.accept_loss();
        }
    }

    pub(crate) fn stop_faults(&mut self) {
        self.set_full(false);
        self.faults.iter().for_each(|faults| faults.borrow_mut().plan.stop());
    }

    fn check_read(&mut self, offset: u64, bytes: &[u8], reader: Reader) {
        self.checked_bytes += bytes.len() as u64;
        match self.contents.check_read(offset, bytes, reader) {
            Ok(damaged) => self.damaged_cells += damaged,
            Err(wrong) => panic!("rule 2: a read returns a wrong byte: {wrong}"),
        }
    }

    /// A caller gets an error. Without an injected fault, no I/O fails.
    fn failed(&mut self, index: usize, why: IoError) {
        self.failed_calls += 1;
        let call = self.call(index);
        let (start, end) = (call.start, call.offset + call.bytes);
        // I/O past an end that has moved fails.
        let is_cut = why == IoError::EndOfDevice && (self.is_past_end(end) || self.has_resized_since(start));
        // A full disk fails no buffered read.
        let is_read = matches!(self.call(index).kind, Kind::Read { .. });
        let faults = self.injected() + if is_read { 0 } else { self.refused() };
        assert!(is_cut || faults > 0, "rule 6: a call fails with {why:?}, and no fault was injected");
    }

    /// The state of the volume, as the coverage counts it.
    fn state(&self) -> State {
        let stats = self.path.as_ref().map(|path| path.cache().stats());
        let waits = |what: fn(&Call) -> bool| self.calls.iter().flatten().any(what);
        let queues = || self.queues.iter().map(|queue| queue.device.queue());
        State {
            has_cache: self.path.is_some(),
            is_mapped: self.host.is_some(),
            is_queued: queues().any(|queue| queue.bios_in() > queue.in_flight()),
            is_in_flight: queues().any(|queue| queue.in_flight() > 0),
            is_full: queues().any(|queue| queue.bios_in() >= self.plan.bios_max),
            is_plugged: self.queues.iter().any(|queue| queue.plugged_until.is_some()),
            has_held: queues().any(|queue| queue.stats().held > 0),
            is_dirty: stats.is_some_and(|stats| stats.dirty > 0),
            is_writing: stats.is_some_and(|stats| stats.writing > 0),
            has_failed: stats.is_some_and(|stats| stats.failed > 0),
            has_loss: self.path.as_ref().is_some_and(|path| path.loss().is_some()),
            has_guard: waits(Call::holds_page),
            waits_for_gate: waits(Call::waits_for_gate),
            waits_for_frame: waits(Call::waits_for_frame),
            is_resizing: self.is_resizing(),
            is_blocked: self.queues.iter().any(|queue| queue.device.device().is_blocked()),
        }
    }

    /// Rule 4: the disks have moved all bytes of direct I/O from and to the memory of the programs. Returns them.
    pub(crate) fn check_zero_copy(&self) -> u64 {
        let moved =
            |owner| self.platters.iter().map(|platter| platter.borrow().moved().of(owner)).sum::<u64>();
        let DirectBytes { read, written } = self.direct;
        // A read of a hole moves no bytes.
        let is_mapped = self.host.is_some();
        let least = if is_mapped { written } else { read + written };
        let by_program = moved(Owner::Program);
        // The model does not know which bytes of a lost write the disk has not moved.
        assert!(
            by_program >= least || self.has_damage,
            "rule 4: direct I/O of {least} bytes moves {by_program} bytes in its memory"
        );
        assert!(is_mapped || moved(Owner::Library) == 0, "rule 4: direct I/O uses other memory than its own");
        assert!(
            self.path.is_some() || moved(Owner::Cache) == 0,
            "rule 4: a volume without a page cache uses one"
        );
        read + written
    }

    /// Checks that nothing of the calls is left.
    pub(crate) fn check_idle(&self) {
        for queue in &self.queues {
            let state = queue.device.queue();
            let left = (state.in_flight(), state.bios_in(), queue.submitted.len());
            assert_eq!(left, (0, 0, 0), "rule 8: requests, bios and tokens are left in an idle queue");
        }
        if let Some(path) = &self.path {
            let stats = path.cache().stats();
            let left = (stats.dirty, stats.writing, stats.failed);
            assert_eq!(left, (0, 0, 0), "rule 6: dirty, written and failed pages are left after a flush");
        }
    }
}

/// The longest time for which a call may last after the faults have stopped.
pub(crate) const LIVENESS: Duration = Duration::from_secs(120);
