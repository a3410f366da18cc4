//! The CPUs, the memory and the priority of a job's thread. Resolves and applies them; job files and their notation are
//! in `iopath-fio`.

use std::fs;
use std::io;

use iopath_os::kernel::Pages;
pub use iopath_os::thread_policy::{HINT_MAX, IoClass, IoPriority, MemoryPolicy};
use iopath_os::{LockedMemory, thread_policy};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::error::BenchError;

/// The settings of a job's thread. The default inherits those of the program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ThreadSettings {
    /// The CPUs on which it runs; empty for all.
    pub cpus: Vec<usize>,
    /// Whether each clone of a job has one of the CPUs, else all.
    pub splits_cpus: bool,
    /// The nodes on whose CPUs it runs; empty for all.
    pub nodes: Vec<usize>,
    /// Where the memory of its buffers lies.
    pub memory: MemoryPolicy,
    /// The priority of its I/O.
    pub priority: IoPriority,
    /// Added to the nice value.
    pub nice: i32,
    /// Memory that is locked beside the job, in bytes.
    pub locked_bytes: u64,
    /// The memory of its buffers, on a path of the kernel.
    pub pages: Pages,
}

impl ThreadSettings {
    /// Applies the settings to the calling thread, of clone number `clone`. Returns the memory that is locked until
    /// it is dropped.
    pub(crate) fn apply(&self, clone: usize) -> Result<Option<LockedMemory>, BenchError> {
        if *self == Self::default() {
            return Ok(None);
        }
        let refused = |setting, value: String| move |source| BenchError::Thread { setting, value, source };
        let mut cpus = self.cpus.clone();
        for node in &self.nodes {
            cpus.extend(cpus_of_node(*node).map_err(refused("numa_cpu_nodes", node.to_string()))?);
        }
        if self.splits_cpus && !cpus.is_empty() {
            cpus = vec![cpus[clone % cpus.len()]];
        }
        if !cpus.is_empty() {
            set_cpus(&cpus).map_err(refused("cpus_allowed", format!("{cpus:?}")))?;
        }
        thread_policy::set_memory_policy(&self.memory)
            .map_err(refused("numa_mem_policy", self.memory.to_string()))?;
        thread_policy::set_io_priority(self.priority).map_err(refused("prio", self.priority.to_string()))?;
        if self.nice != 0 {
            thread_policy::add_nice(self.nice).map_err(refused("nice", self.nice.to_string()))?;
        }
        let bytes = usize::try_from(self.locked_bytes).unwrap_or(usize::MAX);
        let locked = (bytes > 0).then(|| LockedMemory::new(bytes)).transpose();
        locked.map_err(refused("lockmem", format!("{} bytes", self.locked_bytes)))
    }
}

fn set_cpus(cpus: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for &cpu in cpus {
        if cpu >= CpuSet::MAX_CPU {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        set.set(cpu);
    }
    Ok(sched_setaffinity(None, &set)?)
}

/// The CPUs of a NUMA node.
fn cpus_of_node(node: usize) -> io::Result<Vec<usize>> {
    let text = fs::read_to_string(format!("/sys/devices/system/node/node{node}/cpulist"))?;
    numbers(text.trim()).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Numbers and ranges, separated by commas: `0,5,8-15`. None for another text, or for no number.
pub(crate) fn numbers(text: &str) -> Option<Vec<usize>> {
    let mut all = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number =
            |text: &str| text.trim().parse::<usize>().ok().filter(|number| *number < CpuSet::MAX_CPU);
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return None;
        }
        all.extend(first..=last);
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_have_numbers_and_ranges() {
        assert_eq!(numbers("0,5,8-10"), Some(vec![0, 5, 8, 9, 10]));
        for bad in ["", "a", "3-1", "1,", "-1", "99999999"] {
            assert_eq!(numbers(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_thread_runs_on_its_cpus_only() {
        std::thread::spawn(|| {
            let settings = ThreadSettings { cpus: vec![0], ..ThreadSettings::default() };
            settings.apply(0).unwrap();
            let set = rustix::thread::sched_getaffinity(None).unwrap();
            assert_eq!((set.count(), set.is_set(0)), (1, true));
            let missing = ThreadSettings { cpus: vec![1000], ..ThreadSettings::default() };
            let refused = missing.apply(0).unwrap_err().to_string();
            assert!(refused.starts_with("cpus_allowed: the system refuses [1000]"), "{refused}");
        })
        .join()
        .unwrap();
    }

    #[test]
    fn clones_may_have_one_cpu_each() {
        std::thread::spawn(|| {
            let all = rustix::thread::sched_getaffinity(None).unwrap();
            let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| all.is_set(*cpu)).collect();
            let settings =
                ThreadSettings { cpus: cpus.clone(), splits_cpus: true, ..ThreadSettings::default() };
            settings.apply(cpus.len()).unwrap();
            let set = rustix::thread::sched_getaffinity(None).unwrap();
            assert_eq!((set.count(), set.is_set(cpus[0])), (1, true));
        })
        .join()
        .unwrap();
    }
}
