//! What to measure: one path, one pattern of transfers, how often. Does not run it.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use iopath_core::SECTOR_BYTES;
use iopath_core::elevator::ElevatorSpec;
use iopath_os::Engine;

use crate::cache::CacheSettings;
use crate::error::LabError;
use crate::path::{PathRow, find_path};
use crate::size::format_size;

/// What is measured where the size is not given and the target has none of its own, in bytes.
pub const DEFAULT_SIZE_BYTES: u64 = 1 << 30;

/// The largest block, in bytes: what `io_uring` takes as one buffer, and less than what one `pread(2)` transfers.
pub const BLOCK_BYTES_MAX: u32 = 1 << 30;

/// The greatest depth: as many buffers as `io_uring` registers.
pub const DEPTH_MAX: u32 = 1 << 14;

/// The greatest number of jobs, each of which is a thread.
pub const JOBS_MAX: u32 = 4096;

/// The most I/Os of which one is timed: whether to stop is looked at no oftener.
pub const LATENCY_EVERY_MAX: u32 = 1 << 16;

/// Which way, in which order. Named as fio names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rw {
    /// Sequential reads.
    Read,
    /// Sequential writes.
    Write,
    /// Random reads.
    RandRead,
    /// Random writes.
    RandWrite,
    /// Reads and writes, sequential: each block is either read or written.
    Rw,
    /// Reads and writes, random.
    RandRw,
}

impl Rw {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Read, Self::Write, Self::RandRead, Self::RandWrite, Self::Rw, Self::RandRw];

    /// As fio and `--rw` call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::RandRead => "randread",
            Self::RandWrite => "randwrite",
            Self::Rw => "rw",
            Self::RandRw => "randrw",
        }
    }

    /// Whether it reads at all.
    pub fn reads(self) -> bool {
        !matches!(self, Self::Write | Self::RandWrite)
    }

    /// Whether it writes at all.
    pub fn writes(self) -> bool {
        !matches!(self, Self::Read | Self::RandRead)
    }

    /// Whether blocks come in random order.
    pub fn is_random(self) -> bool {
        matches!(self, Self::RandRead | Self::RandWrite | Self::RandRw)
    }
}

impl fmt::Display for Rw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Rw {
    type Err = LabError;

    fn from_str(text: &str) -> Result<Self, LabError> {
        Self::ALL.into_iter().find(|rw| rw.name() == text).ok_or_else(|| LabError::Unknown {
            kind: "rw",
            name: text.to_owned(),
            known: Self::ALL.iter().map(|rw| rw.name().to_owned()).collect(),
        })
    }
}

/// One measurement. Its text form is the arguments of `iopath run`.
#[derive(Debug, Clone)]
pub struct Workload {
    /// The name of a row of [`crate::path::PATHS`].
    pub path: String,
    /// A directory (a scratch file is made there and removed), a file or a block device.
    pub target: Option<PathBuf>,
    /// Which way, in which order.
    pub rw: Rw,
    /// The size of each transfer in bytes.
    pub block_bytes: u32,
    /// How many transfers each job keeps in flight, where the path can.
    pub io_depth: u32,
    /// How many threads do the same at the same time.
    pub jobs: u32,
    /// The bytes that are touched, from offset zero; unset is all of a file or device, [`DEFAULT_SIZE_BYTES`] of
    /// what has no size.
    pub size_bytes: Option<u64>,
    /// How long each repeat takes; unset, it ends when as many bytes have been moved as are touched.
    pub runtime: Option<Duration>,
    /// How many bytes each repeat moves, fewer or more than are touched, or fewer where the runtime ends before; unset
    /// leaves it to the runtime and the bytes touched. fio calls it `io_size`.
    pub io_bytes: Option<u64>,
    /// How often it is measured.
    pub repeat: u32,
    /// Whether caches keep what they have: what will be touched is read once before, unmeasured. Unset, each repeat
    /// begins with the target's pages dropped from the kernel's page cache, and an empty one of iopath's.
    pub warm: bool,
    /// Of so many transfers of a job one is timed, drawn at random; all are counted. More than 1 on paths only that wait
    /// for each transfer, where reading the clock for each may take longer than the transfers do.
    pub latency_every: u32,
    /// Where random offsets, mixes and bytes come from.
    pub seed: u64,
    /// Of 100 transfers of a mixed workload, how many read.
    pub rwmixread: u8,
    /// The elevator of a path that has one of iopath's.
    pub elevator: Option<String>,
    /// How a path of iopath's does its system calls.
    pub engine: Option<String>,
    /// How the page cache of a path is to be that has one of iopath's.
    pub cache: CacheSettings,
    /// Where the request log of a path of iopath's is written.
    pub log: Option<PathBuf>,
    /// The most bytes of that log.
    pub log_limit_bytes: Option<u64>,
    /// Whether a file or device that is not a scratch file of ours may be written to.
    pub overwrite: bool,
}

