//! The CPUs of a modelled host: the CPU cost of I/O, the utilization, and the time that work waits for a CPU.
//!
//! Work has two classes. Interrupts and the submission of requests to devices begin at once. If all CPUs execute
//! threads, this work suspends one thread. Work of a thread waits until a CPU executes no other thread. Waiting work
//! begins in the order of arrival, or in the order of the lock if one lock protects the work of all threads. Processor
//! caches and the scheduler's priorities are not modelled.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use iopath_core::{Duration, Instant};

use crate::document::{Document, Section};
use crate::error::ModelError;
use crate::mechanism::{Nanos, SECOND};
use crate::parameter::{Parameter, Setting, Unit};
use crate::stage::{Passage, Stage};

/// The parameters of a host.
const PARAMETERS: &[Parameter] = &[
    Parameter::new("cpus", Unit::Count, (1.0, 1024.0), "processors"),
    Parameter::new("call_ns", Unit::Nanoseconds, (0.0, 1e9), "a system call").or(0.0),
    Parameter::new(
        "bio_ns",
        Unit::Nanoseconds,
        (0.0, 1e9),
        "a bio: allocation, submission to the queue, completion",
    )
    .or(0.0),
    Parameter::new(
        "io_ns",
        Unit::Nanoseconds,
        (0.0, 1e9),
        "the path of a request from its submission to the device",
    ),
    Parameter::new("segment_ns", Unit::Nanoseconds, (0.0, 1e9), "a segment of a request"),
    Parameter::new("copy_mb_per_s", Unit::MbPerS, (1.0, 1e7), "the rate of copies in memory"),
    Parameter::new(
        "interrupt_ns",
        Unit::Nanoseconds,
        (0.0, 1e9),
        "an interrupt with the completion of a request",
    ),
    Parameter::new("request_ns", Unit::Nanoseconds, (0.0, 1e9), "the allocation of a request"),
    Parameter::new(
        "page_ns",
        Unit::Nanoseconds,
        (0.0, 1e9),
        "a page of the page cache: look-up, insertion, release",
    )
    .or(0.0),
];

/// Work for the CPUs of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Work {
    /// System calls.
    pub calls: u32,
    /// Bios submitted to a queue.
    pub bios: u32,
    /// Requests submitted to a device.
    pub ios: u32,
    /// Segments of these requests.
    pub segments: u32,
    /// Bytes copied in memory.
    pub bytes_copied: u64,
    /// Interrupts.
    pub interrupts: u32,
    /// Requests allocated.
    pub requests: u32,
    /// Pages of the page cache.
    pub pages: u32,
}

/// The parameters of a host, checked.
#[derive(Debug, Clone, PartialEq)]
pub struct HostModel {
    settings: Vec<Setting>,
    cpus: u32,
    call: Nanos,
    bio: Nanos,
    io: Nanos,
    segment: Nanos,
    /// The time of a byte, in 2^-16 ns.
    byte: u64,
    interrupt: Nanos,
    request: Nanos,
    page: Nanos,
}

impl HostModel {
    /// Names, units and ranges of its parameters.
    pub const PARAMETERS: &'static [Parameter] = PARAMETERS;

