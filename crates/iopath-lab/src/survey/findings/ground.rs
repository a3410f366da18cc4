//! What the figures stand on: whether they are the disk's, what the tool itself costs, and how it does its I/O.

use super::{Figures, is_direct};
use crate::size::format_size;
use crate::survey::compare::{CpuOf, Ratio, median, rates};
use crate::table::digits;
use crate::workload::Rw;

/// A share of the target in the page cache that does not matter.
const CACHED_SHARE_MAX: f64 = 0.01;

/// A disk that read less than this share of what was read past the page cache did not read all of it.
const READ_SHARE_MIN: f64 = 0.90;

/// Something other than the disk answered, or may have.
pub(super) fn cache(figures: &Figures) -> Option<(String, String)> {
    let facts = figures.facts;
    let mut reasons = Vec::new();
    reasons.extend(stayed_cached(figures));
    reasons.extend(read_too_little(figures));
    reasons.extend(facts.unwritten.map(|offset| {
        format!(
            "the file has a hole or an unwritten extent at offset {offset}: reads there do not reach the disk"
        )
    }));
    reasons.extend(
        facts.compressing.as_ref().map(|filesystem| {
            format!("{filesystem} compresses: the disk moves fewer bytes than are counted")
        }),
    );
    reasons.extend(facts.loop_file.as_ref().map(|file| {
        format!("it is a loop device, and {} behind it goes through the page cache", file.display())
    }));
    if reasons.is_empty() {
        return None;
    }
    let text = "Caution: not all of these figures are the disk's; something else answers.".to_owned();
    Some((text, reasons.join("; ")))
}

/// Pages that could not be dropped before a read through the cache.
fn stayed_cached(figures: &Figures) -> Option<String> {
    let buffered = figures.runs.iter().filter(|run| !is_direct(run) && run.rw != Rw::Write.name());
    let repeats = buffered.flat_map(|run| &run.repeats);
    let most = repeats.filter_map(|repeat| repeat.cached_before_bytes).max()?;
    let size = figures.facts.size_bytes;
    (most as f64 > size as f64 * CACHED_SHARE_MAX).then(|| {
        format!(
            "{} of {} stayed in the page cache before buffered reads (mapped, or in use by others)",
            format_size(most),
            format_size(size)
        )
    })
}

fn read_too_little(figures: &Figures) -> Option<String> {
    let direct = figures.runs.iter().filter(|run| is_direct(run) && run.rw != Rw::Write.name());
    let (mut asked, mut read) = (0, 0);
    for run in direct {
        asked += run.bytes;
        read += run.device?.read_bytes;
    }
    ((read as f64) < asked as f64 * READ_SHARE_MIN).then(|| {
        format!(
            "the disk read {} of the {} that were read past the page cache",
            format_size(read),
            format_size(asked)
        )
    })
}

pub(super) fn no_disk(figures: &Figures) -> Option<(String, String)> {
    let reason = figures.facts.no_disk.as_ref()?;
    let text = format!("There is no single disk beneath ({reason}): what reaches it is not seen.");
    Some((text, "neither sysfs nor the mount table names one".to_owned()))
}

/// iopath's queue against the kernel's bare interface, at the same depth.
pub(super) fn iopath_kernel(figures: &Figures) -> Option<(String, String)> {
    let ours = figures.random("iopath-direct", 32)?;
    let kernel = figures.random("kernel-uring", 32)?;
    let cpu = figures.cpu();
    let rate = Ratio::of(&rates(ours), &rates(kernel))?;
    let [low, high] = rate.ci95?;
    let what = "random 4 KiB reads, 32 in flight";
    let prices =
        format!("{} and {} µs of CPU each", digits(cpu.per_io_us(ours)), digits(cpu.per_io_us(kernel)));
    let text = if rate.is_above(1.0) || rate.is_below(1.0) {
        format!(
            "iopath-direct does {} times the IOPS of kernel-uring ({what}), at {prices}.",
            digits(rate.mean)
        )
    } else {
        format!(
            "The IOPS of iopath-direct and kernel-uring ({what}) differ no more than they spread, at {prices}."
        )
    };
    Some((text, format!("ratio of IOPS {} to {} (95%), round by round", digits(low), digits(high))))
}

pub(super) fn tool_cost(figures: &Figures) -> Option<(String, String)> {
    let null = figures.null()?;
    let cost_us = CpuOf::Process.per_io_us(null);
    let iops = median(&null.repeats.iter().map(|repeat| repeat.iops).collect::<Vec<_>>());
    let share = figures.random("iopath-direct", 32).map(|real| cost_us / figures.cpu().per_io_us(real));
    let of_real = share.map_or_else(String::new, |share| {
        format!(", {} % of what a random 4 KiB read through iopath-direct costs", digits(share * 100.0))
    });
    let text = format!("The tool itself costs {} µs of CPU for each transfer{of_real}.", digits(cost_us));
    let evidence = format!(
        "null, the queue with no device behind it: {} million transfers a second on one core",
        digits(iops / 1e6)
    );
    Some((text, evidence))
}