impl Default for Workload {
    /// One sequential read of everything in 4 KiB blocks, cold, three times, as a plain program would.
    fn default() -> Self {
        Self {
            path: "kernel-buffered".to_owned(),
            target: None,
            rw: Rw::Read,
            block_bytes: 4096,
            io_depth: 1,
            jobs: 1,
            size_bytes: None,
            runtime: None,
            io_bytes: None,
            repeat: 3,
            warm: false,
            latency_every: 1,
            seed: 1,
            rwmixread: 50,
            elevator: None,
            engine: None,
            cache: CacheSettings::default(),
            log: None,
            log_limit_bytes: None,
            overwrite: false,
        }
    }
}

impl Workload {
    /// Finds the path in the table, and checks what can be checked without looking at the target.
    pub fn check(&self) -> Result<&'static PathRow, LabError> {
        let row = find_path(&self.path)?;
        self.check_for(row)?;
        Ok(row)
    }

    /// Checks the settings for a path, whether it is in the table or not.
    pub fn check_for(&self, row: &PathRow) -> Result<(), LabError> {
        let depth_range = || format!("1 to {DEPTH_MAX}");
        in_range("--bs", self.block_bytes, 1..=BLOCK_BYTES_MAX, || {
            format!("1 byte to {}", format_size(BLOCK_BYTES_MAX.into()))
        })?;
        if row.queued && !row.cached && !self.block_bytes.is_multiple_of(SECTOR_BYTES as u32) {
            let range = format!("a multiple of {SECTOR_BYTES}, a sector, on iopath's own paths");
            return Err(LabError::OutOfRange { what: "--bs", value: self.block_bytes.into(), range });
        }
        in_range("--iodepth", self.io_depth, 1..=DEPTH_MAX, depth_range)?;
        in_range("--numjobs", self.jobs, 1..=JOBS_MAX, || format!("1 to {JOBS_MAX}"))?;
        in_range("--repeat", self.repeat, 1..=u32::MAX, || "1 or more".to_owned())?;
        in_range("--rwmixread", self.rwmixread.into(), 0..=100, || "0 to 100".to_owned())?;
        self.check_latency(row)?;
        if let Some(size_bytes) = self.size_bytes {
            self.check_size(size_bytes)?;
        }
        let log = self.log.as_ref().map(|log| log.display().to_string());
        for (setting, value) in [("elevator", &self.elevator), ("engine", &self.engine), ("log", &log)] {
            if let (Some(value), false) = (value, row.queued) {
                return Err(LabError::NotForPath { path: row.name, setting, value: value.clone() });
            }
        }
        self.cache.check_for(row, self)?;
        if let Some(name) = &self.elevator {
            name.parse::<ElevatorSpec>()?;
        }
        if let Some(name) = &self.engine {
            name.parse::<Engine>()?;
        }
        Ok(())
    }

    fn check_latency(&self, row: &PathRow) -> Result<(), LabError> {
        in_range("--latency-every", self.latency_every, 1..=LATENCY_EVERY_MAX, || {
            format!("1 to {LATENCY_EVERY_MAX}")
        })?;
        if self.latency_every > 1 && !row.synchronous {
            return Err(LabError::AllTimed { path: row.name });
        }
        Ok(())
    }

    /// Checks that a page cache of iopath's holds what hits are to be measured of.
    pub(crate) fn check_warm(&self, row: &PathRow, size_bytes: u64) -> Result<(), LabError> {
        if self.warm && row.cached { self.cache.check_holds(size_bytes) } else { Ok(()) }
    }

    /// The fewest bytes that there can be to touch: a block for each job.
    pub(crate) fn size_bytes_min(&self) -> u64 {
        u64::from(self.block_bytes) * u64::from(self.jobs)
    }

    /// Checks that the bytes to touch hold a block for each job.
    pub(crate) fn check_size(&self, size_bytes: u64) -> Result<(), LabError> {
        if size_bytes >= self.size_bytes_min() {
            return Ok(());
        }
        let range = format!("{} or more, a block for each job", format_size(self.size_bytes_min()));
        Err(LabError::OutOfRange { what: "--size", value: size_bytes, range })
    }
}

