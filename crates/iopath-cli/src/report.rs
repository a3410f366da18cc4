//! `iopath report`: writes results and request logs as one HTML page.

use crate::args::ReportArgs;
use crate::destination::{self, Destination, is_stdout};
use crate::output::print;
use anyhow::Context;
use iopath_bench::own_file::replace_named;
use iopath_lab::compare::compare_for_page;
use iopath_report::html::{PageOptions, page};
use std::path::{Path, PathBuf};

pub(crate) fn run(args: &ReportArgs) -> anyhow::Result<()> {
    let ReportArgs { results, output, title, threshold, vary, force } = args;
    let options = PageOptions {
        files: results.clone(),
        title: title.clone(),
        threshold: *threshold,
        vary: vary.clone(),
        compare: compare_for_page,
    };
    if is_stdout(output) {
        return print(&page(&options)?);
    }
    let destination = Destination::page(output, *force);
    // The page must not replace a result that it shows.
    let inputs: Vec<&Path> = results.iter().map(PathBuf::as_path).collect();
    destination::check(&[destination], &inputs)?;
    replace_named(output, page(&options)?.as_bytes()).with_context(|| destination.cannot_write())
}
