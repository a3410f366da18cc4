//! The engines that volumes of this process have opened, so that a further volume on the same device can open its page
//! cache and engine at its first I/O, and know the engine before.

use iopath_os::target::{DeviceNumber, Kind};
use iopath_os::{Engine, Fallback, Reason};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The maximum number of entries: further ones are not recorded.
const ENTRIES_MAX: usize = 256;

static KNOWN: Mutex<Vec<(EngineKey, KnownEngine)>> = Mutex::new(Vec::new());

/// The volumes that use the same engine: those of one kind on one device, with the same options of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EngineKey {
    pub(crate) kind: Kind,
    pub(crate) device: DeviceNumber,
    pub(crate) engine: Engine,
    pub(crate) depth: u32,
}

/// The engine that the first of these volumes uses.
#[derive(Debug, Clone)]
pub(crate) struct KnownEngine {
    pub(crate) engine: &'static str,
    pub(crate) fallback: Option<Fallback>,
}

impl KnownEngine {
    /// The engine of volumes that were opened before.
    pub(crate) fn of(key: &EngineKey) -> Option<Self> {
        lock().iter().find(|(known, _)| known == key).map(|(_, engine)| engine.clone())
    }

    /// Records the engine of a volume, unless that of others may differ: by the memory that they lock, or by the files
    /// that are open then.
    pub(crate) fn record(self, key: EngineKey) {
        let may_differ = |fallback: &Fallback| {
            matches!(
                fallback.reason,
                Reason::Memlock | Reason::Buffers(_) | Reason::OpenFiles | Reason::Os(_)
            )
        };
        let mut known = lock();
        let is_known = known.iter().any(|(other, _)| *other == key);
        if !is_known && known.len() < ENTRIES_MAX && !self.fallback.as_ref().is_some_and(may_differ) {
            known.push((key, self));
        }
    }
}

fn lock() -> MutexGuard<'static, Vec<(EngineKey, KnownEngine)>> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}
