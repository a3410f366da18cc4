//! A trial of a volume: phases of operations by one or several workers, and between them reopening, resizing and power
//! failures. `trial/faults.rs` injects faults.

mod faults;
mod mode;

use crate::backend::Backend;
use crate::conditions::{Conditions, Mode};
use crate::model::Model;
use crate::settings::{Settings, Target, pick};
use crate::watchdog::Progress;
use crate::worker::{Failure, Opened, Source, Worker};
use iopath::testing::Faults;
use iopath::{Context, Options};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;

/// Operations of a trial, of all threads together.
pub(crate) const TRIAL_OPS: u64 = 5_000;
/// The largest volume, in bytes.
pub(crate) const SIZE_MAX: usize = 1 << 20;

/// Counts of events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) ops: u64,
    pub(crate) faults: u64,
    pub(crate) crashes: u64,
    pub(crate) sizes: u64,
}

impl Totals {
    pub(crate) const fn add(&mut self, other: Self) {
        self.ops += other.ops;
        self.faults += other.faults;
        self.crashes += other.crashes;
        self.sizes += other.sizes;
    }
}

/// The end of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct End {
    size: usize,
    /// No worker removes bytes below the floor. It is the size, unless several workers resize.
    floor: usize,
}

/// A volume, its workers, and the events that can happen to it.
struct Trial {
    random: Xoshiro256PlusPlus,
    backend: Backend,
    faults: Option<Faults>,
    /// `None` only while it is reopened.
    opened: Option<Opened>,
    /// The last options, if they have a context, which may have kept the pages of the closed volume.
    last: Option<(Options, Mode, Option<Context>)>,
    workers: Vec<Worker>,
    /// The boundaries between the ranges of workers.
    cuts: Vec<usize>,
    end: End,
    conditions: Conditions,
    totals: Totals,
}

/// Runs a trial of `ops` operations. The error is a message about the failure.
pub(crate) fn run(
    settings: &Settings,
    source: &Arc<Source>,
    progress: &Progress,
    seed: u64,
    ops: u64,
) -> Result<Totals, String> {
    let mut trial = Trial::new(settings, source, progress, seed);
    let result = trial.run(ops);
    result.map(|()| trial.totals).map_err(|(worker, failure)| {
        let (worker, conditions) = (&trial.workers[worker], trial.conditions);
        let (what, replay) = (worker.explain(&failure), settings.replay(seed, ops));
        format!("seed {seed}: {what}\n{conditions:?}\nrun again: {replay}")
    })
}

/// A failure, with the number of its worker.
type Outcome = Result<(), (usize, Failure)>;

impl Trial {
    fn new(settings: &Settings, source: &Arc<Source>, progress: &Progress, seed: u64) -> Self {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let is_shared = settings.threads > 1;
        let size = random_size(&mut random);
        // Several workers mostly share a few pages, so that they interact.
        let size = if is_shared && random.random_range(0..4) > 0 {
            size.min(random.random_range(4096..20_000))
        } else {
            size
        };
        let backend = Backend::new(settings, size, &mut random);
        let size = backend.open(&Options::new()).size_bytes() as usize;
        let without_faults = if is_shared { 1 } else { 2 };
        let has_faults = random.random_range(0..4) >= without_faults;
        let faults = has_faults.then(|| Faults::new(random.random()));
        if let (Some(faults), Some(disk)) = (&faults, backend.loses()) {
            faults.lose_on_failed_flush(disk);
        }
        if let Some(faults) = &faults {
            faults.shuffle(random.random());
        }
        let losses = Arc::default();
        let worker = |random: &mut Xoshiro256PlusPlus| {
            Worker::new(random.random(), source, Model::new(size), &losses, progress)
        };
        let workers = (0..settings.threads).map(|_| worker(&mut random)).collect();
        let conditions = Conditions {
            may_fail: false,
            flush_may_fail: false,
            has_lost: false,
            may_lose: backend.loses().is_some(),
            forces_by_flush: backend.forces_by_flush(),
            is_cached_below: backend.is_cached(),
            may_resize: backend.can_resize_open() && (!is_shared || random.random()),
            is_shared,
            mode: Mode::default(),
            may_be_unsupported: !matches!(settings.target, Target::Memory),
        };
        let mut trial = Self {
            random,
            backend,
            faults,
            opened: None,
            last: None,
            workers,
            cuts: Vec::new(),
            end: End { size, floor: size },
            conditions,
            totals: Totals::default(),
        };
        let opened = trial.reopen(trial.end);
        assert!(opened.is_ok(), "nothing was open before");
        trial
    }

