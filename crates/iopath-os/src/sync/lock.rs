//! Locks and condition variables of an explored build. They use those of `shuttle`, and add a wait with a timeout and a
//! poison flag. A wait on a condition variable never ends spuriously, since a spurious end could hide a missing
//! notification.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, LockResult, PoisonError, TryLockError, TryLockResult};
use std::time::Duration;

use shuttle::rand::Rng;

use super::time::{self, Wakes};
use super::waiter::Waiter;

/// The [`std::sync::Mutex`] of an explored build.
#[derive(Default)]
pub struct Mutex<T: ?Sized> {
    is_poisoned: AtomicBool,
    inner: shuttle::sync::Mutex<T>,
}

/// The [`std::sync::MutexGuard`] of an explored build.
pub struct MutexGuard<'a, T: ?Sized> {
    mutex: &'a Mutex<T>,
    inner: shuttle::sync::MutexGuard<'a, T>,
}

impl<T> Mutex<T> {
    /// Does the same as [`std::sync::Mutex::new`].
    pub const fn new(value: T) -> Self {
        Self { is_poisoned: AtomicBool::new(false), inner: shuttle::sync::Mutex::new(value) }
    }

    /// Does the same as [`std::sync::Mutex::into_inner`].
    pub fn into_inner(self) -> LockResult<T> {
        self.inner.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Does the same as [`std::sync::Mutex::lock`].
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        match self.inner.lock() {
            Ok(inner) => Ok(MutexGuard { mutex: self, inner }),
            Err(error) => Err(PoisonError::new(MutexGuard { mutex: self, inner: error.into_inner() })),
        }
    }

    /// Does the same as [`std::sync::Mutex::try_lock`].
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        match self.inner.try_lock() {
            Ok(inner) => Ok(MutexGuard { mutex: self, inner }),
            Err(TryLockError::WouldBlock) => Err(TryLockError::WouldBlock),
            Err(TryLockError::Poisoned(error)) => {
                let guard = MutexGuard { mutex: self, inner: error.into_inner() };
                Err(TryLockError::Poisoned(PoisonError::new(guard)))
            }
        }
    }

    /// Does the same as [`std::sync::Mutex::get_mut`].
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        self.inner.get_mut()
    }

    /// Does the same as [`std::sync::Mutex::is_poisoned`].
    pub fn is_poisoned(&self) -> bool {
        self.is_poisoned.load(SeqCst)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.mutex.is_poisoned.store(true, SeqCst);
        }
    }
}

/// The [`std::sync::Condvar`] of an explored build. The scheduler's random numbers choose which waiter is notified.
#[derive(Debug, Default)]
pub struct Condvar {
    // A lock of the standard library suffices: the scheduler switches no task while it is locked.
    waiters: std::sync::Mutex<Vec<Arc<Waiter>>>,
}

/// The [`std::sync::WaitTimeoutResult`] of an explored build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Whether the timeout has passed.
    pub const fn timed_out(self) -> bool {
        self.0
    }
}

impl Condvar {
    /// Does the same as [`std::sync::Condvar::new`].
    pub const fn new() -> Self {
        Self { waiters: std::sync::Mutex::new(Vec::new()) }
    }

    fn waiters(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Waiter>>> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_for<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Option<Duration>,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        let mutex = guard.mutex;
        let waiter = Arc::new(Waiter::new());
        self.waiters().push(Arc::clone(&waiter));
        let timer = timeout.map(|timeout| time::arm(timeout, Wakes::Waiter(Arc::clone(&waiter))));
        drop(guard);
        waiter.wait();
        drop(timer);
        self.waiters().retain(|other| !Arc::ptr_eq(other, &waiter));
        let result = WaitTimeoutResult(waiter.has_timed_out());
        match mutex.lock() {
            Ok(guard) => Ok((guard, result)),
            Err(error) => Err(PoisonError::new((error.into_inner(), result))),
        }
    }

    /// Does the same as [`std::sync::Condvar::wait`].
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        let waited = self.wait_for(guard, None);
        waited.map(|(guard, _)| guard).map_err(|error| PoisonError::new(error.into_inner().0))
    }

    /// Does the same as [`std::sync::Condvar::wait_while`].
    pub fn wait_while<'a, T, F: FnMut(&mut T) -> bool>(
        &self,
        mut guard: MutexGuard<'a, T>,
        mut condition: F,
    ) -> LockResult<MutexGuard<'a, T>> {
        while condition(&mut guard) {
            guard = self.wait(guard)?;
        }
        Ok(guard)
    }

    /// Does the same as [`std::sync::Condvar::wait_timeout`].
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        self.wait_for(guard, Some(timeout))
    }

    /// Does the same as [`std::sync::Condvar::wait_timeout_while`].
    pub fn wait_timeout_while<'a, T, F: FnMut(&mut T) -> bool>(
        &self,
        mut guard: MutexGuard<'a, T>,
        timeout: Duration,
        mut condition: F,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        let end = time::elapsed() + timeout;
        while condition(&mut guard) {
            let left = end.saturating_sub(time::elapsed());
            if left.is_zero() {
                return Ok((guard, WaitTimeoutResult(true)));
            }
            guard = self.wait_for(guard, Some(left))?.0;
        }
        Ok((guard, WaitTimeoutResult(false)))
    }

    /// Does the same as [`std::sync::Condvar::notify_one`].
    pub fn notify_one(&self) {
        shuttle::thread::sleep(Duration::ZERO);
        loop {
            let waiter = {
                let mut waiters = self.waiters();
                if waiters.is_empty() {
                    return;
                }
                let chosen = shuttle::rand::thread_rng().gen_range(0..waiters.len());
                waiters.remove(chosen)
            };
            // A waiter whose time has passed does not count.
            if waiter.notify() {
                return;
            }
        }
    }

    /// Does the same as [`std::sync::Condvar::notify_all`].
    pub fn notify_all(&self) {
        shuttle::thread::sleep(Duration::ZERO);
        let waiters = std::mem::take(&mut *self.waiters());
        for waiter in waiters {
            waiter.notify();
        }
    }
}
