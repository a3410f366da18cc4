//! `iopath survey`: measures a target every way in a given time, tables and findings.

use crate::args::SurveyArgs;
use crate::output::{Output, print, write_json};
use crate::progress::Bar;
use iopath_lab::survey::{SurveyOptions, survey};

pub(crate) fn run(args: &SurveyArgs) -> anyhow::Result<()> {
    let output = Output::of(&args.show);
    let options = SurveyOptions { target: args.target.clone(), time: args.time, overwrite: args.overwrite };
    let mut bar = Bar::new(output.is_fancy_stderr());
    let surveyed = survey(&options, &mut bar);
    bar.finish();
    let surveyed = surveyed?;
    if !output.is_json_alone() {
        print(&surveyed.text(output.is_fancy_stdout()))?;
    }
    write_json(&args.show, &surveyed.report)
}