    /// Hosts that come with the crate: names and files.
    pub const PRESETS: &'static [(&'static str, &'static str)] = &[
        ("p3-2002", include_str!("../presets/host/p3-2002.toml")),
        ("server-2006", include_str!("../presets/host/server-2006.toml")),
    ];

    /// The preset of this name.
    ///
    /// # Errors
    /// [`ModelError::UnknownHost`], with the names of all.
    pub fn preset(name: &str) -> Result<Self, ModelError> {
        Self::preset_with(name, &[])
    }

    /// The preset of this name, with other values for some parameters.
    ///
    /// # Errors
    /// Returns the errors of [`HostModel::preset`] and [`HostModel::parse_with`].
    pub fn preset_with(name: &str, overrides: &[(&str, &str)]) -> Result<Self, ModelError> {
        let Some((name, text)) = Self::PRESETS.iter().find(|preset| preset.0 == name) else {
            let known = Self::PRESETS.iter().map(|preset| preset.0).collect::<Vec<_>>().join(", ");
            return Err(ModelError::UnknownHost { name: name.to_owned(), known });
        };
        Self::parse_with(name, text, overrides)
    }

    /// The parameters of a file.
    ///
    /// # Errors
    /// [`ModelError`]: a name or a value is not valid. The message has the file, line, parameter, range and unit.
    pub fn parse(file_name: &str, text: &str) -> Result<Self, ModelError> {
        Self::parse_with(file_name, text, &[])
    }

    /// [`HostModel::parse`] with other values for some parameters.
    ///
    /// # Errors
    /// Returns the errors of [`HostModel::parse`].
    pub fn parse_with(file_name: &str, text: &str, overrides: &[(&str, &str)]) -> Result<Self, ModelError> {
        let document = Document::parse(file_name, text, overrides)?;
        let mut host = Self::read(&document.root())?;
        host.settings = document.settings();
        document.check_overrides()?;
        Ok(host)
    }

    pub(crate) fn read(section: &Section<'_>) -> Result<Self, ModelError> {
        let values = section.read(PARAMETERS, &["about"])?;
        Ok(Self {
            settings: Vec::new(),
            cpus: values.amount("cpus") as u32,
            call: values.amount("call_ns"),
            bio: values.amount("bio_ns"),
            io: values.amount("io_ns"),
            segment: values.amount("segment_ns"),
            byte: (SECOND as f64 * 65536.0 / values.number("copy_mb_per_s")).round() as u64,
            interrupt: values.amount("interrupt_ns"),
            request: values.amount("request_ns"),
            page: values.amount("page_ns"),
        })
    }

    /// Every parameter with its value and source.
    pub fn settings(&self) -> &[Setting] {
        &self.settings
    }

    /// Processors.
    pub const fn cpus(&self) -> u32 {
        self.cpus
    }

    /// The CPU time of this work. It saturates at the end of time.
    pub fn cost(&self, work: &Work) -> Duration {
        let copied = (u128::from(work.bytes_copied) * u128::from(self.byte)) >> 16;
        let counted = [
            (work.calls, self.call),
            (work.bios, self.bio),
            (work.ios, self.io),
            (work.segments, self.segment),
            (work.interrupts, self.interrupt),
            (work.requests, self.request),
            (work.pages, self.page),
        ];
        let counted: u128 = counted.iter().map(|&(count, each)| u128::from(count) * u128::from(each)).sum();
        Duration::from_nanos(u64::try_from(copied + counted).unwrap_or(u64::MAX))
    }
}

/// The state of the CPUs of a host. A clone refers to the same CPUs: devices and callers that share a host wait for
/// each other.
///
/// As a [`Stage`], a host adds the CPU cost of submission (I/O, segments, allocation) to each request, and the cost of
/// an interrupt to each completion. Threads execute the work of calls, bios, copies and pages: see [`Host::threads`].
#[derive(Debug, Clone)]
pub struct Host {
    shared: Arc<Mutex<Cpus>>,
}

/// The order in which threads get the lock of a host ([`Host::with_lock`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockOrder {
    /// The thread that has waited longest.
    Arrival,
    /// A thread of the first group that has a waiting thread. The threads of the last group wait longest.
    FirstGroup,
}

/// A group of threads on a host, for example the callers of one volume. Each thread has one piece of work at a time.
#[derive(Debug)]
pub struct Threads {
    host: Host,
    group: usize,
}

#[derive(Debug)]
struct Cpus {
    model: HostModel,
    each: Vec<Cpu>,
    /// Work of threads that waits for a CPU, in the order of arrival.
    waiting: VecDeque<(Thread, Duration)>,
    /// For each group of threads: threads whose work is done, in the order of time.
    done: Vec<VecDeque<(Instant, u32)>>,
    busy: Duration,
    lock: Option<LockOrder>,
}

/// A thread: the number of its group, and its number in the group.
#[derive(Debug, Clone, Copy)]
struct Thread {
    group: usize,
    number: u32,
}

#[derive(Debug, Clone, Copy)]
struct Cpu {
    /// The time at which the interrupts and submissions on this CPU end.
    free: Instant,
    /// The thread on this CPU, and the end of its work if no interrupt suspends it.
    thread: Option<(Instant, Thread)>,
}

impl Host {
    /// The host of `model`, idle.
    pub fn new(model: &HostModel) -> Self {
        Self::of(model, None)
    }

    /// A host with one lock for the work of all threads: one thread executes at a time, on any CPU. It holds the lock
    /// for one piece of work. Interrupts do not need the lock.
    pub fn with_lock(model: &HostModel, order: LockOrder) -> Self {
        Self::of(model, Some(order))
    }

    fn of(model: &HostModel, lock: Option<LockOrder>) -> Self {
        let each = vec![Cpu { free: Instant::ZERO, thread: None }; model.cpus as usize];
        let waiting = VecDeque::new();
        let done = Vec::new();
        let cpus = Cpus { model: model.clone(), each, waiting, done, busy: Duration::ZERO, lock };
        Self { shared: Arc::new(Mutex::new(cpus)) }
    }

    /// Whether the work of all threads needs one lock.
    pub fn has_lock(&self) -> bool {
        self.cpu_states().lock.is_some()
    }

