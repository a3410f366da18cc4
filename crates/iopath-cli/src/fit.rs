//! `iopath fit`: fits a model to a target or a request log, writes its file, and shows its error.

use crate::args::FitArgs;
use crate::output::Output;
use crate::progress::Bar;
use anyhow::Context;
use iopath_lab::fit::{FitOptions, fit};
use iopath_lab::model_file;
use std::fs;

pub(crate) fn run(args: &FitArgs) -> anyhow::Result<()> {
    let source = model_file(&args.source).unwrap_or(&args.source);
    let output = Output::with_model(&args.show, Some(source), &args.output)?;
    let options = FitOptions { source: args.source.clone(), time: args.time, overwrite: args.overwrite };
    let mut bar = Bar::new(output.has_fancy_stderr());
    let fitted = fit(&options, &mut bar);
    bar.finish();
    let fitted = fitted?;
    for warning in &fitted.report.warnings {
        eprintln!("iopath: {warning}");
    }
    fs::write(&args.output, &fitted.file).with_context(|| {
        format!("cannot write the model to {}; name another file (--output)", args.output.display())
    })?;
    let hint = format!("\n\nWritten to {0}; use it as --target model:{0}", args.output.display());
    output.show(|| fitted.report.to_json(), &(fitted.report.text() + &hint))
}
