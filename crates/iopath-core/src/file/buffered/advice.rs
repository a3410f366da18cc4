//! Advice of a program about its next reads, as in `posix_fadvise(2)`.

use super::{BufferedPath, Frames};
use crate::file::page::{Page, PageRange};
use crate::file::readahead::Pattern;

/// The announced access pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Advice {
    /// No advice: readahead detects patterns. Cancels earlier advice.
    Normal,
    /// Sequential access: the first read starts a full window.
    Sequential,
    /// Random access: no page is read ahead.
    Random,
    /// The range will be read soon: it is read now, up to half of the cache.
    WillNeed,
    /// The range will not be read soon: its clean pages are dropped.
    DontNeed,
    /// Pages will be read once: they are evicted before all others.
    NoReuse,
}

impl<F: Frames> BufferedPath<F> {
    /// Applies advice to the `bytes` bytes from `offset` on. Access patterns apply to the whole volume.
    pub fn advise(&mut self, offset: u64, bytes: u64, advice: Advice) {
        // Pages past the end would take frames from others.
        let volume = PageRange::between(Page(0), self.geometry.end());
        let pages = self.geometry.pages(offset, bytes).and(volume);
        match advice {
            Advice::Normal => {
                self.readahead.set_pattern(Pattern::Normal);
                self.cache.set_keep(true);
            }
            Advice::Sequential => self.readahead.set_pattern(Pattern::Sequential),
            Advice::Random => self.readahead.set_pattern(Pattern::Random),
            Advice::NoReuse => self.cache.set_keep(false),
            Advice::WillNeed => {
                let half = u64::from(self.cache.config().frames.div_ceil(2));
                let first = PageRange::new(pages.start(), pages.pages().min(half));
                self.cache.read_ahead(first, |_| false);
            }
            Advice::DontNeed => {
                self.cache.invalidate(pages);
            }
        }
    }
}