    /// Processors.
    pub fn cpus(&self) -> u32 {
        self.cpu_states().model.cpus
    }

    /// The CPU time spent so far, over all CPUs. Work counts when it begins.
    pub fn busy(&self) -> Duration {
        self.cpu_states().busy
    }

    /// A group of threads.
    pub fn threads(&self) -> Threads {
        let mut cpus = self.cpu_states();
        cpus.done.push(VecDeque::new());
        Threads { host: self.clone(), group: cpus.done.len() - 1 }
    }

    /// Executes work that does not wait for threads, such as an interrupt, on the CPU that is free first. Returns the
    /// time at which it is done.
    pub fn run(&self, work: &Work, now: Instant) -> Instant {
        let mut cpus = self.cpu_states();
        let cost = cpus.model.cost(work);
        if cost.is_zero() {
            return now;
        }
        cpus.advance(now);
        cpus.busy = cpus.busy.saturating_add(cost);
        let first = cpus.each.iter_mut().min_by_key(|cpu| (cpu.free.max(now), cpu.thread.is_some()));
        let Some(cpu) = first else { return now };
        cpu.free = cpu.free.max(now) + cost;
        if let Some((end, _)) = &mut cpu.thread {
            *end = *end + cost;
        }
        cpu.free
    }

    fn cpu_states(&self) -> MutexGuard<'_, Cpus> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Threads {
    /// The host.
    pub const fn host(&self) -> &Host {
        &self.host
    }

    /// Begins work of a thread, or queues it until a CPU is free. The work takes at least a nanosecond.
    /// [`Threads::poll_done`] returns the thread when it is done.
    pub fn begin(&self, number: u32, work: &Work, now: Instant) {
        let mut cpus = self.host.cpu_states();
        cpus.advance(now);
        let cost = cpus.model.cost(work).max(Duration::from_nanos(1));
        cpus.waiting.push_back((Thread { group: self.group, number }, cost));
        cpus.start_waiting(now);
    }

    /// The next thread whose work is done at `now`, in the order of time.
    pub fn poll_done(&self, now: Instant) -> Option<u32> {
        let mut cpus = self.host.cpu_states();
        cpus.advance(now);
        cpus.done[self.group].pop_front().map(|(_, number)| number)
    }

    /// The next time at which to call [`Threads::poll_done`]; `None` if no thread of the group is on a CPU. Work of
    /// another group may change this time.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let cpus = self.host.cpu_states();
        let done = cpus.done[self.group].front().map(|(at, _)| *at);
        let of_group = |cpu: &Cpu| cpu.thread.filter(|(_, thread)| thread.group == self.group);
        let running = cpus.each.iter().filter_map(of_group).map(|(end, _)| end);
        done.into_iter().chain(running).min()
    }
}

impl Cpus {
    /// Ends the work of threads that is done at `now`, each at its own time, and begins the work that waits for its
    /// CPU.
    fn advance(&mut self, now: Instant) {
        loop {
            let ends = self.each.iter().enumerate().filter_map(|(index, cpu)| Some((cpu.thread?.0, index)));
            let Some((end, index)) = ends.min().filter(|(end, _)| *end <= now) else { return };
            if let Some((_, thread)) = self.each[index].thread.take() {
                self.done[thread.group].push_back((end, thread.number));
            }
            self.start_waiting(end);
        }
    }

    /// Begins waiting work on each CPU without a thread. With a lock, only one CPU at a time has a thread.
    fn start_waiting(&mut self, now: Instant) {
        while !self.waiting.is_empty() {
            if self.lock.is_some() && self.each.iter().any(|cpu| cpu.thread.is_some()) {
                return;
            }
            let first = if self.lock == Some(LockOrder::FirstGroup) {
                let groups =
                    self.waiting.iter().enumerate().map(|(index, (thread, _))| (thread.group, index));
                groups.min().map_or(0, |(_, index)| index)
            } else {
                0
            };
            let idle = self.each.iter_mut().filter(|cpu| cpu.thread.is_none());
            let Some(cpu) = idle.min_by_key(|cpu| cpu.free.max(now)) else { return };
            let Some((thread, cost)) = self.waiting.remove(first) else { return };
            self.busy = self.busy.saturating_add(cost);
            cpu.thread = Some((cpu.free.max(now) + cost, thread));
        }
    }
}

impl Stage for Host {
    fn enter(&mut self, request: &Passage, now: Instant) -> Instant {
        self.run(&Work { ios: 1, segments: request.segments, requests: 1, ..Work::default() }, now)
    }

    fn leave(&mut self, _request: &Passage, now: Instant) -> Instant {
        self.run(&Work { interrupts: 1, ..Work::default() }, now)
    }
}
