//! Runs experiments on real storage: measures workloads on scratch files in a directory, or reads a file or device.
//! Writes to scratch files only.

use std::fmt;
use std::path::Path;

use iopath_os::target::Kind;
use iopath_report::experiment::Settings;
use iopath_report::result::RunResult;

use super::error::ExperimentError;
use iopath_bench::error::BenchError;
use iopath_bench::progress::Progress;
use iopath_bench::run::Lab;
use iopath_bench::target::{Target, inspect};
use iopath_bench::workload::Workload;

/// The environment of an experiment on real storage: the machine, the target, and the values of the parameters.
pub struct TargetRun<'a> {
    lab: &'a Lab,
    target: &'a Path,
    settings: &'a Settings,
    progress: &'a mut dyn Progress,
}

impl fmt::Debug for TargetRun<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TargetRun").field("target", &self.target).finish_non_exhaustive()
    }
}

impl<'a> TargetRun<'a> {
    pub(super) fn new(
        lab: &'a Lab,
        target: &'a Path,
        settings: &'a Settings,
        progress: &'a mut dyn Progress,
    ) -> Self {
        Self { lab, target, settings, progress }
    }

    /// The values of the parameters.
    pub(crate) fn settings(&self) -> &'a Settings {
        self.settings
    }

    /// The target as given: a directory for scratch files, or a file or block device, which is read only.
    pub(crate) fn target(&self) -> &'a Path {
        self.target
    }

    /// A scratch file of this size with random content, removed on drop.
    ///
    /// # Errors
    /// [`ExperimentError`]: the target is not a directory, has no space for the file, or its filesystem does not store
    /// files of users.
    pub(crate) fn scratch(&mut self, size_bytes: u64, seed: u64) -> Result<Target, ExperimentError> {
        if !is_directory(self.target)? {
            return Err(ExperimentError::NotADirectory { target: self.target.to_owned() });
        }
        Ok(Target::scratch(self.target, size_bytes, seed, self.progress)?)
    }

    /// Measures a workload on a scratch file of [`TargetRun::scratch`]. `target` and `size_bytes` of the workload are
    /// not used.
    ///
    /// # Errors
    /// [`BenchError`]: the workload is refused, or a transfer failed.
    pub(crate) fn measure(&mut self, workload: &Workload, target: &Target) -> Result<RunResult, BenchError> {
        self.lab.run(workload, target, self.progress)
    }

    /// Measures a workload on the target that it names.
    ///
    /// # Errors
    /// As [`TargetRun::measure`].
    pub(super) fn measure_existing(&mut self, workload: &Workload) -> Result<RunResult, BenchError> {
        let target = Target::prepare(workload, self.progress)?;
        self.measure(workload, &target)
    }
}

/// Whether a target is a directory.
///
/// # Errors
/// [`ExperimentError`]: it does not exist, or is a model.
pub(super) fn is_directory(target: &Path) -> Result<bool, ExperimentError> {
    if iopath_bench::model::is_model(target) {
        return Err(ExperimentError::NotADirectory { target: target.to_owned() });
    }
    Ok(inspect(target)?.kind == Kind::Directory)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::*;
    use iopath_bench::progress::Silent;
    use iopath_bench::workload::{BlockSize, Repetitions};

    #[test]
    fn a_scratch_file_is_measured_and_removed() {
        let directory = tempfile::tempdir().unwrap();
        let (lab, settings) = (Lab::new(Duration::ZERO, &mut Silent), Settings::new(&[], &[]).unwrap());
        let mut silent = Silent;
        let mut run = TargetRun::new(&lab, directory.path(), &settings, &mut silent);
        let scratch = run.scratch(1 << 20, 1).unwrap();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        let block_size = BlockSize::constant(64 << 10);
        let workload = Workload { block_size, repetitions: Repetitions::constant(1), ..Workload::default() };
        assert_eq!(run.measure(&workload, &scratch).unwrap().bytes, 1 << 20);
        drop(scratch);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn models_are_refused_and_files_where_an_experiment_writes() {
        let lab = Lab::new(Duration::ZERO, &mut Silent);
        let settings = Settings::new(&[], &[]).unwrap();
        let mut silent = Silent;
        let scratch =
            TargetRun::new(&lab, Path::new("Cargo.toml"), &settings, &mut silent).scratch(1 << 20, 1);
        let model = is_directory(Path::new("model:cloud"));
        for (target, error) in [("model:cloud", model.unwrap_err()), ("Cargo.toml", scratch.unwrap_err())] {
            let error = error.to_string();
            assert!(error.contains("scratch files only") && error.contains(target), "{error}");
        }
        assert!(is_directory(Path::new("/none/such")).is_err());
        assert!(is_directory(Path::new(".")).unwrap());
        assert!(!is_directory(Path::new("Cargo.toml")).unwrap());
    }
}
