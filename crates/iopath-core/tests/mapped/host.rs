//! The host of a mapped file in virtual time: the file in a cell, memory in an arena.

use super::disk::{Arena, Span};
use iopath_core::mapped::{EngineId, MappedFile, MappedHost};
use std::cell::RefCell;
use std::rc::Rc;

#[derive(Debug, Clone)]
pub(crate) struct Host {
    file: Rc<RefCell<MappedFile>>,
    arena: Arena,
    zeroes: Span,
}

impl Host {
    pub(crate) fn new(file: MappedFile, arena: &Arena) -> Self {
        Self { file: Rc::new(RefCell::new(file)), arena: arena.clone(), zeroes: arena.take(8192) }
    }

    pub(crate) fn add_engine(&self) -> EngineId {
        self.file.borrow_mut().add_engine()
    }

    pub(crate) fn forget_metadata(&self) {
        self.file.borrow_mut().mapper_mut().forget_metadata();
    }
}

impl MappedHost for Host {
    type Memory = Span;
    type Buffer = Span;

    fn with_file<R>(&self, _engine: EngineId, act: impl FnOnce(&mut MappedFile) -> R) -> R {
        let mut file = self.file.borrow_mut();
        let result = act(&mut file);
        // The device's timeout makes the loop poll these engines.
        file.take_notified();
        result
    }

    fn epoch(&self) -> u64 {
        self.file.borrow().epoch()
    }

    fn buffer(&self, bytes: usize) -> Option<Span> {
        Some(self.arena.take(bytes))
    }

    fn memory_of(&self, buffer: &mut Span) -> Span {
        *buffer
    }

    fn with_bytes<R>(&self, buffer: &mut Span, act: impl FnOnce(&mut [u8]) -> R) -> R {
        // A copy, so that `act` may use the arena, too.
        let mut bytes = self.arena.with(*buffer, |bytes| bytes.to_vec());
        let result = act(&mut bytes);
        self.arena.with(*buffer, |memory| memory.copy_from_slice(&bytes));
        result
    }

    fn zero(&self, memory: Span, from: u64) {
        self.arena.with(memory, |bytes| bytes[from as usize..].fill(0));
    }

    fn zeroes(&self) -> Span {
        self.zeroes
    }
}
