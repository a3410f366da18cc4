//! Fault injection for real devices: a fault plan shared by devices and threads, and the wait for a faulty device. The
//! core executes the faults ([`FaultyDevice`]).

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use iopath_core::{
    BlockDevice, Busy, Completion, Damage, Duration, Extent, Fault, FaultPlan, FaultSource, FaultyDevice,
    Instant, Io, Limits, Op, Outcome,
};

use super::{MemoryDisk, Notifier, RealDevice, WaitError};
use crate::clock;
use crate::memory::Segment;

/// The time between polls of a device with delayed or stuck requests. Their release has no notification.
const HELD_POLL: Duration = Duration::from_millis(1);

/// A fault plan shared by devices. Clones are the same plan: a change applies to every device that has one, from the
/// next request on. The same requests in the same order get the same faults.
///
/// ```
/// use iopath_core::{IoError, Op};
/// use iopath_os::{Fault, Faults, Faulty, MemoryConfig, MemoryDisk};
///
/// let disk = MemoryDisk::new(&MemoryConfig::of_bytes(1 << 20))?;
/// let faults = Faults::new(7);
/// faults.add(Fault::error(IoError::Media).on(Op::Write).one_in(100));
/// faults.add(Fault::short().one_in(10));
/// let device = Faulty::new(Box::new(disk.open()), &faults);
/// # let _ = device;
/// # Ok::<(), iopath_os::NoMemory>(())
/// ```
#[derive(Clone)]
pub struct Faults {
    shared: Arc<Mutex<Shared>>,
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faults").finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Shared {
    plan: FaultPlan,
    /// Loses data when a flush fails.
    disk: Option<MemoryDisk>,
    /// Its bits change by bit rot.
    rotting: Option<MemoryDisk>,
}

impl Faults {
    /// A plan without rules.
    pub fn new(seed: u64) -> Self {
        Self {
            shared: Arc::new(Mutex::new(Shared { plan: FaultPlan::new(seed), disk: None, rotting: None })),
        }
    }

    /// Adds a rule. The first rule that applies to a request decides.
    pub fn add(&self, fault: Fault) {
        self.lock().plan.add(fault);
    }

    /// Removes all rules.
    pub fn clear(&self) {
        self.lock().plan.clear();
    }

    /// Sets whether requests are executed in random order, each after a random delay.
    pub fn shuffle(&self, is_shuffled: bool) {
        self.lock().plan.shuffle(is_shuffled);
    }

    /// Makes each failed flush lose a random part of the unflushed data of `disk`.
    pub fn lose_on_failed_flush(&self, disk: &MemoryDisk) {
        self.lock().disk = Some(disk.clone());
    }

    /// Applies bit rot to the medium of `disk`. Without a disk, bit rot has no effect.
    pub fn rot(&self, disk: &MemoryDisk) {
        self.lock().rotting = Some(disk.clone());
    }

    /// Ends the wait of delayed and stuck requests.
    pub fn release(&self) {
        self.lock().plan.release();
    }

    /// Ends all faults: removes the rules, ends the shuffle and releases delayed and stuck requests.
    pub fn stop(&self) {
        self.lock().plan.stop();
    }

    /// Keeps the damage of silent faults from now on, for [`Faults::take_damage`].
    pub fn keep_damage(&self) {
        self.lock().plan.keep_damage();
    }

    /// The damage of silent faults since the last call.
    pub fn take_damage(&self) -> Vec<Damage> {
        self.lock().plan.take_damage()
    }

