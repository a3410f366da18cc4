//! Conformance of each kind of fault: every row of `FAULTS`, over a disk with bytes. The unit tests of the device with
//! faults are in `src/block/fault/tests.rs`.

#[path = "mapped/disk.rs"]
mod disk;
mod rig;

use iopath_core::{Damage, Duration, Extent, FAULTS, Fault, FaultKind, Instant, Op, Sector};
use rig::{Rig, SECTORS};

const SEEDS: u64 = 20;

fn extent(start: u64, sectors: u64) -> Extent {
    Extent::new(Sector(start), sectors).unwrap()
}

/// Executes a mix of requests under the fault of `kind`, and ends the faults if requests remain.
fn run(kind: &FaultKind, seed: u64, rule: impl Fn(Fault) -> Fault) -> Rig {
    let mut rig = Rig::new(seed);
    rig.plan.borrow_mut().add(rule((kind.make)()));
    rig.submit_mix(seed);
    rig.run_until_idle();
    rig.plan.borrow_mut().stop();
    rig.run_until_idle();
    rig
}

#[test]
fn each_kind_has_a_name_and_is_injected() {
    for (index, kind) in FAULTS.iter().enumerate() {
        assert!(!kind.name.is_empty() && !kind.about.is_empty());
        assert!(FAULTS[..index].iter().all(|other| other.name != kind.name), "{} is listed twice", kind.name);
        let injected: u64 = (0..SEEDS).map(|seed| run(kind, seed, |fault| fault).injected()).sum();
        assert!(injected > SEEDS, "{}: {injected} faults in {SEEDS} runs", kind.name);
    }
}

#[test]
fn each_request_completes_once_when_faults_have_stopped() {
    for kind in FAULTS {
        for seed in 0..SEEDS {
            let rig = run(kind, seed, |fault| fault.one_in(2));
            assert_eq!(rig.in_flight(), 0, "{}, seed {seed}", kind.name);
            assert_eq!(rig.results.len(), rig.submitted, "{}, seed {seed}", kind.name);
            let errors = rig.results.values().filter(|result| result.is_err()).count();
            assert!(errors == 0 || kind.name == "error", "{}, seed {seed}: {errors} errors", kind.name);
        }
    }
}

#[test]
fn a_seed_fixes_results_bytes_and_times() {
    for kind in FAULTS {
        let life = |seed| {
            let rig = run(kind, seed, |fault| fault.one_in(2));
            (rig.results.clone(), rig.times.clone(), rig.medium(), rig.damage())
        };
        assert_eq!(life(3), life(3), "{}", kind.name);
    }
}

#[test]
fn a_rule_gives_no_more_faults_than_its_count() {
    for kind in FAULTS {
        for seed in 0..SEEDS {
            assert!(run(kind, seed, |fault| fault.times(2)).injected() <= 2, "{}, seed {seed}", kind.name);
        }
    }
}

#[test]
fn a_rule_with_an_extent_or_an_operation_spares_all_other_requests() {
    let within = extent(64, 8);
    for kind in FAULTS {
        for seed in 0..SEEDS {
            let rig = run(kind, seed, |fault| fault.within(within));
            for (request, result) in &rig.results {
                assert!(result.is_ok() || rig.extents[request].overlaps(within), "{}", kind.name);
            }
            assert_eq!(run(kind, seed, |fault| fault.on(Op::Discard)).injected(), 0, "{}", kind.name);
        }
    }
}

#[test]
fn damage_covers_every_wrong_byte_and_only_silent_faults_cause_it() {
    for kind in FAULTS {
        let mut wrong_bytes = 0;
        for seed in 0..SEEDS {
            let rig = run(kind, seed, |fault| fault.one_in(2));
            let damage = rig.damage();
            assert!(kind.is_silent || damage.is_empty(), "{}: {damage:?}", kind.name);
            let medium = rig.medium();
            for (sector, expected) in rig.expected().iter().enumerate() {
                let found = &medium[sector * 512..][..512];
                if expected.iter().any(|value| found.iter().all(|byte| byte == value)) {
                    continue;
                }
                wrong_bytes += 1;
                let covered = damage.iter().any(|damage| match damage {
                    Damage::NotWritten(extent) | Damage::Overwritten(extent) => {
                        extent.overlaps(self::extent(sector as u64, 1))
                    }
                    Damage::BitFlipped { offset, .. } => offset / 512 == sector as u64,
                });
                assert!(covered, "{}, seed {seed}: sector {sector}", kind.name);
            }
        }
        assert_eq!(kind.is_silent, wrong_bytes > 0, "{}: {wrong_bytes} wrong sectors", kind.name);
    }
}

#[test]
fn a_delay_ends_by_itself_within_its_bound() {
    let mut rig = Rig::new(5);
    rig.plan.borrow_mut().add(Fault::delay(Duration::from_millis(50)));
    rig.submit_mix(5);
    rig.run_until_idle();
    assert_eq!(rig.in_flight(), 0);
    let last = rig.times.iter().max().unwrap();
    assert!(*last > Instant::ZERO + Duration::from_millis(5), "{last:?}");
    assert!(*last < Instant::ZERO + Duration::from_millis(60), "{last:?}");
}

#[test]
fn stuck_requests_wait_for_a_release_and_others_pass_them() {
    let mut rig = Rig::new(6);
    rig.plan.borrow_mut().add(Fault::stuck().on(Op::Write));
    rig.submit_mix(6);
    rig.run_until_idle();
    assert!(rig.in_flight() > 0 && rig.in_flight() < rig.submitted);
    assert_eq!(rig.poll_timeout(), None, "no time ends the wait");
    rig.plan.borrow_mut().clear();
    rig.run_until_idle();
    assert!(rig.in_flight() > 0, "removed rules do not release requests");
    rig.plan.borrow_mut().release();
    assert!(rig.poll_timeout().is_some(), "a release is due at once");
    rig.run_until_idle();
    assert_eq!(rig.in_flight(), 0);
}

#[test]
fn a_torn_write_leaves_a_part_old_and_a_part_new() {
    for seed in 0..SEEDS {
        let mut rig = Rig::new(seed);
        rig.plan.borrow_mut().add(Fault::torn_write().times(1));
        rig.write(extent(8, 8), 7);
        rig.run_until_idle();
        let medium = rig.medium();
        let new = (8..16).filter(|sector| medium[sector * 512] == 7).count();
        assert!((1..8).contains(&new), "seed {seed}: {new} of 8 sectors");
        assert!(rig.results.values().all(Result::is_ok));
    }
}

#[test]
fn a_misdirected_write_lands_elsewhere_and_later_requests_there_wait_for_it() {
    let mut places = Vec::new();
    for seed in 0..SEEDS {
        let mut rig = Rig::new(seed);
        rig.plan.borrow_mut().add(Fault::misdirected_write().times(1));
        rig.write(extent(8, 8), 7);
        let [Damage::NotWritten(from), Damage::Overwritten(place)] = rig.damage()[..] else {
            panic!("{:?}", rig.damage())
        };
        assert_eq!(from, extent(8, 8));
        // Submitted while the misdirected write is in flight, and completed after it.
        rig.write(place, 9);
        rig.run_until_idle();
        let medium = rig.medium();
        assert!(medium[place.offset() as usize..][..place.bytes() as usize].iter().all(|byte| *byte == 9));
        assert!(medium[from.offset() as usize..][..from.bytes() as usize].iter().all(|byte| *byte != 7));
        places.push(place.start());
    }
    places.dedup();
    assert!(places.len() > 10 && places.iter().all(|place| place.0 + 8 <= SECTORS));
}
