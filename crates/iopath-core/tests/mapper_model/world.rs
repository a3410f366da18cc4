//! A file, its mapper, the device below, the possible values of each byte, and concurrent operations.
//!
//! The file's bytes lie in a window, so that high offsets can be tested without a model of all lower offsets.

use super::disk::{Blocks, CELL, Disk, STALE, Stamp, cells_of};
use super::task::{Allowed, Plan, Task};
use iopath_core::mapper::{
    Boundary, FileLayout, FileRange, MapError, Mapper, MapperKind, PunchPlan, Quarantine, ReadPlan, Step,
    WritePlan, Wrote, ZeroPlan,
};
use iopath_core::{Extent, Limits, SECTOR_BYTES};
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeSet;
use std::ops::Range;

/// Blocks of the device: too few for the whole window and its indirect blocks.
const DEVICE_BLOCKS: u64 = 90;
const WINDOW_BLOCKS: u64 = 96;
const TASKS_MAX: usize = 5;

/// Blocks at which the kind of path changes, with 256 pointers in an indirect block: direct, indirect, double, triple.
const CHANGES: [u64; 4] = [0, 12, 12 + 256, 12 + 256 + 256 * 256];

/// The events of a run.
#[derive(Debug, Default)]
pub(crate) struct Events {
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) failed_writes: u64,
    pub(crate) punches: u64,
    pub(crate) growths: u64,
    pub(crate) truncations: u64,
    pub(crate) metadata_reads: u64,
    pub(crate) out_of_space: u64,
    pub(crate) kept_back: u64,
}

impl Events {
    pub(crate) fn add(&mut self, other: &Self) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.failed_writes += other.failed_writes;
        self.punches += other.punches;
        self.growths += other.growths;
        self.truncations += other.truncations;
        self.metadata_reads += other.metadata_reads;
        self.out_of_space += other.out_of_space;
        self.kept_back += other.kept_back;
    }
}

#[derive(Debug)]
pub(crate) struct World {
    mapper: Box<dyn Mapper>,
    limits: Limits,
    disk: Disk,
    space: Quarantine<Blocks>,
    free_at_start: usize,
    window: FileRange,
    /// The possible values of each cell of the window.
    allowed: Allowed,
    tasks: Vec<Task>,
    stamp: Stamp,
    fails: f64,
    boundary: Boundary,
    can_change: bool,
    lived: Events,
}

fn only(stamp: Stamp) -> BTreeSet<Stamp> {
    BTreeSet::from([stamp])
}

impl World {
    pub(crate) fn new(kind: &MapperKind, rng: &mut ChaCha8Rng) -> Self {
        let block_bytes = 1024;
        let can_change = kind.name != "identity";
        let first =
            if can_change { CHANGES.choose(rng).unwrap().saturating_sub(rng.random_range(0..40)) } else { 0 };
        let window = FileRange::new(first * block_bytes, WINDOW_BLOCKS * block_bytes);
        let capacity = DEVICE_BLOCKS * block_bytes / SECTOR_BYTES;
        let size_bytes = if can_change { window.start() } else { capacity * SECTOR_BYTES };
        let layout =
            FileLayout { block_bytes: block_bytes as u32, size_bytes, capacity_bytes: 512 * capacity };
        let scatter = rng.random_range(0.0..0.5);
        let seed = ChaCha8Rng::from_rng(rng);
        let blocks = Blocks::new(DEVICE_BLOCKS as usize, block_bytes / SECTOR_BYTES, scatter, seed);
        let limits = Limits {
            logical_block_bytes: [512, 1024][rng.random_range(0..2)],
            request_bytes_max: 1024 << rng.random_range(0..6),
            chunk_sectors: [0, 0, 8, 32][rng.random_range(0..4)],
            write_zeroes_bytes_max: [0, 512, 4096][rng.random_range(0..3)],
            ..Limits::with_capacity(capacity)
        };
        let before = if can_change { only(0) } else { only(STALE) };
        Self {
            mapper: (kind.make)(&layout).unwrap(),
            limits,
            disk: Disk::new(capacity),
            free_at_start: blocks.free(),
            space: Quarantine::new(blocks),
            window,
            allowed: vec![before; (window.bytes() / CELL) as usize],
            tasks: Vec::new(),
            stamp: 0,
            fails: [0.0, 0.02, 0.2][rng.random_range(0..3)],
            boundary: *Boundary::ALL.choose(rng).unwrap(),
            can_change,
            lived: Events::default(),
        }
    }

