//! Shares of the buffers of a worker, so that a client that does not read its replies cannot hold all of them. Buffers
//! that are held when the shares become smaller, or when there are more connections than buffers: `Worker::park`.

use std::cell::Cell;
use std::rc::Rc;

/// The buffers that one connection holds.
#[derive(Clone, Debug, Default)]
pub(super) struct Quota(Rc<Cell<u32>>);

impl Quota {
    /// Permission for one more buffer, unless the connection holds `limit` of them.
    pub(super) fn take(&self, limit: u32) -> Option<Hold> {
        let held = self.0.get();
        (held < limit).then(|| {
            self.0.set(held + 1);
            Hold(Rc::clone(&self.0))
        })
    }
}

/// The permission for a buffer, until it is dropped.
#[derive(Debug)]
pub(super) struct Hold(Rc<Cell<u32>>);

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}
