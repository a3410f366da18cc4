//! Tests of the waits of a runner and of their timers, on a slow device that records each wait. No test assumes an
//! upper bound on the time of an operation.

use super::*;
use crate::device::Notifier;
use crate::pool::BufferPool;
use iopath_core::elevator::{Elevator, ElevatorKind, ElevatorSpec, StarvationBound};
use iopath_core::{BlockDevice, Busy, Completion, Io, Limits, Priority, RequestTable, Stream, Tag};
use std::collections::VecDeque;

#[path = "../../tests/support/hold.rs"]
mod hold;
use hold::{HELD_FOR, HOLD, Hold};

/// The time that the device takes for a request.
const TAKES: Duration = Duration::from_millis(10);

/// Moves no byte, completes each request after `takes`, and records its calls.
#[derive(Debug)]
struct Watched {
    limits: Limits,
    takes: Duration,
    in_flight: VecDeque<(Instant, Tag)>,
    waits: Vec<Wait>,
    polls: u32,
}

/// A wait: the requests in flight at its start, the completions it waited for, and its timeout.
#[derive(Debug, PartialEq, Eq)]
struct Wait {
    in_flight: u32,
    completions: u32,
    timeout: Option<Duration>,
}

impl BlockDevice for Watched {
    type Memory = Segment;

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn submit(&mut self, io: &Io<'_, Segment>, _now: Instant) -> Result<(), Busy> {
        self.in_flight.push_back((clock::now() + self.takes, io.tag));
        Ok(())
    }

    fn commit(&mut self, _now: Instant) {}

    fn poll_completion(&mut self, now: Instant) -> Option<Completion> {
        self.polls += 1;
        let (due, tag) = *self.in_flight.front()?;
        (due <= now).then(|| self.in_flight.pop_front())?;
        Some(Completion { tag, result: Ok(()) })
    }
}

// SAFETY: touches no memory at all.
unsafe impl RealDevice for Watched {
    fn commit_and_wait(&mut self, completions: u32, timeout: Option<Duration>) -> Result<(), WaitError> {
        self.waits.push(Wait { in_flight: self.in_flight(), completions, timeout });
        let last = completions.min(self.in_flight()).saturating_sub(1);
        if let Some((due, _)) = self.in_flight.get(last as usize) {
            let left = due.saturating_since(clock::now());
            thread::sleep(timeout.map_or(left, |timeout| timeout.min(left)));
        }
        Ok(())
    }

    fn in_flight(&self) -> u32 {
        self.in_flight.len() as u32
    }

    fn syscalls(&self) -> u64 {
        self.waits.len() as u64
    }

    /// Refuses: no test makes it a member of a stripe.
    fn set_notifier(&mut self, _notifier: &Notifier) -> std::io::Result<()> {
        Err(std::io::ErrorKind::Unsupported.into())
    }
}

fn runner(depth: u32, takes: Duration, elevator: ElevatorSpec) -> Runner<Watched> {
    let limits = Limits { depth_max: depth, ..Limits::with_capacity(1 << 20) };
    let device = Watched { limits, takes, in_flight: VecDeque::new(), waits: Vec::new(), polls: 0 };
    let config = QueueConfig { bios_max: 64, depth, elevator, ..QueueConfig::default() };
    Runner::new(Box::new(device), &config)
}

/// Queues `count` reads of which no two are adjacent.
fn queue(runner: &mut Runner<Watched>, pool: &BufferPool, count: u32) {
    for token in 0..u64::from(count) {
        let job = Job {
            op: Op::Read,
            extent: Extent::from_bytes(token << 14, 4096).unwrap(),
            buffer: pool.take(),
            fua: false,
            stream: Stream(0),
            priority: Priority::default(),
            token,
        };
        runner.queue(job).unwrap();
    }
}

fn finish(runner: &mut Runner<Watched>) {
    while runner.in_flight() > 0 {
        runner.wait(1).unwrap();
        while runner.poll_completion().is_some() {}
    }
}

#[test]
fn wait_submits_plugged_jobs_and_sets_no_timer() {
    for count in [1, 2, 3] {
        let (mut runner, pool) =
            (runner(64, TAKES, ElevatorSpec::default()), BufferPool::new(32, 4096).unwrap());
        queue(&mut runner, &pool, count);
        assert_eq!(runner.pump.device().in_flight(), 0, "the jobs are plugged");
        assert_eq!(runner.pump.queue().poll_timeout(), None, "no timer unplugs them");
        runner.wait(count).unwrap();
        // All jobs were at the device when the wait began, and only their completion ends it.
        assert_eq!(
            runner.pump.device().waits,
            [Wait { in_flight: count, completions: count, timeout: None }]
        );
        assert_eq!(std::iter::from_fn(|| runner.poll_completion()).count(), count as usize);
    }
}

