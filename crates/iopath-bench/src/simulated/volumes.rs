//! The volumes of one machine, as one process in virtual time. Advances each volume when work of that volume is due.
//! Volumes do not call each other.

use iopath_core::Instant;
use iopath_model::VirtualClock;
use iopath_model::event_loop::{self, End, LoopError, Process, earlier};

use super::jobs::JobSetup;
use super::system::{System, Watch};

/// The volumes of a machine.
#[derive(Default)]
pub(super) struct Volumes {
    volumes: Vec<Box<dyn System>>,
    /// Whether jobs were started since the last advance. They run at once, although `poll_timeout` of their volumes
    /// does not report them.
    has_started: bool,
}

impl Volumes {
    pub(super) fn push(&mut self, volume: Box<dyn System>) {
        self.volumes.push(volume);
    }

    /// The volumes, in the order of insertion.
    pub(super) fn volumes(&self) -> &[Box<dyn System>] {
        &self.volumes
    }

    pub(super) fn volumes_mut(&mut self) -> &mut [Box<dyn System>] {
        &mut self.volumes
    }

    /// Starts jobs of a volume. All earlier jobs of this volume must have ended.
    pub(super) fn start(&mut self, volume: usize, jobs: Vec<JobSetup>) {
        self.volumes[volume].start(jobs);
        self.has_started = true;
    }

    /// Runs the jobs of all volumes to their ends. One volume needs no choice between volumes at each event.
    pub(super) fn run(&mut self, clock: &mut VirtualClock, watch: Watch<'_>) -> Result<End, LoopError> {
        if let [volume] = &mut self.volumes[..] {
            return volume.run(clock, watch);
        }
        event_loop::run(self, clock, &mut |volumes, now| watch(&|| volumes.moved_bytes(), now))
    }

    /// Replaces a volume whose jobs have ended.
    pub(super) fn replace(&mut self, volume: usize, by: Box<dyn System>) {
        self.volumes[volume] = by;
    }

    /// Bytes that all jobs have moved so far.
    pub(super) fn moved_bytes(&self) -> u64 {
        self.volumes.iter().map(|volume| volume.moved_bytes()).sum()
    }
}

impl Process for Volumes {
    #[inline]
    fn advance(&mut self, now: Instant) {
        let all = std::mem::take(&mut self.has_started);
        for volume in &mut self.volumes {
            if all || volume.poll_timeout().is_some_and(|due| due <= now) {
                volume.advance(now);
            }
        }
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Instant> {
        self.volumes.iter().fold(None, |due, volume| earlier(due, volume.poll_timeout()))
    }

    fn is_done(&self) -> bool {
        let mut all = true;
        for volume in &self.volumes {
            // A failure ends the run.
            if volume.has_failed() {
                return true;
            }
            all &= volume.is_done();
        }
        all
    }
}
