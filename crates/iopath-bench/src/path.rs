//! The interface of a measured path: its row in the table and the traits behind it. Does not measure. The paths
//! themselves are in `paths.rs`.

use std::fmt;
use std::io;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use iopath::stats::BufferedStats;
use iopath::{Engine, Volume};
use iopath_core::elevator::ElevatorSpec;
use iopath_core::{Instant, SECTOR_BYTES};
use iopath_log::LogWriter;

use crate::cache::CacheSettings;
use crate::contents::Contents;
use crate::error::BenchError;
use crate::export::RemoteTarget;
use crate::place::{Medium, Place};
use crate::sync_writes::SyncWrites;
use crate::thread_settings::IoPriority;

pub use iopath_os::kernel::{Direction, Done, Hint, Pages, Polling, Transfer};

/// One way to move bytes between memory and a target.
pub struct PathRow {
    /// The name that `--path` takes.
    pub name: &'static str,
    /// A description of one line.
    pub about: &'static str,
    /// The capabilities of the path. Checks and warnings use these, never the name.
    pub capabilities: Capabilities,
    /// Opens a target.
    pub open: fn(&OpenSpec) -> Result<Box<dyn IoPath>, BenchError>,
}

impl fmt::Debug for PathRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PathRow").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The capabilities of a path.
#[expect(clippy::struct_excessive_bools, reason = "the columns of a table, independent of each other")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// Transfers bytes of a target. A path without a target measures itself.
    pub needs_target: bool,
    /// Bypasses every page cache. Block sizes must be multiples of the device's alignment.
    pub direct: bool,
    /// A job waits for each transfer before it starts the next. More jobs keep more transfers in flight.
    pub synchronous: bool,
    /// Has a request queue of iopath: accepts an elevator, an I/O engine and a request log.
    pub queue: bool,
    /// Has a page cache of iopath: accepts its settings, borrowing reads, and transfers of any size.
    pub cache: bool,
    /// Each transfer may have a priority of its own.
    pub priorities: bool,
    /// The job can poll the device for completions, and the kernel for submissions.
    pub polls: bool,
    /// A write may complete when its bytes are on the medium, and not before.
    pub durable_writes: bool,
    /// Accesses several files of this machine as one: a stripe that iopath makes of them.
    pub stripes: bool,
}

impl Capabilities {
    /// Block sizes must be a multiple of this number of bytes, on every target.
    pub fn block_multiple(self) -> u32 {
        if self.queue && !self.cache { SECTOR_BYTES as u32 } else { 1 }
    }

    /// Whether the path reads and writes the target by direct I/O: with the caller's blocks, or with its own pages.
    pub fn needs_direct_io(self) -> bool {
        self.direct || self.cache
    }

    /// Whether a model or an export of a server can be the target: iopath's own code leads to it, and no code of the
    /// kernel.
    pub fn runs_on_models(self) -> bool {
        self.queue && self.needs_target
    }

    /// Whether an option of this place holds on the path, with a target on this medium.
    pub fn include(self, place: Place, medium: Medium) -> bool {
        match place {
            Place::Queue => self.queue,
            Place::Cache => self.cache,
            Place::Synchronous => self.synchronous,
            Place::Priorities => self.priorities,
            Place::Polling => self.polls,
            Place::Kernel => self.needs_target && !self.queue,
            Place::DurableWrites => self.durable_writes && medium != Medium::Model,
            Place::Storage(_) => medium != Medium::Model,
            Place::Local(_) => medium == Medium::Local,
            Place::Model => medium == Medium::Model,
            Place::EveryLatency | Place::OneWorkload => true,
        }
    }

    /// Whether a page cache, the kernel's or iopath's, can serve a read of the path.
    pub fn is_cached(self) -> bool {
        self.needs_target && !self.direct
    }
}

/// The pages that a path through the kernel's page cache drops after each pass over them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pass {
    /// The first byte.
    pub start_bytes: u64,
    /// The length.
    pub bytes: u64,
    /// The bytes that a job transfers in a pass.
    pub every_bytes: u64,
}

