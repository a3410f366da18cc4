//! The places where an option holds: paths with a capability, storage, or models. The rows of `options.rs` state them.
//! The capabilities are in `path.rs`.

/// Where an option holds, if it does not hold everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// On paths with a request queue of iopath.
    Queue,
    /// On paths with a page cache of iopath.
    Cache,
    /// On paths that complete one transfer after another.
    Synchronous,
    /// On paths whose transfers may have priorities of their own.
    Priorities,
    /// On paths that can poll instead of waiting for interrupts.
    Polling,
    /// On the kernel's own paths.
    Kernel,
    /// On storage of this machine and exports of servers; on models it does not, for this reason.
    Storage(&'static str),
    /// On storage of this machine; on models and exports it does not, for this reason.
    Local(&'static str),
    /// On paths to storage that can wait for each write.
    DurableWrites,
    /// On models only.
    Model,
    /// Where each latency is measured.
    EveryLatency,
    /// On one workload, not on several of a list or a sweep.
    OneWorkload,
}

/// Where the bytes of a target are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Medium {
    /// Storage of this machine, or none.
    Local,
    /// An export of a server.
    Export,
    /// A model.
    Model,
}

impl Place {
    /// The refusal of an option outside of this place, by its name and value. `sampling` is the name of the option that
    /// samples latencies.
    pub(crate) fn refusal(self, path: &str, option: &str, value: &str, sampling: &str) -> String {
        match self {
            Self::Queue => format!(
                "path {path} does not accept {option} (`{value}`); omit it, or use null or an iopath-* path"
            ),
            Self::Cache => format!(
                "path {path} has no iopath page cache and does not accept {option}; omit it, or use path iopath-buffered"
            ),
            Self::Synchronous => format!(
                "path {path} completes transfers in batches and does not accept {option}; omit it, or use a synchronous \
                 path such as kernel-direct"
            ),
            Self::Priorities => format!(
                "path {path} has no priorities of single transfers and does not accept {option}; omit it, or use path \
                 kernel-uring"
            ),
            Self::Polling => format!(
                "path {path} waits for interrupts and does not accept {option}; omit it, or use path kernel-uring"
            ),
            Self::Kernel => format!(
                "path {path} has buffers of its own and does not accept {option} (`{value}`); omit it, or use a path of the \
                 kernel"
            ),
            Self::Storage(reason) | Self::Local(reason) => format!("{reason}; omit {option}"),
            Self::DurableWrites => format!(
                "path {path} cannot wait for each write and does not accept {option} (`{value}`) here; omit it, or use \
                 fsync, or another path on storage of this machine"
            ),
            Self::Model => format!(
                "{option} applies to modelled targets (model:NAME or model:FILE.toml); omit it, or use such a target"
            ),
            Self::EveryLatency => {
                format!("{option} needs each latency, and {sampling} measures one in many; omit one of them")
            }
            Self::OneWorkload => format!(
                "{option} records one workload; omit it, or use one value of each option instead of lists"
            ),
        }
    }
}
