//! Which queue a thread or batch of a volume uses: with elevator `none` its own, with any other the queue that all
//! threads and batches share. Opens no device: see `source.rs`.

use crate::error::OpenError;
use iopath_core::elevator::{ElevatorError, ElevatorSpec};
use iopath_core::{QueueConfig, Stream};
use iopath_os::{BufferPool, Fallback, QueueClient, RealDevice, Runner, SharedQueue, ThreadQueue};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// A device that threads share.
pub(crate) type SharedDevice = dyn RealDevice + Send;

/// Bios in the shared queue at once. More wait in the rings of their clients.
const BIOS_MAX: u32 = 4096;

/// Opens devices on what a volume lies on.
pub(crate) trait Devices {
    /// The elevator, and the queue that threads share.
    fn tuning(&self) -> &Tuning;

    /// Requests at a device at once that one thread uses.
    fn depth(&self) -> u32;

    /// A device for the calling thread alone, which registers the buffers of `pool`.
    fn open_local(&self, pool: Option<BufferPool>) -> Result<Opened<Box<dyn RealDevice>>, OpenError>;

    /// A device for threads that use it in turn, for `depth` requests at once.
    fn open_shared(
        &self,
        depth: u32,
        pool: Option<BufferPool>,
    ) -> Result<Opened<Box<SharedDevice>>, OpenError>;
}

/// A device, or a queue on one, that was opened.
#[derive(Debug)]
pub(crate) struct Opened<Q> {
    pub(crate) queue: Q,
    pub(crate) engine: &'static str,
    pub(crate) fallback: Option<Fallback>,
}

/// The choice that the queues of a volume follow. The shared queue follows at each change; a thread's own queue compares
/// a number at its next I/O, without a lock.
#[derive(Debug)]
pub(crate) struct Tuning {
    /// Counts the changes of `wanted`.
    generation: AtomicU64,
    wanted: Mutex<Wanted>,
    shared: Shared,
}

/// An elevator, how it is set, and the weights of streams.
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
    /// With `device_depth` requests at the device of a shared queue at once.
    pub(crate) const fn new(elevator: ElevatorSpec, device_depth: u32) -> Self {
        let wanted = Wanted { elevator, weights: Vec::new() };
        Self { generation: AtomicU64::new(0), wanted: Mutex::new(wanted), shared: Shared::new(device_depth) }
    }

    /// The number of the choice.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The choice and its number.
    pub(crate) fn wanted(&self) -> (Wanted, u64) {
        let wanted = self.lock();
        // Only changed under the lock.
        (wanted.clone(), self.generation.load(Ordering::Relaxed))
    }

    /// The value of a tunable of the chosen elevator.
    pub(crate) fn tunable(&self, name: &str) -> Result<u64, ElevatorError> {
        self.lock().elevator.tunable(name)
    }

    /// The queue that threads and batches share.
    pub(crate) const fn shared_queue(&self) -> &Shared {
        &self.shared
    }

    /// Makes a shared queue follow.
    pub(crate) fn tune(&self, queue: &SharedQueue<SharedDevice>) {
        // Locked until the queue has followed: an older choice never comes last.
        Self::apply(&self.lock(), queue);
    }

    /// Changes the choice; the shared queue follows at once.
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

/// The queue that threads and batches share, opened when the first of them needs it, and kept until the volume is
/// closed.
#[derive(Debug)]
pub(crate) struct Shared {
    opened: OnceLock<Opened<SharedQueue<SharedDevice>>>,
    /// The end of the volume in sectors, if it has moved. Locked while the queue is opened, and while the end moves.
    moved_end: Mutex<Option<u64>>,
    /// Requests at its device at once.
    device_depth: u32,
}

/// What a queue for one thread is to be like.
#[derive(Debug)]
pub(crate) struct Shape<D: ?Sized> {
    /// Jobs in flight.
    pub(crate) jobs_max: u32,
    /// Requests that are plugged.
    pub(crate) plug: u32,
    /// The buffers of the jobs, if they are known.
    pub(crate) pool: Option<BufferPool>,
    /// Opens a device for a queue of its own.
    pub(crate) open: OpenDevice<D>,
}

/// Opens a device that knows the buffers of a pool.
pub(crate) type OpenDevice<D> = fn(&dyn Devices, Option<BufferPool>) -> Result<Opened<Box<D>>, OpenError>;

/// The queue of one thread or batch. It follows the volume's elevator, and moves between a queue of its own and the
/// shared one while it has nothing in flight.
#[derive(Debug)]
pub(crate) struct Queue<D: ?Sized + RealDevice> {
    used: ThreadQueue<D, SharedDevice>,
    shape: Shape<D>,
    /// The choice of elevator that it follows.
    generation: u64,
    /// It is to move, as soon as it has nothing in flight.
    is_to_move: bool,
    /// It never moves to the shared queue.
    is_pinned: bool,
}

impl Shared {
    pub(crate) const fn new(device_depth: u32) -> Self {
        Self { opened: OnceLock::new(), moved_end: Mutex::new(None), device_depth }
    }

    /// The queue, if a thread has needed it.
    pub(crate) fn if_open(&self) -> Option<&SharedQueue<SharedDevice>> {
        self.opened.get().map(|opened| &opened.queue)
    }