pub(super) fn engine(figures: &Figures) -> Option<(String, String)> {
    let engine = figures.facts.engine.as_ref()?;
    let how = if engine.name == "uring" { "io_uring" } else { engine.name.as_str() };
    let text = match &engine.fallback {
        None => format!("iopath's paths use {how}."),
        Some(fallback) => format!("iopath's paths: {fallback}."),
    };
    Some((text, "what opening the target as a volume gave".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::RunResult;
    use crate::survey::findings::{EngineFacts, Facts};
    use crate::survey::made_up::run;

    const STEADY: [f64; 4] = [100.0, 101.0, 99.0, 100.0];
    const SIZE: u64 = 1 << 30;

    fn facts() -> Facts {
        Facts { size_bytes: SIZE, cores: 2, busy_cpus: Some(0.0), ..Facts::default() }
    }

    fn read(path: &str) -> RunResult {
        run(path, Rw::Read, 1 << 20, 1, &STEADY, 0.3)
    }

    #[test]
    fn a_disk_that_did_all_the_work_gives_no_caution() {
        let runs = [read("kernel-buffered"), read("kernel-direct")];
        assert_eq!(cache(&Figures { runs: &runs, facts: &facts() }), None);
    }

    #[test]
    fn each_thing_that_answers_for_the_disk_is_named() {
        let mut warm = read("kernel-buffered");
        warm.repeats[1].cached_before_bytes = Some(SIZE / 2);
        let mut helped = read("kernel-direct");
        helped.device.as_mut().unwrap().read_bytes = helped.bytes / 2;
        let good = [read("kernel-buffered")];
        let evidence = |runs: &[RunResult], facts: Facts| cache(&Figures { runs, facts: &facts }).unwrap().1;
        assert!(evidence(&[warm], facts()).starts_with("512 MiB of 1 GiB stayed in the page cache"));
        assert!(evidence(&[helped], facts()).contains("that were read past the page cache"));
        let hole = Facts { unwritten: Some(4096), ..facts() };
        assert!(evidence(&good, hole).contains("unwritten extent at offset 4096"));
        let compressing = Facts { compressing: Some("btrfs".to_owned()), ..facts() };
        assert!(evidence(&good, compressing).starts_with("btrfs compresses"));
        let looped = Facts { loop_file: Some("/tmp/image".into()), ..facts() };
        assert!(evidence(&good, looped).contains("/tmp/image behind it"));
    }

    #[test]
    fn a_direct_path_may_leave_pages_where_they_are() {
        let mut direct = read("kernel-direct");
        direct.repeats[0].cached_before_bytes = Some(SIZE);
        assert_eq!(cache(&Figures { runs: &[direct], facts: &facts() }), None);
    }

    #[test]
    fn where_there_is_no_disk_that_is_said() {
        let memory = Facts { no_disk: Some("tmpfs lies in memory".to_owned()), ..facts() };
        let (text, _) = no_disk(&Figures { runs: &[], facts: &memory }).unwrap();
        assert!(text.contains("tmpfs lies in memory"), "{text}");
        assert_eq!(no_disk(&Figures { runs: &[], facts: &facts() }), None);
    }

    #[test]
    fn iopath_is_held_against_the_kernel() {
        let random =
            |path, times: f64| run(path, Rw::RandRead, 4096, 32, &STEADY.map(|mbs| mbs * times), 1.0);
        let find =
            |runs: &[RunResult]| iopath_kernel(&Figures { runs, facts: &facts() }).map(|(text, _)| text);
        let text = find(&[random("iopath-direct", 1.5), random("kernel-uring", 1.0)]).unwrap();
        assert!(text.starts_with("iopath-direct does 1.50 times the IOPS of kernel-uring"), "{text}");
        let mut noisy = random("iopath-direct", 1.0);
        noisy.repeats[0].bytes_per_second *= 1.3;
        let text = find(&[noisy, random("kernel-uring", 1.0)]).unwrap();
        assert!(text.starts_with("The IOPS of iopath-direct and kernel-uring"), "{text}");
        assert_eq!(find(&[random("iopath-direct", 1.0)]), None);
    }

    #[test]
    fn the_tools_cost_is_held_against_a_real_read() {
        let runs = [
            run("null", Rw::RandRead, 4096, 32, &STEADY, 0.01),
            run("iopath-direct", Rw::RandRead, 4096, 32, &STEADY, 1.0),
        ];
        let find = |runs: &[RunResult]| tool_cost(&Figures { runs, facts: &facts() }).map(|(text, _)| text);
        let text = find(&runs).unwrap();
        assert!(text.contains("0.038 µs") && text.contains("1.00 % of what"), "{text}");
        assert!(find(&runs[..1]).unwrap().ends_with("for each transfer."));
        assert_eq!(find(&runs[1..]), None);
    }

    #[test]
    fn the_engine_is_named_and_so_is_why_it_is_not_the_best() {
        let said = |facts: &Facts| engine(&Figures { runs: &[], facts }).map(|(text, _)| text);
        let with = |fallback: Option<&str>| {
            let engine = EngineFacts { name: "threads".to_owned(), fallback: fallback.map(str::to_owned) };
            said(&Facts { engine: Some(engine), ..facts() })
        };
        assert_eq!(with(None).unwrap(), "iopath's paths use threads.");
        assert_eq!(with(Some("seccomp forbids it")).unwrap(), "iopath's paths: seccomp forbids it.");
        assert_eq!(said(&facts()), None);
    }
}
