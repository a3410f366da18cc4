//! Reads the columns of a block. The content may be damaged or made up: nothing is read past its end.

use super::{KIND_SHIFT, LENGTH, Last, OTHER, OTHER_SHIFT, PLACE, TIME, TIME_MASK, WIDTHS};
use iopath_core::Record;

/// The columns of one block; its memory is kept for the next block.
#[derive(Debug, Default)]
pub(crate) struct Unpacker {
    last: Option<Last>,
    /// Kinds, tags, times, lengths, places, others.
    columns: [Vec<u64>; WIDTHS.len()],
}

impl Unpacker {
    /// Appends the words of all records to `words`: word 0 of all, then word 1 of all, then word 2. Returns `None` if
    /// `bytes` are not the columns of `records` records; `words` are unspecified then.
    pub(crate) fn unpack(&mut self, bytes: &[u8], records: usize, words: &mut Vec<u8>) -> Option<()> {
        let (flags, mut rest) = bytes.split_at_checked(records)?;
        let counted = |flag: u8| flags.iter().filter(|flags| **flags & flag != 0).count();
        let counts = [records, records, counted(TIME), counted(LENGTH), counted(PLACE), counted(OTHER)];
        for ((column, count), width_max) in self.columns.iter_mut().zip(counts).zip(WIDTHS) {
            rest = read_column(rest, count, width_max, column)?;
        }
        rest.is_empty().then(|| self.join(flags, words))
    }

    fn join(&mut self, flags: &[u8], words: &mut Vec<u8>) {
        let records = flags.len();
        let last = self.last.get_or_insert_with(Last::new);
        last.clear();
        words.clear();
        words.resize(records * Record::BYTES, 0);
        let (words, _) = words.as_chunks_mut::<8>();
        let (firsts, others) = words.split_at_mut(records);
        let (places, rests) = others.split_at_mut(records);
        let [kinds, tags, values @ ..] = &self.columns;
        let mut values = values.each_ref().map(|column| Values(column));
        let [times, lengths, sectors, numbers] = &mut values;
        let mut time = 0;
        for index in 0..records {
            let (flags, tag) = (flags[index], tags[index]);
            time = (time + times.next(flags & TIME)) & TIME_MASK;
            let last = last.of(tag);
            last.length ^= lengths.next(flags & LENGTH);
            last.place ^= sectors.next(flags & PLACE);
            let rest = tag | numbers.next(flags & OTHER) << OTHER_SHIFT | kinds[index] << KIND_SHIFT;
            firsts[index] = (time | last.length << Record::TIME_BITS).to_le_bytes();
            places[index] = last.place.to_le_bytes();
            rests[index] = rest.to_le_bytes();
        }
    }
}

/// The values of a column that are not read yet.
struct Values<'a>(&'a [u64]);

impl Values<'_> {
    /// The next value if `flag` is set, otherwise 0.
    #[inline]
    fn next(&mut self, flag: u8) -> u64 {
        match self.0.split_first() {
            Some((value, rest)) if flag != 0 => {
                self.0 = rest;
                *value
            }
            _ => 0,
        }
    }
}

/// Reads a column of `count` values into `column`. Returns the bytes after it.
fn read_column<'a>(bytes: &'a [u8], count: usize, width_max: u8, column: &mut Vec<u64>) -> Option<&'a [u8]> {
    let (&width, rest) = bytes.split_first()?;
    if width > width_max {
        return None;
    }
    let (planes, rest) = rest.split_at_checked(usize::from(width) * count)?;
    column.clear();
    column.resize(count, 0);
    for byte in 0..usize::from(width) {
        for (value, part) in column.iter_mut().zip(&planes[byte * count..]) {
            *value |= u64::from(*part) << (8 * byte);
        }
    }
    Some(rest)
}
