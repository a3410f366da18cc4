//! The client's end of the protocol: negotiation, then requests and their replies.

mod chunks;
mod error;
mod handshake;
mod requests;
mod slots;

pub use error::ClientError;
pub use handshake::{ClientHandshake, ClientOptions, ClientProgress, ClientTls, Negotiated};
pub use requests::{ClientEvent, ClientRequests, Expected, RequestHead, SubmitError};
pub use slots::ClientOperation;
