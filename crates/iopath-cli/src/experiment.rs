//! `iopath experiment`: re-enacts published effects, and shows published and modelled figures.

use crate::args::ExperimentArgs;
use crate::output::Output;
use crate::progress::Bar;
use iopath_lab::experiment::{Selection, experiments};
use iopath_lab::table;

pub(crate) fn run(args: &ExperimentArgs) -> anyhow::Result<()> {
    let output = Output::new(&args.show, args.target.as_deref(), None)?;
    let selection = Selection { ids: args.ids.clone(), set: args.set.clone(), target: args.target.clone() };
    let mut bar = Bar::new(output.has_fancy_stderr());
    let report = experiments(&selection, &mut bar);
    bar.finish();
    let report = report?;
    output.show(|| report.to_json(), &report.text(table::terminal_width()))
}
