//! The devices of the kernel, and which kinds of events they have. The reader looks at events before they are joined,
//! so the first event of a device finds what follows.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use iopath_log::NumberMap;
use iopath_log::kernel::{DeviceNumber, DeviceSource, KernelEvent, OpenedDevice, What};

use crate::blocks::SharedBlocks;

/// The kinds of events of a device: a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Traits(u8);

impl Traits {
    const BIO: Self = Self(1);
    const REQUEST: Self = Self(1 << 1);
    const COMPLETION: Self = Self(1 << 2);
    /// A bio, and a request at the device, with forced unit access.
    const FORCED_BIO: Self = Self(1 << 3 | Self::BIO.0);
    const FORCED_REQUEST: Self = Self(1 << 4 | Self::REQUEST.0);

    /// Whether it has a request queue, unlike zram, md and most of dm, which complete bios. Of a device without
    /// completions, only the bios are known: they wait.
    pub(super) const fn has_requests(self) -> bool {
        self.has(Self::REQUEST) || !self.has(Self::COMPLETION)
    }

    /// Whether the trace has its bios.
    pub(super) const fn has_bios(self) -> bool {
        self.has(Self::BIO)
    }

    /// Whether it executes forced unit access. For other devices, the kernel adds a flush to the request without it.
    const fn has_fua(self) -> bool {
        self.has(Self::FORCED_REQUEST) || !self.has(Self::FORCED_BIO) || !self.has(Self::REQUEST)
    }

    const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The number of tasks whose last bio is remembered. A task gets the request of a bio soon after it has queued it.
const TASKS: usize = 256;

/// The bio that a task has queued last.
#[derive(Debug, Clone, Copy)]
struct Queued {
    task: u32,
    device: DeviceNumber,
    sector: u64,
}

/// All devices. Copies share them.
#[derive(Debug, Clone)]
pub(super) struct Devices {
    blocks: SharedBlocks,
    known: Arc<Mutex<Known>>,
    /// The last bio of each task, by the lower bits of its number. Copies do not look ahead.
    queued: Vec<Option<Queued>>,
    /// The device of the event before, and its traits.
    last: Option<(DeviceNumber, Traits)>,
}

#[derive(Debug, Default)]
struct Known {
    traits: NumberMap<DeviceNumber, Traits>,
    /// The disks of partitions.
    disks: NumberMap<DeviceNumber, DeviceNumber>,
    /// The devices of the queues, in order.
    opened: Vec<DeviceNumber>,
}

impl Devices {
    pub(super) fn new(blocks: SharedBlocks) -> Self {
        Self { blocks, known: Arc::default(), queued: vec![None; TASKS], last: None }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the kind of an event. Returns whether that is new.
    #[inline]
    pub(super) fn look_ahead(&mut self, event: &KernelEvent) -> bool {
        let is_disk_new = self.find_disk(event);
        let (device, kind) = match event.what {
            What::Queue(io) if io.is_fua => (io.device, Traits::FORCED_BIO),
            What::Issue(io) if io.is_fua => (io.device, Traits::FORCED_REQUEST),
            What::Queue(io) => (io.device, Traits::BIO),
            What::Remap { to, .. } => (to.device, Traits::BIO),
            What::Get(io) | What::Insert(io) | What::Issue(io) => (io.device, Traits::REQUEST),
            What::Complete(io, _) | What::BioComplete(io, _) => (io.device, Traits::COMPLETION),
            _ => return is_disk_new,
        };
        match self.last {
            Some((last, traits)) if last == device && traits.has(kind) => is_disk_new,
            _ => self.note(device, kind) || is_disk_new,
        }
    }

    #[cold]
    fn note(&mut self, device: DeviceNumber, kind: Traits) -> bool {
        let mut known = self.known();
        let disk = known.disks.get(&device).copied().unwrap_or(device);
        let traits = known.traits.entry(disk).or_default();
        let before = *traits;
        *traits = before.with(kind);
        let after = *traits;
        drop(known);
        self.last = Some((device, after));
        after != before
    }

    /// Since Linux 5.11, the events of a bio name the partition, with sectors of the disk, and those of a request the
    /// disk. So a task that queues a bio and gets a request for the same sector of another device has a partition.
    fn find_disk(&mut self, event: &KernelEvent) -> bool {
        let place = event.tid as usize % TASKS;
        match event.what {
            What::Queue(io) => {
                self.queued[place] = Some(Queued { task: event.tid, device: io.device, sector: io.sector });
            }
            // Another device has the bio now.
            What::Remap { to, from, .. } if to.device != from => self.queued[place] = None,
            What::Get(io) => {
                if let Some(queued) = self.queued[place].take()
                    && queued.task == event.tid
                    && queued.sector == io.sector
                    && queued.device != io.device
                {
                    return self.note_disk(queued.device, io.device);
                }
            }
            _ => {}
        }
        false
    }

    #[cold]
    fn note_disk(&mut self, partition: DeviceNumber, disk: DeviceNumber) -> bool {
        self.last = None;
        let mut known = self.known();
        if known.disks.get(&partition) == Some(&disk) {
            return false;
        }
        let of_partition = known.traits.remove(&partition).unwrap_or_default();
        let traits = known.traits.entry(disk).or_default();
        *traits = traits.with(of_partition);
        known.disks.insert(partition, disk);
        true
    }

    /// The disk of a partition; otherwise the device itself.
    pub(super) fn disk(&self, device: DeviceNumber) -> DeviceNumber {
        self.known().disks.get(&device).copied().unwrap_or(device)
    }

    /// The kinds of events of a device so far.
    pub(super) fn traits(&self, device: DeviceNumber) -> Traits {
        self.known().traits.get(&device).copied().unwrap_or_default()
    }

    /// The number of queues.
    pub(super) fn len(&self) -> usize {
        self.known().opened.len()
    }

    /// The devices of the queues, in order.
    pub(super) fn numbers(&self) -> Vec<DeviceNumber> {
        self.known().opened.clone()
    }
}

impl DeviceSource for Devices {
    fn open(&mut self, device: DeviceNumber) -> OpenedDevice {
        let mut known = self.known();
        let queue = known.opened.len() as u16;
        known.opened.push(device);
        let traits = known.traits.get(&device).copied().unwrap_or_default();
        OpenedDevice {
            queue,
            sink: self.blocks.sink(queue),
            has_requests: traits.has_requests(),
            has_fua: traits.has_fua(),
        }
    }
}
