//! The packed record and the step that it encodes. The layout is a file format: read docs/log-format.md before changing
//! it.

use crate::block::bio::{Bio, Op, Stream};
use crate::block::merge::NoMerge;
use crate::sector::{Extent, SECTOR_BYTES, Sector};
use crate::time::Instant;

mod parts;

/// One step of one bio or request.
///
/// | word | bits | field |
/// |---|---|---|
/// | 0 | 0–39 | time, its lower bits, in nanoseconds |
/// | 0 | 40–63 | length in sectors |
/// | 1 | 0–47 | sector |
/// | 1 | 48–63 | stream |
/// | 2 | 0–23 | tag: the bio's or request's number |
/// | 2 | 24–47 | other: depends on the event |
/// | 2 | 48–52 | event |
/// | 2 | 53–55 | operation |
/// | 2 | 56–59 | reason |
/// | 2 | 60–63 | flags: request, last or first, fua, both |
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Record([u64; 3]);

const _: () = assert!(size_of::<Record>() == Record::BYTES);

/// The kind of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
#[non_exhaustive]
pub enum Event {
    /// A bio was accepted.
    Queue = 1,
    /// A bio waits for an earlier overlapping one.
    Hold = 2,
    /// A piece (`tag`) was split from a bio (`other`).
    Split = 3,
    /// A bio or piece found no free request slot. A piece is dropped and split again later.
    SlotWait = 4,
    /// A request slot (`tag`) was taken for a bio or piece (`other`).
    Get = 5,
    /// A bio or request was merged at the end of a request (`other`).
    BackMerge = 6,
    /// A bio or request was merged at the start of a request (`other`).
    FrontMerge = 7,
    /// A bio or request is adjacent to a request (`other`) and not merged, for `reason`.
    NoMerge = 8,
    /// A request is the first in the plug.
    Plug = 9,
    /// The plug was emptied of `other` requests.
    Unplug = 10,
    /// A request was inserted in the elevator, not merged there for `reason`.
    Insert = 11,
    /// A request was dispatched to the device.
    Dispatch = 12,
    /// The device refused a request because it was busy.
    Requeue = 13,
    /// A request or bio has completed; `other` is the errno, 0 for success.
    Complete = 14,
    /// A bio waits for the next flush of the device.
    Flush = 15,
    /// A bio is retried alone because the merged request failed.
    Retry = 16,
    /// The upper bits of the time change to `other`.
    Clock = 17,
    /// `sector` records are missing here; the upper bits of the time are `other`.
    Missed = 18,
    /// The elevator was replaced by the one in [`Record::name`].
    Elevator = 19,
    /// A program accesses a range of bytes, above a page cache: [`Record::access_range`]. The slot is the number of a
    /// bio.
    Access = 21,
    /// An access has ended; `other` is the errno, 0 for success.
    AccessEnd = 22,
    /// A bio of a device above became this bio: the sectors are those above, `other` is the queue of that device.
    Remap = 23,
}

impl Event {
    /// All events, by code, from 1 on. No event has code 20: a record with it combines steps.
    pub const ALL: [Self; 22] = [
        Self::Queue,
        Self::Hold,
        Self::Split,
        Self::SlotWait,
        Self::Get,
        Self::BackMerge,
        Self::FrontMerge,
        Self::NoMerge,
        Self::Plug,
        Self::Unplug,
        Self::Insert,
        Self::Dispatch,
        Self::Requeue,
        Self::Complete,
        Self::Flush,
        Self::Retry,
        Self::Clock,
        Self::Missed,
        Self::Elevator,
        Self::Access,
        Self::AccessEnd,
        Self::Remap,
    ];

    /// The code in a record.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The position in [`Event::ALL`] of the event with that code; out of range if there is none.
    pub const fn index_of_code(code: u8) -> usize {
        match code {
            20 => usize::MAX,
            ..20 => (code as usize).wrapping_sub(1),
            21.. => code as usize - 2,
        }
    }

    /// The event with that code.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(Self::index_of_code(code)).copied()
    }
}

/// The subject of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Subject {
    /// The queue as a whole.
    Queue,
    /// The bio in that slot, from its `Queue` or `Split` to its `Complete`.
    Bio(u32),
    /// The request in that slot ([`Tag::index`](crate::Tag::index)), from its `Get` to its `Complete`.
    Request(u32),
}

