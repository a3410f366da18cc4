//! `iopath map`: the extents of a file, and the requests of direct reads.

use crate::args::MapArgs;
use crate::output::Output;
use crate::stderr::note;
use iopath_lab::map::{MapOptions, map};
use iopath_report::format::{Medium, text};

pub(crate) fn run(args: &MapArgs) -> anyhow::Result<()> {
    let output = Output::plain(&args.json, &[&args.file])?.in_format(args.format.format)?;
    let options =
        MapOptions { file: args.file.clone(), block_bytes: args.bs.clone(), boundary: args.boundary };
    let map = map(&options)?;
    map.warnings.iter().for_each(note);
    output.present_as(&map, || text::render(&map.parts(Medium::Text, args.all), output.view()))
}
