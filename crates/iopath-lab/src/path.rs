//! The paths that can be measured: one row each in [`PATHS`], two small traits behind them. Does not measure.
//!
//! Adding a path is a file under `paths/` that implements [`IoPath`] and [`Connection`], and a row in the table.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use iopath::BufferedStats;
use iopath_log::LogWriter;

use crate::cache::CacheSettings;
use crate::error::LabError;
use crate::paths;
use crate::place::Place;

pub use iopath_os::kernel::{Direction, Done, Transfer};

/// One way to move bytes between memory and a target.
#[expect(clippy::struct_excessive_bools, reason = "a table's columns, independent of each other")]
pub struct PathRow {
    /// What `--path` calls it.
    pub name: &'static str,
    /// What it is, in one line.
    pub about: &'static str,
    /// Whether it moves bytes anywhere at all.
    pub needs_target: bool,
    /// Whether it goes around every page cache: then block sizes have to suit the device.
    pub direct: bool,
    /// Whether a job waits for each transfer before it starts the next: then more depth takes more jobs.
    pub synchronous: bool,
    /// Whether it has a request queue of iopath's, and so takes an elevator and an engine.
    pub queued: bool,
    /// Whether it has a page cache of iopath's, and so takes that one's settings and transfers of any size.
    pub cached: bool,
    /// Opens a target.
    pub open: fn(&OpenSpec) -> Result<Box<dyn IoPath>, LabError>,
}

impl fmt::Debug for PathRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PathRow").field("name", &self.name).finish_non_exhaustive()
    }
}

/// All paths, in the order people see them.
pub static PATHS: &[PathRow] = &[
    PathRow {
        name: "kernel-buffered",
        about: "pread(2) and pwrite(2) through the kernel's page cache: what most programs do",
        needs_target: true,
        direct: false,
        synchronous: true,
        queued: false,
        cached: false,
        open: paths::kernel::buffered,
    },
    PathRow {
        name: "kernel-direct",
        about: "pread(2) and pwrite(2) with O_DIRECT: around the page cache, one transfer at a time",
        needs_target: true,
        direct: true,
        synchronous: true,
        queued: false,
        cached: false,
        open: paths::kernel::direct,
    },
    PathRow {
        name: "kernel-uring",
        about: "io_uring with O_DIRECT, registered file and buffers, submitted in batches",
        needs_target: true,
        direct: true,
        synchronous: false,
        queued: false,
        cached: false,
        open: paths::kernel::uring,
    },
    PathRow {
        name: "kernel-mmap",
        about: "a mapped file, copied from and to: no system call, a page fault for what is not cached",
        needs_target: true,
        direct: false,
        synchronous: true,
        queued: false,
        cached: false,
        open: paths::kernel::mmap,
    },
    PathRow {
        name: "iopath-direct",
        about: "a volume's batches: queue, merging and elevator in user space, past the page cache",
        needs_target: true,
        direct: true,
        synchronous: false,
        queued: true,
        cached: false,
        open: paths::volume::direct,
    },
    PathRow {
        name: "iopath-raw",
        about: "the same without the semantics of a file: whole blocks of a device",
        needs_target: true,
        direct: true,
        synchronous: false,
        queued: true,
        cached: false,
        open: paths::volume::raw,
    },
    PathRow {
        name: "iopath-buffered",
        about: "a volume with a page cache, readahead and write-back of its own in user space",
        needs_target: true,
        direct: false,
        synchronous: true,
        queued: true,
        cached: true,
        open: paths::buffered::open,
    },
    PathRow {
        name: "null",
        about: "the queue with no device behind it: what iopath itself costs",
        needs_target: false,
        direct: false,
        synchronous: false,
        queued: true,
        cached: false,
        open: paths::null::open,
    },
];

/// The row of that name.
pub fn find_path(name: &str) -> Result<&'static PathRow, LabError> {
    PATHS.iter().find(|row| row.name == name).ok_or_else(|| LabError::Unknown {
        kind: "path",
        name: name.to_owned(),
        known: PATHS.iter().map(|row| row.name.to_owned()).collect(),
    })
}

