//! The devices below the queues of a volume: disks with faults, stripes of them, and mapped files on either.

use std::cell::RefCell;
use std::rc::Rc;

use iopath_core::mapped::{EngineId, MappedDevice, MappedFile, MappedHost};
use iopath_core::{BlockDevice, Busy, Completion, FaultyDevice, Instant, Io, Limits, Stripe};

use crate::arena::{Arena, Owner, Span};
use crate::disk::Port;
use crate::faults::Faults;
use crate::random::Random;

/// A disk with faults.
pub(crate) type Faulty = Refusing<FaultyDevice<Port, Faults>>;

/// A device that accepts some of the requests of a submission, and refuses the others.
#[derive(Debug)]
pub(crate) struct Refusing<D> {
    inner: D,
    random: Random,
    /// It refuses one in this many requests; 0 for none.
    one_in: u64,
}

impl<D> Refusing<D> {
    pub(crate) fn new(inner: D, seed: u64, one_in: u64) -> Self {
        Self { inner, random: Random::new(seed), one_in }
    }
}

impl<D: BlockDevice> BlockDevice for Refusing<D> {
    type Memory = D::Memory;

    fn limits(&self) -> &Limits {
        self.inner.limits()
    }

    fn submit(&mut self, io: &Io<'_, D::Memory>, now: Instant) -> Result<(), Busy> {
        if self.one_in > 0 && self.random.one_in(self.one_in) {
            return Err(Busy { tag: io.tag });
        }
        self.inner.submit(io, now)
    }

    fn commit(&mut self, now: Instant) {
        self.inner.commit(now);
    }

    fn poll_completion(&mut self, now: Instant) -> Option<Completion> {
        self.inner.poll_completion(now)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.inner.poll_timeout()
    }
}

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
    memory: Rc<RefCell<MemoryLimit>>,
}

/// The memory for metadata that a mapped file may have: some of its requests are refused.
#[derive(Debug)]
struct MemoryLimit {
    random: Random,
    /// One in this many requests is refused; 0 for none.
    refuses: u64,
    refused: u64,
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
    /// The memory of `file`, of which one in `refuses` requests is refused.
    pub(crate) fn new(file: MappedFile, arena: &Arena, refuses: u64, seed: u64) -> Self {
        let zeroes = arena.take(1 << 16, Owner::Library);
        arena.with(zeroes, |bytes| bytes.fill(0));
        let memory = MemoryLimit { random: Random::new(seed), refuses, refused: 0 };
        let memory = Rc::new(RefCell::new(memory));
        Self { file: Rc::new(RefCell::new(file)), arena: arena.clone(), zeroes, memory }
    }

    /// From now on, no request for memory is refused.
    pub(crate) fn stop_faults(&self) {
        self.memory.borrow_mut().refuses = 0;
    }

    /// The number of refused requests for memory.
    pub(crate) fn refused(&self) -> u64 {
        self.memory.borrow().refused
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
        let memory = &mut *self.memory.borrow_mut();
        if memory.refuses > 0 && memory.random.one_in(memory.refuses) {
            memory.refused += 1;
            return None;
        }
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
