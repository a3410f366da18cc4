//! The system's counters: CPU time of the machine, transfers of a disk, I/O of this process and of kernel threads.
//! Computes their differences over a run; does not interpret them.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::iter::Sum;
use std::ops::Sub;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use iopath_report::result::{DiskQueue, ThreadUse};

/// `/proc/stat` counts in ticks of 1/100 s on every architecture (`USER_HZ`).
const TICKS_PER_SECOND: f64 = 100.0;

/// `/proc/diskstats` counts in sectors of 512 bytes on every disk.
const SECTOR_BYTES: u64 = 512;

/// CPU time of the whole machine since boot, in seconds over all CPUs: everything except idle, iowait and steal time.
/// Resolution 10 ms per CPU (`proc_stat(5)`).
pub(crate) fn machine_busy_seconds() -> io::Result<f64> {
    parse_busy_seconds(&fs::read_to_string("/proc/stat")?)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "/proc/stat has no line `cpu`"))
}

fn parse_busy_seconds(stat: &str) -> Option<f64> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = line.split_whitespace().map_while(|field| field.parse().ok()).collect();
    // user, nice, system, idle, iowait, irq, softirq; then steal, and guest times, which user and nice include.
    let &[user, nice, system, _idle, _iowait, irq, softirq, ..] = ticks.as_slice() else { return None };
    Some((user + nice + system + irq + softirq) as f64 / TICKS_PER_SECOND)
}

/// CPUs that the machine keeps busy while this thread sleeps for `sample`, in CPU seconds per second.
pub fn idle_busy_cpus(sample: Duration) -> io::Result<f64> {
    let (begun, before) = (Instant::now(), machine_busy_seconds()?);
    thread::sleep(sample);
    Ok((machine_busy_seconds()? - before) / begun.elapsed().as_secs_f64())
}

/// The transfers of a disk, of all processes, as the kernel's block layer counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DiskCounters {
    /// Completed reads.
    pub reads: u64,
    /// Their bytes.
    pub read_bytes: u64,
    /// Completed writes.
    pub writes: u64,
    /// Their bytes.
    pub written_bytes: u64,
    /// Merges and times; none of a modelled disk.
    pub queue: Option<DiskQueue>,
}

/// The counters of disks, each once, by the kernel's names: of all processes.
pub(crate) type DiskUses = Vec<(String, DiskCounters)>;

impl DiskCounters {
    /// The counters of a disk by its kernel name (`sda`); none if it is not listed.
    pub(crate) fn of(disk: &str) -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/diskstats").ok()?, disk)
    }

    fn parse(diskstats: &str, disk: &str) -> Option<Self> {
        let line = diskstats.lines().find(|line| line.split_whitespace().nth(2) == Some(disk))?;
        let counts: Vec<u64> =
            line.split_whitespace().skip(3).map_while(|field| field.parse().ok()).collect();
        // Kernel, Documentation/admin-guide/iostats.rst: reads, merged, sectors, ms; the same for writes; then requests
        // in flight, ms with one in flight, and ms of all of them.
        let &[
            reads,
            read_merges,
            sectors_read,
            read_ms,
            writes,
            write_merges,
            sectors_written,
            write_ms,
            _,
            busy_ms,
            waiting_ms,
            ..,
        ] = counts.as_slice()
        else {
            return None;
        };
        Some(Self {
            reads,
            read_bytes: sectors_read * SECTOR_BYTES,
            writes,
            written_bytes: sectors_written * SECTOR_BYTES,
            queue: Some(DiskQueue { read_merges, write_merges, read_ms, write_ms, busy_ms, waiting_ms }),
        })
    }
}

/// Requests that a disk has in flight, of all processes; none if it is not listed (`Documentation/block/stat.rst`).
pub(crate) fn in_flight(disk: &str) -> Option<u64> {
    let counts = fs::read_to_string(format!("/sys/class/block/{}/inflight", disk.replace('/', "!"))).ok()?;
    counts.split_whitespace().map(|count| count.parse::<u64>().ok()).sum()
}

