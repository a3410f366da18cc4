//! A job of a job file: its name, its line and its settings. The options of `iopath-bench` set them; `members.rs` makes
//! workloads of them.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::{At, JobFileError};
use iopath_bench::export::is_remote;
use iopath_bench::model::is_model;
use iopath_bench::options::{Settings, SteadyKey, key_of};
use iopath_bench::path::Pages;
use iopath_bench::refusal::WorkloadError;
use iopath_bench::steady::{Limit, SteadyMetric, SteadyState};
use iopath_bench::workload::{AccessHint, LatencyFrom};

/// A job: what one section says, after the defaults of the `[global]` sections before it.
#[derive(Debug, Clone)]
pub struct Job {
    /// The line of the section.
    pub at: At,
    /// The values of its keys.
    pub settings: Settings,
    /// The keys that were applied, by their first names, and their values, in their order; a bare key has the value 1.
    pub(super) given: Vec<[String; 2]>,
    /// Those of the defaults before it, which all jobs after them share.
    inherited: Arc<[[String; 2]]>,
    /// The last values of keys that are out of the range of a workload, each with the first name of its key. They
    /// matter only if the job runs.
    pub(super) out_of_range: BTreeMap<&'static str, WorkloadError>,
}

impl Deref for Job {
    type Target = Settings;

    fn deref(&self) -> &Settings {
        &self.settings
    }
}

impl DerefMut for Job {
    fn deref_mut(&mut self) -> &mut Settings {
        &mut self.settings
    }
}

/// fio's default of `steadystate`.
const STEADY: SteadyKey =
    SteadyKey { metric: SteadyMetric::Iops, is_slope: true, limit: Limit::Percent(0.01) };

impl Job {
    /// A job with the defaults of fio.
    pub(super) fn new(name: String, at: At) -> Self {
        let mut settings = Settings { name, ..Settings::default() };
        // As in fio; a run without a job file has the memory and the hints of most programs.
        settings.workload.access_hint = AccessHint::Pattern;
        settings.workload.drops_each_pass = true;
        settings.workload.latency_from = LatencyFrom::Submission;
        settings.workload.batch.submit_max = NonZeroU32::new(1);
        settings.workload.controls.thread.pages = Pages::Ordinary;
        Self { at, settings, given: Vec::new(), inherited: Arc::default(), out_of_range: BTreeMap::new() }
    }

    /// Begins as the job of a section, with the values so far as defaults.
    pub(super) fn begin(&mut self, name: String, at: At) {
        self.settings.name = name;
        self.at = at;
    }

    /// Makes the values so far defaults.
    pub(super) fn inherit(&mut self) {
        if !self.given.is_empty() {
            self.inherited = self.options().into();
            self.given.clear();
        }
    }

    /// The keys that were applied and their values, with those of `[global]`, in their order.
    pub(super) fn options(&self) -> Vec<[String; 2]> {
        self.inherited.iter().chain(&self.given).cloned().collect()
    }

    /// The directory of the files of a clone.
    pub(super) fn directory(&self, clone: u64) -> PathBuf {
        let index = clone as usize % self.directories.len().max(1);
        self.directories.get(index).map_or_else(|| PathBuf::from("."), PathBuf::from)
    }

    /// A file that a clone names. As in fio, its directory and its name are joined as texts: with a directory, an
    /// absolute name is also in it.
    pub(super) fn file(&self, name: &str, clone: u64) -> PathBuf {
        if self.directories.is_empty() || is_remote(Path::new(name)) || is_model(Path::new(name)) {
            return PathBuf::from(name);
        }
        let mut file = self.directory(clone).into_os_string();
        file.push("/");
        file.push(name);
        file.into()
    }

    /// The name of a file of a clone whose job names none: `filename_format`, as in fio.
    pub(super) fn own_file_name(&self, clone: u64, number: u64) -> String {
        let format = self.name_format.as_deref().unwrap_or("$jobname.$jobnum.$filenum");
        let name = self.name.replace('/', "_");
        let known = [("$jobname", name), ("$jobnum", clone.to_string()), ("$filenum", number.to_string())];
        let name = known.iter().fold(format.to_owned(), |name, (key, value)| name.replace(key, value));
        name.replace("$clientuid", "localhost")
    }

    /// Whether it names a model, in virtual time.
    pub(super) fn is_on_model(&self) -> bool {
        matches!(&self.files[..], [file] if is_model(Path::new(file)))
    }

    /// The criterion that ends the job; none without a window, which is fio's default.
    pub(super) fn steady_state(&self) -> Option<SteadyState> {
        // As in fio, the criterion has no effect without a window.
        let window = self.steady_window.filter(|window| !window.is_zero())?;
        let given = self.steady.unwrap_or(STEADY);
        let settings = SteadyState {
            metric: given.metric,
            window,
            interval: self.steady_interval,
            ramp: self.steady_ramp,
            deviation: (!given.is_slope).then_some(given.limit),
            slope: None,
        };
        // The limit of fio is the change from one sample to the next one.
        let distances = settings.samples().saturating_sub(1) as f64;
        let slope = given.is_slope.then(|| given.limit.times(distances));
        Some(SteadyState { slope, ..settings })
    }

    /// Checks the ranges of the values.
    pub(super) fn check_ranges(&self) -> Result<(), JobFileError> {
        self.out_of_range.values().next().map_or(Ok(()), |error| Err(self.refused(error)))
    }

    /// The error of a workload that its path or target refuses, with the names of keys.
    pub(super) fn refused(&self, error: &WorkloadError) -> JobFileError {
        self.problem(error.message(key_of))
    }

    /// An error of keys that are not valid together.
    pub(super) fn problem(&self, problem: impl Into<String>) -> JobFileError {
        JobFileError::Job { at: self.at.clone(), job: self.name.clone(), problem: problem.into() }
    }
}
