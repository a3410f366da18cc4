//! The requests of one client, from its bytes: starts transfers, answers what needs none, and moves the data of writes
//! into buffers. Replies and the negotiation: `serving.rs`.

use super::core::Core;
use super::input::Input;
use super::outbox::Outbox;
use super::quota::{Hold, Quota};
use super::status;
use super::storage::{PIECE, Storage};
use super::transfer::Transfer;
use super::zeroes::Zeroes;
use crate::errno::Errno;
use crate::reply::{ReplyFormat, ReplyWriter};
use crate::server::{Operation, RequestError, ServerRequests, Session};

/// Longest read that is sent as one chunk if the client asks for that.
const ONE_CHUNK_MAX: u32 = PIECE as u32;

#[derive(Debug)]
pub(super) struct Requests<S: Storage> {
    pub(super) export: usize,
    rules: ServerRequests,
    /// The connection, in the request log.
    stream: iopath::Stream,
    writer: ReplyWriter,
    input: Input,
    receive: Receive<S>,
    quota: Quota,
    /// Buffers of writes have a quota of their own: a client may send a write before it reads its replies.
    write_quota: Quota,
}

/// A result of one step of the input.
pub(super) enum Step {
    Handled,
    /// A transfer has started. If it is alone, no other may start before its end.
    Started {
        is_alone: bool,
    },
    /// All data of this transfer has arrived.
    Written(usize),
    /// It needs further bytes: see [`Requests::memory`].
    NeedsInput,
    /// It needs a buffer or a completion.
    Stalls,
    Disconnects,
}

impl<S: Storage> Requests<S> {
    /// The requests of a session on connection `number`, of which `input` has arrived.
    pub(super) fn new(session: Session, number: u32, input: Input, core: &Core<S>) -> Self {
        Self {
            export: session.export,
            rules: ServerRequests::new(session, &core.exports[session.export]),
            stream: iopath::Stream(number),
            writer: ReplyWriter::new(session.format),
            input,
            receive: Receive::Head,
            quota: Quota::default(),
            write_quota: Quota::default(),
        }
    }

    /// Whether the next bytes start a request.
    pub(super) fn is_at_head(&self) -> bool {
        matches!(self.receive, Receive::Head)
    }

    /// Whether a request has arrived in part.
    pub(super) fn is_within_message(&self) -> bool {
        !self.is_at_head() || !self.input.bytes().is_empty()
    }

    /// Handles a step of the input. With `key`, the connection, `in_flight` of whose transfers have no complete reply.
    pub(super) fn step(
        &mut self,
        key: usize,
        in_flight: u32,
        core: &mut Core<S>,
        outbox: &mut Outbox<S>,
    ) -> Result<Step, RequestError> {
        match self.receive {
            Receive::Head => self.handle_head(key, in_flight, core, outbox),
            Receive::Data { .. } => Ok(self.take_data(core)),
            Receive::Skipped { .. } => Ok(self.skip(outbox)),
        }
    }

    /// The memory for the next bytes: that of a write, or the input.
    pub(super) fn memory(&mut self) -> &mut [u8] {
        match &mut self.receive {
            Receive::Data { buffer: Some((memory, _)), filled, length, .. } => {
                &mut memory.bytes()[*filled..*length]
            }
            _ => self.input.memory(),
        }
    }

    /// `count` bytes have arrived in the memory.
    pub(super) fn handle_received(&mut self, count: usize, is_plain: bool) {
        match &mut self.receive {
            Receive::Data { buffer: Some(_), filled, .. } => *filled += count,
            _ => self.input.handle_received(count, is_plain),
        }
    }

