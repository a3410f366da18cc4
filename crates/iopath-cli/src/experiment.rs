//! `iopath experiment`: runs experiments, and shows published and modelled figures.

use crate::args::ExperimentArgs;
use crate::output::Output;
use clap::error::ErrorKind;
use iopath_experiments::{Experiment, Selection, experiments};
use std::path::Path;

pub(crate) fn run(args: &ExperimentArgs) -> anyhow::Result<()> {
    check_json(args)?;
    let output =
        Output::new(&args.show, args.target.as_deref().as_slice(), None)?.in_format(args.format.format)?;
    let selection = Selection { ids: args.ids.clone(), set: args.set.clone(), target: args.target.clone() };
    let mut bar = output.bar();
    let report = experiments(&selection, &mut bar);
    bar.finish();
    let report = report?;
    output.present(&report)
}

/// Refuses `--json ID`. The option takes the next argument as its file, so all experiments would run, and the results
/// would go to a file with the name of the experiment.
fn check_json(args: &ExperimentArgs) -> Result<(), clap::Error> {
    let file = args.show.json.json.as_deref().and_then(Path::to_str);
    let Some(id) = file.filter(|name| Experiment::find(name).is_ok()) else { return Ok(()) };
    let message = format!(
        "--json takes the name of a file, and {id} is an experiment; write --json after {id}, or name the file ./{id}"
    );
    Err(clap::Error::raw(ErrorKind::ValueValidation, message))
}