    fn run(&mut self, ops: u64) -> Outcome {
        while self.totals.ops < ops {
            let most = if self.conditions.is_shared { 2000 } else { 400 };
            let phase = self.random.random_range(1..=most).min(ops - self.totals.ops);
            self.work(phase)?;
            if self.conditions.has_lost {
                self.reopen(self.end)?;
            }
            if self.random.random_range(0..3) == 0 {
                self.change_faults()?;
            }
            match self.random.random_range(0..16) {
                0 | 1 => self.reopen(self.end)?,
                2 => self.resize()?,
                3..6 => self.crash()?,
                6 => self.check_everything()?,
                7 if self.conditions.is_shared => self.refuse_writes()?,
                8..12 if self.conditions.is_shared => self.fail_flushes()?,
                _ => {}
            }
        }
        self.check_everything()?;
        self.crash()
    }

    fn opened(&self) -> Opened {
        self.opened.clone().expect("the volume is open, except during a reopen")
    }

    /// The workers run `ops` operations together.
    fn work(&mut self, ops: u64) -> Outcome {
        let (opened, conditions) = (self.opened(), self.conditions);
        self.totals.ops += ops;
        let left = &AtomicI64::new(ops.cast_signed());
        if let [worker] = &mut self.workers[..] {
            worker.work(&opened, conditions, left).map_err(|failure| (0, failure))?;
        } else {
            std::thread::scope(|scope| {
                let opened = &opened;
                let begin = |worker| scope.spawn(move || Worker::work(worker, opened, conditions, left));
                let workers: Vec<_> = self.workers.iter_mut().map(begin).collect();
                let ends = workers.into_iter().map(|worker| worker.join().expect("workers do not panic"));
                // All have ended before the first failure is reported.
                let ends: Vec<_> = ends.collect();
                ends.into_iter()
                    .enumerate()
                    .try_for_each(|(index, end)| end.map_err(|failure| (index, failure)))
            })?;
        }
        let size = opened.volume.size_bytes() as usize;
        let floor = if conditions.resizes_meanwhile() { self.end.floor } else { size };
        self.end = End { size, floor };
        Ok(())
    }

    /// Reopens the volume with other options and another end.
    fn reopen(&mut self, end: End) -> Outcome {
        self.stop_faults()?;
        self.close();
        if end != self.end {
            // Shrinks the storage first, so that bytes added below the new floor are zeroes.
            self.backend.resize(self.end.floor.min(end.floor));
            self.backend.resize(end.size);
        }
        self.end = end;
        let End { size, floor } = end;
        let opened = self.backend.open(&Options::new().write(true));
        if opened.size_bytes() != size as u64 {
            return Err((0, outcome(&format!("there are {} bytes, not {size}", opened.size_bytes()))));
        }
        let block = opened.facts().block_bytes as usize;
        drop(opened);
        let is_whole = size.is_multiple_of(block);
        let last = self.last.take().filter(|_| self.random.random_range(0..4) > 0);
        let (options, mode, context) =
            last.unwrap_or_else(|| mode::random(is_whole, self.workers.len(), &mut self.random));
        self.last = context.is_some().then(|| (options.clone(), mode, context.clone()));
        let options = if let Some(faults) = &self.faults { options.faults(faults) } else { options };
        self.conditions.mode = mode;
        let volume = self.backend.open(&options);
        let shows_medium = self.conditions.is_shared && self.backend.shows_medium();
        let medium = shows_medium.then(|| self.backend.open(&Options::new()));
        self.opened = Some(Opened { volume, medium, context });
        self.divide(floor, block);
        Ok(())
    }