    /// Begins an operation, polls the plan of one, or executes a step.
    pub(crate) fn step(&mut self, rng: &mut ChaCha8Rng) {
        if self.tasks.len() < TASKS_MAX && rng.random_bool(0.15) {
            self.begin(rng);
        }
        if rng.random_bool(0.02) {
            self.write_metadata();
        }
        if rng.random_bool(0.05) {
            self.mapper.forget_metadata();
        }
        if self.tasks.is_empty() {
            return;
        }
        let index = rng.random_range(0..self.tasks.len());
        let task = &self.tasks[index];
        if task.is_completed() {
            let task = self.tasks.swap_remove(index);
            self.finish(task);
        } else if task.is_planned || (!task.issued.is_empty() && rng.random_bool(0.3)) {
            let step = rng.random_range(0..task.issued.len());
            let step = self.tasks[index].issued.swap_remove(step);
            self.execute(index, step, rng);
        } else {
            self.plan_on(index, rng);
        }
    }

    /// Ends all operations in flight. Then checks the file, and that all its space is released.
    pub(crate) fn end(mut self, rng: &mut ChaCha8Rng) -> Events {
        while !self.tasks.is_empty() {
            self.step_without_new(rng);
        }
        self.fails = 0.0;
        self.begin_read(self.window);
        while !self.tasks.is_empty() {
            self.step_without_new(rng);
        }
        if self.can_change {
            self.unmap(FileRange::between(0, u64::MAX).inward(1024));
            self.write_metadata();
            assert_eq!(self.space.held_sectors(), 0, "no I/O is in flight");
            assert_eq!(self.space.inner().free(), self.free_at_start, "no space is lost");
        }
        self.lived
    }

    fn step_without_new(&mut self, rng: &mut ChaCha8Rng) {
        for index in (0..self.tasks.len()).rev() {
            while !self.tasks[index].is_planned {
                self.plan_on(index, rng);
            }
            while let Some(step) = self.tasks[index].issued.pop() {
                self.execute(index, step, rng);
            }
            let task = self.tasks.swap_remove(index);
            self.finish(task);
        }
    }

    fn range(&self, rng: &mut ChaCha8Rng, unit: u64) -> FileRange {
        let units = self.window.bytes() / unit;
        let start = rng.random_range(0..units);
        let count = rng.random_range(1..=(units - start).min(20 * 1024 / unit));
        FileRange::new(self.window.start() + start * unit, count * unit)
    }

    fn begin(&mut self, rng: &mut ChaCha8Rng) {
        let block = u64::from(self.limits.logical_block_bytes);
        match rng.random_range(0..100) {
            0..35 => {
                let file = self.range(rng, block);
                self.begin_read(file);
            }
            35..75 => {
                let file = self.range(rng, block);
                self.begin_write(file);
            }
            75..87 if self.can_change => {
                let file = self.range(rng, CELL);
                self.begin_punch(file);
            }
            87..94 if self.can_change => {
                let end = self.range(rng, CELL).end();
                self.begin_growth(end);
            }
            94..100 if self.can_change => {
                let end = self.range(rng, CELL).start();
                self.truncate(end);
            }
            _ => {}
        }
    }

    fn begin_read(&mut self, file: FileRange) {
        let plan = ReadPlan::new(file, &*self.mapper, &self.limits, self.boundary).unwrap();
        let file = file.up_to(file.start() + plan.bytes());
        let may_see = self.allowed[self.cells(file)].to_vec();
        let ticket = self.space.begin();
        self.tasks.push(Task::new(Plan::Read(plan, may_see), file, FileRange::default(), ticket));
    }

    fn begin_write(&mut self, file: FileRange) {
        let plan = WritePlan::new(file, &*self.mapper, &self.limits, self.boundary).unwrap();
        let lock = plan.footprint();
        if self.is_locked(lock) {
            return;
        }
        self.stamp += 1;
        let ticket = self.space.begin();
        // From now on a read may return it; bytes past the end only after the end has moved.
        self.may_become(file, self.stamp);
        self.tasks.push(Task::new(Plan::Write(plan, self.stamp), file, lock, ticket));
    }

