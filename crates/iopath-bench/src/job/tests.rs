//! Jobs in virtual time, on a modelled device with fixed service times: counts, order and latencies are exact.

use std::collections::VecDeque;
use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

use iopath_report::Rw;
use iopath_report::result::Latencies;

use super::sampled::SampledJob;
use super::tally::JobResult;
use super::*;
use crate::batches::Batches;
use crate::workload::{End, Rate, RateProcess, ReadShare, ThinkCount, Workload};

const BLOCK: u64 = 4096;

/// A device that serves one transfer at a time, in the order of submission.
struct Server {
    service_ns: fn(usize) -> u64,
    served: usize,
    idle_from_ns: u64,
    /// Slot and time of completion.
    queue: VecDeque<(u32, u64)>,
}

impl Server {
    fn submit(&mut self, slot: u32, now_ns: u64) {
        let done_ns = self.idle_from_ns.max(now_ns) + (self.service_ns)(self.served);
        (self.served, self.idle_from_ns) = (self.served + 1, done_ns);
        self.queue.push_back((slot, done_ns));
    }

    fn poll_done(&mut self, now_ns: u64) -> Option<u32> {
        self.queue.pop_front_if(|(_, done_ns)| *done_ns <= now_ns).map(|(slot, _)| slot)
    }

    fn poll_timeout(&self) -> Option<u64> {
        self.queue.front().map(|(_, done_ns)| *done_ns)
    }
}

fn workload(rw: Rw, end: End) -> Workload {
    Workload { rw, end, ..Workload::default() }
}

/// Runs a job over `blocks` blocks; the clock jumps from event to event. Returns the result and the transfers in order.
fn simulate(
    workload: &Workload,
    blocks: u64,
    depth: u32,
    service_ns: fn(usize) -> u64,
) -> (JobResult, Vec<Transfer>) {
    simulate_from(workload, blocks, depth, service_ns, Start::default())
}

/// The same with another start.
fn simulate_from(
    workload: &Workload,
    blocks: u64,
    depth: u32,
    service_ns: fn(usize) -> u64,
    start: Start,
) -> (JobResult, Vec<Transfer>) {
    let runtime_ns = workload.end.time().map(|time| time.as_nanos() as u64);
    let plan = Plan::new(workload, blocks * BLOCK, 0, 0);
    let mut now_ns = 5_000;
    let delay_ns = start.delay.as_nanos() as u64;
    let limits = Limits { pace: Pace::of(workload, 0, 0, now_ns + delay_ns), ..Limits::default() };
    let mut job = Job::new(plan, depth, runtime_ns, now_ns).with_start(start, now_ns).with_limits(limits);
    let mut server = Server { service_ns, served: 0, idle_from_ns: 0, queue: VecDeque::new() };
    let mut submitted = Vec::new();
    loop {
        while let Some((slot, transfer)) = job.poll_transfer(now_ns) {
            assert!(server.queue.iter().all(|(busy, _)| *busy != slot), "slot {slot} is free");
            submitted.push(transfer);
            server.submit(slot, now_ns);
        }
        assert!(server.queue.len() <= depth as usize);
        if job.is_done() {
            return (job.finish(now_ns), submitted);
        }
        let due = server.poll_timeout().into_iter().chain(job.poll_timeout()).min();
        now_ns = due.expect("a completion or a start is due");
        while let Some(slot) = server.poll_done(now_ns) {
            job.handle_done(slot, now_ns);
        }
    }
}

/// The number of latencies of this value. Each value below 2,048 ns has a class of its own.
fn count_at(latencies: &Latencies, latency_ns: u64) -> u64 {
    latencies.count_to(latency_ns) - latencies.count_to(latency_ns - 1)
}

