//! What the server does for one client: negotiation, then requests. It makes no system calls: `connection.rs` moves the
//! bytes.
//!
//! ```text
//!   Handshake ── Receive, Send, StartTls ──▶ Transmission ── Disconnect, stop ──▶ Ended
//!                                              │  Head ──▶ Data ──▶ Head …
//!                                              └─ Stalled: requests, unsent replies or buffers at their limit
//! ```
//!
//! In: bytes received and sent, completions of transfers ([`Serving::reply`]), the stop of the server. Out: the next
//! action of the driver, the bytes to send, whether to read ([`Reading`]), and whether the client is late.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::core::Core;
use super::input::Input;
use super::outbox::{Outbox, Slices};
use super::pace::Pace;
use super::requests::{Requests, Step};
use super::storage::Storage;
use super::transfer::Progress;
use crate::server::{HandshakeError, ServerHandshake, ServerProgress, Session};

/// Requests of one connection that are executed at the same time. Further requests wait in the socket.
pub(crate) const IN_FLIGHT_MAX: u32 = 64;

/// Bytes of the negotiation that are received at once.
const HANDSHAKE_BYTES: usize = 4096;

/// Reason for the end of a connection.
#[derive(Debug)]
pub(super) enum Closed {
    /// The client ended it.
    ByClient,
    /// The client violated the protocol, or the socket failed.
    Error(String),
}

/// State of the socket after its input was handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// It waits for the client.
    Drained,
    /// It waits for a buffer, a completion or the socket. Further input stays in the socket.
    Stalled,
    /// The client sends nothing more.
    Ended,
}

/// The next action of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Receive into [`Serving::memory`], and report the result.
    Receive,
    /// Send [`Serving::output`] as far as the socket accepts it.
    Send,
    /// Start TLS as the server, then call [`Serving::handle_tls_started`].
    StartTls,
    /// Nothing, until an event that [`Serving::reading`] states.
    Wait,
}

#[derive(Debug)]
enum Phase<S: Storage> {
    Handshake {
        handshake: ServerHandshake,
        input: Vec<u8>,
        /// The result of the last input. Its output is sent first.
        progress: Option<Result<ServerProgress, HandshakeError>>,
    },
    Transmission(Requests<S>),
}

/// The state of one client.
#[derive(Debug)]
pub(super) struct Serving<S: Storage> {
    /// The number of the connection, from 1.
    number: u32,
    phase: Phase<S>,
    outbox: Outbox<S>,
    /// Encrypted bytes wait for the socket.
    has_backlog: bool,
    /// Transfers without a complete reply.
    in_flight: u32,
    /// The transfer in flight has a simple reply in several pieces: no byte of another reply may come between them.
    is_alone: bool,
    reading: Reading,
    /// Bytes in both directions.
    moved: u64,
    pace: Pace,
    accepted: Instant,
}

impl<S: Storage> Serving<S> {
    /// A new client, on connection `number`.
    pub(super) fn new(number: u32, core: &Core<S>, now: Instant) -> Self {
        let mut handshake = ServerHandshake::new(Arc::clone(&core.exports), core.tls);
        let mut outbox = Outbox::new();
        outbox.push_text(handshake.take_output());
        Self {
            number,
            phase: Phase::Handshake { handshake, input: Vec::new(), progress: None },
            outbox,
            has_backlog: false,
            in_flight: 0,
            is_alone: false,
            reading: Reading::Drained,
            moved: 0,
            pace: Pace::new(core.patience, core.rate_min, now),
            accepted: now,
        }
    }

    /// When to read.
    pub(super) fn reading(&self) -> Reading {
        self.reading
    }

    /// Whether replies, or encrypted bytes of them, wait for the socket.
    pub(super) fn has_output(&self) -> bool {
        !self.outbox.is_empty() || self.has_backlog
    }

    /// Whether the client has used up its time: it is silent or slow in the middle of a message, or still negotiates.
    pub(super) fn is_late(&self, patience: Duration, now: Instant) -> bool {
        (self.negotiates() && now.saturating_duration_since(self.accepted) >= patience)
            || self.pace.is_late(now)
    }

