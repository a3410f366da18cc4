//! The frames of a log file: header, block header, mark, labels, trailer; docs/log-format.md describes each byte. The
//! content of blocks is in `block.rs`, file I/O in `reader.rs` and `writer.rs`.
//!
//! The file is a sequence of zstd frames. Frames of this module are skippable, so that `zstd -dc FILE` writes the
//! content of all blocks.

use serde::{Deserialize, Serialize};

pub(crate) const VERSION: u16 = 6;

/// From this version on, a block consists of columns: see `columns.rs`. Before, it consists of words.
pub(crate) const COLUMNS_FROM: u16 = 5;

/// The kind of a frame, from its magic number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Header = 0x184D_2A50,
    Block = 0x184D_2A51,
    Trailer = 0x184D_2A52,
    Mark = 0x184D_2A53,
    Labels = 0x184D_2A54,
}

/// Magic number and length of a skippable frame.
pub(crate) const FRAME_HEAD_BYTES: usize = 8;

/// Length of a block header, without the head of its frame.
pub(crate) const BLOCK_BYTES: usize = 40;

/// Length of the trailer, without the head of its frame.
pub(crate) const TRAILER_BYTES: usize = 36;

/// Length of a mark, without the head of its frame.
pub(crate) const MARK_BYTES: usize = 16;

/// The maximum number of marks in a log; later marks are neither written nor read.
pub(crate) const MARKS_MAX: usize = 4096;

/// The maximum length of a header.
pub(crate) const HEADER_BYTES_MAX: usize = 1 << 16;

pub(crate) const NAME: &[u8; 10] = b"iopath.log";
const CRC_BYTES: usize = 4;

impl Kind {
    pub(crate) const fn from_magic(magic: u32) -> Option<Self> {
        match magic {
            0x184D_2A50 => Some(Self::Header),
            0x184D_2A51 => Some(Self::Block),
            0x184D_2A52 => Some(Self::Trailer),
            0x184D_2A53 => Some(Self::Mark),
            0x184D_2A54 => Some(Self::Labels),
            _ => None,
        }
    }
}

/// Each string of the header is truncated to this length, so that the escaped JSON fits into [`HEADER_BYTES_MAX`].
const INFO_BYTES_MAX: usize = 1500;

/// The maximum length of a note, for the same reason.
const NOTE_BYTES_MAX: usize = 200;

/// The maximum number of notes of a header.
const NOTES_MAX: usize = 8;

/// The header of a log. Each string is truncated to 1,500 bytes, and each note to 200. A header read from a file is
/// untrusted text: print it through [`Plain`](crate::Plain).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct LogInfo {
    /// The elevator when the log began.
    pub elevator: String,
    /// The maximum number of requests at the device, if the run limited it.
    pub device_depth: Option<u32>,
    /// The target of the I/O.
    pub target: String,
    /// The clock of all times: `monotonic`, or `virtual` for modelled disks.
    pub clock: String,
    /// The time on this clock when the log began, in nanoseconds. Summary and dump print times relative to it.
    pub start_ns: u64,
    /// Time when the log began, in nanoseconds since 1970 (UTC); 0 if unknown.
    pub started_unix_ns: u64,
    /// The version of the program that wrote the log.
    pub written_by: String,
    /// Whether the log has the accesses of programs ([`Event::Access`](iopath_core::log::Event::Access)).
    pub has_accesses: bool,
    /// The readahead of the page cache below the accesses, as `--readahead` names it; none for the default.
    pub readahead: Option<String>,
    /// The memory of the page cache in bytes; none for the default.
    pub cache_bytes: Option<u64>,
    /// The path that the steps are of: `iopath`, `kernel` for the block layer of Linux, or `trace`.
    pub source: String,
    /// What the recording lacks or hides and limits the conclusions, in words; of traces of other programs.
    pub notes: Vec<String>,
}

impl Default for LogInfo {
    fn default() -> Self {
        Self {
            elevator: String::new(),
            device_depth: None,
            target: String::new(),
            clock: "monotonic".to_owned(),
            start_ns: 0,
            started_unix_ns: 0,
            written_by: concat!("iopath ", env!("CARGO_PKG_VERSION")).to_owned(),
            has_accesses: false,
            readahead: None,
            cache_bytes: None,
            source: Self::IOPATH.to_owned(),
            notes: Vec::new(),
        }
    }
}

impl LogInfo {
    /// The [`source`](Self::source) of a log of iopath's own queues.
    pub const IOPATH: &str = "iopath";
    /// The [`source`](Self::source) of a log of the kernel's queues: each queue is a device, each stream a process.
    pub const KERNEL: &str = "kernel";
    /// The [`source`](Self::source) of a trace that has I/Os without the steps of a path: each queue is a device, each
    /// stream a process or, if the trace has none, a device.
    pub const TRACE: &str = "trace";

