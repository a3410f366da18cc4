//! Notifies an event loop of completions through a file descriptor. Does not wait for it.

use super::io::BatchIo;
use super::threading::Threading;
use super::{Batch, Completion};
use crate::error::{Cause, Error, ErrorKind, Result};
use iopath_os::{IoBuf, Notifier};
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

impl<T: Threading, B: IoBuf> Batch<T, B> {
    /// A descriptor that becomes readable when requests have completed (`eventfd(2)`), for `epoll` and event loops such
    /// as tokio's. Each call returns a duplicate. Do not read from it: [`Batch::poll`] does.
    ///
    /// The order of calls is: [`Batch::submit`]; [`Batch::poll`] until it returns `None`; then wait for the descriptor,
    /// no longer than [`Batch::next_timeout`]. A wait may end without a completion.
    ///
    /// The example `tokio_batch` awaits a batch in tokio.
    ///
    /// After the first call, a direct batch has a queue and an engine of its own with every elevator, since no thread
    /// waits for the device of a shared queue on behalf of an event loop. For buffered batches the cache starts one
    /// thread when a request of such a batch waits, which polls its device, and ends after a second without one. A
    /// buffered read makes the descriptor readable when a page has arrived, and immediately if all of its pages are
    /// cached.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] if requests are in flight at the first call. Else an error of the system.
    pub fn completion_fd(&mut self) -> io::Result<OwnedFd> {
        if let Some(notifier) = &self.notifier {
            return notifier.descriptor();
        }
        if self.in_flight() > 0 {
            let reason = "requests are in flight; call completion_fd before the first request";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        let notifier = Notifier::new()?;
        notifier.arm();
        let descriptor = notifier.descriptor()?;
        self.io.set_notifier(&notifier)?;
        self.notifier = Some(notifier);
        Ok(descriptor)
    }

    /// Waits as [`Batch::wait`] does, at most for `limit`. `None` also if the limit has passed; requests are in flight
    /// then ([`Batch::in_flight`]), and [`Batch::cancel`] ends the wait for one of them. The first call has the effects
    /// of [`Batch::completion_fd`].
    ///
    /// # Errors
    /// [`ErrorKind::Wait`] if the system refuses the wait, or requests are in flight at the
    /// first call.
    pub fn wait_timeout(&mut self, limit: Duration) -> Result<Option<Completion<B>>> {
        if self.notifier.is_none() {
            drop(self.completion_fd().map_err(|source| self.wait_error(source))?);
        }
        let end = Instant::now().checked_add(limit);
        self.submit();
        loop {
            let done = self.poll();
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            if done.is_some() || self.in_flight() == 0 || left == Some(Duration::ZERO) {
                return Ok(done);
            }
            let pause = [left, self.next_timeout()].into_iter().flatten().min();
            if let Some(notifier) = &self.notifier {
                notifier.wait(pause).map_err(|source| self.wait_error(source))?;
            }
        }
    }

    fn wait_error(&self, source: io::Error) -> Error {
        self.volume.error(ErrorKind::Wait).because(Cause::System(source))
    }

    /// The notifier of the descriptor, if there is one: it makes the descriptor readable.
    pub(crate) fn notifier(&self) -> Option<Notifier> {
        self.notifier.clone()
    }

    /// The maximum time to wait for [`Batch::completion_fd`] before the next [`Batch::poll`]; `None` for no limit.
    /// There is a limit in five cases: an elevator delays requests; a forced write waits for a flush of the page cache;
    /// writes wait because too many pages are dirty; a request waits for a page of a full cache; the system has refused
    /// the thread that polls for buffered batches.
    pub fn next_timeout(&self) -> Option<Duration> {
        self.io.next_timeout()
    }
}
