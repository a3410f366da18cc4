//! `link`: eight disks behind one link of 2 Gbit/s, by kernel and path. The CPU use of the same runs is in `cpu.rs`.

use iopath_core::log::Event;
use iopath_log::Filter;
use iopath_report::experiment::{Direction, Report, Row, Settings};

use super::error::ExperimentError;
use super::fc_2002::{
    BIO, BLOCK_2_4, BLOCK_2_5, BUFFER, DATA, DISKS, FILE, Kernel, PIECE, PIN, Path, READAHEAD, REQUEST,
    nine_runs, published_figure, row, run as run_one,
};
use super::on_target::TargetRun;
use super::row::{Experiment, OnTarget};
use iopath_bench::paths::{iopath_buffered, iopath_direct};
use iopath_bench::workload::{BlockSize, Jobs, Repetitions, Workload};

pub(super) static ROW: Experiment = Experiment {
    id: "link",
    title: "eight disks fill a link",
    published: "8 disks read in parallel, 10 GB each, over one Fibre Channel link of 2 Gbit/s: 4 MiB direct reads fill the \
                link, 194.4 MB/s; buffered reads of 512 bytes reach 133.1 MB/s with 0% of the CPUs idle (Lincoln Dale, \
                linux-kernel, 11 July 2002; a MB is a MiB).",
    parameters: &[DATA, PIN, BUFFER, BLOCK_2_4, BLOCK_2_5, PIECE, BIO, REQUEST, READAHEAD, FILE],
    run,
    on_target: Some(OnTarget::Writes(on_target)),
};

fn run(settings: &Settings) -> Result<Report, ExperimentError> {
    let runs = nine_runs(settings)?;
    let rows = runs.iter().map(|(kernel, path, run)| {
        let what = format!("{}, {}", path.name(), kernel.name());
        // The CPU time of a call was calibrated on this row.
        let is_calibrated = (*kernel, *path) == (Kernel::V25Bio, Path::Buffered);
        let published = published_figure(*kernel, *path, "mbyte_per_s");
        row(settings, (what, "MiB/s"), published, run.mib_per_s, is_calibrated)
    });
    let rate = |kernel, path| {
        let of = |(one_kernel, one_path, _): &&(_, _, _)| (*one_kernel, *one_path) == (kernel, path);
        runs.iter().find(of).map_or(f64::NAN, |(_, _, run)| run.mib_per_s)
    };
    let most = runs.iter().map(|(_, _, run)| run.mib_per_s).fold(0.0, f64::max);
    let directions = vec![
        Direction::new(
            "direct and raw reads of 2.5.25 fill the link: within 2% of the highest rate",
            [Kernel::V25, Kernel::V25Bio].iter().all(|kernel| {
                [Path::Direct, Path::Raw].iter().all(|path| rate(*kernel, *path) > most * 0.98)
            }),
        ),
        Direction::new(
            "direct reads of 2.4.19pre8aa2 stay below those of 2.5.25",
            rate(Kernel::V24, Path::Direct) < rate(Kernel::V25, Path::Direct),
        ),
        Direction::new(
            "buffered reads of 512 bytes do not fill the link on any kernel",
            Kernel::ALL.iter().all(|kernel| rate(*kernel, Path::Buffered) < most * 0.8),
        ),
        Direction::new(
            "buffered reads of 2.5.25 are faster than those of 2.4.19pre8aa2",
            rate(Kernel::V25, Path::Buffered) > rate(Kernel::V24, Path::Buffered),
        ),
    ];
    let notes = vec![
        "The maximum rate of the link is not calibrated. It follows from 2.125 Gbaud, 8b/10b coding, frames of 2,048 bytes \
         with 60 bytes of overhead, and a response for each request: 196.7 MiB/s."
            .to_owned(),
        "Assumed: a block device of 2.5.25 has buffers of 4 KiB. This requires that the size of the device is a multiple \
         of 4 KiB. With `--set block_2_5_bytes=1024`, buffered reads of 2.5.25 are not faster than those of 2.4."
            .to_owned(),
        "One run of the model predicts both direct and raw reads of a kernel, and one run the buffered reads of both \
         kernels 2.5.25. So the eight predictions come from four runs. One of these runs has the calibrated row."
            .to_owned(),
        "The runs of 2.4.19pre8aa2 were made with lock statistics and a profile, which cost CPU time. The model has no \
         separate cost for them."
            .to_owned(),
    ];
    Ok(Report { rows: rows.collect(), directions, evidence: evidence(settings)?, notes })
}

/// The number and size of the requests that the queue makes of block-sized buffers, and of large bios.
fn evidence(settings: &Settings) -> Result<Vec<String>, ExperimentError> {
    let mut lines = Vec::new();
    for kernel in [Kernel::V24, Kernel::V25Bio] {
        let run = run_one(settings, (kernel, Path::Direct), 8, true)?;
        let Some(log) = &run.outcome.log else { continue };
        let filter = Filter { events: vec![Event::Dispatch], ..Filter::default() };
        lines.extend(log.lines(&filter, 1, &mut |_| true)?);
        let device = &run.outcome.volumes[0].device;
        lines.push(format!(
            "{}: {} back merges make {} requests of {} KiB on the eight disks",
            kernel.name(),
            log.report.events.back_merge,
            device.reads * DISKS,
            device.read_bytes / device.reads.max(1) / 1024
        ));
    }
    Ok(lines)
}

/// Four workers read a scratch file: 512 bytes a call through the page cache of the library, then 4 MiB a call with
/// direct I/O.
fn on_target(target: &mut TargetRun<'_>) -> Result<Report, ExperimentError> {
    let file = target.scratch(target.settings().count(FILE.name) << 20, 1)?;
    let (mut rows, mut figures) = (Vec::new(), Vec::new());
    for (name, path, block_bytes) in
        [("buffered, 512 bytes", &iopath_buffered::ROW, 512), ("direct, 4 MiB", &iopath_direct::ROW, 4 << 20)]
    {
        let workload = Workload {
            path,
            block_size: BlockSize::constant(block_bytes),
            jobs: Jobs::constant(4),
            repetitions: Repetitions::constant(1),
            ..Workload::default()
        };
        let result = target.measure(&workload, &file)?;
        let mib_per_s = result.bytes_per_second.mean / f64::from(1 << 20);
        let per_gib = result.cpu.map_or(f64::NAN, |cpu| cpu.seconds_per_gib);
        rows.push(Row::unpublished(format!("four workers, {name}"), "MiB/s", mib_per_s));
        rows.push(Row::unpublished(format!("CPU of four workers, {name}"), "s/GiB", per_gib));
        figures.push((mib_per_s, per_gib));
    }
    let directions = vec![
        Direction::new(
            "direct reads are at least as fast as small buffered reads",
            figures[1].0 >= figures[0].0,
        ),
        Direction::new("direct reads use less CPU time for each byte", figures[1].1 < figures[0].1),
    ];
    Ok(Report { rows, directions, ..Report::default() })
}

#[cfg(test)]
mod tests {
    use super::super::fc_2002::assert_verdict;
    use super::*;
    use iopath_report::experiment::Verdict;

    #[test]
    fn direct_reads_fill_the_link_and_reads_of_512_bytes_do_not() {
        assert_verdict(&ROW, &["data_mib=128"], Some(Verdict::Reproduced), 8);
    }

    #[test]
    fn a_set_parameter_leaves_no_published_figure() {
        let set = Settings::new(ROW.parameters, &["data_mib=64".to_owned(), "bio_kib=8".to_owned()]).unwrap();
        assert_eq!(run(&set).unwrap().predictions().count(), 0);
    }
}