    /// Whether each queue is a device, and each stream a process. All queues of iopath are of one target.
    pub fn has_devices(&self) -> bool {
        self.source != Self::IOPATH
    }
}

/// The totals of a log, known at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Totals {
    /// Records in the file.
    pub records: u64,
    /// Records lost because a ring was full.
    pub missed: u64,
    /// Records dropped after the file had reached its size limit, or after a write error.
    pub over_limit: u64,
}

/// The header of a block of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct BlockHead {
    pub(crate) queue: u16,
    pub(crate) records: u32,
    /// The number of records in the file before this block.
    pub(crate) first_record: u64,
    /// The full time of the first record.
    pub(crate) time_ns: u64,
    /// Records of this queue that were lost before this block was written.
    pub(crate) missed: u64,
    /// The length of the zstd frame that follows.
    pub(crate) frame_bytes: u32,
}

/// The beginning of a repeat. All steps from `at_ns` to the next mark belong to the repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// The number of the repeat.
    pub repeat: u32,
    /// The time at which the repeat begins, on the clock of the log.
    pub at_ns: u64,
}

pub(crate) fn header(info: &LogInfo) -> Vec<u8> {
    let cut_to = |text: &str, bytes_max: usize| {
        let ends = (0..=text.len().min(bytes_max)).rev();
        let end = ends.into_iter().find(|end| text.is_char_boundary(*end));
        text[..end.unwrap_or(0)].to_owned()
    };
    let cut = |text: &str| cut_to(text, INFO_BYTES_MAX);
    let LogInfo { elevator, target, clock, written_by, readahead, source, notes, .. } = info;
    let info = LogInfo {
        elevator: cut(elevator),
        target: cut(target),
        clock: cut(clock),
        written_by: cut(written_by),
        readahead: readahead.as_deref().map(cut),
        source: cut(source),
        notes: notes.iter().take(NOTES_MAX).map(|note| cut_to(note, NOTE_BYTES_MAX)).collect(),
        ..*info
    };
    let json = serde_json::to_vec(&info).expect("strings and numbers are always JSON");
    let version = VERSION.to_le_bytes();
    frame(Kind::Header, &[NAME.as_slice(), version.as_slice(), json.as_slice()])
}

/// The version, and the header's fields if this program knows the version.
pub(crate) fn parse_header(payload: &[u8]) -> Result<(u16, LogInfo), &'static str> {
    let rest = payload.strip_prefix(NAME).ok_or("its header has another name")?;
    let (version, json) = rest.split_first_chunk().ok_or("its header is too short")?;
    let version = u16::from_le_bytes(*version);
    if version > VERSION {
        return Ok((version, LogInfo::default()));
    }
    let json = without_crc(payload).and(json.len().checked_sub(CRC_BYTES).map(|end| &json[..end]));
    let json = json.ok_or("its header is damaged")?;
    let info = serde_json::from_slice(json).map_err(|_| "its header is not JSON")?;
    Ok((version, info))
}

impl BlockHead {
    /// The frame of this header.
    pub(crate) fn to_frame(self) -> Vec<u8> {
        frame(
            Kind::Block,
            &[
                &self.queue.to_le_bytes(),
                &[0; 2],
                &self.records.to_le_bytes(),
                &self.first_record.to_le_bytes(),
                &self.time_ns.to_le_bytes(),
                &self.missed.to_le_bytes(),
                &self.frame_bytes.to_le_bytes(),
            ],
        )
    }

    pub(crate) fn parse(payload: &[u8]) -> Option<Self> {
        let mut fields = Fields(without_crc(payload)?);
        let queue = u16::from_le_bytes(fields.take()?);
        let _reserved: [u8; 2] = fields.take()?;
        Some(Self {
            queue,
            records: u32::from_le_bytes(fields.take()?),
            first_record: u64::from_le_bytes(fields.take()?),
            time_ns: u64::from_le_bytes(fields.take()?),
            missed: u64::from_le_bytes(fields.take()?),
            frame_bytes: u32::from_le_bytes(fields.take()?),
        })
    }
}

impl Totals {
    pub(crate) fn to_frame(self) -> Vec<u8> {
        let Self { records, missed, over_limit } = self;
        let counts = [records, missed, over_limit].map(u64::to_le_bytes);
        frame(Kind::Trailer, &[&counts[0], &counts[1], &counts[2], &[0; 8]])
    }

    pub(crate) fn parse(payload: &[u8]) -> Option<Self> {
        let mut fields = Fields(without_crc(payload)?);
        Some(Self {
            records: u64::from_le_bytes(fields.take()?),
            missed: u64::from_le_bytes(fields.take()?),
            over_limit: u64::from_le_bytes(fields.take()?),
        })
    }
}

impl Mark {
    pub(crate) fn to_frame(self) -> Vec<u8> {
        frame(Kind::Mark, &[&self.at_ns.to_le_bytes(), &self.repeat.to_le_bytes()])
    }

