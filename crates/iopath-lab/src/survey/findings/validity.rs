//! Findings on the validity of the figures: whether storage served the runs, the cost of the tool itself, and the
//! engine.

use std::path::Path;

use iopath_report::Rw;
use iopath_report::numbers::digits;
use iopath_report::result::{RunResult, ServedBy};
use iopath_report::size::format_size;

use super::Found;
use crate::survey::compare::{CpuOf, Outcome, Ratio, iops, rates};
use crate::survey::figures::{Figures, name};

/// Memory served some runs, or may have served them.
pub(super) fn cache<'a>(figures: &Figures<'a>) -> Option<Found<'a>> {
    let facts = figures.facts;
    let cold: Vec<&RunResult> = figures.runs.iter().filter(|run| run.served_by.is_some()).collect();
    let by_memory: Vec<&RunResult> =
        cold.iter().copied().filter(|run| run.served_by == Some(ServedBy::Memory)).collect();
    let is_unknown = cold.iter().any(|run| run.served_by == Some(ServedBy::Unknown));
    let mut reasons = Vec::new();
    reasons.extend(worst(&by_memory));
    if is_unknown {
        reasons.push("no counter shows which bytes storage transferred for the others".to_owned());
    }
    reasons.extend(facts.unwritten.map(|offset| {
        format!("the file has a hole or an unwritten extent at offset {offset}: reads of it do not access the disk")
    }));
    reasons.extend(facts.compressing.as_ref().map(|filesystem| {
        format!("{filesystem} compresses: the disk transfers fewer bytes than the run counts")
    }));
    if reasons.is_empty() {
        return None;
    }
    reasons.extend(facts.cached_files.iter().map(|file| beneath(file)));
    let text = match (by_memory.len(), cold.len()) {
        (0, _) => "Caution: memory may have served some of these runs.".to_owned(),
        (by_memory, all) => format!(
            "Caution: memory, not storage, served {by_memory} of {all} runs. Tables mark these runs with `m`; \
             recommendations ignore them."
        ),
    };
    Some(Found::fact(text, reasons.join("; ")))
}

fn beneath(file: &Path) -> String {
    format!("the kernel reads {} beneath the target through the page cache", file.display())
}

/// The run for which storage transferred the smallest share.
fn worst(by_memory: &[&RunResult]) -> Option<String> {
    let share = |run: &RunResult| transferred(run).unwrap_or(0) as f64 / run.bytes as f64;
    let run = by_memory.iter().copied().min_by(|a, b| share(a).total_cmp(&share(b)))?;
    let direction = if run.rw == Rw::Write.name() { "wrote" } else { "read" };
    Some(match transferred(run) {
        Some(bytes) => format!(
            "{} ({}): storage {direction} {} of {}",
            name(run),
            run.rw,
            format_size(bytes),
            format_size(run.bytes)
        ),
        None => format!("{} ({}): pages of the target stayed in the page cache", name(run), run.rw),
    })
}

/// Bytes that storage transferred for a run, in the direction of the run.
fn transferred(run: &RunResult) -> Option<u64> {
    let bytes = run.repeats.iter().map(|repeat| {
        if run.rw == Rw::Write.name() { repeat.storage_written_bytes } else { repeat.storage_read_bytes }
    });
    bytes.sum()
}

pub(super) fn no_disk<'a>(figures: &Figures<'a>) -> Option<Found<'a>> {
    let reason = figures.facts.no_disk.as_ref()?;
    let text =
        format!("The target does not lie on a single known disk ({reason}): disk requests are not counted.");
    Some(Found::fact(text, "neither sysfs nor the mount table names a disk".to_owned()))
}

