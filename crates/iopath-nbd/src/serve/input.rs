//! Bytes of one client that have arrived and are not handled yet.

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

    /// Whether the socket may have further bytes. If the last call emptied it, the answer is no, once: that saves a
    /// system call, and the event loop reports bytes that have arrived since.
    pub(super) fn may_receive(&mut self) -> bool {
        !std::mem::take(&mut self.is_drained)
    }

    /// The memory for further bytes.
    pub(super) fn memory(&mut self) -> &mut [u8] {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        &mut self.buffer[self.end..]
    }

    /// `count` bytes have arrived in the memory. A count below its length shows that a `plain` socket is empty.
    pub(super) fn handle_received(&mut self, count: usize, is_plain: bool) {
        let room = self.buffer.len() - self.end;
        self.end += count;
        self.is_drained = is_plain && count < room;
    }
}
