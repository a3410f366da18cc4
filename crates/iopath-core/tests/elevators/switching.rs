//! Changes of the elevator of a queue in use, for every pair of elevators and at every step: no request is lost,
//! overlapping bios stay in order, flushes follow the writes that they cover.

use super::every_elevator;
use iopath_core::elevator::ElevatorSpec;
use iopath_core::{
    Bio, Extent, Instant, LengthOnly, Limits, Op, Priority, QueueConfig, RequestQueue, Sector, Stream, Tag,
};
use std::collections::VecDeque;

const BIOS: u64 = 64;
const T0: Instant = Instant::ZERO;

/// A queue and a device of depth 4 that completes requests in order.
struct Harness {
    queue: RequestQueue<LengthOnly>,
    at_device: VecDeque<Tag>,
    /// Tokens in the order they completed.
    done: Vec<u64>,
}

impl Harness {
    fn new(elevator: ElevatorSpec) -> Self {
        let limits =
            Limits { volatile_cache: true, request_bytes_max: 32 << 9, ..Limits::with_capacity(1 << 20) };
        let config = QueueConfig { depth: 4, requests_max: 32, elevator, ..QueueConfig::default() };
        Self { queue: RequestQueue::new(limits, &config), at_device: VecDeque::new(), done: Vec::new() }
    }

    /// Reads, writes and flushes in random-looking order: many writes overlap later reads, some extents are adjacent.
    fn bio(token: u64) -> Bio<LengthOnly> {
        let memory = LengthOnly::new(4096);
        let extent = |block: u64| Extent::new(Sector(block * 8), 8).unwrap();
        let bio = match token % 8 {
            0 => Bio::write(extent(token * 7 % 50), memory, token),
            1 | 2 => Bio::read(extent((token - token % 8) * 7 % 50), memory, token),
            3 => Bio::write(extent((token - 3) * 7 % 50), memory, token),
            7 if token % 16 == 7 => Bio::flush(token),
            _ => Bio::read(extent(100 + token), memory, token),
        };
        let urgency = Priority::ALL[(token % 3) as usize];
        bio.on_stream(Stream(token as u32 % 4)).with_priority(urgency)
    }

    fn step(&mut self) {
        while let Some(io) = self.queue.poll_dispatch(T0) {
            self.at_device.push_back(io.tag);
        }
        if let Some(tag) = self.at_device.pop_front() {
            self.queue.handle_completion(tag, Ok(()), T0);
        }
        while let Some(done) = self.queue.poll_completion() {
            assert!(done.result.is_ok());
            self.done.push(done.token);
        }
    }

    fn finish(mut self) -> Vec<u64> {
        for _ in 0..4 * BIOS {
            self.step();
        }
        self.done
    }
}

fn check(done: &[u64], what: &str) {
    let mut sorted = done.to_vec();
    sorted.sort_unstable();
    assert!(sorted.into_iter().eq(0..BIOS), "{what}: lost or twice: {done:?}");
    let position = |token| done.iter().position(|done| *done == token).expect("all tokens have completed");
    for late in 0..BIOS {
        for early in 0..late {
            let (a, b) = (Harness::bio(early), Harness::bio(late));
            let has_write = a.op.is_write() || b.op.is_write();
            let overlap = has_write && a.extent.overlaps(b.extent);
            assert!(!overlap || position(early) < position(late), "{what}: {late} overtook {early}");
        }
    }
}

#[test]
fn a_switch_at_any_step_loses_no_request_and_keeps_the_order() {
    for from in every_elevator() {
        for to in every_elevator() {
            for step in (0..BIOS).step_by(3) {
                let mut harness = Harness::new(from.clone());
                for token in 0..BIOS {
                    harness.queue.submit_bio(Harness::bio(token), T0).unwrap();
                    if token == step {
                        harness.queue.set_elevator(&to, T0);
                        assert_eq!(harness.queue.elevator(), to.name());
                    }
                    if token % 3 == 0 {
                        harness.step();
                    }
                }
                check(&harness.finish(), &format!("{from} to {to} at {step}"));
            }
        }
    }
}

#[test]
fn age_survives_a_switch() {
    for from in every_elevator() {
        let limits = Limits::with_capacity(1 << 20);
        let mut queue =
            RequestQueue::new(limits, &QueueConfig { elevator: from.clone(), ..QueueConfig::default() });
        let sectors = [500, 100, 900, 300, 700];
        for (arrival, sector) in sectors.into_iter().enumerate() {
            let extent = Extent::new(Sector(sector), 8).unwrap();
            let now = Instant::from_nanos(arrival as u64);
            queue.submit_bio(Bio::read(extent, LengthOnly::new(4096), 0), now).unwrap();
        }
        queue.set_elevator(&ElevatorSpec::default(), T0);
        let mut order = Vec::new();
        while let Some(io) = queue.poll_dispatch(T0) {
            assert_eq!(io.op, Op::Read);
            order.push(io.extent.start().0);
        }
        assert_eq!(order, sectors, "after {from}");
    }
}
