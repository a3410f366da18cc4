//! The request queue over every elevator, the stripe, and the harness: bios at any position on devices of any size.

use super::{EDGES, edges_u32, pairs};
use iopath_core::elevator::{ELEVATORS, ElevatorError, ElevatorSpec, Harness, Outline};
use iopath_core::{
    Bio, BlockDevice, Busy, Completion, Extent, Instant, Io, LengthOnly, Limits, Memory, Op, Priority,
    QueueConfig, RequestQueue, Sector, Stream, Stripe, StripeConfig, SubmitError,
};
use std::collections::VecDeque;

/// A device that completes all requests at once.
struct Instantaneous {
    limits: Limits,
    over: VecDeque<Completion>,
}

impl BlockDevice for Instantaneous {
    type Memory = LengthOnly;

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn submit(&mut self, io: &Io<'_, LengthOnly>, _: Instant) -> Result<(), Busy> {
        let bytes: u64 = io.segments().map(|segment| segment.bytes()).sum();
        assert!(bytes == io.extent.bytes() || !io.op.has_memory());
        assert!(io.extent.end().0 <= self.limits.capacity);
        self.over.push_back(Completion { tag: io.tag, result: Ok(()) });
        Ok(())
    }

    fn commit(&mut self, _: Instant) {}

    fn poll_completion(&mut self, _: Instant) -> Option<Completion> {
        self.over.pop_front()
    }
}

fn instantaneous(limits: Limits) -> Instantaneous {
    Instantaneous { limits, over: VecDeque::new() }
}

fn limits(capacity: u64, bytes_max: u64) -> Limits {
    Limits {
        request_bytes_max: bytes_max,
        discard_bytes_max: bytes_max,
        write_zeroes_bytes_max: bytes_max,
        volatile_cache: true,
        ..Limits::with_capacity(capacity)
    }
}

/// Every extent that begins and ends at an edge, and short ones at edges.
fn extents() -> impl Iterator<Item = Extent> {
    let lengths = |start| EDGES.into_iter().filter_map(move |sectors| Extent::new(Sector(start), sectors));
    EDGES.into_iter().flat_map(lengths)
}

fn bio(op: Op, extent: Extent, token: u64) -> Bio<LengthOnly> {
    let memory = op.has_memory().then(|| LengthOnly::new(extent.bytes()));
    Bio { op, memory, ..Bio::discard(extent, token) }
}

/// Submits a bio; returns whether it was accepted. A refused one must be out of range.
fn submit(queue: &mut RequestQueue<LengthOnly>, bio: Bio<LengthOnly>, now: Instant) -> bool {
    let capacity = queue.limits().capacity;
    match queue.submit_bio(bio, now) {
        Ok(()) => {
            assert!(bio.extent.end().0 <= capacity && !bio.extent.is_empty());
            true
        }
        Err(SubmitError::OutOfRange { bio, .. }) => {
            assert!(bio.extent.end().0 > capacity || bio.extent.is_empty());
            false
        }
        Err(other) => panic!("{other}"),
    }
}

/// Executes all queued requests.
fn drain(queue: &mut RequestQueue<LengthOnly>, device: &mut Instantaneous, now: Instant) {
    while let Some(io) = queue.poll_dispatch(now) {
        device.submit(&io, now).unwrap();
        let over = device.poll_completion(now).unwrap();
        queue.handle_completion(over.tag, over.result, now);
    }
    while let Some(done) = queue.poll_completion() {
        assert_eq!(done.result, Ok(()));
    }
    assert_eq!(queue.bios_in(), 0);
}

#[test]
fn bios_at_any_position_are_executed_or_refused_over_every_elevator() {
    for kind in ELEVATORS {
        for capacity in [1, 1 << 55, Sector::MAX.0, u64::MAX] {
            let config = QueueConfig { elevator: ElevatorSpec::new(*kind), ..QueueConfig::default() };
            // The highest size limit, so that no bio is split.
            let mut queue = RequestQueue::new(limits(capacity, u64::MAX), &config);
            let mut device = instantaneous(queue.limits().clone());
            let mut number = 0;
            let mut taken = 0;
            for nanos in [0, u64::MAX] {
                let now = Instant::from_nanos(nanos);
                for (extent, op) in
                    extents().flat_map(|e| [Op::Read, Op::Write, Op::Discard].map(|op| (e, op)))
                {
                    number += 1;
                    queue.plug();
                    let stream = Stream((number as u32).wrapping_mul(0x9E37_79B9));
                    taken += u64::from(submit(&mut queue, bio(op, extent, number).on_stream(stream), now));
                    queue.unplug(now);
                    if number % 16 == 0 {
                        drain(&mut queue, &mut device, now);
                    }
                }
                drain(&mut queue, &mut device, now);
                queue.handle_timeout(now);
                queue.poll_timeout();
            }
            assert!(taken > 0 && queue.stats().bios == taken, "{} at {capacity}", kind.name);
        }
    }
}

#[test]
fn limits_of_any_size_hold() {
    let extent = Extent::new(Sector(Sector::MAX.0 - 64), 64).unwrap();
    for (bytes_max, chunk_sectors) in pairs() {
        let limits = Limits { chunk_sectors, ..limits(u64::MAX, bytes_max) };
        let mut queue = RequestQueue::new(limits, &QueueConfig::default());
        let mut device = instantaneous(queue.limits().clone());
        for op in [Op::Read, Op::Write, Op::Discard, Op::WriteZeroes] {
            match queue.submit_bio(bio(op, extent, 1), Instant::ZERO) {
                Ok(()) => drain(&mut queue, &mut device, Instant::ZERO),
                Err(SubmitError::Unsupported(_)) => assert!(bytes_max < 512, "{op} in {bytes_max} bytes"),
                Err(other) => panic!("{other}"),
            }
        }
        queue.set_capacity(bytes_max);
        submit(&mut queue, bio(Op::Read, extent, 2), Instant::ZERO);
    }
}