/// The parameters for opening a path.
#[derive(Debug, Clone, Copy)]
pub struct OpenSpec<'a> {
    /// The file or device; present if and only if the path needs a target.
    pub target: Option<&'a Path>,
    /// The open export, if the target is one.
    pub remote: Option<&'a RemoteTarget>,
    /// Whether the workload writes.
    pub writes: bool,
    /// When a write completes. All jobs of an open path have one value.
    pub sync: SyncWrites,
    /// The bytes to access, from offset zero.
    pub size_bytes: u64,
    /// Transfers in flight per job.
    pub depth: u32,
    /// The elevator, for a path with a queue; unset is `none`.
    pub elevator: Option<&'a ElevatorSpec>,
    /// With an elevator other than `none`: maximum requests in flight at the device, for all jobs together; unset is
    /// the device's own queue depth.
    pub device_depth: Option<u32>,
    /// The I/O engine, for a path with a queue.
    pub engine: Engine,
    /// The hint of the order of accesses through the kernel's page cache.
    pub hint: Option<Hint>,
    /// The pages that are dropped between passes; none: they stay.
    pub pass: Option<Pass>,
    /// How a path with [`Capabilities::polls`] finds work.
    pub polling: Polling,
    /// The settings of iopath's page cache, for a path that has it.
    pub cache: &'a CacheSettings,
    /// Receives the events of each queue, for a path with a queue.
    pub log: Option<&'a Arc<LogWriter>>,
}

impl OpenSpec<'_> {
    /// The file or device of a path that needs one.
    ///
    /// # Panics
    /// If there is none. The lab refuses a workload without a target before it opens such a path.
    pub fn file(&self) -> &Path {
        self.target.expect("a path that needs a target is opened with one")
    }

    /// The elevator as text, for a volume's options.
    pub(crate) fn elevator_text(&self) -> String {
        self.elevator.map_or_else(|| "none".to_owned(), ToString::to_string)
    }
}

impl JobSpec<'_> {
    /// Whether the path makes the content of each write unique.
    pub(crate) fn makes_unique(&self) -> bool {
        !self.fills && self.contents.is_unique()
    }
}

/// An open path. Shared by all jobs of a run.
pub trait IoPath: Send + Sync {
    /// Connects one job, on the thread of the job and before the measurement begins.
    fn connect(&self, job: &JobSpec) -> Result<Box<dyn Connection>, BenchError>;

    /// The volume of a path of iopath without a page cache, for callers that submit requests of their own.
    fn volume(&self) -> Option<&Volume> {
        None
    }

    /// Empties the path's own cache before a cold repetition. Called without connections and outside the measurement.
    fn drop_cache(&self) -> Result<(), BenchError> {
        Ok(())
    }

    /// The I/O engine of a path with a queue of iopath.
    fn engine(&self) -> Option<&'static str> {
        None
    }

    /// Counters of the path's own page cache, if it has one.
    fn cache_stats(&self) -> Option<BufferedStats> {
        None
    }
}

/// The requirements of one job.
#[derive(Debug, Clone, Copy)]
pub struct JobSpec<'a> {
    /// The number of the job, from 0.
    pub job: u32,
    /// The number of jobs.
    pub jobs: u32,
    /// Transfers in flight: 1 on a synchronous path.
    pub depth: u32,
    /// The largest transfer in bytes; each slot has a buffer of this size.
    pub block_bytes: u32,
    /// Seeds the contents of the buffers.
    pub seed: u64,
    /// The content of writes.
    pub contents: &'a Contents,
    /// Whether the caller fills the buffers of writes.
    pub fills: bool,
    /// The memory of the buffers of a path of the kernel.
    pub pages: Pages,
    /// Whether the caller uses [`Connection::reap_within`].
    pub waits: bool,
}

/// The connection of one job to the target, with a buffer for each slot. Stays on the thread that made it.
///
/// The job calls `submit` for every free slot, then `reap` once, and repeats. `submit` may queue the transfer, and
/// leave it to `reap` to submit many transfers with one system call.
pub trait Connection {
    /// The number of slots; slots are numbered from 0.
    fn depth(&self) -> u32;

