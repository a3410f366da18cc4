//! The targets of campaigns: one that several workloads share, and scratch files of a suitable size. Does not measure
//! workloads.

use std::time::{Duration, Instant};

use iopath_bench::error::BenchError;
use iopath_bench::progress::{Progress, Silent};
use iopath_bench::refusal::Scope;
use iopath_bench::target::{Target, TargetInfo};
use iopath_bench::workload::{DEFAULT_SIZE_BYTES, Workload};

/// The size of the scratch file that measures the speed of a directory.
const PROBE_BYTES: u64 = 16 << 20;

/// The sizes of scratch files.
pub(crate) const SCRATCH_BYTES_MIN: u64 = 32 << 20;
const SCRATCH_BYTES_MAX: u64 = 1 << 30;

/// A scratch file has at most this part of the free space, but at least `SCRATCH_BYTES_MIN`.
const FREE_PART: u64 = 4;

/// One target, such as one scratch file, for all workloads of a campaign.
pub(crate) struct SharedTarget {
    /// None if no workload needs one, or if all that need one are refused.
    pub(crate) target: Option<Target>,
    /// For the paths without a target.
    none: Target,
}

impl SharedTarget {
    /// Prepares the target for the first numbered workload that needs one and is not refused. One that writes decides
    /// about the permission to write, so it comes before those that read. `skip` receives the refused ones.
    ///
    /// # Errors
    /// [`BenchError`]: no workload can use the target.
    pub(crate) fn prepare(
        workloads: &[(usize, &Workload)],
        progress: &mut dyn Progress,
        mut skip: impl FnMut(usize, BenchError),
    ) -> Result<Self, BenchError> {
        let size_bytes = workloads.first().and_then(|(_, workload)| workload.size_bytes);
        let mut shared = Self { target: None, none: Target::none(size_bytes.unwrap_or(DEFAULT_SIZE_BYTES)) };
        let mut candidates: Vec<_> =
            workloads.iter().filter(|(_, one)| one.path.capabilities.needs_target).collect();
        candidates.sort_by_key(|(_, workload)| !workload.rw.writes());
        for (number, workload) in candidates {
            match Target::prepare(workload, progress) {
                Ok(target) => {
                    shared.target = Some(target);
                    break;
                }
                Err(error) if error.scope() == Scope::Workload => skip(*number, error),
                Err(error) => return Err(error),
            }
        }
        Ok(shared)
    }

    /// The target of a workload.
    ///
    /// # Panics
    /// If all workloads that need a target were refused.
    pub(crate) fn of(&self, workload: &Workload) -> &Target {
        let needs_target = workload.path.capabilities.needs_target;
        if needs_target { self.target.as_ref().expect("a workload was not refused") } else { &self.none }
    }
}

/// Writes a scratch file. Returns it with the speed in bytes per second.
pub(crate) fn scratch(
    directory: &TargetInfo,
    bytes: u64,
    progress: &mut dyn Progress,
) -> Result<(Target, f64), BenchError> {
    let begun = Instant::now();
    let target = Target::scratch(&directory.path, bytes, 1, progress)?;
    Ok((target, bytes as f64 / begun.elapsed().as_secs_f64()))
}

/// A small scratch file, and the speed of writing it in bytes per second.
pub(crate) fn probe_scratch(directory: &TargetInfo) -> Result<(Target, f64), BenchError> {
    scratch(directory, PROBE_BYTES, &mut Silent)
}

/// The size of a scratch file that can be written in a time, at that speed in bytes per second: a multiple of
/// `step_bytes`, limited by the free space of the directory.
pub(crate) fn scratch_bytes(directory: &TargetInfo, speed: f64, time: Duration, step_bytes: u64) -> u64 {
    let free = directory.filesystem.as_ref().and_then(|filesystem| filesystem.available_bytes);
    fitting_bytes(speed, time, free) / step_bytes * step_bytes
}

fn fitting_bytes(speed: f64, time: Duration, free: Option<u64>) -> u64 {
    let fits_time = (speed * time.as_secs_f64()) as u64;
    let fits_space = free.map_or(u64::MAX, |free| free / FREE_PART);
    fits_time.min(fits_space).clamp(SCRATCH_BYTES_MIN, SCRATCH_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use iopath_bench::paths::find_path;
    use iopath_report::Rw;

    #[test]
    fn a_scratch_file_fits_time_and_space() {
        let seconds = Duration::from_secs;
        assert_eq!(fitting_bytes(2e9, seconds(7), None), SCRATCH_BYTES_MAX);
        assert_eq!(fitting_bytes(1e7, seconds(7), None), 70_000_000);
        assert_eq!(fitting_bytes(1e6, seconds(7), None), SCRATCH_BYTES_MIN);
        assert_eq!(fitting_bytes(2e9, seconds(7), Some(400 << 20)), 100 << 20);
    }

    #[test]
    fn a_workload_that_writes_decides_and_those_that_read_run_without_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        let on_file = |rw, overwrite| Workload {
            path: find_path("kernel-buffered").unwrap(),
            target: Some(file.path().to_owned()),
            rw,
            overwrite,
            ..Workload::default()
        };
        for (overwrite, refused) in [(false, vec![1]), (true, vec![])] {
            let workloads = [Rw::Read, Rw::Write].map(|rw| on_file(rw, overwrite));
            let mut skipped = Vec::new();
            let numbered: Vec<_> = workloads.iter().enumerate().collect();
            let skip = |number, _| skipped.push(number);
            let shared = SharedTarget::prepare(&numbered, &mut Silent, skip).unwrap();
            assert_eq!(shared.of(&workloads[0]).size_bytes(), 1 << 20);
            assert_eq!(skipped, refused);
        }
    }
}
