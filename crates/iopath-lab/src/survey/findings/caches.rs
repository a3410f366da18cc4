//! Compares the kernel's page cache with iopath's. The comparison of buffered with direct I/O is in `advice.rs`.

use iopath_report::Rw;
use iopath_report::numbers::{digits, time};
use iopath_report::result::RunResult;
use iopath_report::size::format_size;

use super::Found;
use crate::survey::compare::{Outcome, Ratio, iops, rate, rates};
use crate::survey::figures::{Figures, mb};

/// Block sizes of the compared sequential reads: the first one that was measured counts.
const BLOCKS: [u32; 2] = [16 << 10, 4 << 10];

/// The block size of hits.
const HIT_BLOCK: u32 = 4 << 10;

/// A smaller factor does not justify another page cache.
const FACTOR_MIN: f64 = 1.1;

/// Sequential reads of cold data.
pub(super) fn cold<'a>(figures: &Figures<'a>) -> Option<Found<'a>> {
    let of = |path: &str, block| figures.cached(path, Rw::Read, block, false, false);
    let both = |block| Some((block, of("iopath-buffered", block)?, of("kernel-buffered", block)?));
    let (block, ours, kernel) = BLOCKS.into_iter().find_map(both)?;
    let cpu = figures.cpu();
    let speed = Ratio::of(&rates(ours), &rates(kernel))?;
    let expense = Ratio::of(&cpu.per_gib(ours), &cpu.per_gib(kernel));
    let [our_cost, kernel_cost] = [ours, kernel].map(|run| cpu.cost(run));
    let costs = format!("CPU cost: {} against {} s/GiB.", digits(our_cost), digits(kernel_cost));
    let is_large = speed.mean.max(1.0 / speed.mean) >= FACTOR_MIN;
    let is_cheaper = expense.is_some_and(|expense| expense.outcome() == Outcome::Lower)
        && our_cost * FACTOR_MIN <= kernel_cost;
    let verdict = match speed.outcome() {
        Outcome::Lower if is_large => {
            format!("use kernel-buffered; iopath-buffered has {} times its throughput", digits(speed.mean))
        }
        Outcome::Higher if is_large => {
            format!(
                "use iopath-buffered, with {} times the throughput of kernel-buffered",
                digits(speed.mean)
            )
        }
        Outcome::Inconclusive | Outcome::Single => {
            "the comparison of iopath-buffered with kernel-buffered is inconclusive".to_owned()
        }
        _ if is_cheaper => "use iopath-buffered for its lower CPU cost; throughputs are similar".to_owned(),
        _ => "iopath-buffered and kernel-buffered are not significantly different".to_owned(),
    };
    let text =
        format!("Sequential reads of {} through a page cache: {verdict}. {costs}", format_size(block.into()));
    let evidence = format!("iopath-buffered {}, kernel-buffered {}", mb(rate(ours)), mb(rate(kernel)));
    let is_inconclusive = matches!(speed.outcome(), Outcome::Inconclusive | Outcome::Single);
    Some(Found::measured(text, evidence, vec![ours, kernel]).inconclusive(is_inconclusive))
}