/// iopath's queue against the bare `io_uring` of the kernel, at the same depth.
pub(super) fn iopath_kernel<'a>(figures: &Figures<'a>) -> Option<Found<'a>> {
    if !figures.facts.has_tool {
        return None;
    }
    let ours = figures.random("iopath-direct", 32)?;
    let kernel = figures.random("kernel-uring", 32)?;
    let cpu = figures.cpu();
    let rate = Ratio::of(&rates(ours), &rates(kernel))?;
    let [low, high] = rate.ci95?;
    let verdict = match rate.outcome() {
        Outcome::Higher | Outcome::Lower => {
            format!("iopath-direct has {} times the IOPS of kernel-uring", digits(rate.mean))
        }
        Outcome::NotDifferent | Outcome::Single => {
            "iopath-direct and kernel-uring are not significantly different in IOPS".to_owned()
        }
        Outcome::Inconclusive => {
            "the comparison of iopath-direct with kernel-uring is inconclusive".to_owned()
        }
    };
    let text = format!(
        "Random reads of 4 KiB at depth 32: {verdict}. CPU cost: {} against {} µs per I/O.",
        digits(cpu.per_io_us(ours)),
        digits(cpu.per_io_us(kernel))
    );
    let evidence =
        format!("ratio of IOPS {} to {} (95% interval), round by round", digits(low), digits(high));
    let is_inconclusive = rate.outcome() == Outcome::Inconclusive;
    Some(Found::measured(text, evidence, vec![ours, kernel]).inconclusive(is_inconclusive))
}

pub(super) fn tool_cost<'a>(figures: &Figures<'a>) -> Option<Found<'a>> {
    let null = figures.null().filter(|_| figures.facts.has_tool)?;
    let cost_us = CpuOf::Process.per_io_us(null);
    let iops = iops(null);
    let share = figures.random("iopath-direct", 32).map(|real| cost_us / figures.cpu().per_io_us(real));
    let of_real = share.map_or_else(String::new, |share| {
        format!(", {}% of a random 4 KiB read through iopath-direct", digits(share * 100.0))
    });
    let text = format!("The tool itself costs {} µs of CPU per I/O{of_real}.", digits(cost_us));
    let evidence = format!(
        "null, the queue without a device: {} million I/Os per second on one core",
        digits(iops / 1e6)
    );
    Some(Found::measured(text, evidence, vec![null]))
}

