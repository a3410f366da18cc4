//! Memory that the page caches of many volumes share. Does not order the I/O of the volumes: each has a queue of its
//! own.

mod keeper;
mod share;

use iopath_os::target::{DeviceNumber, KnownFilesystems, Target, TargetError};
use iopath_os::{Buffered, CacheBudget, Demand, Engine, Fallback};
use keeper::Notifier;
use share::Share;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The minimum of a cache, in pages: some are at the device, others in use by readers and writers.
const PAGES_MIN: u64 = 16;

/// A cache that no call has used for this many rounds of a division is idle.
const IDLE_ROUNDS: u32 = 50;

/// Memory for the page caches of any number of volumes ([`Options::context`](crate::Options::context)).
///
/// A cache gets memory when it first needs it. While memory is left, each cache grows as if it were alone. After that,
/// a cache that evicts pages gets memory that others do not use, then memory of caches that are idle, and, until all
/// have equal shares, memory of larger caches. Each keeps a minimum of 16 pages, or of its equal share if that is less.
/// A cache that must give memory evicts its coldest clean pages. Dirty and borrowed pages stay, so the memory in use
/// can exceed the limit until they are written back or returned: no read waits for memory of another volume.
///
/// Opening many volumes is cheap. The context inspects each filesystem once, and a volume opens its cache and its
/// engine at its first I/O, except the first volume of a filesystem.
///
/// A clone is a handle of the same context.
///
/// ```
/// use iopath::{Context, IoMode, MemoryConfig, MemoryDisk, Options, Volume};
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
#[derive(Debug, Clone)]
pub struct Context {
    shared: Arc<Shared>,
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
}

#[derive(Debug)]
struct Shared {
    filesystems: KnownFilesystems,
    engines: Mutex<Vec<(EngineKey, KnownEngine)>>,
    notifier: Arc<Notifier>,
    members: Arc<Mutex<Members>>,
}

/// The volumes that use the same engine: those on one device, with the same options of the engine.
pub(crate) type EngineKey = (DeviceNumber, Engine, u32);

/// The engine that the first volume of a device uses.
#[derive(Debug, Clone)]
pub(crate) struct KnownEngine {
    pub(crate) engine: &'static str,
    pub(crate) fallback: Option<Fallback>,
}

/// The caches of a context.
#[derive(Debug)]
struct Members {
    memory_bytes: u64,
    /// The sum of the budgets.
    budget_bytes: u64,
    caches: BTreeMap<u64, Cache>,
    next: u64,
    has_keeper: bool,
}

#[derive(Debug)]
struct Cache {
    page_bytes: u32,
    budget_bytes: u64,
    /// `None` while the cache is being opened.
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
}

impl Context {
    /// A context whose caches use at most `memory_bytes` bytes for pages. Their tables take about 4% of the largest
    /// budget that each cache has had.
    pub fn new(memory_bytes: u64) -> Self {
        let members =
            Members { memory_bytes, budget_bytes: 0, caches: BTreeMap::new(), next: 0, has_keeper: false };
        let shared = Shared {
            filesystems: KnownFilesystems::default(),
            engines: Mutex::default(),
            notifier: Arc::default(),
            members: Arc::new(Mutex::new(members)),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Changes the limit. Caches that have more evict clean pages now, and others when these are written back.
    pub fn set_memory_bytes(&self, bytes: u64) {
        let mut members = self.lock();
        members.memory_bytes = bytes;
        if members.divide() > Round::Calm {
            self.shared.notifier.notify();
        }
    }

    /// The memory now.
    pub fn stats(&self) -> ContextStats {
        let members = self.lock();
        ContextStats {
            memory_bytes: members.memory_bytes,
            budget_bytes: members.budget_bytes,
            used_bytes: members.caches.values().map(Cache::used_bytes).sum(),
            volumes: members.caches.len(),
        }
    }

    /// Reserves memory for a cache with pages of `page_bytes` that uses at most `bytes_max`.
    pub(crate) fn join(&self, page_bytes: u32, bytes_max: u64) -> Member {
        let mut members = self.lock();
        let number = members.next;
        members.next += 1;
        let cache = Cache { page_bytes, budget_bytes: 0, budget: None, activity: 0, idle_rounds: 0 };
        members.caches.insert(number, cache);
        // Half of the rest, so that the next cache can grow at once, too.
        let half = members.memory_bytes.saturating_sub(members.budget_bytes) / 2;
        let bytes = half.min(bytes_max).max(members.min_bytes(page_bytes));
        members.set_budget(number, bytes);
        Member { context: self.clone(), number }
    }

    /// The properties of a target.
    pub(crate) fn inspect(&self, path: &Path) -> Result<Target, TargetError> {
        self.shared.filesystems.inspect(path)
    }

    /// The engine of volumes that are open.
    pub(crate) fn known_engine(&self, key: &EngineKey) -> Option<KnownEngine> {
        let engines = self.shared.engines.lock().unwrap_or_else(PoisonError::into_inner);
        engines.iter().find(|(known, _)| known == key).map(|(_, engine)| engine.clone())
    }

    pub(crate) fn record_engine(&self, key: EngineKey, engine: KnownEngine) {
        let mut engines = self.shared.engines.lock().unwrap_or_else(PoisonError::into_inner);
        if !engines.iter().any(|(known, _)| *known == key) {
            engines.push((key, engine));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Members> {
        self.shared.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Member {
    /// The owner of the memory, for the cache.
    pub(crate) fn demand(&self) -> Arc<dyn Demand> {
        Arc::clone(&self.context.shared.notifier) as Arc<dyn Demand>
    }

    /// The cache is open: it gets its budget, and its demands are heard from now on.
    pub(crate) fn open(&self, cache: &Buffered) {
        let mut members = self.context.lock();
        if !members.has_keeper {
            let Shared { notifier, members: shared, .. } = &*self.context.shared;
            // Without the thread, each cache keeps the budget that it has.
            members.has_keeper = keeper::start(Arc::clone(notifier), Arc::downgrade(shared)).is_ok();
        }
        let Some(place) = members.caches.get_mut(&self.number) else { return };
        let bytes = place.budget_bytes;
        place.budget = Some(cache.budget());
        members.set_budget(self.number, bytes);
        if members.budget_bytes > members.memory_bytes {
            self.context.shared.notifier.notify();
        }
    }
}

impl Drop for Member {
    /// Waits for a division that is going on, so that no thread uses the cache when it is closed.
    fn drop(&mut self) {
        let mut members = self.context.lock();
        if let Some(cache) = members.caches.remove(&self.number) {
            members.budget_bytes -= cache.budget_bytes;
        }
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

    /// One round of a division.
    fn divide(&mut self) -> Round {
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
        share::divide(self.memory_bytes.saturating_sub(reserved), &mut shares);
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
        round
    }
}
