//! The counters around a repetition: CPU time, and for each target the transfers of the disk and the storage, and lost
//! connections. Does not run jobs.

use iopath::remote::Losses;
use iopath_os::{CpuTimes, process_cpu_times};
use iopath_report::result::Connections;

use super::CpuSeconds;
use crate::counters::{DiskCounters, DiskUses, ProcessIo, machine_busy_seconds};
use crate::export::RemoteTarget;
use crate::storage::{StorageBytes, StorageCounts};
use crate::target::Target;

/// What was transferred for a target. See [`super::Measured`].
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Transferred {
    pub(crate) device: Option<DiskCounters>,
    pub(crate) storage: Option<StorageBytes>,
    /// None where the target is no export.
    pub(crate) connections: Option<Connections>,
}

/// The counters at one moment.
pub(super) struct Counters {
    cpu: CpuCounters,
    /// Of each target.
    transfers: Vec<TransferCounters>,
    disks: DiskUses,
}

struct CpuCounters {
    process: CpuTimes,
    machine_busy_seconds: Option<f64>,
}

struct TransferCounters {
    device: Option<DiskCounters>,
    storage: Option<StorageCounts>,
    /// None if the kernel or a server submits the I/O instead of this process.
    io: Option<ProcessIo>,
    losses: Option<Losses>,
}

/// Reading the counters of transfers takes CPU time that is not the workload's.
impl Counters {
    pub(super) fn before(targets: &[&Target]) -> Self {
        let (transfers, disks) = (TransferCounters::read(targets), read_disks(targets));
        Self { cpu: CpuCounters::read(), transfers, disks }
    }

    pub(super) fn after(targets: &[&Target]) -> Self {
        let cpu = CpuCounters::read();
        Self { cpu, transfers: TransferCounters::read(targets), disks: read_disks(targets) }
    }

    /// What was counted since `before`.
    pub(super) fn since(&self, before: &Self) -> (CpuSeconds, Vec<Transferred>, DiskUses) {
        let (cpu, cpu_before) = (&self.cpu, &before.cpu);
        let cpu = CpuSeconds {
            user: cpu.process.user.saturating_sub(cpu_before.process.user).as_secs_f64(),
            system: cpu.process.system.saturating_sub(cpu_before.process.system).as_secs_f64(),
            machine_busy: cpu
                .machine_busy_seconds
                .zip(cpu_before.machine_busy_seconds)
                .map(|(after, before)| (after - before).max(0.0)),
        };
        let transfers = self.transfers.iter().zip(&before.transfers);
        let of_disk = |(name, after): &(String, DiskCounters)| {
            let (_, before) = before.disks.iter().find(|(known, _)| known == name)?;
            Some((name.clone(), *after - *before))
        };
        let disks = self.disks.iter().filter_map(of_disk).collect();
        (cpu, transfers.map(|(after, before)| after.since(before)).collect(), disks)
    }
}

fn read_disks(targets: &[&Target]) -> DiskUses {
    let mut disks = DiskUses::new();
    for name in targets.iter().flat_map(|target| target.disks()) {
        if let Some(counters) =
            DiskCounters::of(name).filter(|_| disks.iter().all(|(known, _)| known != name))
        {
            disks.push((name.to_owned(), counters));
        }
    }
    disks
}

impl CpuCounters {
    fn read() -> Self {
        Self { machine_busy_seconds: machine_busy_seconds().ok(), process: process_cpu_times() }
    }
}

impl TransferCounters {
    fn read(targets: &[&Target]) -> Vec<Self> {
        let read = |target: &&Target| Self {
            device: target.disk().and_then(DiskCounters::of),
            storage: target.storage().counts(),
            // With several targets, the transfers of the process are not those of one disk.
            io: ProcessIo::of_self()
                .filter(|_| targets.len() == 1 && target.storage().is_accessed_by_process()),
            losses: target.remote().map(RemoteTarget::losses),
        };
        targets.iter().map(read).collect()
    }

    fn since(&self, before: &Self) -> Transferred {
        let disk = self.device.zip(before.device).map(|(after, before)| after - before);
        let own = self.io.zip(before.io).map(|(after, before)| after - before);
        let storage = self.storage.as_ref().zip(before.storage.as_ref());
        let losses = before.losses.zip(self.losses);
        Transferred {
            connections: losses.map(|(before, after)| Connections {
                lost: after.lost - before.lost,
                reconnected: after.reconnected - before.reconnected,
            }),
            device: disk.map(|disk| own.map_or(disk, |own| disk.caused_by(own))),
            storage: storage.map(|(after, before)| after.since(before)),
        }
    }
}
