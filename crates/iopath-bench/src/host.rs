//! The facts about the machine and the target, for results.

use std::fs;
use std::thread;

use iopath_os::target::{Disk, Kind};
use iopath_report::result::{DiskFacts, Host, TargetFacts};

use crate::counters::first_line;
use crate::model::ModelTarget;
use crate::target::Target;

/// This machine. Properties that `/proc` does not show are `unknown`.
pub fn this_machine(idle_busy_cpus: Option<f64>) -> Host {
    let unknown = || "unknown".to_owned();
    Host {
        kernel: first_line("/proc/sys/kernel/osrelease").unwrap_or_else(unknown),
        cpu: fs::read_to_string("/proc/cpuinfo")
            .ok()
            .and_then(|text| cpu_model(&text))
            .unwrap_or_else(unknown),
        cores: thread::available_parallelism().map_or(1, |cores| cores.get() as u32),
        idle_busy_cpus,
        memory_bytes: memory_bytes().unwrap_or(0),
    }
}

/// The field is `model name` on x86, `Hardware` on some arm64 kernels, and missing on others.
fn cpu_model(cpuinfo: &str) -> Option<String> {
    let field = |wanted: &str| {
        cpuinfo.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            (name.trim() == wanted && !value.trim().is_empty()).then(|| value.trim().to_owned())
        })
    };
    field("model name").or_else(|| field("Hardware")).or_else(|| field("cpu model"))
}

/// All memory, in bytes; none if `/proc` does not show it.
pub fn memory_bytes() -> Option<u64> {
    memory(&fs::read_to_string("/proc/meminfo").ok()?, "MemTotal:")
}

/// Memory that is available without swapping, in bytes; none if `/proc` does not show it.
pub fn memory_available_bytes() -> Option<u64> {
    memory(&fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable:")
}

fn memory(meminfo: &str, field: &str) -> Option<u64> {
    let kib = meminfo.lines().find_map(|line| line.strip_prefix(field))?;
    kib.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

impl Target {
    /// The facts of the target for results; none for [`Target::none`].
    pub fn facts(&self) -> Option<TargetFacts> {
        if let Some(model) = self.model() {
            return Some(facts_of_model(model));
        }
        let Some(info) = self.info() else {
            // A stripe has no properties of one file.
            return Some(TargetFacts {
                path: self.file()?.display().to_string(),
                kind: "stripe".to_owned(),
                scratch: self.is_scratch(),
                size_bytes: self.size_bytes(),
                filesystem: None,
                direct_align_bytes: self.direct_align_bytes().ok(),
                disk: None,
            });
        };
        Some(TargetFacts {
            path: info.path.display().to_string(),
            kind: match info.kind {
                Kind::BlockDevice => "block device",
                Kind::Remote => "remote export",
                _ => "file",
            }
            .to_owned(),
            scratch: self.is_scratch(),
            size_bytes: info.size_bytes,
            filesystem: info.filesystem.as_ref().map(|filesystem| filesystem.name.clone()),
            direct_align_bytes: self.direct_align_bytes().ok(),
            disk: info.backing.disk().map(disk_facts),
        })
    }

    /// The facts of further targets.
    pub fn further_facts(&self) -> Vec<TargetFacts> {
        self.each().skip(1).filter_map(Self::facts).collect()
    }
}

fn facts_of_model(model: &ModelTarget) -> TargetFacts {
    TargetFacts {
        path: model.name().display().to_string(),
        kind: "model".to_owned(),
        scratch: false,
        size_bytes: model.size_bytes(),
        filesystem: None,
        direct_align_bytes: Some(model.align_bytes()),
        disk: None,
    }
}

/// The facts of a disk for results.
pub fn disk_facts(disk: &Disk) -> DiskFacts {
    DiskFacts {
        name: disk.name.clone(),
        model: disk.model.clone(),
        rotational: disk.rotational,
        logical_block_bytes: disk.logical_block_bytes,
        physical_block_bytes: disk.physical_block_bytes,
        scheduler: disk.scheduler.as_ref().map(|scheduler| scheduler.current.clone()),
        read_ahead_kb: disk.read_ahead_kb,
        max_sectors_kb: disk.max_sectors_kb,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_files_are_read() {
        assert_eq!(
            cpu_model("processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\n").as_deref(),
            Some("Some CPU @ 2 GHz")
        );
        assert_eq!(cpu_model("processor\t: 0\nHardware\t: Board\n").as_deref(), Some("Board"));
        assert_eq!(cpu_model("processor\t: 0\n"), None);
        assert_eq!(memory("MemTotal:       16 kB\nMemFree: 1 kB\n", "MemTotal:"), Some(16384));
        assert_eq!(memory("MemFree: 1 kB\n", "MemTotal:"), None);
    }

    #[test]
    fn this_machine_has_cores_memory_and_a_kernel() {
        let host = this_machine(None);
        assert!(host.cores > 0 && host.memory_bytes > 0 && host.kernel.contains('.'), "{host:?}");
    }
}
