//! Memory that the page caches of many volumes share. Does not order the I/O of the volumes: each has a queue of its
//! own.

mod keeper;
mod kept;
mod life;
mod share;
mod writer;

use crate::driver_threads::DriverThreads;
use iopath_os::{Buffered, BufferedConfig, CacheBudget, Demand, KeptPages, RingPool};
use keeper::Notifier;
use kept::{Evicted, KeptCaches};
pub(crate) use life::Life;
use share::Share;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
pub(crate) use writer::Writer;
use writer::Writers;

/// The minimum of a cache, in pages: some are at the device, others in use by readers and writers.
const PAGES_MIN: u64 = 16;

/// A cache that no call has used for this many rounds of a division is idle.
const IDLE_ROUNDS: u32 = 50;

/// The part of the memory of closed volumes that a new cache counts as free.
const KEPT_PART: u64 = 4;

/// Memory for the page caches of any number of volumes ([`Options::context`](crate::Options::context)).
///
/// A cache gets memory when it first needs it. While memory is left, each cache grows as if it were alone. After that,
/// a cache that evicts pages gets memory that others do not use, then memory of caches that are idle, and, until all
/// have equal shares, memory of larger caches. Each keeps a minimum of 16 pages, or of its equal share if that is less.
/// A cache that must give memory evicts its coldest clean pages. Dirty and borrowed pages stay, so the memory in use
/// can exceed the limit until they are written back or returned: no read waits for memory of another volume.
///
/// Volumes that use `io_uring` take rings that closed volumes have left. If more than 16 volumes have rings, a volume
/// without I/O in flight leaves its ring to others. The pages of closed volumes can be kept, too
/// ([`Context::keep_closed`]). The futures of open volumes share threads
/// ([`AsyncVolume::new`](crate::AsyncVolume::new)).
///
/// A clone is a handle of the same context.
///
/// ```
/// use iopath::{Context, IoMode, Options, Volume};
/// use iopath::testing::{MemoryConfig, MemoryDisk};
///
/// let context = Context::new(64 << 20);
/// let options = Options::new().mode(IoMode::Buffered).write(true).context(&context);
/// for number in 0..100_u8 {
///     let disk = MemoryDisk::new(&MemoryConfig::of_bytes(1 << 20))?;
///     let volume = Volume::memory(&disk, &options)?;
///     volume.write_at(&[number; 100], 5000)?;
///     assert!(context.stats().used_bytes <= 64 << 20);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Context {
    shared: Arc<Shared>,
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // There may be thousands of caches.
        f.debug_struct("Context").finish_non_exhaustive()
    }
}

/// The memory of a [`Context`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ContextStats {
    /// The limit.
    pub memory_bytes: u64,
    /// The part that caches may use.
    pub budget_bytes: u64,
    /// The part that caches use.
    pub used_bytes: u64,
    /// The number of open volumes with a page cache.
    pub volumes: usize,
    /// The number of caches of closed volumes ([`Context::keep_closed`]).
    pub kept_caches: usize,
    /// The part that these caches use, which `used_bytes` includes.
    pub kept_bytes: u64,
    /// How many volumes have got the cache of a closed one.
    pub reopened: u64,
}

#[derive(Debug)]
struct Shared {
    notifier: Arc<Notifier>,
    members: Arc<Mutex<Members>>,
    rings: RingPool,
    driver_threads: DriverThreads,
}

/// The caches of a context.
#[derive(Debug, Default)]
struct Members {
    memory_bytes: u64,
    /// The sum of the budgets.
    budget_bytes: u64,
    caches: BTreeMap<u64, Cache>,
    kept: KeptCaches,
    writers: Writers,
    reopened: u64,
    next: u64,
    has_keeper: bool,
}

#[derive(Debug)]
struct Cache {
    page_bytes: u32,
    budget_bytes: u64,
    /// `None` while the cache is being opened or closed.
    budget: Option<CacheBudget>,
    /// The last count of its uses.
    activity: u64,
    /// Rounds since it has changed.
    idle_rounds: u32,
}

