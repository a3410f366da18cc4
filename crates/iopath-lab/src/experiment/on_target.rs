//! Runs experiments on real storage: measures workloads on scratch files in a directory. Writes to no other file or device.

use std::fmt;
use std::path::Path;

use iopath_os::target::Kind;

use super::Settings;
use crate::error::LabError;
use crate::progress::Progress;
use crate::result::RunResult;
use crate::run::Lab;
use crate::target::{Target, inspect};
use crate::workload::Workload;

/// The environment of an experiment on real storage: the machine, a directory for scratch files, and the values of the
/// parameters.
pub struct TargetRun<'a> {
    lab: &'a Lab,
    directory: &'a Path,
    settings: &'a Settings,
    progress: &'a mut dyn Progress,
}

impl fmt::Debug for TargetRun<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TargetRun").field("directory", &self.directory).finish_non_exhaustive()
    }
}

impl<'a> TargetRun<'a> {
    pub(super) fn new(
        lab: &'a Lab,
        directory: &'a Path,
        settings: &'a Settings,
        progress: &'a mut dyn Progress,
    ) -> Self {
        Self { lab, directory, settings, progress }
    }

    /// The values of the parameters.
    pub(crate) fn settings(&self) -> &'a Settings {
        self.settings
    }

    /// A scratch file of this size with random content, removed on drop.
    ///
    /// # Errors
    /// [`LabError`]: the directory has no space for the file, or its filesystem does not store files of users.
    pub(crate) fn scratch(&mut self, size_bytes: u64, seed: u64) -> Result<Target, LabError> {
        Target::scratch(self.directory, size_bytes, seed, self.progress)
    }

    /// Measures a workload on a scratch file of [`TargetRun::scratch`]. `target` and `size_bytes` of the workload are not
    /// used.
    ///
    /// # Errors
    /// [`LabError`]: the workload is refused, or a transfer failed.
    pub(crate) fn measure(&mut self, workload: &Workload, target: &Target) -> Result<RunResult, LabError> {
        self.lab.run(workload, target, self.progress)
    }
}

/// Refuses a target that is not a directory.
pub(super) fn check_directory(target: &Path) -> Result<(), LabError> {
    if crate::model::is_model(target) || inspect(target)?.kind != Kind::Directory {
        return Err(LabError::NotADirectory { target: target.to_owned() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::*;
    use crate::progress::Silent;
    use crate::workload::{BlockSize, Repetitions};

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
    fn files_devices_and_models_are_refused() {
        for target in ["model:cloud", "Cargo.toml"] {
            let error = check_directory(Path::new(target)).unwrap_err().to_string();
            assert!(error.contains("scratch files only") && error.contains(target), "{error}");
        }
        assert!(check_directory(Path::new("/none/such")).is_err());
        check_directory(Path::new(".")).unwrap();
    }
}
