//! What is odd about the storage, or wrongly set.

use super::{Figures, mb, name};
use crate::result::{DiskFacts, RunResult};
use crate::size::format_size;
use crate::survey::compare::{self, Ratio, rate, rates};
use crate::table::{digits, time};
use crate::workload::Rw;

/// A block size this far below both of its neighbours is a dip.
const DIP: f64 = 0.75;

/// Repeats further apart than this (standard deviation over mean) are odd.
const SPREAD_MAX: f64 = 0.10;

/// What many reads in flight gain at least on a device that works on many at once, and for certain. A single disk
/// with heads gains 2 or 3 by sorting its own queue.
const GAIN_MIN: f64 = 4.0;
const GAIN_CERTAIN: f64 = 3.0;

/// A head takes longer than this to move and wait for the platter, in nanoseconds.
const SEEK_MIN_NS: u64 = 1_000_000;

/// A readahead of so many requests of the largest size is far more than a stream needs.
const READAHEAD_REQUESTS_MAX: u64 = 8;

pub(super) fn device_orders(figures: &Figures) -> Option<(String, String)> {
    let disk = figures.facts.disk.as_ref()?;
    let pair = |path| Some((figures.random(path, 1)?, figures.random(path, 32)?));
    let (single, deep) = pair("kernel-uring").or_else(|| pair("iopath-direct"))?;
    let gain = Ratio::of(&rates(deep), &rates(single))?;
    let median_ns = single.latency_ns.p50;
    let headless = disk.rotational == Some(false) || median_ns < SEEK_MIN_NS;
    if gain.mean < GAIN_MIN || !gain.is_above(GAIN_CERTAIN) || !headless {
        return None;
    }
    let scheduler = match disk.scheduler.as_deref() {
        Some("none") => " The kernel's is `none`, too.".to_owned(),
        Some(other) => format!(
            " The kernel's is `{other}`; to spare its work: echo none > /sys/block/{}/queue/scheduler",
            disk.name.replace('/', "!")
        ),
        None => String::new(),
    };
    let text = format!(
        "{} works on many requests at once and orders them itself: the elevator `none` is right.{scheduler}",
        disk.name
    );
    let contradiction = if disk.rotational == Some(true) {
        ", so no head moves although sysfs calls it rotational (virtual disks often say so)"
    } else {
        ""
    };
    let evidence = format!(
        "{}: 32 random reads in flight do {} times what one at a time does; half of the single reads take no longer \
         than {}{contradiction}",
        deep.path,
        digits(gain.mean),
        time(median_ns)
    );
    Some((text, evidence))
}

pub(super) fn readahead(figures: &Figures) -> Option<(String, String)> {
    let DiskFacts { name, read_ahead_kb: Some(ahead), max_sectors_kb: Some(request), .. } =
        figures.facts.disk.as_ref()?
    else {
        return None;
    };
    let setting = format!("/sys/block/{}/queue/read_ahead_kb", name.replace('/', "!"));
    let evidence = format!("read_ahead_kb is {ahead}, max_sectors_kb {request}{}", mean_request(figures));
    if ahead < request {
        let text = format!(
            "The kernel reads {ahead} KiB ahead on {name}, less than the {request} KiB of its largest request: \
             buffered streams reach the disk in smaller requests than it takes. To try: echo {request} > {setting}"
        );
        return Some((text, evidence));
    }
    (*ahead >= request * READAHEAD_REQUESTS_MAX).then(|| {
        let text = format!(
            "The kernel reads {ahead} KiB ahead on {name}, {} times its largest request: each stream holds that much \
             memory, and what it leaves unread was read in vain. To change: {setting}",
            ahead / request
        );
        (text, evidence)
    })
}

/// What the disk saw of a buffered stream in small blocks.
fn mean_request(figures: &Figures) -> String {
    let buffered = figures.of(Rw::Read).into_iter().filter(|run| run.path == "kernel-buffered");
    let smallest = buffered.min_by_key(|run| run.block_bytes);
    let mean = smallest.and_then(|run| Some((run, run.device?.mean_io_bytes()?)));
    mean.map_or_else(String::new, |(run, mean)| {
        format!(
            "; buffered reads of {} reached it as {} KiB on average",
            format_size(run.block_bytes.into()),
            digits(mean / 1024.0)
        )
    })
}

pub(super) fn dip(figures: &Figures) -> Option<(String, String)> {
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
    let others =
        if dips.len() > 1 { format!(" There are {} more dips.", dips.len() - 1) } else { String::new() };
    let text = format!(
        "Odd: {} {} is slower than with smaller and with larger blocks: {}.{others}",
        name(at),
        if at.rw == Rw::Write.name() { "(writes)" } else { "(reads)" },
        mb(rate(at)),
    );
    let side = |run: &RunResult| format!("{} with {}", mb(rate(run)), format_size(run.block_bytes.into()));
    Some((text, format!("{} and {}, beyond the spread of each", side(before), side(after))))
}

