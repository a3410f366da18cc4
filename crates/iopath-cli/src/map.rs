//! `iopath map`: where a file lies, and which requests a direct read of it becomes.

use crate::args::MapArgs;
use crate::output;
use iopath_lab::map::{MapOptions, map};

pub(crate) fn run(args: &MapArgs) -> anyhow::Result<()> {
    let options =
        MapOptions { file: args.file.clone(), block_bytes: args.bs.clone(), boundary: args.boundary };
    let found = map(&options)?;
    for warning in &found.warnings {
        eprintln!("iopath: {warning}");
    }
    output::print(&if args.json { found.to_json() } else { found.text(args.all) + "\n" })
}
