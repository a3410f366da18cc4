//! Selects the queue of a thread or batch of a volume: with elevator `none` its own queue, with any other elevator the
//! queue that all threads and batches share. `storage.rs` opens devices.

mod log;

use crate::error::OpenError;
#[cfg(feature = "elevator")]
use iopath_core::elevator::ElevatorError;
use iopath_core::elevator::ElevatorSpec;
use iopath_core::{LogSink, QueueConfig, Stream};
use iopath_os::{
    BufferPool, Fallback, IoBuf, PoolBuf, QueueClient, RealDevice, Runner, SharedQueue, ThreadQueue,
};
use log::MovableSink;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// A device that threads share.
pub(crate) type SharedDevice = dyn RealDevice + Send;

/// Opens devices on the source of a volume.
pub(crate) trait Devices {
    /// The elevator, and the queue that threads share.
    fn tuning(&self) -> &Tuning;

    /// The maximum number of requests in flight at the device of one thread.
    fn depth(&self) -> u32;

    /// A device for the calling thread only. It registers the buffers of `pool`.
    fn open_local(&self, pool: Option<BufferPool>) -> Result<Opened<Box<dyn RealDevice>>, OpenError>;

    /// A device that may move between threads, with up to `depth` requests in flight.
    fn open_shared(
        &self,
        depth: u32,
        pool: Option<BufferPool>,
    ) -> Result<Opened<Box<SharedDevice>>, OpenError>;
}

/// An open device, or a queue on one.
#[derive(Debug)]
pub(crate) struct Opened<Q> {
    pub(crate) queue: Q,
    pub(crate) engine: &'static str,
    pub(crate) fallback: Option<Fallback>,
}

/// The settings of all queues of a volume. A change applies to the shared queue immediately. A thread's own queue
/// compares the generation at its next I/O, without a lock.
#[derive(Debug)]
pub(crate) struct Tuning {
    /// Counts the changes of `wanted`.
    generation: AtomicU64,
    wanted: Mutex<Wanted>,
    shared: Shared,
}

/// An elevator with its settings, and the weights of streams.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub(crate) elevator: ElevatorSpec,
    pub(crate) weights: Vec<(Stream, u32)>,
}

impl Wanted {
    /// Whether threads and batches share a queue: an elevator belongs to the device.
    pub(crate) fn is_shared(&self) -> bool {
        self.elevator.name() != "none"
    }
}

impl Tuning {
    /// Settings with up to `device_depth` requests in flight at the device of a shared queue.
    pub(crate) const fn new(elevator: ElevatorSpec, device_depth: u32) -> Self {
        let wanted = Wanted { elevator, weights: Vec::new() };
        Self { generation: AtomicU64::new(0), wanted: Mutex::new(wanted), shared: Shared::new(device_depth) }
    }

    /// The generation of the settings.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The settings and their generation.
    pub(crate) fn wanted(&self) -> (Wanted, u64) {
        let wanted = self.lock();
        // The generation changes only under the lock.
        (wanted.clone(), self.generation.load(Ordering::Relaxed))
    }

    /// Whether an elevator orders the requests.
    pub(crate) fn has_elevator(&self) -> bool {
        self.lock().is_shared()
    }

    /// The value of a tunable of the elevator.
    #[cfg(feature = "elevator")]
    pub(crate) fn tunable(&self, name: &str) -> Result<u64, ElevatorError> {
        self.lock().elevator.tunable(name)
    }

    /// The queue that threads and batches share.
    pub(crate) const fn shared_queue(&self) -> &Shared {
        &self.shared
    }

    /// Applies the settings to a shared queue.
    pub(crate) fn tune(&self, queue: &SharedQueue<SharedDevice>) {
        // Under the lock, so that older settings cannot overwrite newer ones.
        Self::apply(&self.lock(), queue);
    }

    /// Changes the settings, and applies them to the shared queue.
    #[cfg(feature = "elevator")]
    pub(crate) fn change<E>(&self, change: impl FnOnce(&mut Wanted) -> Result<(), E>) -> Result<(), E> {
        let mut wanted = self.lock();
        change(&mut wanted)?;
        self.generation.fetch_add(1, Ordering::Release);
        if let Some(queue) = self.shared.if_open() {
            Self::apply(&wanted, queue);
        }
        Ok(())
    }

