//! Adversaries submit requests that keep a victim waiting: the stated starvation bound of each elevator must hold.
//! Prints the measured and the stated bound (`--nocapture`).

use super::{every_elevator, read, spec};
use iopath_core::elevator::{ElevatorSpec, Harness, Outline, StarvationBound};
use iopath_core::{Duration, Extent, Instant, Op, Priority, Sector, Stream};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

const MIDDLE: u64 = 1 << 40;

/// The requests submitted to make a victim wait.
#[derive(Debug, Clone, Copy)]
enum Adversary {
    /// Reads at the head.
    Ahead,
    /// Reads of the same sectors.
    Again,
    /// Reads at the head with the highest priority.
    Urgent,
    /// Writes at the head.
    Writes,
    /// Small reads at the head, each by a new stream.
    NewStreams,
    /// Large reads of the victim's own stream before the victim, small reads of other streams after it.
    Shares,
    /// Random requests.
    Random,
}

const ADVERSARIES: [Adversary; 7] = [
    Adversary::Ahead,
    Adversary::Again,
    Adversary::Urgent,
    Adversary::Writes,
    Adversary::NewStreams,
    Adversary::Shares,
    Adversary::Random,
];

impl Adversary {
    fn next(self, head: u64, count: u32, is_waiting: bool, rng: &mut ChaCha8Rng) -> Outline {
        let own = Stream(1 + count % 3);
        match self {
            Self::Ahead => Outline { stream: own, ..read(head) },
            Self::Again => Outline { stream: own, ..read(MIDDLE) },
            Self::Urgent => Outline { priority: Priority::RealTime, stream: own, ..read(head) },
            Self::Writes => Outline { op: Op::Write, stream: own, ..read(head) },
            Self::NewStreams => {
                let extent = Extent::new(Sector(head), 1).unwrap();
                Outline { stream: Stream(1000 + count), extent, ..read(head) }
            }
            Self::Shares if !is_waiting && count.is_multiple_of(2) => {
                Outline { extent: Extent::new(Sector(head), 512).unwrap(), ..read(head) }
            }
            Self::Shares => {
                Outline { extent: Extent::new(Sector(head), 1).unwrap(), stream: own, ..read(head) }
            }
            Self::Random => Outline {
                op: [Op::Read, Op::Write][rng.random_range(0..2)],
                priority: Priority::ALL[rng.random_range(0..3)],
                stream: Stream(rng.random_range(0..100)),
                extent: Extent::new(Sector(rng.random_range(0..2 * MIDDLE)), rng.random_range(1..512))
                    .unwrap(),
                segments: 1,
            },
        }
    }
}

/// The number of dispatches that `victim` waits after the time of the bound, in a queue that is kept full.
fn wait(
    spec: &ElevatorSpec,
    adversary: Adversary,
    victim: &Outline,
    queued_max: usize,
) -> (u64, StarvationBound) {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut harness = Harness::new(spec, queued_max);
    let (mut head, mut now) = (MIDDLE, Instant::ZERO);
    let mut count = 0;
    let mut feed = |harness: &mut Harness, head, is_waiting, now| {
        count += 1;
        harness.insert(&adversary.next(head, count, is_waiting, &mut rng), now);
    };
    // The adversary moves the head and fills the queue before the victim arrives.
    for _ in 0..4 * queued_max {
        while harness.elevator().len() < queued_max - 1 {
            feed(&mut harness, head, false, now);
        }
        head = harness.dispatch(now).map_or(head, |(_, io)| io.extent.end().0);
    }
    while harness.elevator().len() < queued_max - 1 {
        feed(&mut harness, head, false, now);
    }
    let tag = harness.insert(victim, now);
    let arrived = now;
    let bound = harness.elevator().starvation_bound(victim.op, victim.priority, queued_max);
    let mut waited = 0;
    loop {
        now = now + Duration::from_millis(1);
        let (out, io) = harness.dispatch(now).expect("the queue is full");
        waited += u64::from(now - arrived > bound.after);
        if out == tag {
            // The bound of `fair` depends on the highest cost so far.
            return (waited, harness.elevator().starvation_bound(victim.op, victim.priority, queued_max));
        }
        assert!(waited <= bound.dispatches, "{spec}: {adversary:?} starves {victim:?} past {bound:?}");
        head = io.extent.end().0;
        feed(&mut harness, head, true, now);
    }
}

