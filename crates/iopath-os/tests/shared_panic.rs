//! A thread panics while it holds a shared queue: no other thread sleeps forever, and no memory of I/O in flight is
//! released. An elevator causes the panics.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use iopath_core::elevator::{Elevator, ElevatorKind, ElevatorSpec, StarvationBound};
use iopath_core::{
    BlockDevice, Busy, Completion, Extent, Instant, Io, Limits, Op, Priority, QueueConfig, RequestTable,
    Stream, Tag,
};
use iopath_os::{BufferPool, Job, Notifier, QueueClient, RealDevice, Segment, SharedQueue, WaitError, Watch};

const PAGE: usize = 4096;

/// Much longer than the tests take, so a longer wait is a hang.
const HANG: Duration = Duration::from_secs(20);

/// Never completes a request, and touches no memory.
#[derive(Debug)]
struct Stuck {
    limits: Limits,
    in_flight: u32,
    watch: Arc<StuckWatch>,
}

#[derive(Debug, Default)]
struct StuckWatch {
    has_ended: Mutex<bool>,
    changed: Condvar,
    waits: AtomicU32,
}

impl BlockDevice for Stuck {
    type Memory = Segment;

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn submit(&mut self, _io: &Io<'_, Segment>, _now: Instant) -> Result<(), Busy> {
        self.in_flight += 1;
        Ok(())
    }

    fn commit(&mut self, _now: Instant) {}

    fn poll_completion(&mut self, _now: Instant) -> Option<Completion> {
        None
    }
}

// SAFETY: touches no memory at all.
unsafe impl RealDevice for Stuck {
    fn commit_and_wait(&mut self, _completions: u32, timeout: Option<Duration>) -> Result<(), WaitError> {
        self.watch.wait(timeout)
    }

    fn watch(&self) -> Arc<dyn Watch> {
        Arc::clone(&self.watch) as Arc<dyn Watch>
    }

    fn end_watch(&mut self) {
        *self.watch.has_ended.lock().unwrap() = true;
        self.watch.changed.notify_all();
    }

    fn in_flight(&self) -> u32 {
        self.in_flight
    }

    fn syscalls(&self) -> u64 {
        0
    }

    /// Not supported: no thread waits for several of these devices.
    fn set_notifier(&mut self, _notifier: &Notifier) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

impl Watch for StuckWatch {
    fn wait(&self, _timeout: Option<Duration>) -> Result<(), WaitError> {
        self.waits.fetch_add(1, Ordering::SeqCst);
        let mut has_ended = self.has_ended.lock().unwrap();
        while !std::mem::take(&mut *has_ended) {
            has_ended = self.changed.wait(has_ended).unwrap();
        }
        Ok(())
    }
}

/// Panics at a write.
///
/// Starvation bound: one dispatch for each request queued.
#[derive(Debug, Default)]
struct Fragile(Vec<Tag>);

impl Elevator for Fragile {
    fn name(&self) -> &'static str {
        "fragile"
    }

    fn insert(&mut self, tag: Tag, requests: &RequestTable, _now: Instant) {
        assert!(!requests[tag].op().is_write(), "the elevator panics");
        self.0.push(tag);
    }

