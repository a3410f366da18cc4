//! A modelled disk with bytes, and the simulated memory that it reads into and writes from.

use iopath_core::{BlockDevice, Busy, Completion, Duration, Extent, Instant, Io, Limits, Memory, Op, Tag};
use std::cell::RefCell;
use std::rc::Rc;

/// Simulated memory: spans of it are the memory of I/O.
#[derive(Debug, Clone, Default)]
pub(crate) struct Arena(Rc<RefCell<Vec<u8>>>);

/// A part of an [`Arena`], in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    start: usize,
    len: usize,
}

impl Arena {
    pub(crate) fn take(&self, bytes: usize) -> Span {
        let mut memory = self.0.borrow_mut();
        let start = memory.len();
        memory.resize(start + bytes, 0);
        Span { start, len: bytes }
    }

    pub(crate) fn with<R>(&self, span: Span, act: impl FnOnce(&mut [u8]) -> R) -> R {
        act(&mut self.0.borrow_mut()[span.start..span.start + span.len])
    }
}

impl Memory for Span {
    fn bytes(&self) -> u64 {
        self.len as u64
    }

    fn slice(self, offset: u64, bytes: u64) -> Self {
        assert!(offset + bytes <= self.len as u64);
        Self { start: self.start + offset as usize, len: bytes as usize }
    }

    fn join(self, next: Self) -> Option<Self> {
        (self.start + self.len == next.start).then_some(Self { start: self.start, len: self.len + next.len })
    }
}

/// One head and a queue: the disk executes requests one after another, each after a seek whose time depends on the
/// distance. Clones are the same disk, with separate completions.
#[derive(Debug, Clone)]
pub(crate) struct Disk {
    limits: Limits,
    arena: Arena,
    shared: Rc<RefCell<Shared>>,
    submitted: Vec<Request>,
    in_service: Vec<(Instant, Request)>,
}

#[derive(Debug)]
struct Shared {
    bytes: Vec<u8>,
    head: u64,
    free_at: Instant,
}

#[derive(Debug, Clone)]
struct Request {
    tag: Tag,
    op: Op,
    extent: Extent,
    memory: Vec<Span>,
}

impl Disk {
    pub(crate) fn new(limits: &Limits, arena: &Arena) -> Self {
        // The disk is full of foreign bytes, which must never be visible in a new file.
        let bytes = vec![0xEE; (limits.capacity * 512) as usize];
        let shared = Shared { bytes, head: 0, free_at: Instant::ZERO };
        Self {
            limits: limits.clone(),
            arena: arena.clone(),
            shared: Rc::new(RefCell::new(shared)),
            submitted: Vec::new(),
            in_service: Vec::new(),
        }
    }

    /// The bytes on the medium.
    #[allow(dead_code, reason = "only some of the tests that share this file inspect or damage the medium")]
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.shared.borrow().bytes.clone()
    }

    /// Changes one bit on the medium.
    #[allow(dead_code, reason = "see `bytes`")]
    pub(crate) fn flip(&self, offset: u64, bit: u8) {
        self.shared.borrow_mut().bytes[offset as usize] ^= 1 << bit;
    }

    fn execute(&self, request: &Request) {
        let bytes = &mut self.shared.borrow_mut().bytes;
        let range =
            request.extent.offset() as usize..(request.extent.offset() + request.extent.bytes()) as usize;
        match request.op {
            Op::Flush | Op::Discard => {}
            Op::WriteZeroes => bytes[range].fill(0),
            Op::Read | Op::Write => {
                let mut offset = range.start;
                for span in &request.memory {
                    let on_disk = &mut bytes[offset..offset + span.len];
                    self.arena.with(*span, |memory| match request.op {
                        Op::Read => memory.copy_from_slice(on_disk),
                        _ => on_disk.copy_from_slice(memory),
                    });
                    offset += span.len;
                }
                assert_eq!(offset, range.end, "the memory of {request:?} has another length");
            }
        }
    }
}

impl BlockDevice for Disk {
    type Memory = Span;

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn submit(&mut self, io: &Io<'_, Span>, _now: Instant) -> Result<(), Busy> {
        if self.submitted.len() + self.in_service.len() >= self.limits.depth_max as usize {
            return Err(Busy { tag: io.tag });
        }
        let Io { tag, op, extent, .. } = *io;
        self.submitted.push(Request { tag, op, extent, memory: io.segments().collect() });
        Ok(())
    }

    fn commit(&mut self, now: Instant) {
        let shared = &mut *self.shared.borrow_mut();
        for request in self.submitted.drain(..) {
            let distance = shared.head.abs_diff(request.extent.start().0);
            let service = Duration::from_nanos(20_000 + 100 * distance + 50 * request.extent.sectors());
            shared.head = request.extent.end().0;
            shared.free_at = shared.free_at.max(now) + service;
            self.in_service.push((shared.free_at, request));
        }
    }

    fn poll_completion(&mut self, now: Instant) -> Option<Completion> {
        let (due, _) = self.in_service.first()?;
        (*due <= now).then_some(())?;
        let (_, request) = self.in_service.remove(0);
        self.execute(&request);
        Some(Completion { tag: request.tag, result: Ok(()) })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.in_service.first().map(|(due, _)| *due)
    }
}