#[test]
fn a_full_queue_waits_for_the_whole_depth() {
    let (result, submitted) = simulate(&workload(Rw::Read, End::Pass), 1_000, 4, |_| 100);
    assert_eq!((result.ios, result.read_bytes, result.written_bytes), (1_000, 1_000 * BLOCK, 0));
    assert_eq!((result.started_ns, result.ended_ns), (5_000, 5_000 + 1_000 * 100));
    let latency = &result.latency_ns;
    assert_eq!(latency.count(), 1_000);
    // The first four find 0 to 3 transfers before them, all others 3.
    for (value, count) in [(100, 1), (200, 1), (300, 1), (400, 997)] {
        assert_eq!(count_at(latency, value), count, "{value}");
    }
    assert_eq!([0.5, 0.99, 0.999].map(|quantile| latency.quantile_ns(quantile)), [400; 3]);
    let offsets: Vec<u64> = submitted.iter().map(|transfer| transfer.offset / BLOCK).collect();
    assert_eq!(offsets, (0..1_000).collect::<Vec<_>>());
}

#[test]
fn percentiles_separate_rare_slow_transfers() {
    let slow = |index: usize| if index % 100 == 50 { 1_000 } else { 100 };
    let (result, _) = simulate(&workload(Rw::RandRead, End::Pass), 1_000, 1, slow);
    let latency = &result.latency_ns;
    assert_eq!([0.5, 0.9, 0.99].map(|quantile| latency.quantile_ns(quantile)), [100; 3]);
    assert_eq!([0.991, 0.999].map(|quantile| latency.quantile_ns(quantile)), [1_000; 2]);
    assert_eq!((count_at(latency, 1_000), latency.max_ns(), latency.min_ns()), (10, 1_000, 100));
    assert_eq!(result.ended_ns - result.started_ns, 990 * 100 + 10 * 1_000);
}

#[test]
fn at_the_deadline_nothing_is_submitted_and_the_transfers_in_flight_complete() {
    let end = End::Time(Duration::from_micros(10));
    let (result, submitted) = simulate(&workload(Rw::Read, end), 8, 4, |_| 100);
    // 100 completions up to the deadline, and the three other slots.
    assert_eq!((result.ios, submitted.len()), (103, 103));
    assert_eq!(result.ended_ns - result.started_ns, 10_300);
    assert_eq!(submitted[8].offset, 0, "the pass begins again");
}

#[test]
fn the_deadline_ends_a_job_whose_device_is_slower() {
    let end = End::Time(Duration::from_nanos(150));
    let (result, _) = simulate(&workload(Rw::Read, end), 100, 2, |_| 1_000);
    assert_eq!((result.ios, result.ended_ns - result.started_ns), (2, 2_000));
}

#[test]
fn the_earlier_of_time_and_bytes_ends_a_job() {
    let end = |ns, blocks| End::TimeOrBytes(Duration::from_nanos(ns), blocks * BLOCK);
    let ios = |end| simulate(&workload(Rw::Read, end), 10, 1, |_| 100).0.ios;
    assert_eq!([ios(end(1_000, 7)), ios(end(500, 7)), ios(end(10_000, 25))], [7, 5, 25]);
}

#[test]
fn a_seed_decides_every_transfer() {
    let with_seed = |seed| {
        let mixed = Workload { seed, read_share: ReadShare::constant(70), ..workload(Rw::RandRw, End::Pass) };
        let (result, submitted) = simulate(&mixed, 1_000, 8, |index| 100 + index as u64 % 7);
        (result.read_bytes, result.ended_ns, submitted)
    };
    assert_eq!(with_seed(1), with_seed(1));
    assert_ne!(with_seed(1), with_seed(2));
}

