//! A volume of a run: its disks, queues, page cache and calls in progress, and the model of its bytes.
//!
//! `begin.rs` begins calls; `calls.rs`, `direct.rs`, `bounced.rs` and `resize.rs` execute them, and `ends.rs` those
//! that extend the volume; `trim.rs` trims the file. `append.rs` and `own.rs` have I/O that bypasses the queue,
//! and `plain.rs` that of a new file without a page cache.
//! `locks.rs` locks the ranges of calls, `starvation.rs` ends those that lack a frame, `settings.rs` changes settings.
//! `medium.rs` has silent faults and power failures, `full_disk.rs` disks without space, `budget.rs` caches that lose
//! memory, `death.rs` and `outside.rs` other programs, and `reader.rs` one that reads the same file. `advance.rs`
//! advances the volume, and `checks.rs` checks it as a whole. This file builds it.

mod advance;
mod append;
mod begin;
mod bounced;
mod budget;
mod call;
mod calls;
mod checks;
mod death;
mod direct;
mod ends;
mod full_disk;
mod locks;
mod medium;
mod outside;
mod own;
mod plain;
mod reader;
mod request;
mod resize;
mod settings;
mod starvation;
mod trim;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use iopath_core::buffered::{BufferedPath, Geometry};
use iopath_core::cache::CacheConfig;
use iopath_core::mapped::{MappedDevice, MappedFile};
use iopath_core::mapper::{FileLayout, FreeSpace, MAPPERS};
use iopath_core::readahead::ReadaheadConfig;
use iopath_core::volume::{RangeLocks, VolumeShape};
use iopath_core::{
    Duration, Extent, FaultPlan, FaultyDevice, Instant, IoError, Limits, Op, QueueConfig, QueuedDevice,
    Sector, Stripe, StripeConfig,
};

use crate::arena::{Arena, Owner, PageFrames};
use crate::contents::Contents;
use crate::device::{Below, Device, Faulty, Host, Refusing};
use crate::disk::{DiskConfig, Platter, Port};
use crate::faults::{DiskFaults, Faults};
use crate::map::KeptMap;
use crate::scenario::{CachePlan, Layout, VolumePlan};
use crate::space::ReusedSpace;
use crate::trace::{Event, Trace};
use call::Call;
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
    /// A new file: its page cache is not open, and `path` is not used.
    without_cache: Option<plain::WithoutCache>,
    /// The system calls of threads that bypass the queue of the page cache.
    own: Option<own::Own>,
    frames: Option<PageFrames>,
    host: Option<Host>,
    /// The map of a mapped file that survives power failures.
    kept: Option<Kept>,
    /// The engine that resizes a mapped file.
    control: Option<Box<MappedDevice<Below, Host>>>,
    /// The present end in bytes; the end of the plan is the largest.
    size_bytes: u64,
    /// Set if writes extend the volume.
    end: Option<ends::End>,
    /// The event at which the last resize ended.
    resized_at: u64,
    contents: Contents,
    /// A silent fault may have changed the bytes of the last block past the end.
    is_end_damaged: bool,
    has_damage: bool,
    /// A flush of the device has failed: the pages that it may have lost are dirty again, possibly the whole cache.
    has_failed_flush: bool,
    calls: Vec<Option<Call>>,
    shape: VolumeShape,
    locks: RangeLocks,
    /// Counts the events that the model orders.
    clock: u64,
    writes: u64,
    pub(crate) checked_bytes: u64,
    pub(crate) damaged_cells: u64,
    /// Sectors that lying disks have lost.
    pub(crate) lost_sectors: u64,
    /// The program that reads the same file.
    reader: Option<Box<reader::ReadingProgram>>,
    /// The page that another program writes: see `outside.rs`.
    outsider: Option<outside::Outsider>,
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
    /// The program reads completions at this time, and not before.
    reads_at: Option<Instant>,
}

