//! The devices below the queues of a volume: disks with faults, stripes of them, and mapped files on either.

use std::cell::RefCell;
use std::rc::Rc;

use iopath_core::mapped::{EngineId, MappedDevice, MappedFile, MappedHost};
use iopath_core::{
    BlockDevice, Busy, Completion, Damage, Extent, FaultPlan, FaultSource, FaultyDevice, Instant, Io,
    IoError, Limits, Op, Outcome, Stripe,
};

use crate::arena::{Arena, Owner, Span};
use crate::disk::Port;

/// The faults of one disk, shared by its ports.
pub(crate) type Faults = Rc<RefCell<DiskFaults>>;

/// A plan of faults, and the loss of a write cache.
#[derive(Debug)]
pub(crate) struct DiskFaults {
    pub(crate) plan: FaultPlan,
    /// A failed flush loses the bytes of the write cache.
    pub(crate) flush_loses: bool,
    /// A flush has failed, and the write cache has not lost its bytes yet.
    pub(crate) is_cache_lost: bool,
    /// The disk has no space: it refuses all writes.
    pub(crate) is_full: bool,
    /// The number of writes that it has refused for that.
    pub(crate) refused: u64,
}

impl FaultSource for DiskFaults {
    fn draw(&mut self, op: Op, extent: Extent, block_bytes: u64, moved_min: u64) -> Outcome {
        if self.is_full && op == Op::Write {
            self.refused += 1;
            return Outcome::Error { moved: 0, error: IoError::NoSpace };
        }
        self.plan.draw(op, extent, block_bytes, moved_min)
    }

    fn is_shuffled(&self) -> bool {
        self.plan.is_shuffled()
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.plan.below(bound)
    }

    fn releases(&self) -> u64 {
        self.plan.releases()
    }

    fn on_failed_flush(&mut self) {
        self.is_cache_lost |= self.flush_loses;
    }

    fn on_damage(&mut self, damage: Damage) {
        self.plan.on_damage(damage);
    }
}

/// A disk with faults.
pub(crate) type Faulty = FaultyDevice<Port, Faults>;

/// One disk or several.
#[derive(Debug)]
pub(crate) enum Below {
    One(Faulty),
    Several(Stripe<Faulty>),
}

/// The device of a queue.
#[derive(Debug)]
pub(crate) enum Device {
    Disks(Box<Below>),
    Mapped(Box<MappedDevice<Below, Host>>),
}

impl Device {
    /// Whether a task of a mapped file waits for another engine.
    pub(crate) fn is_blocked(&self) -> bool {
        matches!(self, Self::Mapped(mapped) if mapped.is_blocked())
    }
}

/// Implements the device trait for an enum of devices.
macro_rules! delegate {
    ($type:ty, $($variant:ident),+) => {
        impl BlockDevice for $type {
            type Memory = Span;

            fn limits(&self) -> &Limits {
                match self { $(Self::$variant(device) => device.limits(),)+ }
            }

            fn submit(&mut self, io: &Io<'_, Span>, now: Instant) -> Result<(), Busy> {
                match self { $(Self::$variant(device) => device.submit(io, now),)+ }
            }

            fn commit(&mut self, now: Instant) {
                match self { $(Self::$variant(device) => device.commit(now),)+ }
            }

            fn poll_completion(&mut self, now: Instant) -> Option<Completion> {
                match self { $(Self::$variant(device) => device.poll_completion(now),)+ }
            }

            fn poll_timeout(&self) -> Option<Instant> {
                match self { $(Self::$variant(device) => device.poll_timeout(),)+ }
            }
        }
    };
}

delegate!(Below, One, Several);
delegate!(Device, Disks, Mapped);

/// The memory of a mapped file, and the file that its engines share.
#[derive(Debug, Clone)]
pub(crate) struct Host {
    file: Rc<RefCell<MappedFile>>,
    arena: Arena,
    zeroes: Span,
}

/// A buffer that returns to the arena.
#[derive(Debug)]
pub(crate) struct Owned {
    span: Span,
    arena: Arena,
}

impl Drop for Owned {
    fn drop(&mut self) {
        self.arena.release(self.span);
    }
}

impl Host {
    pub(crate) fn new(file: MappedFile, arena: &Arena) -> Self {
        let zeroes = arena.take(1 << 16, Owner::Library);
        arena.with(zeroes, |bytes| bytes.fill(0));
        Self { file: Rc::new(RefCell::new(file)), arena: arena.clone(), zeroes }
    }

    pub(crate) fn add_engine(&self) -> EngineId {
        self.file.borrow_mut().add_engine()
    }

    /// Drops the metadata in memory: the file reads it again.
    pub(crate) fn forget_metadata(&self) {
        self.file.borrow_mut().mapper_mut().forget_metadata();
    }
}

impl MappedHost for Host {
    type Memory = Span;
    type Buffer = Owned;

    fn with_file<R>(&self, _engine: EngineId, act: impl FnOnce(&mut MappedFile) -> R) -> R {
        let mut file = self.file.borrow_mut();
        let result = act(&mut file);
        // The volume polls all of its queues until none makes progress.
        file.take_notified();
        result
    }

    fn epoch(&self) -> u64 {
        self.file.borrow().epoch()
    }

    fn buffer(&self, bytes: usize) -> Option<Owned> {
        Some(Owned { span: self.arena.take(bytes, Owner::Library), arena: self.arena.clone() })
    }

    fn memory_of(&self, buffer: &mut Owned) -> Span {
        buffer.span
    }

    fn with_bytes<R>(&self, buffer: &mut Owned, act: impl FnOnce(&mut [u8]) -> R) -> R {
        // A copy, because `act` may use the arena.
        let mut bytes = self.arena.with(buffer.span, |bytes| bytes.to_vec());
        let result = act(&mut bytes);
        self.arena.with(buffer.span, |memory| memory.copy_from_slice(&bytes));
        result
    }

    fn zero(&self, memory: Span, from: u64) {
        self.arena.with(memory, |bytes| bytes[from as usize..].fill(0));
    }

    fn zeroes(&self) -> Span {
        self.zeroes
    }
}