    /// Drops or closes the volume. Both write back dirty pages; only the close reports an error.
    fn close(&mut self) {
        let Some(Opened { volume, .. }) = self.opened.take() else { return };
        let has_lost = std::mem::take(&mut self.conditions.has_lost);
        if self.random.random() {
            assert_eq!(volume.close().is_err(), has_lost, "whether closing fails");
        }
    }

    /// Divides the bytes that no worker removes among the workers.
    fn divide(&mut self, floor: usize, block: usize) {
        let count = self.workers.len();
        for worker in &mut self.workers {
            worker.model.resize(floor);
            worker.owned.clear();
        }
        if count == 1 {
            self.workers[0].owned.push(0..floor);
            return;
        }
        if self.cuts.is_empty() {
            self.cut(block);
        }
        let mut start = 0;
        for (index, cut) in self.cuts.iter().enumerate().filter(|_| floor > 0) {
            let range: Range<usize> = start..(*cut).min(floor);
            if range.is_empty() {
                break;
            }
            start = range.end;
            self.workers[index % count].owned.push(range);
        }
        for worker in self.workers.iter_mut().filter(|worker| worker.owned.is_empty()) {
            worker.owned.push(0..0);
        }
    }

    /// In half of the trials, two workers write parts of the same blocks; in some trials, all workers write to each
    /// page.
    fn cut(&mut self, block: usize) {
        // Each worker has some of the bytes there are now.
        let share = self.end.floor / self.workers.len();
        let unit = *pick(&mut self.random, &[1, block]);
        let most = pick(&mut self.random, &[1500, 5000, 16 * block]).min(&share) / unit;
        while self.cuts.last().is_none_or(|last| *last < SIZE_MAX) {
            let bytes = self.random.random_range(1..=most.max(1)) * unit;
            self.cuts.push(self.cuts.last().unwrap_or(&0) + bytes);
        }
    }

    fn resize(&mut self) -> Outcome {
        if !self.backend.can_resize() {
            return self.reopen(self.end);
        }
        let size = random_size(&mut self.random);
        let above = *pick(&mut self.random, &[0, 3_000, 20_000]);
        let is_fixed = !self.conditions.resizes_meanwhile();
        let floor = if is_fixed { size } else { size - self.random.random_range(0..=above.min(size)) };
        self.totals.sizes += 1;
        self.reopen(End { size, floor })
    }

    fn check_everything(&mut self) -> Outcome {
        self.stop_faults()?;
        self.read_everything()
    }

    fn read_everything(&mut self) -> Outcome {
        let (opened, conditions) = (self.opened(), self.conditions);
        let mut workers = self.workers.iter_mut().enumerate();
        workers.try_for_each(|(index, worker)| {
            worker.check_everything(&opened, conditions).map_err(|failure| (index, failure))
        })
    }

    /// The power fails, if the storage can lose bytes.
    fn crash(&mut self) -> Outcome {
        let Some(disk) = self.backend.crashes() else { return Ok(()) };
        let random = &mut self.random;
        match random.random_range(0..4) {
            0 => disk.crash(|_| 0),
            1 => disk.crash(|versions| versions),
            _ => disk.crash(|versions| random.random_range(0..=versions)),
        }
        self.totals.crashes += 1;
        self.workers.iter_mut().for_each(Worker::crashed);
        // Dirty pages cannot be written any more.
        self.opened = None;
        self.backend.crashed();
        self.conditions.has_lost = false;
        self.reopen(self.end)?;
        self.check_everything()?;
        self.workers.iter_mut().for_each(|worker| worker.model.survived(&worker.owned));
        Ok(())
    }
}

fn outcome(what: &str) -> Failure {
    Failure::Outcome(what.to_owned())
}

/// A size that is mostly small, so that operations interact. Half of the sizes end inside a page.
pub(crate) fn random_size(random: &mut Xoshiro256PlusPlus) -> usize {
    let most = *pick(random, &[8 << 10, 32 << 10, 64 << 10, 64 << 10, 128 << 10, SIZE_MAX]);
    let size = random.random_range(4096..=most);
    if random.random() { size } else { size / 4096 * 4096 }
}