/// The decoded form of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// The kind.
    pub event: Event,
    /// The bio, request or queue.
    pub subject: Subject,
    /// A value that depends on the event: see [`Event`].
    pub other: u32,
    /// The operation of the bio or request.
    pub op: Op,
    /// The sectors, clamped to [`Record::SECTOR_MAX`] and [`Record::SECTORS_MAX`].
    pub extent: Extent,
    /// The stream, clamped to [`Record::STREAM_MAX`].
    pub stream: Stream,
    /// The reason against a merge.
    pub reason: Option<NoMerge>,
    /// Forced unit access.
    pub is_fua: bool,
    /// `Complete` of a request only: its only bio has completed with it and has no record of its own.
    pub is_last: bool,
}

impl Step {
    /// A step without further values.
    pub const fn new(event: Event, subject: Subject) -> Self {
        Self {
            event,
            subject,
            other: 0,
            op: Op::Read,
            extent: Extent::EMPTY,
            stream: Stream(0),
            reason: None,
            is_fua: false,
            is_last: false,
        }
    }

    /// A step of the bio in `slot`.
    pub(crate) const fn of_bio<M: Copy>(event: Event, slot: u32, bio: &Bio<M>) -> Self {
        Self {
            op: bio.op,
            extent: bio.extent,
            stream: bio.stream,
            is_fua: bio.fua,
            ..Self::new(event, Subject::Bio(slot))
        }
    }

    /// The step with `other`.
    #[must_use]
    pub const fn with_other(mut self, other: u32) -> Self {
        self.other = other;
        self
    }

    /// The step with the reason against a merge.
    #[must_use]
    pub const fn because(mut self, reason: NoMerge) -> Self {
        self.reason = Some(reason);
        self
    }
}

/// An access of a program to a range of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// [`Op::Read`], [`Op::Write`] or [`Op::Flush`]; other operations are possible.
    pub op: Op,
    /// The first byte.
    pub offset: u64,
    /// The number of bytes; 0 for a flush.
    pub bytes: u64,
    /// The stream of the caller.
    pub stream: Stream,
}

impl Access {
    /// The sectors that the range touches, and its bytes before and after the range in them.
    fn sectors(&self) -> (Extent, u32) {
        let start = self.offset / SECTOR_BYTES;
        let end = self.offset.saturating_add(self.bytes);
        let sectors = if self.bytes == 0 { 0 } else { end.div_ceil(SECTOR_BYTES) - start };
        let Some(extent) = Extent::new(Sector(start), sectors) else { return (Extent::EMPTY, 0) };
        let head = self.offset % SECTOR_BYTES;
        let tail = (sectors * SECTOR_BYTES).saturating_sub(head + self.bytes) % SECTOR_BYTES;
        (extent, (head | tail << EDGE_BITS) as u32)
    }
}

/// Bits of the bytes before or after an access in its first or last sector.
const EDGE_BITS: u32 = 9;

/// A record has a code that this version does not define.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a record has {field} {code}, which this version does not define; read it with a newer iopath")]
#[non_exhaustive]
pub struct UnknownCode {
    /// The field.
    pub field: &'static str,
    /// Its value.
    pub code: u8,
}

const OPS: [Op; 5] = [Op::Read, Op::Write, Op::Flush, Op::Discard, Op::WriteZeroes];
const FLAG_REQUEST: u64 = 1 << 60;
const FLAG_LAST: u64 = 1 << 61;
const FLAG_FUA: u64 = 1 << 62;
const COMPLETE: u8 = Event::Complete.code();

const fn event_bits(event: Event) -> u64 {
    (event as u64) << 48
}

const fn low(bits: u32) -> u64 {
    (1 << bits) - 1
}

impl Record {
    /// The size of a record.
    pub const BYTES: usize = 24;
    /// The lower bits of the time in a record; the upper bits are in the last `Clock` or `Missed` before it.
    pub const TIME_BITS: u32 = 40;
    /// The highest sector in a record (48 bits, as in ATA); higher ones are clamped.
    pub const SECTOR_MAX: u64 = low(48);
    /// The longest extent in a record: 8 GiB less a sector; longer ones are clamped.
    pub const SECTORS_MAX: u64 = low(24);
    /// The highest stream in a record; higher ones are clamped.
    pub const STREAM_MAX: u32 = low(16) as u32;
    /// The tag of a step of the queue.
    pub const NO_TAG: u32 = low(24) as u32;

