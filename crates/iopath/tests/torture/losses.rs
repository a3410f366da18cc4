//! Losses that a worker accepts while others work (`Volume::accept_loss`), so that later flushes succeed. A worker may
//! accept the loss of bytes of another worker. A later successful flush then does not cover writes before the loss.

use iopath::Volume;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Counts accepted losses.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    begun: AtomicU64,
    ended: AtomicU64,
}

/// A point in time; `None` while a loss is being accepted.
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

    /// Whether no loss was accepted since that moment: then a successful flush covers all writes since the moment.
    pub(crate) fn none_since(&self, moment: Moment) -> bool {
        moment.0.is_some_and(|ended| self.begun.load(SeqCst) == ended)
    }
}