    /// Begins a batch of submissions at this time, which the job has just read. A path with a clock of its own need not
    /// read it again.
    fn begin_batch(&mut self, now: Instant) {
        let _ = now;
    }

    /// Queues or submits a transfer in a free slot. An error ends the run.
    fn submit(&mut self, slot: u32, transfer: Transfer) -> io::Result<()>;

    /// As [`Connection::submit`], with a priority of its own, on a path with [`Capabilities::priorities`].
    fn submit_prioritized(&mut self, slot: u32, transfer: Transfer, priority: IoPriority) -> io::Result<()> {
        let _ = (slot, transfer, priority);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Whether transfers are submitted by a call of their own, so that the time of a submission can be measured.
    fn submits_queued(&self) -> bool {
        false
    }

    /// Sets the number of transfers that are submitted by one call at most, on a path with
    /// [`Connection::submits_queued`].
    fn set_submit_max(&mut self, transfers: NonZeroU32) {
        let _ = transfers;
    }

    /// Whether transfers are queued and not yet submitted, on such a path.
    fn has_queued(&mut self) -> bool {
        false
    }

    /// Submits queued transfers without a wait for completions, on such a path.
    fn submit_queued(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Submits queued transfers, waits for at least one completion, and adds all completions to `done`. Called only
    /// with transfers in flight. An error of the path itself ends the run; the error of one transfer is in its `Done`.
    fn reap(&mut self, done: &mut Vec<Done>) -> io::Result<()>;

    /// The time of the completions of the last reap, on a path that has read the clock then.
    fn completed_at(&self) -> Option<Instant> {
        None
    }

    /// As [`Connection::reap`], but returns after `wait` at the latest, possibly without a completion. A synchronous
    /// path need not implement it: its transfers are short of a free slot, never of time.
    fn reap_within(&mut self, done: &mut Vec<Done>, wait: Duration) -> io::Result<()> {
        let _ = wait;
        self.reap(done)
    }

    /// Runs transfers in slot 0, one after another. Stops at the first error, and returns it with its transfer. Called
    /// with nothing in flight, and only on synchronous paths: saves the lab two virtual calls per transfer. `done` is
    /// scratch space, empty before and after.
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

    /// The buffer of a free slot: after a read, its content; before a write with [`JobSpec::fills`], for the caller to
    /// fill. None on a path without buffers of its own.
    fn buffer(&mut self, slot: u32) -> Option<&mut [u8]> {
        let _ = slot;
        None
    }

    /// Returns when all written bytes are on the medium. Called with nothing in flight.
    fn flush(&mut self) -> io::Result<()>;

    /// As [`Connection::flush`], with the metadata of the file (`fsync(2)`). A path that does not use the calls of the
    /// kernel has one kind of flush.
    fn flush_all(&mut self) -> io::Result<()> {
        self.flush()
    }

    /// Warnings for the reader of the results, such as a missing kernel feature.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
}

/// The number of a direction among reads, writes and trims.
#[inline]
pub(crate) const fn number_of(direction: Direction) -> usize {
    match direction {
        Direction::Read => 0,
        Direction::Write => 1,
        Direction::Trim => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_queue_without_a_cache_needs_whole_sectors() {
        let none = Capabilities {
            needs_target: true,
            direct: false,
            synchronous: false,
            queue: false,
            cache: false,
            priorities: false,
            polls: false,
            durable_writes: true,
            stripes: false,
        };
        assert_eq!(none.block_multiple(), 1);
        assert_eq!(Capabilities { queue: true, ..none }.block_multiple(), 512);
        assert_eq!(Capabilities { queue: true, cache: true, ..none }.block_multiple(), 1);
    }

    #[test]
    fn a_path_without_a_target_is_not_cached() {
        let null = Capabilities {
            needs_target: false,
            direct: false,
            synchronous: false,
            queue: true,
            cache: false,
            priorities: false,
            polls: false,
            durable_writes: true,
            stripes: false,
        };
        assert!(!null.is_cached() && !null.needs_direct_io());
        let buffered = Capabilities { needs_target: true, cache: true, ..null };
        assert!(buffered.is_cached() && buffered.needs_direct_io());
    }
}
