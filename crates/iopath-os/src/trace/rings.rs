//! The events of tracepoints on all CPUs, and the rings in which they arrive: one ring for each CPU, so that the order
//! of its events is kept. `ring.rs` reads a ring.

use std::ffi::CString;
use std::fmt;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::error::TraceError;
use super::ring::{Ring, TraceRecord};
use crate::aligned::page_bytes;
use iopath_core::debug;

/// The smallest ring that is tried where the process may lock little memory.
const RING_BYTES_MIN: usize = 64 << 10;

/// `struct perf_event_attr` of `linux/perf_event.h`, version 5.
#[repr(C)]
#[derive(Debug, Default)]
struct Attr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_watermark: u32,
    bp_type: u32,
    bp_addr: u64,
    bp_len: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clockid: i32,
    sample_regs_intr: u64,
    aux_watermark: u32,
    sample_max_stack: u16,
    reserved: u16,
}

const _: () = assert!(size_of::<Attr>() == 112);

const TYPE_SOFTWARE: u32 = 1;
const TYPE_TRACEPOINT: u32 = 2;
/// `PERF_COUNT_SW_BPF_OUTPUT`
const PROGRAM_OUTPUT: u64 = 10;
const SAMPLE_TID: u64 = 1 << 1;
const SAMPLE_TIME: u64 = 1 << 2;
const SAMPLE_RAW: u64 = 1 << 10;
/// Since Linux 6.0.
const FORMAT_LOST: u64 = 1 << 4;
const FLAG_DISABLED: u64 = 1;
const FLAG_TASK: u64 = 1 << 13;
const FLAG_WATERMARK: u64 = 1 << 14;
const FLAG_SAMPLE_ID_ALL: u64 = 1 << 18;
const FLAG_USE_CLOCKID: u64 = 1 << 25;
const OPEN_CLOEXEC: libc::c_ulong = 1 << 3;

const IOC_ENABLE: libc::c_ulong = 0x2400;
const IOC_DISABLE: libc::c_ulong = 0x2401;
const IOC_SET_OUTPUT: libc::c_ulong = 0x2405;
const IOC_SET_FILTER: libc::c_ulong = 0x4008_2406;

/// A tracepoint to record.
#[derive(Clone)]
pub struct Traced {
    /// The number of the tracepoint.
    pub id: u16,
    /// A condition of the kernel's filter language, such as `dev == 8388608`; events that do not match are not
    /// recorded.
    pub filter: Option<String>,
}

impl fmt::Debug for Traced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let filter = self.filter.as_ref().map(debug::Text);
        f.debug_struct("Traced").field("id", &self.id).field("filter", &filter).finish()
    }
}

/// The settings of rings.
#[derive(Debug, Clone, Copy)]
pub struct RingsConfig {
    /// The memory of the ring of each CPU, rounded up to a power of two. If the process may not lock it, smaller rings
    /// are tried.
    pub ring_bytes: usize,
    /// Whether the creation of processes and the end of threads are recorded, too.
    pub tasks: bool,
    /// Whether a program in the kernel may write to the rings: see [`TraceRings::outputs`].
    pub outputs: bool,
}

impl Default for RingsConfig {
    /// 8 MiB for each CPU, for events of tracepoints only.
    fn default() -> Self {
        Self { ring_bytes: 8 << 20, tasks: false, outputs: false }
    }
}

/// Events that the kernel did not deliver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventLoss {
    /// The index of the tracepoint in the list that was opened; its length for records of a program.
    pub event: usize,
    /// The CPU.
    pub cpu: u32,
    /// How many.
    pub lost: u64,
}

/// The rings of all CPUs.
pub struct TraceRings {
    cpus: Vec<Cpu>,
    ring_bytes: usize,
    counts_losses: bool,
}

impl fmt::Debug for TraceRings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TraceRings")
            .field("cpus", &self.cpus.len())
            .field("ring_bytes", &self.ring_bytes)
            .finish_non_exhaustive()
    }
}

/// The events of a CPU. The first one has the ring.
#[derive(Debug)]
struct Cpu {
    number: u32,
    ring: Ring,
    events: Vec<OwnedFd>,
    /// Whether the last event is the output of a program.
    has_output: bool,
}

