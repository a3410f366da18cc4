//! The caches of closed volumes, for a later volume on the same file. Compares versions of files; `life.rs` decides
//! which version a cache belongs to, and whether that is certain.

use iopath_os::target::FileVersion;
use iopath_os::{BufferedConfig, KeptPages};

/// The caches of closed volumes, those that were closed first at the start.
#[derive(Debug, Default)]
pub(super) struct KeptCaches {
    caches: Vec<Kept>,
    caches_max: usize,
    bytes: u64,
}

#[derive(Debug)]
struct Kept {
    /// As long as the file has it, its bytes are those of the pages.
    version: FileVersion,
    pages: KeptPages,
    bytes: u64,
}

/// Pages without a use. Drop them without the lock of the context: to return their memory takes long.
#[must_use]
#[derive(Debug, Default)]
pub(super) struct Evicted(Vec<Kept>);

impl KeptCaches {
    /// The number of caches.
    pub(super) fn len(&self) -> usize {
        self.caches.len()
    }

    /// The memory of their pages.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether caches are kept.
    pub(super) const fn is_on(&self) -> bool {
        self.caches_max > 0
    }

    /// Keeps at most so many caches.
    pub(super) fn set_caches_max(&mut self, caches: usize) -> Evicted {
        self.caches_max = caches;
        self.evict_first(self.caches.len().saturating_sub(caches))
    }

    /// Keeps the pages of a file. They replace those of an earlier volume on it.
    pub(super) fn add(&mut self, version: FileVersion, pages: KeptPages) -> Evicted {
        let mut evicted = self.remove(|kept| kept.version.id() == version.id());
        let bytes = pages.bytes();
        self.bytes += bytes;
        self.caches.push(Kept { version, pages, bytes });
        evicted.extend(self.set_caches_max(self.caches_max));
        evicted
    }

    /// The pages of a file, for a cache of this configuration. Evicts pages of other versions of the file.
    pub(super) fn take(
        &mut self,
        version: &FileVersion,
        config: &BufferedConfig,
    ) -> (Option<KeptPages>, Evicted) {
        let is_old = |kept: &Kept| kept.version.id() == version.id() && kept.version != *version;
        let evicted = self.remove(is_old);
        let fits = |kept: &Kept| kept.version == *version && kept.pages.fits(config);
        let taken = self.caches.iter().position(fits).map(|place| self.caches.remove(place));
        self.bytes -= taken.as_ref().map_or(0, |kept| kept.bytes);
        (taken.map(|kept| kept.pages), evicted)
    }

    /// Evicts pages of the caches that were closed first, until all have at most `bytes`.
    pub(super) fn shrink(&mut self, bytes: u64) -> Evicted {
        let mut excess = self.bytes.saturating_sub(bytes);
        let mut whole = 0;
        for kept in &mut self.caches {
            if excess == 0 {
                break;
            }
            let rest = kept.bytes.saturating_sub(excess);
            if rest > 0 && kept.pages.shrink(rest) {
                let left = kept.pages.bytes();
                self.bytes -= kept.bytes - left;
                kept.bytes = left;
                break;
            }
            excess = excess.saturating_sub(kept.bytes);
            whole += 1;
        }
        self.evict_first(whole)
    }

    fn evict_first(&mut self, count: usize) -> Evicted {
        let caches: Vec<Kept> = self.caches.drain(..count).collect();
        self.account(caches)
    }

    fn remove(&mut self, is_removed: impl Fn(&Kept) -> bool) -> Evicted {
        let caches = self.caches.extract_if(.., |kept| is_removed(kept)).collect();
        self.account(caches)
    }

    fn account(&mut self, caches: Vec<Kept>) -> Evicted {
        self.bytes -= caches.iter().map(|kept| kept.bytes).sum::<u64>();
        Evicted(caches)
    }
}

impl Evicted {
    pub(super) fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }
}