/// Runs a job that samples latencies on a device of fixed service time. Reads the clock only if the job needs it.
fn simulate_sampled(workload: &Workload, blocks: u64, every: u32) -> JobResult {
    let runtime_ns = workload.end.time().map(|time| time.as_nanos() as u64);
    let plan = Plan::new(workload, blocks * BLOCK, 0, 0);
    let (mut real_ns, mut now_ns) = (0, 0);
    let mut job = SampledJob::new(plan, every, 1, runtime_ns, now_ns);
    let mut next_block = 0;
    while let Some(run) = job.poll_run(now_ns) {
        for transfer in run {
            assert_eq!(transfer.offset, next_block % blocks * BLOCK, "in order");
            next_block += 1;
            real_ns += 100;
        }
        if job.needs_clock() {
            now_ns = real_ns;
        }
        job.handle_run(now_ns);
    }
    job.into_tally().finish(real_ns)
}

#[test]
fn one_latency_of_each_group_is_measured_and_is_that_of_one_transfer() {
    for every in [2, 3, 64, 512, 700, 5_000] {
        let result = simulate_sampled(&workload(Rw::Read, End::Pass), 2_000, every);
        assert_eq!((result.ios, result.read_bytes), (2_000, 2_000 * BLOCK), "{every}");
        let groups = 2_000u64.div_ceil(every.into());
        let latency = &result.latency_ns;
        assert_eq!((latency.count(), count_at(latency, 100)), (groups, groups), "{every}");
        assert_eq!(result.ended_ns, 200_000);
    }
}

#[test]
fn a_sampled_job_stops_at_the_end_of_a_group() {
    let end = End::Time(Duration::from_micros(10));
    let result = simulate_sampled(&workload(Rw::Read, end), 2_000, 64);
    // The deadline passes after 100 transfers: the job notices it at the end of the second or third group.
    assert!([128, 192].contains(&result.ios), "{}", result.ios);
    assert_eq!(result.latency_ns.count(), result.ios / 64);
}

#[test]
fn a_stopped_job_submits_nothing_more() {
    let mut job = Job::new(Plan::new(&Workload::default(), 10 * BLOCK, 0, 0), 2, None, 0);
    let (slot, transfer) = job.poll_transfer(0).unwrap();
    assert_eq!(job.transfer(slot), transfer);
    job.stop();
    assert!(job.poll_transfer(1).is_none() && !job.is_idle());
    job.handle_done(slot, 2);
    assert!(job.poll_transfer(3).is_none() && job.is_idle());
    assert_eq!(job.moved_bytes(), BLOCK);
}

fn per_second(ios: u64) -> Option<Rate> {
    NonZeroU64::new(ios).map(Rate::Ios)
}

#[test]
fn each_slot_rests_for_the_think_time_after_its_transfer() {
    let think = Workload { think: Duration::from_nanos(400), ..workload(Rw::Read, End::Pass) };
    for (depth, cycle_ns) in [(1, 500), (2, 500), (5, 500), (10, 1000)] {
        let (result, _) = simulate(&think, 1000, depth, |_| 100);
        let seconds = 1000 / u64::from(depth) * cycle_ns;
        let taken_ns = result.ended_ns - result.started_ns;
        assert!((seconds - 500..=seconds + 500).contains(&taken_ns), "{depth}: {taken_ns}");
        assert_eq!(result.ios, 1000);
    }
}

#[test]
fn a_job_rests_after_every_so_many_transfers() {
    let think = Workload {
        think: Duration::from_nanos(400),
        think_every: NonZeroU64::new(4).unwrap(),
        ..workload(Rw::Read, End::Pass)
    };
    let (result, _) = simulate(&think, 1000, 1, |_| 100);
    // The last rest is not a part of the run.
    assert_eq!((result.ios, result.ended_ns - result.started_ns), (1000, 1000 * 100 + 249 * 400));
}

