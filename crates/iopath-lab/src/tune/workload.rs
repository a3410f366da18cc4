//! The workloads of `iopath tune --try`: one workload, or a job file. Does not change settings.

use super::error::TuneError;
use super::trial::Measure;
use iopath_bench::device_settings::SettingsDevice;
use iopath_bench::device_settings::SettingsError;
use iopath_bench::error::BenchError;
use iopath_bench::model::is_model;
use iopath_bench::progress::{Progress, Silent};
use iopath_bench::run::{IDLE_SAMPLE, Lab};
use iopath_bench::signals::Interruption;
use iopath_bench::target::Target;
use iopath_bench::workload::{Repetitions, Workload};
use iopath_fio::{JobFile, JobFileError, RunSettings};

/// One workload on one target, prepared once.
#[derive(Debug)]
pub struct OneWorkload {
    workload: Workload,
    target: Target,
    lab: Lab,
}

impl OneWorkload {
    /// Prepares the target.
    ///
    /// # Errors
    /// [`TuneError`]: the workload is refused, or its target is not on the device.
    pub fn new(
        workload: &Workload,
        device: &SettingsDevice,
        progress: &mut dyn Progress,
    ) -> Result<Self, TuneError> {
        let workload = Workload { repetitions: Repetitions::constant(1), ..workload.clone() };
        workload.check().map_err(BenchError::from)?;
        if let Some(target) = &workload.target {
            check_place(device, target)?;
        }
        let target = Target::prepare(&workload, progress)?;
        Ok(Self { workload, target, lab: Lab::new(IDLE_SAMPLE, progress) })
    }
}

impl Measure for OneWorkload {
    fn unit(&self) -> &'static str {
        // A rate fixes the throughput; the latency shows whether the storage keeps up.
        if self.workload.rate.is_some() { "1/s at p99" } else { "MB/s" }
    }

    fn measure(&mut self) -> Result<f64, TuneError> {
        let run = self.lab.run(&self.workload, &self.target, &mut Silent)?;
        Ok(match self.workload.rate {
            Some(_) => 1e9 / run.latency_ns.p99.max(1) as f64,
            None => run.bytes_per_second.mean / 1e6,
        })
    }
}

/// The jobs of a file, which prepare their targets for each measurement.
#[derive(Debug)]
pub struct JobWorkload<'a> {
    jobs: &'a JobFile,
    settings: &'a RunSettings,
}

impl<'a> JobWorkload<'a> {
    /// Checks the places of the files.
    ///
    /// # Errors
    /// [`TuneError`]: a file is not on the device.
    pub fn new(
        jobs: &'a JobFile,
        settings: &'a RunSettings,
        device: &SettingsDevice,
    ) -> Result<Self, TuneError> {
        for file in settings.named_files(jobs) {
            // A file that the job creates lies in a directory that exists.
            let place = if file.exists() { Some(file.as_path()) } else { file.parent() };
            check_place(device, place.filter(|place| !place.as_os_str().is_empty()).unwrap_or(".".as_ref()))?;
        }
        Ok(Self { jobs, settings })
    }
}

impl Measure for JobWorkload<'_> {
    fn unit(&self) -> &'static str {
        "MB/s"
    }

    fn measure(&mut self) -> Result<f64, TuneError> {
        let report = self.jobs.run(self.settings, &mut Silent)?;
        if let Some(failure) = report.failure {
            return Err(JobFileError::Failed(failure).into());
        }
        // The results of a part of the groups are not comparable.
        if Interruption::is_requested() {
            return Err(BenchError::Interrupted.into());
        }
        let (bytes, seconds) = match &report.groups[..] {
            [] => report
                .runs
                .iter()
                .fold((0, 0.0), |(bytes, seconds), run| (bytes + run.bytes, seconds + run.seconds)),
            groups => groups
                .iter()
                .fold((0, 0.0), |(bytes, seconds), group| (bytes + group.bytes, seconds + group.seconds)),
        };
        Ok(bytes as f64 / seconds / 1e6)
    }
}

/// Refuses a target that is not on the device: its settings would have no effect.
fn check_place(device: &SettingsDevice, target: &std::path::Path) -> Result<(), SettingsError> {
    let refused = |reason: String| SettingsError::OtherDevice {
        target: target.to_owned(),
        device: device.name().to_owned(),
        reason,
    };
    if is_model(target) {
        return Err(refused("it is a model".to_owned()));
    }
    device.holds(target).map_err(refused)
}
