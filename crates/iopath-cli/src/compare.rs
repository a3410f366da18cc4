//! `iopath compare`: compares results or commands, shows the verdict, and ends with exit code 3 on a regression.

use crate::args::CompareArgs;
use crate::output::Output;
use crate::stderr::note;
use anyhow::Context;
use iopath_bench::own_file::replace_own;
use iopath_lab::compare::{Execution, LiveEnd, compare_files, compare_live, input_files};
use iopath_report::compare::Comparison;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// B is significantly worse than A.
const REGRESSION: u8 = 3;

/// The exit code with `--strict` if a workload has no verdict.
const INCONCLUSIVE: u8 = 4;

/// A shell adds the signal's number to this for a process that a signal ended.
const SIGNALLED: i32 = 128;

pub(crate) fn run(args: &CompareArgs) -> anyhow::Result<ExitCode> {
    if !args.live {
        // The JSON of a comparison must not replace a result that it reads.
        let mut inputs = input_files(&args.a)?;
        inputs.extend(input_files(&args.b)?);
        let inputs: Vec<&Path> = inputs.iter().map(PathBuf::as_path).collect();
        let output = Output::new(&args.show, &inputs, None)?.in_format(args.format.format)?;
        let comparison = compare_files(&args.options())?;
        output.present(&comparison)?;
        return Ok(code(&comparison, args.strict));
    }
    let output = Output::new(&args.show, &[], None)?.in_format(args.format.format)?;
    let mut bar = output.bar();
    let end = compare_live(&args.live_options()?, &mut bar);
    bar.finish();
    let LiveEnd { comparison, error, signal, executions } = end?;
    if let Some(file) = &args.times {
        let written = replace_own(file, times(&executions).as_bytes(), args.show.json.force);
        written.with_context(|| format!("cannot write {}", file.display()))?;
    }
    // What was measured is shown in any case.
    if let Some(comparison) = &comparison {
        output.present(comparison)?;
    }
    if let Some(error) = error {
        return Err(error.into());
    }
    if let Some(signal) = signal {
        let pairs =
            comparison.as_ref().and_then(|comparison| comparison.live.as_ref()).map_or(0, |live| live.pairs);
        let unit = if args.others.is_empty() { "pairs" } else { "rounds" };
        note(format_args!("interrupted after {pairs} {unit}"));
        return Ok(ExitCode::from(u8::try_from(SIGNALLED + signal).unwrap_or(1)));
    }
    Ok(comparison.map_or(ExitCode::SUCCESS, |comparison| code(&comparison, args.strict)))
}

/// The wall times as CSV.
fn times(executions: &[Execution]) -> String {
    let mut csv = "execution,side,seconds\n".to_owned();
    for (number, Execution { side, seconds }) in (1..).zip(executions) {
        let _ = writeln!(csv, "{number},{side},{seconds:.9}");
    }
    csv
}

fn code(comparison: &Comparison, is_strict: bool) -> ExitCode {
    if comparison.regression {
        ExitCode::from(REGRESSION)
    } else if is_strict && !comparison.is_conclusive() {
        ExitCode::from(INCONCLUSIVE)
    } else {
        ExitCode::SUCCESS
    }
}
