//! The forms of experiments that run on real storage: measures workloads on scratch files in a directory. Writes to no
//! other file or device.

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

/// An experiment on real storage: the machine, a directory for scratch files, and the values of the parameters.
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

    /// A scratch file of that size with random content, removed on drop.
    ///
    /// # Errors
    /// [`LabError`]: the directory has no space for it, or stores no files of users.
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