impl TraceRings {
    /// Opens the events on each CPU that is online. They are recorded after [`TraceRings::enable`].
    ///
    /// # Errors
    /// If the process lacks the right or the memory, or the kernel refuses a filter.
    pub fn open(traced: &[Traced], config: &RingsConfig) -> Result<Self, TraceError> {
        let cpus = online_cpus().map_err(|source| TraceError::Os { what: "list the CPUs", source })?;
        allow_files(cpus.len() * (traced.len() + usize::from(config.outputs)));
        let wanted = config.ring_bytes.max(page_bytes()).next_power_of_two();
        let mut rings = Self { cpus: Vec::new(), ring_bytes: wanted, counts_losses: true };
        for cpu in cpus {
            if let Some(opened) = rings.open_cpu(cpu, traced, config)? {
                rings.cpus.push(opened);
            }
        }
        if rings.cpus.is_empty() {
            let source = io::ErrorKind::NotFound.into();
            return Err(TraceError::Os { what: "no CPU is online", source });
        }
        Ok(rings)
    }

    /// The memory of each ring in bytes.
    pub const fn ring_bytes(&self) -> usize {
        self.ring_bytes
    }

    /// The number of CPUs.
    pub const fn cpus(&self) -> usize {
        self.cpus.len()
    }

    /// The events of one CPU; `None` if the CPU went offline.
    fn open_cpu(
        &mut self,
        cpu: u32,
        traced: &[Traced],
        config: &RingsConfig,
    ) -> Result<Option<Cpu>, TraceError> {
        let mut events: Vec<OwnedFd> = Vec::with_capacity(traced.len() + 1);
        let mut ring = None;
        let tracepoints = traced.iter().map(|one| (TYPE_TRACEPOINT, one.id.into(), one.filter.as_deref()));
        let outputs = config.outputs.then_some((TYPE_SOFTWARE, PROGRAM_OUTPUT, None));
        for (kind, number, filter) in tracepoints.chain(outputs) {
            let is_first = events.is_empty();
            let event = match self.open_event(kind, number, cpu, config.tasks && is_first) {
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return Ok(None),
                event => event.map_err(open_error)?,
            };
            if let Some(filter) = filter {
                set_filter(event.as_fd(), filter)
                    .map_err(|source| TraceError::Os { what: "filter events by device", source })?;
            }
            match events.first() {
                None => ring = Some(self.map(event.as_fd())?),
                Some(first) => ioctl(event.as_fd(), IOC_SET_OUTPUT, first.as_raw_fd() as libc::c_ulong)
                    .map_err(|source| TraceError::Os { what: "share a ring", source })?,
            }
            events.push(event);
        }
        Ok(ring.map(|ring| Cpu { number: cpu, ring, events, has_output: config.outputs }))
    }

    fn open_event(&mut self, kind: u32, number: u64, cpu: u32, tasks: bool) -> io::Result<OwnedFd> {
        let attr = |read_format| Attr {
            kind,
            size: size_of::<Attr>() as u32,
            config: number,
            sample_period: 1,
            sample_type: SAMPLE_TID | SAMPLE_TIME | SAMPLE_RAW,
            read_format,
            flags: FLAG_DISABLED
                | FLAG_WATERMARK
                | FLAG_SAMPLE_ID_ALL
                | FLAG_USE_CLOCKID
                | if tasks { FLAG_TASK } else { 0 },
            wakeup_watermark: (self.ring_bytes / 4) as u32,
            clockid: libc::CLOCK_MONOTONIC,
            ..Attr::default()
        };
        if self.counts_losses {
            match perf_event_open(&attr(FORMAT_LOST), cpu) {
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => self.counts_losses = false,
                event => return event,
            }
        }
        perf_event_open(&attr(0), cpu)
    }

    /// Maps the ring of a CPU, a smaller one if there is not enough memory. Later CPUs have the same size.
    fn map(&mut self, event: BorrowedFd<'_>) -> Result<Ring, TraceError> {
        loop {
            match Ring::new(event, self.ring_bytes) {
                Ok(ring) => return Ok(ring),
                Err(_) if self.ring_bytes / 2 >= RING_BYTES_MIN.max(page_bytes()) => self.ring_bytes /= 2,
                Err(source) => return Err(TraceError::NoMemory { bytes: self.ring_bytes, source }),
            }
        }
    }

    /// The events to which a program in the kernel writes, each with its CPU; none without
    /// [`RingsConfig::outputs`].
    pub fn outputs(&self) -> impl Iterator<Item = (u32, BorrowedFd<'_>)> {
        let with_output = self.cpus.iter().filter(|cpu| cpu.has_output);
        with_output.filter_map(|cpu| Some((cpu.number, cpu.events.last()?.as_fd())))
    }

