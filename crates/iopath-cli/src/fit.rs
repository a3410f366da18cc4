//! `iopath fit`: fits a model to a target or a request log, writes its file, and shows its error.

use crate::args::FitArgs;
use crate::output::Output;
use crate::stderr::note;
use anyhow::Context;
use iopath_bench::own_file::replace_named;
use iopath_bench::{before_end, model_file};
use iopath_lab::fit::{FitOptions, fit};
use iopath_report::format::{Document, View};
use iopath_report::terminal;
use std::fmt::Write;
use std::path::Path;

pub(crate) fn run(args: &FitArgs) -> anyhow::Result<()> {
    let source = model_file(&args.source).unwrap_or(&args.source);
    let output = Output::with_model(&args.show, source, &args.output)?.in_format(args.format.format)?;
    let options = FitOptions { source: args.source.clone(), time: args.time, overwrite: args.overwrite };
    before_end(say_no_model);
    let mut bar = output.bar();
    let fitted = fit(&options, &mut bar);
    bar.finish();
    let fitted = fitted?;
    fitted.report.warnings.iter().for_each(note);
    let written = replace_named(&args.output, fitted.file.as_bytes()).with_context(|| {
        format!("cannot write the model to {}; name another file (--output)", args.output.display())
    });
    let mut text = fitted.report.text(View::plain(Some(terminal::terminal_width())));
    if written.is_ok() {
        let (file, target) = (args.output.display(), target_of(&args.output));
        let _ = write!(text, "\n\nWritten to {file}; use it as --target {target}");
    }
    // The report is shown even if the file cannot be written, because the fit took long.
    output.present_as(&fitted.report, || text)?;
    written
}

/// A part of the measurements gives no model.
fn say_no_model() {
    note("interrupted: no model was written");
}

/// The value of `--target` for a model file. Without a directory and without `.toml`, the name would be that of a
/// preset.
fn target_of(file: &Path) -> String {
    let target = format!("model:{}", file.display());
    if model_file(Path::new(&target)).is_some() { target } else { format!("model:./{}", file.display()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_target_of_a_model_file_is_that_file() {
        for (file, expected) in [
            ("my.toml", "model:my.toml"),
            ("/tmp/mine", "model:/tmp/mine"),
            ("mine", "model:./mine"),
            ("model:cloud", "model:./model:cloud"),
        ] {
            let target = target_of(Path::new(file));
            assert_eq!(target, expected);
            assert!(model_file(Path::new(&target)).is_some_and(|named| named.ends_with(file)), "{target}");
        }
    }
}
