//! The option `--format`: the same on each command that has several formats.

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use iopath_report::format::{FORMATS, Format};

/// The formats of measurements.
#[derive(Debug, Args)]
pub(crate) struct RunFormat {
    /// The format of the results on stdout; default: table
    #[arg(long, value_parser = formats(|_| true), value_name = "FORMAT")]
    pub(crate) format: Option<&'static Format>,
}

/// The formats of all results.
#[derive(Debug, Args)]
pub(crate) struct GeneralFormat {
    /// The format of the results on stdout; default: table
    #[arg(long, value_parser = formats(|format| !format.is_of_runs), value_name = "FORMAT")]
    pub(crate) format: Option<&'static Format>,
}

/// The formats of sweeps: the general ones, and the table of block sizes.
#[derive(Debug, Args)]
pub(crate) struct SweepFormat {
    /// The format of the results on stdout; default: table
    #[arg(long, value_parser = formats(|format| !format.is_of_runs || format.name == PERFTEST), value_name = "FORMAT")]
    pub(crate) format: Option<&'static Format>,
}

/// The classic table: a sweep has one for each combination of its other lists.
pub(crate) const PERFTEST: &str = "perftest";

fn formats(is_shown: impl Fn(&Format) -> bool) -> impl TypedValueParser<Value = &'static Format> {
    let rows = FORMATS.iter().filter(|format| is_shown(format));
    let values: Vec<PossibleValue> =
        rows.map(|format| PossibleValue::new(format.name).help(format.about)).collect();
    PossibleValuesParser::new(values)
        .map(|name| Format::find(&name).expect("each value is the name of a format"))
}
