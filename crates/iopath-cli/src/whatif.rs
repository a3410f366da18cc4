//! `iopath whatif`: replays recorded requests under alternatives, and joins the parts of a study.

use crate::args::{JsonArgs, ShowArgs, WhatIfArgs};
use crate::output::{Output, print};
use crate::shares::of_shard;
use crate::stderr;
use anyhow::Context;
use clap::error::ErrorKind;
use iopath_bench::model_file;
use iopath_bench::own_file::replace_named;
use iopath_lab::whatif::merge;
use iopath_report::shard::Shard;
use std::path::{Path, PathBuf};

pub(crate) fn run(args: &WhatIfArgs) -> anyhow::Result<()> {
    let show = named(&args.show, args.shard);
    let lines = args.json_lines.as_deref().map(|file| of_shard(file, args.shard));
    let on_stdout = lines.as_deref() == Some(Path::new("-"));
    let has_other = show.json.json.as_deref() == Some(Path::new("-")) || args.format.format.is_some();
    if on_stdout && has_other {
        let message = "--json-lines - needs stdout, as --json - and --format do; name a file";
        return Err(clap::Error::raw(ErrorKind::ArgumentConflict, message).into());
    }
    let models = args.target.iter().filter_map(|target| model_file(target));
    let inputs: Vec<&Path> =
        args.inputs.iter().chain(&args.merge_parts).map(PathBuf::as_path).chain(models).collect();
    let file = lines.as_deref().filter(|_| !on_stdout);
    let output = Output::with_lines(&show, &inputs, file)?.in_format(args.format.format)?;
    let report = if args.merge_parts.is_empty() {
        let mut bar = output.bar();
        let report = args.study().run(&mut bar);
        bar.finish();
        report?
    } else {
        merge(&args.merge_parts)?
    };
    for note in report.inputs.iter().flat_map(|input| &input.notes) {
        stderr::note(note);
    }
    if on_stdout {
        return print(&report.to_json_lines());
    }
    if let Some(file) = file {
        replace_named(file, report.to_json_lines().as_bytes()).with_context(|| {
            format!("cannot write the lines to {}; name another file (--json-lines)", file.display())
        })?;
    }
    output.present(&report)
}

/// The arguments with the number of the share in the name of the file.
fn named(args: &ShowArgs, shard: Option<Shard>) -> ShowArgs {
    let json = args.json.json.as_deref().map(|file| of_shard(file, shard));
    ShowArgs { json: JsonArgs { json, force: args.json.force }, no_color: args.no_color, quiet: args.quiet }
}