    pub(super) fn negotiates(&self) -> bool {
        matches!(self.phase, Phase::Handshake { .. })
    }

    /// The time of the last byte in either direction.
    pub(super) fn progressed(&self) -> Instant {
        self.pace.progressed()
    }

    /// Moves data that waits for the client out of about `count` buffers of this export. Returns their number.
    pub(super) fn park(&mut self, export: usize, count: u32) -> u32 {
        let waits = self.waits_for_client();
        match &mut self.phase {
            Phase::Transmission(requests) if waits && requests.export == export => {
                u32::from(requests.park()) + self.outbox.park(count)
            }
            _ => 0,
        }
    }

    /// Whether the connection waits for its client, so that a silent client can be disconnected.
    fn waits_for_client(&self) -> bool {
        let is_within_message = match &self.phase {
            Phase::Handshake { .. } => true,
            Phase::Transmission(requests) => requests.is_within_message(),
        };
        self.has_output() || (is_within_message && self.reading == Reading::Drained)
    }

    /// Whether the client has said farewell and has got all replies.
    pub(super) fn is_finished(&self) -> bool {
        self.reading == Reading::Ended && self.in_flight == 0 && !self.has_output()
    }

    /// Reads no further requests: the server stops. Replies in progress are sent.
    pub(super) fn stop(&mut self) {
        let is_idle = match &self.phase {
            Phase::Handshake { .. } => true,
            Phase::Transmission(requests) => requests.is_at_head(),
        };
        if is_idle {
            self.reading = Reading::Ended;
        }
    }

    /// Handles the input that has arrived, and returns the next action of the driver.
    pub(super) fn poll(&mut self, key: usize, core: &mut Core<S>) -> Result<Next, Closed> {
        if self.reading == Reading::Ended {
            return Ok(Next::Wait);
        }
        if let Some(next) = self.poll_handshake(core)? {
            return Ok(next);
        }
        self.poll_requests(key, core)
    }

    /// The memory for the next bytes of the client, after [`Next::Receive`].
    pub(super) fn memory(&mut self) -> &mut [u8] {
        match &mut self.phase {
            Phase::Handshake { input, .. } => {
                let filled = input.len();
                input.resize(filled + HANDSHAKE_BYTES, 0);
                &mut input[filled..]
            }
            Phase::Transmission(requests) => requests.memory(),
        }
    }

    /// `count` bytes have arrived in the memory. `is_plain`: fewer bytes than it has room for show that the socket is
    /// empty.
    pub(super) fn handle_received(&mut self, count: usize, is_plain: bool) {
        self.moved += count as u64;
        match &mut self.phase {
            Phase::Handshake { input, progress, .. } => {
                input.truncate(input.len() - HANDSHAKE_BYTES + count);
                *progress = None;
            }
            Phase::Transmission(requests) => requests.handle_received(count, is_plain),
        }
    }

    /// No bytes have arrived.
    pub(super) fn handle_drained(&mut self) {
        if let Phase::Handshake { input, .. } = &mut self.phase {
            input.truncate(input.len() - HANDSHAKE_BYTES);
        }
        self.reading = Reading::Drained;
    }

    /// All further bytes are encrypted.
    pub(super) fn handle_tls_started(&mut self) {
        if let Phase::Handshake { handshake, progress, .. } = &mut self.phase {
            handshake.tls_started();
            *progress = None;
        }
    }

    /// Whether bytes of [`Serving::output`] are left to send.
    pub(super) fn has_replies(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// The next bytes to send.
    pub(super) fn output(&self) -> Slices<'_> {
        self.outbox.slices()
    }

    /// The first `count` bytes of the output are sent.
    pub(super) fn handle_sent(&mut self, count: usize) {
        self.moved += count as u64;
        self.outbox.handle_sent(count);
    }

    /// Whether encrypted bytes wait for the socket, after `sent` of earlier ones were sent.
    pub(super) fn handle_backlog(&mut self, sent: usize, has_backlog: bool) {
        self.moved += sent as u64;
        self.has_backlog = has_backlog;
    }

    /// The state after all bytes that could be sent are sent: the time of the client runs from now on, or ends.
    pub(super) fn update_pace(&mut self, now: Instant) {
        self.pace.update(self.moved, self.waits_for_client(), now);
    }

