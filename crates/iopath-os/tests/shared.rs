//! What an elevator decides between threads that share a queue: order, shares, priorities. The device takes one request
//! at a time, and figures are counted in requests, not read from a clock. While a thread that is to be busy has too few
//! requests queued, because the machine does not schedule it, the device completes nothing.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use iopath_core::{
    BlockDevice, Busy, Completion, Extent, Instant, Io, Limits, Op, Priority, QueueConfig, Sector, Stream,
    Tag,
};
use iopath_os::{
    BufferPool, Job, Notifier, QueueClient, RealDevice, Segment, SharedQueue, WaitError, Watch, now,
};

/// The time that the device takes for a request. It takes longer while a busy thread has too few requests queued.
const SERVICE: Duration = Duration::from_micros(50);

/// Requests that a busy thread keeps in flight.
const DEPTH: u32 = 64;

/// The requests that each busy thread has queued and the device has not begun. An elevator can be fair only to threads
/// that have requests queued.
#[derive(Debug, Default)]
struct Backlogs(Mutex<BTreeMap<Stream, Backlog>>);

#[derive(Debug)]
struct Backlog {
    queued: u32,
    /// The device completes nothing while there are fewer. More than one where possible: the queue may not have seen
    /// the last yet.
    queued_min: u32,
}

impl Backlogs {
    fn add(&self, stream: Stream, requests: u32) {
        if let Some(backlog) = self.0.lock().unwrap().get_mut(&stream) {
            backlog.queued += requests;
        }
    }

    fn begin(&self, stream: Stream) {
        if let Some(backlog) = self.0.lock().unwrap().get_mut(&stream) {
            backlog.queued = backlog.queued.saturating_sub(1);
        }
    }

    /// The thread queues no more requests.
    fn leave(&self, stream: Stream) {
        self.0.lock().unwrap().remove(&stream);
    }

    /// Whether the device may complete a request of `stream`.
    fn suffice(&self, stream: Stream) -> bool {
        let backlogs = self.0.lock().unwrap();
        backlogs.iter().all(|(of, backlog)| backlog.queued + u32::from(*of == stream) >= backlog.queued_min)
    }
}

/// Serves one request at a time, and moves no byte.
#[derive(Debug)]
struct Disk {
    limits: Limits,
    in_flight: VecDeque<(Instant, Tag, Stream)>,
    /// The stream and start of each request, in the order of dispatch.
    served: Arc<Mutex<Vec<(Stream, Sector)>>>,
    backlogs: Arc<Backlogs>,
    watch: Arc<DiskWatch>,
}

#[derive(Debug, Default)]
struct DiskWatch {
    state: Mutex<WatchState>,
    has_changed: Condvar,
}

#[derive(Debug, Default)]
struct WatchState {
    due: Option<Instant>,
    has_ended: bool,
    /// How many waits the system refuses.
    refusals: u32,
    /// The device completes nothing, however late the next wait begins.
    is_held: bool,
}

impl Disk {
    fn new() -> Self {
        let limits = Limits { depth_max: 1, ..Limits::with_capacity(1 << 40) };
        Self {
            limits,
            in_flight: VecDeque::new(),
            served: Arc::default(),
            backlogs: Arc::default(),
            watch: Arc::default(),
        }
    }
}

impl BlockDevice for Disk {
    type Memory = Segment;

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn submit(&mut self, io: &Io<'_, Segment>, _now: Instant) -> Result<(), Busy> {
        self.served.lock().unwrap().push((io.stream, io.extent.start()));
        self.backlogs.begin(io.stream);
        self.in_flight.push_back((now() + SERVICE, io.tag, io.stream));
        Ok(())
    }

    fn commit(&mut self, _now: Instant) {
        self.watch.state.lock().unwrap().due = self.in_flight.front().map(|(due, ..)| *due);
        self.watch.has_changed.notify_all();
    }

