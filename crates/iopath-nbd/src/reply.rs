//! Replies of the transmission phase, as the server encodes them. Decoding and checks: `client/requests.rs`.

use arrayvec::ArrayVec;

use crate::errno::Errno;
use crate::meta::{BASE_ALLOCATION_ID, BlockExtent};
use crate::protocol::{EXTENDED_REPLY_MAGIC, SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC, chunk};
use crate::wire::Append;

/// The format of requests and replies that both ends negotiated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyFormat {
    /// One message for each reply. A read cannot fail after its first byte, and has no holes.
    Simple,
    /// Replies are chunks: data, holes, errors with a text, states of blocks.
    Structured,
    /// Structured replies, with lengths of 64 bits in requests and replies.
    Extended,
}

/// The bytes of a reply before its data.
pub type ReplyHead = ArrayVec<u8, 64>;

/// Extents of one reply to a block status request.
pub(crate) const EXTENTS_MAX: usize = 4096;

/// Longest text of an error, in bytes.
const MESSAGE_MAX: usize = 256;

/// Encodes replies in the negotiated format.
#[derive(Clone, Copy, Debug)]
pub struct ReplyWriter {
    format: ReplyFormat,
}

impl ReplyWriter {
    /// A writer for a connection with this format.
    #[must_use]
    pub fn new(format: ReplyFormat) -> Self {
        Self { format }
    }

    /// The bytes before the `length` bytes of data read at `offset`, as one chunk that ends the reply. The data must be
    /// in memory: the reply has no room for a later error.
    #[must_use]
    pub fn read(self, cookie: u64, offset: u64, length: u32) -> ReplyHead {
        let mut head = ReplyHead::new();
        match self.format {
            ReplyFormat::Simple => append_simple(&mut head, cookie, 0),
            ReplyFormat::Structured | ReplyFormat::Extended => {
                self.append_data_head(&mut head, chunk::DONE, cookie, offset, length);
            }
        }
        head
    }

    /// The bytes before one of several chunks of data of a read; [`ReplyWriter::done`] ends the reply. `None` with
    /// simple replies, which have no chunks.
    #[must_use]
    pub fn data_chunk(self, cookie: u64, offset: u64, length: u32) -> Option<ReplyHead> {
        let mut head = ReplyHead::new();
        (self.format != ReplyFormat::Simple)
            .then(|| self.append_data_head(&mut head, 0, cookie, offset, length))?;
        Some(head)
    }

    fn append_data_head(self, head: &mut ReplyHead, flags: u16, cookie: u64, offset: u64, length: u32) {
        self.append_chunk(
            head,
            Chunk { flags, kind: chunk::OFFSET_DATA, cookie, offset, length: u64::from(length) + 8 },
        );
        head.append_u64(offset);
    }

    /// A chunk that states `length` bytes of zeroes at `offset`. `None` with simple replies.
    #[must_use]
    pub fn hole_chunk(self, cookie: u64, offset: u64, length: u32) -> Option<ReplyHead> {
        if self.format == ReplyFormat::Simple {
            return None;
        }
        let mut head = ReplyHead::new();
        self.append_chunk(
            &mut head,
            Chunk { flags: 0, kind: chunk::OFFSET_HOLE, cookie, offset, length: 12 },
        );
        head.append_u64(offset);
        head.append_u32(length);
        Some(head)
    }

    /// The reply to a request that completed without data, or the last chunk of a read in several chunks.
    #[must_use]
    pub fn done(self, cookie: u64, offset: u64) -> ReplyHead {
        let mut head = ReplyHead::new();
        match self.format {
            ReplyFormat::Simple => append_simple(&mut head, cookie, 0),
            ReplyFormat::Structured | ReplyFormat::Extended => {
                self.append_chunk(
                    &mut head,
                    Chunk { flags: chunk::DONE, kind: chunk::NONE, cookie, offset, length: 0 },
                );
            }
        }
        head
    }

