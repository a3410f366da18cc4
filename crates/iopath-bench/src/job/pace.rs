//! The pace of a job: think time after transfers, and a rate at which transfers start. Decides when a transfer may
//! start, and the time from which its latency counts. The sequence of transfers is in `plan.rs`.

use std::collections::VecDeque;

use iopath_report::random::generator;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::RngCore;

use crate::path::Direction;
use crate::workload::{Rate, RateProcess, ThinkCount, Workload};

const SECOND_NS: u128 = 1_000_000_000;

/// Separates this generator from the plan's, which has the same seed.
const PURPOSE: u64 = 0x9A7E << 32;

/// Separates the rate of writes from that of reads.
const PURPOSE_OF_WRITES: u64 = 0x11 << 48;

/// When the transfers of a job start: after the rest of their slot, and not before the time of a rate.
#[derive(Debug)]
pub(crate) struct Pace {
    rest: Option<Rest>,
    rate: Option<Starts>,
}

/// Think time: a slot rests after every so many transfers of the job; after each of its own, if that is one. A job that
/// rests as a whole starts or completes so many transfers, waits for those in flight, and rests then. As in fio, the
/// completions that it waits for count for the next rest.
#[derive(Debug)]
struct Rest {
    think_ns: u64,
    every: u64,
    /// The transfers that count, of a job that rests as a whole.
    whole: Option<ThinkCount>,
    /// Of a job that rests as a whole: its transfers so far, and those that had counted at the last rest.
    started: u64,
    completed: u64,
    counted: u64,
    /// Whether a job that rests as a whole waits for its transfers in flight.
    is_waiting: bool,
    /// The completed transfers since the last rest, of other jobs.
    since: u64,
    /// Slots that rest, each with the time at which it is free again, in the order of time.
    resting: VecDeque<(u64, u32)>,
    /// The end of the last rest; of a job that rests as a whole, also of the present one.
    ended_ns: u64,
}

impl Rest {
    /// The time from which a job may start a transfer, if it rests as a whole; none until all in flight have completed.
    fn starts_from(&self) -> Option<u64> {
        match self.whole {
            None => Some(0),
            Some(_) => Some(self.ended_ns).filter(|_| !self.is_waiting),
        }
    }

    /// Begins to wait for the transfers in flight, if enough have counted.
    fn count(&mut self) {
        let count = match self.whole {
            None => return,
            Some(ThinkCount::Started) => self.started,
            Some(ThinkCount::Completed) => self.completed,
        };
        if !self.is_waiting && count - self.counted >= self.every {
            (self.counted, self.is_waiting) = (count, true);
        }
    }

    /// A transfer of a job that rests as a whole has completed.
    fn handle_done(&mut self, now_ns: u64) {
        self.completed += 1;
        self.count();
        if self.is_waiting && self.started == self.completed {
            self.is_waiting = false;
            self.ended_ns = now_ns.saturating_add(self.think_ns);
        }
    }
}

/// The starts that a rate intends.
#[derive(Debug)]
enum Starts {
    /// One rate for all transfers.
    Rate(Schedule),
    /// A rate for one direction. Transfers of the other one start as soon as a slot is free.
    Only(Schedule, Direction),
    /// A rate for reads and one for writes. The next transfer is the one that is due first.
    Rates(Box<[Schedule; 2]>),
}

/// Transfer number `started` starts at a fixed time, or as soon after it as a slot is free. Its latency counts from
/// the fixed time. So a transfer that waits for a slot has a long latency, as it has for a caller that does not slow
/// down with the storage: no latency is omitted (coordinated omission).
#[derive(Debug)]
struct Schedule {
    started: u64,
    started_ns: u64,
    /// Time between two starts: this number of seconds, divided by `per_second`.
    seconds: u64,
    per_second: u64,
    /// Random distances instead of equal ones.
    poisson: Option<Box<Poisson>>,
}

