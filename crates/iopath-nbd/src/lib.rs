//! The NBD protocol (Network Block Device): a codec and the state machines of both ends. It makes no system calls and
//! has no sockets.
//!
//! A caller passes the bytes that arrive to `handle_input`, and sends the bytes that `take_output` returns. The data of
//! reads and writes does not pass through this crate: the state machines state how many bytes follow and for which
//! request, so that the caller moves them between the socket and the memory of that request without a copy.
//!
//! - [`ServerHandshake`] and [`ClientHandshake`] negotiate an export and the format of the replies.
//! - [`ServerRequests`] decodes and checks requests, and [`ReplyWriter`] encodes the replies.
//! - [`ClientRequests`] encodes requests, and decodes and checks the replies.
//!
//! Every length and count that the peer sends is checked before memory is allocated for it. The protocol is that of
//! the NBD project (`doc/proto.md` in its repository): fixed newstyle negotiation, simple, structured and extended
//! replies.
//!
//! ```
//! use std::sync::Arc;
//! use iopath_nbd::{ClientHandshake, ClientOptions, Export, ServerHandshake, ServerProgress, ServerTls};
//!
//! let exports: Arc<[Export]> = Arc::new([Export::new("disk", 1 << 30)]);
//! let mut server = ServerHandshake::new(exports, ServerTls::Off);
//! let mut client = ClientHandshake::new(ClientOptions::export("disk"));
//! let negotiated = loop {
//!     // Here the bytes pass through two buffers. A program reads and writes a socket.
//!     let (mut to_client, mut to_server) = (server.take_output(), client.take_output());
//!     client.handle_input(&mut to_client)?;
//!     to_server.extend(client.take_output());
//!     if let ServerProgress::Transmission(session) = server.handle_input(&mut to_server)? {
//!         break session;
//!     }
//! };
//! assert_eq!(negotiated.export, 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod client;
mod errno;
mod export;
mod meta;
mod option;
mod protocol;
mod reply;
mod request;
mod serve;
mod server;
#[cfg(feature = "sim")]
#[doc(hidden)]
pub mod sim;
mod tls;
mod uri;
mod wire;

pub use client::{
    ClientError, ClientEvent, ClientHandshake, ClientOperation, ClientOptions, ClientProgress,
    ClientRequests, ClientTls, ConnectError, ConnectOptions, Expected, Negotiated, Patience, RequestHead,
    SubmitError, TlsOptions, connect,
};
pub use errno::Errno;
pub use export::{BlockSizes, Export};
pub use meta::{BASE_ALLOCATION, BlockExtent, BlockState};
pub use protocol::{CommandFlags, DEFAULT_PORT, EXPORT_NAME_MAX, TransmissionFlags};
pub use reply::{ReplyFormat, ReplyHead, ReplyWriter};
pub use request::{Command, Request};
pub use serve::{
    Listen, Listener, ServeDirection, ServeOptions, ServeTls, ServeTotals, Served, Server, SocketFile,
    raise_descriptor_limit,
};
pub use server::{
    HandshakeError, Operation, RequestError, ServerHandshake, ServerProgress, ServerRequests, ServerTls,
    Session,
};
pub use tls::{TlsClient, TlsError, TlsFiles, TlsServer, TlsSession};
pub use uri::{NbdUri, Place, UriError};

/// The examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
