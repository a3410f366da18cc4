//! `iopath replay`: replays a trace in real time, and compares recorded and measured latencies.

use crate::args::ReplayArgs;
use crate::output::{Output, note_interruption};
use crate::stderr::note;
use anyhow::bail;
use iopath_bench::{Interruption, model_file};
use iopath_lab::replay::replay;
use iopath_report::numbers::counted;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

pub(crate) fn run(args: &ReplayArgs) -> anyhow::Result<()> {
    let request = args.request()?;
    // The results must replace neither the trace nor a target.
    let targets = args.target.iter().map(|target| model_file(target).unwrap_or(target));
    let files: Vec<&Path> = targets.chain([args.trace.as_path()]).collect();
    let identity = |path: &Path| std::fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
    let trace = identity(&args.trace);
    if !args.reads_only && trace.is_some() && args.target.iter().any(|target| identity(target) == trace) {
        let name = args.trace.display();
        bail!("{name} is the trace: name another target, or replay the reads alone (--reads-only)");
    }
    let output = Output::new(&args.show, &files, args.log.as_deref())?.in_format(args.format.format)?;
    // Dropped after the results are shown: then the signal ends the process.
    let _interruption = Interruption::catch();
    let mut bar = output.bar();
    let report = replay(&request, &mut bar);
    bar.finish();
    let report = report.map_err(Into::into).inspect_err(note_interruption)?;
    report.warnings.iter().for_each(note);
    let shown = output.present(&report);
    if let Some(failure) = &report.failure {
        bail!("{failure}; the results have the I/Os before it");
    }
    let first = report.devices.iter().find_map(|device| device.errors.first());
    match first {
        None => shown,
        Some(error) => bail!("{} failed; the first: {}", counted(report.failed(), "I/O"), error.first),
    }
}
