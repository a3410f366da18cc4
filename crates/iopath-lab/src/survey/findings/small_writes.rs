//! Recommends paths and depths for random writes, for writes that must be durable, and for a mix of random reads and
//! writes.

use iopath_report::Rw;
use iopath_report::numbers::{digits, time};
use iopath_report::result::RunResult;

use super::Found;
use super::advice::{depth_advice, once};
use crate::survey::cell::MIXED_READS;
use crate::survey::compare::{Choice, iops};
use crate::survey::figures::Figures;

pub(super) fn random_write<'a>(figures: &Figures<'a>) -> Option<Found<'a>> {
    depth_advice(figures, Rw::RandWrite, "Random writes of 4 KiB, flush included")
}

/// Writes with a flush after each: the commits of a log.
pub(super) fn durable_write<'a>(figures: &Figures<'a>) -> Option<Found<'a>> {
    let choice = Choice::of(&figures.durable(), figures.cpu())?;
    let Choice { chosen, fastest, slowest, .. } = choice;
    let flush = &chosen.flushes.as_ref()?.latency_ns;
    let text = format!(
        "Durable writes of 4 KiB (fsync after each): use {}: {} writes per second, fsync p50 {}, p99 {}. A log commits at \
         most this often, unless one flush covers several commits.{}",
        chosen.path,
        digits(iops(chosen)),
        time(flush.p50),
        time(flush.p99),
        once(chosen)
    );
    let side = |run: &RunResult| format!("{}, {} writes per second", run.path, digits(iops(run)));
    let evidence = format!("fastest: {}; slowest: {}", side(fastest), side(slowest));
    Some(Found::measured(text, evidence, pair(chosen, fastest)))
}

/// Random reads and writes at the same time.
pub(super) fn mixed<'a>(figures: &Figures<'a>) -> Option<Found<'a>> {
    let choice = Choice::of(&figures.of(Rw::RandRw), figures.cpu())?;
    let (chosen, fastest) = (choice.shallowest(figures.cpu()), choice.fastest);
    let alone = figures.random(&chosen.path, chosen.io_depth);
    let reads = chosen.directions.as_ref().map(|directions| &directions.read.latency_ns);
    let effect = reads.map_or_else(String::new, |reads| {
        let alone = alone.map_or_else(String::new, |run| {
            format!("; random reads alone have {} and {}", time(run.latency_ns.p50), time(run.latency_ns.p99))
        });
        format!(" Its reads have p50 {} and p99 {}{alone}.", time(reads.p50), time(reads.p99))
    });
    let text = format!(
        "{MIXED_READS}% reads and {}% writes of 4 KiB at random: use {} at depth {}: {} IOPS.{effect}{}",
        100 - MIXED_READS,
        chosen.path,
        chosen.io_depth,
        digits(iops(chosen)),
        once(chosen)
    );
    let evidence =
        format!("fastest: {} at depth {}, {} IOPS", fastest.path, fastest.io_depth, digits(iops(fastest)));
    let mut runs = pair(chosen, fastest);
    runs.extend(alone.filter(|_| reads.is_some()));
    Some(Found::measured(text, evidence, runs))
}

/// The measurements behind a recommendation.
fn pair<'a>(chosen: &'a RunResult, fastest: &'a RunResult) -> Vec<&'a RunResult> {
    if std::ptr::eq(chosen, fastest) { vec![chosen] } else { vec![chosen, fastest] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::survey::figures::Facts;
    use iopath_report::fixtures::{run, with_flushes};
    use iopath_report::result::{DirectionResult, Directions, Latency, ServedBy};

    const STEADY: [f64; 4] = [1.0, 1.01, 0.99, 1.0];

    fn facts() -> Facts {
        Facts { cores: 2, busy_cpus: Some(0.0), ..Facts::default() }
    }

    fn durable(path: &str, times: f64) -> RunResult {
        with_flushes(run(path, Rw::Write, 4096, 1, &STEADY.map(|mbs| mbs * times), 1.0))
    }

    #[test]
    fn durable_writes_are_not_sequential_writes_and_have_a_recommendation_of_their_own() {
        let runs = [durable("kernel-buffered", 2.0), durable("kernel-direct", 4.0)];
        let (facts, runs) = (facts(), &runs);
        let figures = Figures { runs, facts: &facts };
        assert_eq!(figures.of(Rw::Write), Vec::<&RunResult>::new());
        let found = durable_write(&figures).unwrap();
        assert!(found.text.contains("use kernel-direct: 977 writes per second, fsync p50"), "{}", found.text);
        assert_eq!(found.runs, [&runs[1]]);
        let cached = [RunResult { served_by: Some(ServedBy::Memory), ..durable("kernel-buffered", 9.0) }];
        assert_eq!(durable_write(&Figures { runs: &cached, facts: &facts }), None);
    }

    #[test]
    fn the_reads_of_the_mix_are_compared_with_reads_alone() {
        let latency = |ns| Latency { min: ns, mean: ns as f64, p50: ns, p90: ns, p99: ns, p999: ns, max: ns };
        let mut mix = run("kernel-uring", Rw::RandRw, 4096, 32, &STEADY, 1.0);
        let direction = |ns| DirectionResult {
            bytes: 1,
            ios: 1,
            bytes_per_second: mix.bytes_per_second,
            iops: mix.iops,
            latency_ns: latency(ns),
            latency_distribution: None,
            submissions: None,
        };
        mix.directions = Some(Directions { read: direction(500_000), write: direction(700_000), trim: None });
        let mut alone = run("kernel-uring", Rw::RandRead, 4096, 32, &STEADY, 1.0);
        alone.latency_ns = latency(100_000);
        let (facts, runs) = (facts(), [mix, alone]);
        let found = mixed(&Figures { runs: &runs, facts: &facts }).unwrap();
        assert!(found.text.contains("p99 500 µs; random reads alone have 100 µs"), "{}", found.text);
        assert_eq!(found.runs.len(), 2);
        assert_eq!(mixed(&Figures { runs: &runs[1..], facts: &facts }), None);
    }

    #[test]
    fn random_writes_have_the_form_of_random_reads() {
        let runs = [
            run("kernel-direct", Rw::RandWrite, 4096, 1, &STEADY, 1.0),
            run("kernel-uring", Rw::RandWrite, 4096, 32, &STEADY.map(|mbs| mbs * 8.0), 1.0),
        ];
        let text = random_write(&Figures { runs: &runs, facts: &facts() }).unwrap().text;
        assert!(
            text.starts_with("Random writes of 4 KiB, flush included: use kernel-uring at depth 32"),
            "{text}"
        );
    }
}