    fn poll_completion(&mut self, now: Instant) -> Option<Completion> {
        let (due, tag, stream) = self.in_flight.front_mut()?;
        if *due > now || self.watch.state.lock().unwrap().is_held {
            return None;
        }
        if !self.backlogs.suffice(*stream) {
            *due = now + SERVICE;
            return None;
        }
        let tag = *tag;
        self.in_flight.pop_front();
        Some(Completion { tag, result: Ok(()) })
    }
}

// SAFETY: touches no memory at all.
unsafe impl RealDevice for Disk {
    fn commit_and_wait(&mut self, _completions: u32, timeout: Option<Duration>) -> Result<(), WaitError> {
        self.commit(now());
        self.watch.wait(timeout)
    }

    fn watch(&self) -> Arc<dyn Watch> {
        Arc::clone(&self.watch) as Arc<dyn Watch>
    }

    fn end_watch(&mut self) {
        self.watch.state.lock().unwrap().has_ended = true;
        self.watch.has_changed.notify_all();
    }

    fn in_flight(&self) -> u32 {
        self.in_flight.len() as u32
    }

    fn syscalls(&self) -> u64 {
        0
    }

    /// Not supported: no thread waits for several of these devices.
    fn set_notifier(&mut self, _notifier: &Notifier) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

impl Watch for DiskWatch {
    fn wait(&self, timeout: Option<Duration>) -> Result<(), WaitError> {
        let mut state = self.state.lock().unwrap();
        if state.refusals > 0 {
            state.refusals -= 1;
            return Err(io::Error::from(io::ErrorKind::OutOfMemory).into());
        }
        while !std::mem::take(&mut state.has_ended) {
            let left = match state.due {
                Some(due) if due <= now() => break,
                Some(due) => due.saturating_since(now()),
                None => Duration::from_millis(1),
            };
            let left = timeout.map_or(left, |timeout| timeout.min(left));
            state = self.has_changed.wait_timeout(state, left).unwrap().0;
        }
        Ok(())
    }
}

/// A queue, and the requests that its device has served.
struct Bench {
    queue: SharedQueue<Disk>,
    served: Arc<Mutex<Vec<(Stream, Sector)>>>,
    watch: Arc<DiskWatch>,
    backlogs: Arc<Backlogs>,
}

fn bench(elevator: &str) -> Bench {
    let disk = Disk::new();
    let (served, watch, backlogs) =
        (Arc::clone(&disk.served), Arc::clone(&disk.watch), Arc::clone(&disk.backlogs));
    let config = QueueConfig {
        bios_max: 1024,
        requests_max: 1024,
        depth: 1,
        elevator: elevator.parse().unwrap(),
        ..QueueConfig::default()
    };
    Bench { queue: SharedQueue::new(Box::new(disk), &config), served, watch, backlogs }
}

/// A thread's client and its buffers.
struct Thread {
    client: QueueClient<Disk>,
    pool: BufferPool,
    stream: Stream,
    priority: Priority,
    next: u64,
    backlogs: Arc<Backlogs>,
}

impl Bench {
    fn thread(&self, stream: u32, depth: u32) -> Thread {
        let (client, pool) = (self.queue.client(depth, 32), BufferPool::new(depth, 4096).unwrap());
        let (priority, backlogs) = (Priority::default(), Arc::clone(&self.backlogs));
        Thread { client, pool, stream: Stream(stream), priority, next: 0, backlogs }
    }

    /// A thread that is to have requests queued at any time until it leaves.
    fn busy_thread(&self, stream: u32, depth: u32) -> Thread {
        let backlog = Backlog { queued: 0, queued_min: depth.min(8) };
        self.backlogs.0.lock().unwrap().insert(Stream(stream), backlog);
        self.thread(stream, depth)
    }

