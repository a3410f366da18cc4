//! The conditions and repetitions of a measurement: the input of `served.rs` and `warnings.rs`.

use iopath_report::result::Host;

use crate::engine::Measured;
use crate::path::Capabilities;
use crate::storage::Resident;
use crate::target::Target;
use crate::workload::Workload;

/// The conditions of a measurement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Conditions<'a> {
    pub(crate) workload: &'a Workload,
    pub(crate) target: &'a Target,
    /// None in virtual time.
    pub(crate) host: Option<&'a Host>,
}

impl Conditions<'_> {
    /// The properties of the measured path.
    pub(crate) fn path(&self) -> Capabilities {
        self.workload.path.capabilities
    }
}

/// One repetition, with the pages that were in the page cache when it began; none if they were not counted.
#[derive(Debug)]
pub(crate) struct Repeated {
    pub(crate) measured: Measured,
    pub(crate) resident: Option<Resident>,
}

/// Measurements with given figures, for tests.
#[cfg(test)]
pub(crate) mod fixtures {
    use super::{Host, Measured, Repeated};
    use crate::job::tally::Parts;
    use crate::storage::StorageBytes;
    use iopath_report::result::Latencies;

    pub(crate) const MIB: u64 = 1 << 20;

    pub(crate) fn host(idle_busy_cpus: f64) -> Host {
        let (kernel, cpu) = ("6.1".to_owned(), "cpu".to_owned());
        Host { kernel, cpu, cores: 2, memory_bytes: 1, idle_busy_cpus: Some(idle_busy_cpus) }
    }

    /// A repetition with the bytes that it read and wrote, and the bytes that storage read and wrote for it.
    pub(crate) fn repeated([read_bytes, written_bytes]: [u64; 2], storage: Option<[u64; 2]>) -> Repeated {
        let measured = Measured {
            read_bytes,
            written_bytes,
            trimmed_bytes: 0,
            ios: 1,
            seconds: 1.0,
            first_ended_seconds: 1.0,
            latency_ns: Latencies::default(),
            directions: None,
            flush_ns: Latencies::default(),
            other_ns: Latencies::default(),
            parts: Parts::default(),
            final_flush_seconds: 0.0,
            verified: None,
            course: None,
            controlled: Vec::new(),
            steady: None,
            cpu: None,
            threads: None,
            device: None,
            disks: Vec::new(),
            counted_seconds: 0.0,
            connections: None,
            storage: storage.map(|[read, written]| StorageBytes { read, written }),
            cache: None,
            targets: Vec::new(),
            warnings: Vec::new(),
            is_cut_off: false,
        };
        Repeated { measured, resident: None }
    }
}