#[test]
fn the_size_of_a_queue_is_clamped() {
    let most = u32::MAX;
    for (bios_max, requests_max, depth, plug_requests_max) in
        [(0, 0, 0, 0), (1, 1, most, most), (most, 1, 1, 0), (2, 64, 0, most), (most, most, most, most)]
    {
        let config =
            QueueConfig { bios_max, requests_max, depth, plug_requests_max, ..QueueConfig::default() };
        let mut queue = RequestQueue::new(limits(Sector::MAX.0, 4096), &config);
        let mut device = instantaneous(queue.limits().clone());
        let extent = Extent::new(Sector(0), 64).unwrap();
        assert!(submit(&mut queue, bio(Op::Write, extent, 1), Instant::ZERO));
        drain(&mut queue, &mut device, Instant::ZERO);
    }
}

#[test]
fn tunables_out_of_range_are_refused_and_weights_are_clamped() {
    let edge = Extent::new(Sector(Sector::MAX.0 - 8), 8).unwrap();
    let outline = |stream, op, extent| Outline {
        op,
        extent,
        stream: Stream(stream),
        priority: Priority::Idle,
        segments: u32::MAX,
    };
    for kind in ELEVATORS {
        let spec = ElevatorSpec::new(*kind);
        let names: Vec<_> = spec.tunables().map(|(tunable, _)| tunable).collect();
        for (tunable, value) in names.iter().flat_map(|tunable| EDGES.map(|value| (tunable, value))) {
            match spec.clone().with(tunable.name, value) {
                Ok(set) => {
                    let mut harness = Harness::new(&set, 8);
                    for at in [0, u64::MAX] {
                        let now = Instant::from_nanos(at);
                        harness.insert(&outline(0, Op::Read, edge), now);
                        let _ = harness.merge(&outline(0, Op::Read, edge), now);
                        harness.insert(&outline(u32::MAX, Op::Write, Extent::EMPTY), now);
                        for priority in Priority::ALL {
                            for op in [Op::Read, Op::Write] {
                                for queued in [0, 1, usize::MAX] {
                                    harness.elevator().starvation_bound(op, priority, queued);
                                }
                            }
                        }
                        while harness.dispatch(Instant::from_nanos(u64::MAX)).is_some() {}
                    }
                }
                Err(error) => assert!(matches!(error, ElevatorError::OutOfRange { .. }), "{error}"),
            }
        }
        let mut harness = Harness::new(&spec, 64);
        for weight in edges_u32() {
            harness.insert(&outline(weight, Op::Read, edge), Instant::ZERO);
            harness.elevator().set_weight(Stream(weight), weight);
            harness.elevator().set_weight(Stream(0), weight);
        }
        let dispatched = std::iter::from_fn(|| harness.dispatch(Instant::from_nanos(u64::MAX))).count();
        assert_eq!(dispatched, edges_u32().count(), "{}", kind.name);
    }
}

#[test]
fn members_of_any_size_make_a_stripe_or_an_error() {
    let mut made = 0;
    for (capacity, chunk_sectors) in pairs() {
        for (members, bytes_max) in [(1, u64::MAX), (2, 4096), (3, u64::MAX), (1000, 1 << 20)] {
            // Also a quarter of the capacity, so that some are valid.
            for capacity in [capacity, capacity / 4] {
                let member = || instantaneous(Limits { depth_max: 4, ..limits(capacity, bytes_max) });
                let config = StripeConfig { chunk_sectors, ..StripeConfig::default() };
                let of_members = vec![member().limits; members];
                let Ok(limits) = config.limits(&of_members.iter().collect::<Vec<_>>()) else { continue };
                assert!(limits.capacity <= Sector::MAX.0);
                if made % 16 == 0 {
                    use_ends(Stripe::new((0..members).map(|_| member()).collect(), &config).unwrap());
                }
                made += 1;
            }
        }
    }
    assert!(made > 100, "{made} stripes");
}

/// Reads the first and the last sector of a stripe, and discards the maximum at its end.
fn use_ends(mut stripe: Stripe<Instantaneous>) {
    let (capacity, now) = (stripe.limits().capacity, Instant::ZERO);
    let config = QueueConfig::default();
    let mut queue = RequestQueue::new(stripe.limits().clone(), &config);
    for (op, extent) in [
        (Op::Read, Extent::new(Sector(0), 1)),
        (Op::Write, Extent::new(Sector(capacity - 1), 1)),
        (Op::Discard, Extent::new(Sector(capacity - 1), 1)),
        (Op::Flush, Some(Extent::EMPTY)),
    ] {
        queue.submit_bio(bio(op, extent.unwrap(), 0), now).unwrap();
    }
    loop {
        while let Some(io) = queue.poll_dispatch(now) {
            if let Err(Busy { tag }) = stripe.submit(&io, now) {
                queue.requeue(tag, now);
            }
        }
        stripe.commit(now);
        let Some(over) = stripe.poll_completion(now) else { break };
        queue.handle_completion(over.tag, over.result, now);
    }
    assert_eq!(queue.completions(), 4);
}
