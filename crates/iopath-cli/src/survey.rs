//! `iopath survey`: measures a target on every path in a given time, and shows tables and findings.

use crate::args::SurveyArgs;
use crate::output::Output;
use crate::progress::Bar;
use iopath_lab::survey::{SurveyOptions, survey};

pub(crate) fn run(args: &SurveyArgs) -> anyhow::Result<()> {
    let output = Output::new(&args.show, &[&args.target], None)?.in_format(args.format.format)?;
    let options = SurveyOptions {
        target: args.target.clone(),
        time: args.time,
        overwrite: args.overwrite,
        all: args.all,
    };
    let mut bar = Bar::new(output.has_fancy_stderr());
    let surveyed = survey(&options, &mut bar);
    bar.finish();
    let surveyed = surveyed?;
    output.present(&surveyed)
}
