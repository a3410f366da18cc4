//! The interface of `vhost.rs` in a build without the feature `vhost-user`: no device starts.

use std::convert::Infallible;
use std::path::PathBuf;

use super::{ServeEnd, ServeError, ServeRates, ServeRequest};

/// A running device: none.
#[derive(Debug)]
pub struct VhostServing {
    /// The socket.
    pub socket: PathBuf,
    never: Infallible,
}

/// # Errors
/// [`ServeError::NoVhost`].
pub fn serve_vhost(_: &ServeRequest, _: Option<u16>) -> Result<VhostServing, ServeError> {
    Err(ServeError::NoVhost)
}

impl VhostServing {
    /// # Errors
    /// None.
    pub fn run(self, _: impl FnMut(&ServeRates, &[String])) -> Result<ServeEnd, ServeError> {
        match self.never {}
    }
}
