//! `dip`: block sizes at which sequential reads from a remote target are slow, and readahead without such block sizes.

use iopath::Readahead;
use iopath_core::log::Event;
use iopath_log::Filter;
use iopath_report::experiment::{Direction, Report, Row, Settings};

use super::error::ExperimentError;
use super::loop_reads::{Reads, Top};
use super::on_target::TargetRun;
use super::published::published;
use super::remote::{Constants, MODEL, Reader, Setup, is_calibrated, read, size, throughput};
use super::row::{Experiment, OnTarget};

pub(super) static ROW: Experiment = Experiment {
    id: "dip",
    title: "reads of 512 KiB to 4 MiB are slower than smaller and larger reads",
    published: "dd reads 1 GiB from a remote target (readahead 512 KiB, max_sectors 512 KiB): blocks of 2 MiB reach 79 \
                MiB/s, between 151 at 256 KiB and 204 at 64 MiB. The thread finds no cause (Moesbergen, Bolkhovitin, Wu, \
                LKML, 2009).",
    parameters: &MODEL,
    run,
    on_target: Some(OnTarget::Reads(on_target)),
};

/// Block sizes between the published extremes, for readers whose figures are not published.
const SWEEP: [u64; 7] = [64 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20, 64 << 20];

/// The block sizes of the published dip.
const DIP: [u64; 4] = [512 << 10, 1 << 20, 2 << 20, 4 << 20];

fn setup(block_bytes: u64) -> Setup {
    Setup { is_patched: false, readahead_kib: 512, max_sectors_kib: 512, block_bytes }
}

fn run(settings: &Settings) -> Result<Report, ExperimentError> {
    let constants = Constants::of(settings);
    let mut rows = Vec::new();
    let table = published("readahead");
    let wanted = [("queue", "unpatched"), ("readahead_kib", "512"), ("max_sectors_kib", "512")];
    for record in
        table.records().filter(|record| wanted.iter().all(|(column, value)| record.text(column) == *value))
    {
        let block_bytes = record.number("block_bytes") as u64;
        let ours = throughput(&constants, setup(block_bytes), Reader::Direct)?;
        let what = format!("blocks of {}, calls do not overlap", size(block_bytes));
        let published = record.number("mean_mib_per_s");
        let row = if is_calibrated(setup(block_bytes)) { Row::calibrated } else { Row::predicted };
        rows.push(row(what, "MiB/s", published, ours));
    }
    let rate = |rows: &[Row], block_bytes: u64, of: fn(&Row) -> f64| {
        let block = format!("blocks of {},", size(block_bytes));
        rows.iter().find(|row| row.what.starts_with(&block)).map_or(f64::NAN, of)
    };
    let published_rate = |row: &Row| row.published.unwrap_or(f64::NAN);
    let ours = |row: &Row| row.ours;
    let is_slower = |than| DIP.iter().all(|block| rate(&rows, *block, ours) < rate(&rows, than, ours));
    let (below_256k, below_64m) = (is_slower(256 << 10), is_slower(64 << 20));
    let dip = [
        rate(&rows, 2 << 20, published_rate) / rate(&rows, 256 << 10, published_rate),
        rate(&rows, 2 << 20, ours) / rate(&rows, 256 << 10, ours),
    ];
    rows.push(Row::predicted("2 MiB : 256 KiB, calls do not overlap", "ratio", dip[0], dip[1]));
    let without_idling = sweep(&Constants { idle_ms: 0.0, ..constants }, Reader::Direct)?;
    let linux = sweep(&constants, Reader::Buffered(Readahead::Linux(512 << 10)))?;
    let iopath = sweep(&constants, Reader::Buffered(Readahead::Auto))?;
    for (what, rates) in [
        ("calls do not overlap, the target does not idle", &without_idling),
        ("page cache with the windows of Linux at the reading machine", &linux),
        ("page cache and readahead of iopath at the reading machine", &iopath),
    ] {
        rows.push(Row::unpublished(format!("2 MiB : 256 KiB, {what}"), "ratio", rates[4] / rates[1]));
    }
    for (block_bytes, rate) in SWEEP.iter().zip(&iopath) {
        let what = format!("blocks of {}, page cache and readahead of iopath", size(*block_bytes));
        rows.push(Row::unpublished(what, "MiB/s", *rate));
    }
    let worst = worst_to_best(&iopath);
    rows.push(Row::unpublished("worst : best of 64 KiB to 64 MiB, readahead of iopath", "ratio", worst));
    let directions = vec![
        Direction::new("blocks of 512 KiB to 4 MiB are slower than blocks of 256 KiB", below_256k),
        Direction::new("blocks of 512 KiB to 4 MiB are slower than blocks of 64 MiB", below_64m),
        Direction::new(
            "without idling of the target, there is no dip at 2 MiB",
            without_idling[4] > without_idling[1],
        ),
        Direction::new(
            "iopath's readahead on the same machine has no dip: 512 KiB to 4 MiB reach 0.9 of 256 KiB and of 64 MiB",
            iopath[2..6].iter().all(|rate| *rate >= 0.9 * iopath[1].max(iopath[6])),
        ),
    ];
    Ok(Report { rows, directions, evidence: evidence(constants)?, notes: notes() })
}