/// The result of a round of the division.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Round {
    /// No cache lacks memory or has too much.
    Calm,
    /// Some do, and no budget has changed.
    Short,
    /// Budgets have changed.
    Changed,
}

/// The place of one cache in a context. Drop returns its memory.
#[derive(Debug)]
pub(crate) struct Member {
    context: Context,
    number: u64,
    /// `None`: the pages of the cache cannot be kept.
    life: Option<Life>,
}

impl Context {
    /// A context whose caches use at most `memory_bytes` bytes for pages. Their tables take about 4% of the most
    /// that each cache has used.
    pub fn new(memory_bytes: u64) -> Self {
        let members = Members { memory_bytes, ..Members::default() };
        let notifier = Arc::<Notifier>::default();
        let ring_notifier = Arc::clone(&notifier);
        let shared = Shared {
            notifier,
            members: Arc::new(Mutex::new(members)),
            rings: RingPool::new(move || ring_notifier.watch_rings()),
            driver_threads: DriverThreads::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Keeps the pages of up to `volumes` closed volumes, so that a volume that opens the same file again finds them.
    /// None unless set. They take memory that no open volume needs, and the longest closed volume loses its pages
    /// first.
    ///
    /// Pages are kept of regular files on ext4, XFS, and btrfs where statx reports direct I/O (Linux 6.1), whose bytes
    /// are on the medium. A volume gets the pages if its options of the cache are the same and the file is unchanged:
    /// the same inode, time of birth, length, mtime and ctime. No descriptor stays open.
    ///
    /// - A volume that has only read must have found the file unchanged for two seconds when it opened its cache, or be
    ///   open with [`Options::lock`](crate::Options::lock). Without a lock, it does not notice a single write call of
    ///   another program that began before these two seconds and ends after the open.
    /// - A volume that has written must be open with a lock, and no other writable volume of the context on the file,
    ///   in any mode, also as a member of a stripe or below a mapping. Writes of programs that ignore the lock are not
    ///   noticed while it is open.
    ///
    /// Changes of the file after the close are noticed, also through `mmap`, by rename and by `utimensat`.
    ///
    /// ```
    /// use iopath::Context;
    ///
    /// let context = Context::new(64 << 20);
    /// context.keep_closed(100);
    /// ```
    pub fn keep_closed(&self, volumes: usize) {
        let evicted = self.lock().kept.set_caches_max(volumes);
        drop(evicted);
    }

    /// Changes the limit. Caches that have more evict clean pages now, and others when these are written back.
    pub fn set_memory_bytes(&self, bytes: u64) {
        let mut members = self.lock();
        members.memory_bytes = bytes;
        let (round, evicted) = members.divide();
        drop(members);
        drop(evicted);
        if round > Round::Calm {
            self.shared.notifier.notify();
        }
    }

    /// The memory now.
    pub fn stats(&self) -> ContextStats {
        let members = self.lock();
        ContextStats {
            memory_bytes: members.memory_bytes,
            budget_bytes: members.budget_bytes,
            used_bytes: members.caches.values().map(Cache::used_bytes).sum::<u64>() + members.kept.bytes(),
            volumes: members.caches.len(),
            kept_caches: members.kept.len(),
            kept_bytes: members.kept.bytes(),
            reopened: members.reopened,
        }
    }

    /// The owner of the memory, for caches.
    pub(crate) fn demand(&self) -> Arc<dyn Demand> {
        Arc::clone(&self.shared.notifier) as Arc<dyn Demand>
    }

    /// The rings that closed volumes have left.
    pub(crate) fn rings(&self) -> &RingPool {
        &self.shared.rings
    }

    /// The threads for the futures of its volumes.
    pub(crate) fn driver_threads(&self) -> &DriverThreads {
        &self.shared.driver_threads
    }

    /// Whether pages of closed volumes are kept.
    pub(crate) fn keeps_closed(&self) -> bool {
        self.lock().kept.is_on()
    }

    /// Reserves memory for a cache that uses at most `bytes_max`. Returns also the pages that are kept for it.
    pub(crate) fn join(
        &self,
        config: &BufferedConfig,
        bytes_max: u64,
        mut life: Option<Life>,
    ) -> (Member, Option<KeptPages>) {
        let page_bytes = config.cache.page_bytes;
        let mut members = self.lock();
        let number = members.next;
        members.next += 1;
        let cache = Cache { page_bytes, budget_bytes: 0, budget: None, activity: 0, idle_rounds: 0 };
        members.caches.insert(number, cache);
        let (kept, evicted) = match &mut life {
            Some(life) => members.take_kept(life, config),
            None => (None, Evicted::default()),
        };
        // Half of the rest, so that the next cache can grow at once, too. A part of the kept memory counts as rest:
        // otherwise new caches would begin with the minimum as soon as kept pages fill the memory.
        let not_free = members.budget_bytes + members.kept.bytes() - members.kept.bytes() / KEPT_PART;
        let half = members.memory_bytes.saturating_sub(not_free) / 2;
        let kept_bytes = kept.as_ref().map_or(0, KeptPages::bytes);
        let bytes = half.max(kept_bytes).min(bytes_max).max(members.min_bytes(page_bytes));
        members.set_budget(number, bytes);
        let evicted = (evicted, members.fit_kept());
        drop(members);
        drop(evicted);
        (Member { context: self.clone(), number, life }, kept)
    }

    fn lock(&self) -> MutexGuard<'_, Members> {
        self.shared.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Member {
    /// The cache is open: it gets its budget, and its demands are heard from now on.
    pub(crate) fn open(&self, cache: &Buffered) {
        let mut members = self.context.lock();
        if !members.has_keeper {
            let Shared { notifier, members: shared, rings, .. } = &*self.context.shared;
            // Without the thread, each cache keeps the budget that it has.
            let started = keeper::start(Arc::clone(notifier), Arc::downgrade(shared), rings.clone());
            members.has_keeper = started.is_ok();
        }
        let Some(place) = members.caches.get_mut(&self.number) else { return };
        let bytes = place.budget_bytes;
        place.budget = Some(cache.budget());
        members.set_budget(self.number, bytes);
        if members.budget_bytes > members.memory_bytes {
            self.context.shared.notifier.notify();
        }
    }

    /// Closes the cache, and keeps its pages if that is possible.
    pub(crate) fn close(mut self, cache: Buffered) {
        self.leave();
        let Some(life) = self.life.take().filter(|_| self.context.keeps_closed()) else { return drop(cache) };
        let Some(pages) = cache.keep() else { return };
        // After the last I/O of the cache.
        let Some(closed) = life.end(&pages) else { return };
        let mut members = self.context.lock();
        if closed.is_changed && !members.writers.is_alone(closed.version.id()) {
            return;
        }
        // Before the pages: then their memory is reserved once.
        members.remove(self.number);
        let mut evicted = members.kept.add(closed.version, pages);
        evicted.extend(members.fit_kept());
        drop(members);
        drop(evicted);
    }

    /// Waits for a division that is going on, so that no other thread uses the cache from now on. Its memory stays
    /// reserved.
    pub(crate) fn leave(&self) {
        if let Some(cache) = self.context.lock().caches.get_mut(&self.number) {
            cache.budget = None;
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.context.lock().remove(self.number);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.notifier.close();
    }
}

impl Cache {
    fn used_bytes(&self) -> u64 {
        let usage = self.budget.as_ref().and_then(CacheBudget::usage);
        usage.map_or(0, |usage| u64::from(usage.used_pages) * u64::from(self.page_bytes))
    }

    /// Its share. `None` for a cache that is being opened or closed.
    fn look(&mut self, min: u64) -> Option<Share> {
        let usage = self.budget.as_ref()?.take_usage()?;
        let is_used = std::mem::replace(&mut self.activity, usage.activity) != usage.activity;
        self.idle_rounds = if is_used { 0 } else { self.idle_rounds.saturating_add(1) };
        let bytes = |pages: u32| u64::from(pages) * u64::from(self.page_bytes);
        Some(Share {
            budget: self.budget_bytes,
            used: bytes(usage.used_pages),
            min,
            max: bytes(usage.budget_pages_max),
            is_short: usage.pressure > 0,
            is_idle: self.idle_rounds >= IDLE_ROUNDS,
        })
    }
}

impl Members {
    /// The minimum of a cache.
    fn min_bytes(&self, page_bytes: u32) -> u64 {
        let page = u64::from(page_bytes);
        let fair = self.memory_bytes / self.caches.len().max(1) as u64;
        (PAGES_MIN * page).min(fair / page * page).max(page)
    }

    fn set_budget(&mut self, number: u64, bytes: u64) {
        let Some(cache) = self.caches.get_mut(&number) else { return };
        self.budget_bytes = self.budget_bytes - cache.budget_bytes + bytes;
        cache.budget_bytes = bytes;
        if let Some(budget) = &cache.budget {
            budget.set_pages(u32::try_from(bytes / u64::from(cache.page_bytes)).unwrap_or(u32::MAX));
        }
    }

    /// The pages that are kept for a cache.
    fn take_kept(&mut self, life: &mut Life, config: &BufferedConfig) -> (Option<KeptPages>, Evicted) {
        let (kept, evicted) = self.kept.take(life.opened(), config);
        if kept.is_some() {
            life.take_over();
            self.reopened += 1;
        }
        (kept, evicted)
    }

    /// A cache is closed.
    fn remove(&mut self, number: u64) {
        let Some(cache) = self.caches.remove(&number) else { return };
        self.budget_bytes -= cache.budget_bytes;
    }

    /// Evicts pages of closed volumes, so that all caches have no more than the memory.
    fn fit_kept(&mut self) -> Evicted {
        self.kept.shrink(self.memory_bytes.saturating_sub(self.budget_bytes))
    }

    /// One round of a division.
    fn divide(&mut self) -> (Round, Evicted) {
        let mut numbers = Vec::with_capacity(self.caches.len());
        let mut shares = Vec::with_capacity(self.caches.len());
        let mut reserved = 0;
        let fair = |page_bytes| self.min_bytes(page_bytes);
        let minimums: Vec<u64> = self.caches.values().map(|cache| fair(cache.page_bytes)).collect();
        for ((number, cache), min) in self.caches.iter_mut().zip(minimums) {
            match cache.look(min) {
                Some(share) => {
                    numbers.push(*number);
                    shares.push(share);
                }
                None => reserved += cache.budget_bytes,
            }
        }
        let is_short = shares.iter().any(|share| share.is_short);
        let before: Vec<u64> = shares.iter().map(|share| share.budget).collect();
        let memory = self.memory_bytes.saturating_sub(reserved);
        let kept = share::divide(memory, self.kept.bytes(), &mut shares);
        let evicted = self.kept.shrink(kept);
        let mut round = if is_short { Round::Short } else { Round::Calm };
        // Smaller budgets first, so that the sum stays within the memory.
        for is_growing in [false, true] {
            for ((number, share), before) in numbers.iter().zip(&shares).zip(&before) {
                let is_changed = share.budget != *before;
                // No call of the cache may have noticed that its borrowed pages were returned.
                let is_above = share.used > share.budget;
                if (is_changed || is_above) && (share.budget > *before) == is_growing {
                    self.set_budget(*number, share.budget);
                    round = if is_changed { Round::Changed } else { round.max(Round::Short) };
                }
            }
        }
        (round, evicted)
    }
}