    fn served(&self) -> Vec<(Stream, Sector)> {
        self.served.lock().unwrap().clone()
    }
}

impl Thread {
    /// Queues an I/O of one block. Returns whether a buffer was free.
    fn queue(&mut self, op: Op, block: u64) -> bool {
        let Some(buffer) = self.pool.take() else { return false };
        let job = Job {
            op,
            extent: Extent::from_bytes(block * 8192, 4096).unwrap(),
            buffer: Some(buffer),
            fua: false,
            stream: self.stream,
            priority: self.priority,
            token: 0,
        };
        self.client.queue(job).unwrap();
        true
    }

    /// Keeps every buffer in flight, until `end` requests were queued: no two blocks touch, and none is used twice.
    fn fill(&mut self, op: Op, end: u64) {
        let first = self.next;
        while self.next < end && self.queue(op, u64::from(self.stream.0) << 24 | self.next) {
            self.next += 1;
        }
        self.submit((self.next - first) as u32);
        if self.next == end {
            self.backlogs.leave(self.stream);
        }
    }

    fn submit(&mut self, requests: u32) {
        self.client.submit();
        self.backlogs.add(self.stream, requests);
    }

    /// Waits for a completion, and returns the number of completions.
    fn take(&mut self) -> u32 {
        self.client.wait(1).unwrap();
        std::iter::from_fn(|| self.client.poll_completion()).map(|done| done.result.unwrap()).count() as u32
    }
}

#[test]
fn an_elevator_sorts_the_requests_of_all_threads() {
    let bench = bench("ascend");
    let [mut first, mut second] = [1, 2].map(|stream| bench.thread(stream, 8));
    for (block, thread) in [(50, 0), (70, 0), (20, 1), (60, 1), (40, 0), (30, 1)] {
        [&mut first, &mut second][thread].queue(Op::Read, block);
    }
    // The device starts with the lowest request of the first thread. The elevator sorts the requests of the second
    // thread among them.
    first.client.submit();
    second.client.submit();
    std::thread::scope(|scope| {
        for thread in [&mut first, &mut second] {
            scope.spawn(|| thread.client.drain().unwrap());
        }
    });
    let blocks: Vec<u64> = bench.served().iter().map(|(_, start)| start.0 / 16).collect();
    assert_eq!(blocks, [40, 50, 60, 70, 20, 30]);
}

#[test]
fn two_threads_of_weights_one_and_three_share_the_device_one_to_three() {
    let bench = bench("fair:quantum_bytes=0");
    bench.queue.set_weight(Stream(1), 100);
    bench.queue.set_weight(Stream(2), 300);
    let stop = AtomicBool::new(false);
    let served = std::thread::scope(|scope| {
        for stream in [1, 2] {
            let (mut thread, stop) = (bench.busy_thread(stream, DEPTH), &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    thread.fill(Op::Read, u64::MAX);
                    thread.take();
                }
                thread.backlogs.leave(thread.stream);
            });
        }
        while bench.served.lock().unwrap().len() < 2000 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let served = bench.served();
        stop.store(true, Ordering::Relaxed);
        served
    });
    // Not the first, which the device may begin before both threads have queued requests.
    let of = |stream| served.iter().skip(1).filter(|(served, _)| *served == Stream(stream)).count() as f64;
    let share = of(2) / of(1);
    assert!((2.95..3.05).contains(&share), "{} to {}: 1 : {share:.2}", of(1), of(2));
}

#[test]
fn four_equal_threads_end_together_under_fair() {
    const EACH: u64 = 300;
    let bench = bench("fair:quantum_bytes=0");
    std::thread::scope(|scope| {
        for stream in 0..4 {
            let mut thread = bench.busy_thread(stream, DEPTH);
            scope.spawn(move || {
                let mut left = EACH;
                while left > 0 {
                    thread.fill(Op::Read, EACH);
                    left -= u64::from(thread.take());
                }
            });
        }
    });
    let served = bench.served();
    let last = |stream| served.iter().rposition(|(served, _)| *served == Stream(stream)).unwrap();
    let ends = [0, 1, 2, 3].map(last);
    let skew = (ends.iter().max().unwrap() - ends.iter().min().unwrap()) as f64 / served.len() as f64;
    assert!(skew <= 0.02, "the ends {ends:?} of {} are {:.1}% apart", served.len(), skew * 100.0);
}