impl DiskCounters {
    /// The part of a disk's transfers that a process caused. If other processes used the disk as well, requests are
    /// attributed in proportion to bytes. The process can count more bytes than the disk: several writes to one dirty
    /// page reach the disk as one write.
    pub(crate) fn caused_by(self, process: ProcessIo) -> Self {
        let (reads, read_bytes) = share(self.reads, self.read_bytes, process.read_bytes);
        let (writes, written_bytes) = share(self.writes, self.written_bytes, process.written_bytes);
        Self { reads, read_bytes, writes, written_bytes, ..self }
    }
}

/// Requests and bytes of a disk, limited to the bytes of one process.
fn share(requests: u64, bytes: u64, own_bytes: u64) -> (u64, u64) {
    if own_bytes >= bytes {
        return (requests, bytes);
    }
    let own_requests = u128::from(requests) * u128::from(own_bytes) / u128::from(bytes);
    (if own_bytes > 0 { (own_requests as u64).max(1) } else { 0 }, own_bytes)
}

/// The bytes that this process moved between memory and storage, all its threads together: `read_bytes` and
/// `write_bytes` of `/proc/self/io` (`proc_pid_io(5)`). Reads count when the process submits them, also through
/// `io_uring` and its worker threads; writes count when direct I/O is submitted or a page becomes dirty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ProcessIo {
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
}

impl ProcessIo {
    /// The counters so far; none where the kernel has no I/O accounting.
    pub(crate) fn of_self() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/self/io").ok()?)
    }

    fn parse(io: &str) -> Option<Self> {
        let field = |name: &str| io.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        Some(Self { read_bytes: field("read_bytes:")?, written_bytes: field("write_bytes:")? })
    }
}

/// The bytes that each kernel thread moved, by its number. They are the I/O that the kernel does on behalf of others:
/// the thread of a loop device reads and writes the file beneath.
#[derive(Debug)]
pub(crate) struct KernelThreadsIo(BTreeMap<u32, ProcessIo>);

impl KernelThreadsIo {
    /// The counters so far; none where kernel threads are not visible (another PID namespace) or only root may read
    /// their counters. Takes some milliseconds.
    pub(crate) fn read() -> Option<Self> {
        let mut threads = BTreeMap::new();
        for entry in fs::read_dir("/proc").ok()?.flatten() {
            let Some(number) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            let path = entry.path();
            if !fs::read_to_string(path.join("stat")).is_ok_and(|stat| is_kernel_thread(&stat)) {
                continue;
            }
            match fs::read_to_string(path.join("io")) {
                Ok(io) => threads.insert(number, ProcessIo::parse(&io)?),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return None,
                // The thread has ended.
                Err(_) => continue,
            };
        }
        (!threads.is_empty()).then_some(Self(threads))
    }

    /// The bytes moved since `before`. Bytes of a thread that has ended are not included: its counter no longer exists.
    /// The kernel ends workers that have been idle for minutes, so the difference of two sums over all threads would be
    /// wrong.
    pub(crate) fn since(&self, before: &Self) -> ProcessIo {
        let mut moved = ProcessIo::default();
        for (number, &after) in &self.0 {
            let of_thread = after - before.0.get(number).copied().unwrap_or_default();
            moved.read_bytes += of_thread.read_bytes;
            moved.written_bytes += of_thread.written_bytes;
        }
        moved
    }
}

/// Whether `/proc/PID/stat` has the flag `PF_KTHREAD` (linux/include/linux/sched.h).
fn is_kernel_thread(stat: &str) -> bool {
    const PF_KTHREAD: u64 = 0x0020_0000;
    // The name may contain anything, parentheses and spaces among it. After it: state, parent, group, session,
    // terminal, foreground group, flags.
    let flags =
        stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(6)?.parse::<u64>().ok());
    flags.is_some_and(|flags| flags & PF_KTHREAD != 0)
}

