//! `iopath run`: measures one workload with repetitions, and shows a table.

use crate::args::RunArgs;
use crate::output::Output;
use crate::progress::Bar;
use iopath_lab::{model_file, table};

pub(crate) fn run(args: &RunArgs) -> anyhow::Result<()> {
    // The file of a model is no destination either.
    let targets: Vec<_> = args.target.iter().map(|target| model_file(target).unwrap_or(target)).collect();
    let output = Output::new(&args.show, &targets, args.log.as_deref())?;
    let workload = args.workload()?;
    let mut bar = Bar::new(output.has_fancy_stderr());
    let report = iopath_lab::report(&workload, &mut bar);
    bar.finish();
    let report = report?;
    for warning in report.runs.iter().flat_map(|run| &run.warnings) {
        eprintln!("iopath: {warning}");
    }
    output.show(|| report.to_json(), &table::table(&report.runs, table::terminal_width()))
}
