//! The facts about the machine and the target, for results.

use std::fs;
use std::thread;

use iopath_os::target::{Disk, Kind};

use crate::counters::first_line;
use crate::model::ModelTarget;
use crate::result::{DiskFacts, Host, TargetFacts};
use crate::target::Target;

impl Host {
    /// This machine. Properties that `/proc` does not show are `unknown`.
    pub(crate) fn here(idle_busy_cpus: Option<f64>) -> Self {
        let unknown = || "unknown".to_owned();
        Self {
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
pub(crate) fn memory_bytes() -> Option<u64> {
    memory(&fs::read_to_string("/proc/meminfo").ok()?, "MemTotal:")
}

/// Memory that is available without swapping, in bytes; none if `/proc` does not show it.
pub(crate) fn memory_available_bytes() -> Option<u64> {
    memory(&fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable:")
}

fn memory(meminfo: &str, field: &str) -> Option<u64> {
    let kib = meminfo.lines().find_map(|line| line.strip_prefix(field))?;
    kib.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

impl TargetFacts {
    /// The facts of a target; none for [`Target::none`].
    pub fn of(target: &Target) -> Option<Self> {
        if let Some(model) = target.model() {
            return Some(Self::of_model(model));
        }
        let Some(info) = target.info() else {
            // A stripe has no properties of one file.
            return Some(Self {
                path: target.file()?.display().to_string(),
                kind: "stripe".to_owned(),
                scratch: target.is_scratch(),
                size_bytes: target.size_bytes(),
                filesystem: None,
                direct_align_bytes: target.direct_align_bytes().ok(),
                disk: None,
            });
        };
        Some(Self {
            path: info.path.display().to_string(),
            kind: match info.kind {
                Kind::BlockDevice => "block device",
                Kind::Remote => "remote export",
                _ => "file",
            }
            .to_owned(),
            scratch: target.is_scratch(),
            size_bytes: info.size_bytes,
            filesystem: info.filesystem.as_ref().map(|filesystem| filesystem.name.clone()),
            direct_align_bytes: target.direct_align_bytes().ok(),
            disk: info.backing.disk().map(DiskFacts::of),
        })
    }

    /// The facts of further targets.
    pub(crate) fn of_further(target: &Target) -> Vec<Self> {
        let models = target.models().iter().skip(1).map(Self::of_model);
        models.chain(target.each().skip(1).filter_map(Self::of)).collect()
    }

    fn of_model(model: &ModelTarget) -> Self {
        Self {
            path: model.name().display().to_string(),
            kind: "model".to_owned(),
            scratch: false,
            size_bytes: model.size_bytes(),
            filesystem: None,
            direct_align_bytes: Some(model.align_bytes()),
            disk: None,
        }
    }
}

impl DiskFacts {
    pub(crate) fn of(disk: &Disk) -> Self {
        Self {
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
        let host = Host::here(None);
        assert!(host.cores > 0 && host.memory_bytes > 0 && host.kernel.contains('.'), "{host:?}");
    }
}
