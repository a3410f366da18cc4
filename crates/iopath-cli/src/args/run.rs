//! The arguments of `iopath run`: a workload, lists of workloads, or changes to the jobs of a job file.

use super::MetricsArgs;
use super::format::RunFormat;
use super::options::OptionArgs;
use super::show::ShowArgs;
use clap::Args;
use iopath_bench::{ModelHost, Workload};
use iopath_fio::RunSettings;
use std::path::PathBuf;

/// Sizes are bytes, or a number with k, m, g, t (powers of 1024).
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// A job file of fio: its jobs instead of one workload. --target, --size, --runtime and --path replace the keys
    /// of all jobs
    #[arg(value_name = "JOBFILE")]
    pub(crate) jobfile: Option<PathBuf>,
    /// The jobs of a preset instead of a job file; list shows all presets
    #[arg(long, value_name = "NAME|list", conflicts_with = "jobfile")]
    pub(crate) preset: Option<String>,
    /// Ignore keys of JOBFILE that iopath does not support, with a warning for each
    #[arg(long, requires = "jobfile")]
    pub(crate) lenient: bool,
    /// Run only this job of JOBFILE. May be repeated
    #[arg(long, value_name = "NAME", requires = "jobfile")]
    pub(crate) section: Vec<String>,
    #[command(flatten)]
    pub(crate) metrics: MetricsArgs,
    #[command(flatten)]
    pub(crate) options: OptionArgs,
    #[cfg(feature = "mpi")]
    #[command(flatten)]
    pub(crate) hosts: super::hosts::HostArgs,
    #[command(flatten)]
    pub(crate) format: RunFormat,
    #[command(flatten)]
    pub(crate) show: ShowArgs,
}

impl RunArgs {
    /// The changes to the jobs of a job file.
    pub(crate) fn job_settings(&self) -> anyhow::Result<RunSettings> {
        let settings = self.options.settings()?;
        let default = RunSettings::default();
        let repetitions =
            if self.options.has("repeat") { settings.workload.repetitions } else { default.base.repetitions };
        Ok(RunSettings {
            target: settings.targets.first().cloned(),
            size_bytes: settings.size_bytes(settings.block_bytes())?,
            runtime: settings.runtime,
            path: self.options.has("path").then_some(settings.workload.path),
            keeps_files: false,
            is_readonly: false,
            peers: None,
            base: Workload {
                repetitions,
                host: settings.host.as_deref().map(ModelHost::find).transpose()?,
                ..settings.workload
            },
        })
    }
}