    fn begin_punch(&mut self, file: FileRange) {
        let plan = PunchPlan::new(file, &*self.mapper, &self.limits).unwrap();
        let lock = plan.footprint();
        if self.is_locked(lock) {
            return;
        }
        let ticket = self.space.begin();
        self.may_become(file, 0);
        self.tasks.push(Task::new(Plan::Punch(plan), file, lock, ticket));
    }

    fn begin_growth(&mut self, size_bytes: u64) {
        let file = FileRange::between(self.mapper.size_bytes(), size_bytes);
        if file.is_empty() || self.is_locked(file) {
            return;
        }
        let plan = ZeroPlan::before_growth(size_bytes, &*self.mapper, &self.limits).unwrap();
        let ticket = self.space.begin();
        self.tasks.push(Task::new(Plan::Grow(plan, size_bytes), file, file.outward(1024), ticket));
    }

    /// Immediate, since no bytes must be zeroed.
    fn truncate(&mut self, size_bytes: u64) {
        let lock = FileRange::between(size_bytes, u64::MAX);
        if size_bytes >= self.mapper.size_bytes() || self.is_locked(lock) {
            return;
        }
        self.mapper.set_size(size_bytes).unwrap();
        self.becomes(self.window.from_offset(size_bytes), 0);
        self.unmap(self.mapper.blocks_past_end());
        self.lived.truncations += 1;
    }

    fn is_locked(&self, lock: FileRange) -> bool {
        self.tasks.iter().any(|task| !task.lock.and(lock).is_empty())
    }

    fn plan_on(&mut self, index: usize, rng: &mut ChaCha8Rng) {
        let task = &mut self.tasks[index];
        match task.poll_step(&*self.mapper, &self.limits) {
            None => task.is_planned = true,
            Some(Step::Submit) => {}
            Some(Step::Metadata { .. }) if rng.random_bool(self.fails) => task.stop(),
            Some(Step::Metadata { extent }) => self.read_metadata(extent),
            Some(Step::Allocate { file }) => match self.mapper.allocate(file, &mut self.space) {
                Ok(()) => {}
                Err(MapError::Metadata(extent)) => self.read_metadata(extent),
                Err(MapError::NoSpace) => {
                    self.lived.out_of_space += 1;
                    task.stop();
                }
                Err(MapError::Fixed(_)) if !self.can_change => task.stop(),
                Err(error) => panic!("{error}"),
            },
            Some(step) => task.issued.push(step),
        }
    }

    fn read_metadata(&mut self, extent: Extent) {
        self.lived.metadata_reads += 1;
        self.mapper.handle_metadata(extent, self.disk.metadata(extent)).unwrap();
    }

    fn write_metadata(&mut self) {
        while let Some(dirty) = self.mapper.poll_dirty() {
            self.disk.write_metadata(dirty.extent, dirty.bytes);
        }
    }

    fn execute(&mut self, index: usize, step: Step, rng: &mut ChaCha8Rng) {
        let fails = rng.random_bool(self.fails);
        let stamp = match &self.tasks[index].plan {
            Plan::Read(..) => return self.execute_read(index, step, fails),
            Plan::Write(_, stamp) => *stamp,
            Plan::Punch(_) | Plan::Grow(..) => 0,
        };
        let (file, cells, stamp) = match step {
            Step::Transfer { file, extent } => (file, cells_of(extent), stamp),
            Step::ZeroBlocks { file, extent } => (file, cells_of(extent), 0),
            Step::ZeroPart { file, extent, from } => {
                let first = cells_of(extent).start + (from / CELL) as usize;
                (file, first..first + (file.bytes() / CELL) as usize, 0)
            }
            other => panic!("a change issues no {other:?}"),
        };
        assert_eq!(cells.len() as u64 * CELL, file.bytes(), "{step:?} has the length of its extent");
        // A failed step may have executed a part.
        let done = if fails { rng.random_range(0..=cells.len()) } else { cells.len() };
        self.disk.cells[cells.start..cells.start + done].fill(stamp);
        if fails {
            self.tasks[index].fail(file);
        }
    }

