//! One run: executes the actions of a scenario in virtual time, then stops the faults and checks that every call ends
//! and that every byte is right. A violation of a rule is a panic; [`run`] turns it into a [`Failure`].

use std::ops::AddAssign;
use std::panic::{AssertUnwindSafe, catch_unwind};

use iopath_core::Instant;

use crate::arena::Arena;
use crate::coverage::Coverage;
use crate::random::Random;
use crate::scenario::{Action, Do, Scenario};
use crate::trace::Trace;
use crate::volume::{LIVENESS, Volume};

/// The counts of a run without a failure.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Runs.
    pub runs: u64,
    /// Calls that have ended.
    pub calls: u64,
    /// Calls that ended with an error.
    pub failed: u64,
    /// Requests that disks have executed.
    pub requests: u64,
    /// Faults injected.
    pub faults: u64,
    /// Bytes that reads returned and the model has checked.
    pub bytes: u64,
    /// Bytes of direct I/O that disks moved from and to the memory of programs, without a copy.
    pub direct: u64,
    /// Cells of 64 bytes that silent faults had damaged, as a checksum shows.
    pub damaged: u64,
    /// Sectors that lying disks have lost at power failures.
    pub lost: u64,
    /// A hash of all events.
    pub hash: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.runs += other.runs;
        self.calls += other.calls;
        self.failed += other.failed;
        self.requests += other.requests;
        self.faults += other.faults;
        self.bytes += other.bytes;
        self.direct += other.direct;
        self.damaged += other.damaged;
        self.lost += other.lost;
        self.hash ^= other.hash;
    }
}

/// A violation of a rule.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The rule and the values.
    pub message: String,
    /// The number of the event.
    pub step: u64,
    /// The last events.
    pub excerpt: Vec<String>,
}

/// Runs a scenario.
pub(crate) fn run(scenario: &Scenario, coverage: &mut Coverage) -> Result<Counts, Failure> {
    let trace = Trace::default();
    let mut world = World::new(scenario, &trace);
    let result = catch_unwind(AssertUnwindSafe(|| {
        world.act(&scenario.actions, coverage);
        world.finish(coverage);
    }));
    match result {
        Ok(()) => Ok(world.counts()),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let message = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            let message = message.unwrap_or_else(|| "a panic without a message".to_owned());
            // The volumes may be in the middle of a change: their destructors could panic again.
            std::mem::forget(world);
            Err(Failure { message, step: trace.steps(), excerpt: trace.excerpt() })
        }
    }
}

/// The maximum number of times that work may be due at one point in time.
const ADVANCES_MAX: u64 = 10_000;

struct World {
    volumes: Vec<Volume>,
    now: Instant,
    at_this_time: u64,
    random: Random,
    trace: Trace,
    direct_bytes: u64,
}

impl World {
    fn new(scenario: &Scenario, trace: &Trace) -> Self {
        let arena = Arena::default();
        let volumes = scenario.volumes.iter().enumerate();
        let volumes = volumes.map(|(number, plan)| Volume::new(number, plan, &arena, trace)).collect();
        let random = Random::new(scenario.seed ^ 1);
        Self { volumes, now: Instant::ZERO, at_this_time: 0, random, trace: trace.clone(), direct_bytes: 0 }
    }

    fn act(&mut self, actions: &[Action], coverage: &mut Coverage) {
        for action in actions {
            let time = self.now + action.pause;
            while let Some(due) = self.due().filter(|due| *due <= time) {
                self.advance(due, coverage);
            }
            self.now = time;
            self.execute(action, coverage);
        }
    }