pub(super) fn spread(figures: &Figures) -> Option<(String, String)> {
    let moving: Vec<&RunResult> = figures.runs.iter().filter(|run| run.path != "null").collect();
    let apart = |run: &RunResult| compare::spread(run).filter(|spread| *spread > SPREAD_MAX);
    let noisy = moving.iter().filter(|run| apart(run).is_some()).count();
    let worst = moving.iter().filter_map(|run| Some((run, apart(run)?)));
    let (run, most) = worst.max_by(|a, b| a.1.total_cmp(&b.1))?;
    let facts = figures.facts;
    let cause = match facts.busy_cpus {
        Some(busy) if facts.is_busy() => {
            format!("other programs kept up to {} of {} CPUs busy meanwhile", digits(busy), facts.cores)
        }
        Some(_) => "no other program used the CPUs much, so look at the storage and who shares it".to_owned(),
        None => "whether others used the machine is not known".to_owned(),
    };
    let text = format!(
        "Noisy: {noisy} of {} measurements spread more than 10% (standard deviation over mean): {cause}. More repeats \
         narrow it: --time.",
        moving.len()
    );
    let evidence =
        format!("worst: {} ({}), {:.0}%, median {}", name(run), run.rw, most * 100.0, mb(rate(run)));
    Some((text, evidence))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::survey::findings::Facts;
    use crate::survey::made_up::run;

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
    fn a_fast_device_that_gains_by_depth_orders_requests_itself() {
        // 40 MB/s of 4 KiB are 100 µs each.
        let runs = [random(1, &steady(0.4)), random(32, &steady(4.0))];
        let (text, evidence) = device_orders(&Figures { runs: &runs, facts: &facts(disk()) }).unwrap();
        assert!(text.contains("`none` is right. The kernel's is `mq-deadline`"), "{text}");
        assert!(text.ends_with("echo none > /sys/block/vda/queue/scheduler"), "{text}");
        assert!(evidence.contains("10.0 times") && evidence.contains("although sysfs"), "{evidence}");
        let fit = DiskFacts { scheduler: Some("none".to_owned()), rotational: Some(false), ..disk() };
        let (text, evidence) = device_orders(&Figures { runs: &runs, facts: &facts(fit) }).unwrap();
        assert!(text.ends_with("The kernel's is `none`, too.") && !evidence.contains("sysfs"), "{text}");
    }

    #[test]
    fn little_gain_an_uncertain_one_or_a_moving_head_show_nothing() {
        let facts = facts(disk());
        let find = |runs: &[RunResult]| device_orders(&Figures { runs, facts: &facts });
        assert_eq!(find(&[random(1, &steady(0.4)), random(32, &steady(1.0))]), None, "2.5 times");
        assert_eq!(find(&[random(1, &[40.0, 40.0]), random(32, &[100.0, 900.0])]), None, "uncertain");
        // 0.4 MB/s of 4 KiB are 10 ms each: an array of disks with heads.
        assert_eq!(find(&[random(1, &steady(0.004)), random(32, &steady(0.04))]), None);
        assert_eq!(find(&[random(32, &steady(1.0))]), None);
    }

    #[test]
    fn readahead_is_held_against_the_largest_request() {
        let runs = [run("kernel-buffered", Rw::Read, 4096, 1, &STEADY, 0.3)];
        let find = |ahead, request| {
            let disk = DiskFacts { read_ahead_kb: ahead, max_sectors_kb: request, ..disk() };
            readahead(&Figures { runs: &runs, facts: &facts(disk) })
        };
        let (text, evidence) = find(Some(128), Some(1280)).unwrap();
        assert!(text.contains("less than the 1280 KiB") && text.contains("echo 1280 >"), "{text}");
        assert!(evidence.contains("reached it as"), "{evidence}");
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
        let find = |runs: &[RunResult]| dip(&Figures { runs, facts: &Facts::default() });
        let (text, evidence) = find(&curve(&steady(3.0))).unwrap();
        assert!(text.starts_with("Odd: kernel-buffered with blocks of 1 MiB (reads) is slower"), "{text}");
        assert_eq!(evidence, "800 MB/s with 256 KiB and 900 MB/s with 4 MiB, beyond the spread of each");
        assert_eq!(find(&curve(&steady(7.0))), None, "less than a quarter below");
        assert_eq!(find(&curve(&[300.0, 1200.0, 100.0, 700.0])), None, "within the spread");
        assert_eq!(find(&curve(&steady(8.5))), None);
    }

    #[test]
    fn a_wide_spread_is_named_with_whoever_may_be_the_cause() {
        let runs = [
            run("kernel-direct", Rw::Read, 4096, 1, &[100.0, 150.0, 80.0], 0.3),
            run("kernel-direct", Rw::Read, 8192, 1, &STEADY, 0.3),
        ];
        let (text, evidence) = spread(&Figures { runs: &runs, facts: &facts(disk()) }).unwrap();
        assert!(text.starts_with("Noisy: 1 of 2") && text.contains("look at the storage"), "{text}");
        assert!(evidence.contains("blocks of 4 KiB (read), 33%, median 100 MB/s"), "{evidence}");
        let busy = Facts { busy_cpus: Some(1.5), ..facts(disk()) };
        let (text, _) = spread(&Figures { runs: &runs, facts: &busy }).unwrap();
        assert!(text.contains("up to 1.50 of 2 CPUs"), "{text}");
        assert_eq!(spread(&Figures { runs: &runs[1..], facts: &busy }), None);
    }
}
