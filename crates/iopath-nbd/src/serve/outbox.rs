//! Replies that wait for the socket. Data stays in the buffers that the device read into, or in the pages of the page
//! cache: it is not copied.

use std::collections::VecDeque;
use std::io::IoSlice;

use arrayvec::ArrayVec;

use super::quota::Hold;
use super::storage::{Data, Pages, Storage};

/// Slices of one system call: 1 MiB of scattered pages, and heads.
const SLICES_MAX: usize = 288;

/// Bytes of replies without data that wait for one client. Above, the server reads no further requests of it.
const TEXT_MAX: usize = 128 << 10;

/// Bytes for one system call.
pub(super) type Slices<'a> = ArrayVec<IoSlice<'a>, SLICES_MAX>;

/// A part of the byte stream.
#[derive(Debug)]
enum Part<S: Storage> {
    /// The head of a reply.
    Head(crate::ReplyHead),
    /// A reply without data that is longer than a head.
    Text(Vec<u8>),
    /// Data, and the permission that ends with it.
    Data(Data<S>, #[expect(dead_code, reason = "its drop ends the permission")] Hold),
}

impl<S: Storage> Part<S> {
    fn len(&self) -> usize {
        match self {
            Self::Head(head) => head.len(),
            Self::Text(text) => text.len(),
            Self::Data(data, _) => data.len(),
        }
    }

    /// Appends the bytes from `skip` on, as far as there is room.
    fn append<'a>(&'a self, mut skip: usize, slices: &mut Slices<'a>) {
        let mut append = |bytes: &'a [u8]| {
            let skipped = skip.min(bytes.len());
            skip -= skipped;
            // A full list ends the system call early; the next call continues.
            if skipped < bytes.len() {
                let _ = slices.try_push(IoSlice::new(&bytes[skipped..]));
            }
        };
        match self {
            Self::Head(head) => append(head),
            Self::Text(text) => append(text),
            Self::Data(Data::Buffer(buffer, length), _) => append(&buffer[..*length]),
            Self::Data(Data::Parked(bytes), _) => append(bytes),
            Self::Data(Data::Pages(pages), _) => pages.slices().for_each(append),
        }
    }
}

/// The bytes that are to be sent to one client.
#[derive(Debug)]
pub(super) struct Outbox<S: Storage> {
    parts: VecDeque<Part<S>>,
    /// Bytes of the first part that are sent.
    sent: usize,
    /// Bytes of all parts without data. The buffers and pages of data have limits of their own.
    text_bytes: usize,
}

impl<S: Storage> Outbox<S> {
    pub(super) fn new() -> Self {
        Self { parts: VecDeque::new(), sent: 0, text_bytes: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Whether the client must read replies before the server accepts further requests.
    pub(super) fn is_full(&self) -> bool {
        self.text_bytes >= TEXT_MAX
    }

    pub(super) fn push_head(&mut self, head: crate::ReplyHead) {
        self.text_bytes += head.len();
        self.parts.push_back(Part::Head(head));
    }

    pub(super) fn push_text(&mut self, text: Vec<u8>) {
        if !text.is_empty() {
            self.text_bytes += text.len();
            self.parts.push_back(Part::Text(text));
        }
    }

    pub(super) fn push_data(&mut self, data: Data<S>, hold: Hold) {
        self.parts.push_back(Part::Data(data, hold));
    }

    /// Moves data out of at most `count` buffers, which are free afterwards. Returns their number.
    pub(super) fn park(&mut self, count: u32) -> u32 {
        let mut parked = 0;
        // The last parts wait for the longest time.
        for part in self.parts.iter_mut().rev() {
            if parked == count {
                break;
            }
            if let Part::Data(data, _) = part {
                parked += u32::from(data.park());
            }
        }
        parked
    }

    /// Bytes of parts without data, and parked buffers.
    #[cfg(feature = "sim")]
    pub(super) fn held(&self) -> (usize, usize) {
        let is_parked = |part: &&Part<S>| matches!(part, Part::Data(Data::Parked(_), _));
        (self.text_bytes, self.parts.iter().filter(is_parked).count())
    }

    /// The next bytes, from the first that is not sent.
    pub(super) fn slices(&self) -> Slices<'_> {
        let mut slices = ArrayVec::new();
        let mut skip = self.sent;
        for part in &self.parts {
            part.append(skip, &mut slices);
            skip = 0;
            if slices.is_full() {
                break;
            }
        }
        slices
    }

    /// Removes sent bytes and releases their buffers.
    pub(super) fn handle_sent(&mut self, mut count: usize) {
        while let Some(first) = self.parts.front() {
            let left = first.len() - self.sent;
            if count < left {
                self.sent += count;
                return;
            }
            count -= left;
            self.sent = 0;
            if !matches!(first, Part::Data(..)) {
                self.text_bytes -= first.len();
            }
            self.parts.pop_front();
        }
    }
}
