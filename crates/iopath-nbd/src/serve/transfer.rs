//! A request in execution: the I/O that it needs, in pieces, and its reply. It has no knowledge of sockets.

use arrayvec::ArrayVec;
use iopath::Stream;

use super::ServeDirection;
use super::outbox::Outbox;
use super::quota::{Hold, Quota};
use super::storage::{Data, Done, Io, PIECE, Storage};
use crate::errno::Errno;
use crate::reply::{ReplyFormat, ReplyWriter};
use crate::server::Operation;

/// Pieces of one read that are in flight or wait for an earlier one.
const WINDOW: usize = 8;

/// Buffers and borrowed parts of the page cache that one connection may hold, if it needs no further buffer.
const CACHED_MAX: u32 = 64;

/// Progress of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// It waits for I/O, for a buffer, or for the data of the client.
    Waits,
    /// The reply is complete.
    Replied,
    /// The reply cannot be completed: simple replies have no errors after their first byte. Close the connection.
    Broken,
}

/// The I/O of a transfer that could be queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Submitted {
    /// All that is possible now.
    All,
    /// The rest waits for a completion, or until the client has read replies.
    NeedsRoom,
    /// The rest waits for a buffer. The connection may hold one more.
    NeedsBuffer,
}

/// A piece of a read.
#[derive(Debug)]
struct Piece<S: Storage> {
    offset: u64,
    length: usize,
    /// The data, once it has arrived.
    data: Option<Data<S>>,
    hold: Hold,
}

#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "most transfers are reads, and a box would be an allocation for each"
)]
enum Kind<S: Storage> {
    Read {
        pieces: ArrayVec<Piece<S>, WINDOW>,
        has_begun: bool,
    },
    Write {
        is_durable: bool,
        holds: Vec<Hold>,
    },
    /// An I/O without data, then possibly a flush.
    Other {
        io: Option<Io<S::Buffer>>,
        then_flush: bool,
    },
}

/// A request in execution.
#[derive(Debug)]
pub(super) struct Transfer<S: Storage> {
    writer: ReplyWriter,
    format: ReplyFormat,
    cookie: u64,
    /// The connection, in the request log.
    stream: Stream,
    kind: Kind<S>,
    start: u64,
    end: u64,
    /// Start of the part of a read that is not submitted, or of a write that has not arrived.
    next: u64,
    in_flight: u32,
    error: Option<(Errno, String)>,
}

impl<S: Storage> Transfer<S> {
    /// A transfer for an operation with I/O, in a connection with replies of `format`. `zeroes` is the I/O of a write
    /// of zeroes.
    pub(super) fn new(
        operation: &Operation,
        format: ReplyFormat,
        cookie: u64,
        stream: Stream,
        zeroes: Option<Io<S::Buffer>>,
    ) -> Self {
        let (kind, start, length) = match *operation {
            Operation::Read { offset, length, .. } => {
                (Kind::Read { pieces: ArrayVec::new(), has_begun: false }, offset, length.into())
            }
            Operation::Write { offset, length, fua } => {
                (Kind::Write { is_durable: fua, holds: Vec::new() }, offset, length.into())
            }
            Operation::Trim { offset, length, fua } => {
                (Kind::Other { io: Some(Io::Discard { offset, length }), then_flush: fua }, offset, 0)
            }
            Operation::WriteZeroes { offset, length, fua, .. } => {
                let io = zeroes.unwrap_or(Io::Zeroes { offset, length });
                (Kind::Other { io: Some(io), then_flush: fua }, offset, 0)
            }
            Operation::Flush
            | Operation::Cache { .. }
            | Operation::BlockStatus { .. }
            | Operation::Disconnect => (Kind::Other { io: Some(Io::Flush), then_flush: false }, 0, 0),
        };
        let writer = ReplyWriter::new(format);
        Self {
            writer,
            format,
            cookie,
            stream,
            kind,
            start,
            end: start + length,
            next: start,
            in_flight: 0,
            error: None,
        }
    }

    /// Length of the next piece of the data of a write.
    pub(super) fn piece_len(&self) -> usize {
        (self.end - self.next).min(PIECE as u64) as usize
    }

    /// Whether the data of a write has not arrived yet.
    pub(super) fn needs_data(&self) -> bool {
        self.next < self.end
    }

    /// Bytes of data of a read or write.
    pub(super) fn data_bytes(&self) -> u64 {
        self.end - self.start
    }

    /// Whether it reads, writes, or neither.
    pub(super) fn direction(&self) -> ServeDirection {
        match self.kind {
            Kind::Read { .. } => ServeDirection::Read,
            Kind::Write { .. } => ServeDirection::Write,
            Kind::Other { .. } => ServeDirection::Other,
        }
    }

    /// Whether no I/O is in flight, so that the transfer can be dropped.
    pub(super) fn is_idle(&self) -> bool {
        self.in_flight == 0
    }

    /// Ends the transfer early: its client is gone.
    pub(super) fn abandon(&mut self) {
        self.next = self.end;
        if let Kind::Other { io, then_flush } = &mut self.kind {
            (*io, *then_flush) = (None, false);
        }
    }

