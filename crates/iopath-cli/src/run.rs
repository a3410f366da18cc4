//! `iopath run`: measures one workload with repetitions, and shows a table.

use crate::args::RunArgs;
use crate::output::Output;
use crate::progress::Bar;
use iopath_lab::table;

pub(crate) fn run(args: &RunArgs) -> anyhow::Result<()> {
    let output = Output::new(&args.show, args.target.as_deref(), args.log.as_deref())?;
    let workload = args.workload()?;
    let mut bar = Bar::new(output.has_fancy_stderr());
    let report = iopath_lab::report(&workload, &mut bar);
    bar.finish();
    let report = report?;
    for warning in report.runs.iter().flat_map(|run| &run.warnings) {
        eprintln!("iopath: {warning}");
    }
    output.show(&report, &table::table(&report.runs, table::terminal_width()))
}