#[test]
fn a_wait_with_a_completion_present_submits_plugged_jobs() {
    let (mut runner, pool) =
        (runner(64, Duration::ZERO, ElevatorSpec::default()), BufferPool::new(2, 4096).unwrap());
    queue(&mut runner, &pool, 1);
    runner.wait(1).unwrap();
    queue(&mut runner, &pool, 1);
    runner.wait(1).unwrap();
    assert_eq!((runner.pump.device().in_flight(), runner.pump.device().waits.len()), (1, 1));
    finish(&mut runner);
}

#[test]
fn a_blocking_call_never_stays_plugged() {
    let mut runner = runner(1, Duration::ZERO, ElevatorSpec::default());
    let extent = Extent::from_bytes(0, 4096).unwrap();
    let mut memory = [0; 4096];
    runner.read(extent, &mut memory).unwrap();
    runner.write(extent, &memory, true).unwrap();
    let at_the_device = |wait: &Wait| wait.in_flight == 1 && wait.timeout.is_none();
    assert!(runner.pump.device().waits.len() == 2 && runner.pump.device().waits.iter().all(at_the_device));
}

#[test]
fn a_wait_for_a_full_device_has_no_timer_although_the_elevator_is_due() {
    let mut runner = runner(1, TAKES, ElevatorSpec::new(HOLD));
    let pool = BufferPool::new(4, 4096).unwrap();
    queue(&mut runner, &pool, 4);
    finish(&mut runner);
    // One wait for each of the four: the next request is always due, but the device has no room for it.
    let alone = |wait: &Wait| *wait == Wait { in_flight: 1, completions: 1, timeout: None };
    assert!(
        runner.pump.device().waits.len() == 4 && runner.pump.device().waits.iter().all(alone),
        "{:?}",
        runner.pump.device().waits
    );
}

#[test]
fn the_runner_sleeps_while_the_elevator_holds_everything_back() {
    let (mut runner, pool) =
        (runner(4, Duration::ZERO, ElevatorSpec::new(HOLD)), BufferPool::new(1, 4096).unwrap());
    queue(&mut runner, &pool, 1);
    finish(&mut runner);
    // Polled before the sleep, after it, and after the wait for the request, each time until the device has none.
    assert!(
        runner.pump.device().polls <= 6,
        "{} polls of the device in a millisecond",
        runner.pump.device().polls
    );
}

#[test]
fn a_request_held_back_is_dispatched_when_due_while_others_are_in_flight() {
    let takes = HELD_FOR * 250;
    let mut runner = runner(4, takes, ElevatorSpec::new(HOLD));
    let pool = BufferPool::new(4, 4096).unwrap();
    queue(&mut runner, &pool, 1);
    runner.submit();
    thread::sleep(HELD_FOR);
    runner.reap();
    assert_eq!(runner.pump.device().in_flight(), 1);
    queue(&mut runner, &pool, 1);
    runner.wait(1).unwrap();
    let [held, whole @ ..] = &runner.pump.device().waits[..] else { panic!("the runner never waited") };
    assert!(held.timeout.is_some_and(|timeout| timeout <= HELD_FOR), "{held:?}");
    assert!(whole.iter().any(|wait| wait.in_flight == 2), "the second joined the first: {whole:?}");
    finish(&mut runner);
}

#[test]
#[should_panic(expected = "hold holds all requests back and names no time")]
fn the_panic_names_an_elevator_that_holds_requests_back_forever() {
    #[derive(Debug, Default)]
    struct Never(Hold);

    impl Elevator for Never {
        fn name(&self) -> &'static str {
            "hold"
        }

        fn insert(&mut self, tag: Tag, requests: &RequestTable, now: Instant) {
            self.0.insert(tag, requests, now);
        }

        fn dispatch(&mut self, _requests: &RequestTable, _now: Instant) -> Option<Tag> {
            None
        }

        fn len(&self) -> usize {
            self.0.len()
        }

        fn starvation_bound(&self, op: Op, priority: Priority, queued_max: usize) -> StarvationBound {
            self.0.starvation_bound(op, priority, queued_max)
        }

        fn absorb(&mut self, _tag: Tag, _into: Tag, _requests: &RequestTable) {}

        fn take_any(&mut self, requests: &RequestTable) -> Option<Tag> {
            self.0.take_any(requests)
        }
    }
    let never = ElevatorKind { build: |_| Box::<Never>::default(), ..HOLD };
    let mut runner = runner(4, TAKES, ElevatorSpec::new(never));
    let pool = BufferPool::new(1, 4096).unwrap();
    queue(&mut runner, &pool, 1);
    finish(&mut runner);
}