    fn dispatch(&mut self, _requests: &RequestTable, _now: Instant) -> Option<Tag> {
        self.0.pop()
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn starvation_bound(&self, _of: Op, _priority: Priority, queued_max: usize) -> StarvationBound {
        StarvationBound { after: Duration::ZERO, dispatches: queued_max as u64 }
    }

    fn absorb(&mut self, _tag: Tag, _into: Tag, _requests: &RequestTable) {}

    fn take_any(&mut self, _requests: &RequestTable) -> Option<Tag> {
        self.0.pop()
    }
}

/// The queue, and its device's watch.
fn stuck() -> (SharedQueue<Stuck>, Arc<StuckWatch>) {
    let watch = Arc::<StuckWatch>::default();
    let device = Stuck { limits: Limits::with_capacity(1 << 20), in_flight: 0, watch: Arc::clone(&watch) };
    let fragile =
        ElevatorKind { name: "fragile", about: "panics at a write", build: |_| Box::<Fragile>::default() };
    let config = QueueConfig { elevator: ElevatorSpec::new(fragile), ..QueueConfig::default() };
    (SharedQueue::new(Box::new(device), &config), watch)
}

fn queue(client: &mut QueueClient<Stuck>, op: Op, pool: &BufferPool) {
    // A write that overlaps a read would wait for it, and reach no elevator.
    let offset = if op == Op::Write { PAGE as u64 } else { 0 };
    let job = Job {
        op,
        extent: Extent::from_bytes(offset, PAGE as u64).unwrap(),
        buffer: pool.take(),
        fua: false,
        stream: Stream(0),
        priority: Priority::default(),
        token: 0,
    };
    client.queue(job).unwrap();
}

/// Panics on a new thread that holds the queue.
fn panic_in(queue_of: &SharedQueue<Stuck>) {
    let mut client = queue_of.client(1, 1);
    let panicked = thread::spawn(move || {
        queue(&mut client, Op::Write, &BufferPool::new(1, PAGE).unwrap());
        client.submit();
    });
    panicked.join().unwrap_err();
}

#[test]
fn memory_of_io_in_flight_is_kept_when_a_client_is_dropped_during_the_panic() {
    let (shared, watch) = stuck();
    let pool = BufferPool::new(1, PAGE).unwrap();
    let mut client = shared.client(1, 1);
    queue(&mut client, Op::Read, &pool);
    let dropped = thread::spawn(move || drop(client));
    while watch.waits.load(Ordering::SeqCst) == 0 {
        thread::yield_now();
    }
    panic_in(&shared);
    let _ = dropped.join();
    assert!(pool.take().is_none(), "the device may still write to the buffer");
}

#[test]
fn a_thread_that_waits_while_another_finds_the_queue_poisoned_does_not_sleep_forever() {
    static IS_SLOW: AtomicBool = AtomicBool::new(false);
    static HOOKS: AtomicU32 = AtomicU32::new(0);
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        print(panic);
        if IS_SLOW.load(Ordering::SeqCst) && thread::current().name() == Some("finds it poisoned") {
            HOOKS.fetch_add(1, Ordering::SeqCst);
            thread::sleep(Duration::from_millis(300));
        }
    }));
    let (shared, _watch) = stuck();
    let [mut finder, mut waiter] = [(); 2].map(|()| shared.client(1, 1));
    panic_in(&shared);
    IS_SLOW.store(true, Ordering::SeqCst);
    let finder = thread::Builder::new().name("finds it poisoned".to_owned()).spawn(move || finder.submit());
    while HOOKS.load(Ordering::SeqCst) == 0 {
        thread::yield_now();
    }
    let (sender, has_ended) = mpsc::channel();
    thread::spawn(move || {
        let pool = BufferPool::new(1, PAGE).unwrap();
        queue(&mut waiter, Op::Read, &pool);
        // Dropped at the end, also by a panic.
        let _sender = sender;
        let _ = waiter.wait(1);
    });
    let ended: Result<(), _> = has_ended.recv_timeout(HANG);
    assert_eq!(ended, Err(mpsc::RecvTimeoutError::Disconnected), "the thread sleeps forever");
    finder.unwrap().join().unwrap_err();
}

#[test]
fn a_blocking_call_on_a_poisoned_queue_panics_and_does_not_abort_the_process() {
    let (shared, _watch) = stuck();
    let mut client = shared.client(1, 1);
    panic_in(&shared);
    let extent = Extent::from_bytes(0, PAGE as u64).unwrap();
    thread::spawn(move || client.read(extent, &mut [0; PAGE])).join().unwrap_err();
}