#[test]
fn a_job_that_rests_as_a_whole_starts_its_transfers_waits_for_them_and_rests() {
    let think = Workload {
        think: Duration::from_nanos(400),
        think_every: NonZeroU64::new(4).unwrap(),
        think_together: Some(ThinkCount::Started),
        ..workload(Rw::Read, End::Pass)
    };
    for depth in [1, 3, 4] {
        let (result, _) = simulate(&think, 1000, depth, |_| 100);
        let taken_ns = result.ended_ns - result.started_ns;
        // The device serves one at a time. As in fio, the rest after the last transfer is a part of the job.
        assert_eq!((result.ios, taken_ns), (1000, 1000 * 100 + 250 * 400));
        // The transfers of a burst wait for those before them, and none starts before the end of a rest.
        let waiting = u64::from(depth) * 100;
        assert_eq!(result.latency_ns.max_ns(), waiting, "depth {depth}");
    }
    // The deadline comes 100 ns after the last transfer, in its rest.
    let end = End::TimeOrBytes(Duration::from_nanos(1000 * 100 + 249 * 400 + 100), 1000 * BLOCK);
    let (result, _) = simulate(&Workload { end, ..think.clone() }, 1000, 4, |_| 100);
    assert_eq!((result.ios, result.ended_ns - result.started_ns), (1000, 1000 * 100 + 249 * 400 + 100));
    let rated = Workload { rate: per_second(10_000_000), ..think.clone() };
    let (result, _) = simulate(&rated, 1000, 4, |_| 100);
    assert_eq!(result.ended_ns - result.started_ns, 1000 * 100 + 250 * 400, "the rests decide");
    // Completions: as in fio 3.33, those of the wait before a rest count for the next one. At a depth of 16, 19
    // transfers and then one alternate, so that rests are half as frequent.
    let completions = Workload { think_together: Some(ThinkCount::Completed), ..think };
    let rests = |depth| {
        let (result, _) = simulate(&completions, 1000, depth, |_| 100);
        (result.ended_ns - result.started_ns - 1000 * 100) / 400
    };
    assert_eq!([rests(1), rests(16)].map(|rests| rests / 10), [24, 10]);
}

#[test]
fn a_job_whose_next_start_needs_a_completion_has_no_time_for_it() {
    let at_once = Workload { rate: per_second(1_000_000_000), ..workload(Rw::Write, End::Pass) };
    let job = |batches, flush_every| {
        let pace = Pace::of(&at_once, 0, 0, 0);
        let limits = Limits { pace, batch: Batch::of(batches, 4), ..Limits::default() };
        let flushes = [NonZeroU64::new(flush_every), None];
        let plan = Plan::new(&at_once, 100 * BLOCK, 0, 0);
        let mut job = Job::new(plan, 4, None, 0).with_limits(limits).with_flushes(flushes);
        let slots: Vec<u32> = std::iter::from_fn(|| Some(job.poll_transfer(1_000)?.0)).collect();
        (job, slots)
    };
    // The depth is in flight, and the next transfer starts with one left.
    let (mut draining, slots) = job(Batches { low: NonZeroU32::new(1), ..Batches::default() }, 0);
    for slot in &slots[..3] {
        assert_eq!(draining.poll_transfer(1_000), None);
        assert_eq!(draining.poll_timeout(), None, "slot {slot}");
        draining.handle_done(*slot, 1_000);
    }
    assert!(draining.poll_transfer(1_000).is_some());
    // Three writes, then a flush.
    let (mut flushing, slots) = job(Batches::default(), 3);
    assert_eq!((slots.len(), flushing.poll_timeout()), (3, None));
    for slot in slots {
        flushing.handle_done(slot, 1_000);
    }
    assert!(flushing.needs_flush());
}

