//! One client: negotiation, then requests. It queues I/O in [`Core`] and replies in its [`Outbox`].

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use iopath::{Advice, PoolBuf};

use super::backing::PIECE;
use super::core::Core;
use super::encryption::ServeTls;
use super::input::Input;
use super::outbox::Outbox;
use super::pace::Pace;
use super::quota::{Hold, Quota};
use super::status;
use super::stream::Stream;
use super::transfer::{Progress, Transfer};
use super::zeroes::Zeroes;
use crate::errno::Errno;
use crate::reply::{ReplyFormat, ReplyWriter};
use crate::server::{Operation, ServerHandshake, ServerProgress, ServerRequests, Session};

/// Requests of one connection that are executed at the same time. Further requests wait in the socket.
const IN_FLIGHT_MAX: u32 = 64;

/// Longest read that is sent as one chunk if the client asks for that.
const ONE_CHUNK_MAX: u32 = PIECE as u32;

/// Reason for the end of a connection.
#[derive(Debug)]
pub(super) enum Closed {
    /// The client ended it.
    ByClient,
    /// The client violated the protocol, or the socket failed.
    Error(String),
}

impl From<io::Error> for Closed {
    fn from(error: io::Error) -> Self {
        Self::Error(error.to_string())
    }
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

#[derive(Debug)]
enum Phase {
    Handshake {
        handshake: ServerHandshake,
        input: Vec<u8>,
        /// TLS starts when the reply to the client's request for it is sent.
        starts_tls: bool,
    },
    Transmission(Active),
}

/// The next bytes of a client.
#[derive(Debug)]
enum Receive {
    /// The head of a request.
    Head,
    /// Data of a write: the transfer, and a buffer once there is one.
    Data { transfer: usize, buffer: Option<(Memory, Hold)>, filled: usize },
    /// Data of a refused write, and the reply to it.
    Skipped { left: u64, reply: Vec<u8> },
}

/// Memory for the data of a write.
#[derive(Debug)]
enum Memory {
    Buffer(PoolBuf),
    /// A copy of a buffer that other connections needed.
    Parked(Box<[u8]>),
}

impl Memory {
    fn bytes(&mut self) -> &mut [u8] {
        match self {
            Self::Buffer(buffer) => buffer,
            Self::Parked(bytes) => bytes,
        }
    }
}

#[derive(Debug)]
struct Active {
    export: usize,
    requests: ServerRequests,
    /// The connection, in the request log.
    stream: iopath::Stream,
    writer: ReplyWriter,
    input: Input,
    receive: Receive,
    quota: Quota,
    /// Buffers of writes have a quota of their own: a client may send a write before it reads its replies.
    write_quota: Quota,
}

/// One client.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) stream: Stream,
    phase: Phase,
    pub(super) outbox: Outbox,
    /// Transfers without a complete reply.
    in_flight: u32,
    /// The transfer in flight has a simple reply in several pieces: no byte of another reply may come between them.
    is_alone: bool,
    pub(super) reading: Reading,
    pace: Pace,
    accepted: Instant,
}

impl Connection {
    pub(super) fn new(stream: Stream, core: &Core, now: Instant) -> io::Result<Self> {
        stream.prepare()?;
        let mut handshake =
            ServerHandshake::new(Arc::clone(&core.exports), ServeTls::rule(core.tls.as_ref()));
        let mut outbox = Outbox::default();
        outbox.push_text(handshake.take_output());
        let phase = Phase::Handshake { handshake, input: Vec::new(), starts_tls: false };
        let reading = Reading::Drained;
        Ok(Self {
            stream,
            phase,
            outbox,
            in_flight: 0,
            is_alone: false,
            reading,
            pace: Pace::new(core.patience, core.rate_min, now),
            accepted: now,
        })
    }