    fn execute(&mut self, action: &Action, coverage: &mut Coverage) {
        let now = self.now;
        let volume = &mut self.volumes[action.volume];
        match &action.what {
            Do::SetElevator(name) => volume.set_elevator(name, now),
            Do::Advise(advice) => volume.advise_pattern(*advice),
            Do::SetTunable { tunable, value } => volume.set_tunable(*tunable, *value),
            Do::SetDepth(depth) => volume.set_depth(*depth),
            Do::SetWeight { stream, weight } => volume.set_weight(*stream, *weight),
            Do::ForgetMetadata => volume.forget_metadata(),
            Do::Release => volume.release_stuck(),
            Do::SetFull(is_full) => volume.set_full(*is_full),
            Do::PowerCut => volume.power_cut(now, &mut self.random),
            Do::Kill => volume.kill(now),
            what @ (Do::WriteOutside
            | Do::CutOutside { .. }
            | Do::Detach { .. }
            | Do::Repair
            | Do::AddSpace { .. }
            | Do::SetLying(_)) => volume.happen(what, now),
            what @ (Do::ReaderReads { .. } | Do::ReaderDrops | Do::ReaderFollows) => {
                volume.begin_reader(what, now);
            }
            what => volume.begin(what, action.fine, now),
        }
        volume.advance(now, coverage);
    }

    /// The earliest time at which any volume has work.
    fn due(&self) -> Option<Instant> {
        self.volumes.iter().filter_map(Volume::poll_timeout).min()
    }

    fn advance(&mut self, due: Instant, coverage: &mut Coverage) {
        self.at_this_time = if due > self.now { 0 } else { self.at_this_time + 1 };
        self.now = self.now.max(due);
        if self.at_this_time > ADVANCES_MAX {
            let due: Vec<String> = self.volumes.iter().map(Volume::describe_due).collect();
            panic!("liveness: work is due at {:?}, and no time passes: {}", self.now, due.join("; "));
        }
        for volume in &mut self.volumes {
            if volume.poll_timeout().is_some_and(|due| due <= self.now) {
                volume.advance(self.now, coverage);
            }
        }
    }

    /// Stops the faults. Every call must end, every flush succeed, and every byte be right.
    fn finish(&mut self, coverage: &mut Coverage) {
        self.volumes.iter_mut().for_each(Volume::stop_faults);
        self.settle(coverage);
        for volume in &mut self.volumes {
            volume.release_stuck(); // Accepts the losses, so that flushes can succeed.
            volume.begin_last_calls(self.now);
        }
        self.settle(coverage);
        for volume in &mut self.volumes {
            volume.begin_reader(&Do::ReaderFollows, self.now);
        }
        self.settle(coverage);
        for volume in &mut self.volumes {
            volume.check_idle();
            volume.check_budget();
            volume.drop_pages();
            volume.read_all_of_reader(self.now);
            volume.begin_last_reads(self.now);
        }
        self.settle(coverage);
        self.volumes.iter().for_each(Volume::check_idle);
        self.direct_bytes = self.volumes.iter().map(Volume::check_zero_copy).sum();
    }

    /// Runs until no call and no I/O is in progress.
    fn settle(&mut self, coverage: &mut Coverage) {
        let deadline = self.now + LIVENESS;
        let now = self.now;
        self.volumes.iter_mut().for_each(|volume| volume.advance(now, coverage));
        // Readahead goes on after the last call.
        while let Some(volume) = self.volumes.iter().position(|volume| !volume.is_idle()) {
            let Some(due) = self.due() else {
                panic!("liveness: calls of volume {volume} wait, and no event is due");
            };
            assert!(due <= deadline, "liveness: calls of volume {volume} have not ended after {LIVENESS:?}");
            self.advance(due, coverage);
        }
    }

    fn counts(&self) -> Counts {
        let sum = |count: fn(&Volume) -> u64| self.volumes.iter().map(count).sum();
        Counts {
            runs: 1,
            calls: sum(|volume| volume.completed_calls),
            failed: sum(|volume| volume.failed_calls),
            requests: sum(Volume::executed),
            faults: sum(Volume::injected),
            bytes: sum(|volume| volume.checked_bytes),
            direct: self.direct_bytes,
            damaged: sum(|volume| volume.damaged_cells),
            lost: sum(|volume| volume.lost_sectors),
            hash: self.trace.hash(),
        }
    }
}
