//! One queue and one device for any number of threads. Each thread is a [`QueueClient`] and adds bios to its own ring.
//! The thread that currently holds the queue serves the rings of all. `runner.rs` is the queue of a single thread.
//!
//! ```text
//!  client ── ring of bios ───────┐                              ┌──▶ device
//!  client ── ring of bios ───────┼──▶ RequestQueue (elevator) ──┤
//!  client ── ring of bios ───────┘     held by one client       │
//!     ▲                                at a time                │
//!     └── ring of completions ◀─────────────────────────────────┘
//! ```

mod client;
mod core;
mod mailbox;
mod regular;
mod ring;
mod wait;

use std::fmt;
use std::sync::Arc;

use iopath_core::elevator::{ElevatorError, ElevatorSpec};
use iopath_core::{Limits, LogSink, QueueConfig, QueueStats, QueuedDevice, Stream};

use crate::clock;
use crate::device::{RealDevice, Watch};
use crate::io_buf::IoBuf;
use crate::jobs::Jobs;
use crate::sync::Mutex;
use crate::sync::atomic::Ordering::{Acquire, Release};
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
pub use client::QueueClient;
use core::{Client, Core};
use mailbox::Mailbox;
use regular::Regular;

/// A request queue and a device that threads share. An elevator orders the requests of all threads.
///
/// ```
/// use iopath_core::{Extent, Limits, QueueConfig};
/// use iopath_os::{Null, SharedQueue};
///
/// let device = Box::new(Null::new(Limits::with_capacity(2048)));
/// let config = QueueConfig { elevator: "deadline".parse()?, ..QueueConfig::default() };
/// let queue = SharedQueue::new(device, &config);
/// std::thread::scope(|scope| {
///     for thread in 0..4 {
///         let mut client = queue.client(1, 1);
///         scope.spawn(move || {
///             let extent = Extent::from_bytes(thread * 4096, 4096).expect("whole sectors");
///             client.read(extent, &mut [0; 4096])
///         });
///     }
/// });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A clone is the same queue. The device is dropped with the last clone and the last client.
pub struct SharedQueue<D: ?Sized + RealDevice> {
    shared: Arc<QueueShared<D>>,
}

struct QueueShared<D: ?Sized + RealDevice> {
    core: Mutex<Core<D>>,
    /// A hint: whether a thread holds `core`.
    is_held: AtomicBool,
    /// The clients that have requested service since a holder of the queue last read this field, as bits.
    pending: AtomicU64,
    regular: Regular,
    /// The kinds of pollers whose waits have ended since a holder of the queue last read this field.
    pollers_back: AtomicU32,
    /// A thread has panicked while it held the queue.
    has_panicked: AtomicBool,
    /// In sectors.
    capacity: Arc<AtomicU64>,
    watch: Arc<dyn Watch>,
    limits: Limits,
}

impl<D: ?Sized + RealDevice> SharedQueue<D> {
    /// A queue with this configuration in front of `device`.
    ///
    /// # Panics
    /// If the device has requests in flight.
    pub fn new(device: Box<D>, config: &QueueConfig) -> Self {
        let foreign = device.in_flight();
        assert!(foreign == 0, "the device has {foreign} requests that this queue has not submitted");
        let limits = device.limits().clone();
        let watch = device.watch();
        let bios_max = config.bios_max.clamp(1, QueueConfig::SLOTS_MAX);
        let capacity = Arc::new(AtomicU64::new(limits.capacity));
        let pump = QueuedDevice::new(device, config);
        Self {
            shared: Arc::new(QueueShared {
                core: Mutex::new(Core::new(pump, bios_max, Arc::clone(&capacity))),
                is_held: AtomicBool::new(false),
                pending: AtomicU64::new(0),
                regular: Regular::new(),
                pollers_back: AtomicU32::new(0),
                has_panicked: AtomicBool::new(false),
                capacity,
                watch,
                limits,
            }),
        }
    }

    /// A client with room for `bios_max` bios in flight. It submits its plugged bios when they form more than `plug`
    /// runs that cannot merge with each other.
    pub fn client(&self, bios_max: u32, plug: u32) -> QueueClient<D> {
        self.client_for_buffers(bios_max, plug)
    }

