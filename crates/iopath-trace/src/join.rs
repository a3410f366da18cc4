//! Makes records of the request log of the events of a trace. Each device is a queue of the log, each process a stream.
//! `iopath_log::kernel` joins the events of the kernel, `join/whole.rs` I/Os of which the trace has one line.

mod devices;
mod table;
mod whole;

use iopath_core::{Extent, Record, Sector};
use iopath_log::kernel::{DeviceNumber, JoinCounts, Joiner, KernelEvent, KernelIo, What};
use iopath_log::{Block, Labels, QueueLabel};

use crate::blocks::SharedBlocks;
use crate::event::{TraceEvent, WholeIo};
use devices::{Devices, Traits};
use whole::Whole;

/// The joiner passes its pending records on after this number of events, so that those of a device that is seldom used
/// do not come much later than others.
const EVENTS_UNTIL_FLUSH: u32 = 8192;

/// Joins the events of all devices.
pub(crate) struct Join {
    /// The devices of the kernel, and what is known of them from events that are not joined yet.
    devices: Devices,
    kernel: Joiner<Devices>,
    kernel_blocks: SharedBlocks,
    whole: Whole,
    labels: Labels,
    /// The number of labels at the last call of [`Join::has_new_labels`].
    labelled: usize,
    until_flush: u32,
    /// The device of the last kernel event, its disk, and the traits of the disk.
    last: Option<(DeviceNumber, DeviceNumber, Traits)>,
    /// Events whose sectors do not exist, or do not fit into a record.
    beyond: u64,
    clamped: u64,
    /// Requests that were made bios, because the trace has none.
    without_queue: u64,
}

impl Join {
    pub(crate) fn new() -> Self {
        let kernel_blocks = SharedBlocks::default();
        let devices = Devices::new(kernel_blocks.clone());
        Self {
            kernel: Joiner::new(devices.clone()),
            devices,
            kernel_blocks,
            whole: Whole::default(),
            labels: Labels::default(),
            labelled: 0,
            until_flush: EVENTS_UNTIL_FLUSH,
            last: None,
            beyond: 0,
            clamped: 0,
            without_queue: 0,
        }
    }

    /// Looks at an event that is joined later.
    #[inline]
    pub(crate) fn look_ahead(&mut self, event: &TraceEvent) {
        if let TraceEvent::Kernel(event) = event
            && self.devices.look_ahead(event)
        {
            self.last = None;
        }
    }

    /// Follows an event. Events are in the order of time.
    #[inline]
    pub(crate) fn follow(&mut self, event: &TraceEvent) {
        match event {
            TraceEvent::Whole(io) => self.follow_whole(io),
            TraceEvent::Kernel(event) => self.follow_kernel(event),
        }
    }

    #[inline]
    fn follow_whole(&mut self, io: &WholeIo) {
        if self.has_sectors(io.sector, io.sectors)
            && let Some(extent) = Extent::new(Sector(io.sector), io.sectors)
        {
            self.whole.begin(io, extent);
        }
    }

    fn follow_kernel(&mut self, event: &KernelEvent) {
        let mut event = *event;
        if let What::Split { device, .. } = &mut event.what {
            *device = self.devices.disk(*device);
        }
        if let Some(io) = io_of(&event.what) {
            if !self.has_sectors(io.sector, io.sectors.into()) {
                return;
            }
            self.adapt(&mut event, io);
        }
        self.kernel.handle(&event);
        self.until_flush -= 1;
        if self.until_flush == 0 {
            self.until_flush = EVENTS_UNTIL_FLUSH;
            self.flush_kernel();
        }
    }

    /// Adapts an event to its device: a device without requests completes bios, and one without bios has requests only.
    fn adapt(&mut self, event: &mut KernelEvent, io: KernelIo) {
        let (disk, traits) = match self.last {
            Some((device, disk, traits)) if device == io.device => (disk, traits),
            _ => {
                let disk = self.devices.disk(io.device);
                (disk, self.devices.traits(disk))
            }
        };
        self.last = Some((io.device, disk, traits));
        let io = KernelIo { device: disk, ..io };
        if let Some(of_event) = io_of_mut(&mut event.what) {
            *of_event = io;
        }
        match event.what {
            What::Complete(io, errno) if !traits.has_requests() => event.what = What::BioComplete(io, errno),
            What::Get(_) if !traits.has_bios() => self.queue_bio(event, io),
            What::Insert(_) | What::Issue(_) if !traits.has_bios() && !self.kernel.has_queued(&io) => {
                self.queue_bio(event, io);
                self.kernel.handle(&KernelEvent { what: What::Get(io), ..*event });
            }
            _ => {}
        }
    }