    /// Bytes of replies without data, and parked buffers.
    #[cfg(feature = "sim")]
    pub(super) fn held(&self) -> (usize, usize) {
        self.outbox.held()
    }

    /// Appends the reply of a transfer, as far as it is complete.
    pub(super) fn reply(&mut self, transfer: usize, core: &mut Core<S>) -> Result<(), Closed> {
        match core.transfer(transfer).reply(&mut self.outbox) {
            // The reply has freed places for further pieces, perhaps all of them.
            Progress::Waits => core.submit(transfer),
            Progress::Replied => {
                core.finish(transfer);
                self.in_flight -= 1;
                self.is_alone = false;
            }
            Progress::Broken => {
                return Err(Closed::Error("a read failed after the first byte of a simple reply".to_owned()));
            }
        }
        Ok(())
    }

    /// The next action in the negotiation; `None`: it has ended.
    fn poll_handshake(&mut self, core: &mut Core<S>) -> Result<Option<Next>, Closed> {
        let Phase::Handshake { handshake, input, progress: handled } = &mut self.phase else {
            return Ok(None);
        };
        loop {
            let Some(progress) = handled else {
                let progress = handshake.handle_input(input);
                self.outbox.push_text(handshake.take_output());
                // The last reply waits until the client has its place among the others.
                if let Ok(ServerProgress::Transmission(session)) = progress {
                    let input = Input::new(input);
                    self.start_transmission(session, input, core)?;
                    return Ok(None);
                }
                *handled = Some(progress);
                return Ok(Some(Next::Send));
            };
            let has_replies = !self.outbox.is_empty();
            match progress.clone().map_err(|error| Closed::Error(error.to_string()))? {
                ServerProgress::Disconnect => {
                    self.reading = Reading::Ended;
                    return Ok(Some(Next::Wait));
                }
                ServerProgress::StartTls if !has_replies => return Ok(Some(Next::StartTls)),
                ServerProgress::SendOutput if !has_replies && !self.has_backlog => *handled = None,
                ServerProgress::StartTls | ServerProgress::SendOutput => {
                    self.reading = Reading::Stalled;
                    return Ok(Some(Next::Wait));
                }
                ServerProgress::NeedInput => return Ok(Some(Next::Receive)),
                ServerProgress::Transmission(_) => return Ok(None),
            }
        }
    }

    fn start_transmission(
        &mut self,
        session: Session,
        input: Input,
        core: &mut Core<S>,
    ) -> Result<(), Closed> {
        core.open(session.export).map_err(Closed::Error)?;
        self.phase = Phase::Transmission(Requests::new(session, self.number, input, core));
        Ok(())
    }

    fn poll_requests(&mut self, key: usize, core: &mut Core<S>) -> Result<Next, Closed> {
        loop {
            let Phase::Transmission(requests) = &mut self.phase else { return Ok(Next::Wait) };
            if requests.is_at_head()
                && (self.in_flight >= IN_FLIGHT_MAX || self.is_alone || self.outbox.is_full())
            {
                self.reading = Reading::Stalled;
                return Ok(Next::Wait);
            }
            let step = requests.step(key, self.in_flight, core, &mut self.outbox);
            match step.map_err(|error| Closed::Error(error.to_string()))? {
                Step::Handled => {}
                Step::Started { is_alone } => {
                    self.in_flight += 1;
                    self.is_alone = is_alone;
                }
                Step::Written(transfer) => {
                    // After an error, the last piece causes no I/O whose completion would send the reply.
                    if core.transfer(transfer).is_idle() {
                        self.reply(transfer, core)?;
                    }
                }
                Step::NeedsInput => {
                    if requests.may_receive() {
                        return Ok(Next::Receive);
                    }
                    self.reading = Reading::Drained;
                    return Ok(Next::Wait);
                }
                Step::Stalls => {
                    self.reading = Reading::Stalled;
                    return Ok(Next::Wait);
                }
                Step::Disconnects => {
                    self.reading = Reading::Ended;
                    return Ok(Next::Wait);
                }
            }
        }
    }
}
