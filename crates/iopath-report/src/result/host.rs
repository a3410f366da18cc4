//! The machine, the target and its disk.

use serde::{Deserialize, Serialize};

/// The machine that measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Host {
    /// The kernel's release, as in `uname -r`.
    pub kernel: String,
    /// The CPU's model.
    pub cpu: String,
    /// CPUs that this process may use.
    pub cores: u32,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// CPUs that other programs kept busy before the first run; subtracted from the machine's CPU time. None without
    /// `/proc/stat`.
    pub idle_busy_cpus: Option<f64>,
}

/// The target of the runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TargetFacts {
    /// The file or device, symbolic links resolved; bytes that are not UTF-8 are replaced. Of a model, its name after
    /// `model:`.
    pub path: String,
    /// `file`, `block device`, `stripe` or `model`.
    pub kind: String,
    /// Whether it was a scratch file, removed since.
    pub scratch: bool,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// The type of its filesystem; none for a block device.
    pub filesystem: Option<String>,
    /// The alignment of offsets and lengths for direct I/O, in bytes; none if direct I/O is refused.
    pub direct_align_bytes: Option<u32>,
    /// The disk beneath; none without a single disk.
    pub disk: Option<DiskFacts>,
}

/// The disk beneath a target, as sysfs describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DiskFacts {
    /// The kernel's name of the disk.
    pub name: String,
    /// The model name that the drive reports.
    pub model: Option<String>,
    /// Whether the driver reports it as rotational.
    pub rotational: Option<bool>,
    /// Its logical block size, in bytes.
    pub logical_block_bytes: Option<u32>,
    /// Its physical block size: the smallest write without read-modify-write, in bytes.
    pub physical_block_bytes: Option<u32>,
    /// The kernel's I/O scheduler (elevator).
    pub scheduler: Option<String>,
    /// The kernel's readahead, in KiB.
    pub read_ahead_kb: Option<u64>,
    /// The largest request that the kernel submits, in KiB.
    pub max_sectors_kb: Option<u64>,
}

/// A modelled host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ModelHostFacts {
    /// The name of the preset or file, as given.
    pub name: String,
    /// Its processors.
    pub cpus: u32,
    /// The share of its CPU time that was not used, from 0 to 1, over all repetitions.
    pub idle: f64,
}
