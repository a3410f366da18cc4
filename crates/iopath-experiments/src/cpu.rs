//! `cpu`: the idle share of the CPUs in the runs of `link`, by kernel and path.

use iopath_report::experiment::{Direction, Report, Settings};

use super::error::ExperimentError;
use super::fc_2002::{
    BIO, BLOCK_2_4, BLOCK_2_5, BUFFER, DATA, Kernel, PIECE, PIN, Path, READAHEAD, REQUEST, nine_runs,
    published_figure, row, run as run_one,
};
use super::row::Experiment;

pub(super) static ROW: Experiment = Experiment {
    id: "cpu",
    title: "the CPU cost of a read, by path",
    published: "8 disks read in parallel: about 92% of two CPUs idle with direct reads in large bios, 55% to 62% on the older \
                path, which cuts each read into block-sized buffers, and 0% with buffered reads of 512 bytes (Lincoln Dale, \
                linux-kernel, 11 July 2002).",
    parameters: &[DATA, PIN, BUFFER, BLOCK_2_4, BLOCK_2_5, PIECE, BIO, REQUEST, READAHEAD],
    run,
    on_target: None,
};

fn run(settings: &Settings) -> Result<Report, ExperimentError> {
    let runs = nine_runs(settings)?;
    let rows = runs.iter().map(|(kernel, path, run)| {
        let what = format!("CPU idle, {}, {}", path.name(), kernel.name());
        let is_calibrated = (*kernel, *path) == (Kernel::V25Bio, Path::Direct);
        let published = published_figure(*kernel, *path, "cpu_idle_percent");
        // The source has whole percents.
        row(settings, (what, "%"), published, run.idle_percent.round(), is_calibrated)
    });
    let idle = |of: fn(Kernel, Path) -> bool| {
        let of = runs.iter().filter(move |(kernel, path, _)| of(*kernel, *path));
        of.map(|(_, _, run)| run.idle_percent).collect::<Vec<f64>>()
    };
    let buffered = idle(|_, path| path == Path::Buffered);
    let old = idle(|kernel, path| kernel == Kernel::V24 && path != Path::Buffered);
    let new = idle(|kernel, path| kernel != Kernel::V24 && path != Path::Buffered);
    let is_below = |low: &[f64], high: &[f64]| low.iter().all(|low| high.iter().all(|high| low < high));
    let directions = vec![
        Direction::new("block-sized buffers leave less idle CPU time than large bios", is_below(&old, &new)),
        Direction::new(
            "buffered reads of 512 bytes leave no idle CPU time",
            buffered.iter().all(|idle| *idle < 1.0),
        ),
    ];
    let notes = vec![
        "The CPU time to pin a page of the caller (2.4 µs) is calibrated on one row. The CPU times of a call, of a page of \
         the cache and of a copied byte are calibrated on other figures of the same author (preset `p3-2002`)."
            .to_owned(),
        "A block-sized buffer takes 3.8 µs, as a bio in the lock statistics of 14 July 2002."
            .to_owned(),
        "One run of the model predicts both direct and raw reads of a kernel. The predictions of 2.4.19pre8aa2 show the \
         effect. As CPU use instead of idle time, the deviations are larger. On 2.4.19pre8aa2, the model has 46%, and the \
         published figures are 45% and 38%. On 2.5.25, the model has 9%, and the published figures are 7% and 8%."
            .to_owned(),
    ];
    Ok(Report { rows: rows.collect(), directions, evidence: evidence(settings)?, notes })
}

/// The number of bios and the CPU time for each MiB.
fn evidence(settings: &Settings) -> Result<Vec<String>, ExperimentError> {
    let mut lines = Vec::new();
    for kernel in [Kernel::V24, Kernel::V25Bio] {
        let run = run_one(settings, (kernel, Path::Direct), 8, true)?;
        let (Some(log), Some(cpu)) = (&run.outcome.log, run.outcome.cpu) else { continue };
        let mib = run.outcome.bytes() >> 20;
        let requests: u64 = run.outcome.volumes.iter().map(|volume| volume.device.reads).sum();
        lines.push(format!(
            "{}: each MiB is {} bios and {} requests, {:.2} ms of CPU time",
            kernel.name(),
            (log.report.events.back_merge + requests) / mib,
            requests / mib,
            cpu.busy_seconds * 1e3 / mib as f64
        ));
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::super::fc_2002::assert_verdict;
    use super::*;
    use iopath_report::experiment::Verdict;

    #[test]
    fn idle_time_follows_the_number_of_bios() {
        assert_verdict(&ROW, &["data_mib=128"], Some(Verdict::Reproduced), 8);
    }

    #[test]
    fn with_buffers_of_a_page_most_of_the_cpu_time_is_idle() {
        let set = ["data_mib=64".to_owned(), "block_2_4_bytes=4096".to_owned()];
        let report = run(&Settings::new(ROW.parameters, &set).unwrap()).unwrap();
        let old = report.rows.iter().find(|row| row.what == "CPU idle, direct, 2.4.19pre8aa2").unwrap();
        assert!(old.ours > 75.0, "{old:?}");
    }
}
