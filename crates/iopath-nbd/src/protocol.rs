//! Numbers of the NBD protocol: magic numbers, flags, codes of options, replies and commands. It encodes nothing.

use bitflags::bitflags;

/// The port that IANA registered for NBD.
pub const DEFAULT_PORT: u16 = 10809;

/// First eight bytes of each server: `NBDMAGIC`.
pub(crate) const SERVER_MAGIC: u64 = u64::from_be_bytes(*b"NBDMAGIC");
/// Start of the newstyle negotiation and of each option: `IHAVEOPT`.
pub(crate) const OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT");
/// Second eight bytes of an oldstyle server.
pub(crate) const OLDSTYLE_MAGIC: u64 = 0x0000_4202_8186_1253;
/// Start of each reply to an option.
pub(crate) const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Start of a request with a length of 32 bits.
pub(crate) const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Start of a request with a length of 64 bits.
pub(crate) const EXTENDED_REQUEST_MAGIC: u32 = 0x21e4_1c71;
/// Start of a simple reply.
pub(crate) const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Start of a chunk of a structured reply.
pub(crate) const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;
/// Start of a chunk of an extended reply.
pub(crate) const EXTENDED_REPLY_MAGIC: u32 = 0x6e8a_278c;

/// Zeroes after the answer to `EXPORT_NAME`, unless the client refuses them.
pub(crate) const EXPORT_NAME_ZEROES: usize = 124;

/// Longest string that the protocol permits, in bytes.
pub(crate) const STRING_MAX: usize = 4096;

/// Longest name of an export, in bytes.
pub const EXPORT_NAME_MAX: usize = STRING_MAX;

/// Flag of the server: fixed newstyle negotiation.
pub(crate) const FIXED_NEWSTYLE: u16 = 1;
/// Flag of the server: the zeroes after `EXPORT_NAME` can be left out.
pub(crate) const NO_ZEROES: u16 = 1 << 1;

/// Options of a client.
pub(crate) mod option {
    pub(crate) const EXPORT_NAME: u32 = 1;
    pub(crate) const ABORT: u32 = 2;
    pub(crate) const LIST: u32 = 3;
    pub(crate) const START_TLS: u32 = 5;
    pub(crate) const INFO: u32 = 6;
    pub(crate) const GO: u32 = 7;
    pub(crate) const STRUCTURED_REPLY: u32 = 8;
    pub(crate) const LIST_META_CONTEXT: u32 = 9;
    pub(crate) const SET_META_CONTEXT: u32 = 10;
    pub(crate) const EXTENDED_HEADERS: u32 = 11;
}

/// Replies to options.
pub(crate) mod option_reply {
    pub(crate) const ACK: u32 = 1;
    pub(crate) const SERVER: u32 = 2;
    pub(crate) const INFO: u32 = 3;
    pub(crate) const META_CONTEXT: u32 = 4;
    /// Bit of all errors.
    pub(crate) const ERROR: u32 = 1 << 31;
    pub(crate) const UNSUPPORTED: u32 = ERROR + 1;
    pub(crate) const POLICY: u32 = ERROR + 2;
    pub(crate) const INVALID: u32 = ERROR + 3;
    pub(crate) const TLS_REQUIRED: u32 = ERROR + 5;
    pub(crate) const UNKNOWN_EXPORT: u32 = ERROR + 6;
    pub(crate) const SHUTDOWN: u32 = ERROR + 7;
    pub(crate) const BLOCK_SIZE_REQUIRED: u32 = ERROR + 8;
    pub(crate) const TOO_BIG: u32 = ERROR + 9;
}

/// Types of an `INFO` reply.
pub(crate) mod info {
    pub(crate) const EXPORT: u16 = 0;
    pub(crate) const NAME: u16 = 1;
    pub(crate) const DESCRIPTION: u16 = 2;
    pub(crate) const BLOCK_SIZE: u16 = 3;
}

/// Commands of the transmission phase.
pub(crate) mod command {
    pub(crate) const READ: u16 = 0;
    pub(crate) const WRITE: u16 = 1;
    pub(crate) const DISCONNECT: u16 = 2;
    pub(crate) const FLUSH: u16 = 3;
    pub(crate) const TRIM: u16 = 4;
    pub(crate) const CACHE: u16 = 5;
    pub(crate) const WRITE_ZEROES: u16 = 6;
    pub(crate) const BLOCK_STATUS: u16 = 7;
}

/// Types of a chunk of a structured or extended reply.
pub(crate) mod chunk {
    pub(crate) const NONE: u16 = 0;
    pub(crate) const OFFSET_DATA: u16 = 1;
    pub(crate) const OFFSET_HOLE: u16 = 2;
    pub(crate) const BLOCK_STATUS: u16 = 5;
    pub(crate) const BLOCK_STATUS_EXTENDED: u16 = 6;
    /// Bit of all errors.
    pub(crate) const ERROR_BIT: u16 = 1 << 15;
    pub(crate) const ERROR: u16 = ERROR_BIT + 1;
    /// Flag of the last chunk of a reply.
    pub(crate) const DONE: u16 = 1;
}

bitflags! {
    /// Properties of an export, as the server sends them before the transmission phase.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct TransmissionFlags: u16 {
        /// The field is valid. A server always sets it.
        const HAS_FLAGS = 1;
        /// The server refuses commands that modify the export.
        const READ_ONLY = 1 << 1;
        /// The server accepts flushes.
        const SEND_FLUSH = 1 << 2;
        /// The server accepts [`CommandFlags::FUA`].
        const SEND_FUA = 1 << 3;
        /// The medium rotates.
        const ROTATIONAL = 1 << 4;
        /// The server accepts trims (discards).
        const SEND_TRIM = 1 << 5;
        /// The server accepts writes of zeroes.
        const SEND_WRITE_ZEROES = 1 << 6;
        /// The server accepts [`CommandFlags::DONT_FRAGMENT`].
        const SEND_DF = 1 << 7;
        /// A flush on one connection covers the writes that completed on any connection.
        const CAN_MULTI_CONN = 1 << 8;
        /// The server can change the size on request. iopath does not send or accept this command.
        const SEND_RESIZE = 1 << 9;
        /// The server accepts requests to cache a range.
        const SEND_CACHE = 1 << 10;
        /// The server accepts [`CommandFlags::FAST_ZERO`].
        const SEND_FAST_ZERO = 1 << 11;
        /// A block status request may select contexts.
        const BLOCK_STATUS_PAYLOAD = 1 << 12;
        const _ = !0;
    }

    /// Flags of a request.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct CommandFlags: u16 {
        /// Forced unit access: the reply follows when the data is on the medium.
        const FUA = 1;
        /// Writes of zeroes: do not release the space.
        const NO_HOLE = 1 << 1;
        /// Reads: reply with at most one chunk of data.
        const DONT_FRAGMENT = 1 << 2;
        /// Block status: one extent for each context is enough.
        const REQ_ONE = 1 << 3;
        /// Writes of zeroes: fail if they are not faster than a write of data.
        const FAST_ZERO = 1 << 4;
        /// Extended requests: the length is that of a payload.
        const PAYLOAD_LEN = 1 << 5;
        const _ = !0;
    }
}
