//! A disk in memory behind the queue, with its copy, on one core: against the highest published figure for a path in
//! user space. Runs `crates/iopath/benches/memory.rs`.

use anyhow::Result;

use super::figures::Goal;
use super::lines::{self, Rounds};
use super::report::Figure;
use super::samples::Samples;

/// The name for `--only`.
pub(super) const NAME: &str = "memory";

/// Reads of 4 KiB a second of the malloc device of SPDK's block device layer, on one core (spdk/spdk#1116, 2019).
const SPDK_MALLOC: f64 = 4.8e6;

pub(super) fn measure(rounds: u32) -> Result<Vec<Figure>> {
    Ok(figures(&lines::collect(NAME, rounds, || lines::run("iopath", "memory", &[]))?))
}

fn figures(rates: &Rounds) -> Vec<Figure> {
    let figure = |(case, rate): (&String, &Samples)| Figure {
        name: format!("{case}, 4 KiB random read, with the copy"),
        unit: "I/O/s",
        peer: "SPDK malloc, published",
        value: rate.clone(),
        peer_value: Samples::constant(SPDK_MALLOC),
        goal: Goal::AtLeast(1.0),
        others: None,
    };
    rates.iter().map(figure).collect()
}

#[cfg(test)]
mod tests {
    use super::super::report::Verdict;
    use super::*;

    #[test]
    fn each_disk_is_compared_with_the_published_figure() {
        let rates = lines::once("memory, 1 MiB, depth 32\t6000000\nmemory, 1 GiB, depth 32\t3000000\n");
        let shown: Vec<_> = figures(&rates).iter().map(Figure::verdict).collect();
        assert_eq!(shown, [Verdict::Missed, Verdict::Reached], "in the order of the names");
    }
}
