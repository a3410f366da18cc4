//! The command line of `iopath convert`.

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use iopath_trace::{OUTPUTS, Output};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct ConvertArgs {
    /// A request log, or a trace of another program: its format is detected by its content. Of the files of blktrace,
    /// name one: those of the other CPUs are read, too
    #[arg(value_name = "IN")]
    pub(crate) input: PathBuf,
    /// The file to write; - is stdout
    #[arg(value_name = "OUT")]
    pub(crate) output: PathBuf,
    /// The format to write; default: by the ending of OUT (.log, .blktrace.0, .iolog, .csv, .pftrace, .parquet)
    #[arg(long, value_name = "FORMAT", value_parser = output())]
    pub(crate) to: Option<&'static Output>,
    /// Replace an existing file
    #[arg(long)]
    pub(crate) force: bool,
}

fn output() -> impl TypedValueParser<Value = &'static Output> {
    let values = OUTPUTS.iter().map(|output| PossibleValue::new(output.name).help(output.title));
    PossibleValuesParser::new(values).try_map(|name| Output::named(&name).ok_or("no such format"))
}
