//! The settings of a workload for its result. The type is in `result/workload.rs`.

use std::num::NonZeroU64;

use iopath_report::Rw;
use iopath_report::result::{VerifyFacts, WorkloadFacts};

use crate::target::Target;
use crate::workload::{DeviceDepth, Verify, Workload};

/// The settings of a workload on a target.
pub(crate) fn workload_facts(workload: &Workload, target: &Target, engine: Option<&str>) -> WorkloadFacts {
    let elevator = || workload.elevator.as_ref().map_or_else(|| "none".to_owned(), ToString::to_string);
    let shape = &workload.shape;
    let is_mixed = matches!(workload.rw, Rw::Rw | Rw::RandRw);
    WorkloadFacts {
        seed: workload.seed,
        start_bytes: workload.start_bytes,
        size_bytes: workload.size_bytes.unwrap_or(target.size_bytes_of_each()),
        runtime_seconds: workload.end.time().map(|time| time.as_secs_f64()),
        io_bytes: workload.end.bytes(),
        repetitions: workload.repetitions.get(),
        read_percent: is_mixed.then(|| workload.read_share.get()),
        distribution: workload.rw.is_random().then(|| workload.distribution.to_string()),
        align_bytes: shape.align_bytes,
        skip_bytes: (shape.skip_bytes != 0).then_some(shape.skip_bytes),
        random_run: (shape.random_run > 1).then_some(shape.random_run),
        random_percent: (shape.random_percent < 100).then_some(shape.random_percent),
        ios_max: shape.ios_max,
        rate_process: workload.rate.map(|_| workload.rate_process.name().to_owned()),
        think_every: (!workload.think.is_zero() && workload.think_every > NonZeroU64::MIN)
            .then_some(workload.think_every.get()),
        flush_every: workload.flush_every.map(NonZeroU64::get),
        verify: workload.verify.map(|Verify { after, backlog, fatal, .. }| VerifyFacts {
            after,
            backlog: backlog.map(NonZeroU64::get),
            fatal,
        }),
        elevator: workload.path.capabilities.queue.then(elevator),
        engine: engine.map(str::to_owned),
        device_depth: workload.device_depth.map(DeviceDepth::get),
    }
}
