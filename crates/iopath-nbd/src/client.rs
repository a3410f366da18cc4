//! The client's end of the protocol: negotiation, requests and their replies, and the device on an export.

mod chunks;
mod connect;
pub(crate) mod coverage;
mod encryption;
mod error;
mod handshake;
mod limits;
pub(crate) mod link;
mod patience;
mod requests;
mod slots;

pub use connect::{ConnectError, ConnectOptions, connect};
pub use encryption::TlsOptions;
pub use error::ClientError;
pub use handshake::{ClientHandshake, ClientOptions, ClientProgress, ClientTls, Negotiated};
pub use patience::Patience;
pub use requests::{ClientEvent, ClientRequests, Expected, RequestHead, SubmitError};
pub use slots::ClientOperation;
