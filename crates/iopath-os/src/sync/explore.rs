//! Runs a scenario under many schedules, one for each seed, until one fails or the time has passed. Prints a failing
//! seed with the command that repeats it.

use std::cell::RefCell;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

use shuttle::rand::Rng;
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};

use super::schedule::{Explorer, Progress, Variant};
use super::time;

pub use super::time::elapsed;

/// The only seed to run.
const SEED: &str = "IOPATH_EXPLORE_SEED";

/// The first of the seeds.
const FROM: &str = "IOPATH_EXPLORE_FROM";

/// The duration of the exploration of each scenario, in seconds.
const SECONDS: &str = "IOPATH_EXPLORE_SECONDS";

const SECONDS_DEFAULT: u64 = 3;

/// The maximum number of steps of a run. A longer run means that threads wake each other forever.
const STEPS_MAX: usize = 200_000;

/// Closures of tests have deep frames in builds with assertions.
const STACK_BYTES: usize = 256 << 10;

thread_local! {
    // The exploration of this system thread, for the panic hook.
    static EXPLORED: RefCell<Option<Explored>> = const { RefCell::new(None) };
}

/// The current exploration and its start.
#[derive(Debug, Clone)]
struct Explored {
    name: &'static str,
    progress: Arc<Progress>,
    started: Instant,
}

/// A scenario to explore.
#[derive(Debug)]
pub struct Exploration {
    name: &'static str,
    within: Duration,
}

/// A number below `count`, from the seed of the run.
pub fn pick(count: u64) -> u64 {
    shuttle::rand::thread_rng().gen_range(0..count)
}

/// Whether the clock stands still in this run while a thread can run, so that [`elapsed`] counts only needed timers.
pub fn is_timed() -> bool {
    EXPLORED.with(|explored| {
        let explored = explored.borrow();
        let seed = explored.as_ref().map(|explored| explored.progress.seed.load(Relaxed));
        seed.is_some_and(|seed| !Variant::of(seed).early_timers)
    })
}

impl Exploration {
    /// An exploration for the test of that name.
    pub const fn new(name: &'static str) -> Self {
        Self { name, within: Duration::MAX }
    }

    /// Sets the maximum virtual time of a run. A run that takes longer fails: some thread made progress only through a
    /// timeout. The clock stands still while a thread can run, so a scenario without timeouts takes no time.
    ///
    /// Does not apply to runs in which timers fire early.
    #[must_use]
    pub const fn within(mut self, time: Duration) -> Self {
        self.within = time;
        self
    }

    /// Runs the scenario under one schedule for each seed.
    ///
    /// # Panics
    /// If a run panics, deadlocks, does not end, or is late.
    pub fn run(self, scenario: impl Fn() + Send + Sync + 'static) {
        let Self { name, within } = self;
        let number = |variable: &str| std::env::var(variable).ok().and_then(|text| text.parse::<u64>().ok());
        let only = number(SEED);
        let from = number(FROM).unwrap_or(1);
        let seeds = only.map_or(from..u64::MAX, |seed| seed..seed + 1);
        let mut config = Config::new();
        config.stack_size = STACK_BYTES;
        config.failure_persistence = FailurePersistence::None;
        config.max_steps = MaxSteps::FailAfter(STEPS_MAX);
        config.max_time =
            only.is_none().then(|| Duration::from_secs(number(SECONDS).unwrap_or(SECONDS_DEFAULT)));
        config.silence_warnings = true;
        config.ungraceful_shutdown_config.immediately_return_on_panic = true;

        let progress = Arc::new(Progress::default());
        report_panics();
        let started = Instant::now();
        let this = Explored { name, progress: Arc::clone(&progress), started };
        EXPLORED.with(|explored| *explored.borrow_mut() = Some(this));
        Runner::new(Explorer::new(seeds, Arc::clone(&progress)), config).run(move || {
            let keeper = shuttle::thread::spawn(time::keep);
            time::start(keeper.thread().clone());
            scenario();
            let taken = elapsed();
            assert!(
                !is_timed() || taken <= within,
                "late: took {taken:?} of virtual time, the limit is {within:?}: a timeout hid a lost wake-up"
            );
            time::stop();
            keeper.join().expect("the timekeeper fails with a message of its own");
            time::reset();
        });
        EXPLORED.with(|explored| *explored.borrow_mut() = None);
        let (runs, steps) = (progress.runs.load(Relaxed), progress.steps.load(Relaxed));
        println!(
            "explored {name}: {runs} schedules, {steps} steps in {:.1} s, seeds from {from}",
            started.elapsed().as_secs_f64()
        );
    }
}

/// Makes each panic of a run name the seed, even if the panic is caught.
fn report_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let inner = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if let Some(explored) = EXPLORED.with(|explored| explored.try_borrow().ok()?.clone()) {
                let Explored { name, progress, started } = explored;
                let (seed, runs) = (progress.seed.load(Relaxed), progress.runs.load(Relaxed));
                eprintln!(
                    "explored {name}: seed {seed} fails, schedule {runs} of this exploration, found in {:.2} s, after \
                     {:?} of virtual time\nagain: cargo xtask explore --seed {seed} {name}",
                    started.elapsed().as_secs_f64(),
                    elapsed()
                );
            }
            inner(info);
        }));
    });
}
