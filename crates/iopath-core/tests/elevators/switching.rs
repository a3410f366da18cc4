//! Elevators exchanged under a queue in use, in every pair and at every moment: nothing lost, overlapping bios
//! in order, flushes behind what they cover.

use crate::every_elevator;
use iopath_core::elevator::ElevatorSpec;
use iopath_core::{
    Bio, Extent, Instant, LengthOnly, Limits, Op, Priority, QueueConfig, RequestQueue, Sector, Stream, Tag,
};
use std::collections::VecDeque;

const BIOS: u64 = 64;
const T0: Instant = Instant::ZERO;

/// A queue and the device it is in front of, which takes 4 requests and completes the oldest.
struct Path {
    queue: RequestQueue<LengthOnly>,
    at_device: VecDeque<Tag>,
    /// Tokens in the order they completed.
    done: Vec<u64>,
}

impl Path {
    fn new(elevator: ElevatorSpec) -> Self {
        let limits =
            Limits { volatile_cache: true, request_bytes_max: 32 << 9, ..Limits::with_capacity(1 << 20) };
        let config = QueueConfig { depth: 4, requests_max: 32, elevator, ..QueueConfig::default() };
        Self { queue: RequestQueue::new(limits, &config), at_device: VecDeque::new(), done: Vec::new() }
    }

    /// Every third bio writes where the next but one reads; some touch, some flush, all in disorder.
    fn bio(token: u64) -> Bio<LengthOnly> {
        let memory = LengthOnly::new(4096);
        let extent = |place: u64| Extent::new(Sector(place * 8), 8).unwrap();
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
    let place = |token| done.iter().position(|done| *done == token).expect("all are there");
    for late in 0..BIOS {
        for early in 0..late {
            let (a, b) = (Path::bio(early), Path::bio(late));
            let in_the_way = a.op.is_write() || b.op.is_write();
            let overlap = in_the_way && a.extent.overlaps(b.extent);
            assert!(!overlap || place(early) < place(late), "{what}: {late} overtook {early}");
        }
    }
}

#[test]
fn a_switch_at_any_moment_loses_and_reorders_nothing() {
    for from in every_elevator() {
        for to in every_elevator() {
            for moment in (0..BIOS).step_by(3) {
                let mut path = Path::new(from.clone());
                for token in 0..BIOS {
                    path.queue.submit_bio(Path::bio(token), T0).unwrap();
                    if token == moment {
                        path.queue.set_elevator(&to, T0);
                        assert_eq!(path.queue.elevator(), to.name());
                    }
                    if token % 3 == 0 {
                        path.step();
                    }
                }
                check(&path.finish(), &format!("{from} to {to} at {moment}"));
            }
        }
    }
}

#[test]
fn what_waited_longest_is_still_the_oldest_after_a_switch() {
    for from in every_elevator() {
        let limits = Limits::with_capacity(1 << 20);
        let mut queue =
            RequestQueue::new(limits, &QueueConfig { elevator: from.clone(), ..QueueConfig::default() });
        let places = [500, 100, 900, 300, 700];
        for (arrival, place) in places.into_iter().enumerate() {
            let extent = Extent::new(Sector(place), 8).unwrap();
            let now = Instant::from_nanos(arrival as u64);
            queue.submit_bio(Bio::read(extent, LengthOnly::new(4096), 0), now).unwrap();
        }
        queue.set_elevator(&ElevatorSpec::default(), T0);
        let mut order = Vec::new();
        while let Some(io) = queue.poll_dispatch(T0) {
            assert_eq!(io.op, Op::Read);
            order.push(io.extent.start().0);
        }
        assert_eq!(order, places, "after {from}");
    }
}
