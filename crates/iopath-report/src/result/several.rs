//! Results of several workloads, jobs or targets: the workloads that cannot run, each target and the ends of the
//! targets, jobs and groups of jobs.

use serde::{Deserialize, Serialize};

use super::connections::Connections;
use super::figures::{Cpu, Device, Latency, Spread};
use super::shown::FioOutput;

/// A workload that was not measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Skipped {
    /// Its path, and the values in which it differs from the others.
    pub workload: String,
    /// Why it cannot run.
    pub reason: String,
}

/// How evenly several targets ended: means over the repetitions.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TargetsEnd {
    /// The end of the first target that was done, in seconds from the common start.
    pub first_done_seconds: f64,
    /// The end of the last one.
    pub last_done_seconds: f64,
    /// The time between these two.
    pub skew_seconds: f64,
    /// Jain's index of the throughputs of the targets: 1 if all are equal, 1/n if one of n has all.
    pub jain: f64,
}

/// One target of a run on several.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TargetResult {
    /// The target as given.
    pub target: String,
    /// Bytes transferred, over all repetitions.
    pub bytes: u64,
    /// Transfers, over all repetitions.
    pub ios: u64,
    /// The time to the end of its last job, over all repetitions, in seconds.
    pub seconds: f64,
    /// Throughput up to that end.
    pub bytes_per_second: Spread,
    /// Transfers per second up to that end.
    pub iops: Spread,
    /// From submission to completion, over all repetitions.
    pub latency_ns: Latency,
    /// Requests of the device, over all repetitions.
    pub device: Option<Device>,
    /// Lost connections, over all repetitions; none where the target is no export of a server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<Connections>,
}

/// A job of a job file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobFacts {
    /// Its name.
    pub name: String,
    /// Its group, from 1. The jobs of a group run at the same time.
    pub group: u32,
    /// The file or device of its first clone; none without a target.
    pub target: Option<String>,
    /// The keys of the job file that apply to it, with those of `[global]`, in their order; a bare key has the value 1.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<[String; 2]>,
    /// How the formats of fio show it. Not in the JSON.
    #[serde(skip)]
    pub output: FioOutput,
}

/// The use of a disk by all processes.
#[derive(Debug, Clone, PartialEq)]
pub struct DiskUse {
    /// The kernel's name.
    pub name: String,
    /// Its requests.
    pub device: Device,
    /// The time in which they were counted.
    pub seconds: f64,
}

impl DiskUse {
    /// Adds the use to that of the same disk.
    pub fn add_to(self, uses: &mut Vec<Self>) {
        match uses.iter_mut().find(|other| other.name == self.name) {
            Some(other) => {
                other.device = [other.device, self.device].into_iter().sum();
                other.seconds += self.seconds;
            }
            None => uses.push(self),
        }
    }
}

/// Jobs of a job file that ran at the same time, together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GroupResult {
    /// Its number, from 1.
    pub number: u32,
    /// The names of its jobs.
    pub jobs: Vec<String>,
    /// Bytes transferred, over all repetitions.
    pub bytes: u64,
    /// Transfers, over all repetitions.
    pub ios: u64,
    /// From the start of the first job to the end of the last one, over all repetitions, in seconds.
    pub seconds: f64,
    /// Throughput.
    pub bytes_per_second: Spread,
    /// Transfers per second.
    pub iops: Spread,
    /// From submission to completion, over all repetitions.
    pub latency_ns: Latency,
    /// CPU cost, over all repetitions.
    pub cpu: Option<Cpu>,
    /// Transfers of the disk, over all repetitions; none without a single disk, and with several targets.
    pub device: Option<Device>,
    /// The use of each disk beneath its targets, with ramps. Not in the JSON.
    #[serde(skip)]
    pub disks: Vec<DiskUse>,
}
