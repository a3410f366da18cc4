//! Fields of messages, in network byte order. It has no knowledge of any message.

/// The fields of a message that has arrived whole, read from its start. Each function returns `None` if the message is
/// too short.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn new(message: &'a [u8]) -> Self {
        Self(message)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*head)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// The next `count` bytes.
    pub(crate) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(head)
    }

    /// A string after its length of 32 bits.
    pub(crate) fn string(&mut self) -> Option<&'a [u8]> {
        let length = self.u32()?;
        self.bytes(usize::try_from(length).ok()?)
    }

    pub(crate) fn rest(self) -> &'a [u8] {
        self.0
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0.is_empty()
    }
}

/// Appends fields to a message.
pub(crate) trait Append {
    fn append(&mut self, bytes: &[u8]);

    fn append_u16(&mut self, value: u16) {
        self.append(&value.to_be_bytes());
    }

    fn append_u32(&mut self, value: u32) {
        self.append(&value.to_be_bytes());
    }

    fn append_u64(&mut self, value: u64) {
        self.append(&value.to_be_bytes());
    }
}

impl Append for Vec<u8> {
    fn append(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

impl<const N: usize> Append for arrayvec::ArrayVec<u8, N> {
    fn append(&mut self, bytes: &[u8]) {
        self.try_extend_from_slice(bytes).expect("the capacity is that of the longest message");
    }
}