    /// The trace has no bios of this device: a request has one bio, which is queued when the request is first seen.
    fn queue_bio(&mut self, event: &KernelEvent, io: KernelIo) {
        self.without_queue += 1;
        self.kernel.handle(&KernelEvent { what: What::Queue(io), ..*event });
    }

    fn flush_kernel(&mut self) {
        self.kernel.flush();
        self.labels.streams.extend(self.kernel.take_stream_labels());
    }

    /// Ends the trace.
    pub(crate) fn finish(&mut self) {
        self.flush_kernel();
        self.kernel_blocks.lock().end_all();
        self.whole.end_all();
    }

    /// Moves the next block that is ready to `block`.
    pub(crate) fn take(&mut self, block: &mut Block) -> bool {
        self.whole.blocks().take(block) || self.kernel_blocks.lock().take(block)
    }

    /// Whether there are more devices or processes than at the last call.
    pub(crate) fn has_new_labels(&mut self) -> bool {
        self.labels.streams.extend(self.kernel.take_stream_labels());
        let count = self.labels.streams.len() + self.devices.len() + self.whole.names_len();
        std::mem::replace(&mut self.labelled, count) != count
    }

    /// The labels of all devices and processes so far. The names are those of the reader.
    pub(crate) fn labels(
        &self,
        device_name: impl Fn(u32) -> Option<String>,
        process_name: impl Fn(u32) -> Option<String>,
    ) -> Labels {
        let mut labels = self.labels.clone();
        let kernel = self.devices.numbers().into_iter().map(|number| (number.0, number.to_string()));
        let whole = self.whole.devices().iter().map(|device| (*device, String::new()));
        for (queue, (device, number)) in kernel.chain(whole).enumerate() {
            let name = device_name(device).unwrap_or_else(|| {
                if number.is_empty() { format!("device {device}") } else { number.clone() }
            });
            labels.queues.push(QueueLabel { queue: queue as u16, name, number });
        }
        labels.streams.extend(self.whole.streams(device_name, process_name));
        labels
    }

    /// What was counted and limits the conclusions.
    pub(crate) fn notes(&self) -> Vec<String> {
        let JoinCounts { unknown_completions, forgotten, .. } = self.kernel.counts();
        let rows = [
            (
                self.without_queue,
                "requests have no bios in the trace: they count as queued when they are first seen",
            ),
            (
                unknown_completions,
                "completions have no request: it began before the trace, or its events are missing",
            ),
            (forgotten, "bios and requests have no end: their events are missing"),
            (self.kernel.late(), "events are earlier than the one before: they are recorded at its time"),
            (self.beyond, "events have sectors at or beyond 2^55, which no device has: they are not used"),
            (
                self.clamped,
                "events have sectors at or beyond 2^48, or 2^24 sectors and more: the log has the largest value",
            ),
            (self.whole.without_room(), "I/Os have no completion, because too many are in flight"),
            (self.whole.many_devices(), "I/Os are of devices beyond the first 65,535: they are not used"),
            (
                self.whole.without_latency(),
                "I/Os have no latency: only their submissions are known, for replays at the recorded times",
            ),
        ];
        rows.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect()
    }

    /// Whether sectors exist. Counts those that do not, and those that a record cannot hold.
    #[inline]
    fn has_sectors(&mut self, sector: u64, sectors: u64) -> bool {
        if sector <= Record::SECTOR_MAX && sectors <= Record::SECTORS_MAX {
            return true;
        }
        let is_extent = Extent::new(Sector(sector), sectors).is_some();
        self.beyond += u64::from(!is_extent);
        self.clamped += u64::from(is_extent);
        is_extent
    }
}

/// The range of an event.
fn io_of(what: &What) -> Option<KernelIo> {
    let mut what = *what;
    io_of_mut(&mut what).copied()
}

fn io_of_mut(what: &mut What) -> Option<&mut KernelIo> {
    match what {
        What::Queue(io)
        | What::Get(io)
        | What::BackMerge(io)
        | What::FrontMerge(io)
        | What::MergeRequest(io)
        | What::Insert(io)
        | What::Issue(io)
        | What::Requeue(io)
        | What::Complete(io, _)
        | What::BioComplete(io, _)
        | What::Remap { to: io, .. } => Some(io),
        What::Split { .. } | What::Plug | What::Unplug { .. } | What::Lost { .. } | What::Fork { .. } => None,
    }
}
