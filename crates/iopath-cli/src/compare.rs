//! `iopath compare`: compares results or commands, shows the verdict, and ends with exit code 3 on a regression.

use crate::args::CompareArgs;
use crate::output::Output;
use crate::progress::Bar;
use iopath_lab::compare::{Comparison, LiveEnd, compare_files, compare_live, input_files};
use iopath_lab::{LabError, table};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// B is significantly worse than A.
const REGRESSION: u8 = 3;

/// A shell adds the signal's number to this for a process that a signal ended.
const SIGNALLED: i32 = 128;

pub(crate) fn run(args: &CompareArgs) -> anyhow::Result<ExitCode> {
    if !args.live {
        // The JSON of a comparison must not replace a result that it reads.
        let mut inputs = input_files(&args.a).map_err(LabError::from)?;
        inputs.extend(input_files(&args.b).map_err(LabError::from)?);
        let inputs: Vec<&Path> = inputs.iter().map(PathBuf::as_path).collect();
        let output = Output::new(&args.show, &inputs, None)?;
        let comparison = compare_files(&args.options()).map_err(LabError::from)?;
        output.show(|| comparison.to_json(), &comparison.text(table::terminal_width()))?;
        return Ok(code(&comparison));
    }
    let output = Output::new(&args.show, &[], None)?;
    let mut bar = Bar::new(output.has_fancy_stderr());
    let end = compare_live(&args.options(), &args.limits(), &mut bar);
    bar.finish();
    let LiveEnd { comparison, error, signal } = end.map_err(LabError::from)?;
    // What was measured is shown in any case.
    if let Some(comparison) = &comparison {
        output.show(|| comparison.to_json(), &comparison.text(table::terminal_width()))?;
    }
    if let Some(error) = error {
        return Err(LabError::from(error).into());
    }
    if let Some(signal) = signal {
        let pairs = comparison.and_then(|comparison| comparison.live).map_or(0, |live| live.pairs);
        eprintln!("iopath: interrupted after {pairs} pairs");
        return Ok(ExitCode::from(u8::try_from(SIGNALLED + signal).unwrap_or(1)));
    }
    Ok(comparison.as_ref().map_or(ExitCode::SUCCESS, code))
}

fn code(comparison: &Comparison) -> ExitCode {
    if comparison.regression { ExitCode::from(REGRESSION) } else { ExitCode::SUCCESS }
}