    /// The reply to a failed request. `message` is a text for people, at most 256 bytes of which are sent.
    #[must_use]
    pub fn error(self, cookie: u64, offset: u64, error: Errno, message: &str) -> Vec<u8> {
        let mut reply = Vec::new();
        if self.format == ReplyFormat::Simple {
            append_simple(&mut reply, cookie, error.code());
            return reply;
        }
        let end = (0..=message.len().min(MESSAGE_MAX)).rfind(|end| message.is_char_boundary(*end));
        let message = &message.as_bytes()[..end.unwrap_or(0)];
        let length = 6 + message.len() as u64;
        self.append_chunk(
            &mut reply,
            Chunk { flags: chunk::DONE, kind: chunk::ERROR, cookie, offset, length },
        );
        reply.append_u32(error.code());
        reply.append_u16(u16::try_from(message.len()).expect("at most MESSAGE_MAX bytes"));
        Append::append(&mut reply, message);
        reply
    }

    /// The reply to a block status request: `extents` start at its offset. At most 4096 of them are sent, and none is
    /// longer than 4 GiB without extended headers: the client then asks for the rest.
    ///
    /// Panics if `extents` is empty or the format is simple.
    #[must_use]
    pub fn block_status(self, cookie: u64, offset: u64, extents: &[BlockExtent]) -> Vec<u8> {
        assert!(!extents.is_empty(), "a block status has at least one extent");
        assert_ne!(self.format, ReplyFormat::Simple, "a block status needs structured replies");
        let extents = &extents[..extents.len().min(EXTENTS_MAX)];
        let is_extended = self.format == ReplyFormat::Extended;
        // A descriptor that is cut short must be the last one: the next would start behind a gap.
        let cut = extents.iter().position(|extent| !is_extended && extent.length > u64::from(u32::MAX));
        let extents = &extents[..cut.map_or(extents.len(), |last| last + 1)];

        let count = extents.len() as u64;
        let (kind, length) = if is_extended {
            (chunk::BLOCK_STATUS_EXTENDED, 8 + 16 * count)
        } else {
            (chunk::BLOCK_STATUS, 4 + 8 * count)
        };
        let mut reply = Vec::new();
        self.append_chunk(&mut reply, Chunk { flags: chunk::DONE, kind, cookie, offset, length });
        reply.append_u32(BASE_ALLOCATION_ID);
        if is_extended {
            reply.append_u32(u32::try_from(count).expect("at most EXTENTS_MAX"));
        }
        for extent in extents {
            if is_extended {
                reply.append_u64(extent.length);
                reply.append_u64(extent.state.bits());
            } else {
                reply.append_u32(u32::try_from(extent.length).unwrap_or(1 << 31));
                reply.append_u32(u32::try_from(extent.state.bits()).expect("the states have two bits"));
            }
        }
        reply
    }

    fn append_chunk(self, reply: &mut impl Append, chunk: Chunk) {
        let is_extended = self.format == ReplyFormat::Extended;
        reply.append_u32(if is_extended { EXTENDED_REPLY_MAGIC } else { STRUCTURED_REPLY_MAGIC });
        reply.append_u16(chunk.flags);
        reply.append_u16(chunk.kind);
        reply.append_u64(chunk.cookie);
        if is_extended {
            reply.append_u64(chunk.offset);
            reply.append_u64(chunk.length);
        } else {
            reply.append_u32(u32::try_from(chunk.length).expect("the data of a reply is shorter than 4 GiB"));
        }
    }
}

/// The head of a chunk. Extended replies repeat the offset of the request.
#[derive(Clone, Copy)]
struct Chunk {
    flags: u16,
    kind: u16,
    cookie: u64,
    offset: u64,
    length: u64,
}

fn append_simple(reply: &mut impl Append, cookie: u64, error: u32) {
    reply.append_u32(SIMPLE_REPLY_MAGIC);
    reply.append_u32(error);
    reply.append_u64(cookie);
}
