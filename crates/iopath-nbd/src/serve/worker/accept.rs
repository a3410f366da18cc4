//! Accepts connections and distributes them among the workers, as far as the system has descriptors.

use std::io;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;

use super::{CHECK, LISTENERS, Stream, Worker};

/// Connections that are accepted in one pass of the event loop.
const ACCEPTS_MAX: u32 = 64;

/// Time without a refused connection after which the next one is reported again.
const SHORTAGE_PAUSE: Duration = Duration::from_secs(60);

/// Streams of connections: the request log has 16 bits for a stream, and stream 0 is the server.
const STREAMS_MAX: u64 = 0xfffe;

impl Worker {
    /// Accepts waiting connections of a listener, and distributes them among the workers.
    pub(super) fn accept(&mut self, listener: usize, now: Instant) {
        for _ in 0..ACCEPTS_MAX {
            // A stopped server has no listeners.
            let Some(listener) = self.listeners.get(listener) else { return };
            match listener.accept() {
                Ok(mut stream) => {
                    if self.shared.clients.is_full() {
                        continue;
                    }
                    let accepted = self.shared.clients.count_accepted();
                    stream.number = (accepted % STREAMS_MAX) as u32 + 1;
                    self.distribute(stream);
                }
                Err(error) if is_shortage(&error) => return self.pause_listeners(&error, now),
                // No connection waits, or the error concerns only one connection.
                Err(_) => return,
            }
        }
    }

    /// Gives a connection to the next worker. One that does not take its connections waits for a volume, so another
    /// gets it.
    fn distribute(&mut self, mut stream: Stream) {
        self.shared.clients.add_handshake();
        for _ in &self.shared.workers {
            let mailbox = &self.shared.workers[self.next_mailbox];
            self.next_mailbox = (self.next_mailbox + 1) % self.shared.workers.len();
            match mailbox.put(stream) {
                Ok(()) => return,
                Err(refused) => stream = refused,
            }
        }
        self.shared.clients.release_handshake();
    }

    /// Stops watching the listeners, because a connection that cannot be accepted stays readable.
    fn pause_listeners(&mut self, error: &io::Error, now: Instant) {
        let is_new = self.shortage.is_none_or(|at| now.saturating_duration_since(at) > SHORTAGE_PAUSE);
        if is_new {
            self.shared.clients.note(&format!(
                "cannot accept connections: {error}; raise the limit of open files (ulimit -n) or lower --connections"
            ));
        }
        self.shortage = Some(now);
        self.refused_until = Some(now + CHECK);
        self.watch_listeners(EventFlags::empty());
    }

    /// Accepts connections again, some time after the system refused one.
    pub(super) fn resume_listeners(&mut self, now: Instant) {
        if self.refused_until.is_some_and(|until| now >= until) {
            self.refused_until = None;
            self.watch_listeners(EventFlags::IN);
        }
    }

    fn watch_listeners(&self, flags: EventFlags) {
        for (number, listener) in (LISTENERS..).zip(&self.listeners) {
            // It fails only for a descriptor that is not watched.
            let _ = epoll::modify(&self.epoll, listener, EventData::new_u64(number), flags);
        }
    }
}

/// Whether the system has no descriptor or memory for a connection, which then stays in the queue of the listener.
fn is_shortage(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS))
}
