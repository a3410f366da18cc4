//! Opens the target of a recorded device, under the same refusals as `iopath run`, and checks that its I/Os fit.

use std::path::Path;

use iopath::{Options, Volume};
use iopath_bench::cache::CacheSettings;
use iopath_bench::error::BenchError;
use iopath_bench::host::memory_available_bytes;
use iopath_bench::path::{Capabilities, OpenSpec, PathRow};
use iopath_bench::paths::PATHS;
use iopath_bench::progress::Progress;
use iopath_bench::sync_writes::SyncWrites;
use iopath_bench::{Target, Workload, WorkloadError};
use iopath_report::Rw;
use iopath_report::random::of_target;

use super::ReplayRequest;
use super::error::ReplayError;
use super::placement::{Placed, Placement};
use super::scan::Device;
use crate::modelled;

/// The largest read or write: each I/O in flight has a buffer of the size of the largest one.
const BYTES_MAX: u64 = 64 << 20;

/// The size of a scratch file is a multiple of this.
const SCRATCH_UNIT_BYTES: u64 = 64 << 10;

/// A recorded device with its open target.
pub(super) struct Opened {
    pub(super) device: Device,
    /// Holds the claim of a device, and removes a scratch file when it is dropped.
    pub(super) target: Target,
    pub(super) volume: Volume,
    pub(super) placement: Placement,
    /// The bytes of the largest read or write, on the target.
    pub(super) buffer_bytes: u64,
}

/// Whether a path has batches of requests without a page cache.
fn is_replaying(capabilities: Capabilities) -> bool {
    capabilities.queue && capabilities.needs_target && !capabilities.cache
}

/// # Errors
/// The path submits no I/O of its own.
pub(super) fn check_path(path: &PathRow) -> Result<(), ReplayError> {
    if is_replaying(path.capabilities) {
        return Ok(());
    }
    let known = PATHS.iter().filter(|row| is_replaying(row.capabilities)).map(|row| row.name).collect();
    Err(ReplayError::Path { path: path.name, known })
}

/// Opens target `number` for a device.
///
/// # Errors
/// The target cannot be used or written, or the I/Os of the device do not fit.
pub(super) fn open(
    device: Device,
    number: usize,
    request: &ReplayRequest,
    progress: &mut dyn Progress,
) -> Result<Opened, ReplayError> {
    let path = &request.targets[number];
    let writes = device.needs.writes();
    let scratch_bytes = || device.needs.end_bytes.max(1).next_multiple_of(SCRATCH_UNIT_BYTES);
    let workload = Workload {
        path: request.path,
        target: Some(path.clone()),
        rw: if writes > 0 { Rw::RandWrite } else { Rw::RandRead },
        size_bytes: request.size_bytes.or_else(|| path.is_dir().then(scratch_bytes)),
        seed: of_target(request.seed, number),
        elevator: request.elevator.clone(),
        overwrite: request.overwrite,
        ..Workload::default()
    };
    let target = Target::prepare(&workload, progress).map_err(|error| match error {
        BenchError::Workload(WorkloadError::Overwrite { target }) => {
            ReplayError::Overwrite { target, writes }
        }
        other => other.into(),
    })?;
    let align_bytes = target.direct_align_bytes()?;
    let placement =
        Placement::new(request.fit, align_bytes.into(), target.size_bytes(), device.needs.end_bytes);
    let buffer_bytes = check_fit(&device, &target, &placement, request)?;
    let volume = volume(&target, &workload, request)?;
    Ok(Opened { device, target, volume, placement, buffer_bytes })
}

/// Returns the bytes of the largest read or write.
fn check_fit(
    device: &Device,
    target: &Target,
    placement: &Placement,
    request: &ReplayRequest,
) -> Result<u64, ReplayError> {
    let (name, size) = (device.name.clone(), target.size_bytes());
    let too_large = |[offset, bytes]: [u64; 2], largest, remedy| {
        Err(ReplayError::TooLarge { device: name.clone(), offset, bytes, largest, remedy })
    };
    if request.fit == iopath_report::replay::ReplayFit::Reject && !placement.fits() {
        let target = target.name().unwrap_or(Path::new("the target")).to_owned();
        return Err(ReplayError::Beyond { device: name, needed: placement.needed_bytes(), target, size });
    }
    let [offset, bytes] = device.needs.largest;
    if placement.place(offset, bytes).is_none() {
        return too_large([offset, bytes], size, "name a larger target");
    }
    let largest = device.needs.largest_data;
    let Some(Placed { bytes, .. }) = placement.place(largest[0], largest[1]) else {
        return too_large(largest, size, "name a larger target");
    };
    // Unaligned I/Os of this size may need one more block.
    let bytes = if largest[1] == 0 { 0 } else { bytes + placement.align_bytes() };
    if bytes > BYTES_MAX {
        return too_large(largest, BYTES_MAX, "omit its time with --from and --to");
    }
    let depth = request.depth();
    match memory_available_bytes() {
        Some(available) if bytes.saturating_mul(depth.into()) > available => {
            Err(ReplayError::Buffers { depth, bytes, available })
        }
        _ => Ok(bytes),
    }
}

fn volume(target: &Target, workload: &Workload, request: &ReplayRequest) -> Result<Volume, ReplayError> {
    let (elevator, depth) = (workload.elevator.as_ref(), request.depth());
    if let Some(model) = target.model() {
        let elevator = elevator.map_or_else(|| "none".to_owned(), ToString::to_string);
        return Ok(modelled::open(model, Options::new().write(true).depth(depth).elevator(&elevator))?);
    }
    let path = (request.path.open)(&OpenSpec {
        target: target.file(),
        remote: target.remote(),
        writes: workload.rw.writes(),
        sync: SyncWrites::None,
        size_bytes: target.size_bytes(),
        depth,
        elevator,
        device_depth: None,
        engine: workload.engine.unwrap_or_default(),
        hint: None,
        pass: None,
        polling: workload.polling,
        cache: &CacheSettings::default(),
        log: None,
    })?;
    Ok(path.volume().expect("the path was checked").clone())
}
