//! Opens the target of a survey, or writes its scratch file, and measures how fast it is. Does not measure the
//! workloads of the survey.

use std::num::NonZeroU64;
use std::time::Duration;

use iopath_os::target::Kind;
use iopath_report::Rw;

use super::SurveyOptions;
use super::error::SurveyError;
use super::plan::RANDOM_BLOCK;
use crate::campaign::target::{probe_scratch, scratch, scratch_bytes};
use iopath_bench::error::BenchError;
use iopath_bench::export::is_remote;
use iopath_bench::paths::find_path;
use iopath_bench::progress::{Progress, Silent};
use iopath_bench::run::Lab;
use iopath_bench::target::{Target, TargetInfo};
use iopath_bench::workload::{BlockSize, End, Repetitions, Workload};

/// The share of the time for writing the scratch file, at the measured speed.
const SCRATCH_SHARE: f64 = 0.08;

/// The size of a scratch file is a multiple of this.
const SCRATCH_STEP: u64 = 1 << 20;

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
        let (_, speed) = probe_scratch(info)?;
        let bytes = scratch_bytes(info, speed, options.time.mul_f64(SCRATCH_SHARE), SCRATCH_STEP);
        let (target, speed) = scratch(info, bytes, progress)?;
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