#[test]
fn a_flush_is_no_part_of_a_rest() {
    let think = Workload {
        think: Duration::from_nanos(400),
        think_together: Some(ThinkCount::Completed),
        ..workload(Rw::Write, End::Pass)
    };
    let limits = Limits { pace: Pace::of(&think, 0, 0, 0), ..Limits::default() };
    let plan = Plan::new(&think, 10 * BLOCK, 0, 0);
    let mut job = Job::new(plan, 1, None, 0).with_limits(limits).with_flushes([NonZeroU64::new(1), None]);
    let (mut now_ns, mut starts) = (0, Vec::new());
    loop {
        if let Some((slot, _)) = job.poll_transfer(now_ns) {
            starts.push(now_ns);
            now_ns += 100;
            job.handle_done(slot, now_ns);
        } else if job.needs_flush() {
            now_ns += 300;
            job.handle_flush(300, now_ns);
        } else if let Some(due_ns) = job.poll_timeout() {
            now_ns = due_ns;
        } else {
            break;
        }
    }
    assert_eq!(starts.len(), 10);
    let cycles: Vec<u64> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(cycles, [100 + 300 + 400; 9]);
}

#[test]
fn both_kinds_of_flushes_come_after_their_numbers_of_writes() {
    let kinds = |every: [u64; 2], writes: u64| {
        let plan = Plan::new(&workload(Rw::Write, End::Pass), writes * BLOCK, 0, 0);
        let mut job = Job::new(plan, 1, None, 0).with_flushes(every.map(NonZeroU64::new));
        let mut kinds = String::new();
        loop {
            match job.poll_transfer(0) {
                Some((slot, _)) => {
                    kinds.push('w');
                    job.handle_done(slot, 0);
                }
                None if job.needs_flush() => {
                    kinds.push(if job.flushes_data_alone() { 'd' } else { 'f' });
                    job.handle_flush(1, 0);
                }
                None => return kinds,
            }
        }
    };
    // The order of fio 3.33 (`write_iolog`).
    assert_eq!(kinds([4, 3], 12), "wwwdwfwwdwwfwdwwwf");
    assert_eq!(kinds([2, 0], 4), "wwfwwf");
    assert_eq!(kinds([0, 3], 4), "wwwdw");
    assert_eq!(kinds([0, 0], 3), "www");
}

#[test]
fn a_rate_with_a_think_time_keeps_its_times_unless_the_rests_are_too_long() {
    let of = |think_ns, every, process| {
        let workload = Workload {
            rate: per_second(1_000_000),
            rate_process: process,
            think: Duration::from_nanos(think_ns),
            think_every: NonZeroU64::new(every).unwrap(),
            ..workload(Rw::RandRead, End::Pass)
        };
        let (result, _) = simulate(&workload, 1000, 1, |_| 100);
        (result.ended_ns - result.started_ns, result.latency_ns.max_ns())
    };
    // One transfer each 1,000 ns is to start.
    assert_eq!(of(400, 1, RateProcess::Linear), (999_000 + 100, 100));
    assert_eq!(of(900, 1, RateProcess::Linear), (999_000 + 100, 100));
    // The rests decide. They are no latency.
    assert_eq!(of(2_000, 1, RateProcess::Linear), (1000 * 100 + 999 * 2_000, 100));
    // After a rest, the transfers that are late start one after the other.
    assert_eq!(of(2_000, 4, RateProcess::Linear), (999_000 + 100, 200));
    // Four transfers before the first rest keep their times.
    assert_eq!(of(20_000, 4, RateProcess::Linear).0, 3_100 + 249 * 20_400);
    let (poisson_ns, _) = of(400, 1, RateProcess::Poisson);
    let (without_rests_ns, _) = of(0, 1, RateProcess::Poisson);
    assert!(poisson_ns >= without_rests_ns && poisson_ns < without_rests_ns + 10_000, "{poisson_ns}");
}

