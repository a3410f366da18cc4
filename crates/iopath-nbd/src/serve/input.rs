//! Bytes of one client that have arrived and are not handled yet.

use std::io;

use super::stream::Stream;

/// Bytes of one system call.
const CAPACITY: usize = 64 << 10;

/// A buffer of fixed size. Handled bytes are removed at its front without a copy of the rest.
#[derive(Debug)]
pub(super) struct Input {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    /// The last call received less than it had room for, so the socket was empty.
    is_drained: bool,
}

impl Input {
    /// A buffer that contains `bytes`, at most half of its capacity.
    pub(super) fn new(bytes: &[u8]) -> Self {
        let mut buffer = vec![0; CAPACITY].into_boxed_slice();
        buffer[..bytes.len()].copy_from_slice(bytes);
        Self { buffer, start: 0, end: bytes.len(), is_drained: false }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    pub(super) fn consume(&mut self, count: usize) {
        self.start += count;
        debug_assert!(self.start <= self.end, "only bytes that have arrived are consumed");
    }

    /// Moves bytes to the start of `target`. Returns their number.
    pub(super) fn take_into(&mut self, target: &mut [u8]) -> usize {
        let count = self.bytes().len().min(target.len());
        target[..count].copy_from_slice(&self.bytes()[..count]);
        self.consume(count);
        count
    }

    /// Receives further bytes, as [`Stream::receive`] does, but returns `None` without a system call if the last call
    /// emptied the socket. The event loop reports bytes that have arrived since.
    pub(super) fn receive(&mut self, stream: &mut Stream) -> io::Result<Option<usize>> {
        if std::mem::take(&mut self.is_drained) {
            return Ok(None);
        }
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let room = self.buffer.len() - self.end;
        let received = stream.receive(&mut self.buffer[self.end..])?;
        self.end += received.unwrap_or(0);
        self.is_drained = stream.is_plain() && received.is_some_and(|count| 0 < count && count < room);
        Ok(received)
    }
}
