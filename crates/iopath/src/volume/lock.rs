//! Locks of an open volume against other programs. The lock of `Options::lock`, taken at open: `source.rs`.

use super::Volume;
use crate::error::OpenError;
use iopath_os::target::{self, FileLock};
use rustix::io::Errno;
use std::sync::PoisonError;

impl Volume {
    /// Locks the file or device exclusively against other programs and other volumes, as [`Options::lock`] does at
    /// open: for a program that opens a volume first and becomes its writer later. The volume must be writable. A
    /// shared lock of this volume ([`Volume::try_lock_shared`]) becomes exclusive.
    ///
    /// The lock is that of the open file: all clones of the volume have it, and it ends with the last one, or with
    /// [`Volume::unlock`]. Does not wait for a program that holds a lock, but up to a second for one that is releasing
    /// it, because the kernel releases locks late. A source without locks is not locked: see [`Options::lock`].
    ///
    /// Bytes in the page cache are as old as before the lock. A program that reads through a cache opens the volume
    /// with [`Options::lock`] instead, or drops the cached pages
    /// ([`Advice::DontNeed`](crate::Advice::DontNeed)).
    ///
    /// # Errors
    /// [`OpenError::Refused`] if another program or volume holds a lock; [`OpenError::System`] if the volume is
    /// read-only.
    ///
    /// [`Options::lock`]: crate::Options::lock
    pub fn try_lock(&self) -> Result<(), OpenError> {
        if !self.is_writable() {
            return Err(OpenError::System {
                path: self.facts().path.clone(),
                what: "locked exclusively: the volume is read-only",
                source: Errno::BADF.into(),
            });
        }
        self.lock_as(true)
    }

    /// Locks the file or device against programs that lock it exclusively; others may have a shared lock, too. An
    /// exclusive lock of this volume becomes shared, unless it is the one of [`Options::lock`](crate::Options::lock):
    /// that one stays.
    ///
    /// # Errors
    /// [`OpenError::Refused`] if another program or volume holds an exclusive lock.
    pub fn try_lock_shared(&self) -> Result<(), OpenError> {
        let options = &self.storage().options;
        self.lock_as(options.lock && options.write)
    }

    /// Releases a lock of [`Volume::try_lock`] or [`Volume::try_lock_shared`]. A lock of
    /// [`Options::lock`](crate::Options::lock) stays until the volume is closed. Does not flush: flush before.
    ///
    /// # Errors
    /// [`OpenError::Refused`] if the volume has the shared lock of [`Options::lock`](crate::Options::lock), and the
    /// system refuses to return to it.
    pub fn unlock(&self) -> Result<(), OpenError> {
        if self.storage().options.lock {
            return self.try_lock_shared();
        }
        self.shared.locks.lock().unwrap_or_else(PoisonError::into_inner).clear();
        Ok(())
    }

    fn lock_as(&self, is_exclusive: bool) -> Result<(), OpenError> {
        // Locked first: calls of two threads must not mix on the members of a stripe.
        let mut locks = self.shared.locks.lock().unwrap_or_else(PoisonError::into_inner);
        let files = self.source().files();
        for (done, file) in files.iter().enumerate() {
            if let Err(refused) = target::lock(&self.facts().target, file, is_exclusive) {
                // A member that had no lock before has none after a refusal.
                if locks.is_empty() {
                    files[..done].iter().for_each(|file| drop(FileLock::of(file.clone())));
                }
                return Err(refused.into());
            }
        }
        if locks.is_empty() {
            locks.extend(files.into_iter().map(FileLock::of));
        }
        Ok(())
    }
}
