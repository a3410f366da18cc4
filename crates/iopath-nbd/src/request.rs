//! Requests of the transmission phase: the message, without checks against an export.

use crate::protocol::{CommandFlags, EXTENDED_REQUEST_MAGIC, REQUEST_MAGIC, command};
use crate::reply::ReplyFormat;
use crate::wire::{Append, Fields};

/// Commands of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// Reads a range.
    Read,
    /// Writes the data that follows the request.
    Write,
    /// Ends the connection. There is no reply.
    Disconnect,
    /// Writes completed before are on the medium when it completes.
    Flush,
    /// Discards a range.
    Trim,
    /// Reads a range into the cache of the server.
    Cache,
    /// Writes zeroes.
    WriteZeroes,
    /// Reports the state of a range.
    BlockStatus,
    /// A command that the protocol or iopath does not know.
    Unknown(u16),
}

impl Command {
    fn from_code(code: u16) -> Self {
        match code {
            command::READ => Self::Read,
            command::WRITE => Self::Write,
            command::DISCONNECT => Self::Disconnect,
            command::FLUSH => Self::Flush,
            command::TRIM => Self::Trim,
            command::CACHE => Self::Cache,
            command::WRITE_ZEROES => Self::WriteZeroes,
            command::BLOCK_STATUS => Self::BlockStatus,
            unknown => Self::Unknown(unknown),
        }
    }

    /// Whether the command changes the export.
    #[must_use]
    pub fn is_modifying(self) -> bool {
        matches!(self, Self::Write | Self::Trim | Self::WriteZeroes)
    }

    fn code(self) -> u16 {
        match self {
            Self::Read => command::READ,
            Self::Write => command::WRITE,
            Self::Disconnect => command::DISCONNECT,
            Self::Flush => command::FLUSH,
            Self::Trim => command::TRIM,
            Self::Cache => command::CACHE,
            Self::WriteZeroes => command::WRITE_ZEROES,
            Self::BlockStatus => command::BLOCK_STATUS,
            Self::Unknown(code) => code,
        }
    }
}

/// A request as it is on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Flags.
    pub flags: CommandFlags,
    /// Command.
    pub command: Command,
    /// The client's name of the request. The reply repeats it.
    pub cookie: u64,
    /// Byte offset.
    pub offset: u64,
    /// Bytes of the range or, with [`CommandFlags::PAYLOAD_LEN`], of the payload.
    pub length: u64,
}

impl Request {
    /// Bytes of a request, in a connection with replies of `format`.
    #[must_use]
    pub fn encoded_len(format: ReplyFormat) -> usize {
        if format == ReplyFormat::Extended { 32 } else { 28 }
    }

    /// The request at the start of `input`: `None` if it is incomplete, the magic number if that is wrong.
    pub(crate) fn decode(input: &[u8], format: ReplyFormat) -> Result<Option<Self>, u32> {
        let mut fields = Fields::new(input);
        let Some(magic) = fields.u32() else { return Ok(None) };
        let is_extended = format == ReplyFormat::Extended;
        if magic != if is_extended { EXTENDED_REQUEST_MAGIC } else { REQUEST_MAGIC } {
            return Err(magic);
        }
        Ok((|| {
            Some(Self {
                flags: CommandFlags::from_bits_retain(fields.u16()?),
                command: Command::from_code(fields.u16()?),
                cookie: fields.u64()?,
                offset: fields.u64()?,
                length: if is_extended { fields.u64()? } else { fields.u32()?.into() },
            })
        })())
    }

    /// Appends the request. Without extended headers, its length must be below 4 GiB.
    pub(crate) fn encode(&self, format: ReplyFormat, output: &mut impl Append) {
        let is_extended = format == ReplyFormat::Extended;
        output.append_u32(if is_extended { EXTENDED_REQUEST_MAGIC } else { REQUEST_MAGIC });
        output.append_u16(self.flags.bits());
        output.append_u16(self.command.code());
        output.append_u64(self.cookie);
        output.append_u64(self.offset);
        if is_extended {
            output.append_u64(self.length);
        } else {
            output.append_u32(u32::try_from(self.length).expect("the caller checked the length"));
        }
    }

    /// Bytes of data after the request.
    #[must_use]
    pub fn payload_len(&self, format: ReplyFormat) -> u64 {
        let has_payload = match format {
            ReplyFormat::Extended => self.flags.contains(CommandFlags::PAYLOAD_LEN),
            ReplyFormat::Simple | ReplyFormat::Structured => self.command == Command::Write,
        };
        if has_payload { self.length } else { 0 }
    }
}
