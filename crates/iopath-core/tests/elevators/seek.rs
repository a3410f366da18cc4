//! The seek distance at the device: a sorted order must shorten it. Drives a whole `RequestQueue` with a depth of 1, so
//! that the elevator alone decides the order.

use super::{read, spec};
use iopath_core::elevator::{ElevatorSpec, Outline};
use iopath_core::{Bio, Instant, LengthOnly, Limits, QueueConfig, RequestQueue, Sector};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

const SEED: u64 = 20_001;
/// A device of 1 TiB.
const CAPACITY: u64 = 1 << 31;
const QUEUED: u64 = 256;
const DISPATCHES: u64 = 16 * 1024;

/// The mean distance in sectors from the end of one request to the start of the next. 256 random reads of 4 KiB are
/// queued; each completion is followed by a new one.
fn mean_seek(elevator: ElevatorSpec) -> f64 {
    let mut rng = ChaCha8Rng::seed_from_u64(SEED);
    let config = QueueConfig {
        bios_max: QUEUED as u32,
        requests_max: QUEUED as u32,
        depth: 1,
        elevator,
        ..QueueConfig::default()
    };
    let mut queue = RequestQueue::new(Limits::with_capacity(CAPACITY), &config);
    let mut submit = |queue: &mut RequestQueue<LengthOnly>| {
        let Outline { extent, .. } = read(rng.random_range(0..CAPACITY / 8) * 8);
        queue.submit_bio(Bio::read(extent, LengthOnly::new(4096), 0), Instant::ZERO).unwrap();
    };
    (0..QUEUED).for_each(|_| submit(&mut queue));
    let (mut head, mut seeks) = (Sector(0), 0.0);
    for _ in 0..DISPATCHES {
        let io = queue.poll_dispatch(Instant::ZERO).expect("requests are queued and none is in flight");
        let (tag, extent) = (io.tag, io.extent);
        seeks += extent.start().0.abs_diff(head.0) as f64;
        head = extent.end();
        queue.handle_completion(tag, Ok(()), Instant::ZERO);
        while queue.poll_completion().is_some() {
            submit(&mut queue);
        }
    }
    seeks / DISPATCHES as f64
}

#[test]
fn sorted_orders_shorten_the_mean_seek_at_least_five_times() {
    let unsorted = mean_seek(spec("none"));
    // Random positions are a third of the device apart on average.
    assert!((0.32..0.35).contains(&(unsorted / CAPACITY as f64)), "seed {SEED}: {unsorted} sectors");
    for name in ["closest", "ascend"] {
        let sorted = mean_seek(spec(name));
        let ratio = unsorted / sorted;
        println!("{name}: mean seek {sorted:.0} sectors, {unsorted:.0} with none: 1/{ratio:.1}");
        assert!(ratio >= 5.0, "{name}, seed {SEED}: {sorted:.0} of {unsorted:.0} sectors, 1/{ratio:.1}");
    }
}