impl Sub for ProcessIo {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            read_bytes: self.read_bytes.saturating_sub(before.read_bytes),
            written_bytes: self.written_bytes.saturating_sub(before.written_bytes),
        }
    }
}

impl Sum for DiskCounters {
    fn sum<I: Iterator<Item = Self>>(counters: I) -> Self {
        counters.fold(Self::default(), |sum, one| Self {
            reads: sum.reads + one.reads,
            read_bytes: sum.read_bytes + one.read_bytes,
            writes: sum.writes + one.writes,
            written_bytes: sum.written_bytes + one.written_bytes,
            queue: sum.queue.map_or(one.queue, |all| Some(all + one.queue.unwrap_or_default())),
        })
    }
}

impl Sub for DiskCounters {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            reads: self.reads.saturating_sub(before.reads),
            read_bytes: self.read_bytes.saturating_sub(before.read_bytes),
            writes: self.writes.saturating_sub(before.writes),
            written_bytes: self.written_bytes.saturating_sub(before.written_bytes),
            queue: self.queue.zip(before.queue).map(|(after, before)| after - before),
        }
    }
}

/// CPU time and context switches of the calling thread since its start; none where `/proc` does not show them. The time
/// is that of the scheduler, in nanoseconds; the kernel counts its parts in ticks of 1/100 s.
pub(crate) fn thread_use() -> Option<ThreadUse> {
    let stat = fs::read_to_string("/proc/thread-self/stat").ok()?;
    let status = fs::read_to_string("/proc/thread-self/status").ok()?;
    let running = first_line("/proc/thread-self/schedstat");
    parse_thread_use(&stat, &status, running.as_deref())
}

fn parse_thread_use(stat: &str, status: &str, running: Option<&str>) -> Option<ThreadUse> {
    // The name may contain anything. After it: state, and twelve fields up to the times (`proc_pid_stat(5)`).
    let (_, fields) = stat.rsplit_once(')')?;
    let ticks = |field| fields.split_whitespace().nth(field)?.parse::<f64>().ok();
    let (user, system) = (ticks(11)?, ticks(12)?);
    let running_ns = running.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    let all = running_ns.map_or((user + system) / TICKS_PER_SECOND, |ns| ns / 1e9);
    let user_share = if user + system > 0.0 { user / (user + system) } else { 0.0 };
    let switches =
        |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
    Some(ThreadUse {
        user_seconds: all * user_share,
        system_seconds: all * (1.0 - user_share),
        context_switches: switches("voluntary_ctxt_switches:")? + switches("nonvoluntary_ctxt_switches:")?,
    })
}

