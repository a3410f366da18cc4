//! Prepares the target of a fit: a scratch file of a suitable size, or a file, device or model of the user. Runs the
//! first workloads, which show whether the target has mechanical latency. Runs no other workload.

use std::path::Path;
use std::time::{Duration, Instant};

use iopath::Volume;
use iopath_os::target::Kind;
use iopath_report::Rw;
use iopath_report::result::TargetFacts;

use super::FitOptions;
use super::error::FitError;
use super::evidence::{LatencyCause, MECHANICAL_NS, MECHANICAL_RATIO};
use super::plan::{Planned, Slice};
use super::workloads::measure;
use crate::campaign::target::{SCRATCH_BYTES_MIN, probe_scratch, scratch, scratch_bytes};
use iopath_bench::export::is_remote;
use iopath_bench::model::is_model;
use iopath_bench::paths::iopath_direct;
use iopath_bench::progress::Progress;
use iopath_bench::run::Lab;
use iopath_bench::target::{Target, inspect};
use iopath_bench::workload::Workload;

/// The size of a scratch file is a multiple of this, so that the size of the model is a short number.
const SCRATCH_STEP: u64 = 32 << 20;

/// The smallest target: a small scratch file.
const TARGET_BYTES_MIN: u64 = SCRATCH_BYTES_MIN;

/// The share of the time for writing the scratch file, at the measured speed.
const SCRATCH_SHARE: f64 = 0.1;

/// The maximum noise: the deviation of a repetition from the median of its workload, as a fraction (median over all
/// workloads).
pub(super) const NOISE_MAX: f64 = 0.5;

/// The minimum number of transfers of the first workload.
const PROBE_IOS_MIN: u64 = 10;

pub(super) fn check_noise(target: &Path, noise: Option<f64>) -> Result<(), FitError> {
    match noise {
        Some(noise) if noise > NOISE_MAX => {
            Err(FitError::TooNoisy { target: target.to_owned(), noise, limit: NOISE_MAX })
        }
        _ => Ok(()),
    }
}

/// The target in words. For a scratch file: its disk and filesystem, because the file no longer exists after the fit.
pub(super) fn described(facts: &TargetFacts, source: &Path) -> String {
    let mut text = source.display().to_string();
    if let Some(filesystem) = &facts.filesystem {
        text.extend([" on ", filesystem]);
    }
    if let Some(disk) = &facts.disk {
        text.extend([", disk ", &disk.name]);
        if let Some(model) = &disk.model {
            text.extend([" (", model, ")"]);
        }
    }
    text
}

/// The target, and whether it may be written.
pub(super) fn prepare(options: &FitOptions, progress: &mut dyn Progress) -> Result<(Target, bool), FitError> {
    let workload = |rw| Workload {
        path: &iopath_direct::ROW,
        target: Some(options.source.clone()),
        rw,
        overwrite: options.overwrite,
        ..Workload::default()
    };
    let is_model = is_model(&options.source);
    // A model and an export are no names of files.
    let has_name = !is_model && !is_remote(&options.source);
    let info = if has_name { Some(inspect(&options.source)?) } else { None };
    if let Some(directory) = info.filter(|info| info.kind == Kind::Directory) {
        let (probe, speed) = probe_scratch(&directory)?;
        probe.direct_align_bytes()?;
        drop(probe);
        let time = options.time.mul_f64(SCRATCH_SHARE);
        let bytes = scratch_bytes(&directory, speed, time, SCRATCH_STEP);
        return Ok((scratch(&directory, bytes, progress)?.0, true));
    }
    let writes = is_model || options.overwrite;
    let target = Target::prepare(&workload(if writes { Rw::RandWrite } else { Rw::RandRead }), progress)?;
    if target.size_bytes() < TARGET_BYTES_MIN {
        return Err(too_small(&options.source, target.size_bytes()));
    }
    if let Some(offset) = target.unwritten() {
        return Err(FitError::Hole { target: options.source.clone(), offset });
    }
    Ok((target, writes))
}

pub(super) fn too_small(target: &Path, has: u64) -> FitError {
    FitError::TooSmall { target: target.to_owned(), has, needed: TARGET_BYTES_MIN }
}

/// The result of the first workloads.
pub(super) struct Probe {
    pub(super) latency: LatencyCause,
    /// The time of each workload.
    pub(super) slice: Duration,
}

/// Measures far and near reads. Returns the cause of the latency, and the time of a run with enough transfers.
pub(super) fn probe(
    target: &Target,
    lab: Option<&Lab>,
    options: &FitOptions,
    progress: &mut dyn Progress,
) -> Result<Probe, FitError> {
    let plan: Vec<Planned> =
        [1.0, 0.002].into_iter().filter_map(|share| Planned::probe(target.size_bytes(), share)).collect();
    let slice = Slice { time: Duration::from_millis(500).min(options.time / 10), ios_max: 500 };
    let runs = measure(target, lab, &plan, slice, Instant::now(), progress)?;
    let Some(all) = runs.measured.first() else {
        return Err(too_small(&options.source, target.size_bytes()));
    };
    let ios = all.samples.iter().map(|sample| sample.ios).sum();
    if ios < PROBE_IOS_MIN {
        let (target, workload) = (options.source.clone(), all.planned.to_string());
        return Err(FitError::TooSlow { target, workload, ios, needed: PROBE_IOS_MIN });
    }
    let latency = all.median(|sample| sample.mean_ns);
    let near = runs.measured.get(1).map(|near| near.median(|sample| sample.mean_ns));
    let is_far = near.is_some_and(|near| latency > MECHANICAL_RATIO * near);
    let facts = target.facts().and_then(|facts| facts.disk);
    let is_rotational = facts.is_some_and(|disk| disk.rotational == Some(true));
    let cause = match latency > MECHANICAL_NS {
        false => LatencyCause::Electronic,
        true if is_far || is_rotational => LatencyCause::Mechanical,
        true => LatencyCause::Unknown,
    };
    let slice = Duration::from_nanos((latency * 250.0) as u64);
    Ok(Probe { latency: cause, slice: slice.clamp(Duration::from_millis(150), Duration::from_millis(2500)) })
}

/// The largest request that the queue sends to the target.
pub(super) fn request_max_bytes(target: &Target) -> u64 {
    const UNKNOWN: u64 = 1 << 20;
    if let Some(model) = target.model() {
        return model.model().limits().request_bytes_max;
    }
    if let Some(volume) = target.remote().and_then(|remote| remote.volume(&iopath::Options::new()).ok()) {
        return volume.facts().request_bytes_max;
    }
    let volume = target.file().and_then(|file| Volume::open(file, &iopath::Options::new()).ok());
    volume.map_or(UNKNOWN, |volume| volume.facts().request_bytes_max)
}
