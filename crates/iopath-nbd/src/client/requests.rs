//! Requests of a client and their replies. Data does not pass through it: [`Expected::Data`] states the request and the
//! position in its memory at which the next bytes of the connection belong.

use std::collections::VecDeque;

use arrayvec::ArrayVec;
use thiserror::Error;

use crate::client::slots::{ClientOperation, Pending, Slots};
use crate::client::{ClientError, Negotiated};
use crate::errno::Errno;
use crate::meta::{BlockExtent, BlockState};
use crate::protocol::{
    CommandFlags, EXTENDED_REPLY_MAGIC, SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC, TransmissionFlags, chunk,
};
use crate::reply::ReplyFormat;
use crate::request::{Command, Request};
use crate::wire::Fields;

/// Longest payload of a chunk that is not data, in bytes: a block status of 65,536 extents, or the text of an error.
const CONTROL_MAX: u64 = 1 << 20;

/// The bytes of a request, without the data of a write.
pub type RequestHead = ArrayVec<u8, 32>;

/// The bytes that the connection carries next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Bytes for [`ClientRequests::handle_input`].
    Control,
    /// Data of a read.
    Data {
        /// The caller's name of the request.
        key: u64,
        /// Position in the memory of the request.
        start: u64,
        /// Bytes that are still to arrive.
        length: u32,
    },
}

/// A result for the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientEvent {
    /// A part of a read is zeroes: the caller fills the memory.
    Zeroes {
        /// The caller's name of the request.
        key: u64,
        /// Position in the memory of the request.
        start: u64,
        /// Bytes.
        length: u64,
    },
    /// The states of the range of a block status request, from its offset. They may end before the range does.
    Extents {
        /// The caller's name of the request.
        key: u64,
        /// States of consecutive ranges.
        extents: Vec<BlockExtent>,
    },
    /// The request is complete. On an error the memory of a read has arbitrary bytes.
    Completed {
        /// The caller's name of the request.
        key: u64,
        /// The error of the server.
        result: Result<(), Errno>,
    },
}

/// A request that cannot be sent.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum SubmitError {
    /// Try again after a completion.
    #[error("all {0} requests of the connection are in flight")]
    Full(usize),
    /// The server did not offer it.
    #[error("the server does not offer {0}")]
    NotOffered(&'static str),
    /// The server would refuse it.
    #[error("bytes {offset} to {offset} + {length} lie outside of the export of {size} bytes, or are none")]
    Range {
        /// Byte offset.
        offset: u64,
        /// Bytes.
        length: u64,
        /// Bytes of the export.
        size: u64,
    },
    /// The server may close the connection.
    #[error("{length} bytes exceed the maximum of the server, {max} bytes")]
    TooLong {
        /// Bytes.
        length: u64,
        /// Bytes.
        max: u64,
    },
    /// The server would refuse it.
    #[error(
        "offset {offset} and length {length} must be multiples of {min}, the minimum block size of the server"
    )]
    Unaligned {
        /// Byte offset.
        offset: u64,
        /// Bytes.
        length: u64,
        /// Bytes.
        min: u32,
    },
}

#[derive(Clone, Copy, Debug)]
enum Receive {
    Head,
    Data { cookie: u64, key: u64, start: u64, left: u32, is_last: bool },
}

/// The transmission phase of one connection.
#[derive(Debug)]
pub struct ClientRequests {
    negotiated: Negotiated,
    slots: Slots,
    receive: Receive,
    events: VecDeque<ClientEvent>,
}

impl ClientRequests {
    /// A connection after its negotiation, with at most `in_flight_max` requests in flight.
    #[must_use]
    pub fn new(negotiated: Negotiated, in_flight_max: u32) -> Self {
        Self { negotiated, slots: Slots::new(in_flight_max), receive: Receive::Head, events: VecDeque::new() }
    }

    /// The bytes to send for a request. The data of a write follows them. `key` is the caller's name of the request and
    /// comes back in its events.
    ///
    /// # Errors
    ///
    /// The request is not sent: too many are in flight, or the server would refuse it.
    pub fn submit(&mut self, operation: ClientOperation, key: u64) -> Result<RequestHead, SubmitError> {
        let (command, mut flags) = self.check(&operation)?;
        let full = SubmitError::Full(self.slots.in_flight());
        let cookie = self.slots.insert(key, operation).ok_or(full)?;
        let (offset, length) = operation.range();
        let format = self.negotiated.format;
        if command == Command::Write && format == ReplyFormat::Extended {
            flags |= CommandFlags::PAYLOAD_LEN;
        }
        let mut head = RequestHead::new();
        Request { flags, command, cookie, offset, length }.encode(format, &mut head);
        Ok(head)
    }

