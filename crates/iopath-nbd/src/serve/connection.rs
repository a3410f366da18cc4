//! One client: moves bytes between its socket and its state machine, [`Serving`].

use std::io;
use std::time::Instant;

use super::core::Core;
use super::serving::{Closed, Next, Serving};
use super::storage::Storage;
use super::transport::Transport;

impl From<io::Error> for Closed {
    fn from(error: io::Error) -> Self {
        Self::Error(error.to_string())
    }
}

/// One client.
#[derive(Debug)]
pub(super) struct Connection<S: Storage, T: Transport> {
    pub(super) stream: T,
    pub(super) serving: Serving<S>,
}

impl<S: Storage, T: Transport> Connection<S, T> {
    pub(super) fn new(stream: T, core: &Core<S>, now: Instant) -> io::Result<Self> {
        stream.prepare()?;
        let serving = Serving::new(stream.number(), core, now);
        Ok(Self { stream, serving })
    }

    /// Receives and handles what has arrived, as far as the state machine reads.
    pub(super) fn handle_readable(
        &mut self,
        key: usize,
        core: &mut Core<S>,
        tls: Option<&T::Tls>,
    ) -> Result<(), Closed> {
        loop {
            match self.serving.poll(key, core)? {
                Next::Wait => return Ok(()),
                Next::Send => {
                    self.send_output()?;
                }
                Next::StartTls => {
                    let tls = tls.ok_or_else(|| Closed::Error("the server has no certificate".into()))?;
                    self.stream.start_tls(tls)?;
                    self.serving.handle_tls_started();
                }
                Next::Receive => {
                    let received = self.stream.receive(self.serving.memory())?;
                    // A handshake of TLS or a change of keys sends bytes, too.
                    self.serving.handle_backlog(0, self.stream.has_output());
                    match received {
                        Some(0) => return Err(Closed::ByClient),
                        Some(count) => self.serving.handle_received(count, self.stream.is_plain()),
                        None => {
                            self.serving.handle_drained();
                            return Ok(());
                        }
                    }
                }
            }
        }
    }

    /// Sends queued replies. Returns whether the socket accepted any byte.
    pub(super) fn send(&mut self, now: Instant) -> Result<bool, Closed> {
        let has_sent = self.send_output()? > 0;
        self.serving.update_pace(now);
        Ok(has_sent)
    }

    /// Sends as much as the socket accepts. Returns the number of bytes.
    fn send_output(&mut self) -> io::Result<usize> {
        let mut total = 0;
        while self.serving.has_replies() {
            let Some(count) = self.stream.send(&self.serving.output())? else { break };
            total += count;
            self.serving.handle_sent(count);
        }
        // Encrypted bytes of earlier parts.
        let flushed = self.stream.flush()?;
        self.serving.handle_backlog(flushed, self.stream.has_output());
        Ok(total + flushed)
    }
}
