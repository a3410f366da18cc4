//! Replies that wait for the socket. Data stays in the buffers that the device read into: it is not copied.

use iopath::PoolBuf;
use std::collections::VecDeque;
use std::io::{self, IoSlice};

use arrayvec::ArrayVec;

use super::quota::Hold;
use super::stream::Stream;

/// Parts of one system call.
const PARTS_MAX: usize = 128;

/// A part of the byte stream.
#[derive(Debug)]
enum Part {
    /// The head of a reply.
    Head(crate::ReplyHead),
    /// A reply without data that is longer than a head.
    Text(Vec<u8>),
    /// The first bytes of a buffer, and the permission that ends with it.
    Data(PoolBuf, usize, #[expect(dead_code, reason = "its drop ends the permission")] Hold),
}

impl Part {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Head(head) => head,
            Self::Text(text) => text,
            Self::Data(buffer, length, _) => &buffer[..*length],
        }
    }
}

/// The bytes that are to be sent to one client.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    parts: VecDeque<Part>,
    /// Bytes of the first part that are sent.
    sent: usize,
}

impl Outbox {
    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    pub(super) fn push_head(&mut self, head: crate::ReplyHead) {
        self.parts.push_back(Part::Head(head));
    }

    pub(super) fn push_text(&mut self, text: Vec<u8>) {
        if !text.is_empty() {
            self.parts.push_back(Part::Text(text));
        }
    }

    pub(super) fn push_data(&mut self, buffer: PoolBuf, length: usize, hold: Hold) {
        self.parts.push_back(Part::Data(buffer, length, hold));
    }

    /// Sends as much as the socket accepts. Returns the number of bytes.
    pub(super) fn send(&mut self, stream: &mut Stream) -> io::Result<usize> {
        let mut total = 0;
        while !self.parts.is_empty() {
            let mut slices = ArrayVec::<IoSlice<'_>, PARTS_MAX>::new();
            slices.extend(self.parts.iter().take(PARTS_MAX).map(|part| IoSlice::new(part.bytes())));
            slices[0] = IoSlice::new(&self.parts[0].bytes()[self.sent..]);
            let sent = stream.send(&slices)?;
            drop(slices);
            let Some(count) = sent else { break };
            total += count;
            self.advance(count);
        }
        // Encrypted bytes of earlier parts.
        total += stream.flush()?;
        Ok(total)
    }

    /// Removes sent bytes and releases their buffers.
    fn advance(&mut self, mut count: usize) {
        while let Some(first) = self.parts.front() {
            let left = first.bytes().len() - self.sent;
            if count < left {
                self.sent += count;
                return;
            }
            count -= left;
            self.sent = 0;
            self.parts.pop_front();
        }
    }
}
