//! `iopath tune`: shows, sets and restores the settings of a block device. At the start of every command, the settings
//! of killed processes are restored.

use crate::args::TuneArgs;
use crate::output::{Output, note_interruption, print};
use crate::stderr::{note, plain};
use anyhow::bail;
use iopath_bench::Interruption;
use iopath_bench::device_settings::{
    Change, Leftover, SettingsDevice, SettingsError, restore_all, restore_killed,
};
use iopath_fio::{JobFile, System};
use iopath_lab::tune::{JobWorkload, Limits, OneWorkload, candidates, set, settings_report, try_settings};
use std::path::Path;
use std::process::ExitCode;

/// A setting was not restored.
const FAILURE: u8 = 1;

pub(crate) fn run(args: &TuneArgs) -> anyhow::Result<ExitCode> {
    if args.restore {
        return restore(args.device.as_deref());
    }
    restore_after_kill();
    let output = Output::new(&args.show, &[], None)?.in_format(args.format.format)?;
    let device = args.device.as_deref().expect("the device is required without --restore");
    if args.trial {
        return try_candidates(args, device, &output);
    }
    let changes = Change::parse_all(&args.changes)?;
    let report = if changes.is_empty() {
        settings_report(&SettingsDevice::find(device)?)
    } else {
        let mut notes = Vec::new();
        let report = set(device, &changes, args.keep, &mut notes);
        notes.iter().for_each(note);
        report?
    };
    output.present(&report)?;
    Ok(ExitCode::SUCCESS)
}

/// Measures candidates on the workload after `--`.
fn try_candidates(args: &TuneArgs, device: &Path, output: &Output) -> anyhow::Result<ExitCode> {
    let run = args.run_args()?;
    let device = SettingsDevice::find(device)?;
    let candidates = candidates(&device, &args.changes)?;
    // Dropped after the results are shown: then the signal ends the process.
    let _interruption = Interruption::catch();
    let limits = Limits { pairs_max: args.repetitions_max, threshold: args.threshold, seed: args.seed };
    let mut bar = output.bar();
    let report = if let Some(file) = &run.jobfile {
        let settings = run.job_settings()?;
        let mut jobs = JobFile::read(&file.to_string_lossy(), &System, run.lenient)?;
        jobs.select(&run.section)?;
        let mut workload = JobWorkload::new(&jobs, &settings, &device)?;
        try_settings(device, &candidates, &limits, &mut workload, &mut bar)
    } else {
        let mut workload = OneWorkload::new(&run.options.workload()?, &device, &mut bar)?;
        try_settings(device, &candidates, &limits, &mut workload, &mut bar)
    };
    bar.finish();
    let report = report.map_err(Into::into).inspect_err(note_interruption)?;
    report.notes.iter().for_each(note);
    output.present(&report)?;
    match &report.failure {
        Some(failure) => bail!("{failure}; the results have the measurements before it"),
        None => Ok(ExitCode::SUCCESS),
    }
}

fn restore(device: Option<&Path>) -> anyhow::Result<ExitCode> {
    let found = match device.map(SettingsDevice::find) {
        Some(Err(error)) => return Err(error.into()),
        found => found.and_then(Result::ok),
    };
    let outcomes = restore_all(found.as_ref());
    let mut failed = false;
    for outcome in &outcomes {
        match outcome {
            Leftover::Restored { .. } | Leftover::Obsolete { .. } => {
                print(&format!("{}\n", plain(&outcome.to_string())))?;
            }
            Leftover::Damaged { .. } | Leftover::Failed(_) => {
                failed = true;
                note(outcome);
            }
        }
    }
    if outcomes.is_empty() {
        print("nothing to restore\n")?;
    }
    Ok(if failed { ExitCode::from(FAILURE) } else { ExitCode::SUCCESS })
}

/// Restores the settings that killed processes left changed, with a line for each device.
pub(crate) fn restore_after_kill() {
    for outcome in restore_killed() {
        // Without the rights to restore them, a later command of the administrator does.
        if !matches!(outcome, Leftover::Failed(SettingsError::State { .. })) {
            note(outcome);
        }
    }
}