#[test]
fn a_rate_starts_transfers_at_fixed_times() {
    let rated = Workload { rate: per_second(1_000_000), ..workload(Rw::RandRead, End::Pass) };
    let (result, _) = simulate(&rated, 1000, 4, |_| 100);
    // Number 999 starts 999 us after the start.
    assert_eq!((result.ios, result.ended_ns - result.started_ns), (1000, 999_000 + 100));
    assert_eq!((result.latency_ns.min_ns(), result.latency_ns.max_ns()), (100, 100));
    let bytes = Rate::Bytes(NonZeroU64::new(BLOCK * 1_000_000).unwrap());
    let (in_bytes, _) = simulate(&Workload { rate: Some(bytes), ..rated.clone() }, 1000, 4, |_| 100);
    assert_eq!((in_bytes.ios, in_bytes.ended_ns), (result.ios, result.ended_ns));
    let timed = Workload { end: End::Time(Duration::from_micros(50)), ..rated };
    let (result, _) = simulate(&timed, 1000, 4, |_| 100);
    assert_eq!((result.ios, result.ended_ns - result.started_ns), (50, 50_000), "the deadline ends a wait");
}

#[test]
fn a_transfer_that_starts_late_counts_its_wait_as_latency() {
    // One stall of 10 us in a stream of one transfer each microsecond: ten transfers should have started meanwhile.
    let rated = Workload { rate: per_second(1_000_000), ..workload(Rw::Read, End::Pass) };
    let (result, _) = simulate(&rated, 100, 1, |served| if served == 50 { 10_000 } else { 100 });
    let slow = |over_ns| result.latency_ns.classes().filter(|(lowest, _)| *lowest > over_ns).count();
    assert_eq!(result.ios, 100);
    assert!(slow(5_000) >= 5, "the transfers behind the stall are slow, too: {}", slow(5_000));
    let (closed, _) =
        simulate(&workload(Rw::Read, End::Pass), 100, 1, |served| if served == 50 { 10_000 } else { 100 });
    assert_eq!(closed.latency_ns.classes().filter(|(lowest, _)| *lowest > 5_000).count(), 1);
}

#[test]
fn a_target_below_the_rate_has_latencies_that_grow() {
    let rated = Workload { rate: per_second(20_000_000), ..workload(Rw::Read, End::Pass) };
    let (result, _) = simulate(&rated, 1000, 1, |_| 100);
    // Starts every 50 ns, completions every 100 ns.
    assert_eq!(result.ended_ns - result.started_ns, 100_000);
    assert!((50_000..50_200).contains(&result.latency_ns.max_ns()), "{}", result.latency_ns.max_ns());
}

#[test]
fn a_delay_shifts_start_and_deadline() {
    let end = End::TimeOrBytes(Duration::from_micros(1), 1 << 30);
    let start = Start { delay: Duration::from_nanos(700), ramp: Duration::ZERO };
    for think in [0, 10] {
        let workload = Workload { think: Duration::from_nanos(think), ..workload(Rw::Read, end) };
        let (late, transfers) = simulate_from(&workload, 100, 2, |_| 100, start);
        let (result, same) = simulate(&workload, 100, 2, |_| 100);
        assert_eq!((late.ios, &transfers), (result.ios, &same));
        assert_eq!((late.started_ns, late.ended_ns), (result.started_ns + 700, result.ended_ns + 700));
    }
}

#[test]
fn the_measurement_begins_after_the_ramp() {
    // One transfer each 100 ns. Of the first 450 ns, four transfers are not counted.
    let start = Start { delay: Duration::ZERO, ramp: Duration::from_nanos(450) };
    let (result, transfers) = simulate_from(&workload(Rw::Read, End::Pass), 10, 1, |_| 100, start);
    assert_eq!(result.started_ns, 5_450);
    // The plan counts from the first measured completion, which is the fifth.
    assert_eq!((transfers.len(), result.ios), (4 + 1 + 10, 11));
    assert_eq!(transfers[10].offset, 0, "the pass continues at the start");
    let timed = workload(Rw::Read, End::Time(Duration::from_micros(1)));
    let (result, _) = simulate_from(&timed, 10, 1, |_| 100, start);
    assert_eq!((result.started_ns, result.ended_ns, result.ios), (5_450, 6_500, 11));
}