/// Hits, and the proper use of each page cache.
pub(super) fn hits<'a>(figures: &Figures<'a>) -> Option<Found<'a>> {
    let of = |path: &str, borrows| figures.cached(path, Rw::RandRead, HIT_BLOCK, true, borrows);
    let (ours, kernel) = (of("iopath-buffered", false)?, of("kernel-buffered", false)?);
    let ratio = |run: &RunResult| Ratio::of(&rates(run), &rates(kernel));
    let borrowed = of("iopath-buffered", true);
    let copied = ratio(ours)?;
    let gain = match copied.outcome() {
        Outcome::Inconclusive => {
            "the comparison of iopath-buffered with kernel-buffered is inconclusive".to_owned()
        }
        Outcome::NotDifferent => {
            "iopath-buffered and kernel-buffered are not significantly different".to_owned()
        }
        Outcome::Higher | Outcome::Lower | Outcome::Single => {
            format!("iopath-buffered has {} times the IOPS of kernel-buffered", digits(copied.mean))
        }
    };
    let borrowed_gain = borrowed
        .and_then(ratio)
        .filter(|ratio| ratio.outcome() != Outcome::Inconclusive)
        .map_or_else(String::new, |ratio| format!(" ({} times with borrowed pages)", digits(ratio.mean)));
    let memory = format_size(figures.facts.memory_bytes);
    let text = format!(
        "Hits of 4 KiB: {gain}{borrowed_gain}. Use iopath's page cache for data that one process reads repeatedly. Use \
         the kernel's for data that fits in memory ({memory}) and that several processes share or that must stay cached \
         after they exit."
    );
    let each = |run: &RunResult| time((1e9 / iops(run)) as u64);
    let borrowed = borrowed.map_or_else(String::new, |run| format!(" ({} borrowed)", each(run)));
    let evidence = format!(
        "mean time of a hit, with the cost of measuring it: {}{borrowed} iopath-buffered, {} kernel-buffered",
        each(ours),
        each(kernel)
    );
    let is_inconclusive = copied.outcome() == Outcome::Inconclusive;
    Some(Found::measured(text, evidence, vec![ours, kernel]).inconclusive(is_inconclusive))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::survey::figures::Facts;
    use iopath_report::fixtures::run;
    use iopath_report::result::{CacheFacts, CacheUse};

    fn cached(run: RunResult, warm: bool, borrow: bool) -> RunResult {
        let cache = (run.path == "iopath-buffered").then(|| CacheFacts {
            cache_bytes: 64 << 20,
            page_bytes: 4096,
            readahead: "auto".to_owned(),
            borrow,
            used: CacheUse::default(),
        });
        RunResult { warm, cache, ..run }
    }

    fn text(runs: &[RunResult], find: for<'a> fn(&Figures<'a>) -> Option<Found<'a>>) -> Option<String> {
        let facts = Facts { cores: 2, busy_cpus: Some(0.0), memory_bytes: 8 << 30, ..Facts::default() };
        find(&Figures { runs, facts: &facts }).map(|found| found.text)
    }

    fn steady(mbs: f64) -> [f64; 4] {
        [1.0, 1.01, 0.99, 1.0].map(|factor| mbs * factor)
    }

    fn stream(path: &str, mbs: f64, cost: f64) -> RunResult {
        cached(run(path, Rw::Read, 16 << 10, 1, &steady(mbs), cost), false, false)
    }

    #[test]
    fn the_better_cache_is_named_and_none_without_a_significant_difference() {
        let kernel = stream("kernel-buffered", 1000.0, 0.5);
        let said = |mbs, cost| text(&[kernel.clone(), stream("iopath-buffered", mbs, cost)], cold).unwrap();
        for (mbs, cost, expected) in [
            (
                1500.0,
                0.1,
                "use iopath-buffered, with 1.50 times the throughput of kernel-buffered. CPU cost: 0.100",
            ),
            (1000.0, 0.1, "use iopath-buffered for its lower CPU cost"),
            (500.0, 0.1, "use kernel-buffered; iopath-buffered has 0.500 times its throughput"),
            (1000.0, 0.5, "not significantly different"),
        ] {
            assert!(said(mbs, cost).contains(expected), "{}", said(mbs, cost));
        }
        let variable =
            cached(run("iopath-buffered", Rw::Read, 16 << 10, 1, &[400.0, 1900.0, 700.0], 0.1), false, false);
        let text_of = text(&[kernel.clone(), variable], cold).unwrap();
        assert!(text_of.contains("is inconclusive"), "{text_of}");
        assert_eq!(text(&[kernel], cold), None);
    }

    #[test]
    fn hits_are_compared_and_the_uses_of_both_caches_are_stated() {
        let hit = |path: &str, mbs, borrow| {
            cached(run(path, Rw::RandRead, 4096, 1, &steady(mbs), 0.1), true, borrow)
        };
        let runs = [
            hit("kernel-buffered", 4096.0, false),
            hit("iopath-buffered", 4.0 * 4096.0, false),
            hit("iopath-buffered", 12.0 * 4096.0, true),
        ];
        let said = text(&runs, hits).unwrap();
        assert!(
            said.contains("has 4.00 times the IOPS") && said.contains("(12.0 times with borrowed pages)"),
            "{said}"
        );
        assert!(said.contains("8 GiB") && said.contains("several processes share"), "{said}");
        assert_eq!(text(&runs[..1], hits), None);
        assert_eq!(text(&runs, cold), None, "hits are not cold");
    }
}