/// For each read of a thread that reads one block at a time beside a writer: the number of requests that the device
/// served since the previous read. In ascending order.
fn waits(priority: Priority) -> Vec<usize> {
    const READER: Stream = Stream(9);
    const READS: u64 = 500;
    let bench = bench("deadline");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (mut writer, stop) = (bench.busy_thread(1, DEPTH), &stop);
        let mut reader = bench.busy_thread(READER.0, 1);
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                writer.fill(Op::Write, u64::MAX);
                writer.take();
            }
            writer.backlogs.leave(writer.stream);
        });
        scope.spawn(move || {
            reader.priority = priority;
            for block in 0..READS {
                // Far apart: otherwise `deadline` could continue a batch of writes.
                reader.queue(Op::Read, (9 << 24) | (block * 1000 % 99_991));
                reader.submit(1);
                if block == READS - 1 {
                    reader.backlogs.leave(READER);
                    stop.store(true, Ordering::Relaxed);
                }
                reader.take();
            }
        });
    });
    let served = bench.served();
    let reads: Vec<usize> = (0..served.len()).filter(|&place| served[place].0 == READER).collect();
    let mut waits: Vec<usize> = reads.windows(2).map(|pair| pair[1] - pair[0]).collect();
    waits.sort_unstable();
    waits
}

/// The median: the system may stop the thread of the reader between two reads, while the device serves the writer.
#[test]
fn high_priority_halves_the_wait_of_a_reader_beside_a_writer() {
    let median = |waits: Vec<usize>| waits[waits.len() / 2];
    let [without, with] = [Priority::BestEffort, Priority::RealTime].map(|priority| median(waits(priority)));
    eprintln!("requests that a read waits for: {without}, with priority {with}");
    assert!(2 * with <= without, "requests that a read waits for: {without}, with priority {with}");
}

#[test]
fn bios_that_complete_at_once_leave_room_for_those_that_found_the_queue_full() {
    // The device has no cache: a flush completes at submission, and nothing is ever in flight.
    let config = QueueConfig { bios_max: 2, elevator: "deadline".parse().unwrap(), ..QueueConfig::default() };
    let queue = SharedQueue::new(Box::new(Disk::new()), &config);
    let mut client = queue.client(8, 8);
    for token in 0..5 {
        let (op, extent) = (Op::Flush, Extent::EMPTY);
        let (stream, priority) = (Stream(0), Priority::default());
        client.queue(Job { op, extent, buffer: None, fua: false, stream, priority, token }).unwrap();
    }
    client.drain().unwrap();
    let tokens: Vec<u64> = std::iter::from_fn(|| client.poll_completion()).map(|done| done.token).collect();
    assert_eq!(tokens, [0, 1, 2, 3, 4]);
}

#[test]
fn a_refused_wait_fails_once() {
    let bench = bench("deadline");
    let mut thread = bench.thread(1, 1);
    *bench.watch.state.lock().unwrap() = WatchState { refusals: 1, is_held: true, ..WatchState::default() };
    thread.queue(Op::Read, 0);
    let error = thread.client.wait(1).unwrap_err();
    assert_eq!(error.source.kind(), io::ErrorKind::OutOfMemory);
    // The next wait is for the same request.
    bench.watch.state.lock().unwrap().is_held = false;
    assert_eq!(thread.take(), 1);
}

#[test]
fn a_wait_with_a_completion_present_submits_plugged_jobs() {
    let bench = bench("deadline");
    let mut thread = bench.thread(1, 2);
    thread.queue(Op::Read, 0);
    thread.client.wait(1).unwrap();
    thread.queue(Op::Read, 1);
    thread.client.wait(1).unwrap();
    assert_eq!(bench.served().len(), 2);
}
