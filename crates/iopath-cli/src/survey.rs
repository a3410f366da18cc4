//! `iopath survey`: measures a target on every path in a given time, and shows tables and findings.

use crate::args::SurveyArgs;
use crate::output::{Output, note_interruption};
use anyhow::bail;
use iopath_bench::Interruption;
use iopath_lab::survey::{SurveyOptions, survey};

pub(crate) fn run(args: &SurveyArgs) -> anyhow::Result<()> {
    let output = Output::new(&args.show, &[&args.target], None)?.in_format(args.format.format)?;
    let options = SurveyOptions {
        target: args.target.clone(),
        time: args.time,
        overwrite: args.overwrite,
        all: args.all,
        explain: args.explain,
    };
    // Dropped after the results are shown: then the signal ends the process.
    let _interruption = Interruption::catch();
    let mut bar = output.bar();
    let surveyed = survey(&options, &mut bar);
    bar.finish();
    let surveyed = surveyed.map_err(Into::into).inspect_err(note_interruption)?;
    let shown = output.present(&surveyed);
    match &surveyed.report.failure {
        Some(failure) => bail!("{failure}; the results have the measurements before it"),
        None => shown,
    }
}