    fn execute_read(&mut self, index: usize, step: Step, fails: bool) {
        let task = &mut self.tasks[index];
        let Plan::Read(_, may_see) = &task.plan else { panic!("only reads read") };
        let (file, seen): (FileRange, Vec<Stamp>) = match step {
            Step::Zeroes { file } => (file, vec![0; (file.bytes() / CELL) as usize]),
            Step::Transfer { .. } if fails => return,
            Step::Transfer { file, extent } => (file, self.disk.cells[cells_of(extent)].to_vec()),
            other => panic!("a read issues no {other:?}"),
        };
        let shown = file.and(task.file);
        let first = ((shown.start() - task.file.start()) / CELL) as usize;
        for (cell, stamp) in seen.iter().enumerate().take((shown.bytes() / CELL) as usize) {
            let may_be = &may_see[first + cell];
            let at = shown.start() + cell as u64 * CELL;
            assert!(
                may_be.contains(stamp),
                "{}: byte {at} is {stamp}, may be {may_be:?}",
                self.mapper.name()
            );
        }
    }

    fn finish(&mut self, mut task: Task) {
        let ticket = task.ticket.take().expect("a task has one");
        match task.plan {
            Plan::Read(..) => self.lived.reads += 1,
            Plan::Write(plan, stamp) => self.finish_write(&plan.finish(), task.file, stamp),
            Plan::Punch(plan) if !task.has_failed => {
                self.unmap(plan.blocks());
                self.becomes(task.file, 0);
                self.lived.punches += 1;
            }
            Plan::Grow(_, size_bytes) if !task.has_failed => {
                self.mapper.set_size(size_bytes).unwrap();
                self.lived.growths += 1;
            }
            Plan::Punch(_) | Plan::Grow(..) => {}
        }
        self.lived.kept_back += u64::from(self.space.held_sectors() > 0);
        self.space.end(ticket);
    }

    fn finish_write(&mut self, wrote: &Wrote, file: FileRange, stamp: Stamp) {
        while let Err(error) = self.mapper.commit(wrote.commit) {
            let MapError::Metadata(extent) = error else { panic!("{error}") };
            self.read_metadata(extent);
        }
        if let Some(size_bytes) = wrote.size_bytes {
            self.mapper.set_size(size_bytes).unwrap();
        }
        let written = file.up_to(file.start() + wrote.bytes);
        self.becomes(written, stamp);
        // Bytes past the end read as zeroes when the end moves over them, also after failed writes.
        self.becomes(file.from_offset(self.mapper.size_bytes()), 0);
        if written == file {
            self.lived.writes += 1;
        } else {
            self.lived.failed_writes += 1;
        }
    }

    fn unmap(&mut self, range: FileRange) {
        while let Err(error) = self.mapper.unmap(range, &mut self.space) {
            let MapError::Metadata(extent) = error else { panic!("{error}") };
            self.read_metadata(extent);
        }
    }

    fn cells(&self, file: FileRange) -> Range<usize> {
        let cell = |offset: u64| ((offset - self.window.start()) / CELL) as usize;
        cell(file.start())..cell(file.end())
    }

    /// From now on, a new read of `file` returns `stamp`.
    fn becomes(&mut self, file: FileRange, stamp: Stamp) {
        self.may_become(file, stamp);
        let cells = self.cells(file);
        self.allowed[cells].fill(only(stamp));
    }

    /// A read of `file`, also a read in flight, may return `stamp`.
    fn may_become(&mut self, file: FileRange, stamp: Stamp) {
        let cells = self.cells(file);
        for allowed in &mut self.allowed[cells] {
            allowed.insert(stamp);
        }
        for task in self.tasks.iter_mut().filter(|task| task.is_read()) {
            let (reads, both) = (task.file, task.file.and(file));
            let Plan::Read(_, may_see) = &mut task.plan else { continue };
            for cell in 0..both.bytes() / CELL {
                let at = (both.start() - reads.start()) / CELL + cell;
                may_see[at as usize].insert(stamp);
            }
        }
    }
}
