//! Simulated memory: buffers of calls and frames of page caches. It detects an access to a buffer that its owner has
//! released.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use iopath_core::Memory;
use iopath_core::buffered::Frames;
use iopath_core::cache::Frame;

/// The unit of ownership, in bytes. Each buffer is a multiple of it.
const GRANULE: usize = 512;

/// The owner of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Owner {
    /// A program, for its direct I/O.
    #[default]
    Program,
    /// The page cache.
    Cache,
    /// The library: metadata, and blocks of which it zeroes a part.
    Library,
    /// The library, for unaligned I/O.
    Bounce,
    /// The page cache of a program that only reads.
    Reader,
}

/// Bytes that disks have moved from or to memory, by its owner.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Moved([u64; 5]);

impl Moved {
    pub(crate) fn add(&mut self, owner: Owner, bytes: u64) {
        self.0[owner as usize] += bytes;
    }

    pub(crate) const fn of(&self, owner: Owner) -> u64 {
        self.0[owner as usize]
    }
}

/// All memory of a run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Arena(Rc<RefCell<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    bytes: Vec<u8>,
    /// The owner of each granule; none if it belongs to no buffer in use.
    owners: Vec<Option<Owner>>,
    /// The starts of released buffers, by length.
    free: BTreeMap<usize, Vec<usize>>,
}

/// A part of an [`Arena`], in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    start: usize,
    len: usize,
}

impl Span {
    const fn range(self) -> Range<usize> {
        self.start..self.start + self.len
    }

    const fn granules(self) -> Range<usize> {
        self.start / GRANULE..(self.start + self.len).div_ceil(GRANULE)
    }
}

impl Arena {
    /// A buffer of this length, rounded up to a multiple of 512 bytes, with any content.
    pub(crate) fn take(&self, bytes: usize, owner: Owner) -> Span {
        let len = bytes.next_multiple_of(GRANULE);
        let inner = &mut *self.0.borrow_mut();
        let free = inner.free.get_mut(&len).and_then(Vec::pop);
        let start = free.unwrap_or_else(|| {
            let start = inner.bytes.len();
            inner.bytes.resize(start + len, 0);
            inner.owners.resize((start + len) / GRANULE, None);
            start
        });
        let span = Span { start, len };
        inner.owners[span.granules()].fill(Some(owner));
        Span { start, len: bytes }
    }

    /// Releases a buffer. A later access to it is a defect.
    pub(crate) fn release(&self, span: Span) {
        let inner = &mut *self.0.borrow_mut();
        let granules = span.granules();
        let is_in_use = inner.owners[granules.clone()].iter().all(Option::is_some);
        assert!(is_in_use, "{span:?} is released twice");
        inner.owners[granules].fill(None);
        // A stale byte is never a valid content.
        inner.bytes[span.range()].fill(0xA5);
        inner.free.entry(span.len.next_multiple_of(GRANULE)).or_default().push(span.start);
    }

    /// Calls `act` with the bytes.
    ///
    /// # Panics
    /// If the buffer was released: a device or the path uses memory that its caller has back.
    pub(crate) fn with<R>(&self, span: Span, act: impl FnOnce(&mut [u8]) -> R) -> R {
        let inner = &mut *self.0.borrow_mut();
        let is_in_use = inner.owners[span.granules()].iter().all(Option::is_some);
        assert!(is_in_use, "rule 4: {span:?} is accessed after its request has completed");
        act(&mut inner.bytes[span.range()])
    }

    /// The owner of a buffer in use.
    pub(crate) fn owner(&self, span: Span) -> Owner {
        let owner = self.0.borrow().owners[span.start / GRANULE];
        owner.unwrap_or_else(|| panic!("rule 4: {span:?} has no owner"))
    }
}

impl Memory for Span {
    fn bytes(&self) -> u64 {
        self.len as u64
    }

    fn slice(self, offset: u64, bytes: u64) -> Self {
        assert!(offset + bytes <= self.len as u64, "{bytes} bytes at {offset} of {self:?}");
        Self { start: self.start + offset as usize, len: bytes as usize }
    }

    fn join(self, next: Self) -> Option<Self> {
        (self.start + self.len == next.start).then_some(Self { start: self.start, len: self.len + next.len })
    }
}

/// The frames of a page cache.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PageFrames {
    all: Span,
    page_bytes: usize,
}

impl PageFrames {
    pub(crate) fn new(arena: &Arena, frames: u32, page_bytes: u32, owner: Owner) -> Self {
        let page_bytes = page_bytes as usize;
        Self { all: arena.take(frames as usize * page_bytes, owner), page_bytes }
    }

    /// Releases all frames.
    pub(crate) fn release(self, arena: &Arena) {
        arena.release(self.all);
    }

    /// The whole frame.
    pub(crate) fn whole(&self, frame: Frame) -> Span {
        self.memory(frame, self.page_bytes as u64)
    }
}

impl Frames for PageFrames {
    type Memory = Span;

    fn memory(&self, frame: Frame, bytes: u64) -> Span {
        self.all.slice(u64::from(frame.0) * self.page_bytes as u64, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "rule 4")]
    fn an_access_to_a_released_buffer_is_detected() {
        let arena = Arena::default();
        let span = arena.take(1000, Owner::Program);
        arena.with(span, |bytes| assert_eq!(bytes.len(), 1000));
        arena.release(span);
        arena.with(span, |_| ());
    }

    #[test]
    fn a_released_buffer_is_used_again() {
        let arena = Arena::default();
        let first = arena.take(4096, Owner::Program);
        arena.release(first);
        assert_eq!(arena.take(4096, Owner::Program), first);
        assert_ne!(arena.take(4096, Owner::Program), first);
    }

    #[test]
    fn a_buffer_has_its_last_owner() {
        let arena = Arena::default();
        let first = arena.take(1024, Owner::Program);
        assert_eq!(arena.owner(first.slice(512, 100)), Owner::Program);
        arena.release(first);
        assert_eq!(arena.owner(arena.take(1024, Owner::Library)), Owner::Library);
    }
}
