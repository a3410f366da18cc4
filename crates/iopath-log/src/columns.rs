//! The content of a block since version 5 of the format: the records as columns of bytes, which compress faster and to
//! fewer bytes than words. docs/log-format.md describes each column. Compression is in `writer/file.rs` and
//! `reader.rs`.
//!
//! A step usually has the time of the step before it, and the place of the step before it with the same number. So most
//! values of a column are zero and are left out; a byte of flags for each record says which.

mod unpack;

pub(crate) use unpack::Unpacker;

use crate::block::RECORDS_MAX;
use iopath_core::Record;

/// The record has a value in the column of this name.
const TIME: u8 = 1;
const LENGTH: u8 = 1 << 1;
const PLACE: u8 = 1 << 2;
const OTHER: u8 = 1 << 3;

/// The maximum number of bytes of a value, by column: kind, tag, time, length, place, other.
const WIDTHS: [u8; 6] = [2, 3, 5, 3, 8, 3];

/// The maximum number of bytes of a record: its flags, and a value in each column.
const RECORD_BYTES_MAX: usize = 25;

/// The maximum length of the columns of this number of records.
pub(crate) const fn bytes_max(records: usize) -> usize {
    WIDTHS.len() + records * RECORD_BYTES_MAX
}

const TIME_MASK: u64 = (1 << Record::TIME_BITS) - 1;
const TAG_MASK: u64 = 0xFF_FFFF;
const OTHER_SHIFT: u32 = 24;
const KIND_SHIFT: u32 = 48;

/// The last record with a number.
#[derive(Debug, Clone, Copy, Default)]
struct Same {
    length: u64,
    place: u64,
}

/// The last record with each number, by the lower bits of the number.
#[derive(Debug)]
struct Last(Box<[Same; Self::ENTRIES]>);

impl Last {
    const ENTRIES: usize = 4096;

    fn new() -> Self {
        let entries = vec![Same::default(); Self::ENTRIES].into_boxed_slice();
        Self(entries.try_into().expect("the length is that of the array"))
    }

    #[inline]
    fn of(&mut self, tag: u64) -> &mut Same {
        &mut self.0[tag as usize % Self::ENTRIES]
    }

    fn clear(&mut self) {
        self.0.fill(Same::default());
    }
}

/// The records of one block so far.
#[derive(Debug)]
pub(crate) struct Columns {
    last: Last,
    time: u64,
    flags: Column<u8>,
    kinds: Column<u16>,
    tags: Column<u32>,
    times: Column<u64>,
    lengths: Column<u32>,
    places: Column<u64>,
    others: Column<u32>,
}

impl Columns {
    pub(crate) fn new() -> Self {
        Self {
            last: Last::new(),
            time: 0,
            flags: Column::new(),
            kinds: Column::new(),
            tags: Column::new(),
            times: Column::new(),
            lengths: Column::new(),
            places: Column::new(),
            others: Column::new(),
        }
    }

    /// The number of records.
    pub(crate) const fn len(&self) -> usize {
        self.flags.len
    }

    /// Adds records. At most [`RECORDS_MAX`] fit.
    pub(crate) fn extend(&mut self, records: &[Record]) {
        debug_assert!(self.flags.len + records.len() <= RECORDS_MAX, "more records than fit in a block");
        let Self { last, time: before, .. } = self;
        self.kinds.extend(records, |[.., rest]| (rest >> KIND_SHIFT) as u16);
        self.tags.extend(records, |[.., rest]| (rest & TAG_MASK) as u32);
        let (mut times, mut lengths) = (self.times.end(), self.lengths.end());
        let (mut places, mut others) = (self.places.end(), self.others.end());
        self.flags.extend(records, |[first, place, rest]| {
            let time = first & TIME_MASK;
            let length = first >> Record::TIME_BITS;
            let passed = time.wrapping_sub(std::mem::replace(before, time)) & TIME_MASK;
            let same = std::mem::replace(last.of(rest & TAG_MASK), Same { length, place });
            let length = length ^ same.length;
            let place = place ^ same.place;
            let other = rest >> OTHER_SHIFT & TAG_MASK;
            // Each value is stored; the next value replaces a zero. A branch would be mispredicted often.
            times.push(passed, passed != 0, TIME)
                | lengths.push(length as u32, length != 0, LENGTH)
                | places.push(place, place != 0, PLACE)
                | others.push(other as u32, other != 0, OTHER)
        });
        let [times, lengths, places, others] = [times.len, lengths.len, places.len, others.len];
        (self.times.len, self.lengths.len, self.places.len, self.others.len) =
            (times, lengths, places, others);
    }

    /// Appends the columns to `out`.
    pub(crate) fn write_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.flags.values());
        self.kinds.write_to(out);
        self.tags.write_to(out);
        self.times.write_to(out);
        self.lengths.write_to(out);
        self.places.write_to(out);
        self.others.write_to(out);
    }

    /// Removes all records.
    pub(crate) fn clear(&mut self) {
        self.last.clear();
        self.time = 0;
        self.flags.clear();
        self.kinds.clear();
        self.tags.clear();
        self.times.clear();
        self.lengths.clear();
        self.places.clear();
        self.others.clear();
    }
}

