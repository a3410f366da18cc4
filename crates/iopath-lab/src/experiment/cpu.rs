//! `cpu`: the idle share of the CPUs in the runs of `link`, by kernel and path.

use super::fibre::{
    BIO, BLOCK_2_4, BLOCK_2_5, BUFFER, DATA, Kernel, PIECE, PIN, Path, READAHEAD, REQUEST, nine,
    published_figure, row, run as run_one,
};
use super::{Direction, Experiment, Report, Settings};
use crate::error::LabError;

pub(super) static ROW: Experiment = Experiment {
    id: "cpu",
    title: "the CPU cost of a read by the path",
    published: "8 disks read in parallel: about 92% of two CPUs idle with direct reads in large bios, 55% to 62% on the older \
                path, which cuts each read into block-sized buffers, and 0% with buffered reads of 512 bytes (Lincoln Dale, \
                linux-kernel, 11 July 2002).",
    parameters: &[DATA, PIN, BUFFER, BLOCK_2_4, BLOCK_2_5, PIECE, BIO, REQUEST, READAHEAD],
    run,
    on_target: None,
};

fn run(settings: &Settings) -> Result<Report, LabError> {
    let runs = nine(settings)?;
    let rows = runs.iter().map(|(kernel, path, run)| {
        let what = format!("CPU idle, {}, {}", path.name(), kernel.name());
        let is_calibrated = (*kernel, *path) == (Kernel::V25Bio, Path::Direct);
        let published = published_figure(*kernel, *path, "cpu_idle_percent");
        // Published as whole percents.
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
        Direction::new("block-sized buffers leave less CPU time than large bios", is_below(&old, &new)),
        Direction::new("buffered reads of 512 bytes leave none", buffered.iter().all(|idle| *idle < 1.0)),
    ];
    let notes = vec![
        "Calibrated: the CPU time to pin a page of the caller (2.4 µs) on one row, and of a call, of a page of the cache and \
         of a copied byte on other figures of the same author (preset `p3-2002`)."
            .to_owned(),
        "The time of a block-sized buffer is 3.8 µs in the lock statistics of 14 July 2002. The 4.1 µs here are calibrated \
         on a row of `skew`, not on the CPU use."
            .to_owned(),
        "Direct and raw reads of a kernel are one run of the model. The predictions that show the effect are those of \
         2.4.19pre8aa2. As CPU use instead of idle time, the deviations are larger: 48% in the model against 45% and 38% on \
         2.4.19pre8aa2, 9% against 7% and 8% on 2.5.25."
            .to_owned(),
    ];
    Ok(Report { rows: rows.collect(), directions, evidence: evidence(settings)?, notes })
}

/// Bios and CPU time of a MiB.
fn evidence(settings: &Settings) -> Result<Vec<String>, LabError> {
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
    use super::super::Verdict;
    use super::*;

    #[test]
    fn idle_time_follows_the_number_of_bios() {
        let report = run(&Settings::new(ROW.parameters, &["data_mib=128".to_owned()]).unwrap()).unwrap();
        assert_eq!(report.verdict(), Some(Verdict::Reproduced), "{report:?}");
        assert_eq!(report.predictions().count(), 8);
    }

    #[test]
    fn buffers_of_a_page_would_have_left_most_of_the_cpu_time() {
        let set = ["data_mib=64".to_owned(), "block_2_4_bytes=4096".to_owned()];
        let report = run(&Settings::new(ROW.parameters, &set).unwrap()).unwrap();
        let old = report.rows.iter().find(|row| row.what == "CPU idle, direct, 2.4.19pre8aa2").unwrap();
        assert!(old.ours > 75.0, "{old:?}");
    }
}
