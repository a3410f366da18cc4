//! Errors of a client's connection. After each of them the connection is of no further use.

use thiserror::Error;

/// The server refused the negotiation, or violated the protocol.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientError {
    /// Not an NBD server.
    #[error("the server sent {0:#018x} as its first bytes; an NBD server sends NBDMAGIC")]
    NotNbd(u64),
    /// A server of before 2011.
    #[error("the server speaks the oldstyle protocol, without export names; iopath needs newstyle")]
    OldStyle,
    /// A wrong magic number: client and server are not in step.
    #[error("the server sent the magic number {found:#x} at the start of {message}")]
    Magic {
        /// The message.
        message: &'static str,
        /// The number.
        found: u64,
    },
    /// The server refused an option.
    #[error("the server refused {option}: {reason}")]
    Refused {
        /// Name of the option.
        option: &'static str,
        /// Reason, with the text of the server.
        reason: String,
    },
    /// The server needs TLS.
    #[error("the server requires TLS; use the scheme nbds or nbds+unix")]
    TlsRequired,
    /// The server has no TLS.
    #[error("the server offers no TLS; without encryption, use the scheme nbd or nbd+unix")]
    NoTls,
    /// Bytes of an attacker may be among them.
    #[error("the server sent {0} bytes between its consent to TLS and the TLS handshake")]
    InputBeforeTls(usize),
    /// A reply that does not fit the option, or is malformed.
    #[error("the server sent a malformed reply to {0}")]
    Malformed(&'static str),
    /// A message that is longer than any valid one.
    #[error("the server sent a reply of {length} bytes to {message}; the maximum is {max}")]
    TooLong {
        /// The message.
        message: &'static str,
        /// Bytes.
        length: u64,
        /// Bytes.
        max: u64,
    },
    /// A size beyond that of any file.
    #[error("the server states a size of {0} bytes; the maximum is 2^63-1 ({max})", max = i64::MAX)]
    Size(u64),
    /// Sizes that contradict the protocol.
    #[error(
        "the server states block sizes {min}, {preferred}, {max}: minimum and preferred size must be powers of two"
    )]
    BlockSizes {
        /// Bytes.
        min: u32,
        /// Bytes.
        preferred: u32,
        /// Bytes.
        max: u32,
    },
    /// A reply without a request.
    #[error("the server replied to request {0:#x}, which is not in flight")]
    UnknownCookie(u64),
    /// Data that does not belong to the request.
    #[error("the server sent bytes {start} to {end} of a read of {length} bytes: outside of it, or twice")]
    Range {
        /// First byte, relative to the request.
        start: u64,
        /// End, relative to the request.
        end: u64,
        /// Bytes of the request.
        length: u64,
    },
    /// Data is missing.
    #[error("the server ended a read of {length} bytes after {received} bytes")]
    Incomplete {
        /// Bytes that arrived.
        received: u64,
        /// Bytes of the request.
        length: u64,
    },
    /// The negotiation is over.
    #[error("the negotiation has ended")]
    Ended,
}