    fn apply(wanted: &Wanted, queue: &SharedQueue<SharedDevice>) {
        queue.follow(&wanted.elevator);
        for (stream, weight) in &wanted.weights {
            queue.set_weight(*stream, *weight);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Wanted> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The queue that threads and batches share. Opened when a thread or batch first needs it; closed with the volume.
#[derive(Debug)]
pub(crate) struct Shared {
    opened: OnceLock<Opened<SharedQueue<SharedDevice>>>,
    /// The end of the volume in sectors, if it has moved. Locked while the queue is opened, and while the end moves.
    moved_end: Mutex<Option<u64>>,
    /// The maximum number of requests in flight at its device.
    device_depth: u32,
}

/// The parameters of a queue for one thread.
#[derive(Debug)]
pub(crate) struct Shape<D: ?Sized> {
    /// The maximum number of jobs in flight.
    pub(crate) jobs_max: u32,
    /// The maximum number of plugged requests.
    pub(crate) plug: u32,
    /// The buffers of the jobs, if they are known.
    pub(crate) pool: Option<BufferPool>,
    /// Opens a device for the thread's own queue.
    pub(crate) open: OpenDevice<D>,
}

/// Opens a device, and registers the buffers of a pool with it.
pub(crate) type OpenDevice<D> = fn(&dyn Devices, Option<BufferPool>) -> Result<Opened<Box<D>>, OpenError>;

/// The queue of one thread or batch. Applies the settings of the volume, and switches between an own queue and the
/// shared queue while nothing is in flight.
#[derive(Debug)]
pub(crate) struct Queue<D: ?Sized + RealDevice, B: IoBuf = PoolBuf> {
    used: ThreadQueue<D, SharedDevice, B>,
    shape: Shape<D>,
    /// The generation of the applied settings.
    generation: u64,
    /// Switch as soon as nothing is in flight.
    must_switch: bool,
    /// Never switch to the shared queue.
    is_pinned: bool,
    /// The log that the queue in use records, and the next one after a switch.
    log: Option<MovableSink>,
}

impl Shared {
    pub(crate) const fn new(device_depth: u32) -> Self {
        Self { opened: OnceLock::new(), moved_end: Mutex::new(None), device_depth }
    }

    /// The queue, if it is open.
    pub(crate) fn if_open(&self) -> Option<&SharedQueue<SharedDevice>> {
        self.opened.get().map(|opened| &opened.queue)
    }

    /// The queue; opens it if necessary. The caller applies the settings.
    fn open(&self, devices: &dyn Devices) -> Result<&Opened<SharedQueue<SharedDevice>>, OpenError> {
        if let Some(opened) = self.opened.get() {
            return Ok(opened);
        }
        let moved_end = self.moved_end.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(opened) = self.opened.get() {
            return Ok(opened);
        }
        let Opened { queue: device, engine, fallback } = devices.open_shared(self.device_depth, None)?;
        let config = QueueConfig {
            bios_max: QueueConfig::SHARED_BIOS_MAX,
            requests_max: QueueConfig::SHARED_BIOS_MAX,
            depth: self.device_depth,
            ..QueueConfig::default()
        };
        let queue = SharedQueue::new(device, &config);
        if let Some(sectors) = *moved_end {
            queue.set_capacity(sectors);
        }
        Ok(self.opened.get_or_init(|| Opened { queue, engine, fallback }))
    }

    /// Moves the end of the volume to `sectors`. `publish` announces the new end to callers. Until `publish` has
    /// returned, the queue accepts I/O up to the higher of the two ends, old and new, so that it refuses no I/O inside
    /// the volume.
    pub(crate) fn move_end(&self, sectors: u64, publish: impl FnOnce()) {
        let mut moved_end = self.moved_end.lock().unwrap_or_else(PoisonError::into_inner);
        *moved_end = Some(sectors);
        if let Some(queue) = self.if_open() {
            queue.set_capacity(queue.capacity().max(sectors));
            publish();
            queue.set_capacity(sectors);
        } else {
            publish();
        }
    }
}

/// The queue that threads and batches share, with the current settings; opens it if necessary. `None` with elevator
/// `none`.
pub(crate) fn shared_queue(devices: &dyn Devices) -> Result<Option<&SharedQueue<SharedDevice>>, OpenError> {
    let tuning = devices.tuning();
    if !tuning.wanted().0.is_shared() {
        return Ok(None);
    }
    let queue = &tuning.shared_queue().open(devices)?.queue;
    // A change of the settings during the opening has not reached the queue.
    tuning.tune(queue);
    Ok(Some(queue))
}

impl<D: ?Sized + RealDevice, B: IoBuf> Queue<D, B> {
    /// A queue for the calling thread: its own or the shared queue, depending on the elevator.
    pub(crate) fn open(devices: &dyn Devices, shape: Shape<D>) -> Result<Opened<Self>, OpenError> {
        let tuning = devices.tuning();
        let (wanted, generation) = tuning.wanted();
        let (used, engine, fallback) = if wanted.is_shared() {
            let Opened { queue, engine, fallback } = Self::client(devices, &shape)?;
            (ThreadQueue::Shared(queue), engine, fallback)
        } else {
            let Opened { queue: device, engine, fallback } = (shape.open)(devices, shape.pool.clone())?;
            (ThreadQueue::Own(Self::runner(device, devices, &shape, &wanted)), engine, fallback)
        };
        Ok(Opened {
            queue: Self { used, shape, generation, must_switch: false, is_pinned: false, log: None },
            engine,
            fallback,
        })
    }

    /// The queue for the next I/O, with the current settings of the volume.
    pub(crate) fn for_io(&mut self, devices: &dyn Devices) -> &mut ThreadQueue<D, SharedDevice, B> {
        if devices.tuning().generation() != self.generation {
            self.follow(devices);
        }
        if self.must_switch && self.used.in_flight() == 0 {
            // If the system refuses the engine for the other queue, this queue stays in use. It has the same elevator,
            // for the requests of this thread only.
            let _ = self.switch(devices);
        }
        &mut self.used
    }

    /// Switches permanently to an own queue. Requires that nothing is in flight.
    pub(crate) fn pin(&mut self, devices: &dyn Devices) -> Result<(), OpenError> {
        self.is_pinned = true;
        match self.used {
            ThreadQueue::Own(_) => Ok(()),
            ThreadQueue::Shared(_) => self.switch(devices),
        }
    }

    /// Records each later step of the queue in use in `sink`, also after a switch to another queue.
    pub(crate) fn start_log(&mut self, devices: &dyn Devices, sink: Box<dyn LogSink>) {
        let log = MovableSink::new(sink);
        self.for_io(devices).start_log(Box::new(log.clone()));
        self.log = Some(log);
    }

    /// The queue in use, without a switch or new settings: for reaping and queries.
    pub(crate) const fn as_is(&self) -> &ThreadQueue<D, SharedDevice, B> {
        &self.used
    }

    /// Does the same as [`Queue::as_is`], mutable.
    pub(crate) const fn as_is_mut(&mut self) -> &mut ThreadQueue<D, SharedDevice, B> {
        &mut self.used
    }

    fn client(
        devices: &dyn Devices,
        shape: &Shape<D>,
    ) -> Result<Opened<QueueClient<SharedDevice, B>>, OpenError> {
        let Opened { queue, engine, fallback } = devices.tuning().shared_queue().open(devices)?;
        // A change of the settings during the opening has not reached the queue.
        devices.tuning().tune(queue);
        let queue = queue.client_for_buffers(shape.jobs_max, shape.plug);
        Ok(Opened { queue, engine, fallback: fallback.clone() })
    }

    fn runner(device: Box<D>, devices: &dyn Devices, shape: &Shape<D>, wanted: &Wanted) -> Runner<D, B> {
        let depth = devices.depth();
        let config = QueueConfig {
            bios_max: shape.jobs_max,
            requests_max: shape.jobs_max.max(depth),
            depth,
            plug_requests_max: shape.plug,
            elevator: wanted.elevator.clone(),
        };
        let mut runner = Runner::for_buffers(device, &config);
        runner.set_depth(Self::depth(devices, wanted));
        for (stream, weight) in &wanted.weights {
            runner.set_weight(*stream, *weight);
        }
        runner
    }

    /// The maximum number of requests in flight at the device, for a queue of its own. A batch with a descriptor has
    /// its own queue also with an elevator. The depth is then at most that of the shared queue, so that the elevator
    /// has requests to order.
    fn depth(devices: &dyn Devices, wanted: &Wanted) -> u32 {
        let device_depth = devices.tuning().shared_queue().device_depth;
        if wanted.is_shared() { devices.depth().min(device_depth) } else { devices.depth() }
    }

    #[cold]
    fn follow(&mut self, devices: &dyn Devices) {
        let (wanted, generation) = devices.tuning().wanted();
        self.generation = generation;
        self.must_switch = self.belongs_to_shared(&wanted) != matches!(self.used, ThreadQueue::Shared(_));
        // A change has already reached the shared queue.
        if let ThreadQueue::Own(runner) = &mut self.used {
            runner.follow(&wanted.elevator);
            runner.set_depth(Self::depth(devices, &wanted));
            for (stream, weight) in wanted.weights {
                runner.set_weight(stream, weight);
            }
        }
    }

    /// Whether to use the shared queue.
    fn belongs_to_shared(&self, wanted: &Wanted) -> bool {
        wanted.is_shared() && !self.is_pinned
    }

    /// Switches to the own or the shared queue, depending on the elevator.
    #[cold]
    fn switch(&mut self, devices: &dyn Devices) -> Result<(), OpenError> {
        self.must_switch = false;
        let (wanted, _) = devices.tuning().wanted();
        let next = if self.belongs_to_shared(&wanted) {
            ThreadQueue::Shared(Self::client(devices, &self.shape)?.queue)
        } else {
            let opened = (self.shape.open)(devices, self.shape.pool.clone())?;
            ThreadQueue::Own(Self::runner(opened.queue, devices, &self.shape, &wanted))
        };
        if let Some(log) = &self.log {
            // A shared queue may have the log of another batch by now.
            self.used.end_log_if(|| log.is_attached());
        }
        self.used = next;
        if let Some(log) = &self.log {
            self.used.start_log(Box::new(log.clone()));
        }
        Ok(())
    }
}