    /// Faults injected so far.
    pub fn injected(&self) -> u64 {
        self.lock().plan.injected()
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FaultSource for Faults {
    fn draw(&mut self, op: Op, extent: Extent, block_bytes: u64, moved_min: u64) -> Outcome {
        self.lock().plan.draw(op, extent, block_bytes, moved_min)
    }

    fn is_shuffled(&self) -> bool {
        self.lock().plan.is_shuffled()
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.lock().plan.below(bound)
    }

    fn on_failed_flush(&mut self) {
        let Shared { plan, disk, .. } = &mut *self.lock();
        if let Some(disk) = disk {
            disk.lose_unsaved(|versions| plan.below(u64::from(versions) + 1) as u32);
        }
    }

    fn releases(&self) -> u64 {
        self.lock().plan.releases()
    }

    fn on_damage(&mut self, damage: Damage) {
        let Shared { plan, rotting, .. } = &mut *self.lock();
        if let (Damage::BitFlipped { offset, bit }, Some(disk)) = (damage, rotting) {
            disk.flip_bit(offset, bit);
        }
        plan.on_damage(damage);
    }
}

/// A real device with faults.
#[derive(Debug)]
pub struct Faulty<D: ?Sized + RealDevice> {
    device: FaultyDevice<Box<D>, Faults>,
    notifier: Option<Notifier>,
}

impl<D: ?Sized + RealDevice> Faulty<D> {
    /// Injects the faults of `faults` into `inner`.
    ///
    /// # Panics
    /// If `inner` has requests in flight: it would report their completions to this device.
    pub fn new(inner: Box<D>, faults: &Faults) -> Self {
        assert!(inner.in_flight() == 0, "the device already has requests in flight");
        Self { device: FaultyDevice::new(inner, faults.clone()), notifier: None }
    }
}

impl<D: ?Sized + RealDevice> BlockDevice for Faulty<D> {
    type Memory = Segment;

    fn limits(&self) -> &Limits {
        self.device.limits()
    }

    fn submit(&mut self, io: &Io<'_, Segment>, now: Instant) -> Result<(), Busy> {
        self.device.submit(io, now)
    }

    fn commit(&mut self, now: Instant) {
        self.device.commit(now);
        if let Some(notifier) = self.notifier.as_ref().filter(|_| self.device.ready() > 0) {
            // The inner device does not announce requests that failed before a transfer.
            notifier.notify();
        }
    }

    fn poll_completion(&mut self, now: Instant) -> Option<Completion> {
        self.device.poll_completion(now)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        // No notification announces the release of a stuck request.
        let is_held = self.notifier.is_some() && self.device.held() > 0;
        let held = is_held.then(|| clock::now() + HELD_POLL);
        [self.device.poll_timeout(), held].into_iter().flatten().min()
    }
}

// SAFETY: a request is reported as completed only when no part of it is at the inner device, which accesses its memory
// only while one is; `FaultyDevice` accesses no memory. The inner device is dropped first and waits for its requests.
unsafe impl<D: ?Sized + RealDevice> RealDevice for Faulty<D> {
    fn commit_and_wait(&mut self, completions: u32, timeout: Option<Duration>) -> Result<(), WaitError> {
        let wanted = completions.min(self.in_flight());
        loop {
            let now = clock::now();
            self.device.advance(now);
            if self.device.ready() >= wanted {
                self.device.inner_mut().commit(now);
                return Ok(());
            }
            if self.device.held() == 0 {
                self.device.inner_mut().commit_and_wait(1, timeout)?;
            } else {
                let step = timeout.map_or(HELD_POLL, |timeout| timeout.min(HELD_POLL));
                if self.device.inner().in_flight() == 0 {
                    thread::sleep(step);
                } else {
                    self.device.inner_mut().commit_and_wait(1, Some(step))?;
                }
            }
            if timeout.is_some() {
                return Ok(());
            }
        }
    }

    fn end_watch(&mut self) {
        self.device.inner_mut().end_watch();
    }

    fn set_capacity(&mut self, sectors: u64) {
        self.device.inner_mut().set_capacity(sectors);
    }

    fn in_flight(&self) -> u32 {
        self.device.in_flight()
    }

    fn syscalls(&self) -> u64 {
        self.device.inner().syscalls()
    }

    fn fills_reads(&self) -> bool {
        self.device.inner().fills_reads()
    }

    fn set_notifier(&mut self, notifier: &Notifier) -> io::Result<()> {
        self.device.inner_mut().set_notifier(notifier)?;
        self.notifier = Some(notifier.clone());
        Ok(())
    }
}