fn in_range(
    what: &'static str,
    value: u32,
    range: std::ops::RangeInclusive<u32>,
    text: impl FnOnce() -> String,
) -> Result<(), LabError> {
    if range.contains(&value) {
        return Ok(());
    }
    Err(LabError::OutOfRange { what, value: value.into(), range: text() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for rw in Rw::ALL {
            assert_eq!(rw.name().parse::<Rw>().unwrap(), rw);
            assert!(rw.reads() || rw.writes());
        }
        let text = "trim".parse::<Rw>().unwrap_err().to_string();
        assert_eq!(text, "there is no rw `trim`; known are read, write, randread, randwrite, rw, randrw");
    }

    #[test]
    fn numbers_out_of_range_are_named() {
        for (workload, named) in [
            (Workload { block_bytes: 0, ..Workload::default() }, "--bs 0"),
            (Workload { io_depth: 0, ..Workload::default() }, "--iodepth 0"),
            (Workload { jobs: 5000, ..Workload::default() }, "--numjobs 5000"),
            (Workload { latency_every: 0, ..Workload::default() }, "--latency-every 0"),
            (Workload { repeat: 0, ..Workload::default() }, "--repeat 0"),
            (Workload { rwmixread: 101, ..Workload::default() }, "--rwmixread 101"),
        ] {
            let text = workload.check().unwrap_err().to_string();
            assert!(text.starts_with(named), "{text}");
        }
        Workload::default().check().unwrap();
        Workload::default().check_size(4096).unwrap();
        Workload { jobs: 2, ..Workload::default() }.check_size(4096).unwrap_err();
    }

    #[test]
    fn what_a_path_of_ours_cannot_do_is_refused_before_anything_is_written() {
        let ours = Workload { path: "iopath-direct".to_owned(), ..Workload::default() };
        for (workload, said) in [
            (Workload { block_bytes: 1000, ..ours.clone() }, "--bs 1000 is out of range: a multiple of 512"),
            (
                Workload { elevator: Some("lift".to_owned()), ..ours.clone() },
                "no elevator is called \"lift\"",
            ),
            (Workload { engine: Some("steam".to_owned()), ..ours.clone() }, "no engine is called \"steam\""),
            (Workload { size_bytes: Some(100), ..ours.clone() }, "--size 100 is out of range: 4 KiB"),
        ] {
            let error = workload.check().unwrap_err();
            assert!(error.is_usage() && error.to_string().starts_with(said), "{error}");
        }
    }

    #[test]
    fn a_kernel_path_takes_no_elevator() {
        let workload = Workload { elevator: Some("none".to_owned()), ..Workload::default() };
        let text = workload.check().unwrap_err().to_string();
        assert!(text.starts_with("path kernel-buffered takes no elevator (`none`)"), "{text}");
    }
}