    fn handle_head(
        &mut self,
        key: usize,
        in_flight: u32,
        core: &mut Core<S>,
        outbox: &mut Outbox<S>,
    ) -> Result<Step, RequestError> {
        let Some((request, head, payload)) = self.rules.decode(self.input.bytes())? else {
            return Ok(Step::NeedsInput);
        };
        let checked = self.rules.check(&request);
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
                    Zeroes { offset, length, no_hole, must_be_fast }.io(core.backing(self.export).zeroing());
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
                core.backing(self.export).prefetch(offset, length);
                outbox.push_head(self.writer.done(cookie, offset));
            }
            Ok(Operation::BlockStatus { offset, length, only_one }) => {
                let storage = core.backing(self.export);
                outbox.push_text(match status::extents(storage, offset, length, only_one) {
                    Ok(extents) => self.writer.block_status(cookie, offset, &extents),
                    Err(error) => self.writer.error(cookie, offset, Errno::IO, &error),
                });
            }
            Ok(operation) => {
                let transfer = Transfer::new(&operation, self.rules.format(), cookie, self.stream, zeroes);
                let needs_data = transfer.needs_data() && payload > 0;
                let transfer = core.start(transfer, key, self.export, self.quota.clone());
                if needs_data {
                    self.receive = Receive::Data { transfer, buffer: None, filled: 0, length: 0 };
                }
                return Ok(Step::Started { is_alone });
            }
        }
        Ok(Step::Handled)
    }

    /// Whether the reply is a simple one that is sent in pieces. It has one head, so its bytes must follow each other.
    fn has_reply_in_pieces(&self, operation: &Result<Operation, (Errno, &'static str)>) -> bool {
        self.rules.format() == ReplyFormat::Simple
            && matches!(operation, Ok(Operation::Read { length, .. }) if *length > PIECE as u32)
    }

    /// Whether the socket may have bytes for the memory. Data of a write is received without the input buffer.
    pub(super) fn may_receive(&mut self) -> bool {
        matches!(self.receive, Receive::Data { .. }) || self.input.may_receive()
    }

    /// Moves data of a write that has arrived into a buffer. The rest arrives there directly.
    fn take_data(&mut self, core: &mut Core<S>) -> Step {
        let Receive::Data { transfer, buffer, filled, length } = &mut self.receive else {
            return Step::Handled;
        };
        let key = *transfer;
        if buffer.is_none() {
            let free = core.buffer(self.export, &self.write_quota);
            *buffer = free.map(|(buffer, hold)| (Memory::Buffer(buffer), hold));
            *length = core.transfer(key).piece_len();
        }
        let Some((memory, _)) = buffer else { return Step::Stalls };
        let length = *length;
        *filled += self.input.take_into(&mut memory.bytes()[*filled..length]);
        if *filled < length {
            return Step::NeedsInput;
        }
        // Requests without a buffer may have taken the room since the write got its buffer.
        if !core.backing(self.export).has_room() {
            return Step::Stalls;
        }
        if let Memory::Parked(bytes) = memory {
            let Some(mut free) = core.free_buffer(self.export) else { return Step::Stalls };
            free[..length].copy_from_slice(&bytes[..length]);
            *memory = Memory::Buffer(free);
        }
        if let Some((Memory::Buffer(memory), hold)) = buffer.take() {
            core.write(key, (memory, hold));
        }
        *filled = 0;
        if !core.transfer(key).needs_data() {
            self.receive = Receive::Head;
            return Step::Written(key);
        }
        Step::Handled
    }

    /// Frees the buffer of a write whose data has not arrived.
    pub(super) fn park(&mut self) -> bool {
        let Receive::Data { buffer, filled, length, .. } = &mut self.receive else { return false };
        let Some((memory @ Memory::Buffer(_), _)) = buffer else { return false };
        if *filled == 0 {
            *buffer = None;
        } else {
            *memory = Memory::Parked(memory.bytes()[..*length].into());
        }
        true
    }

    fn skip(&mut self, outbox: &mut Outbox<S>) -> Step {
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

/// The next bytes of a client.
#[derive(Debug)]
enum Receive<S: Storage> {
    /// The head of a request.
    Head,
    /// Data of a write: the transfer, a buffer once there is one, and the bytes that belong into it.
    Data { transfer: usize, buffer: Option<(Memory<S>, Hold)>, filled: usize, length: usize },
    /// Data of a refused write, and the reply to it.
    Skipped { left: u64, reply: Vec<u8> },
}

/// Memory for the data of a write.
#[derive(Debug)]
enum Memory<S: Storage> {
    Buffer(S::Buffer),
    /// A copy of a buffer that other connections needed.
    Parked(Box<[u8]>),
}

impl<S: Storage> Memory<S> {
    fn bytes(&mut self) -> &mut [u8] {
        match self {
            Self::Buffer(buffer) => buffer,
            Self::Parked(bytes) => bytes,
        }
    }
}
