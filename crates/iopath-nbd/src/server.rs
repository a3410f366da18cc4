//! The server's end of the protocol: negotiation, then requests. Replies: `reply.rs`.

mod handshake;
mod requests;

pub use handshake::{HandshakeError, ServerHandshake, ServerProgress, ServerTls, Session};
pub use requests::{Operation, RequestError, ServerRequests};
