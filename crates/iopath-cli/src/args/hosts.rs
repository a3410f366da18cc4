//! The options of `iopath run` for the ranks of an MPI program (feature `mpi`).

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use iopath_bench::share::Layout;
use iopath_lab::hosts::Stop;

/// How ranks measure together.
#[derive(Debug, Args)]
#[command(next_help_heading = "Ranks of MPI")]
pub(crate) struct HostArgs {
    /// All ranks access one target: each a range of its own, the blocks in turn, or blocks of the whole range at
    /// random. Default: each rank has the target as if it were alone
    #[arg(long, value_name = "LAYOUT", value_parser = layouts())]
    pub(crate) shared: Option<Layout>,
    /// Each rank accesses the share of a rank of another host, so that it reads nothing back that its own host has
    /// cached
    #[arg(long, requires = "shared")]
    pub(crate) reorder: bool,
    /// When a repetition ends: each rank at its own end, or all with the first rank that ends (a stonewall)
    #[arg(long, value_name = "all|first", default_value = "all", value_parser = stops())]
    pub(crate) stop: Stop,
}

fn layouts() -> impl TypedValueParser<Value = Layout> {
    let values: Vec<PossibleValue> =
        Layout::ALL.iter().map(|(layout, about)| PossibleValue::new(layout.name()).help(*about)).collect();
    PossibleValuesParser::new(values).map(|name| {
        let found = Layout::ALL.iter().find(|(layout, _)| layout.name() == name);
        found.expect("each value is the name of a layout").0
    })
}

fn stops() -> impl TypedValueParser<Value = Stop> {
    PossibleValuesParser::new(["all", "first"]).map(|name| match name.as_str() {
        "first" => Stop::First,
        _ => Stop::All,
    })
}