    /// Whether replies, or encrypted bytes of them, wait for the socket.
    pub(super) fn has_output(&self) -> bool {
        !self.outbox.is_empty() || self.stream.has_output()
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
    pub(super) fn park(&mut self, export: usize, count: u32, core: &mut Core) -> u32 {
        let waits = self.waits_for_client();
        match &mut self.phase {
            Phase::Transmission(active) if waits && active.export == export => {
                u32::from(active.park(core)) + self.outbox.park(count)
            }
            _ => 0,
        }
    }

    /// Whether the connection waits for its client, so that a silent client can be disconnected.
    fn waits_for_client(&self) -> bool {
        let is_within_message = match &self.phase {
            Phase::Handshake { .. } => true,
            Phase::Transmission(active) => {
                !matches!(active.receive, Receive::Head) || !active.input.bytes().is_empty()
            }
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
            Phase::Transmission(active) => matches!(active.receive, Receive::Head),
        };
        if is_idle {
            self.reading = Reading::Ended;
        }
    }

    /// Handles the input that has arrived.
    pub(super) fn handle_readable(&mut self, key: usize, core: &mut Core) -> Result<(), Closed> {
        if self.reading == Reading::Ended {
            return Ok(());
        }
        if let Phase::Handshake { .. } = self.phase {
            self.handle_handshake(core)?;
        }
        if let Phase::Transmission(_) = self.phase {
            self.handle_requests(key, core)?;
        }
        Ok(())
    }

    /// Sends queued replies. Returns whether the socket accepted any byte.
    pub(super) fn send(&mut self, now: Instant) -> Result<bool, Closed> {
        let has_sent = self.outbox.send(&mut self.stream)? > 0;
        self.pace.update(self.stream.moved(), self.waits_for_client(), now);
        Ok(has_sent)
    }

    /// Appends the reply of a transfer, as far as it is complete.
    pub(super) fn reply(&mut self, transfer: usize, core: &mut Core) -> Result<(), Closed> {
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

    fn handle_handshake(&mut self, core: &mut Core) -> Result<(), Closed> {
        let Phase::Handshake { handshake, input, starts_tls } = &mut self.phase else { return Ok(()) };
        let session = loop {
            if *starts_tls {
                self.outbox.send(&mut self.stream)?;
                if !self.outbox.is_empty() {
                    self.reading = Reading::Stalled;
                    return Ok(());
                }
                let tls =
                    core.tls.as_ref().ok_or_else(|| Closed::Error("the server has no certificate".into()))?;
                self.stream.start_tls(&tls.server)?;
                handshake.tls_started();
                *starts_tls = false;
            }
            let progress = handshake.handle_input(input);
            self.outbox.push_text(handshake.take_output());
            // The last reply waits until the client has its place among the others.
            if let Ok(ServerProgress::Transmission(session)) = progress {
                break session;
            }
            self.outbox.send(&mut self.stream)?;
            match progress.map_err(|error| Closed::Error(error.to_string()))? {
                ServerProgress::Transmission(session) => break session,
                ServerProgress::Disconnect => {
                    self.reading = Reading::Ended;
                    return Ok(());
                }
                ServerProgress::StartTls => *starts_tls = true,
                ServerProgress::SendOutput if !self.outbox.is_empty() || self.stream.has_output() => {
                    self.reading = Reading::Stalled;
                    return Ok(());
                }
                ServerProgress::SendOutput => {}
                ServerProgress::NeedInput => {
                    self.reading = Reading::Drained;
                    let mut buffer = [0; 4096];
                    match self.stream.receive(&mut buffer)? {
                        None => return Ok(()),
                        Some(0) => return Err(Closed::ByClient),
                        Some(count) => input.extend_from_slice(&buffer[..count]),
                    }
                }
            }
        };
        let input = Input::new(input);
        self.start_transmission(session, input, core)
    }

    fn start_transmission(&mut self, session: Session, input: Input, core: &mut Core) -> Result<(), Closed> {
        core.open(session.export).map_err(Closed::Error)?;
        self.phase = Phase::Transmission(Active {
            export: session.export,
            requests: ServerRequests::new(session, &core.exports[session.export]),
            stream: iopath::Stream(self.stream.number),
            writer: ReplyWriter::new(session.format),
            input,
            receive: Receive::Head,
            quota: Quota::default(),
            write_quota: Quota::default(),
        });
        Ok(())
    }

    fn handle_requests(&mut self, key: usize, core: &mut Core) -> Result<(), Closed> {
        let Phase::Transmission(active) = &mut self.phase else { return Ok(()) };
        loop {
            let step = match &mut active.receive {
                Receive::Head => {
                    if self.in_flight >= IN_FLIGHT_MAX || self.is_alone || self.outbox.is_full() {
                        self.reading = Reading::Stalled;
                        return Ok(());
                    }
                    active.handle_head(key, self.in_flight, core, &mut self.outbox)?
                }
                Receive::Data { .. } => active.receive_data(core, &mut self.stream)?,
                Receive::Skipped { .. } => active.skip(&mut self.outbox),
            };
            match step {
                Step::Handled => {}
                Step::Started { is_alone } => {
                    self.in_flight += 1;
                    self.is_alone = is_alone;
                }
                Step::Written(transfer) => {
                    // After an error, the last piece causes no I/O whose completion would send the reply.
                    if core.transfer(transfer).is_idle() {
                        self.reply(transfer, core)?;
                        return self.handle_requests(key, core);
                    }
                }
                Step::NeedsInput => match active.input.receive(&mut self.stream)? {
                    None => {
                        self.reading = Reading::Drained;
                        return Ok(());
                    }
                    Some(0) => return Err(Closed::ByClient),
                    Some(_) => {}
                },
                Step::WouldBlock => {
                    self.reading = Reading::Drained;
                    return Ok(());
                }
                Step::Stalls => {
                    self.reading = Reading::Stalled;
                    return Ok(());
                }
                Step::Disconnects => {
                    self.reading = Reading::Ended;
                    return Ok(());
                }
            }
        }
    }
}

/// A result of one step of the input.
enum Step {
    Handled,
    /// A transfer has started. If it is alone, no other may start before its end.
    Started {
        is_alone: bool,
    },
    /// All data of this transfer has arrived.
    Written(usize),
    NeedsInput,
    WouldBlock,
    /// It needs a buffer or a completion.
    Stalls,
    Disconnects,
}

impl Active {
    fn handle_head(
        &mut self,
        key: usize,
        in_flight: u32,
        core: &mut Core,
        outbox: &mut Outbox,
    ) -> Result<Step, Closed> {
        let decoded =
            self.requests.decode(self.input.bytes()).map_err(|error| Closed::Error(error.to_string()))?;
        let Some((request, head, payload)) = decoded else { return Ok(Step::NeedsInput) };
        let checked = self.requests.check(&request);
        let is_alone = self.has_reply_in_pieces(&checked);
        if is_alone && in_flight > 0 {
            return Ok(Step::Stalls);
        }
        if matches!(checked, Ok(Operation::BlockStatus { .. })) && !core.turns.take(key) {
            return Ok(Step::Stalls);
        }
        self.input.consume(head);
        let (cookie, offset) = (request.cookie, request.offset);
        let mut zeroes = None;
        let operation = match checked {
            Ok(Operation::Disconnect) => return Ok(Step::Disconnects),
            Ok(Operation::Read { in_one_chunk: true, length, .. }) if length > ONE_CHUNK_MAX => {
                Err((Errno::OVERFLOW, "too long for one chunk of data"))
            }
            Ok(operation @ Operation::WriteZeroes { offset, length, no_hole, must_be_fast, .. }) => {
                zeroes =
                    Zeroes { offset, length, no_hole, must_be_fast }.io(core.backing(self.export).volume());
                let refusal = (Errno::NOT_SUPPORTED, "zeroing this range is not faster than a write");
                zeroes.as_ref().map(|_| operation).ok_or(refusal)
            }
            other => other,
        };
        match operation {
            Err((error, reason)) => {
                let reply = self.writer.error(cookie, offset, error, reason);
                if payload > 0 {
                    self.receive = Receive::Skipped { left: payload, reply };
                } else {
                    outbox.push_text(reply);
                }
            }
            Ok(Operation::Cache { offset, length }) => {
                // A hint: an error of the device appears at the read that follows.
                let _ = core.backing(self.export).volume().advise(offset, length, Advice::WillNeed);
                outbox.push_head(self.writer.done(cookie, offset));
            }
            Ok(Operation::BlockStatus { offset, length, only_one }) => {
                let volume = core.backing(self.export).volume();
                outbox.push_text(match status::extents(volume, offset, length, only_one) {
                    Ok(extents) => self.writer.block_status(cookie, offset, &extents),
                    Err(error) => self.writer.error(cookie, offset, Errno::IO, &error),
                });
            }
            Ok(operation) => {
                let transfer = Transfer::new(&operation, self.requests.format(), cookie, self.stream, zeroes);
                let needs_data = transfer.needs_data() && payload > 0;
                let transfer = core.start(transfer, key, self.export, self.quota.clone());
                if needs_data {
                    self.receive = Receive::Data { transfer, buffer: None, filled: 0 };
                }
                return Ok(Step::Started { is_alone });
            }
        }
        Ok(Step::Handled)
    }

    /// Whether the reply is a simple one that is sent in pieces. It has one head, so its bytes must follow each other.
    fn has_reply_in_pieces(&self, operation: &Result<Operation, (Errno, &'static str)>) -> bool {
        self.requests.format() == ReplyFormat::Simple
            && matches!(operation, Ok(Operation::Read { length, .. }) if *length > PIECE as u32)
    }

    /// Moves data of a write into a buffer: first what has arrived, then directly from the socket.
    fn receive_data(&mut self, core: &mut Core, stream: &mut Stream) -> Result<Step, Closed> {
        let Receive::Data { transfer, buffer, filled } = &mut self.receive else { return Ok(Step::Handled) };
        let key = *transfer;
        let length = core.transfer(key).piece_len();
        if buffer.is_none() {
            let free = core.buffer(self.export, &self.write_quota);
            *buffer = free.map(|(buffer, hold)| (Memory::Buffer(buffer), hold));
        }
        let Some((memory, _)) = buffer else { return Ok(Step::Stalls) };
        *filled += self.input.take_into(&mut memory.bytes()[*filled..length]);
        if *filled < length {
            match stream.receive(&mut memory.bytes()[*filled..length])? {
                None => return Ok(Step::WouldBlock),
                Some(0) => return Err(Closed::ByClient),
                Some(count) => *filled += count,
            }
        }
        if *filled == length {
            // Requests without a buffer may have taken the room since the write got its buffer.
            if !core.backing(self.export).has_room() {
                return Ok(Step::Stalls);
            }
            if let Memory::Parked(bytes) = memory {
                let Some(mut free) = core.free_buffer(self.export) else { return Ok(Step::Stalls) };
                free[..length].copy_from_slice(&bytes[..length]);
                *memory = Memory::Buffer(free);
            }
            if let Some((Memory::Buffer(memory), hold)) = buffer.take() {
                core.write(key, (memory, hold));
            }
            *filled = 0;
            if !core.transfer(key).needs_data() {
                self.receive = Receive::Head;
                return Ok(Step::Written(key));
            }
        }
        Ok(Step::Handled)
    }

    /// Frees the buffer of a write whose data has not arrived.
    fn park(&mut self, core: &mut Core) -> bool {
        let Receive::Data { transfer, buffer, filled } = &mut self.receive else { return false };
        let Some((memory @ Memory::Buffer(_), _)) = buffer else { return false };
        if *filled == 0 {
            *buffer = None;
        } else {
            let length = core.transfer(*transfer).piece_len();
            *memory = Memory::Parked(memory.bytes()[..length].into());
        }
        true
    }

    fn skip(&mut self, outbox: &mut Outbox) -> Step {
        let Receive::Skipped { left, reply } = &mut self.receive else { return Step::Handled };
        let count = self.input.bytes().len().min(usize::try_from(*left).unwrap_or(usize::MAX));
        self.input.consume(count);
        *left -= count as u64;
        if *left > 0 {
            return Step::NeedsInput;
        }
        outbox.push_text(std::mem::take(reply));
        self.receive = Receive::Head;
        Step::Handled
    }
}
