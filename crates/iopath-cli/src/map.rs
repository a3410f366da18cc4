//! `iopath map`: the extents of a file, and the requests of direct reads.

use crate::args::MapArgs;
use crate::output::Json;
use iopath_lab::map::{MapOptions, map};

pub(crate) fn run(args: &MapArgs) -> anyhow::Result<()> {
    let json = Json::new(&args.json, &[&args.file], None)?;
    let options =
        MapOptions { file: args.file.clone(), block_bytes: args.bs.clone(), boundary: args.boundary };
    let map = map(&options)?;
    for warning in &map.warnings {
        eprintln!("iopath: {warning}");
    }
    json.show(|| map.to_json(), &map.text(args.all))
}