/// The engine of iopath's paths: always if it is a fallback, which may be slow.
pub(super) fn engine<'a>(figures: &Figures<'a>) -> Option<Found<'a>> {
    let engine = figures.facts.engine.as_ref()?;
    if engine.fallback.is_none() && !figures.facts.has_tool {
        return None;
    }
    let engine_name = if engine.name == "uring" { "io_uring" } else { engine.name.as_str() };
    let text = match &engine.fallback {
        None => format!("iopath's paths use {engine_name}."),
        Some(fallback) => format!("iopath's paths use {engine_name}, a fallback. The reason: {fallback}."),
    };
    Some(Found::fact(text, "engine selected at open".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::survey::figures::{EngineFacts, Facts};
    use iopath_report::fixtures::run;

    const STEADY: [f64; 4] = [100.0, 101.0, 99.0, 100.0];

    fn facts() -> Facts {
        Facts { cores: 2, busy_cpus: Some(0.0), has_tool: true, ..Facts::default() }
    }

    fn read(path: &str) -> RunResult {
        run(path, Rw::Read, 1 << 20, 1, &STEADY, 0.3)
    }

    #[test]
    fn runs_that_storage_served_give_no_caution() {
        let runs = [read("kernel-buffered"), read("kernel-direct")];
        let looped = Facts { cached_files: vec!["/tmp/image".into()], ..facts() };
        assert_eq!(cache(&Figures { runs: &runs, facts: &looped }), None);
    }

    #[test]
    fn each_reason_why_memory_served_a_run_is_named() {
        let mut helped = read("kernel-direct");
        helped.served_by = Some(ServedBy::Memory);
        for repeat in &mut helped.repeats {
            repeat.storage_read_bytes = Some(1 << 20);
        }
        let good = [read("kernel-buffered")];
        let found = |runs: &[RunResult], facts: Facts| {
            let found = cache(&Figures { runs, facts: &facts }).unwrap();
            (found.text, found.evidence)
        };
        let looped = Facts { cached_files: vec!["/tmp/image".into()], ..facts() };
        let (text, evidence) = found(&[good[0].clone(), helped], looped);
        assert!(text.contains("memory, not storage, served 1 of 2 runs"), "{text}");
        assert_eq!(
            evidence,
            "kernel-direct with blocks of 1 MiB (read): storage read 4 MiB of 381.47 MiB; the kernel reads /tmp/image \
             beneath the target through the page cache"
        );
        let hole = Facts { unwritten: Some(4096), ..facts() };
        assert!(found(&good, hole).1.contains("unwritten extent at offset 4096"));
        let compressing = Facts { compressing: Some("btrfs".to_owned()), ..facts() };
        assert!(found(&good, compressing).1.starts_with("btrfs compresses"));
        let unknown = RunResult { served_by: Some(ServedBy::Unknown), ..read("kernel-direct") };
        assert!(found(&[unknown], facts()).1.starts_with("no counter shows"));
    }

    #[test]
    fn a_missing_disk_is_stated_with_the_reason() {
        let memory = Facts { no_disk: Some("tmpfs lies in memory".to_owned()), ..facts() };
        let Found { text, .. } = no_disk(&Figures { runs: &[], facts: &memory }).unwrap();
        assert!(text.contains("tmpfs lies in memory"), "{text}");
        assert_eq!(no_disk(&Figures { runs: &[], facts: &facts() }), None);
    }

    #[test]
    fn iopath_is_compared_with_the_kernel() {
        let random =
            |path, times: f64| run(path, Rw::RandRead, 4096, 32, &STEADY.map(|mbs| mbs * times), 1.0);
        let find =
            |runs: &[RunResult]| iopath_kernel(&Figures { runs, facts: &facts() }).map(|found| found.text);
        let text = find(&[random("iopath-direct", 1.5), random("kernel-uring", 1.0)]).unwrap();
        assert!(text.contains("iopath-direct has 1.50 times the IOPS of kernel-uring"), "{text}");
        let mut noisy = random("iopath-direct", 1.0);
        noisy.repeats[0].bytes_per_second *= 1.1;
        let text = find(&[noisy.clone(), random("kernel-uring", 1.0)]).unwrap();
        assert!(text.contains("not significantly different in IOPS"), "{text}");
        noisy.repeats[0].bytes_per_second *= 5.0;
        let text = find(&[noisy, random("kernel-uring", 1.0)]).unwrap();
        assert!(text.contains("is inconclusive"), "{text}");
        assert_eq!(find(&[random("iopath-direct", 1.0)]), None);
    }

    #[test]
    fn the_cost_of_the_tool_is_compared_with_a_real_read() {
        let runs = [
            run("null", Rw::RandRead, 4096, 32, &STEADY, 0.01),
            run("iopath-direct", Rw::RandRead, 4096, 32, &STEADY, 1.0),
        ];
        let find = |runs: &[RunResult]| tool_cost(&Figures { runs, facts: &facts() }).map(|found| found.text);
        let text = find(&runs).unwrap();
        assert!(text.contains("0.038 µs") && text.contains("1.00% of a random"), "{text}");
        assert!(find(&runs[..1]).unwrap().ends_with("of CPU per I/O."));
        assert_eq!(find(&runs[1..]), None);
    }

    #[test]
    fn the_engine_is_named_with_the_reason_for_a_fallback() {
        let said = |facts: &Facts| engine(&Figures { runs: &[], facts }).map(|found| found.text);
        let with = |fallback: Option<&str>| {
            let engine = EngineFacts { name: "threads".to_owned(), fallback: fallback.map(str::to_owned) };
            said(&Facts { engine: Some(engine), ..facts() })
        };
        assert_eq!(with(None).unwrap(), "iopath's paths use threads.");
        assert_eq!(
            with(Some("seccomp forbids it")).unwrap(),
            "iopath's paths use threads, a fallback. The reason: seccomp forbids it."
        );
        assert_eq!(said(&facts()), None);
    }
}