    /// The bytes that end the connection. The server replies to the requests in flight first, and not to this one.
    #[must_use]
    pub fn disconnect(&self) -> RequestHead {
        let mut head = RequestHead::new();
        let flags = CommandFlags::empty();
        let request = Request { flags, command: Command::Disconnect, cookie: 0, offset: 0, length: 0 };
        request.encode(self.negotiated.format, &mut head);
        head
    }

    /// The bytes that the connection carries next.
    #[must_use]
    pub fn expected(&self) -> Expected {
        match self.receive {
            Receive::Head => Expected::Control,
            Receive::Data { key, start, left, .. } => Expected::Data { key, start, length: left },
        }
    }

    /// Handles the replies in `input`, up to the next data, and returns the number of bytes used. The caller keeps the
    /// others, at most about 1 MiB of an incomplete reply.
    ///
    /// # Errors
    ///
    /// The server violates the protocol. Close the connection: [`ClientRequests::in_flight`] names the requests to
    /// send again.
    pub fn handle_input(&mut self, input: &[u8]) -> Result<usize, ClientError> {
        let mut used = 0;
        while let Receive::Head = self.receive {
            match self.poll_reply(&input[used..])? {
                0 => break,
                count => used += count,
            }
        }
        Ok(used)
    }

    /// Notes that `count` bytes of data have arrived at the position that [`ClientRequests::expected`] stated.
    ///
    /// # Errors
    ///
    /// The server ended a read before all of its data.
    ///
    /// # Panics
    ///
    /// If fewer bytes are expected.
    pub fn handle_data(&mut self, count: u32) -> Result<(), ClientError> {
        let Receive::Data { cookie, ref mut start, ref mut left, is_last, .. } = self.receive else {
            panic!("no data is expected");
        };
        *left = left.checked_sub(count).expect("at most the expected bytes arrive");
        *start += u64::from(count);
        if *left > 0 {
            return Ok(());
        }
        self.receive = Receive::Head;
        if is_last { self.complete(cookie) } else { Ok(()) }
    }

    /// The next result.
    pub fn poll_event(&mut self) -> Option<ClientEvent> {
        self.events.pop_front()
    }

    /// The keys and operations of requests without a reply, for a caller that connects again. The order is arbitrary.
    pub fn in_flight(&self) -> impl Iterator<Item = (u64, ClientOperation)> {
        self.slots.iter().map(|pending| (pending.key, pending.operation))
    }

    /// The number of requests without a reply.
    #[must_use]
    pub fn in_flight_count(&self) -> usize {
        self.slots.in_flight()
    }

    fn check(&self, operation: &ClientOperation) -> Result<(Command, CommandFlags), SubmitError> {
        use ClientOperation as Op;
        use TransmissionFlags as Offered;
        let flag = |is_set: bool, flag| if is_set { flag } else { CommandFlags::empty() };
        let (command, flags, needed, name) = match *operation {
            Op::Read { .. } => (Command::Read, CommandFlags::empty(), Offered::empty(), "reads"),
            Op::Write { fua, .. } => (
                Command::Write,
                flag(fua, CommandFlags::FUA),
                Offered::empty(),
                "writes: the export is read-only",
            ),
            Op::Flush => (Command::Flush, CommandFlags::empty(), Offered::SEND_FLUSH, "flushes"),
            Op::Trim { fua, .. } => {
                (Command::Trim, flag(fua, CommandFlags::FUA), Offered::SEND_TRIM, "trims")
            }
            Op::WriteZeroes { fua, no_hole, .. } => (
                Command::WriteZeroes,
                flag(fua, CommandFlags::FUA) | flag(no_hole, CommandFlags::NO_HOLE),
                Offered::SEND_WRITE_ZEROES,
                "writes of zeroes",
            ),
            Op::BlockStatus { .. } => {
                (Command::BlockStatus, CommandFlags::empty(), Offered::empty(), "block status")
            }
        };
        let offered = self.negotiated.flags;
        let is_refused = !offered.contains(needed)
            || (command.is_modifying() && offered.contains(Offered::READ_ONLY))
            || (command == Command::BlockStatus && self.negotiated.allocation.is_none());
        if is_refused {
            return Err(SubmitError::NotOffered(name));
        }
        if flags.contains(CommandFlags::FUA) && !offered.contains(Offered::SEND_FUA) {
            return Err(SubmitError::NotOffered("forced unit access (FUA); send a flush after the write"));
        }
        if command != Command::Flush {
            self.check_range(operation, command)?;
        }
        Ok((command, flags))
    }