    /// No event has this code. Not zero, so that an array filled with it is written to and backed by pages.
    pub(crate) const UNUSED: Self = Self([u64::MAX; 3]);

    /// The maximum length of a name in a record, in bytes.
    pub const NAME_LEN_MAX: usize = 11;

    /// Encodes a step at the time `now`.
    #[expect(clippy::inline_always, reason = "see `Log::push` in `collect.rs`")]
    #[inline(always)]
    pub fn new(step: &Step, now: Instant) -> Self {
        let (tag, flag_request) = match step.subject {
            Subject::Queue => (Self::NO_TAG, 0),
            Subject::Bio(slot) => (slot, 0),
            Subject::Request(slot) => (slot, FLAG_REQUEST),
        };
        let mut sectors = step.extent.sectors();
        let mut sector = step.extent.start().0;
        let mut stream = u64::from(step.stream.0);
        // One check for all three: values that are too large are rare.
        if sectors >> 24 | sector >> 48 | stream >> 16 != 0 {
            sectors = sectors.min(Self::SECTORS_MAX);
            sector = sector.min(Self::SECTOR_MAX);
            stream = stream.min(u64::from(Self::STREAM_MAX));
        }
        let reason = step.reason.map_or(0, NoMerge::code);
        let flags =
            flag_request | if step.is_last { FLAG_LAST } else { 0 } | if step.is_fua { FLAG_FUA } else { 0 };
        Self([
            now.as_nanos() & low(Self::TIME_BITS) | sectors << Self::TIME_BITS,
            sector | stream << 48,
            u64::from(tag) & low(24)
                | (u64::from(step.other) & low(24)) << 24
                | u64::from(step.event.code()) << 48
                | (step.op as u64) << 53
                | u64::from(reason) << 56
                | flags,
        ])
    }

    /// The record that states `count` missing records before one of the time `now`.
    pub fn missed(count: u64, now: Instant) -> Self {
        let start = Sector(count.min(Self::SECTOR_MAX));
        let extent = Extent::new(start, 0).unwrap_or_default();
        let time_high = (now.as_nanos() >> Self::TIME_BITS) as u32;
        let step = Step { extent, ..Step::new(Event::Missed, Subject::Queue) }.with_other(time_high);
        Self::new(&step, now)
    }

    /// The record of a new elevator. The name is truncated to [`Record::NAME_LEN_MAX`].
    pub(crate) fn elevator(name: &str, now: Instant) -> Self {
        let mut bytes = [0; 16];
        for (byte, letter) in bytes.iter_mut().zip(name.bytes().take(Self::NAME_LEN_MAX)) {
            *byte = letter;
        }
        let letters = u128::from_le_bytes(bytes);
        let step = Step::new(Event::Elevator, Subject::Queue);
        let Self([time, _, what]) = Self::new(&step, now);
        let rest = (letters >> 64) as u64;
        Self([time | rest << Self::TIME_BITS, letters as u64, what])
    }

    /// The record of the begin of an access.
    #[inline]
    pub(crate) fn access(slot: u32, access: &Access, now: Instant) -> Self {
        let (extent, edges) = access.sectors();
        let step = Step::new(Event::Access, Subject::Bio(slot)).with_other(edges);
        Self::new(&Step { op: access.op, stream: access.stream, extent, ..step }, now)
    }

    /// The record of the end of an access.
    #[inline]
    pub(crate) fn access_end(slot: u32, access: &Access, errno: u32, now: Instant) -> Self {
        let (extent, _) = access.sectors();
        let step = Step::new(Event::AccessEnd, Subject::Bio(slot)).with_other(errno);
        Self::new(&Step { op: access.op, stream: access.stream, extent, ..step }, now)
    }

    /// Offset and length in bytes of the range in a record of [`Event::Access`]. A range that was too large for a
    /// record is clamped to whole sectors.
    pub const fn access_range(self) -> (u64, u64) {
        let edges = self.other() as u64;
        let (head, tail) = (edges & low(EDGE_BITS), edges >> EDGE_BITS & low(EDGE_BITS));
        let bytes = self.sectors() * SECTOR_BYTES;
        (self.sector() * SECTOR_BYTES + head, bytes.saturating_sub(head + tail))
    }

