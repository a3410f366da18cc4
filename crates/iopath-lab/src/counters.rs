//! What the system counts by itself: CPU time of the machine, transfers of a disk. Read before and after, subtracted.
//! Does not decide what the differences mean.

use std::fs;
use std::io;
use std::ops::Sub;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// `/proc/stat` counts in ticks of 1/100 s on every architecture (`USER_HZ`).
const TICKS_PER_SECOND: f64 = 100.0;

/// `/proc/diskstats` counts in sectors of 512 bytes, whatever the disk's own are.
const SECTOR_BYTES: u64 = 512;

/// CPU time of the whole machine since it started, in seconds over all CPUs: everything but idling, waiting for I/O
/// and what a hypervisor gave to others. Resolution 10 ms for each CPU (`proc_stat(5)`).
pub(crate) fn machine_busy_seconds() -> io::Result<f64> {
    parse_busy_seconds(&fs::read_to_string("/proc/stat")?)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "/proc/stat has no line `cpu`"))
}

fn parse_busy_seconds(stat: &str) -> Option<f64> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = line.split_whitespace().map_while(|field| field.parse().ok()).collect();
    // user, nice, system, idle, iowait, irq, softirq; then steal and guests, which are in user and nice already.
    let &[user, nice, system, _idle, _iowait, irq, softirq, ..] = ticks.as_slice() else { return None };
    Some((user + nice + system + irq + softirq) as f64 / TICKS_PER_SECOND)
}

/// How many CPUs the machine keeps busy with other things (CPU seconds for each second). Watches it for `sample`.
pub(crate) fn idle_busy_cpus(sample: Duration) -> io::Result<f64> {
    let (begun, before) = (Instant::now(), machine_busy_seconds()?);
    thread::sleep(sample);
    Ok((machine_busy_seconds()? - before) / begun.elapsed().as_secs_f64())
}

/// What a disk has transferred, as the kernel's block layer counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct DiskCounters {
    pub(crate) reads: u64,
    pub(crate) read_bytes: u64,
    pub(crate) writes: u64,
    pub(crate) written_bytes: u64,
}

impl DiskCounters {
    /// The counters of a disk by its kernel name (`sda`); none if it is not listed.
    pub(crate) fn of(disk: &str) -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/diskstats").ok()?, disk)
    }

    fn parse(diskstats: &str, disk: &str) -> Option<Self> {
        let line = diskstats.lines().find(|line| line.split_whitespace().nth(2) == Some(disk))?;
        let counts: Vec<u64> =
            line.split_whitespace().skip(3).map_while(|field| field.parse().ok()).collect();
        // Kernel, Documentation/admin-guide/iostats.rst: reads, merged, sectors, ms; the same for writes.
        let &[reads, _, sectors_read, _, writes, _, sectors_written, ..] = counts.as_slice() else {
            return None;
        };
        Some(Self {
            reads,
            read_bytes: sectors_read * SECTOR_BYTES,
            writes,
            written_bytes: sectors_written * SECTOR_BYTES,
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
        }
    }
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
    fn busy_is_all_but_idle_waiting_and_stolen() {
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
        let expected = DiskCounters { reads: 10, read_bytes: 80 * 512, writes: 20, written_bytes: 160 * 512 };
        assert_eq!(counted, expected);
        assert_eq!(
            counted - DiskCounters::parse(text, "sda").unwrap(),
            DiskCounters { reads: 9, read_bytes: 72 * 512, writes: 18, written_bytes: 144 * 512 }
        );
        assert_eq!(DiskCounters::parse(text, "sd"), None);
    }
}