fn victims() -> impl Iterator<Item = Outline> {
    let starts = [0, MIDDLE, 2 * MIDDLE];
    starts.into_iter().flat_map(|start| {
        [Op::Read, Op::Write].into_iter().flat_map(move |op| {
            Priority::ALL.into_iter().map(move |priority| Outline { op, priority, ..read(start) })
        })
    })
}

/// The longest wait of any victim, its bound, and the adversary.
fn worst(spec: &ElevatorSpec, queued_max: usize) -> (u64, StarvationBound, Adversary) {
    let cases =
        ADVERSARIES.into_iter().flat_map(|adversary| victims().map(move |victim| (adversary, victim)));
    let waits = cases.map(|(adversary, victim)| {
        let (waited, bound) = wait(spec, adversary, &victim, queued_max);
        assert!(
            waited <= bound.dispatches,
            "{spec}: {adversary:?} kept {victim:?} for {waited} of {bound:?}"
        );
        (waited, bound, adversary)
    });
    waits.max_by_key(|(waited, ..)| *waited).expect("there are adversaries")
}

#[test]
fn no_adversary_makes_a_request_wait_past_the_stated_bound() {
    for queued_max in [4, 32] {
        for spec in every_elevator() {
            let (waited, bound, adversary) = worst(&spec, queued_max);
            let StarvationBound { after, dispatches } = bound;
            println!("{spec}, {queued_max} queued: {waited} of {dispatches} after {after:?} ({adversary:?})");
        }
    }
}

#[test]
fn the_bound_follows_the_settings() {
    let settings = [
        "ascend:read_latency=0,write_latency=0",
        "ascend:read_latency=100,write_latency=3",
        "ascend:read_latency=3,write_latency=100",
        "two-list:sweep_max=0",
        "two-list:sweep_max=5",
        "closest:patience=0",
        "closest:patience=50",
        "deadline:read_expire_ms=0,write_expire_ms=0,prio_aging_ms=0",
        "deadline:read_expire_ms=50,write_expire_ms=10,prio_aging_ms=100,fifo_batch=1,writes_starved=1",
        "deadline:read_expire_ms=10,write_expire_ms=200,prio_aging_ms=10,fifo_batch=7,writes_starved=9",
        "fair:quantum_bytes=0",
        "fair:request_cost_bytes=0,quantum_bytes=4096",
    ];
    for text in settings {
        let (waited, bound, adversary) = worst(&spec(text), 16);
        println!("{text}: {waited} of {bound:?} ({adversary:?})");
    }
}

#[test]
fn a_sort_without_a_limit_would_starve() {
    // Without its limit, the elevator keeps this victim waiting for as long as the adversary continues.
    for text in
        ["ascend:read_latency=1000000000", "two-list:sweep_max=1000000000", "closest:patience=1000000000"]
    {
        let mut harness = Harness::new(&spec(text), 8);
        harness.insert(&read(MIDDLE), Instant::ZERO);
        harness.dispatch(Instant::ZERO);
        let victim = harness.insert(&read(0), Instant::ZERO);
        let mut head = MIDDLE + 8;
        for _ in 0..100_000 {
            harness.insert(&read(head), Instant::ZERO);
            let (out, io) = harness.dispatch(Instant::ZERO).unwrap();
            assert_ne!(out, victim, "{text}: the victim was dispatched without the limit");
            head = io.extent.end().0;
        }
    }
}
