//! `iopath run`: one workload, several repeats, a table.

use crate::args::RunArgs;
use crate::output::{Output, print, write_json};
use crate::progress::Bar;
use iopath_lab::result::TargetFacts;
use iopath_lab::{IDLE_SAMPLE, Lab, Place, Report, Rw, Workload, table};

pub(crate) fn run(args: &RunArgs) -> anyhow::Result<()> {
    let workload = workload(args)?;
    let row = workload.check()?;
    let output = Output::of(&args.show);
    let mut bar = Bar::new(output.is_fancy_stderr());
    let place = Place::prepare(&workload, row, &mut bar)?;
    let lab = Lab::new(IDLE_SAMPLE, &mut bar);
    let result = lab.run(&workload, &place, &mut bar)?;
    bar.finish();
    for warning in &result.warnings {
        eprintln!("iopath: {warning}");
    }
    let report = Report::new(lab.host().clone(), TargetFacts::of(&place), vec![result]);
    if !output.is_json_alone() {
        print(&table::table(&report.runs))?;
    }
    write_json(&args.show, &report)
}

fn workload(args: &RunArgs) -> anyhow::Result<Workload> {
    Ok(Workload {
        path: args.path.clone(),
        target: args.target.clone(),
        rw: args.rw.parse::<Rw>()?,
        block_bytes: args.bs,
        io_depth: args.iodepth,
        jobs: args.numjobs,
        size_bytes: args.size,
        runtime: args.runtime,
        io_bytes: None,
        repeat: args.repeat,
        warm: args.warm,
        seed: args.seed,
        rwmixread: args.rwmixread,
        elevator: args.elevator.clone(),
        engine: args.engine.clone(),
        overwrite: args.overwrite,
    })
}
