//! A volume of a run: its disks, queues, page cache and calls in progress, and the model of its bytes. `calls.rs` and
//! `direct.rs` execute the calls; this file builds the volume, advances it, and checks it as a whole.

mod call;
mod calls;
mod direct;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use iopath_core::buffered::{BufferedPath, Geometry, PageBio, Step};
use iopath_core::cache::{CacheConfig, IoTag};
use iopath_core::mapped::{MappedDevice, MappedFile};
use iopath_core::mapper::FileLayout;
use iopath_core::readahead::ReadaheadConfig;
use iopath_core::{
    Bio, Damage, Duration, Extent, FaultPlan, FaultyDevice, Instant, IoError, Limits, Op, Priority,
    QueueConfig, QueuedDevice, Stream, Stripe, StripeConfig, SubmitError,
};

use crate::arena::{Arena, PageFrames, Span};
use crate::contents::{Contents, Reader};
use crate::coverage::{Coverage, State};
use crate::device::{Below, Device, DiskFaults, Faults, Faulty, Host};
use crate::disk::{DiskConfig, Platter, Port};
use crate::random::Random;
use crate::scenario::{Layout, VolumePlan};
use crate::trace::{Event, Trace};
use call::Call;

pub(crate) const PAGE: u64 = 4096;

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
    contents: Contents,
    /// A silent fault may have changed the bytes of the last block past the end.
    is_end_damaged: bool,
    calls: Vec<Option<Call>>,
    /// Counts the events that the model orders.
    clock: u64,
    writes: u64,
    pub(crate) checked_bytes: u64,
    pub(crate) damaged_cells: u64,
    pub(crate) failed_calls: u64,
    pub(crate) completed_calls: u64,
}