    /// Queues I/O as far as there are buffers and room.
    pub(super) fn submit(
        &mut self,
        backing: &mut S,
        quota: &Quota,
        share: u32,
        token: impl Fn(u32) -> u64,
    ) -> Submitted {
        match &mut self.kind {
            Kind::Read { pieces, .. } => {
                while self.next < self.end && !pieces.is_full() && self.error.is_none() {
                    let (offset, length) = (self.next, (self.end - self.next).min(PIECE as u64) as usize);
                    let token = token(((offset - self.start) / PIECE as u64) as u32);
                    // Cached pages need no buffer.
                    let cached =
                        quota.take(CACHED_MAX).filter(|_| backing.read_cached(offset, length, token));
                    let hold = if let Some(hold) = cached {
                        hold
                    } else {
                        let hold = quota.take(share).filter(|_| backing.has_room());
                        let Some(hold) = hold else { return Submitted::NeedsRoom };
                        let Some(buffer) = backing.buffer() else { return Submitted::NeedsBuffer };
                        backing.queue(Io::Read { buffer, offset, length }, token, self.stream);
                        hold
                    };
                    pieces.push(Piece { offset, length, data: None, hold });
                    self.next += length as u64;
                    self.in_flight += 1;
                }
                Submitted::All
            }
            Kind::Other { io, .. } => {
                if io.is_some() && !backing.has_room() {
                    return Submitted::NeedsRoom;
                }
                if let Some(io) = io.take() {
                    self.in_flight += 1;
                    backing.queue(io, token(0), self.stream);
                }
                Submitted::All
            }
            Kind::Write { .. } => Submitted::All,
        }
    }

    /// Queues the next piece of the data of a write, which is in `buffer`.
    pub(super) fn write(&mut self, (buffer, hold): (S::Buffer, Hold), backing: &mut S, token: u64) {
        let (offset, length) = (self.next, self.piece_len());
        let Kind::Write { is_durable, holds } = &mut self.kind else { panic!("only a write has data") };
        self.next += length as u64;
        // After an error, the rest of the data is received and ignored.
        if self.error.is_none() {
            self.in_flight += 1;
            holds.push(hold);
            let write = Io::Write { buffer, offset, length, is_durable: *is_durable };
            backing.queue(write, token, self.stream);
        }
    }

    /// Notes the completion of piece `number`.
    pub(super) fn handle_done(&mut self, number: u32, done: Done<S>) {
        self.in_flight -= 1;
        let offset = self.start + u64::from(number) * PIECE as u64;
        let mut failure = None;
        if let Kind::Write { holds, .. } = &mut self.kind {
            holds.pop();
        }
        match (&mut self.kind, done.result) {
            (_, Err(error)) => failure = Some(error),
            (Kind::Read { pieces, .. }, Ok(count)) => {
                let piece =
                    pieces.iter_mut().find(|piece| piece.offset == offset).expect("the piece is in flight");
                if count == piece.length {
                    piece.data = done.data;
                } else {
                    let end = offset + count as u64;
                    failure = Some((Errno::IO, format!("the target ended at byte {end}: it was truncated")));
                }
            }
            (Kind::Other { io, then_flush }, Ok(_)) if *then_flush => {
                (*io, *then_flush) = (Some(Io::Flush), false);
            }
            (Kind::Write { .. } | Kind::Other { .. }, Ok(_)) => {}
        }
        // The first error wins.
        self.error = self.error.take().or(failure);
    }

    /// Appends the parts of the reply that are complete.
    pub(super) fn reply(&mut self, outbox: &mut Outbox<S>) -> Progress {
        if let Kind::Read { pieces, has_begun } = &mut self.kind {
            while self.error.is_none() && pieces.first().is_some_and(|piece| piece.data.is_some()) {
                let Piece { offset, length, data, hold } = pieces.remove(0);
                let is_whole = offset == self.start && offset + length as u64 == self.end;
                if is_whole {
                    outbox.push_head(self.writer.read(self.cookie, offset, length as u32));
                } else if let Some(head) = self.writer.data_chunk(self.cookie, offset, length as u32) {
                    outbox.push_head(head);
                } else if !*has_begun {
                    outbox.push_head(self.writer.read(self.cookie, offset, (self.end - self.start) as u32));
                }
                *has_begun = true;
                outbox.push_data(data.expect("it has arrived"), hold);
                if offset + length as u64 == self.end {
                    if !is_whole && self.format != ReplyFormat::Simple {
                        outbox.push_head(self.writer.done(self.cookie, self.start));
                    }
                    return Progress::Replied;
                }
            }
        }
        let has_more = match &self.kind {
            Kind::Read { .. } => self.error.is_none(),
            Kind::Write { .. } => self.next < self.end,
            Kind::Other { io, .. } => io.is_some() && self.error.is_none(),
        };
        if self.in_flight > 0 || has_more {
            return Progress::Waits;
        }
        let Some((error, message)) = &self.error else {
            outbox.push_head(self.writer.done(self.cookie, self.start));
            return Progress::Replied;
        };
        if matches!(self.kind, Kind::Read { has_begun: true, .. }) && self.format == ReplyFormat::Simple {
            return Progress::Broken;
        }
        outbox.push_text(self.writer.error(self.cookie, self.start, *error, message));
        Progress::Replied
    }
}
