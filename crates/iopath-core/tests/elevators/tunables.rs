//! Every tunable of every elevator: it is described, has a valid default, and can be read and set while I/O runs.

use super::every_elevator;
use iopath_core::elevator::{ELEVATORS, ElevatorSpec};
use iopath_core::{Bio, Extent, Instant, LengthOnly, Limits, QueueConfig, RequestQueue, Sector};
use std::collections::BTreeSet;

#[test]
fn every_tunable_has_a_name_a_unit_a_description_and_a_valid_default() {
    for kind in ELEVATORS {
        let tunables = kind.tunables();
        let names: BTreeSet<_> = tunables.iter().map(|tunable| tunable.name).collect();
        assert_eq!(names.len(), tunables.len(), "{}: a name twice", kind.name);
        for tunable in tunables {
            let is_snake = tunable.name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
            assert!(is_snake && !tunable.unit.is_empty() && tunable.about.len() > 20, "{tunable}");
            assert!(tunable.range.contains(&tunable.default), "{tunable}");
        }
        let elevator = (kind.build)(1);
        let defaults: Vec<_> = tunables.iter().map(|tunable| tunable.default).collect();
        assert_eq!((elevator.name(), elevator.settings().values()), (kind.name, &*defaults));
    }
}

#[test]
fn every_tunable_can_be_set_while_requests_are_queued() {
    for spec in every_elevator() {
        let tunables = spec.build(1).settings().tunables();
        let config = QueueConfig { elevator: spec, ..QueueConfig::default() };
        let mut queue = RequestQueue::new(Limits::with_capacity(1 << 20), &config);
        for tunable in tunables {
            for value in [*tunable.range.start(), *tunable.range.end(), tunable.default] {
                let extent = Extent::new(Sector(value % 1000), 8).unwrap();
                queue.submit_bio(Bio::read(extent, LengthOnly::new(4096), value), Instant::ZERO).unwrap();
                queue.set_tunable(tunable.name, value).unwrap();
                assert_eq!(queue.tunable(tunable.name).unwrap(), value);
                assert_eq!(queue.elevator_spec().tunable(tunable.name).unwrap(), value);
                while let Some(tag) = queue.poll_dispatch(Instant::ZERO).map(|io| io.tag) {
                    queue.handle_completion(tag, Ok(()), Instant::ZERO);
                }
                assert_eq!(queue.poll_completion().map(|done| done.token), Some(value));
            }
            let refused = queue.set_tunable(tunable.name, tunable.range.end() + 1).unwrap_err().to_string();
            let value = (tunable.range.end() + 1).to_string();
            assert!(refused.contains(tunable.name) && refused.contains(&value), "{refused}");
            assert!(refused.contains(&tunable.range.end().to_string()), "{refused}");
            assert_eq!(queue.tunable(tunable.name).unwrap(), tunable.default);
        }
        let unknown = queue.set_tunable("no_such", 1).unwrap_err().to_string();
        assert!(unknown.contains("no_such"), "{unknown}");
        assert!(tunables.iter().all(|tunable| unknown.contains(tunable.name)), "{unknown}");
    }
}

#[test]
fn settings_in_text_reach_the_elevator_of_a_queue() {
    let elevator: ElevatorSpec = "deadline:read_expire_ms=100,fifo_batch=8".parse().unwrap();
    let config = QueueConfig { elevator, ..QueueConfig::default() };
    let queue = RequestQueue::<LengthOnly>::new(Limits::with_capacity(8), &config);
    assert_eq!(queue.elevator(), "deadline");
    assert_eq!(queue.tunable("read_expire_ms").unwrap(), 100);
    assert_eq!(queue.tunable("fifo_batch").unwrap(), 8);
    assert_eq!(queue.tunable("writes_starved").unwrap(), 2);
}

#[test]
fn applying_a_spec_of_the_same_kind_keeps_the_elevator() {
    // An elevator that kept its head dispatches the one of two queued requests that is above it.
    let order_after = |spec: &ElevatorSpec| {
        let config = QueueConfig { elevator: "two-list".parse().unwrap(), ..QueueConfig::default() };
        let mut queue = RequestQueue::new(Limits::with_capacity(1 << 20), &config);
        let read = |queue: &mut RequestQueue<LengthOnly>, sector| {
            let extent = Extent::new(Sector(sector), 8).unwrap();
            queue.submit_bio(Bio::read(extent, LengthOnly::new(4096), 0), Instant::ZERO).unwrap();
        };
        read(&mut queue, 500);
        assert!(queue.poll_dispatch(Instant::ZERO).is_some());
        read(&mut queue, 100);
        read(&mut queue, 900);
        queue.apply_spec(spec, Instant::ZERO);
        assert_eq!(queue.elevator_spec().to_string(), spec.to_string());
        assert_eq!(queue.elevator(), spec.name());
        let next = queue.poll_dispatch(Instant::ZERO).map(|io| io.extent.start().0);
        next.unwrap()
    };
    assert_eq!(order_after(&"two-list".parse().unwrap()), 900, "the head is kept");
    assert_eq!(order_after(&"ascend".parse().unwrap()), 100, "a new elevator starts at sector 0");
    let spec = ElevatorSpec::default();
    assert!(spec.is_of_kind(&"none".parse().unwrap()) && !spec.is_of_kind(&"ascend".parse().unwrap()));
}