fn sweep(constants: &Constants, reader: Reader) -> Result<Vec<f64>, ExperimentError> {
    SWEEP.iter().map(|block_bytes| throughput(constants, setup(*block_bytes), reader)).collect()
}

fn worst_to_best(rates: &[f64]) -> f64 {
    rates.iter().copied().fold(f64::MAX, f64::min) / rates.iter().copied().fold(0.0, f64::max)
}

/// Reads real storage at the block sizes of the sweep.
fn on_target(target: &mut TargetRun<'_>) -> Result<Report, ExperimentError> {
    let reads = Reads::prepare(target)?;
    let mut report = Report { notes: reads.notes(), ..Report::default() };
    for (top, name) in [
        (Top::Kernel { readahead_kib: 512, max_sectors_kib: 512 }, "page cache and readahead of the kernel"),
        (Top::Iopath, "page cache and readahead of iopath"),
    ] {
        let mut rates = Vec::new();
        for block_bytes in SWEEP {
            let Some(rate) = reads.mib_per_s(target, top, block_bytes)? else { break };
            rates.push(rate);
            report.rows.push(Row::unpublished(
                format!("blocks of {}, {name}", size(block_bytes)),
                "MiB/s",
                rate,
            ));
        }
        let [_, small, dip @ .., large] = &rates[..] else { continue };
        let ends = small.max(*large);
        let (text, holds) = match top {
            Top::Kernel { .. } => (
                "with the kernel, blocks of 512 KiB to 4 MiB are slower than blocks of 256 KiB and of 64 MiB",
                dip.iter().all(|rate| *rate < small.min(*large)),
            ),
            Top::Iopath => (
                "iopath's readahead has no dip: 512 KiB to 4 MiB reach 0.9 of 256 KiB and of 64 MiB",
                dip.iter().all(|rate| *rate >= 0.9 * ends),
            ),
        };
        report.directions.push(Direction::new(text, holds));
    }
    Ok(report)
}

/// The completions of one call of 2 MiB. The gaps between them show the idle times.
fn evidence(constants: Constants) -> Result<Vec<String>, ExperimentError> {
    let short = Constants { size_mib: 16, ..constants };
    let outcome = read(&short, setup(2 << 20), Reader::Direct, true)?;
    let Some(log) = &outcome.log else { return Ok(Vec::new()) };
    let filter = Filter { events: vec![Event::Dispatch, Event::Complete], ..Filter::default() };
    Ok(log.lines(&filter, 8, &mut |_| true)?)
}

fn notes() -> Vec<String> {
    vec![
        "Hypothesis: two rules of the target interact. Each I/O thread of SCST has an open file of its own, so it has a readahead \
         state and an I/O context of its own. The scheduler (CFQ) serves one context at a time, and idles up to 8 ms for its next \
         request. The commands of a call occupy several threads. A thread then waits for a window that another thread has \
         started, and the scheduler idles for a thread that waits. One thread serves the calls of a single command, so these have \
         no idle times. In long calls, the active context receives further commands, so idle times occur at the end only."
            .to_owned(),
        "Requests that arrive while the scheduler idles are served at once if they are close to the last one (CFQ of 2.6.29). \
         Only requests that were already queued wait. A command of 64 KiB rarely starts a window, so with max_sectors 64 KiB \
         the dip is small, as published."
            .to_owned(),
        "The reading machine has no page cache, as in the script that has this form of results: see `unplug`. A page cache \
         with Linux's windows requests the same windows at all block sizes from 512 KiB on, so it has no dip there."
            .to_owned(),
        "Missing: the published dip begins at blocks of 512 KiB, which are one command. If the largest command had 256 KiB, the dip \
         of the model would begin there too, but no source has such a limit of commands. The limit of 256 KiB for a PDU has \
         a source, but little effect: see `unplug`. At blocks of 1 MiB, the modelled dip occurs \
         with readahead 128 KiB only."
            .to_owned(),
        "iopath's readahead keeps several requests in flight, so several threads of the target serve it, and the target idles \
         between them. The rate at one distance has several stable values. When it falls, readahead tries other distances at \
         once, so no block size stays in a slow state."
            .to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idling_of_the_target_makes_the_dip() {
        let settings = Settings::new(&MODEL, &["size_mib=64".to_owned()]).unwrap();
        let report = run(&settings).unwrap();
        // The first direction fails at 512 KiB and 1 MiB: see the notes.
        assert!(report.directions[1..3].iter().all(|direction| direction.holds), "{report:#?}");
        let ratio = report.rows.iter().find(|row| row.unit == "ratio").unwrap();
        assert!(ratio.is_prediction() && ratio.is_within(), "{report:#?}");
        let outside = report.predictions().filter(|row| !row.is_within());
        assert!(outside.count() <= 5, "{report:#?}");
        assert!(report.evidence.len() == 8, "{report:#?}");
    }

    #[test]
    fn the_readahead_of_iopath_has_no_dip_at_a_target_that_idles() {
        let constants = Constants::of(&Settings::new(&MODEL, &[]).unwrap());
        let rates = (12..=26)
            .map(|bits| throughput(&constants, setup(1 << bits), Reader::Buffered(Readahead::Auto)).unwrap());
        let rates: Vec<f64> = rates.collect();
        assert!(worst_to_best(&rates) >= 0.9, "4 KiB to 64 MiB: {rates:.0?} MiB/s");
    }
}