/// What a path is opened with.
#[derive(Debug, Clone, Copy)]
pub struct OpenSpec<'a> {
    /// Where the bytes are; present exactly when the row needs a target.
    pub place: &'a Place,
    /// Whether the workload writes.
    pub writes: bool,
    /// The bytes that may be touched, from offset zero.
    pub size_bytes: u64,
    /// Transfers in flight for each job.
    pub depth: u32,
    /// The elevator and its settings, where the row takes one; unset is the path's own choice.
    pub elevator: Option<&'a str>,
    /// The name of the I/O engine, where the row takes one; unset is the path's own choice.
    pub engine: Option<&'a str>,
    /// How the page cache is to be, where the row has one of iopath's.
    pub cache: &'a CacheSettings,
    /// Where the queue of each job tells its steps, on paths that have one.
    pub log: Option<&'a Arc<LogWriter>>,
}

impl OpenSpec<'_> {
    /// The file or device of a path that needs one.
    ///
    /// # Panics
    /// If there is none, which the lab sees to for rows with `needs_target`.
    pub fn file(&self) -> &Path {
        self.place.file().expect("a path that needs a target is opened with one")
    }
}

/// An open path. Shared by all jobs of a run.
pub trait IoPath: Send + Sync {
    /// What one job uses, made on the job's own thread and not counted in the measurement.
    fn connect(&self, job: &JobSpec) -> Result<Box<dyn Connection>, LabError>;

    /// Forgets what it has cached itself, for a repeat that is to be cold. Called with no connection, and not counted in
    /// the measurement.
    fn forget(&self) -> Result<(), LabError> {
        Ok(())
    }

    /// What a page cache of its own has done so far; none where there is none.
    fn cache_stats(&self) -> Option<BufferedStats> {
        None
    }
}

/// What a job asks of its connection.
#[derive(Debug, Clone, Copy)]
pub struct JobSpec {
    /// Which job, from 0.
    pub job: u32,
    /// Of how many.
    pub jobs: u32,
    /// How many transfers it would like in flight: 1 on a synchronous path.
    pub depth: u32,
    /// The largest transfer in bytes; each slot has a buffer of that size.
    pub block_bytes: u32,
    /// Seeds the buffers' bytes.
    pub seed: u64,
}

/// A job's own way to the target, with a buffer for each slot. Stays on the thread that made it.
///
/// The engine calls `submit` for every free slot, then `reap` once, and so on: `submit` may just note the transfer,
/// so that `reap` hands over many with one system call.
pub trait Connection {
    /// How many slots there are; slots are numbered from 0.
    fn depth(&self) -> u32;

    /// Takes a transfer for a slot that is free. An error ends the run.
    fn submit(&mut self, slot: u32, transfer: Transfer) -> io::Result<()>;

    /// Hands over what was submitted, waits until one transfer has ended at least, and adds all that have to `done`.
    /// Called only with something in flight. An error is one of the path itself and ends the run; a transfer's own
    /// is in its `Done`.
    fn reap(&mut self, done: &mut Vec<Done>) -> io::Result<()>;

    /// Runs transfers in slot 0, one after another, each to its end; stops at the first that fails, and says which.
    /// Called with nothing in flight and only on paths that wait for each transfer, where the lab shall cost little for
    /// each. `done` is room to work in, empty before and after.
    fn run_each(
        &mut self,
        transfers: &[Transfer],
        done: &mut Vec<Done>,
    ) -> Result<(), (Transfer, io::Error)> {
        for &transfer in transfers {
            let ran = self.submit(0, transfer).and_then(|()| self.reap(done));
            let ran = ran.and_then(|()| done.drain(..).try_for_each(|one| one.result));
            ran.map_err(|error| (transfer, error))?;
        }
        Ok(())
    }

    /// Returns when all that was written is on the medium. Called with nothing in flight.
    fn flush(&mut self) -> io::Result<()>;

    /// What a reader of the results has to know about this connection: something it could not have, say.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found() {
        for row in PATHS {
            assert_eq!(PATHS.iter().filter(|other| other.name == row.name).count(), 1, "{}", row.name);
            assert_eq!(find_path(row.name).unwrap().name, row.name);
            assert!(!row.about.is_empty(), "{}", row.name);
        }
    }

    #[test]
    fn an_unknown_path_is_refused_with_those_known() {
        let text = find_path("kernel").unwrap_err().to_string();
        assert!(text.starts_with("there is no path `kernel`; known are kernel-buffered, "), "{text}");
    }
}
