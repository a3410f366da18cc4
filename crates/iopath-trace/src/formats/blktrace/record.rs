//! The layout of a record of blktrace, which the kernel writes in its own byte order. A payload follows each record.
//!
//! | bytes | version 7 | bytes | version 8 |
//! |---|---|---|---|
//! | 0–3 | 0x65617407 | 0–3 | 0x65617408 |
//! | 4–7 | sequence | 4–7 | sequence |
//! | 8–15 | time, ns | 8–15 | time, ns |
//! | 16–23 | sector | 16–23 | sector |
//! | 24–27 | bytes | 24–27 | bytes |
//! | 28–31 | action | 28–31 | pid |
//! | 32–35 | pid | 32–39 | action |
//! | 36–39 | device | 40–43 | device |
//! | 40–43 | cpu | 44–47 | cpu |
//! | 44–45 | error | 48–49 | error |
//! | 46–47 | length of the payload | 50–51 | length of the payload |
//! | | | 52–63 | 0 |

use iopath_core::Op;

/// The length of a record of version 7.
pub(super) const BYTES_7: usize = 48;
/// The length of a record of version 8.
pub(super) const BYTES_8: usize = 64;

const MAGIC: u32 = 0x6561_7400;

pub(crate) const CATEGORY_READ: u64 = 1;
pub(crate) const CATEGORY_WRITE: u64 = 1 << 1;
pub(crate) const CATEGORY_FLUSH: u64 = 1 << 2;
pub(crate) const CATEGORY_QUEUE: u64 = 1 << 4;
pub(crate) const CATEGORY_REQUEUE: u64 = 1 << 5;
pub(crate) const CATEGORY_ISSUE: u64 = 1 << 6;
pub(crate) const CATEGORY_COMPLETE: u64 = 1 << 7;
const CATEGORY_COMMAND: u64 = 1 << 9;
const CATEGORY_NOTIFY: u64 = 1 << 10;
pub(crate) const CATEGORY_DISCARD: u64 = 1 << 13;
pub(crate) const CATEGORY_FUA: u64 = 1 << 15;

/// The bit of an action that a cgroup id of eight bytes precedes the payload.
const CGROUP: u64 = 1 << 8;

/// The letters of actions, by number.
const LETTERS: [u8; 18] = *b"\0QMFGSRDCPUUIXBA\0\0";

/// A record without its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) version: u8,
    pub(super) is_swapped: bool,
    pub(super) sequence: u32,
    pub(super) time_ns: u64,
    pub(super) sector: u64,
    pub(super) bytes: u32,
    action: u64,
    pub(super) pid: u32,
    pub(super) device: u32,
    pub(super) cpu: u32,
    pub(super) error: u16,
    pub(super) payload_bytes: u16,
}

/// What a record is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// The payload is the command of the process.
    Process,
    /// A time stamp or a message.
    Notify,
    /// An action with blkparse's letter.
    Known(u8),
    Unknown,
}

impl Head {
    /// The record at the start of `bytes`; none if there is none, or it is cut off.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let magic = u32::from_ne_bytes(*bytes.first_chunk()?);
        let is_swapped = magic & !0xFF != MAGIC;
        let magic = if is_swapped { magic.swap_bytes() } else { magic };
        let version = (magic & 0xFF) as u8;
        let length = length_of(version).filter(|_| magic & !0xFF == MAGIC)?;
        let bytes = bytes.get(..length)?;
        let fields = Fields { bytes, is_swapped };
        let is_7 = version == 7;
        Some(Self {
            version,
            is_swapped,
            sequence: fields.u32(4),
            time_ns: fields.u64(8),
            sector: fields.u64(16),
            bytes: fields.u32(24),
            action: if is_7 { fields.u32(28).into() } else { fields.u64(32) },
            pid: fields.u32(if is_7 { 32 } else { 28 }),
            device: fields.u32(if is_7 { 36 } else { 40 }),
            cpu: fields.u32(if is_7 { 40 } else { 44 }),
            error: fields.u16(if is_7 { 44 } else { 48 }),
            payload_bytes: fields.u16(if is_7 { 46 } else { 50 }),
        })
    }

    /// The length of the record.
    pub(super) fn length(&self) -> usize {
        length_of(self.version).unwrap_or(BYTES_7)
    }

    const fn category(&self) -> u64 {
        self.action >> 16
    }

    /// Whether it is no event, but the name of a process, a time stamp or a message.
    pub(super) const fn is_notify(&self) -> bool {
        self.category() & CATEGORY_NOTIFY != 0
    }

    /// The length of the cgroup id before the payload.
    pub(super) const fn cgroup_bytes(&self) -> usize {
        if self.action & CGROUP == 0 { 0 } else { 8 }
    }

    pub(super) fn action(&self) -> Action {
        let number = self.action & 0xFF;
        if self.is_notify() {
            return if number == 0 { Action::Process } else { Action::Notify };
        }
        match LETTERS.get(number as usize) {
            Some(0) | None => Action::Unknown,
            Some(letter) => Action::Known(*letter),
        }
    }

    /// The operation, and whether the device is flushed before; no operation for commands.
    pub(super) const fn operation(&self) -> (Option<Op>, bool) {
        let category = self.category();
        let is_flush = category & CATEGORY_FLUSH != 0;
        let op = if category & CATEGORY_COMMAND != 0 {
            None
        } else if category & CATEGORY_DISCARD != 0 {
            Some(Op::Discard)
        } else if is_flush && self.bytes == 0 {
            Some(Op::Flush)
        } else if category & CATEGORY_WRITE != 0 {
            Some(Op::Write)
        } else {
            Some(Op::Read)
        };
        (op, is_flush)
    }

    pub(super) const fn is_fua(&self) -> bool {
        self.category() & CATEGORY_FUA != 0
    }
}