/// A queue on a device, and its bios in the order of submission, to check rule 1.
#[derive(Debug)]
struct Queue {
    device: QueuedDevice<Device>,
    submitted: VecDeque<(u64, Op, Extent)>,
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
                Rc::new(RefCell::new(DiskFaults { plan: faults, flush_loses, is_cache_lost: false }))
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
            contents: Contents::new(plan.bytes),
            is_end_damaged: false,
            calls: Vec::new(),
            clock: 1,
            writes: 0,
            checked_bytes: 0,
            damaged_cells: 0,
            failed_calls: 0,
            completed_calls: 0,
        };
        volume.open();
        volume
    }

    /// Makes queues and an empty page cache on the disks.
    fn open(&mut self) {
        let plan = &self.plan;
        if let Layout::Mapped { mapper, .. } = plan.layout {
            let capacity_bytes =
                self.platters.iter().map(|platter| platter.borrow().bytes().len() as u64).sum();
            let layout = FileLayout { block_bytes: 4096, size_bytes: plan.bytes, capacity_bytes };
            let file = MappedFile::fresh(mapper, &layout).expect("the disks have room for the file");
            self.host = Some(Host::new(file, &self.arena));
        }
        let count = plan.queues + usize::from(plan.cache.is_some());
        self.queues = (0..count).map(|_| self.queue()).collect();
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
            size_bytes: self.plan.bytes,
            writes_last_block: matches!(self.plan.layout, Layout::Mapped { .. }),
        };
        let frames = PageFrames::new(&self.arena, cache.frames, PAGE as u32);
        self.frames = Some(frames);
        self.path = Some(BufferedPath::new(config, readahead, geometry, frames));
    }

    fn queue(&self) -> Queue {
        let mut disks: Vec<Faulty> = self
            .platters
            .iter()
            .zip(&self.faults)
            .map(|(platter, faults)| FaultyDevice::new(Port::new(platter, &self.arena), Rc::clone(faults)))
            .collect();
        let chunk_sectors = match self.plan.layout {
            Layout::Striped { chunk_sectors, .. } => chunk_sectors,
            _ => 16,
        };
        let below = if disks.len() == 1 {
            Below::One(disks.remove(0))
        } else {
            let config = StripeConfig { chunk_sectors, ..StripeConfig::default() };
            Below::Several(Stripe::new(disks, &config).expect("equal disks form a stripe"))
        };
        let device = match (&self.host, self.plan.layout) {
            (Some(host), Layout::Mapped { boundary, .. }) => {
                let engine = host.add_engine();
                let mapped = MappedDevice::new(below, host.clone(), engine, boundary);
                Device::Mapped(Box::new(mapped.expect("the file fits the disks")))
            }
            _ => Device::Disks(Box::new(below)),
        };
        let plan = &self.plan;
        let config = QueueConfig {
            bios_max: plan.bios_max,
            requests_max: plan.requests_max,
            depth: plan.depth,
            plug_requests_max: plan.plug_requests_max,
            elevator: plan.elevator(),
        };
        Queue { device: QueuedDevice::new(device, &config), submitted: VecDeque::new() }
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn log(&self, now: Instant, task: usize, what: &'static str, at: u64, bytes: u64) {
        self.trace.add(Event { now, volume: self.number, task, what, at, bytes, result: None });
    }

    fn log_result(&self, now: Instant, task: usize, what: &'static str, result: Result<(), IoError>) {
        let (volume, result) = (self.number, Some(result));
        self.trace.add(Event { now, volume, task, what, at: 0, bytes: 0, result });
    }

    /// Executes all work that is due, until the volume waits for a time.
    pub(crate) fn advance(&mut self, now: Instant, coverage: &mut Coverage) {
        for round in 0.. {
            assert!(round < ROUNDS_MAX, "liveness: volume {} does not come to rest at {now:?}", self.number);
            let mut is_changed = self.advance_path(now);
            for queue in 0..self.queues.len() {
                is_changed |= self.advance_queue(queue, now);
            }
            while let Some(ready) = self.path.as_mut().and_then(BufferedPath::poll_ready) {
                is_changed = true;
                self.wake(ready.waiter as usize, ready.outcome, now);
            }
            is_changed |= self.advance_calls(now);
            if !is_changed {
                break;
            }
        }
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
        let (stream, priority) = (Stream(0), Priority::BestEffort);
        let queued = Bio { op, extent, memory, fua: false, stream, priority, token };
        let Queue { device, submitted } = &mut self.queues[0];
        match device.submit_bio(queued, now) {
            Ok(()) => {
                submitted.push_back((token, op, extent));
                true
            }
            Err(why) => {
                let is_full = matches!(why, SubmitError::QueueFull(_));
                assert!(is_full, "rule 8: the queue refuses I/O of the cache: {why}");
                let path = self.path.as_mut().expect("it gave the step");
                path.handle_refused(bio, &why, now);
                let refused = why.into_bio();
                assert_eq!(
                    (refused.token, refused.extent),
                    (token, extent),
                    "rule 8: another bio comes back"
                );
                false
            }
        }
    }

    fn advance_queue(&mut self, index: usize, now: Instant) -> bool {
        let queue = &mut self.queues[index].device;
        // A completion can give its slot to a waiting bio, which the plug then holds.
        queue.collect(now);
        if self.plan.stays_plugged {
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
            self.check_order(index, done.token);
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
    fn check_order(&mut self, index: usize, token: u64) {
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
    }

    fn take_damage(&mut self) {
        for (platter, faults) in self.platters.iter().zip(&self.faults) {
            if std::mem::take(&mut faults.borrow_mut().is_cache_lost) {
                platter.borrow_mut().lose_cache();
                self.contents.put_at_risk();
                if self.path.is_none() {
                    // Without a page cache, a program must write again after a failed flush.
                    self.contents.accept_loss();
                }
            }
        }
        if self.plan.layout != Layout::Plain {
            return;
        }
        let damage = self.faults[0].borrow_mut().plan.take_damage();
        for damage in damage {
            let range = match damage {
                Damage::NotWritten(extent) | Damage::Overwritten(extent) => {
                    extent.offset()..extent.offset() + extent.bytes()
                }
                Damage::BitFlipped { offset, bit } => {
                    self.platters[0].borrow_mut().flip(offset, bit);
                    offset..offset + 1
                }
            };
            self.is_end_damaged |= range.end > self.plan.bytes;
            self.contents.damage(&range);
        }
    }

    /// The earliest time at which the volume has work.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let path = self.path.as_ref().and_then(BufferedPath::poll_timeout);
        let queues = self.queues.iter().filter_map(|queue| queue.device.poll_timeout());
        let calls = self.calls.iter().flatten().filter_map(Call::due);
        path.into_iter().chain(queues).chain(calls).min()
    }

    /// The times at which the parts of the volume have work, for the message of a failure.
    pub(crate) fn describe_due(&self) -> String {
        let path = self.path.as_ref().and_then(BufferedPath::poll_timeout);
        let calls = self.calls.iter().flatten().filter_map(Call::due).min();
        let queues: Vec<_> = self
            .queues
            .iter()
            .map(|queue| {
                let (requests, device) = (queue.device.queue(), queue.device.device());
                (
                    requests.poll_timeout(),
                    iopath_core::BlockDevice::poll_timeout(device),
                    requests.in_flight(),
                )
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
        self.faults.iter().for_each(|faults| faults.borrow_mut().plan.stop());
    }

    /// Power fails, and the volume is opened again. Checks that the medium has only bytes that may be left.
    pub(crate) fn power_cut(&mut self, now: Instant, random: &mut Random) {
        if matches!(self.plan.layout, Layout::Mapped { .. }) {
            return; // The space of a mapped file is in memory only.
        }
        self.log(now, 0, "power cut", 0, 0);
        for platter in &self.platters {
            platter.borrow_mut().lose_power(&self.arena, random);
        }
        self.queues.clear();
        self.path = None;
        for call in std::mem::take(&mut self.calls).into_iter().flatten() {
            call.abandon(&self.arena);
        }
        if let Some(frames) = self.frames.take() {
            frames.release(&self.arena);
        }
        let bytes = self.visible_bytes();
        self.check_survivor(0, &bytes);
        let clock = self.tick();
        self.contents.restart(&bytes, clock);
        self.open();
    }

    /// The bytes of the volume on its disks.
    fn visible_bytes(&self) -> Vec<u8> {
        let sectors = self.plan.bytes.div_ceil(512);
        let mut bytes = Vec::with_capacity((sectors * 512) as usize);
        for sector in 0..sectors {
            let (member, place) = self.locate(sector);
            let start = place as usize * 512;
            bytes.extend_from_slice(&self.platters[member].borrow().bytes()[start..start + 512]);
        }
        bytes
    }

    /// The disk and the sector of a sector of the volume.
    fn locate(&self, sector: u64) -> (usize, u64) {
        match self.plan.layout {
            Layout::Striped { members, chunk_sectors } => {
                let (chunk, rest) = (sector / chunk_sectors, sector % chunk_sectors);
                let members = members as u64;
                ((chunk % members) as usize, chunk / members * chunk_sectors + rest)
            }
            _ => (0, sector),
        }
    }

    /// A flush that began at `start` has succeeded: all bytes that a power failure could leave must be permitted.
    fn flushed(&mut self, start: u64) {
        let oldest = self.calls.iter().flatten().map(Call::oldest).min().unwrap_or(u64::MAX);
        self.contents.flushed(start, oldest);
        self.check_medium();
    }

    fn check_medium(&mut self) {
        if matches!(self.plan.layout, Layout::Mapped { .. }) {
            return;
        }
        for sector in 0..self.plan.bytes.div_ceil(512) {
            let (member, place) = self.locate(sector);
            let platter = Rc::clone(&self.platters[member]);
            for bytes in platter.borrow().survivors(place) {
                self.check_survivor(sector * 512, bytes);
            }
        }
    }

    fn check_survivor(&mut self, offset: u64, bytes: &[u8]) {
        match self.contents.check_survivor(offset, bytes) {
            Ok(damaged) => self.damaged_cells += damaged,
            Err(wrong) => panic!("rule 1, durability: a power failure could leave a wrong byte: {wrong}"),
        }
    }

    fn check_read(&mut self, offset: u64, bytes: &[u8], reader: Reader) {
        self.checked_bytes += bytes.len() as u64;
        match self.contents.check_read(offset, bytes, reader) {
            Ok(damaged) => self.damaged_cells += damaged,
            Err(wrong) => panic!("rule 2: a read returns a wrong byte: {wrong}"),
        }
    }

    /// A caller gets an error. Without an injected fault, no I/O fails.
    fn failed(&mut self, why: IoError) {
        self.failed_calls += 1;
        assert!(self.injected() > 0, "rule 6: a call fails with {why:?}, and no fault was injected");
    }

    pub(crate) fn set_elevator(&mut self, name: &str, now: Instant) {
        let spec = name.parse().expect("the elevator is in the table");
        self.queues.iter_mut().for_each(|queue| queue.device.queue_mut().set_elevator(&spec, now));
    }

    pub(crate) fn set_depth(&mut self, depth: u32) {
        self.queues.iter_mut().for_each(|queue| queue.device.queue_mut().set_depth(depth));
    }

    pub(crate) fn set_weight(&mut self, stream: u32, weight: u32) {
        for queue in &mut self.queues {
            queue.device.queue_mut().set_weight(Stream(stream), weight);
        }
    }

    pub(crate) fn forget_metadata(&self) {
        if let Some(host) = &self.host {
            host.forget_metadata();
        }
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
            has_held: queues().any(|queue| queue.stats().held > 0),
            is_dirty: stats.is_some_and(|stats| stats.dirty > 0),
            is_writing: stats.is_some_and(|stats| stats.writing > 0),
            has_failed: stats.is_some_and(|stats| stats.failed > 0),
            has_loss: self.path.as_ref().is_some_and(|path| path.loss().is_some()),
            has_guard: waits(Call::holds_page),
            waits_for_gate: waits(Call::waits_for_gate),
            waits_for_frame: waits(Call::waits_for_frame),
            is_blocked: self.queues.iter().any(|queue| queue.device.device().is_blocked()),
        }
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
