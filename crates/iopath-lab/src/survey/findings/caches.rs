//! Whose page cache to use: the kernel's or iopath's own. Whether one at all is in `advice.rs`.

use super::{Figures, mb};
use crate::result::RunResult;
use crate::size::format_size;
use crate::survey::compare::{Ratio, median, rate, rates};
use crate::table::{digits, time};
use crate::workload::Rw;

/// The blocks that streams through page caches are compared with, the first that was measured.
const BLOCKS: [u32; 2] = [16 << 10, 4 << 10];

/// The block of hits.
const HIT_BLOCK: u32 = 4 << 10;

/// What is not this much faster or cheaper is not worth another page cache.
const WORTH: f64 = 1.1;

/// Streams that have to come from the device.
pub(super) fn cold(figures: &Figures) -> Option<(String, String)> {
    let of = |path: &str, block| figures.cached(path, Rw::Read, block, false, false);
    let both = |block| Some((block, of("iopath-buffered", block)?, of("kernel-buffered", block)?));
    let (block, ours, kernel) = BLOCKS.into_iter().find_map(both)?;
    let cpu = figures.cpu();
    let faster = Ratio::of(&rates(ours), &rates(kernel))?;
    let dearer = Ratio::of(&cpu.per_gib(ours), &cpu.per_gib(kernel));
    let what = format!("Sequential reads of {} through a page cache", format_size(block.into()));
    let [our_price, their_price] = [ours, kernel].map(|run| cpu.price(run));
    let prices = format!("{} and {} CPU s/GiB", digits(our_price), digits(their_price));
    let is_faster = faster.is_above(1.0) && faster.mean >= WORTH;
    let is_slower = faster.is_below(1.0) && faster.mean <= 1.0 / WORTH;
    let is_cheaper = dearer.is_some_and(|dearer| dearer.is_below(1.0)) && our_price * WORTH <= their_price;
    let times = digits(faster.mean);
    let text = if is_slower {
        format!("{what}: the kernel's does better; iopath's has {times} times its throughput, at {prices}.")
    } else if is_faster {
        format!("{what}: iopath's beats the kernel's, {times} times the throughput, at {prices}.")
    } else if is_cheaper {
        format!("{what}: iopath's beats the kernel's in CPU, {prices}, at a throughput that is no lower.")
    } else {
        format!("{what}: iopath's and the kernel's differ no more than they spread, at {prices}.")
    };
    Some((text, format!("iopath-buffered {}, kernel-buffered {}", mb(rate(ours)), mb(rate(kernel)))))
}

/// What is there already, and what no figure shows: who may use it.
pub(super) fn hits(figures: &Figures) -> Option<(String, String)> {
    let of = |path: &str, borrows| figures.cached(path, Rw::RandRead, HIT_BLOCK, true, borrows);
    let (ours, kernel) = (of("iopath-buffered", false)?, of("kernel-buffered", false)?);
    let times = |run: &RunResult| Some(digits(Ratio::of(&rates(run), &rates(kernel))?.mean));
    let borrowed = of("iopath-buffered", true);
    let lent =
        borrowed.and_then(times).map_or_else(String::new, |times| format!(", {times} times if borrowed"));
    let memory = format_size(figures.facts.memory_bytes);
    let text = format!(
        "What is read again: hits of 4 KiB come {} times as fast from iopath's cache as from the kernel's{lent}. Use \
         iopath's where one process reads, and knows how much memory that deserves. Use the kernel's where the data \
         fits the memory ({memory} here) and several processes share it, or it is to stay cached when they end.",
        times(ours)?
    );
    let each = |run: &RunResult| {
        let iops = median(&run.repeats.iter().map(|repeat| repeat.iops).collect::<Vec<_>>());
        time((1e9 / iops) as u64)
    };
    let lent = borrowed.map_or_else(String::new, |run| format!(", {} borrowed", each(run)));
    let evidence = format!(
        "a hit takes {} through iopath-buffered{lent}, {} through kernel-buffered, with what measuring it costs",
        each(ours),
        each(kernel)
    );
    Some((text, evidence))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{CacheFacts, CacheUse};
    use crate::survey::findings::Facts;
    use crate::survey::made_up::run;

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

    fn text(runs: &[RunResult], find: fn(&Figures) -> Option<(String, String)>) -> Option<String> {
        let facts = Facts { cores: 2, busy_cpus: Some(0.0), memory_bytes: 8 << 30, ..Facts::default() };
        find(&Figures { runs, facts: &facts }).map(|(text, _)| text)
    }

    fn steady(mbs: f64) -> [f64; 4] {
        [1.0, 1.01, 0.99, 1.0].map(|factor| mbs * factor)
    }

    fn stream(path: &str, mbs: f64, price: f64) -> RunResult {
        cached(run(path, Rw::Read, 16 << 10, 1, &steady(mbs), price), false, false)
    }

    #[test]
    fn the_better_cache_is_named_and_none_where_they_are_alike() {
        let kernel = stream("kernel-buffered", 1000.0, 0.5);
        let said = |mbs, price| text(&[kernel.clone(), stream("iopath-buffered", mbs, price)], cold).unwrap();
        assert!(
            said(1500.0, 0.1).contains("iopath's beats the kernel's, 1.50 times"),
            "{}",
            said(1500.0, 0.1)
        );
        assert!(said(1000.0, 0.1).contains("beats the kernel's in CPU"), "{}", said(1000.0, 0.1));
        assert!(said(500.0, 0.1).contains("the kernel's does better"), "{}", said(500.0, 0.1));
        assert!(said(1000.0, 0.5).contains("no more than they spread"), "{}", said(1000.0, 0.5));
        assert_eq!(text(&[kernel], cold), None);
    }

    #[test]
    fn hits_are_compared_and_the_kernels_cache_has_its_place() {
        let hit = |path: &str, mbs, borrow| {
            cached(run(path, Rw::RandRead, 4096, 1, &steady(mbs), 0.1), true, borrow)
        };
        let runs = [
            hit("kernel-buffered", 4096.0, false),
            hit("iopath-buffered", 4.0 * 4096.0, false),
            hit("iopath-buffered", 12.0 * 4096.0, true),
        ];
        let said = text(&runs, hits).unwrap();
        assert!(said.contains("4.00 times as fast") && said.contains("12.0 times if borrowed"), "{said}");
        assert!(said.contains("8 GiB here") && said.contains("several processes share it"), "{said}");
        assert_eq!(text(&runs[..1], hits), None);
        assert_eq!(text(&runs, cold), None, "hits are not cold");
    }
}
