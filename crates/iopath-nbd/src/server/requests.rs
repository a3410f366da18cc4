//! Requests of one connection: decodes them and checks them against the export. It executes nothing.

use thiserror::Error;

use crate::errno::Errno;
use crate::export::Export;
use crate::protocol::{CommandFlags, TransmissionFlags};
use crate::reply::ReplyFormat;
use crate::request::{Command, Request};
use crate::server::Session;

/// Longest data of one chunk: its length field of 32 bits also covers the offset.
const CHUNK_DATA_MAX: u64 = u32::MAX as u64 - 8;

/// A request that the export can execute. Ranges lie within the export and are aligned to its block size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Reads `length` bytes at `offset`.
    Read {
        /// Byte offset.
        offset: u64,
        /// Bytes, at most the maximum of the export.
        length: u32,
        /// The reply must be one chunk of data.
        in_one_chunk: bool,
    },
    /// Writes the payload at `offset`.
    Write {
        /// Byte offset.
        offset: u64,
        /// Bytes of the payload, at most the maximum of the export.
        length: u32,
        /// Reply when the data is on the medium.
        fua: bool,
    },
    /// Reply when all completed writes are on the medium.
    Flush,
    /// Discards a range. The server may ignore it.
    Trim {
        /// Byte offset.
        offset: u64,
        /// Bytes.
        length: u64,
        /// Reply when the change is on the medium.
        fua: bool,
    },
    /// Reads a range into the cache. The server may ignore it.
    Cache {
        /// Byte offset.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// Writes zeroes.
    WriteZeroes {
        /// Byte offset.
        offset: u64,
        /// Bytes.
        length: u64,
        /// Reply when the change is on the medium.
        fua: bool,
        /// Keep the space allocated.
        no_hole: bool,
        /// Fail with [`Errno::NOT_SUPPORTED`] if it is not faster than a write of data.
        must_be_fast: bool,
    },
    /// Reports the state of a range.
    BlockStatus {
        /// Byte offset.
        offset: u64,
        /// Bytes.
        length: u64,
        /// One extent is enough.
        only_one: bool,
    },
    /// Ends the connection after the requests in flight.
    Disconnect,
}

/// A violation of the protocol after which the boundaries of requests are unknown.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequestError {
    /// The client is not in step.
    #[error(
        "the client sent {0:#010x} at the start of a request, which is not the magic number of a request"
    )]
    Magic(u32),
    /// The payload is too long to skip it.
    #[error("the client announced a payload of {0} bytes")]
    Payload(u64),
}

/// Longest payload of a refused request that the server skips. The connection is closed above it.
const SKIPPED_MAX: u64 = 64 << 20;

/// The requests of one connection.
#[derive(Clone, Copy, Debug)]
pub struct ServerRequests {
    session: Session,
    size: u64,
    block: u64,
    payload_max: u64,
}

impl ServerRequests {
    /// The requests of a connection to `export`, after `session` was negotiated.
    #[must_use]
    pub fn new(session: Session, export: &Export) -> Self {
        let sizes = export.block_sizes;
        Self {
            session,
            size: export.size,
            block: sizes.min.into(),
            payload_max: u64::from(sizes.max).min(CHUNK_DATA_MAX),
        }
    }

    /// The format of the replies.
    #[must_use]
    pub fn format(&self) -> ReplyFormat {
        self.session.format
    }

    /// The request at the start of `input`, its length in bytes, and the length of the payload that follows it. `None`
    /// if the request is incomplete. The caller receives or skips the payload, also if [`ServerRequests::check`]
    /// refuses the request.
    ///
    /// # Errors
    ///
    /// The client violates the protocol. Close the connection.
    pub fn decode(&self, input: &[u8]) -> Result<Option<(Request, usize, u64)>, RequestError> {
        let format = self.session.format;
        let Some(request) = Request::decode(input, format).map_err(RequestError::Magic)? else {
            return Ok(None);
        };
        let payload = request.payload_len(format);
        if payload > self.payload_max.max(SKIPPED_MAX) {
            return Err(RequestError::Payload(payload));
        }
        Ok(Some((request, Request::encoded_len(format), payload)))
    }