    /// Does the same as [`SharedQueue::client`], for jobs with buffers of the type `B`.
    pub fn client_for_buffers<B: IoBuf>(&self, bios_max: u32, plug: u32) -> QueueClient<D, B> {
        let bios_max = bios_max.clamp(1, QueueConfig::SLOTS_MAX);
        let (submissions, bios_in) = ring::ring(bios_max);
        let (dones_out, completions) = ring::ring(bios_max);
        let mailbox = Arc::<Mailbox>::default();
        let client = Client { mailbox: Arc::clone(&mailbox), submissions: bios_in, completions: dones_out };
        let (number, fills_reads) = self.shared.with(|core| {
            let free = core.clients.iter().position(Option::is_none);
            let number = free.unwrap_or(core.clients.len());
            if free.is_none() {
                core.clients.push(None);
            }
            core.clients[number] = Some(client);
            self.shared.regular.set_clients(core.clients.len() as u32);
            (number as u32, core.pump.device().fills_reads())
        });
        let jobs = Jobs::new(bios_max.min(QueueConfig::SLOTS_MAX), fills_reads);
        QueueClient::new(self.clone(), number, mailbox, (submissions, completions), jobs, (bios_max, plug))
    }

    /// Makes the elevator match `spec`. An elevator of the same kind keeps its head position and its shares, and gets
    /// the new settings. Any other is replaced, and the new elevator gets the queued requests.
    pub fn follow(&self, spec: &ElevatorSpec) {
        self.shared.with(|core| core.pump.queue_mut().apply_spec(spec, clock::now()));
    }

    /// Sets a tunable of the elevator, from the next request on.
    pub fn set_tunable(&self, name: &str, value: u64) -> Result<(), ElevatorError> {
        self.shared.with(|core| core.pump.queue_mut().set_tunable(name, value))
    }

    /// Sets the weight of a stream, clamped to 1..=10,000. The default is 100. Weights are lost when the elevator is
    /// replaced.
    pub fn set_weight(&self, stream: Stream, weight: u32) {
        self.shared.with(|core| core.pump.queue_mut().set_weight(stream, weight));
    }

    /// The elevator and its current settings.
    pub fn elevator(&self) -> ElevatorSpec {
        self.shared.with(|core| core.pump.queue().elevator_spec().clone())
    }

    /// From now on, records every step of every client's I/O in `sink`, which replaces an earlier sink. The sink must
    /// not call this queue: see [`LogSink`].
    pub fn start_log(&self, sink: Box<dyn LogSink>) {
        self.shared.with(|core| core.pump.queue_mut().start_log(sink));
    }

    /// Ends the log if `is_ours`, evaluated while no thread can replace the sink: see
    /// [`ThreadQueue::end_log_if`](crate::ThreadQueue::end_log_if).
    pub fn end_log_if(&self, is_ours: impl FnOnce() -> bool) {
        self.shared.with(|core| {
            if is_ours() {
                core.pump.queue_mut().end_log();
            }
        });
    }

    /// Sets the capacity after a resize of the file.
    pub fn set_capacity(&self, sectors: u64) {
        self.shared.capacity.store(sectors, Release);
    }

    /// The statistics of the queue, for all clients.
    pub fn stats(&self) -> QueueStats {
        self.shared.with(|core| *core.pump.queue().stats())
    }

    /// System calls made for I/O so far, for all clients.
    pub fn syscalls(&self) -> u64 {
        self.shared.with(|core| core.pump.device().syscalls())
    }

    /// The limits of the device.
    pub fn limits(&self) -> &Limits {
        &self.shared.limits
    }

    /// The capacity of the device in sectors.
    pub fn capacity(&self) -> u64 {
        self.shared.capacity.load(Acquire)
    }
}

impl<D: ?Sized + RealDevice> Clone for SharedQueue<D> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<D: ?Sized + RealDevice> fmt::Debug for SharedQueue<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedQueue").field("limits", &self.shared.limits).finish_non_exhaustive()
    }
}