/// The length of a record of a version.
const fn length_of(version: u8) -> Option<usize> {
    match version {
        7 => Some(BYTES_7),
        8 => Some(BYTES_8),
        _ => None,
    }
}

/// Numbers in the byte order of the file.
struct Fields<'a> {
    bytes: &'a [u8],
    is_swapped: bool,
}

impl Fields<'_> {
    fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        self.bytes.get(at..).and_then(|bytes| bytes.first_chunk()).copied().unwrap_or([0; N])
    }

    fn u64(&self, at: usize) -> u64 {
        let value = u64::from_ne_bytes(self.array(at));
        if self.is_swapped { value.swap_bytes() } else { value }
    }

    fn u32(&self, at: usize) -> u32 {
        let value = u32::from_ne_bytes(self.array(at));
        if self.is_swapped { value.swap_bytes() } else { value }
    }

    fn u16(&self, at: usize) -> u16 {
        let value = u16::from_ne_bytes(self.array(at));
        if self.is_swapped { value.swap_bytes() } else { value }
    }
}

/// A record of version 7 to write, in the byte order of this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Record {
    pub(crate) sequence: u32,
    pub(crate) time_ns: u64,
    pub(crate) sector: u64,
    pub(crate) bytes: u32,
    /// The categories.
    pub(crate) category: u64,
    /// blkparse's letter; 0 for the name of a process.
    pub(crate) letter: u8,
    pub(crate) pid: u32,
    pub(crate) device: u32,
    pub(crate) error: u16,
}

impl Record {
    /// The bytes of the record and its payload.
    pub(crate) fn write(&self, payload: &[u8], out: &mut Vec<u8>) {
        let (letter, category) = match self.letter {
            0 => (0, CATEGORY_NOTIFY),
            letter => (LETTERS.iter().position(|known| *known == letter).unwrap_or(0), self.category),
        };
        let action = letter as u32 | (category as u32) << 16;
        out.extend((MAGIC | 7).to_ne_bytes());
        out.extend(self.sequence.to_ne_bytes());
        out.extend(self.time_ns.to_ne_bytes());
        out.extend(self.sector.to_ne_bytes());
        out.extend(self.bytes.to_ne_bytes());
        out.extend(action.to_ne_bytes());
        out.extend(self.pid.to_ne_bytes());
        out.extend(self.device.to_ne_bytes());
        out.extend(0_u32.to_ne_bytes());
        out.extend(self.error.to_ne_bytes());
        out.extend((payload.len() as u16).to_ne_bytes());
        out.extend(payload);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_record_is_read_in_both_byte_orders() {
        let record = Record {
            sequence: 3,
            time_ns: 1 << 40,
            sector: 2048,
            bytes: 4096,
            category: CATEGORY_WRITE | CATEGORY_FUA,
            letter: b'D',
            pid: 77,
            device: 8 << 20 | 1,
            error: 0,
        };
        let mut bytes = Vec::new();
        record.write(b"xy", &mut bytes);
        assert_eq!(bytes.len(), BYTES_7 + 2);
        let head = Head::parse(&bytes).unwrap();
        assert_eq!((head.time_ns, head.sector, head.bytes, head.pid), (1 << 40, 2048, 4096, 77));
        assert_eq!(
            (head.action(), head.operation(), head.is_fua()),
            (Action::Known(b'D'), (Some(Op::Write), false), true)
        );
        assert_eq!(head.payload_bytes, 2);
        // The same record of a machine with the other byte order.
        let widths = [4, 4, 8, 8, 4, 4, 4, 4, 4, 2, 2];
        let mut at = 0;
        for width in widths {
            bytes[at..at + width].reverse();
            at += width;
        }
        let swapped = Head::parse(&bytes).unwrap();
        assert_eq!(Head { is_swapped: false, ..swapped }, head);
    }

    #[test]
    fn version_8_has_its_fields_at_other_places() {
        let mut bytes = Vec::new();
        bytes.extend((MAGIC | 8).to_ne_bytes());
        bytes.extend(9_u32.to_ne_bytes());
        bytes.extend(5_u64.to_ne_bytes());
        bytes.extend(100_u64.to_ne_bytes());
        bytes.extend(512_u32.to_ne_bytes());
        bytes.extend(42_u32.to_ne_bytes());
        bytes.extend((1_u64 | CATEGORY_READ << 16).to_ne_bytes());
        bytes.extend((259_u32 << 20).to_ne_bytes());
        bytes.extend(3_u32.to_ne_bytes());
        bytes.extend([0; 16]);
        let head = Head::parse(&bytes).unwrap();
        assert_eq!((head.sequence, head.time_ns, head.sector, head.bytes), (9, 5, 100, 512));
        assert_eq!((head.pid, head.device, head.cpu, head.length()), (42, 259 << 20, 3, BYTES_8));
        assert_eq!(head.action(), Action::Known(b'Q'));
        assert_eq!(Head::parse(&bytes[..63]), None);
        bytes[0] = 9;
        assert_eq!(Head::parse(&bytes), None);
    }
}
