//! Threads that overwrite each other. Each sector must have the content of a write that may have been the last, and no
//! thread may read bytes that it has overwritten itself. `trial.rs` tests bytes with a single writer.

use crate::backend::Backend;
use crate::settings::{Settings, pick};
use crate::watchdog::Progress;
use crate::worker::{OP_BYTES_MAX, Source};
use iopath::testing::{Fault, Faults};
use iopath::{AlignedBuf, Options, Unaligned, Volume};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::sync::Barrier;

const SECTOR: usize = 512;
/// Operations of one thread in one round.
const STEPS: usize = 48;
const ROUNDS_MAX: u64 = 64;

/// The maximum number of operations of one run.
pub(crate) const fn ops_max(threads: usize) -> u64 {
    ROUNDS_MAX * (threads * STEPS) as u64
}

/// A read, or a write of bytes from the source.
#[derive(Debug, Clone, Copy)]
struct Step {
    offset: usize,
    bytes: usize,
    from: Option<usize>,
    forced: bool,
}

/// The part of a write in one sector.
#[derive(Debug, Clone, Copy)]
struct SectorWrite {
    thread: usize,
    step: usize,
    /// The offset of its bytes in the source.
    from: usize,
}

/// The operations of all threads between two barriers.
struct Round<'a> {
    source: &'a Source,
    before: &'a [u8],
    plans: Vec<Vec<Step>>,
    /// The writes of each sector, in the order of each thread.
    puts: Vec<Vec<SectorWrite>>,
}

impl<'a> Round<'a> {
    fn new(
        random: &mut Xoshiro256PlusPlus,
        volume: &Volume,
        source: &'a Source,
        before: &'a [u8],
        threads: usize,
    ) -> Self {
        let facts = volume.facts();
        let (block, align) = (facts.block_bytes as usize, facts.memory_align_bytes as usize);
        let mut step = || {
            let first = random.random_range(0..before.len() / block);
            let most = (before.len() / block - first).min(*pick(random, &[1, 2, 8, 64]));
            let bytes = random.random_range(1..=most) * block;
            let from = random.random_range(0..=(source.random.len() - bytes) / align) * align;
            let from = (random.random_range(0..3) > 0).then_some(from);
            Step { offset: first * block, bytes, from, forced: random.random_range(0..8) == 0 }
        };
        let plans: Vec<Vec<Step>> = (0..threads).map(|_| (0..STEPS).map(|_| step()).collect()).collect();
        let mut puts = vec![Vec::new(); before.len() / SECTOR];
        for (thread, plan) in plans.iter().enumerate() {
            for (number, step) in plan.iter().enumerate() {
                let Some(from) = step.from else { continue };
                for at in (0..step.bytes).step_by(SECTOR) {
                    let put = SectorWrite { thread, step: number, from: from + at };
                    puts[(step.offset + at) / SECTOR].push(put);
                }
            }
        }
        Self { source, before, plans, puts }
    }

    /// Whether a sector may have this content: for a reader (thread and step), or after the round if there is no
    /// reader.
    fn allows(&self, sector: usize, found: &[u8], reader: Option<(usize, usize)>) -> bool {
        let is_it = |put: &SectorWrite| self.source.random[put.from..][..SECTOR] == *found;
        let puts = &self.puts[sector];
        let last_of = |thread: usize, before: usize| {
            puts.iter().rfind(move |put| put.thread == thread && put.step < before)
        };
        let is_old = || self.before[sector * SECTOR..][..SECTOR] == *found;
        match reader {
            None => {
                let mut last = (0..self.plans.len()).filter_map(|thread| last_of(thread, STEPS));
                if puts.is_empty() { is_old() } else { last.any(is_it) }
            }
            Some((me, step)) => {
                let own = last_of(me, step);
                let others = puts.iter().filter(|put| put.thread != me);
                own.map_or_else(is_old, is_it) || { others }.any(is_it)
            }
        }
    }

    fn check(&self, offset: usize, found: &[u8], reader: Option<(usize, usize)>) {
        for (sector, found) in (offset / SECTOR..).zip(found.chunks(SECTOR)) {
            if !self.allows(sector, found, reader) {
                let origin = (0..self.source.random.len() - SECTOR)
                    .find(|from| self.source.random[*from..*from + SECTOR] == *found);
                panic!(
                    "{reader:?} finds bytes from {origin:?} of the source in sector {sector}; written: {:?}",
                    self.puts[sector]
                );
            }
        }
    }

    fn run(&self, volume: &Volume, thread: usize, buffer: &mut AlignedBuf, progress: &Progress) {
        for (number, step) in self.plans[thread].iter().enumerate() {
            let Step { offset, bytes, from, forced } = *step;
            if let Some(from) = from {
                let data = &self.source.random[from..from + bytes];
                let write = if forced { Volume::write_durably_at } else { Volume::write_at };
                write(volume, data, offset as u64).expect("a write");
            } else {
                volume.read_at(&mut buffer[..bytes], offset as u64).expect("a read");
                self.check(offset, &buffer[..bytes], Some((thread, number)));
            }
            progress.step();
        }
    }
}

/// Runs threads that overwrite each other on one volume. Returns the number of operations.
pub(crate) fn run(settings: &Settings, source: &Source, progress: &Progress, seed: u64, ops: u64) -> u64 {
    let random = &mut Xoshiro256PlusPlus::seed_from_u64(seed);
    let size = *pick(random, &[8 << 10, 64 << 10]);
    let backend = Backend::new(settings, size, random);
    let faults = Faults::new(random.random());
    let mut options = Options::new().write(true);
    if random.random() {
        faults.shuffle(true);
        faults.add(Fault::short().one_in(4));
        options = options.faults(&faults);
    }
    options = match random.random_range(0..4) {
        0 => options.unaligned(Unaligned::Bounce),
        1 | 2 => options.direct(false).cache_bytes(64 << 10),
        _ => options,
    };
    let volume = backend.open(&options);
    let threads = settings.threads.max(2);
    let mut buffers: Vec<_> = (0..threads).map(|_| AlignedBuf::new(OP_BYTES_MAX).expect("memory")).collect();
    let mut before = AlignedBuf::new(size).expect("memory");
    let ops_of_round = (threads * STEPS) as u64;
    let rounds = ops.div_ceil(ops_of_round).min(ROUNDS_MAX);
    for _ in 0..rounds {
        let round = &Round::new(random, &volume, source, &before, threads);
        let start = &Barrier::new(threads);
        std::thread::scope(|scope| {
            for (thread, buffer) in buffers.iter_mut().enumerate() {
                let volume = &volume;
                scope.spawn(move || {
                    start.wait();
                    round.run(volume, thread, buffer, progress);
                });
            }
        });
        let mut after = AlignedBuf::new(size).expect("memory");
        volume.read_at(&mut after, 0).expect("a read");
        round.check(0, &after, None);
        before = after;
    }
    rounds * ops_of_round
}