    /// The name in a record of [`Event::Elevator`].
    pub fn name(self) -> String {
        let letters = u128::from(self.0[1]) | u128::from(self.sectors()) << 64;
        let bytes = letters.to_le_bytes();
        String::from_utf8_lossy(&bytes[..Self::NAME_LEN_MAX]).trim_end_matches('\0').to_owned()
    }

    /// The record with these words, valid or not.
    pub const fn from_words(words: [u64; 3]) -> Self {
        Self(words)
    }

    /// The words, as in memory and, little-endian, in files.
    pub const fn to_words(self) -> [u64; 3] {
        self.0
    }

    /// The decoded step. For a record that combines several steps, the last step with the values of the others: see
    /// [`Record::parts`].
    ///
    /// # Errors
    /// If the record has a code that this version does not define.
    pub fn step(self) -> Result<Step, UnknownCode> {
        let event = self.event().ok_or(UnknownCode { field: "event", code: self.event_code() })?;
        let op = self.op().ok_or(UnknownCode { field: "operation", code: (self.0[2] >> 53) as u8 & 7 })?;
        let reason_code = (self.0[2] >> 56) as u8 & 15;
        let reason = match reason_code {
            0 => None,
            code => Some(NoMerge::from_code(code).ok_or(UnknownCode { field: "reason", code })?),
        };
        Ok(Step {
            event,
            subject: self.subject(),
            other: self.other(),
            op,
            extent: self.extent(),
            stream: self.stream(),
            reason,
            is_fua: self.0[2] & FLAG_FUA != 0,
            is_last: self.is_last(),
        })
    }

    /// The lower bits of the time in nanoseconds.
    pub const fn time_low(self) -> u64 {
        self.0[0] & low(Self::TIME_BITS)
    }

    /// The code of the event, known or not.
    pub const fn event_code(self) -> u8 {
        (self.0[2] >> 48) as u8 & 31
    }

    /// The event, if this version defines its code.
    pub fn event(self) -> Option<Event> {
        Event::from_code(self.event_code())
    }

    /// The operation, if this version defines its code.
    pub fn op(self) -> Option<Op> {
        OPS.get((self.0[2] >> 53) as usize & 7).copied()
    }

    /// The subject.
    pub const fn subject(self) -> Subject {
        let tag = (self.0[2] & low(24)) as u32;
        if self.is_request() {
            Subject::Request(tag)
        } else if tag == Self::NO_TAG {
            Subject::Queue
        } else {
            Subject::Bio(tag)
        }
    }

    /// The number of the bio or request.
    pub const fn tag(self) -> u32 {
        (self.0[2] & low(24)) as u32
    }

    /// Whether the subject is a request.
    pub const fn is_request(self) -> bool {
        self.0[2] & FLAG_REQUEST != 0
    }

    /// Whether the only bio of the request has completed with it.
    pub const fn is_last(self) -> bool {
        self.0[2] & FLAG_LAST != 0 && self.event_code() == COMPLETE
    }

    /// A value that depends on the event: see [`Event`].
    pub const fn other(self) -> u32 {
        (self.0[2] >> 24 & low(24)) as u32
    }

    /// The code of the reason, 0 for none.
    pub const fn reason_code(self) -> u8 {
        (self.0[2] >> 56) as u8 & 15
    }

    /// The first sector.
    pub const fn sector(self) -> u64 {
        self.0[1] & Self::SECTOR_MAX
    }

    /// The number of sectors.
    pub const fn sectors(self) -> u64 {
        self.0[0] >> Self::TIME_BITS
    }

    /// The sectors.
    pub const fn extent(self) -> Extent {
        match Extent::new(Sector(self.sector()), self.sectors()) {
            Some(extent) => extent,
            None => Extent::EMPTY,
        }
    }

