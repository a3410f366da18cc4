//! Opens the target of a survey, or writes its scratch file, and measures how fast it is. Does not measure the
//! workloads of the survey.

use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use iopath_os::target::Kind;
use iopath_report::Rw;

use super::SurveyOptions;
use super::error::SurveyError;
use super::plan::RANDOM_BLOCK;
use iopath_bench::error::BenchError;
use iopath_bench::export::is_remote;
use iopath_bench::paths::find_path;
use iopath_bench::progress::{Progress, Silent};
use iopath_bench::run::Lab;
use iopath_bench::target::{Target, TargetInfo};
use iopath_bench::workload::{BlockSize, End, Repetitions, Workload};

/// The share of the time for writing the scratch file, at the measured speed.
const SCRATCH_SHARE: f64 = 0.08;

/// Sizes of scratch files: the small file that measures the speed, and the range of the real file.
const PROBE_BYTES: u64 = 16 << 20;
const SCRATCH_BYTES_MIN: u64 = 32 << 20;
const SCRATCH_BYTES_MAX: u64 = 1 << 30;

/// A scratch file has at most this part of the free space, but at least `SCRATCH_BYTES_MIN`.
const FREE_PART: u64 = 4;

/// The smallest target: a few blocks of the smallest size.
const TARGET_BYTES_MIN: u64 = 64 << 10;

/// The duration of a measurement of the speed, and its largest part of the time limit.
const PROBE_PART: u32 = 50;
const PROBE_TIME: Duration = Duration::from_millis(100);

/// A target, and its speeds in bytes per second.
pub(super) struct Prepared {
    pub(super) target: Target,
    /// Of large blocks.
    pub(super) speed: f64,
    /// Of random writes of small blocks, one after another; of a target that is only read, that of large blocks.
    pub(super) random_write_speed: f64,
}

/// Opens or creates the target to measure, and measures its speeds.
pub(super) fn prepare(
    info: Option<TargetInfo>,
    options: &SurveyOptions,
    lab: &Lab,
    progress: &mut dyn Progress,
) -> Result<Prepared, SurveyError> {
    if let Some(info) = info.as_ref().filter(|info| info.kind == Kind::Directory) {
        let (target, speed) = scratch(info, options.time, progress)?;
        let random_write_speed = random_write_speed(&target, lab, options.time)?;
        return Ok(Prepared { target, speed, random_write_speed });
    }
    if let Some(info) = info {
        check_size(&info)?;
    }
    let rw = if options.overwrite { Rw::Write } else { Rw::Read };
    let (target, overwrite) = (Some(options.target.clone()), options.overwrite);
    let path =
        if is_remote(&options.target) { find_path("iopath-direct")? } else { Workload::default().path };
    let workload = Workload { path, target, rw, overwrite, ..Workload::default() };
    let target = Target::prepare(&workload, progress)?;
    target.info().map_or(Ok(()), check_size)?;
    let speed = read_speed(&target, lab)?;
    let random_write_speed =
        if options.overwrite { random_write_speed(&target, lab, options.time)? } else { speed };
    Ok(Prepared { target, speed, random_write_speed })
}

fn check_size(info: &TargetInfo) -> Result<(), SurveyError> {
    if info.size_bytes < TARGET_BYTES_MIN {
        let (has, needed) = (info.size_bytes, TARGET_BYTES_MIN);
        return Err(SurveyError::TooSmall { target: info.path.clone(), has, needed });
    }
    Ok(())
}

/// A scratch file of a size that the speed and free space of the directory allow.
fn scratch(
    directory: &TargetInfo,
    time: Duration,
    progress: &mut dyn Progress,
) -> Result<(Target, f64), BenchError> {
    let timed = |bytes: u64, progress: &mut dyn Progress| {
        let begun = Instant::now();
        let target = Target::scratch(&directory.path, bytes, 1, progress)?;
        Ok::<_, BenchError>((target, bytes as f64 / begun.elapsed().as_secs_f64()))
    };
    let (_, speed) = timed(PROBE_BYTES, &mut Silent)?;
    let free = directory.filesystem.as_ref().and_then(|filesystem| filesystem.available_bytes);
    timed(scratch_bytes(speed, time, free), progress)
}

/// The size of the scratch file, in whole MiB.
fn scratch_bytes(speed: f64, time: Duration, free: Option<u64>) -> u64 {
    let fits_time = (speed * time.as_secs_f64() * SCRATCH_SHARE) as u64;
    let fits_space = free.map_or(u64::MAX, |free| free / FREE_PART);
    let bytes = fits_time.min(fits_space).clamp(SCRATCH_BYTES_MIN, SCRATCH_BYTES_MAX);
    bytes - bytes % (1 << 20)
}

/// The speed of a user's target, read in large blocks, in bytes per second.
fn read_speed(target: &Target, lab: &Lab) -> Result<f64, BenchError> {
    let path = match target.direct_align_bytes() {
        Ok(_) if target.remote().is_some() => "iopath-direct",
        Ok(_) => "kernel-direct",
        Err(_) => "kernel-buffered",
    };
    let block_bytes = if target.size_bytes() >= 1 << 20 { 1 << 20 } else { 16 << 10 };
    let workload = Workload {
        path: find_path(path)?,
        block_size: BlockSize::constant(block_bytes),
        end: End::Time(PROBE_TIME),
        repetitions: Repetitions::constant(1),
        ..Workload::default()
    };
    Ok(lab.run(&workload, target, &mut Silent)?.bytes_per_second.mean)
}

/// The speed of random writes of small blocks, one after another, in bytes per second: a lower bound of the speed at
/// which a flush writes the dirty pages of random writes.
fn random_write_speed(target: &Target, lab: &Lab, time: Duration) -> Result<f64, BenchError> {
    let is_aligned = |align: u32| RANDOM_BLOCK.is_multiple_of(align);
    let is_direct = target.direct_align_bytes().is_ok_and(is_aligned);
    let path = match target.remote() {
        Some(_) => "iopath-direct",
        None if is_direct => "kernel-direct",
        None => "kernel-buffered",
    };
    let workload = Workload {
        path: find_path(path)?,
        rw: Rw::RandWrite,
        block_size: BlockSize::constant(RANDOM_BLOCK),
        end: End::Time(PROBE_TIME.min(time / PROBE_PART)),
        flush_every: NonZeroU64::new(u64::from(!is_direct)),
        repetitions: Repetitions::constant(1),
        ..Workload::default()
    };
    Ok(lab.run(&workload, target, &mut Silent)?.bytes_per_second.mean)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_scratch_file_fits_time_and_space() {
        let seconds = Duration::from_secs;
        assert_eq!(scratch_bytes(2e9, seconds(90), None), SCRATCH_BYTES_MAX);
        assert_eq!(scratch_bytes(1e7, seconds(90), None), 68 * MIB);
        assert_eq!(scratch_bytes(1e6, seconds(90), None), SCRATCH_BYTES_MIN);
        assert_eq!(scratch_bytes(2e9, seconds(90), Some(400 * MIB)), 100 * MIB);
    }
}
