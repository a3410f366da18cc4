//! Findings on properties of the storage that affect its settings, and on anomalies: dips and variation.

use iopath_report::Rw;
use iopath_report::numbers::{digits, time};
use iopath_report::result::{DiskFacts, RunResult};
use iopath_report::size::format_size;

use super::Found;
use crate::survey::compare::{self, Ratio, rate, rates};
use crate::survey::figures::{Figures, mb, name};
use iopath_bench::warnings::CV_MAX;

/// A block size with less than this share of both neighbours' throughput is a dip.
const DIP: f64 = 0.75;

/// The gain of depth 32 that shows command queueing: its mean, and the lower end of its interval. A single rotational
/// disk gains a factor of 2 or 3, because it sorts its own queue.
const GAIN_MIN: f64 = 4.0;
const GAIN_CERTAIN: f64 = 3.0;

/// A seek with rotational delay takes longer than this, in nanoseconds.
const SEEK_MIN_NS: u64 = 1_000_000;

/// A readahead of this many requests of the largest size is more than a stream needs.
const READAHEAD_REQUESTS_MAX: u64 = 8;

pub(super) fn command_queueing<'a>(figures: &Figures<'a>) -> Option<Found<'a>> {
    let disk = figures.facts.disk.as_ref()?;
    let pair = |path| Some((figures.random(path, 1)?, figures.random(path, 32)?));
    let (single, deep) = pair("kernel-uring").or_else(|| pair("iopath-direct"))?;
    let gain = Ratio::of(&rates(deep), &rates(single))?;
    let median_ns = single.latency_ns.p50;
    let headless = disk.rotational == Some(false) || median_ns < SEEK_MIN_NS;
    if gain.mean < GAIN_MIN || !gain.is_above(GAIN_CERTAIN) || !headless {
        return None;
    }
    let advice = match disk.scheduler.as_deref() {
        Some("none") => "the scheduler `none`, which it has, is right".to_owned(),
        Some(other) => {
            format!("`iopath tune {} scheduler=none` saves the CPU time of `{other}`", disk.name)
        }
        None => "use the I/O scheduler (elevator) `none`".to_owned(),
    };
    let text = format!("{} orders its requests itself (command queueing): {advice}.", disk.name);
    let contradiction = if disk.rotational == Some(true) {
        ", less than a seek takes, although sysfs reports the disk as rotational (virtual disks often do)"
    } else {
        ""
    };
    let evidence = format!(
        "{}: random reads at depth 32 have {} times the throughput of depth 1; p50 at depth 1 is {}{contradiction}",
        deep.path,
        digits(gain.mean),
        time(median_ns)
    );
    Some(Found::measured(text, evidence, vec![single, deep]))
}

pub(super) fn readahead<'a>(figures: &Figures<'a>) -> Option<Found<'a>> {
    let DiskFacts { name, read_ahead_kb: Some(ahead), max_sectors_kb: Some(request), .. } =
        figures.facts.disk.as_ref()?
    else {
        return None;
    };
    let change = format!("iopath tune {name} read_ahead_kb={request}");
    let evidence = format!("read_ahead_kb is {ahead}, max_sectors_kb {request}{}", mean_request(figures));
    if ahead < request {
        let text = format!(
            "The kernel's readahead on {name} is {ahead} KiB, less than its largest request: `{change}`. Buffered \
             streams reach the disk in small requests."
        );
        return Some(Found::fact(text, evidence));
    }
    (*ahead >= request * READAHEAD_REQUESTS_MAX).then(|| {
        let text = format!(
            "The kernel's readahead on {name} is {ahead} KiB, {} times its largest request: `{change}`. Each stream \
             uses that much memory, and the disk transfers bytes that no stream reads.",
            ahead / request
        );
        Found::fact(text, evidence)
    })
}

/// The mean request at the disk of a buffered stream in small blocks.
fn mean_request(figures: &Figures) -> String {
    let buffered = figures.of(Rw::Read).into_iter().filter(|run| run.path == "kernel-buffered");
    let smallest = buffered.min_by_key(|run| run.block_bytes);
    let mean = smallest.and_then(|run| Some((run, run.device?.mean_io_bytes()?)));
    mean.map_or_else(String::new, |(run, mean)| {
        format!(
            "; buffered reads of {} became requests of {} KiB on average",
            format_size(run.block_bytes.into()),
            digits(mean / 1024.0)
        )
    })
}

