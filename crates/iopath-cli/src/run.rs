//! `iopath run`: measures one workload with repetitions, or the jobs of a job file, and shows a table.

use crate::args::RunArgs;
use crate::output::Output;
use crate::progress::Bar;
use anyhow::bail;
use clap::error::ErrorKind;
use iopath_lab::jobfile::{JobFile, JobFileError, System};
use iopath_lab::result::VerifyResult;
use iopath_lab::{Interruption, LabError, Report, model_file, table};
use std::path::Path;

pub(crate) fn run(args: &RunArgs) -> anyhow::Result<()> {
    if let Some(file) = &args.jobfile {
        return run_jobs(args, file);
    }
    // The results must not replace the file of a model.
    let named = args.targets();
    let targets: Vec<_> = named.iter().map(|target| model_file(target).unwrap_or(target)).collect();
    let output = Output::new(&args.show, &targets, args.log.as_deref())?.in_format(args.format.format)?;
    let workloads = args.workloads()?;
    // Dropped after the results are written: then the signal ends the process.
    let _interruption = Interruption::catch();
    let mut bar = Bar::new(output.has_fancy_stderr());
    let report = match &workloads[..] {
        [workload] => iopath_lab::report(workload, &mut bar),
        several => iopath_lab::report_all(several, &mut bar),
    };
    bar.finish();
    show_unless_interrupted(report.map_err(Into::into), &output)
}

/// Measures the jobs of a job file.
fn run_jobs(args: &RunArgs, file: &Path) -> anyhow::Result<()> {
    if args.targets().len() > 1 || args.path.len() > 1 {
        let message = "a job file has one --target and one --path; name the files of its jobs in the file";
        return Err(clap::Error::raw(ErrorKind::ValueValidation, message).into());
    }
    let settings = args.job_settings()?;
    let mut jobs = JobFile::read(&file.to_string_lossy(), &System, args.lenient)?;
    jobs.select(&args.section)?;
    let named = settings.named_files(&jobs);
    let targets: Vec<&Path> = named.iter().map(|file| model_file(file).unwrap_or(file)).collect();
    let output = Output::new(&args.show, &targets, None)?.in_format(args.format.format)?;
    for warning in &jobs.warnings {
        eprintln!("iopath: {warning}");
    }
    let _interruption = Interruption::catch();
    let mut bar = Bar::new(output.has_fancy_stderr());
    let report = jobs.run(&settings, &mut bar);
    bar.finish();
    show_unless_interrupted(report.map_err(Into::into), &output)
}

/// Shows the results, or that a signal came before the first of them: the process then ends without its usual message.
fn show_unless_interrupted(report: anyhow::Result<Report>, output: &Output) -> anyhow::Result<()> {
    let is_interrupted = |error: &anyhow::Error| {
        let job_file = error.downcast_ref::<JobFileError>();
        let lab = job_file.map_or_else(
            || error.downcast_ref(),
            |error| match error {
                JobFileError::Lab(error) => Some(error),
                _ => None,
            },
        );
        matches!(lab, Some(LabError::Interrupted))
    };
    if let Some(error) = report.as_ref().err().filter(|error| is_interrupted(error)) {
        eprintln!("iopath: {error}");
    }
    show(&report?, output)
}

fn show(report: &Report, output: &Output) -> anyhow::Result<()> {
    for run in &report.runs {
        for warning in &run.warnings {
            match &report.runs[..] {
                [_] => eprintln!("iopath: {warning}"),
                _ => eprintln!("iopath: {}: {warning}", table::name(run)),
            }
        }
    }
    output.present(report)?;
    let verified = report.runs.iter().filter_map(|run| run.verify.as_ref());
    match verified.map(VerifyResult::faults).sum() {
        0 => Ok(()),
        faults => bail!("verify found {faults} faults"),
    }
}