    fn check_range(&self, operation: &ClientOperation, command: Command) -> Result<(), SubmitError> {
        let (offset, length) = operation.range();
        let Negotiated { size, block_sizes, format, .. } = self.negotiated;
        let end = offset.checked_add(length).filter(|end| *end <= size);
        let Some(end) = end.filter(|_| length > 0) else {
            return Err(SubmitError::Range { offset, length, size });
        };
        let min = u64::from(block_sizes.min);
        if !offset.is_multiple_of(min) || !(length.is_multiple_of(min) || end == size) {
            return Err(SubmitError::Unaligned { offset, length, min: block_sizes.min });
        }
        let max = match command {
            Command::Read | Command::Write => u64::from(block_sizes.max).min(u64::from(u32::MAX) - 8),
            _ if format == ReplyFormat::Extended => u64::MAX,
            _ => u64::from(u32::MAX),
        };
        if length > max { Err(SubmitError::TooLong { length, max }) } else { Ok(()) }
    }

    /// Handles one reply or chunk, and returns its bytes without its data. Zero: it is incomplete.
    fn poll_reply(&mut self, input: &[u8]) -> Result<usize, ClientError> {
        let mut fields = Fields::new(input);
        let Some(magic) = fields.u32() else { return Ok(0) };
        let format = self.negotiated.format;
        match magic {
            SIMPLE_REPLY_MAGIC if format != ReplyFormat::Extended => self.poll_simple(fields),
            STRUCTURED_REPLY_MAGIC if format == ReplyFormat::Structured => self.poll_chunk(fields, input),
            EXTENDED_REPLY_MAGIC if format == ReplyFormat::Extended => self.poll_chunk(fields, input),
            _ => Err(ClientError::Magic { message: "a reply", found: magic.into() }),
        }
    }

    fn poll_simple(&mut self, mut fields: Fields<'_>) -> Result<usize, ClientError> {
        let (Some(error), Some(cookie)) = (fields.u32(), fields.u64()) else { return Ok(0) };
        let is_structured = self.negotiated.format == ReplyFormat::Structured;
        let pending = self.slots.get_mut(cookie).ok_or(ClientError::UnknownCookie(cookie))?;
        pending.error = Errno::from_code(error);
        match pending.operation {
            ClientOperation::Read { .. } | ClientOperation::BlockStatus { .. } if is_structured => {
                return Err(ClientError::Malformed("a request that needs a structured reply"));
            }
            ClientOperation::Read { length, .. } if pending.error.is_none() => {
                pending.chunks.add(0, length.into());
                let key = pending.key;
                self.receive = Receive::Data { cookie, key, start: 0, left: length, is_last: true };
            }
            _ => self.complete(cookie)?,
        }
        Ok(16)
    }

    fn poll_chunk(&mut self, mut fields: Fields<'_>, input: &[u8]) -> Result<usize, ClientError> {
        let is_extended = self.negotiated.format == ReplyFormat::Extended;
        let (Some(flags), Some(kind), Some(cookie)) = (fields.u16(), fields.u16(), fields.u64()) else {
            return Ok(0);
        };
        let length = if is_extended {
            // The offset repeats that of the request.
            fields.u64().and_then(|_| fields.u64())
        } else {
            fields.u32().map(u64::from)
        };
        let Some(length) = length else { return Ok(0) };
        let head = if is_extended { 32 } else { 20 };
        let is_last = flags & chunk::DONE != 0;
        let pending = self.slots.get_mut(cookie).ok_or(ClientError::UnknownCookie(cookie))?;
        if kind == chunk::OFFSET_DATA {
            let data = length.checked_sub(8).ok_or(ClientError::Malformed("a read"))?;
            let Some(offset) = fields.u64() else { return Ok(0) };
            let start = pending.add_range(offset, data)?;
            let left = u32::try_from(data).expect("the range lies within the request");
            self.receive = Receive::Data { cookie, key: pending.key, start, left, is_last };
            return Ok(head + 8);
        }
        if length > CONTROL_MAX {
            return Err(ClientError::TooLong { message: "a request", length, max: CONTROL_MAX });
        }
        let length = length as usize;
        let Some(payload) = input[head..].get(..length) else { return Ok(0) };
        if let Some(event) = pending.handle_control(kind, payload, is_last, self.negotiated.allocation)? {
            self.events.push_back(event);
        }
        if is_last {
            self.complete(cookie)?;
        }
        Ok(head + length)
    }

