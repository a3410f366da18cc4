//! The shared memory and locks of the index of a WAL, in the heap: all connections are in this process.

use sqlite_plugin::flags::ShmLockMode;
use sqlite_plugin::vars::{SQLITE_BUSY, SQLITE_IOERR_SHMLOCK};
use sqlite_plugin::vfs::VfsResult;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// The number of locks (`SQLITE_SHM_NLOCK`).
const LOCKS: usize = 8;

/// The regions and locks of a database.
#[derive(Debug, Default)]
pub(crate) struct Shm {
    /// Atomics, because SQLite changes the memory through pointers.
    regions: Vec<Box<[AtomicU64]>>,
    slots: [Slot; LOCKS],
    /// Connections that have mapped a region.
    users: usize,
}

#[derive(Debug, Default, Clone, Copy)]
struct Slot {
    shared: usize,
    is_exclusive: bool,
}

/// The locks of a connection, a bit for each slot.
#[derive(Debug, Default)]
pub(crate) struct Held {
    shared: u8,
    exclusive: u8,
    is_user: bool,
}

impl Shm {
    /// The region with that number. `None` if it does not exist and `extend` is false.
    pub(crate) fn map(
        &mut self,
        held: &mut Held,
        region: usize,
        bytes: usize,
        extend: bool,
    ) -> Option<NonNull<u8>> {
        if !held.is_user {
            held.is_user = true;
            self.users += 1;
        }
        if region >= self.regions.len() {
            if !extend {
                return None;
            }
            let zeroes = || (0..bytes.div_ceil(8)).map(|_| AtomicU64::new(0)).collect();
            self.regions.resize_with(region + 1, zeroes);
        }
        let first = self.regions[region].first()?;
        NonNull::new(first.as_ptr()).map(NonNull::cast)
    }

    /// Takes or releases the locks of `count` slots.
    pub(crate) fn lock(
        &mut self,
        held: &mut Held,
        offset: u32,
        count: u32,
        mode: ShmLockMode,
    ) -> VfsResult<()> {
        let (first, end) = (offset as usize, offset as usize + count as usize);
        if count == 0 || end > LOCKS {
            return Err(SQLITE_IOERR_SHMLOCK);
        }
        let bits = (first..end).fold(0_u8, |bits, slot| bits | 1 << slot);
        let slots = &mut self.slots[first..end];
        match mode {
            ShmLockMode::LockShared => {
                if held.shared & bits == bits {
                    return Ok(());
                }
                if slots.iter().any(|slot| slot.is_exclusive) {
                    return Err(SQLITE_BUSY);
                }
                slots.iter_mut().for_each(|slot| slot.shared += 1);
                held.shared |= bits;
            }
            ShmLockMode::LockExclusive => {
                if held.exclusive & bits == bits {
                    return Ok(());
                }
                if slots.iter().any(|slot| slot.is_exclusive || slot.shared > 0) {
                    return Err(SQLITE_BUSY);
                }
                slots.iter_mut().for_each(|slot| slot.is_exclusive = true);
                held.exclusive |= bits;
            }
            ShmLockMode::UnlockShared | ShmLockMode::UnlockExclusive => self.release(held, bits),
        }
        Ok(())
    }

    /// Releases what the connection holds. The memory goes with its last user, as the file does on disk.
    pub(crate) fn unmap(&mut self, held: &mut Held) {
        self.release(held, u8::MAX);
        if std::mem::take(&mut held.is_user) {
            self.users -= 1;
            if self.users == 0 {
                self.regions.clear();
            }
        }
    }

    fn release(&mut self, held: &mut Held, bits: u8) {
        for (number, slot) in self.slots.iter_mut().enumerate() {
            let bit = bits & (1 << number);
            if held.shared & bit != 0 {
                slot.shared -= 1;
            }
            if held.exclusive & bit != 0 {
                slot.is_exclusive = false;
            }
        }
        held.shared &= !bits;
        held.exclusive &= !bits;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ShmLockMode::{LockExclusive, LockShared, UnlockExclusive, UnlockShared};

    #[test]
    fn exclusive_locks_exclude_and_shared_ones_do_not() {
        let mut shm = Shm::default();
        let (mut first, mut second) = (Held::default(), Held::default());
        shm.lock(&mut first, 3, 1, LockShared).unwrap();
        shm.lock(&mut second, 3, 1, LockShared).unwrap();
        assert_eq!(shm.lock(&mut second, 2, 3, LockExclusive), Err(SQLITE_BUSY));
        shm.lock(&mut first, 3, 1, UnlockShared).unwrap();
        shm.lock(&mut second, 3, 1, UnlockShared).unwrap();
        shm.lock(&mut second, 2, 3, LockExclusive).unwrap();
        assert_eq!(shm.lock(&mut first, 4, 1, LockShared), Err(SQLITE_BUSY));
        shm.lock(&mut second, 2, 3, UnlockExclusive).unwrap();
        shm.lock(&mut first, 4, 1, LockExclusive).unwrap();
        assert_eq!(shm.lock(&mut first, 7, 2, LockShared), Err(SQLITE_IOERR_SHMLOCK));
        shm.unmap(&mut first);
        shm.lock(&mut second, 4, 1, LockExclusive).unwrap();
    }

    #[test]
    fn regions_keep_their_address_until_the_last_user() {
        let mut shm = Shm::default();
        let (mut first, mut second) = (Held::default(), Held::default());
        assert!(shm.map(&mut first, 0, 32 << 10, false).is_none());
        let region = shm.map(&mut first, 0, 32 << 10, true).unwrap();
        shm.map(&mut second, 5, 32 << 10, true).unwrap();
        assert_eq!(shm.map(&mut second, 0, 32 << 10, false), Some(region));
        shm.unmap(&mut first);
        assert_eq!(shm.map(&mut second, 0, 32 << 10, false), Some(region));
        shm.unmap(&mut second);
        assert!(shm.regions.is_empty());
    }
}