impl Queue {
    /// Rule 8: bios that their owners have not collected count.
    fn check_limit(&self, bios_max: u32) {
        let count = self.submitted.len();
        assert!(count <= bios_max as usize, "rule 8: a queue of {bios_max} bios has {count}");
    }
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
            ..Limits::with_capacity(plan.base_bytes() / 512 + capacity)
        };
        let config = DiskConfig {
            limits,
            latency: plan.latency,
            seek_nanos: plan.seek_nanos,
            channels: plan.channels,
            writes_early: plan.writes_early,
            discard_zeroes: plan.discard_zeroes,
            base_bytes: plan.base_bytes(),
            physical_sectors: plan.extras.disks.physical_sectors,
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
                let space = plan.extras.disks.space_sectors;
                Rc::new(RefCell::new(DiskFaults::new(faults, flush_loses, space)))
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
            without_cache: None,
            own: None,
            frames: None,
            host: None,
            kept: None,
            control: None,
            size_bytes: plan.base_bytes() + plan.extras.first_bytes.unwrap_or(plan.bytes),
            end: None,
            resized_at: 0,
            contents: Contents::new(plan.base_bytes(), plan.bytes),
            is_end_damaged: false,
            has_damage: false,
            has_failed_flush: false,
            calls: Vec::new(),
            shape: bounced::shape_of(plan),
            locks: RangeLocks::default(),
            clock: 1,
            writes: 0,
            checked_bytes: 0,
            damaged_cells: 0,
            lost_sectors: 0,
            reader: None,
            outsider: None,
            failed_calls: 0,
            completed_calls: 0,
            direct: DirectBytes::default(),
        };
        volume.end =
            plan.extras.extends.map(|plan| ends::End::new(plan, volume.size_bytes, volume.plan.seed));
        if volume.is_plain_file() {
            volume.platters[0].borrow_mut().make_file(volume.size_bytes);
        }
        let file = volume.new_file();
        volume.open(file);
        volume.open_reader();
        volume.add_outsider();
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
        let Self { plan, arena, .. } = self;
        self.host = file.map(|file| Host::new(file, arena, plan.extras.disks.refuses_memory, plan.seed));
        self.has_failed_flush = false;
        let plan = &self.plan;
        let count = plan.queues + usize::from(plan.cache.is_some());
        self.queues = (0..count).map(|_| self.queue()).collect();
        self.control = if self.plan.extras.resizes { self.engine().map(Box::new) } else { None };
        self.set_capacity(self.size_bytes);
        let Some(cache) = self.plan.cache else { return };
        self.frames = Some(PageFrames::new(&self.arena, cache.frames, PAGE as u32, Owner::Cache));
        self.path = Some(self.new_path(&cache));
        self.open_own();
        self.open_new_file();
    }

    /// An empty page cache in the memory of the volume.
    fn new_path(&self, cache: &CachePlan) -> BufferedPath<PageFrames> {
        let (config, readahead) = Self::cache_config(cache);
        let geometry = Geometry {
            page_bytes: PAGE as u32,
            block_bytes: 512,
            size_bytes: self.size_bytes,
            writes_last_block: matches!(self.plan.layout, Layout::Mapped { .. }),
        };
        BufferedPath::new(config, readahead, geometry, self.frames.expect("of a page cache"))
    }

    fn cache_config(cache: &CachePlan) -> (CacheConfig, Option<ReadaheadConfig>) {
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
        (config, readahead)
    }

    /// The disks, for one more queue.
    fn below(&self) -> Below {
        let mut disks: Vec<Faulty> = self
            .platters
            .iter()
            .zip(&self.faults)
            .map(|(platter, faults)| {
                let disk = FaultyDevice::new(Port::new(platter, &self.arena), Rc::clone(faults));
                Refusing::new(disk, self.plan.seed ^ self.clock, self.plan.extras.disks.refuses)
            })
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
        Queue { device, submitted: VecDeque::new(), plugged_until: None, reads_at: None }
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

    pub(crate) fn calls_in_progress(&self) -> usize {
        self.calls.iter().flatten().count()
    }

    /// Whether neither a call nor a bio is in progress.
    pub(crate) fn is_idle(&self) -> bool {
        self.calls_in_progress() == 0
            && self.queues.iter().all(|queue| queue.device.queue().bios_in() == 0)
            && self.reader.as_ref().is_none_or(|reader| reader.is_idle())
            && self.own.as_ref().is_none_or(own::Own::is_idle)
            && self.platters.iter().all(|platter| platter.borrow().orphans_due().is_none())
    }

    pub(crate) fn injected(&self) -> u64 {
        let of_disk = |faults: &Faults| faults.borrow().plan.injected() + faults.borrow().failed;
        self.faults.iter().map(of_disk).sum::<u64>()
            + self.host.as_ref().map_or(0, Host::refused)
            + self.end.as_ref().map_or(0, ends::End::refused)
    }

    pub(crate) fn executed(&self) -> u64 {
        self.platters.iter().map(|platter| platter.borrow().executed()).sum()
    }

    pub(crate) fn release_stuck(&mut self) {
        self.faults.iter().for_each(|faults| faults.borrow_mut().plan.release());
        self.accept_loss();
    }

    pub(crate) fn stop_faults(&mut self) {
        self.faults.iter().for_each(|faults| faults.borrow_mut().stop());
        self.platters.iter().for_each(|platter| platter.borrow_mut().set_lying(false));
        if let Some(host) = &self.host {
            host.stop_faults();
        }
        if let Some(end) = &mut self.end {
            end.stop_faults();
        }
    }
}

/// The longest time for which a call may last after the faults have stopped.
pub(crate) const LIVENESS: Duration = Duration::from_secs(120);