    pub(crate) fn parse(payload: &[u8]) -> Option<Self> {
        let mut fields = Fields(without_crc(payload)?);
        let at_ns = u64::from_le_bytes(fields.take()?);
        Some(Self { at_ns, repeat: u32::from_le_bytes(fields.take()?) })
    }
}

/// The frame of labels in JSON.
pub(crate) fn labels_frame(json: &[u8]) -> Vec<u8> {
    frame(Kind::Labels, &[json])
}

/// The JSON of the payload of a frame of labels; `None` if it is damaged.
pub(crate) fn labels_json(payload: &[u8]) -> Option<&[u8]> {
    without_crc(payload)
}

/// A skippable frame around `parts` and their checksum.
fn frame(kind: Kind, parts: &[&[u8]]) -> Vec<u8> {
    let payload: Vec<u8> = parts.concat();
    let mut frame = Vec::with_capacity(FRAME_HEAD_BYTES + payload.len() + CRC_BYTES);
    frame.extend((kind as u32).to_le_bytes());
    frame.extend(((payload.len() + CRC_BYTES) as u32).to_le_bytes());
    frame.extend(&payload);
    frame.extend(crc32fast::hash(&payload).to_le_bytes());
    frame
}

/// The payload without the checksum at its end; `None` if the checksum is wrong.
fn without_crc(payload: &[u8]) -> Option<&[u8]> {
    let (rest, crc) = payload.split_last_chunk::<CRC_BYTES>()?;
    (crc32fast::hash(rest) == u32::from_le_bytes(*crc)).then_some(rest)
}

/// A sequence of numbers.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_have_the_documented_length_and_survive_a_round_trip() {
        let head = BlockHead { queue: 1, records: 2, first_record: 3, time_ns: 4, missed: 5, frame_bytes: 6 };
        let frame = head.to_frame();
        assert_eq!(frame.len(), FRAME_HEAD_BYTES + BLOCK_BYTES);
        assert_eq!(frame[..4], [0x51, 0x2A, 0x4D, 0x18]);
        assert_eq!(BlockHead::parse(&frame[FRAME_HEAD_BYTES..]), Some(head));

        let totals = Totals { records: 7, missed: 8, over_limit: 9 };
        let frame = totals.to_frame();
        assert_eq!(frame.len(), FRAME_HEAD_BYTES + TRAILER_BYTES);
        assert_eq!(Totals::parse(&frame[FRAME_HEAD_BYTES..]), Some(totals));

        let mark = Mark { repeat: 3, at_ns: 1 << 50 };
        let frame = mark.to_frame();
        assert_eq!(frame.len(), FRAME_HEAD_BYTES + MARK_BYTES);
        assert_eq!(Mark::parse(&frame[FRAME_HEAD_BYTES..]), Some(mark));

        let info = LogInfo { elevator: "ascend".to_owned(), start_ns: 5, ..LogInfo::default() };
        let frame = header(&info);
        assert_eq!(parse_header(&frame[FRAME_HEAD_BYTES..]), Ok((VERSION, info)));
    }

    #[test]
    fn a_header_with_strings_of_any_length_is_readable() {
        for text in ["\x1b".repeat(100_000), "ü".repeat(100_000)] {
            let info = LogInfo {
                elevator: text.clone(),
                target: text.clone(),
                clock: text.clone(),
                written_by: text.clone(),
                source: text.clone(),
                notes: vec![text.clone(); NOTES_MAX + 1],
                ..LogInfo::default()
            };
            let frame = header(&info);
            assert!(frame.len() <= HEADER_BYTES_MAX, "{} bytes", frame.len());
            let (_, read) = parse_header(&frame[FRAME_HEAD_BYTES..]).unwrap();
            assert!(text.starts_with(&read.target) && read.target.len() > INFO_BYTES_MAX - 4);
        }
    }

    #[test]
    fn every_changed_byte_is_detected() {
        let frame = BlockHead { records: 2, frame_bytes: 6, ..BlockHead::default() }.to_frame();
        let header = header(&LogInfo::default());
        for place in FRAME_HEAD_BYTES..frame.len() {
            let mut changed = frame.clone();
            changed[place] ^= 1;
            assert_eq!(BlockHead::parse(&changed[FRAME_HEAD_BYTES..]), None, "byte {place}");
        }
        for place in FRAME_HEAD_BYTES..header.len() {
            let mut changed = header.clone();
            changed[place] ^= 1;
            let parsed = parse_header(&changed[FRAME_HEAD_BYTES..]);
            assert!(!matches!(parsed, Ok((VERSION, _))), "byte {place}");
        }
    }

    #[test]
    fn unknown_fields_are_ignored() {
        let json = br#"{"elevator":"none","colour":"blue"}"#;
        let frame = frame(Kind::Header, &[NAME, &VERSION.to_le_bytes(), json]);
        let (_, info) = parse_header(&frame[FRAME_HEAD_BYTES..]).unwrap();
        assert_eq!(info.elevator, "none");
    }
}