    /// On an error the request stays in flight, for a caller that connects again.
    fn complete(&mut self, cookie: u64) -> Result<(), ClientError> {
        let pending = self.slots.get_mut(cookie).expect("the caller found it");
        pending.check_complete()?;
        let Pending { key, chunks, error, extents, .. } = self.slots.remove(cookie);
        let result = error.map_or(Ok(()), Err);
        self.slots.recycle(chunks);
        if result.is_ok() && !extents.is_empty() {
            self.events.push_back(ClientEvent::Extents { key, extents });
        }
        self.events.push_back(ClientEvent::Completed { key, result });
        Ok(())
    }
}

impl Pending {
    /// Adds a part of a read at byte `offset` of the export. Returns its position in the request.
    fn add_range(&mut self, offset: u64, length: u64) -> Result<u64, ClientError> {
        let ClientOperation::Read { offset: first, length: whole } = self.operation else {
            return Err(ClientError::Malformed("a request that has no data"));
        };
        let start = offset.wrapping_sub(first);
        let end = start.saturating_add(length);
        if start >= whole.into() || end > whole.into() || !self.chunks.add(start, end) {
            return Err(ClientError::Range { start, end, length: whole.into() });
        }
        Ok(start)
    }

    /// Without an error of the server, a reply has all bytes of a read, and at least one extent of a block status.
    fn check_complete(&self) -> Result<(), ClientError> {
        match self.operation {
            _ if self.error.is_some() => Ok(()),
            ClientOperation::Read { length, .. } if self.chunks.total() != u64::from(length) => {
                Err(ClientError::Incomplete { received: self.chunks.total(), length: length.into() })
            }
            ClientOperation::BlockStatus { .. } if self.extents.is_empty() => {
                Err(ClientError::Malformed("a block status request"))
            }
            _ => Ok(()),
        }
    }

    /// Handles a chunk without data.
    fn handle_control(
        &mut self,
        kind: u16,
        payload: &[u8],
        is_last: bool,
        allocation: Option<u32>,
    ) -> Result<Option<ClientEvent>, ClientError> {
        let malformed = ClientError::Malformed("a request");
        let mut fields = Fields::new(payload);
        match kind {
            chunk::NONE if payload.is_empty() && is_last => {}
            chunk::OFFSET_HOLE => {
                let (Some(offset), Some(length), true) = (fields.u64(), fields.u32(), fields.is_empty())
                else {
                    return Err(malformed);
                };
                let length = u64::from(length);
                let start = self.add_range(offset, length)?;
                return Ok(Some(ClientEvent::Zeroes { key: self.key, start, length }));
            }
            chunk::BLOCK_STATUS | chunk::BLOCK_STATUS_EXTENDED => {
                self.handle_block_status(kind == chunk::BLOCK_STATUS_EXTENDED, fields, allocation)?;
            }
            error if error & chunk::ERROR_BIT != 0 => {
                let code = fields.u32();
                let text = fields.u16();
                let text = text.and_then(|length| fields.bytes(length.into()));
                let (Some(code), Some(_)) = (code.and_then(Errno::from_code), text) else {
                    return Err(malformed);
                };
                // The first error of a request wins.
                self.error = self.error.or(Some(code));
            }
            _ => return Err(malformed),
        }
        Ok(None)
    }

    fn handle_block_status(
        &mut self,
        is_extended: bool,
        mut fields: Fields<'_>,
        allocation: Option<u32>,
    ) -> Result<(), ClientError> {
        let malformed = ClientError::Malformed("a block status request");
        let ClientOperation::BlockStatus { length: whole, .. } = self.operation else {
            return Err(malformed);
        };
        let context = fields.u32();
        let count = if is_extended { fields.u32() } else { None };
        if context.is_none() || context != allocation || !self.extents.is_empty() {
            return Err(malformed);
        }
        let mut left = whole;
        while !fields.is_empty() {
            let (length, state) = if is_extended {
                (fields.u64(), fields.u64())
            } else {
                (fields.u32().map(u64::from), fields.u32().map(u64::from))
            };
            let (Some(length @ 1..), Some(state)) = (length, state) else { return Err(malformed) };
            // The last extent may exceed the request.
            let within = length.min(left);
            if within > 0 {
                self.extents.push(BlockExtent { length: within, state: BlockState::from_bits_retain(state) });
            }
            left -= within;
        }
        let is_whole = count.is_none_or(|count| count as usize >= self.extents.len());
        if self.extents.is_empty() || !is_whole { Err(malformed) } else { Ok(()) }
    }
}
