//! The consequences of an error: the exit code, the message, and whether a signal is its cause. Each crate and campaign
//! has its own type of error; this file has the list of them.

use iopath_bench::BenchError;
use iopath_bench::device_settings::SettingsError;
use iopath_experiments::ExperimentError;
use iopath_fio::JobFileError;
use iopath_lab::compare::CompareError;
use iopath_lab::fit::FitError;
use iopath_lab::map::MapError;
use iopath_lab::record::RecordError;
use iopath_lab::replay::ReplayError;
use iopath_lab::serve::ServeError;
use iopath_lab::survey::SurveyError;
use iopath_lab::sweep::SweepError;
use iopath_lab::tune::TuneError;
use iopath_lab::whatif::WhatIfError;
use iopath_report::UnknownName;

/// Exit codes: invalid arguments (2), or any other failure (1). A comparison has further ones (`compare.rs`).
pub(crate) const FAILURE: u8 = 1;
pub(crate) const USAGE: u8 = 2;

/// The error of a failed measurement, where that is the cause.
pub(crate) fn bench(error: &anyhow::Error) -> Option<&BenchError> {
    macro_rules! first {
        ($($type:ty),+) => {
            error.downcast_ref()$(.or_else(|| error.downcast_ref::<$type>().and_then(<$type>::bench)))+
        };
    }
    first!(
        JobFileError,
        ExperimentError,
        FitError,
        MapError,
        ReplayError,
        SurveyError,
        SweepError,
        TuneError,
        WhatIfError
    )
}

/// Whether the arguments are invalid on every machine and target.
pub(crate) fn is_usage(error: &anyhow::Error) -> bool {
    macro_rules! any {
        ($($type:ty),+) => {
            $(error.downcast_ref::<$type>().is_some_and(<$type>::is_usage))||+
        };
    }
    any!(
        BenchError,
        CompareError,
        ExperimentError,
        FitError,
        JobFileError,
        MapError,
        RecordError,
        ReplayError,
        ServeError,
        SettingsError,
        SurveyError,
        SweepError,
        TuneError,
        WhatIfError
    ) || error.is::<UnknownName>()
}

/// Whether a signal ended the work before it had a result.
pub(crate) fn is_interruption(error: &anyhow::Error) -> bool {
    matches!(bench(error), Some(BenchError::Interrupted))
}
