//! The interface between a remote device and its protocol: state machines without sockets. The protocol is in another
//! crate.

use std::fmt;
use std::io::{self, Read, Write};

use iopath_core::{Instant, IoError, Limits, Op};

/// A request for a server. Offset and length are in bytes and lie within the export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteRequest {
    /// The operation.
    pub op: Op,
    /// Byte offset.
    pub offset: u64,
    /// Bytes; zero for a flush.
    pub length: u64,
    /// For writes only: the data is on the medium at completion.
    pub fua: bool,
}

/// The export of a server, as the first connection negotiated it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RemoteFacts {
    /// Bytes. The limits round it up to whole blocks; the device reads zeroes beyond it, and drops writes beyond it.
    pub size_bytes: u64,
    /// The limits of a request.
    pub limits: Limits,
    /// Whether the server refuses writes.
    pub is_read_only: bool,
    /// Whether the server states that its medium rotates.
    pub is_rotational: bool,
    /// Whether several connections see each other's writes, and a flush on one covers the writes of all.
    pub permits_connections: bool,
    /// The size and alignment that the server prefers, in bytes.
    pub preferred_bytes: u32,
}

impl RemoteFacts {
    /// An export of this size on one connection, which permits writes and prefers 4 KiB.
    pub const fn new(size_bytes: u64, limits: Limits) -> Self {
        Self {
            size_bytes,
            limits,
            is_read_only: false,
            is_rotational: false,
            permits_connections: false,
            preferred_bytes: 4096,
        }
    }
}

/// The bytes that a connection carries next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Incoming {
    /// Bytes for [`RemoteSession::handle_input`].
    Control,
    /// Data of a read.
    Data {
        /// The request.
        key: u32,
        /// The position in the memory of the request.
        start: u64,
        /// Bytes that are still to arrive, at least one.
        length: u32,
    },
}

/// Bytes to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outgoing {
    /// The appended bytes alone.
    Control,
    /// The appended bytes, then the whole data of this write.
    Data(u32),
}

/// A result of a state machine.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RemoteEvent {
    /// Connect a new stream, then call [`RemoteSession::handle_connected`] or [`RemoteSession::handle_lost`].
    Connect,
    /// Close the stream. The state machine has noted the loss itself.
    Close,
    /// The negotiation has ended. `None`: with the same export as before.
    Ready(Option<Box<RemoteFacts>>),
    /// A part of a read is zeroes.
    Zeroes {
        /// The request.
        key: u32,
        /// The position in the memory of the request.
        start: u64,
        /// Bytes.
        length: u64,
    },
    /// The request has completed. The state machine has no further use for its key.
    Completed {
        /// The request.
        key: u32,
        /// Success, or the error of the server or of the connection.
        result: Result<(), IoError>,
    },
    /// Pass the request to this connection instead. The state machine has no further use for its key.
    Redirect {
        /// The request.
        key: u32,
        /// The number of the other connection.
        to: usize,
    },
}

/// The socket below an encryption. It does not block: [`io::ErrorKind::WouldBlock`].
pub trait RemoteSocket: Read + Write {}

impl<T: Read + Write> RemoteSocket for T {}

/// The encryption of one stream. The socket is an argument; none of the functions waits.
pub trait RemoteEncryption: fmt::Debug + Send {
    /// Encrypts and sends bytes: `None` if the socket is full. The socket may not have accepted all that are reported:
    /// [`RemoteEncryption::has_output`].
    ///
    /// # Errors
    /// The stream is of no further use.
    fn send(&mut self, socket: &mut dyn RemoteSocket, bytes: &[u8]) -> io::Result<Option<usize>>;

    /// Receives plain bytes: `None` if the socket has no more for now, `Some(0)` at the end of the stream.
    ///
    /// # Errors
    /// Returns the errors of [`RemoteEncryption::send`].
    fn receive(&mut self, socket: &mut dyn RemoteSocket, buffer: &mut [u8]) -> io::Result<Option<usize>>;

    /// Sends encrypted bytes that the socket did not accept earlier.
    ///
    /// # Errors
    /// Returns the errors of [`RemoteEncryption::send`].
    fn flush(&mut self, socket: &mut dyn RemoteSocket) -> io::Result<()>;

    /// Whether encrypted bytes wait for the socket.
    fn has_output(&self) -> bool;

    /// Whether plain bytes can be received without the socket.
    fn has_input(&self) -> bool;

    /// States the end of the stream to the peer, as far as the socket accepts it.
    fn close(&mut self, socket: &mut dyn RemoteSocket);
}

/// One connection as a state machine. It negotiates, encodes requests, decodes replies, and connects again after a
/// loss.
///
/// After each call of a `handle` function, the caller executes all events ([`RemoteSession::poll_event`]). The memory
/// of a request must stay valid until its event [`RemoteEvent::Completed`] or [`RemoteEvent::Redirect`].
pub trait RemoteSession: fmt::Debug + Send {
    /// Connects without a request, so that the caller learns the export or the error.
    fn handle_open(&mut self, now: Instant);

    /// Accepts a request. `key` names it until it has completed; keys are small numbers.
    fn handle_request(&mut self, key: u32, request: RemoteRequest, now: Instant);

    /// A stream is connected.
    fn handle_connected(&mut self, now: Instant);

    /// The stream failed, ended, or could not be connected.
    fn handle_lost(&mut self, reason: &str, now: Instant);

    /// Time has passed: [`RemoteSession::poll_timeout`].
    fn handle_timeout(&mut self, now: Instant);

    /// The time of the next call of [`RemoteSession::handle_timeout`].
    fn poll_timeout(&self) -> Option<Instant>;

    /// Appends the next bytes to send to `bytes`; `None` if there are none. The caller sends them in this order, or
    /// closes the stream.
    fn poll_outgoing(&mut self, bytes: &mut Vec<u8>, now: Instant) -> Option<Outgoing>;

    /// The stream accepted `bytes` bytes.
    fn handle_sent(&mut self, bytes: u64, now: Instant);

    /// The bytes that the connection carries next.
    fn incoming(&self) -> Incoming;

    /// Handles received bytes and returns the number used. Zero: the message is incomplete.
    ///
    /// # Errors
    /// The server violates the protocol, in words. The state machine has failed its requests; close the stream.
    fn handle_input(&mut self, input: &[u8], now: Instant) -> Result<usize, String>;

    /// `count` bytes of data have arrived in the memory of the request that [`RemoteSession::incoming`] stated.
    ///
    /// # Errors
    /// Returns the errors of [`RemoteSession::handle_input`].
    fn handle_data(&mut self, count: u32, now: Instant) -> Result<(), String>;

    /// The encryption of all further bytes of this stream, in both directions; `None` if nothing changes.
    fn poll_encryption(&mut self) -> Option<Box<dyn RemoteEncryption>> {
        None
    }

    /// The next event.
    fn poll_event(&mut self) -> Option<RemoteEvent>;

    /// Appends the bytes that end the session in good order.
    fn disconnect(&mut self, bytes: &mut Vec<u8>);

    /// The reason of the last failure, in words.
    fn failure(&self) -> Option<&str>;
}

/// A protocol, for all connections of one device.
pub trait RemoteProtocol: fmt::Debug + Send + Sync {
    /// The state machine of connection `number`.
    fn session(&self, number: usize) -> Box<dyn RemoteSession>;

    /// The connection that a flush belongs to, if that matters.
    fn route_flush(&self) -> Option<usize>;

    /// The server for messages, as a URI.
    fn name(&self) -> &str;
}
