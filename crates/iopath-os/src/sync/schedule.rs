//! Chooses the next task of an explored run: at random, at random with long runs of one task, or by priorities that
//! change at a few points (PCT: Burckhardt et al., 2010). The seed of the run determines all choices.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};
use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};

/// The timekeeper: the first task that a run starts.
const TIMEKEEPER: usize = 1;

/// The scheduler of all runs of an exploration.
#[derive(Debug)]
pub(super) struct Explorer {
    seeds: std::ops::Range<u64>,
    progress: Arc<Progress>,
    run: Run,
}

/// The progress of the exploration, for the thread that started it.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// The seed of the current run.
    pub(super) seed: AtomicU64,
    pub(super) runs: AtomicU64,
    pub(super) steps: AtomicU64,
}

/// One run.
#[derive(Debug)]
struct Run {
    rng: Xoshiro256PlusPlus,
    order: Order,
    variant: Variant,
    steps: u64,
}

/// The permitted behaviours of the standard library that a run uses. Derived from the seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Variant {
    /// Timers fire at any moment, not only when all threads are blocked.
    pub(super) early_timers: bool,
    /// A parked thread may wake spuriously.
    pub(super) spurious_unparks: bool,
}

#[derive(Debug)]
enum Order {
    /// A random task at each step.
    Random,
    /// The same task again; on average, one step in this many chooses another task.
    Sticky(u64),
    /// The task of the highest priority.
    Priorities {
        /// The priority of each task, by task number; the highest goes first.
        priorities: Vec<u64>,
        /// At these steps the running task's priority falls below all others.
        change_points: Vec<u64>,
        lowest: u64,
    },
}

/// On average, one timer fires early, and one thread wakes spuriously, in this many steps.
const SELDOM: u64 = 48;

impl Variant {
    pub(super) fn of(seed: u64) -> Self {
        let bits = Xoshiro256PlusPlus::seed_from_u64(!seed).next_u64();
        Self { early_timers: bits.is_multiple_of(4), spurious_unparks: (bits >> 2).is_multiple_of(4) }
    }
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let order = match rng.next_u64() % 4 {
            0 => Order::Random,
            1 => Order::Sticky(4 << (rng.next_u64() % 4)),
            _ => {
                // The length of a run is unknown: from dozens to thousands of choices.
                let steps = 32 << (rng.next_u64() % 8);
                let changes = rng.next_u64() % 6;
                let change_points = (0..changes).map(|_| rng.next_u64() % steps).collect();
                Order::Priorities { priorities: Vec::new(), change_points, lowest: u64::MAX / 4 }
            }
        };
        Self { rng, order, variant: Variant::of(seed), steps: 0 }
    }

    fn choose(&mut self, tasks: &[TaskId], current: Option<TaskId>, is_yielding: bool) -> TaskId {
        let random = self.rng.next_u64();
        let any = tasks[(random % tasks.len() as u64) as usize];
        let same = current.filter(|current| tasks.contains(current));
        match &mut self.order {
            Order::Random => any,
            Order::Sticky(turns) => match same {
                Some(same) if !is_yielding && !(random >> 32).is_multiple_of(*turns) => same,
                _ => any,
            },
            Order::Priorities { priorities, change_points, lowest } => {
                let last = tasks.iter().map(|task| usize::from(*task)).max().unwrap_or(0);
                while priorities.len() <= last {
                    priorities.push(u64::MAX / 2 + self.rng.next_u64() / 4);
                }
                if (is_yielding || change_points.contains(&self.steps))
                    && let Some(current) = same
                {
                    *lowest -= 1;
                    priorities[usize::from(current)] = *lowest;
                }
                // Only steps with a choice count.
                self.steps += u64::from(tasks.len() > 1);
                *tasks.iter().max_by_key(|task| priorities[usize::from(**task)]).unwrap_or(&any)
            }
        }
    }
}

impl Explorer {
    pub(super) fn new(seeds: std::ops::Range<u64>, progress: Arc<Progress>) -> Self {
        Self { run: Run::new(seeds.start), seeds, progress }
    }
}

impl Scheduler for Explorer {
    fn new_execution(&mut self) -> Option<Schedule> {
        let seed = self.seeds.next()?;
        self.progress.seed.store(seed, Relaxed);
        self.progress.runs.fetch_add(1, Relaxed);
        self.run = Run::new(seed);
        Some(Schedule::new(seed))
    }

    fn next_task(
        &mut self,
        runnable: &[&Task],
        current: Option<TaskId>,
        is_yielding: bool,
    ) -> Option<TaskId> {
        self.progress.steps.fetch_add(1, Relaxed);
        let keeper = runnable.iter().find(|task| usize::from(task.id()) == TIMEKEEPER);
        let keeper = keeper.filter(|task| task.runnable()).map(|task| task.id());
        let Variant { early_timers, spurious_unparks } = self.run.variant;
        if early_timers
            && let Some(keeper) = keeper
            && self.run.rng.next_u64().is_multiple_of(SELDOM)
        {
            return Some(keeper);
        }
        let may_return = spurious_unparks && self.run.rng.next_u64().is_multiple_of(SELDOM);
        let others: Vec<TaskId> = runnable
            .iter()
            .filter(|task| usize::from(task.id()) != TIMEKEEPER && (may_return || task.runnable()))
            .map(|task| task.id())
            .collect();
        if others.is_empty() {
            return keeper.or_else(|| Some(runnable.first()?.id()));
        }
        Some(self.run.choose(&others, current, is_yielding))
    }

    fn next_u64(&mut self) -> u64 {
        self.run.rng.next_u64()
    }
}