    /// The stream.
    pub const fn stream(self) -> Stream {
        Stream((self.0[1] >> 48) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn steps() -> impl Strategy<Value = Step> {
        let subject = prop_oneof![
            Just(Subject::Queue),
            (0..Record::NO_TAG).prop_map(Subject::Bio),
            (0..=Record::NO_TAG).prop_map(Subject::Request),
        ];
        let extent = (0..=Record::SECTOR_MAX, 0..=Record::SECTORS_MAX)
            .prop_map(|(start, sectors)| Extent::new(Sector(start), sectors).unwrap());
        let reason = proptest::option::of(proptest::sample::select(NoMerge::ALL.to_vec()));
        let event = proptest::sample::select(Event::ALL.to_vec());
        let op = proptest::sample::select(OPS.to_vec());
        let rest = (0_u32..1 << 24, 0..=Record::STREAM_MAX, any::<bool>(), any::<bool>());
        (event, subject, op, extent, reason, rest).prop_map(|(event, subject, op, extent, reason, rest)| {
            let (other, stream, is_fua, is_last) = rest;
            let is_last = is_last && event == Event::Complete;
            Step { event, subject, other, op, extent, stream: Stream(stream), reason, is_fua, is_last }
        })
    }

    proptest! {
        #[test]
        fn an_encoded_step_survives_a_round_trip(step in steps(), nanos: u64) {
            let record = Record::new(&step, Instant::from_nanos(nanos));
            prop_assert_eq!(record.step(), Ok(step));
            prop_assert_eq!(record.time_low(), nanos % (1 << Record::TIME_BITS));
            prop_assert_eq!(Record::from_words(record.to_words()), record);
        }

        #[test]
        fn any_words_decode_or_name_the_unknown_code(words: [u64; 3]) {
            let record = Record::from_words(words);
            match record.step() {
                Ok(step) => {
                    // A step has no flags for combined steps.
                    let again = Record::new(&step, Instant::from_nanos(record.time_low())).to_words();
                    let others = if step.event == Event::Complete { 1 << 63 } else { 1 << 63 | FLAG_LAST };
                    prop_assert_eq!(again, [words[0], words[1], words[2] & !others]);
                }
                Err(unknown) => prop_assert!(unknown.code <= 31),
            }
        }
    }

    #[test]
    fn each_field_lies_at_its_documented_position() {
        let step = Step {
            event: Event::NoMerge,
            subject: Subject::Request(0x0A_BCDE),
            other: 0x12_3456,
            op: Op::WriteZeroes,
            extent: Extent::new(Sector(0x1234_5678_9ABC), 0x00_0102).unwrap(),
            stream: Stream(0xBEEF),
            reason: Some(NoMerge::SegmentLimit),
            is_fua: true,
            is_last: false,
        };
        let record = Record::new(&step, Instant::from_nanos(0xFF_1122_3344_5566));
        assert_eq!(
            record.to_words(),
            [0x0001_0222_3344_5566, 0xBEEF_1234_5678_9ABC, 0x5488_1234_560A_BCDE],
            "{:x?}",
            record.to_words()
        );
    }

    #[test]
    fn values_that_are_too_large_are_clamped() {
        let extent = Extent::new(Sector(Record::SECTOR_MAX + 5), 1 << 30).unwrap();
        let step = Step { extent, stream: Stream(u32::MAX), ..Step::new(Event::Queue, Subject::Bio(0)) };
        let record = Record::new(&step, Instant::ZERO);
        assert_eq!((record.sector(), record.sectors()), (Record::SECTOR_MAX, Record::SECTORS_MAX));
        assert_eq!(record.stream(), Stream(Record::STREAM_MAX));
    }

    #[test]
    fn event_codes_survive_a_round_trip() {
        for event in Event::ALL {
            assert_eq!(Event::from_code(event.code()), Some(event));
        }
        assert_eq!([0, 20, 24, 31].map(Event::from_code), [None; 4]);
    }

    proptest! {
        #[test]
        fn the_range_of_an_access_survives_a_round_trip(
            offset in 0..Record::SECTOR_MAX * SECTOR_BYTES,
            bytes in 0..(Record::SECTORS_MAX - 1) * SECTOR_BYTES,
        ) {
            let access = Access { op: Op::Write, offset, bytes, stream: Stream(3) };
            let record = Record::access(7, &access, Instant::ZERO);
            let expected = if bytes == 0 { (offset, 0) } else { (offset, bytes) };
            prop_assert_eq!(record.access_range(), expected);
            prop_assert_eq!((record.event(), record.tag(), record.stream()), (Some(Event::Access), 7, Stream(3)));
            let ended = Record::access_end(7, &access, 5, Instant::ZERO);
            prop_assert_eq!((ended.event(), ended.other(), ended.op()), (Some(Event::AccessEnd), 5, Some(Op::Write)));
        }
    }
}
