//! Losses that a worker accepts while others work (`Volume::accept_loss`), so that flushes go on to succeed. A loss of
//! one worker's bytes may so be accepted by another: a flush then proves nothing about what was written before.

use iopath::Volume;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// How often losses were accepted.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    begun: AtomicU64,
    ended: AtomicU64,
}

/// A moment, as far as losses are concerned.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment(Option<u64>);

impl Losses {
    pub(crate) fn accept(&self, volume: &Volume) {
        self.begun.fetch_add(1, SeqCst);
        volume.accept_loss().expect("a volume with a page cache");
        self.ended.fetch_add(1, SeqCst);
    }

    pub(crate) fn now(&self) -> Moment {
        let ended = self.ended.load(SeqCst);
        Moment((self.begun.load(SeqCst) == ended).then_some(ended))
    }

    /// Whether none was accepted since then: a flush that has succeeded meanwhile covers what was written since.
    pub(crate) fn none_since(&self, moment: Moment) -> bool {
        moment.0.is_some_and(|ended| self.begun.load(SeqCst) == ended)
    }
}
