//! One queue and one device for any number of threads. Each thread is a [`QueueClient`]: it adds bios to a ring of its
//! own, and the thread that holds the queue at the moment serves the rings of all. Not a runner for one thread: see
//! `runner.rs`.
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
mod ring;
mod wait;

use std::fmt;
use std::sync::Arc;

use iopath_core::elevator::{ElevatorError, ElevatorSpec};
use iopath_core::{Limits, LogSink, QueueConfig, QueueStats, QueuedDevice, Stream};

use crate::clock;
use crate::device::{RealDevice, Watch};
use crate::sync::Mutex;
use crate::sync::atomic::Ordering::{Acquire, Release};
use crate::sync::atomic::{AtomicBool, AtomicI32, AtomicU64};
pub use client::QueueClient;
use core::{Client, Core};
use mailbox::Mailbox;

/// A request queue and a device that threads share. An elevator orders the requests of all of them.
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
    shared: Arc<Shared<D>>,
}

struct Shared<D: ?Sized + RealDevice> {
    core: Mutex<Core<D>>,
    /// A hint: whether a thread holds `core`.
    is_held: AtomicBool,
    /// The clients that want to be served since a thread that held the queue last looked, as bits.
    calls: AtomicU64,
    /// The poller has returned from the device, and no thread that holds the queue has noted it yet.
    is_poller_back: AtomicBool,
    /// The error number with which the device refused to be waited for, or 0. EIO after a panic of a thread that held
    /// the queue.
    broken: AtomicI32,
    /// In sectors.
    capacity: Arc<AtomicU64>,
    watch: Arc<dyn Watch>,
    limits: Limits,
}

impl<D: ?Sized + RealDevice> SharedQueue<D> {
    /// A queue of that configuration in front of `device`.
    ///
    /// # Panics
    /// If the device has requests already.
    pub fn new(device: Box<D>, config: &QueueConfig) -> Self {
        let foreign = device.in_flight();
        assert!(foreign == 0, "the device has {foreign} requests that this queue has not submitted");
        let (limits, watch) = (device.limits().clone(), device.watch());
        let bios_max = config.bios_max.clamp(1, QueueConfig::SLOTS_MAX);
        let capacity = Arc::new(AtomicU64::new(limits.capacity));
        let pump = QueuedDevice::new(device, config);
        Self {
            shared: Arc::new(Shared {
                core: Mutex::new(Core::new(pump, bios_max, Arc::clone(&capacity))),
                is_held: AtomicBool::new(false),
                calls: AtomicU64::new(0),
                is_poller_back: AtomicBool::new(false),
                broken: AtomicI32::new(0),
                capacity,
                watch,
                limits,
            }),
        }
    }

    /// A client with room for `bios_max` bios in flight. It submits by itself when more than `plug` runs of bios that
    /// cannot join one another are plugged.
    pub fn client(&self, bios_max: u32, plug: u32) -> QueueClient<D> {
        let bios_max = bios_max.clamp(1, QueueConfig::SLOTS_MAX);
        let (submissions, bios_in) = ring::ring(bios_max);
        let (dones_out, completions) = ring::ring(bios_max);
        let mailbox = Arc::<Mailbox>::default();
        let client = Client { mailbox: Arc::clone(&mailbox), submissions: bios_in, completions: dones_out };
        let number = self.shared.with(|core| {
            let free = core.clients.iter().position(Option::is_none);
            let number = free.unwrap_or(core.clients.len());
            if free.is_none() {
                core.clients.push(None);
            }
            core.clients[number] = Some(client);
            number as u32
        });
        QueueClient::new(self.clone(), number, mailbox, submissions, completions, bios_max, plug)
    }

    /// Makes the elevator what `spec` says: one of that kind stays, with its head and its shares, and is only set anew;
    /// from any other that of `spec` takes over what is queued.
    pub fn follow(&self, spec: &ElevatorSpec) {
        self.shared.with(|core| core.pump.queue_mut().apply_spec(spec, clock::now()));
    }

    /// Sets a tunable of the elevator; it counts from the next request on.
    pub fn set_tunable(&self, name: &str, value: u64) -> Result<(), ElevatorError> {
        self.shared.with(|core| core.pump.queue_mut().set_tunable(name, value))
    }

    /// Gives a stream a share of `weight`, 1 to 10,000, against the 100 of others; a weight outside is replaced by the
    /// nearest of these. It is forgotten when another elevator takes over.
    pub fn set_weight(&self, stream: Stream, weight: u32) {
        self.shared.with(|core| core.pump.queue_mut().set_weight(stream, weight));
    }

    /// The elevator and how it is set now.
    pub fn elevator(&self) -> ElevatorSpec {
        self.shared.with(|core| core.pump.queue().elevator_spec().clone())
    }

    /// Records every step of every client's I/O in `sink` from now on, and in no other sink.
    pub fn start_log(&self, sink: Box<dyn LogSink>) {
        self.shared.with(|core| core.pump.queue_mut().start_log(sink));
    }

    /// The device ends after `sectors` sectors from now on: of a file that was resized.
    pub fn set_capacity(&self, sectors: u64) {
        self.shared.capacity.store(sectors, Release);
    }

    /// What the queue has done so far, for all clients.
    pub fn stats(&self) -> QueueStats {
        self.shared.with(|core| *core.pump.queue().stats())
    }

    /// System calls made for I/O so far, for all clients.
    pub fn syscalls(&self) -> u64 {
        self.shared.with(|core| core.pump.device().syscalls())
    }

    /// What the device takes in one request.
    pub fn limits(&self) -> &Limits {
        &self.shared.limits
    }

    /// Where the device ends, in sectors.
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
