//! Who came when, counted in requests: tells when a request has been passed as often as it may be. Knows no
//! sectors and no time.

use crate::block::table::Tag;
use crate::collections::fifo::{Fifo, Places};

/// Numbers requests as they come and counts those that have gone.
///
/// When `gone` reaches a request's number and n more, n later requests or more have gone before it: a
/// request that goes when that is reached has been passed n times, and as often as there still are older
/// requests.
#[derive(Debug)]
pub(super) struct Arrivals {
    pub(super) places: Places,
    came: u64,
    gone: u64,
}

impl Arrivals {
    pub(super) fn new(requests_max: usize) -> Self {
        Self { places: Places::new(requests_max), came: 0, gone: 0 }
    }

    /// A request has come.
    pub(super) fn push(&mut self, fifo: &mut Fifo, tag: Tag) {
        fifo.push_back(&mut self.places, tag, self.came);
        self.came += 1;
    }

    /// A request has gone.
    pub(super) fn remove(&mut self, fifo: &mut Fifo, tag: Tag) {
        self.gone += 1;
        fifo.remove(&self.places, tag);
    }

    /// Something has come and gone at once, and so has passed all that are here.
    pub(super) fn pass(&mut self) {
        self.came += 1;
        self.gone += 1;
    }

    /// The oldest request of `fifo`, if its allowance is used up, and when it was, counted in requests gone.
    pub(super) fn due(&self, fifo: &Fifo, allowance: u64) -> Option<(u64, Tag)> {
        let (number, tag) = fifo.front()?;
        (number + allowance <= self.gone).then_some((number + allowance, tag))
    }
}