    /// The queue. It has the elevator that the volume has when it is opened.
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
            bios_max: BIOS_MAX,
            requests_max: BIOS_MAX,
            depth: self.device_depth,
            ..QueueConfig::default()
        };
        let queue = SharedQueue::new(device, &config);
        if let Some(sectors) = *moved_end {
            queue.set_capacity(sectors);
        }
        Ok(self.opened.get_or_init(|| Opened { queue, engine, fallback }))
    }

    /// The volume ends after `sectors` sectors from now on, or from before `publish` on if that is farther away: no I/O
    /// inside the volume is refused.
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

impl<D: ?Sized + RealDevice> Queue<D> {
    /// A queue for the calling thread, of the kind that the elevator asks for.
    pub(crate) fn open(devices: &dyn Devices, shape: Shape<D>) -> Result<Opened<Self>, OpenError> {
        let tuning = devices.tuning();
        let (wanted, generation) = tuning.wanted();
        let (used, engine, fallback) = if wanted.is_shared() {
            let (client, engine, fallback) = Self::client(devices, &shape)?;
            (ThreadQueue::Shared(client), engine, fallback)
        } else {
            let Opened { queue: device, engine, fallback } = (shape.open)(devices, shape.pool.clone())?;
            (ThreadQueue::Own(Self::runner(device, devices, &shape, &wanted)), engine, fallback)
        };
        Ok(Opened {
            queue: Self { used, shape, generation, is_to_move: false, is_pinned: false },
            engine,
            fallback,
        })
    }

    /// The queue for the next I/O: the elevator is that of the volume.
    pub(crate) fn for_io(&mut self, devices: &dyn Devices) -> &mut ThreadQueue<D, SharedDevice> {
        if devices.tuning().generation() != self.generation {
            self.follow(devices);
        }
        if self.is_to_move && self.used.in_flight() == 0 {
            // If the system refuses the engine for the other queue, this one stays in use: it orders the requests of
            // this thread as the elevator says.
            let _ = self.move_over(devices);
        }
        &mut self.used
    }

    /// Moves to a queue of its own, which has nothing in flight, and stays there.
    pub(crate) fn pin(&mut self, devices: &dyn Devices) -> Result<(), OpenError> {
        self.is_pinned = true;
        match self.used {
            ThreadQueue::Own(_) => Ok(()),
            ThreadQueue::Shared(_) => self.move_over(devices),
        }
    }

    /// The queue as it is: to collect what has completed, and for all that is no I/O.
    pub(crate) const fn as_is(&self) -> &ThreadQueue<D, SharedDevice> {
        &self.used
    }

    /// The same, mutable.
    pub(crate) const fn as_is_mut(&mut self) -> &mut ThreadQueue<D, SharedDevice> {
        &mut self.used
    }

    fn client(
        devices: &dyn Devices,
        shape: &Shape<D>,
    ) -> Result<(QueueClient<SharedDevice>, &'static str, Option<Fallback>), OpenError> {
        let Opened { queue, engine, fallback } = devices.tuning().shared_queue().open(devices)?;
        // The elevator may have changed since the queue was opened, before a change could reach it.
        devices.tuning().tune(queue);
        Ok((queue.client(shape.jobs_max, shape.plug), engine, fallback.clone()))
    }

    fn runner(device: Box<D>, devices: &dyn Devices, shape: &Shape<D>, wanted: &Wanted) -> Runner<D> {
        let depth = devices.depth();
        let config = QueueConfig {
            bios_max: shape.jobs_max,
            requests_max: shape.jobs_max.max(depth),
            depth,
            plug_requests_max: shape.plug,
            elevator: wanted.elevator.clone(),
        };
        let mut runner = Runner::new(device, &config);
        runner.set_depth(Self::depth(devices, wanted));
        for (stream, weight) in &wanted.weights {
            runner.set_weight(*stream, *weight);
        }
        runner
    }

    /// Requests at the device at once of a queue of its own. With an elevator as many as on the shared queue, so that the
    /// elevator has requests to order: a batch with a descriptor has a queue of its own also then.
    fn depth(devices: &dyn Devices, wanted: &Wanted) -> u32 {
        let device_depth = devices.tuning().shared_queue().device_depth;
        if wanted.is_shared() { devices.depth().min(device_depth) } else { devices.depth() }
    }

    #[cold]
    fn follow(&mut self, devices: &dyn Devices) {
        let (wanted, generation) = devices.tuning().wanted();
        self.generation = generation;
        self.is_to_move = self.belongs_to_shared(&wanted) != matches!(self.used, ThreadQueue::Shared(_));
        // A shared queue has followed when the elevator was changed.
        if let ThreadQueue::Own(runner) = &mut self.used {
            runner.follow(&wanted.elevator);
            runner.set_depth(Self::depth(devices, &wanted));
            for (stream, weight) in wanted.weights {
                runner.set_weight(stream, weight);
            }
        }
    }

    /// Whether the queue is to be the shared one.
    fn belongs_to_shared(&self, wanted: &Wanted) -> bool {
        wanted.is_shared() && !self.is_pinned
    }

    /// Moves to the kind of queue that the elevator asks for.
    #[cold]
    fn move_over(&mut self, devices: &dyn Devices) -> Result<(), OpenError> {
        self.is_to_move = false;
        let (wanted, _) = devices.tuning().wanted();
        self.used = if self.belongs_to_shared(&wanted) {
            ThreadQueue::Shared(Self::client(devices, &self.shape)?.0)
        } else {
            let opened = (self.shape.open)(devices, self.shape.pool.clone())?;
            ThreadQueue::Own(Self::runner(opened.queue, devices, &self.shape, &wanted))
        };
        Ok(())
    }
}
