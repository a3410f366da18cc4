//! A model of a disk: an array of numbers and a list of requests in flight. It completes in any order, fails or is busy
//! at a given rate, and checks all guarantees of a queue to a device.

use iopath_core::{BlockDevice, Busy, Completion, Extent, Instant, Io, IoError, Limits, Memory, Op, Tag};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use std::cell::RefCell;
use std::rc::Rc;

/// The memory of all bios. The contents of a sector are one number, the version of the write.
pub(crate) type Arena = Rc<RefCell<Vec<u64>>>;

/// Sectors of the arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: usize,
    pub(crate) sectors: usize,
}

impl Memory for Span {
    fn bytes(&self) -> u64 {
        self.sectors as u64 * 512
    }

    fn slice(self, offset: u64, bytes: u64) -> Self {
        assert!(offset + bytes <= self.bytes(), "slice outside the memory");
        Self { start: self.start + offset as usize / 512, sectors: bytes as usize / 512 }
    }

    fn join(self, next: Self) -> Option<Self> {
        let touches = self.start + self.sectors == next.start;
        touches.then_some(Self { start: self.start, sectors: self.sectors + next.sectors })
    }
}

#[derive(Debug)]
struct InFlight {
    tag: Tag,
    op: Op,
    extent: Extent,
    fua: bool,
    segments: Vec<Span>,
}

pub(crate) struct Disk {
    limits: Limits,
    depth: u32,
    arena: Arena,
    /// The contents that a read returns.
    pub(crate) cached: Vec<u64>,
    /// The contents that survive a power failure.
    pub(crate) medium: Vec<u64>,
    in_flight: Vec<InFlight>,
    over: Vec<Completion>,
    /// Whether a flush has failed since the last check.
    pub(crate) has_failed_flush: bool,
    /// The rates of failed requests and of refused ones (busy), of 256.
    fails: u8,
    busy: u8,
    rng: ChaCha8Rng,
}

impl Disk {
    pub(crate) fn new(
        limits: Limits,
        depth: u32,
        arena: Arena,
        fails: u8,
        busy: u8,
        rng: ChaCha8Rng,
    ) -> Self {
        let sectors = limits.capacity as usize;
        let (cached, medium) = (vec![0; sectors], vec![0; sectors]);
        Self {
            limits,
            depth,
            arena,
            cached,
            medium,
            in_flight: Vec::new(),
            over: Vec::new(),
            has_failed_flush: false,
            fails,
            busy,
            rng,
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight.is_empty() && self.over.is_empty()
    }

    /// Completes a random request in flight.
    pub(crate) fn step(&mut self) {
        if self.in_flight.is_empty() {
            return;
        }
        let index = self.rng.random_range(0..self.in_flight.len());
        let io = self.in_flight.swap_remove(index);
        let fails = self.rng.random::<u8>() < self.fails;
        if fails {
            self.has_failed_flush |= io.op == Op::Flush;
            // A failed write has written a part of its data, or none.
            if io.op.is_write() {
                let written = self.rng.random_range(0..=io.extent.sectors());
                self.transfer(&io, written);
            }
        } else {
            self.transfer(&io, io.extent.sectors());
        }
        let result = if fails { Err(IoError::Media) } else { Ok(()) };
        self.over.push(Completion { tag: io.tag, result });
    }

    fn transfer(&mut self, io: &InFlight, sectors: u64) {
        let range = io.extent.start().0 as usize..(io.extent.start().0 + sectors) as usize;
        let memory = io.segments.iter().flat_map(|span| span.start..span.start + span.sectors);
        let mut arena = self.arena.borrow_mut();
        match io.op {
            Op::Read => range.zip(memory).for_each(|(sector, cell)| arena[cell] = self.cached[sector]),
            Op::Write => {
                range.clone().zip(memory).for_each(|(sector, cell)| self.cached[sector] = arena[cell]);
            }
            Op::Discard | Op::WriteZeroes => self.cached[range.clone()].fill(0),
            Op::Flush => self.medium.copy_from_slice(&self.cached),
        }
        let range = io.extent.start().0 as usize..(io.extent.start().0 + sectors) as usize;
        if io.op.is_write() && (io.fua || !self.limits.volatile_cache) {
            self.medium[range.clone()].copy_from_slice(&self.cached[range]);
        }
    }

    /// The guarantees of a queue to a device.
    fn check(&self, io: &InFlight) {
        let limits = &self.limits;
        assert!(self.in_flight.len() < self.depth as usize, "more than {} in flight", self.depth);
        assert!(io.extent.end().0 <= limits.capacity, "{} is past the end", io.extent);
        assert!(limits.fits(io.op, io.extent) || io.op == Op::Flush, "{} {} is too long", io.op, io.extent);
        let block = limits.block_sectors();
        assert_eq!((io.extent.start().0 % block, io.extent.sectors() % block), (0, 0), "not whole blocks");
        assert!(io.segments.len() <= usize::from(limits.segments_max), "{} segments", io.segments.len());
        let memory: u64 = io.segments.iter().map(Memory::bytes).sum();
        assert_eq!(memory, if io.op.has_memory() { io.extent.bytes() } else { 0 }, "memory of {}", io.op);
        assert!(!io.fua || limits.fua, "unsupported forced unit access");
        assert!(io.op != Op::Flush || limits.volatile_cache, "a flush without a volatile cache");
        for other in &self.in_flight {
            let both_read = io.op == Op::Read && other.op == Op::Read;
            assert!(
                both_read || !io.extent.overlaps(other.extent),
                "{io:?} and {other:?} in flight together"
            );
            assert!(io.op != Op::Flush || other.op != Op::Flush, "two flushes in flight");
        }
    }
}

impl BlockDevice for Disk {
    type Memory = Span;

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn submit(&mut self, io: &Io<'_, Span>, _now: Instant) -> Result<(), Busy> {
        if self.rng.random::<u8>() < self.busy {
            return Err(Busy { tag: io.tag });
        }
        let Io { tag, op, extent, fua, .. } = *io;
        let io = InFlight { tag, op, extent, fua, segments: io.segments().collect() };
        self.check(&io);
        self.in_flight.push(io);
        Ok(())
    }

    fn commit(&mut self, _now: Instant) {}

    fn poll_completion(&mut self, _now: Instant) -> Option<Completion> {
        self.over.pop()
    }
}
