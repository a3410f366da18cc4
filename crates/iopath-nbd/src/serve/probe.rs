//! What the simulator looks at in a service.

use super::core::Core;
use super::service::Service;
use super::storage::Storage;
use super::transport::Transport;

impl<S: Storage, T: Transport> Service<S, T> {
    /// For each connection: bytes of replies without data, and parked buffers.
    pub(crate) fn held(&self) -> impl Iterator<Item = (usize, usize)> {
        self.connections.iter().map(|(_, watched)| watched.connection.serving.held())
    }
}

impl<S: Storage> Core<S> {
    /// The storage of an export that was opened.
    pub(crate) fn opened(&mut self, export: usize) -> Option<&mut S> {
        self.backings[export].as_mut()
    }

    pub(crate) fn depth(&self) -> u32 {
        self.depth
    }
}
