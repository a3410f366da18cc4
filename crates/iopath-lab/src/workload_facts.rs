//! The settings of a workload for its result. The type is in `result/workload.rs`.

use crate::result::WorkloadFacts;
use crate::target::Target;
use crate::workload::{DeviceDepth, Rw, Workload};

impl WorkloadFacts {
    /// The settings of a workload on a target.
    pub(crate) fn of(workload: &Workload, target: &Target, engine: Option<&str>) -> Self {
        let elevator = || workload.elevator.as_ref().map_or_else(|| "none".to_owned(), ToString::to_string);
        let is_mixed = matches!(workload.rw, Rw::Rw | Rw::RandRw);
        Self {
            seed: workload.seed,
            start_bytes: workload.start_bytes,
            size_bytes: workload.size_bytes.unwrap_or(target.size_bytes()),
            runtime_seconds: workload.end.time().map(|time| time.as_secs_f64()),
            io_bytes: workload.end.bytes(),
            repetitions: workload.repetitions.get(),
            read_percent: is_mixed.then(|| workload.read_share.get()),
            distribution: workload.rw.is_random().then(|| workload.distribution.to_string()),
            elevator: workload.path.capabilities.queue.then(elevator),
            engine: engine.map(str::to_owned),
            device_depth: workload.device_depth.map(DeviceDepth::get),
        }
    }
}