    /// Begins to record.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn enable(&self) -> Result<(), TraceError> {
        self.set(IOC_ENABLE, "enable events")
    }

    /// Ends the recording. The rings keep their records.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn disable(&self) -> Result<(), TraceError> {
        self.set(IOC_DISABLE, "disable events")
    }

    fn set(&self, request: libc::c_ulong, what: &'static str) -> Result<(), TraceError> {
        for event in self.cpus.iter().flat_map(|cpu| &cpu.events) {
            ioctl(event.as_fd(), request, 0).map_err(|source| TraceError::Os { what, source })?;
        }
        Ok(())
    }

    /// Waits until a ring is a quarter full, a signal arrives, or the time has passed.
    pub fn wait(&self, timeout: Duration) {
        let events = self.cpus.iter().filter_map(|cpu| cpu.events.first());
        let mut polled: Vec<_> = events.map(|event| PollFd::new(event, PollFlags::IN)).collect();
        let timeout = Timespec::try_from(timeout).ok();
        // An error means a signal; the caller looks for its cause.
        let _ = poll(&mut polled, timeout.as_ref());
    }

    /// Calls `visit` with each record of each ring, ring after ring; the records of a ring are in order. Returns the
    /// number of bytes of the ring that was fullest.
    pub fn read(&mut self, mut visit: impl FnMut(u32, TraceRecord<'_>)) -> usize {
        let read = |Cpu { number, ring, .. }: &mut Cpu| ring.read(|record| visit(*number, record));
        self.cpus.iter_mut().map(read).max().unwrap_or(0)
    }

    /// The events that each tracepoint has lost so far; `None` if the kernel, older than 6.0, does not count them by
    /// event.
    pub fn losses(&self) -> Option<Vec<EventLoss>> {
        if !self.counts_losses {
            return None;
        }
        let mut losses = Vec::new();
        for Cpu { number, events, .. } in &self.cpus {
            for (index, event) in events.iter().enumerate() {
                let mut counts = [0; 16];
                // A failed read has no count: the losses of the rings remain.
                if rustix::io::read(event, &mut counts[..]).is_ok_and(|bytes| bytes == counts.len()) {
                    let lost = u64::from_ne_bytes([
                        counts[8], counts[9], counts[10], counts[11], counts[12], counts[13], counts[14],
                        counts[15],
                    ]);
                    losses.push(EventLoss { event: index, cpu: *number, lost });
                }
            }
        }
        losses.retain(|loss| loss.lost > 0);
        Some(losses)
    }
}

fn open_error(source: io::Error) -> TraceError {
    if matches!(source.raw_os_error(), Some(libc::EACCES | libc::EPERM)) {
        let paranoid = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid");
        let paranoid = paranoid.map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned());
        return TraceError::NotPermitted { paranoid };
    }
    TraceError::Os { what: "open an event", source }
}

/// Raises the limit of open files if that many more do not fit: each CPU has a file for each event.
fn allow_files(files: usize) {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let needed = files as u64 + 256;
    if current.is_some_and(|current| current < needed) {
        let limit = maximum.map_or(needed, |maximum| maximum.min(needed));
        // A refused limit shows when the events are opened.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(limit), maximum });
    }
}

fn online_cpus() -> io::Result<Vec<u32>> {
    Ok(cpu_list(&fs::read_to_string("/sys/devices/system/cpu/online")?))
}

/// The numbers of a list such as `0-3,8`.
fn cpu_list(text: &str) -> Vec<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<u32>().ok()?..=last.parse::<u32>().ok()?)
    };
    text.trim().split(',').filter_map(range).flatten().collect()
}

fn perf_event_open(attr: &Attr, cpu: u32) -> io::Result<OwnedFd> {
    let (all_processes, no_group): (libc::pid_t, libc::c_int) = (-1, -1);
    // SAFETY: the attributes are valid for their stated size, and the kernel only reads them.
    let file = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            std::ptr::from_ref(attr),
            all_processes,
            cpu.cast_signed(),
            no_group,
            OPEN_CLOEXEC,
        )
    };
    if file < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel returned a new file that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(file as libc::c_int) })
}

fn set_filter(event: BorrowedFd<'_>, filter: &str) -> io::Result<()> {
    let filter = CString::new(filter).map_err(|_| io::ErrorKind::InvalidInput)?;
    ioctl(event, IOC_SET_FILTER, filter.as_ptr() as libc::c_ulong)
}

/// An `ioctl` of an event whose argument is a number, or an address that is valid during the call.
fn ioctl(event: BorrowedFd<'_>, request: libc::c_ulong, argument: libc::c_ulong) -> io::Result<()> {
    // SAFETY: callers of this private function pass 0, a file number, or the address of a string that outlives the
    // call; the kernel writes to none of them.
    let result = unsafe { libc::ioctl(event.as_raw_fd(), request as _, argument) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_cpus_has_ranges_and_numbers() {
        assert_eq!(cpu_list("0-2,7,9-10\n"), [0, 1, 2, 7, 9, 10]);
        assert_eq!(cpu_list(""), [0; 0]);
        assert_eq!(cpu_list("x,3-y,4"), [4]);
    }
}