/// The first line of a file of `/proc` or `/sys`.
pub(crate) fn first_line(path: impl AsRef<Path>) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_time_excludes_idle_iowait_and_steal_time() {
        let stat = "cpu  100 20 300 4000 500 6 74 800 50 0\ncpu0 1 1 1 1 1 1 1 1 1 1\nintr 5\n";
        assert_eq!(parse_busy_seconds(stat), Some(5.0));
        assert_eq!(parse_busy_seconds("intr 5\n"), None);
        assert_eq!(parse_busy_seconds("cpu 1 2 3\n"), None);
    }

    #[test]
    fn a_busy_machine_is_seen() {
        let before = machine_busy_seconds().unwrap();
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(100) {
            std::hint::black_box(begun);
        }
        assert!(machine_busy_seconds().unwrap() - before >= 0.05);
    }

    #[test]
    fn a_disk_is_found_by_its_whole_name() {
        let text =
            "   8  0 sda 1 0 8 0 2 0 16 0 0 0 0\n   8  1 sda1 10 0 80 0 20 0 160 0 0 0 0 0 0 0 0 0 0\n";
        let counted = DiskCounters::parse(text, "sda1").unwrap();
        let queue = Some(DiskQueue::default());
        let expected =
            DiskCounters { reads: 10, read_bytes: 80 * 512, writes: 20, written_bytes: 160 * 512, queue };
        assert_eq!(counted, expected);
        assert_eq!(
            counted - DiskCounters::parse(text, "sda").unwrap(),
            DiskCounters { reads: 9, read_bytes: 72 * 512, writes: 18, written_bytes: 144 * 512, queue }
        );
        assert_eq!(DiskCounters::parse(text, "sd"), None);
        let busy = DiskCounters::parse("8 0 sda 1 2 3 4 5 6 7 8 9 10 11\n", "sda").unwrap().queue.unwrap();
        let queue =
            [busy.read_merges, busy.read_ms, busy.write_merges, busy.write_ms, busy.busy_ms, busy.waiting_ms];
        assert_eq!(queue, [2, 4, 6, 8, 10, 11]);
    }

    #[test]
    fn a_process_without_io_caused_no_transfer_of_the_disk() {
        let disk = DiskCounters {
            reads: 30,
            read_bytes: 120 << 10,
            writes: 3,
            written_bytes: 22 << 10,
            queue: None,
        };
        assert_eq!(disk.caused_by(ProcessIo::default()), DiskCounters::default());
        let half = ProcessIo { read_bytes: 60 << 10, written_bytes: 0 };
        let expected = DiskCounters { reads: 15, read_bytes: 60 << 10, ..DiskCounters::default() };
        assert_eq!(disk.caused_by(half), expected);
        let more = ProcessIo { read_bytes: 120 << 10, written_bytes: 1 << 20 };
        assert_eq!(disk.caused_by(more), disk, "never more than the disk moved");
    }

    #[test]
    fn the_time_of_a_thread_is_that_of_the_scheduler_in_parts_by_ticks() {
        let stat = "7 (a) b) R 1 2 3 4 5 6 7 8 9 10 30 10 0 0";
        let status = "Name:\ta\nvoluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t2\n";
        let used = parse_thread_use(stat, status, Some("2000000000 5 6")).unwrap();
        assert_eq!((used.user_seconds, used.system_seconds, used.context_switches), (1.5, 0.5, 7));
        let used = parse_thread_use(stat, status, None).unwrap();
        assert!(
            (used.user_seconds - 0.3).abs() < 1e-9 && (used.system_seconds - 0.1).abs() < 1e-9,
            "{used:?}"
        );
        assert!(parse_thread_use("7 (a", status, None).is_none());
        assert!(thread_use().is_some());
    }

    #[test]
    fn io_of_a_process_is_read_by_its_field_names() {
        let io = "rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 5\n";
        assert_eq!(ProcessIo::parse(io), Some(ProcessIo { read_bytes: 4096, written_bytes: 8192 }));
        assert_eq!(ProcessIo::parse("rchar: 1\n"), None);
    }

    #[test]
    fn a_kernel_thread_is_known_by_its_flag() {
        assert!(is_kernel_thread("1663 (kworker/u8:11-loop0) I 2 0 0 0 -1 69238880 0 0 0 0"));
        assert!(!is_kernel_thread("2000 (a) 1 2 3 4 5 69238880 (x) S 1 2000 2000 0 -1 4194304 0 0"));
        assert!(!is_kernel_thread("2000 (short"));
    }

    #[test]
    fn bytes_of_kernel_threads_that_come_and_go_are_not_mixed_up() {
        let io = |read_bytes| ProcessIo { read_bytes, written_bytes: read_bytes / 2 };
        let threads = |list: &[(u32, u64)]| KernelThreadsIo(list.iter().map(|&(n, r)| (n, io(r))).collect());
        // One thread continues, one ends, one starts.
        let (before, after) = (threads(&[(2, 1000), (3, 5000)]), threads(&[(2, 1600), (4, 20)]));
        assert_eq!(after.since(&before), io(620));
    }
}
