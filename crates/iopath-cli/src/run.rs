//! `iopath run`: one workload, several repeats, a table.

use crate::args::RunArgs;
use crate::output::Output;
use crate::progress::Bar;
use iopath_lab::{CacheSettings, Workload, table};

pub(crate) fn run(args: &RunArgs) -> anyhow::Result<()> {
    let output = Output::new(&args.show, args.target.as_deref(), args.log.as_deref())?;
    let mut bar = Bar::new(output.has_fancy_stderr());
    let report = iopath_lab::report(&workload(args), &mut bar);
    bar.finish();
    let report = report?;
    for warning in report.runs.iter().flat_map(|run| &run.warnings) {
        eprintln!("iopath: {warning}");
    }
    output.show(&report, &table::table(&report.runs, table::terminal_width()))
}

fn workload(args: &RunArgs) -> Workload {
    Workload {
        path: args.path.clone(),
        target: args.target.clone(),
        rw: args.rw,
        block_bytes: args.bs,
        io_depth: args.iodepth,
        jobs: args.numjobs,
        size_bytes: args.size,
        runtime: args.runtime,
        io_bytes: None,
        repeat: args.repeat,
        warm: args.warm,
        latency_every: args.latency_every,
        seed: args.seed,
        rwmixread: args.rwmixread,
        elevator: args.elevator.clone(),
        engine: args.engine.clone(),
        cache: CacheSettings {
            cache_bytes: args.cache,
            page_bytes: args.page,
            readahead: args.readahead,
            borrow: args.borrow,
        },
        log: args.log.clone(),
        log_limit_bytes: args.log_limit,
        overwrite: args.overwrite,
    }
}