impl Schedule {
    /// The starts of a workload at this rate. `direction` is that of a rate for one direction.
    fn of(
        workload: &Workload,
        rate: Rate,
        direction: Option<Direction>,
        parts: [u64; 2],
        now_ns: u64,
    ) -> Self {
        let mean_bytes =
            || direction.map_or_else(|| workload.mean_bytes(), |one| workload.mean_bytes_of(one));
        let (seconds, per_second) = match rate {
            Rate::Ios(ios) => (1, ios.get()),
            Rate::Bytes(bytes) => (mean_bytes().round() as u64, bytes.get()),
        };
        let poisson = (workload.rate_process == RateProcess::Poisson).then(|| {
            let mean_ns = seconds as f64 / per_second as f64 * SECOND_NS as f64;
            Box::new(Poisson { generator: generator(workload.seed, parts), due_ns: 0.0, mean_ns })
        });
        Self { started: 0, started_ns: now_ns, seconds, per_second, poisson }
    }

    /// The time of the next start.
    fn next(&self) -> u64 {
        let after_ns = if let Some(poisson) = &self.poisson {
            poisson.due_ns as u64
        } else {
            let seconds = u128::from(self.started).saturating_mul(u128::from(self.seconds));
            let after_ns = seconds.saturating_mul(SECOND_NS) / u128::from(self.per_second);
            u64::try_from(after_ns).unwrap_or(u64::MAX)
        };
        self.started_ns.saturating_add(after_ns)
    }

    /// Starts a transfer if one is due. Returns the time at which it was due.
    fn start(&mut self, now_ns: u64) -> Option<u64> {
        let due_ns = self.next();
        if due_ns > now_ns {
            return None;
        }
        self.started += 1;
        if let Some(poisson) = &mut self.poisson {
            poisson.advance();
        }
        Some(due_ns)
    }
}

/// A Poisson process: independent, exponentially distributed distances.
#[derive(Debug)]
struct Poisson {
    generator: Xoshiro256PlusPlus,
    /// The start of the next transfer, in nanoseconds from the start of the job.
    due_ns: f64,
    mean_ns: f64,
}

impl Poisson {
    fn advance(&mut self) {
        // From 0 to 1, without 0.
        let drawn = ((self.generator.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64;
        self.due_ns -= drawn.ln() * self.mean_ns;
    }
}

/// A transfer that may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Due {
    /// The time from which its latency counts.
    pub(super) ns: u64,
    /// Its direction, if the pace decides it.
    pub(super) direction: Option<Direction>,
}

impl Starts {
    /// The starts of a workload for job `job` in a repetition that starts now; none without a rate.
    fn of(workload: &Workload, repetition: u32, job: u32, now_ns: u64) -> Option<Self> {
        let rate = workload.rate?;
        let parts = [PURPOSE ^ u64::from(repetition), job.into()];
        if let Some(direction) = workload.rate_only {
            let schedule = Schedule::of(workload, rate, Some(direction), parts, now_ns);
            return Some(Self::Only(schedule, direction));
        }
        let Some(of_writes) = workload.rate_of_writes else {
            return Some(Self::Rate(Schedule::of(workload, rate, None, parts, now_ns)));
        };
        let [number, job] = parts;
        let reads = Schedule::of(workload, rate, Some(Direction::Read), parts, now_ns);
        let parts = [number ^ PURPOSE_OF_WRITES, job];
        let writes = Schedule::of(workload, of_writes, Some(Direction::Write), parts, now_ns);
        Some(Self::Rates(Box::new([reads, writes])))
    }

    /// The time of the next start.
    fn next(&self) -> u64 {
        match self {
            Self::Rate(schedule) => schedule.next(),
            Self::Only(..) => 0,
            Self::Rates(schedules) => schedules[0].next().min(schedules[1].next()),
        }
    }

    /// Starts a transfer if one is due.
    fn start(&mut self, now_ns: u64) -> Option<Due> {
        match self {
            Self::Rate(schedule) => Some(Due { ns: schedule.start(now_ns)?, direction: None }),
            Self::Only(schedule, direction) => Some(match (schedule.start(now_ns), *direction) {
                (Some(ns), limited) => Due { ns, direction: Some(limited) },
                (None, Direction::Read) => Due { ns: now_ns, direction: Some(Direction::Write) },
                (None, _) => Due { ns: now_ns, direction: Some(Direction::Read) },
            }),
            Self::Rates(schedules) => {
                let [reads, writes] = &mut **schedules;
                let (schedule, direction) = if reads.next() <= writes.next() {
                    (reads, Direction::Read)
                } else {
                    (writes, Direction::Write)
                };
                Some(Due { ns: schedule.start(now_ns)?, direction: Some(direction) })
            }
        }
    }
}

impl Pace {
    /// The pace of a workload for job `job` in a repetition that starts now; none if transfers start as soon as a slot
    /// is free.
    pub(crate) fn of(workload: &Workload, repetition: u32, job: u32, now_ns: u64) -> Option<Self> {
        let think_ns = u64::try_from(workload.think.as_nanos()).unwrap_or(u64::MAX);
        let every = workload.think_every.get();
        let rest = (think_ns > 0).then(|| Rest {
            think_ns,
            every,
            whole: workload.think_together,
            started: 0,
            completed: 0,
            counted: 0,
            is_waiting: false,
            since: 0,
            resting: VecDeque::new(),
            ended_ns: 0,
        });
        let rate = Starts::of(workload, repetition, job, now_ns);
        (rest.is_some() || rate.is_some()).then_some(Self { rest, rate })
    }