#[test]
fn a_job_that_ends_in_its_ramp_has_measured_nothing() {
    let start = Start { delay: Duration::ZERO, ramp: Duration::from_nanos(450) };
    let mut job =
        Job::new(Plan::new(&Workload::default(), 10 * BLOCK, 0, 0), 1, None, 0).with_start(start, 0);
    let (slot, _) = job.poll_transfer(0).unwrap();
    job.stop();
    job.handle_done(slot, 100);
    let result = job.finish(100);
    assert_eq!((result.ios, result.started_ns, result.ended_ns), (0, 100, 100));
}

#[test]
fn reads_and_writes_are_measured_apart() {
    let mix = Workload { read_share: ReadShare::constant(70), ..workload(Rw::RandRw, End::Pass) };
    // Transfers of even number take 100 ns, others 300 ns: the directions have other latencies than their sum.
    let (result, transfers) = simulate(&mix, 1000, 1, |number| if number % 2 == 0 { 100 } else { 300 });
    let [reads, writes, _] = result.directions.as_deref().unwrap();
    for (side, direction) in [(reads, Direction::Read), (writes, Direction::Write)] {
        let of_side = || transfers.iter().enumerate().filter(|(_, transfer)| transfer.direction == direction);
        let slow = of_side().filter(|(number, _)| number % 2 == 1).count() as u64;
        assert_eq!((side.ios, side.bytes), (of_side().count() as u64, of_side().count() as u64 * BLOCK));
        let latency = &side.latency_ns;
        assert_eq!((latency.count(), latency.count_to(350) - latency.count_to(249)), (side.ios, slow));
    }
    assert_eq!(reads.ios + writes.ios, result.ios);
    assert_eq!(result.latency_ns.count(), result.ios);
    assert_eq!(result.read_bytes, reads.bytes);
    let (result, _) = simulate(&workload(Rw::Write, End::Pass), 10, 1, |_| 100);
    assert!(result.directions.is_none() && result.latency_ns.count() == 10);
}

#[test]
fn a_job_flushes_after_each_number_of_writes_with_nothing_in_flight() {
    for (depth, every) in [(1, 1), (1, 3), (4, 3), (4, 8)] {
        let mix = workload(Rw::Rw, End::Pass);
        let plan = Plan::new(&mix, 40 * BLOCK, 0, 0);
        let mut job = Job::new(plan, depth, None, 0).with_flushes([NonZeroU64::new(every), None]);
        let (mut now_ns, mut in_flight, mut writes, mut flushes) = (0, Vec::new(), 0, 0);
        while !job.is_done() {
            now_ns += 100;
            if job.needs_flush() {
                assert!(in_flight.is_empty());
                assert_eq!(writes, every);
                (writes, flushes) = (0, flushes + 1);
                job.handle_flush(50, now_ns);
            }
            while let Some((slot, transfer)) = job.poll_transfer(now_ns) {
                writes += u64::from(transfer.direction == Direction::Write);
                assert!(writes <= every);
                in_flight.push(slot);
            }
            if let Some(slot) = in_flight.pop() {
                job.handle_done(slot, now_ns);
            }
        }
        let result = job.finish(now_ns);
        let [_, wrote, _] = result.directions.as_deref().unwrap();
        assert_eq!((result.ios, flushes), (40, wrote.ios / every));
        let flush_ns = &result.flush_ns;
        assert_eq!((flush_ns.count(), flush_ns.max_ns()), (flushes, 50));
    }
}

