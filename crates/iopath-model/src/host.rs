//! The CPUs of a modelled host: the CPU cost of I/O, the utilization, and the time that work waits for a CPU.
//! Priorities, caches and the scheduler of the host are not modelled: the CPU that is free first executes the work.

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
    Parameter::new("io_ns", Unit::Nanoseconds, (0.0, 1e9), "a request from submission to the device"),
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

    /// The parameters of a file.
    ///
    /// # Errors
    /// A name or value that a host does not allow, with file, line, parameter, range and unit.
    pub fn parse(file_name: &str, text: &str) -> Result<Self, ModelError> {
        Self::parse_with(file_name, text, &[])
    }

    /// [`HostModel::parse`] with other values for some parameters.
    ///
    /// # Errors
    /// As for [`HostModel::parse`].
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

    /// The CPU time of this work. It saturates at the end of time.
    pub fn cost(&self, work: &Work) -> Duration {
        let copied = (u128::from(work.bytes_copied) * u128::from(self.byte)) >> 16;
        let counted = [
            (work.calls, self.call),
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
/// an interrupt to each completion. A caller adds the cost of copies, calls and pages with [`Host::run`].
#[derive(Debug, Clone)]
pub struct Host {
    shared: Arc<Mutex<Cpus>>,
}

#[derive(Debug)]
struct Cpus {
    model: HostModel,
    free: Vec<Instant>,
    busy: Duration,
}

impl Host {
    /// The host of `model`, idle.
    pub fn new(model: &HostModel) -> Self {
        let free = vec![Instant::ZERO; model.cpus as usize];
        Self { shared: Arc::new(Mutex::new(Cpus { model: model.clone(), free, busy: Duration::ZERO })) }
    }

    /// Processors.
    pub fn cpus(&self) -> u32 {
        self.cpu_states().model.cpus
    }

    /// The CPU time spent so far, over all CPUs.
    pub fn busy(&self) -> Duration {
        self.cpu_states().busy
    }

    /// Executes the work on the CPU that is free first. Returns the time at which it is done.
    pub fn run(&self, work: &Work, now: Instant) -> Instant {
        let mut cpus = self.cpu_states();
        let cost = cpus.model.cost(work);
        if cost.is_zero() {
            return now;
        }
        cpus.busy = cpus.busy.saturating_add(cost);
        let Some(first) = cpus.free.iter_mut().min() else { return now };
        *first = (*first).max(now) + cost;
        *first
    }

    fn cpu_states(&self) -> MutexGuard<'_, Cpus> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
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
