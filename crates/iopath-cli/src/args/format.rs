//! The option `--format`: the same on each command that has several formats.

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use iopath_lab::format::{FORMATS, Format};

/// The formats of measurements.
#[derive(Debug, Args)]
pub(crate) struct RunFormat {
    /// The format of the results on stdout; default: table
    #[arg(long, value_parser = formats(true), value_name = "FORMAT")]
    pub(crate) format: Option<&'static Format>,
}

/// The formats of all results.
#[derive(Debug, Args)]
pub(crate) struct GeneralFormat {
    /// The format of the results on stdout; default: table
    #[arg(long, value_parser = formats(false), value_name = "FORMAT")]
    pub(crate) format: Option<&'static Format>,
}

fn formats(is_of_runs: bool) -> impl TypedValueParser<Value = &'static Format> {
    let rows = FORMATS.iter().filter(move |format| is_of_runs || !format.is_of_runs);
    let values: Vec<PossibleValue> =
        rows.map(|format| PossibleValue::new(format.name).help(format.about)).collect();
    PossibleValuesParser::new(values)
        .map(|name| Format::find(&name).expect("each value is the name of a format"))
}
