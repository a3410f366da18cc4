//! Completions for an event loop: a descriptor that becomes readable. Does not wait for it.

use super::Batch;
use crate::source::threading::Threading;
use iopath_os::{Bell, now};
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// How often a forced write on a volume with a page cache is polled: the cache announces no end of its flush.
const FORCED_POLL: Duration = Duration::from_millis(1);

impl<T: Threading> Batch<T> {
    /// A descriptor that becomes readable when requests have completed (`eventfd(2)`), for `epoll` and event loops such as
    /// tokio's. Each call returns a duplicate. Do not read from it: [`Batch::poll`] does.
    ///
    /// The order is: [`Batch::submit`], [`Batch::poll`] until it returns `None`, then wait for the descriptor, no longer than
    /// [`Batch::next_timeout`]. A wait may end although nothing has completed.
    ///
    /// The example `tokio_batch` awaits a batch in tokio.
    ///
    /// From then on the batch has a queue and an engine of its own, also with an elevator: no thread waits for the device of
    /// a shared queue on behalf of an event loop.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] if requests are in flight at the first call. Else an error of the system.
    pub fn completion_fd(&mut self) -> io::Result<OwnedFd> {
        if let Some(bell) = &self.bell {
            return bell.descriptor();
        }
        if self.in_flight() > 0 {
            let reason = "requests are in flight; ask for the descriptor before the first request";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        let bell = Bell::new()?;
        bell.arm();
        let descriptor = bell.descriptor()?;
        self.runner.pin(self.volume.source()).map_err(io::Error::other)?;
        self.runner().set_bell(&bell)?;
        self.bell = Some(bell);
        Ok(descriptor)
    }

    /// How long a wait for [`Batch::completion_fd`] may take at most before the next [`Batch::poll`]; `None` for no limit.
    /// There is a limit while an elevator holds requests back, or a forced write waits for a flush of the page cache.
    pub fn next_timeout(&self) -> Option<Duration> {
        let due = self.runner.as_is().poll_timeout().map(|due| due.saturating_since(now()));
        let is_flushing = self.direct.as_ref().is_some_and(|direct| direct.is_flushing());
        [due, is_flushing.then_some(FORCED_POLL)].into_iter().flatten().min()
    }

    /// Rings from here on make the descriptor readable again.
    pub(super) fn clear_bell(&self) {
        if let Some(bell) = &self.bell {
            // An error leaves the descriptor readable: the caller polls again.
            let _ = bell.clear();
        }
    }
}