/// The values of one column.
#[derive(Debug)]
struct Column<T> {
    /// The values so far, and room for all.
    values: Box<[T]>,
    len: usize,
}

/// The end of a column while values are added: in registers, unlike the column itself.
struct End<'a, T> {
    values: &'a mut [T],
    len: usize,
}

impl<T> End<'_, T> {
    /// Adds `value` if `is_kept`; then returns `flag`, otherwise 0.
    #[inline]
    fn push(&mut self, value: T, is_kept: bool, flag: u8) -> u8 {
        self.values[self.len] = value;
        self.len += usize::from(is_kept);
        flag * u8::from(is_kept)
    }
}

impl<T: Copy + Default + Into<u64>> Column<T> {
    fn new() -> Self {
        // One more than the maximum, for a value that is not kept.
        Self { values: vec![T::default(); RECORDS_MAX + 1].into(), len: 0 }
    }

    /// Adds a value for each record.
    #[inline]
    fn extend(&mut self, records: &[Record], mut value: impl FnMut([u64; 3]) -> T) {
        let values = &mut self.values[self.len..self.len + records.len()];
        for (added, record) in values.iter_mut().zip(records) {
            *added = value(record.to_words());
        }
        self.len += records.len();
    }

    fn end(&mut self) -> End<'_, T> {
        End { values: &mut self.values, len: self.len }
    }

    fn values(&self) -> &[T] {
        &self.values[..self.len]
    }

    /// Appends the number of bytes of a value, then the lowest bytes of all values, then the next, and so on.
    fn write_to(&self, out: &mut Vec<u8>) {
        let bits = self.values().iter().fold(0, |bits, &value| bits | value.into());
        let width = (u64::BITS - bits.leading_zeros()).div_ceil(8);
        out.push(width as u8);
        for byte in 0..width {
            out.extend(self.values().iter().map(|&value| (value.into() >> (8 * byte)) as u8));
        }
    }

    const fn clear(&mut self) {
        self.len = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::Block;
    use proptest::prelude::*;

    fn columns(records: &[Record]) -> Vec<u8> {
        let mut columns = Columns::new();
        let mut bytes = Vec::new();
        columns.extend(records);
        assert_eq!(columns.len(), records.len());
        columns.write_to(&mut bytes);
        bytes
    }

    fn unpacked(bytes: &[u8], records: usize) -> Option<Vec<Record>> {
        let mut block = Block::default();
        Unpacker::default().unpack(bytes, records, &mut block.bytes)?;
        let read: Vec<_> = block.records().map(|(_, record)| record).collect();
        assert_eq!(read.len(), records);
        Some(read)
    }

    /// Words with few different values, as in a log, or with any.
    fn records() -> impl Strategy<Value = Vec<Record>> {
        let word = || prop_oneof![Just(0), 0..300_u64, any::<u64>(), Just(u64::MAX), Just(1 << 40)];
        let words = [word(), word(), word()];
        proptest::collection::vec(words.prop_map(Record::from_words), 0..300)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn all_records_survive_a_round_trip(records in records()) {
            let bytes = columns(&records);
            prop_assert!(bytes.len() <= bytes_max(records.len()));
            prop_assert_eq!(unpacked(&bytes, records.len()), Some(records));
        }

        #[test]
        fn any_bytes_are_refused_or_unpacked(bytes: Vec<u8>, records in 0_usize..40) {
            unpacked(&bytes, records);
        }

        #[test]
        fn columns_that_are_cut_off_or_too_long_are_refused(records in records(), cut in 1_usize..20) {
            let mut bytes = columns(&records);
            let count = records.len();
            prop_assert_eq!(unpacked(&bytes[..bytes.len().saturating_sub(cut)], count), None);
            bytes.push(0);
            prop_assert_eq!(unpacked(&bytes, count), None);
        }
    }

    #[test]
    fn a_cleared_block_starts_from_nothing() {
        let records: Vec<_> = (1..400).map(|word| Record::from_words([word, word << 20, word % 7])).collect();
        let mut reused = Columns::new();
        let mut bytes = Vec::new();
        reused.extend(&records[100..]);
        reused.clear();
        let (first, rest) = records.split_at(50);
        reused.extend(first);
        reused.extend(rest);
        reused.write_to(&mut bytes);
        assert_eq!(bytes, columns(&records));
    }

    #[test]
    fn each_column_has_its_documented_place() {
        // Two records of request 5, the second 3 ns later with another kind.
        let kind = |code: u64| code << 48 | 1 << 60;
        let first = Record::from_words([0x3E8 | 8 << 40, 2048 | 3 << 48, kind(11) | 7 << 24 | 5]);
        let second = Record::from_words([0x3EB | 8 << 40, 2048 | 3 << 48, kind(14) | 5]);
        let mut expected = vec![TIME | LENGTH | PLACE | OTHER, TIME];
        expected.extend([2, 11, 14, 16, 16]);
        expected.extend([1, 5, 5]);
        expected.extend([2, 0xE8, 3, 3, 0]);
        expected.extend([1, 8]);
        expected.extend([7, 0, 8, 0, 0, 0, 0, 3]);
        expected.extend([1, 7]);
        assert_eq!(columns(&[first, second]), expected);
    }
}