pub(super) fn dip<'a>(figures: &Figures<'a>) -> Option<Found<'a>> {
    let mut dips: Vec<[&RunResult; 3]> = Vec::new();
    for rw in [Rw::Read, Rw::Write] {
        for path in crate::survey::plan::PATHS {
            let mut curve: Vec<&RunResult> =
                figures.of(rw).into_iter().filter(|run| run.path == path).collect();
            curve.sort_by_key(|run| run.block_bytes);
            let threes = curve.windows(3).filter_map(|three| <[&RunResult; 3]>::try_from(three).ok());
            dips.extend(threes.filter(|[before, at, after]| {
                [before, after].into_iter().all(|side| {
                    rate(at) < rate(side) * DIP
                        && Ratio::of(&rates(at), &rates(side)).is_some_and(|ratio| ratio.is_below(1.0))
                })
            }));
        }
    }
    let depth = |[before, at, after]: &[&RunResult; 3]| rate(at) / rate(before).min(rate(after));
    let [before, at, after] = dips.iter().min_by(|a, b| depth(a).total_cmp(&depth(b))).copied()?;
    let others = if dips.len() > 1 { format!(" Further dips: {}.", dips.len() - 1) } else { String::new() };
    let text = format!(
        "Anomaly: {} {} is slower than smaller and larger blocks: {}.{others}",
        name(at),
        if at.rw == Rw::Write.name() { "(write)" } else { "(read)" },
        mb(rate(at)),
    );
    let side = |run: &RunResult| format!("{} with {}", mb(rate(run)), format_size(run.block_bytes.into()));
    let evidence = format!("{} and {}; both differences are significant", side(before), side(after));
    Some(Found::measured(text, evidence, vec![before, at, after]))
}

