//! `iopath run`: measures one workload with repetitions, or the jobs of a job file, and shows a table.

use crate::args::RunArgs;
use crate::output::{Output, note_interruption, print};
use crate::party::{Alone, Party};
use crate::stderr::note;
use anyhow::bail;
use clap::error::ErrorKind;
use iopath_bench::{Interruption, Repetitions, model_file};
use iopath_fio::{JobFile, RunSettings, System};
use iopath_lab::metrics::RunMetrics;
use iopath_lab::preset::{PRESETS, Preset, find_preset};
use iopath_log::for_terminal;
use iopath_report::result::Report;
use iopath_report::result::VerifyResult;
use iopath_report::terminal;
use iopath_report::terminal::wrap;
use std::path::Path;

pub(crate) fn run(args: &RunArgs) -> anyhow::Result<()> {
    run_with(args, &Alone)
}

/// Measures together with other processes.
pub(crate) fn run_with(args: &RunArgs, party: &dyn Party) -> anyhow::Result<()> {
    match (&args.preset, &args.jobfile) {
        (Some(name), _) if name == "list" => return list_presets(),
        (Some(name), _) => return run_preset(args, find_preset(name)?, party),
        (None, Some(file)) => return run_job_file(args, file, party),
        (None, None) => {}
    }
    // The results must not replace the file of a model.
    let named = args.options.targets()?;
    let targets: Vec<_> = named.iter().map(|target| model_file(target).unwrap_or(target)).collect();
    let output =
        Output::new(&args.show, &targets, args.options.log()?.as_deref())?.in_format(args.format.format)?;
    let mut workloads = args.options.workloads()?;
    for workload in &mut workloads {
        workload.share = party.share();
    }
    // Dropped after the results are written: then the signal ends the process.
    let _interruption = Interruption::catch();
    let exporter = args.metrics.start(args.show.json.force)?;
    let mut bar = output.bar();
    let mut progress = RunMetrics::new(&mut bar, exporter);
    let report = match &workloads[..] {
        [workload] => iopath_bench::report_with(workload, party.peers(), &mut progress),
        several => iopath_lab::report_all_with(several, party.team().as_ref(), &mut progress),
    };
    drop(progress);
    bar.finish();
    show_unless_interrupted(report.map_err(Into::into), &|_| None, &output, party)
}

/// Measures the jobs of a job file.
fn run_job_file(args: &RunArgs, file: &Path, party: &dyn Party) -> anyhow::Result<()> {
    if args.options.targets()?.len() > 1 || args.options.count("path") > 1 {
        let message = "a job file has one --target and one --path; name the files of its jobs in the file";
        return Err(clap::Error::raw(ErrorKind::ValueValidation, message).into());
    }
    let settings = args.job_settings()?;
    let mut jobs = JobFile::read(&file.to_string_lossy(), &*party.environment(), args.lenient)?;
    jobs.select(&args.section)?;
    run_jobs(args, &jobs, settings, &|_| None, party)
}

/// Measures the jobs of a preset, on each of several targets at the same time.
fn run_preset(args: &RunArgs, preset: &Preset, party: &dyn Party) -> anyhow::Result<()> {
    if args.options.count("path") > 1 {
        return Err(clap::Error::raw(ErrorKind::ValueValidation, "a preset has one --path").into());
    }
    let targets = args.options.targets()?;
    let mut settings = args.job_settings()?;
    if !args.options.has("repeat") {
        settings.base.repetitions = Repetitions::new(preset.repeats)?;
    }
    if targets.len() > 1 {
        settings.target = None;
    }
    let jobs = preset.jobs(&targets, &System)?;
    run_jobs(args, &jobs, settings, &|report| preset.table(report), party)
}

/// The indent of the further lines of a preset, below its description.
const PRESET_INDENT: &str = "           ";

fn list_presets() -> anyhow::Result<()> {
    let width = usize::from(terminal::terminal_width());
    let line = |preset: &Preset| wrap(preset.about, &format!("{:<10} ", preset.name), PRESET_INDENT, width);
    print(&PRESETS.iter().map(line).collect::<String>())
}

/// `classic` is the table of a preset.
fn run_jobs(
    args: &RunArgs,
    jobs: &JobFile,
    mut settings: RunSettings,
    classic: &dyn Fn(&Report) -> Option<String>,
    party: &dyn Party,
) -> anyhow::Result<()> {
    settings.peers = party.peers();
    settings.base.share = party.share();
    let named = settings.named_files(jobs);
    let targets: Vec<&Path> = named.iter().map(|file| model_file(file).unwrap_or(file)).collect();
    let output =
        Output::new(&args.show, &targets, args.options.log()?.as_deref())?.in_format(args.format.format)?;
    jobs.warnings.iter().filter(|_| party.speaks()).for_each(note);
    let _interruption = Interruption::catch();
    let exporter = args.metrics.start(args.show.json.force)?;
    let mut bar = output.bar();
    let report = jobs.run(&settings, &mut RunMetrics::new(&mut bar, exporter));
    bar.finish();
    show_unless_interrupted(report.map_err(Into::into), classic, &output, party)
}

/// Shows the results, or that a signal came before the first of them: the process then ends without its usual message.
fn show_unless_interrupted(
    report: anyhow::Result<Report>,
    classic: &dyn Fn(&Report) -> Option<String>,
    output: &Output,
    party: &dyn Party,
) -> anyhow::Result<()> {
    let report = party.join(report).inspect_err(|error| {
        if party.speaks() {
            note_interruption(error);
        }
    })?;
    report.map_or(Ok(()), |report| show(&report, classic, output))
}

fn show(report: &Report, classic: &dyn Fn(&Report) -> Option<String>, output: &Output) -> anyhow::Result<()> {
    report.warnings.iter().for_each(note);
    for run in &report.runs {
        for warning in &run.warnings {
            match &report.runs[..] {
                [_] => note(warning),
                _ => note(format_args!("{}: {warning}", run.name())),
            }
        }
    }
    let mut shown = output.present(report);
    if let Some(classic) = classic(report).filter(|_| output.is_text()) {
        shown = shown.and_then(|()| print(&format!("\n{}\n", for_terminal(&classic, false))));
    }
    // A failure of the run counts more than one of stdout.
    if let Some(failure) = &report.failure {
        bail!("{failure}; the results have the complete repetitions");
    }
    let verified = report.runs.iter().filter_map(|run| run.verify.as_ref());
    match verified.map(VerifyResult::faults).sum() {
        0 => shown,
        faults => bail!("verify found {faults} faults"),
    }
}