    /// Whether transfers have intended starts.
    pub(super) const fn is_rate(&self) -> bool {
        self.rate.is_some()
    }

    /// A flush has completed. In fio, a job that rests as a whole flushes after the rest: it starts later by the time
    /// of the flush.
    pub(super) fn handle_flush(&mut self, latency_ns: u64, now_ns: u64) {
        if let Some(rest) = self.rest.as_mut().filter(|rest| rest.whole.is_some())
            && rest.ended_ns > now_ns.saturating_sub(latency_ns)
        {
            rest.ended_ns = rest.ended_ns.saturating_add(latency_ns);
        }
    }

    /// The slots that are free because of a completion: this one, unless it rests.
    pub(super) fn free(&mut self, slot: u32, now_ns: u64) -> Option<u32> {
        let Some(rest) = &mut self.rest else { return Some(slot) };
        if rest.whole.is_some() {
            rest.handle_done(now_ns);
            return Some(slot);
        }
        rest.since += 1;
        if rest.since < rest.every {
            return Some(slot);
        }
        rest.since = 0;
        rest.resting.push_back((now_ns.saturating_add(rest.think_ns), slot));
        None
    }

    /// Slots whose rest has ended.
    pub(super) fn rested(&mut self, now_ns: u64) -> impl Iterator<Item = u32> {
        std::iter::from_fn(move || {
            let rest = self.rest.as_mut()?;
            let &(until_ns, slot) = rest.resting.front().filter(|(until_ns, _)| *until_ns <= now_ns)?;
            rest.ended_ns = until_ns;
            rest.resting.pop_front();
            Some(slot)
        })
    }

    /// Slots that rest.
    pub(super) fn resting(&self) -> usize {
        self.rest.as_ref().map_or(0, |rest| rest.resting.len())
    }

    /// Starts a transfer if one is due. A start that its rate intends before the end of the last rest is intended at
    /// that end: the pause is the caller's, and no latency of the storage. So the latency does not contain waits for
    /// the storage from before the rest.
    pub(super) fn start(&mut self, now_ns: u64) -> Option<Due> {
        if let Some(rest) = &self.rest
            && rest.starts_from().is_none_or(|from_ns| now_ns < from_ns)
        {
            return None;
        }
        let due = match &mut self.rate {
            Some(rate) => rate.start(now_ns)?,
            None => Due { ns: now_ns, direction: None },
        };
        let Some(rest) = &mut self.rest else { return Some(due) };
        rest.started += 1;
        rest.count();
        if self.rate.is_none() {
            return Some(due);
        }
        let rested_ns = rest.ended_ns;
        Some(Due { ns: due.ns.max(rested_ns), ..due })
    }

    /// The end of the rest of a job that rests as a whole, 0 for other jobs; none until its transfers in flight have
    /// completed.
    pub(super) fn rests_until(&self) -> Option<u64> {
        self.rest.as_ref().map_or(Some(0), Rest::starts_from)
    }

    /// The time at which the next transfer may start; none if it also needs a completion. `has_free`: whether a slot is
    /// free.
    pub(super) fn next(&self, has_free: bool) -> Option<u64> {
        let rated = self.rate.as_ref().filter(|_| has_free).map(Starts::next);
        match &self.rest {
            Some(rest) if rest.whole.is_some() => {
                let from_ns = rest.starts_from().filter(|_| has_free)?;
                Some(rated.unwrap_or(0).max(from_ns))
            }
            rest => rated.or_else(|| Some(rest.as_ref()?.resting.front()?.0)),
        }
    }
}