    /// The operation of a request.
    ///
    /// # Errors
    ///
    /// The code for the reply, and its reason.
    pub fn check(&self, request: &Request) -> Result<Operation, (Errno, &'static str)> {
        if request.command == Command::Disconnect {
            return Ok(Operation::Disconnect);
        }
        self.check_support(request)?;
        if request.command == Command::Flush {
            return Ok(Operation::Flush);
        }
        self.check_range(request)?;
        let &Request { flags, offset, length, .. } = request;
        let fua = flags.contains(CommandFlags::FUA);
        Ok(match request.command {
            Command::Read => {
                let length = self.check_payload(length)?;
                Operation::Read { offset, length, in_one_chunk: flags.contains(CommandFlags::DONT_FRAGMENT) }
            }
            Command::Write => Operation::Write { offset, length: self.check_payload(length)?, fua },
            Command::Trim => Operation::Trim { offset, length, fua },
            Command::Cache => Operation::Cache { offset, length },
            Command::WriteZeroes => Operation::WriteZeroes {
                offset,
                length,
                fua,
                no_hole: flags.contains(CommandFlags::NO_HOLE),
                must_be_fast: flags.contains(CommandFlags::FAST_ZERO),
            },
            Command::BlockStatus => {
                Operation::BlockStatus { offset, length, only_one: flags.contains(CommandFlags::REQ_ONE) }
            }
            Command::Disconnect | Command::Flush | Command::Unknown(_) => unreachable!("handled above"),
        })
    }

    /// Whether the server offered the command and its flags.
    fn check_support(&self, request: &Request) -> Result<(), (Errno, &'static str)> {
        use TransmissionFlags as Offered;
        let (needed, known) = match request.command {
            Command::Read => (Offered::empty(), CommandFlags::DONT_FRAGMENT),
            Command::Write => (Offered::empty(), CommandFlags::PAYLOAD_LEN),
            Command::Flush => (Offered::SEND_FLUSH, CommandFlags::empty()),
            Command::Trim => (Offered::SEND_TRIM, CommandFlags::empty()),
            Command::Cache => (Offered::SEND_CACHE, CommandFlags::empty()),
            Command::WriteZeroes => {
                (Offered::SEND_WRITE_ZEROES, CommandFlags::NO_HOLE | CommandFlags::FAST_ZERO)
            }
            Command::BlockStatus if self.session.has_allocation => (Offered::empty(), CommandFlags::REQ_ONE),
            Command::BlockStatus => return Err((Errno::INVALID, "no metadata context was negotiated")),
            Command::Unknown(_) | Command::Disconnect => return Err((Errno::INVALID, "unknown command")),
        };
        let offered = self.session.flags;
        if request.command.is_modifying() && offered.contains(Offered::READ_ONLY) {
            return Err((Errno::PERMISSION, "the export is read-only"));
        }
        if !offered.contains(needed) {
            return Err((Errno::INVALID, "the server does not offer this command"));
        }
        let flag_offers = [
            (CommandFlags::FUA, Offered::SEND_FUA),
            (CommandFlags::DONT_FRAGMENT, Offered::SEND_DF),
            (CommandFlags::FAST_ZERO, Offered::SEND_FAST_ZERO),
        ];
        // Existing clients set FUA on any command.
        let unknown = request.flags - known - CommandFlags::FUA;
        let not_offered = flag_offers
            .iter()
            .any(|(flag, offer)| request.flags.contains(*flag) && !offered.contains(*offer));
        if !unknown.is_empty() || not_offered {
            return Err((Errno::INVALID, "the server does not offer a flag of this command"));
        }
        let has_payload_len = request.flags.contains(CommandFlags::PAYLOAD_LEN);
        let needs_payload_len =
            self.session.format == ReplyFormat::Extended && request.command == Command::Write;
        if has_payload_len != needs_payload_len {
            return Err((Errno::INVALID, "a write with extended headers states the length of its payload"));
        }
        Ok(())
    }

    fn check_range(&self, request: &Request) -> Result<(), (Errno, &'static str)> {
        let &Request { offset, length, .. } = request;
        if length == 0 {
            return Err((Errno::INVALID, "the length is zero"));
        }
        let end = offset.checked_add(length).filter(|end| *end <= self.size);
        if end.is_none() {
            let error = if request.command.is_modifying() { Errno::NO_SPACE } else { Errno::INVALID };
            return Err((error, "the range exceeds the export"));
        }
        // The end of an export may lie inside a block.
        let is_aligned = offset.is_multiple_of(self.block)
            && (length.is_multiple_of(self.block) || end == Some(self.size));
        if is_aligned {
            Ok(())
        } else {
            Err((Errno::INVALID, "the range is not aligned to the minimum block size"))
        }
    }

    fn check_payload(&self, length: u64) -> Result<u32, (Errno, &'static str)> {
        let length = u32::try_from(length).ok().filter(|length| u64::from(*length) <= self.payload_max);
        length.ok_or((Errno::INVALID, "the length exceeds the maximum of the export"))
    }
}