#[test]
fn the_latency_of_a_rate_counts_from_the_intended_start_and_the_closed_loop_latency_beside_it() {
    let rate = Some(Rate::Ios(NonZeroU64::new(1_000_000).unwrap()));
    let paced = Workload { rate, ..workload(Rw::Read, End::Bytes(10 * BLOCK)) };
    // One transfer each 1,000 ns is to start, and each takes 3,000 ns: the last starts 18,000 ns late.
    let (result, _) = simulate(&paced, 10, 1, |_| 3_000);
    let near = |value: u64, expected: u64| value.abs_diff(expected) <= expected / 100;
    assert!(near(result.latency_ns.max_ns(), 9 * 2_000 + 3_000), "{}", result.latency_ns.max_ns());
    let closed = &result.other_ns;
    assert!(near(closed.max_ns(), 3_000) && closed.count() == 10, "{}", closed.max_ns());
    let (result, _) = simulate(&paced, 10, 1, |_| 900);
    assert!(near(result.latency_ns.max_ns(), 900), "the rate is kept: {}", result.latency_ns.max_ns());
    let (result, _) = simulate(&workload(Rw::Read, End::Bytes(10 * BLOCK)), 10, 1, |_| 3_000);
    assert!(result.other_ns.is_empty());
}

#[test]
fn a_latency_from_the_submission_lacks_the_wait_for_the_rate_and_has_two_parts() {
    let rate = Some(Rate::Ios(NonZeroU64::new(1_000_000).unwrap()));
    let paced = Workload { rate, ..workload(Rw::RandRw, End::Bytes(10 * BLOCK)) };
    let limits = Limits { pace: Pace::of(&paced, 0, 0, 0), ..Limits::default() };
    let mut job = Job::new(Plan::new(&paced, 10 * BLOCK, 0, 0), 1, None, 0)
        .with_limits(limits)
        .with_latency_from(LatencyFrom::Submission)
        .with_submissions();
    let mut now_ns = 0;
    while !job.is_done() {
        if let Some((slot, _)) = job.poll_transfer(now_ns) {
            // The work before the submission, the submission, and the transfer.
            job.begin(slot, now_ns + 200);
            assert!(job.has_queued());
            job.handle_submitted(now_ns + 700);
            now_ns += 3_000;
            job.handle_done(slot, now_ns);
        } else if !job.is_done() {
            now_ns = job.poll_timeout().unwrap();
        }
        assert!(!job.has_queued());
    }
    let result = job.finish(now_ns);
    let range =
        |latencies: &Latencies| (latencies.count(), latencies.min_ns() / 100, latencies.max_ns() / 100);
    assert_eq!(range(&result.latency_ns), (10, 28, 28));
    assert_eq!(range(&result.parts.submission_ns), (10, 5, 5));
    assert_eq!(range(&result.parts.completion_ns), (10, 23, 23));
    let (_, _, most) = range(&result.other_ns);
    assert!(most >= 180, "the last one is due 18,000 ns before: {most}");
    let of_each: Vec<u64> =
        result.directions.unwrap().iter().map(|one| one.parts.submission_ns.count()).collect();
    assert_eq!(of_each.iter().sum::<u64>(), 10);
    assert!(of_each[0] > 0 && of_each[1] > 0, "{of_each:?}");
}

#[test]
fn a_poisson_process_has_its_mean_rate_and_exponential_distances() {
    let rate = Some(Rate::Ios(NonZeroU64::new(1_000_000).unwrap()));
    let paced = |job| {
        let workload = Workload { rate, rate_process: RateProcess::Poisson, ..workload(Rw::Read, End::Pass) };
        let mut pace = Pace::of(&workload, 0, job, 0).unwrap();
        (0..20_000).map(|_| pace.start(u64::MAX).unwrap().ns).collect::<Vec<u64>>()
    };
    let starts = paced(0);
    let mean = *starts.last().unwrap() as f64 / 19_999.0;
    assert!((950.0..1050.0).contains(&mean), "{mean}");
    // A share of 1/e of the distances exceeds the mean.
    let long = starts.windows(2).filter(|pair| pair[1] - pair[0] > 1_000).count() as f64 / 19_999.0;
    assert!((0.35..0.385).contains(&long), "{long}");
    assert_eq!(starts, paced(0));
    assert_ne!(starts, paced(1), "jobs are independent");
}