pub(super) fn variation<'a>(figures: &Figures<'a>) -> Option<Found<'a>> {
    let moving: Vec<&RunResult> = figures.runs.iter().filter(|run| run.path != "null").collect();
    let cv = |run: &RunResult| compare::cv(run).filter(|cv| *cv > CV_MAX);
    let noisy = moving.iter().filter(|run| cv(run).is_some()).count();
    let worst = moving.iter().filter_map(|run| Some((run, cv(run)?)));
    let (run, most) = worst.max_by(|a, b| a.1.total_cmp(&b.1))?;
    let facts = figures.facts;
    let cause = match facts.busy_cpus {
        Some(busy) if facts.is_busy() => {
            format!("other programs kept up to {} of {} CPUs busy", digits(busy), facts.cores)
        }
        Some(_) => "other programs used little CPU, so check the storage and its other users".to_owned(),
        None => "the load by other programs is not known".to_owned(),
    };
    let text = format!(
        "{noisy} of {} measurements are noisy (CV > 10%): {cause}. A longer --time adds repetitions and narrows the \
         intervals.",
        moving.len()
    );
    let evidence =
        format!("highest CV: {:.0}%, {} ({}), median {}", most * 100.0, name(run), run.rw, mb(rate(run)));
    Some(Found::fact(text, evidence))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::survey::figures::Facts;
    use iopath_report::fixtures::run;

    const STEADY: [f64; 4] = [100.0, 101.0, 99.0, 100.0];

    fn steady(times: f64) -> [f64; 4] {
        STEADY.map(|mbs| mbs * times)
    }

    fn disk() -> DiskFacts {
        DiskFacts {
            name: "vda".to_owned(),
            model: None,
            rotational: Some(true),
            logical_block_bytes: Some(512),
            physical_block_bytes: Some(512),
            scheduler: Some("mq-deadline".to_owned()),
            read_ahead_kb: Some(1024),
            max_sectors_kb: Some(1024),
        }
    }

    fn facts(disk: DiskFacts) -> Facts {
        Facts { disk: Some(disk), cores: 2, busy_cpus: Some(0.0), ..Facts::default() }
    }

    fn random(io_depth: u32, mbs: &[f64]) -> RunResult {
        run("kernel-uring", Rw::RandRead, 4096, io_depth, mbs, 1.0)
    }

    #[test]
    fn a_fast_device_that_gains_by_depth_supports_command_queueing() {
        // 40 MB/s of 4 KiB are 100 µs each.
        let runs = [random(1, &steady(0.4)), random(32, &steady(4.0))];
        let Found { text, evidence, .. } =
            command_queueing(&Figures { runs: &runs, facts: &facts(disk()) }).unwrap();
        assert!(text.contains("(command queueing): `iopath tune vda scheduler=none`"), "{text}");
        assert!(text.ends_with("saves the CPU time of `mq-deadline`."), "{text}");
        assert!(evidence.contains("10.0 times") && evidence.contains("although sysfs"), "{evidence}");
        let fit = DiskFacts { scheduler: Some("none".to_owned()), rotational: Some(false), ..disk() };
        let Found { text, evidence, .. } =
            command_queueing(&Figures { runs: &runs, facts: &facts(fit) }).unwrap();
        assert!(
            text.ends_with("the scheduler `none`, which it has, is right.") && !evidence.contains("sysfs"),
            "{text}"
        );
    }

    #[test]
    fn a_small_or_uncertain_gain_or_slow_seeks_do_not_show_command_queueing() {
        let facts = facts(disk());
        let find =
            |runs: &[RunResult]| command_queueing(&Figures { runs, facts: &facts }).map(|found| found.text);
        assert_eq!(find(&[random(1, &steady(0.4)), random(32, &steady(1.0))]), None, "2.5 times");
        assert_eq!(find(&[random(1, &[40.0, 40.0]), random(32, &[100.0, 900.0])]), None, "uncertain");
        // 0.4 MB/s of 4 KiB are 10 ms each: an array of disks with heads.
        assert_eq!(find(&[random(1, &steady(0.004)), random(32, &steady(0.04))]), None);
        assert_eq!(find(&[random(32, &steady(1.0))]), None);
    }

    #[test]
    fn readahead_is_compared_with_the_largest_request() {
        let runs = [run("kernel-buffered", Rw::Read, 4096, 1, &STEADY, 0.3)];
        let find = |ahead, request| {
            let disk = DiskFacts { read_ahead_kb: ahead, max_sectors_kb: request, ..disk() };
            let facts = facts(disk);
            let found = readahead(&Figures { runs: &runs, facts: &facts });
            found.map(|found| (found.text, found.evidence))
        };
        let (text, evidence) = find(Some(128), Some(1280)).unwrap();
        assert!(text.contains("`iopath tune vda read_ahead_kb=1280`"), "{text}");
        assert!(evidence.contains("became requests of"), "{evidence}");
        let (text, _) = find(Some(16_384), Some(1024)).unwrap();
        assert!(text.contains("16 times its largest request"), "{text}");
        assert_eq!(find(Some(2048), Some(1024)), None);
        assert_eq!(find(None, Some(1024)), None);
    }

    #[test]
    fn a_block_size_slower_than_both_neighbours_is_a_dip() {
        let curve = |middle: &[f64]| {
            let point = |block, mbs: &[f64]| run("kernel-buffered", Rw::Read, block, 1, mbs, 0.3);
            vec![point(4 << 20, &steady(9.0)), point(256 << 10, &steady(8.0)), point(1 << 20, middle)]
        };
        let facts = Facts::default();
        let find = |runs: &[RunResult]| {
            let found = dip(&Figures { runs, facts: &facts });
            found.map(|found| (found.text, found.evidence))
        };
        let (text, evidence) = find(&curve(&steady(3.0))).unwrap();
        assert!(text.starts_with("Anomaly: kernel-buffered with blocks of 1 MiB (read) is slower"), "{text}");
        assert_eq!(
            evidence,
            "800 MB/s with 256 KiB and 900 MB/s with 4 MiB; both differences are significant"
        );
        assert_eq!(find(&curve(&steady(7.0))), None, "less than a quarter below");
        assert_eq!(find(&curve(&[300.0, 1200.0, 100.0, 700.0])), None, "not significant");
        assert_eq!(find(&curve(&steady(8.5))), None);
    }

    #[test]
    fn a_high_cv_is_reported_with_its_likely_cause() {
        let runs = [
            run("kernel-direct", Rw::Read, 4096, 1, &[100.0, 150.0, 80.0], 0.3),
            run("kernel-direct", Rw::Read, 8192, 1, &STEADY, 0.3),
        ];
        let Found { text, evidence, .. } =
            variation(&Figures { runs: &runs, facts: &facts(disk()) }).unwrap();
        assert!(
            text.starts_with("1 of 2 measurements are noisy") && text.contains("check the storage"),
            "{text}"
        );
        assert!(
            evidence.contains("33%, kernel-direct with blocks of 4 KiB (read), median 100 MB/s"),
            "{evidence}"
        );
        let busy = Facts { busy_cpus: Some(1.5), ..facts(disk()) };
        let Found { text, .. } = variation(&Figures { runs: &runs, facts: &busy }).unwrap();
        assert!(text.contains("up to 1.50 of 2 CPUs"), "{text}");
        assert_eq!(variation(&Figures { runs: &runs[1..], facts: &busy }), None);
    }
}
