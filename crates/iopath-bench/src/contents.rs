//! The content of the buffers that a job writes, if it does not verify them. The paths keep it, or make each write
//! unique.

use std::fmt::Write;
use std::num::NonZeroU64;

use iopath_report::random;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::RngCore;

/// Separates the draw of duplicates from that of offsets.
const PURPOSE: u64 = 0xD0D0;

/// The content of writes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Contents {
    /// Incompressible bytes, unique in each write.
    #[default]
    Random,
    /// Zeroes.
    Zeroes,
    /// These bytes again and again, one at least.
    Pattern(Vec<u8>),
    /// Some writes have the bytes of another one. Their content is made before each write.
    Duplicates {
        /// Duplicates in 100 writes.
        percent: u32,
        /// The different contents of duplicates; unset repeats the last content that is no duplicate.
        distinct: Option<NonZeroU64>,
        /// Whether the duplicates of all jobs have the same contents.
        is_global: bool,
        /// The content of a write.
        of: Box<Contents>,
    },
    /// The blocks of a job that verifies a pattern.
    Verified(VerifyPattern),
    /// Each chunk begins with incompressible bytes; the rest are zeroes, or a pattern. Unique in each write.
    Compressible {
        /// The rest of a chunk in percent, 1 to 100.
        percent: u32,
        /// The length of a chunk, 1 or more.
        chunk_bytes: u32,
        /// The rest of a chunk; empty for zeroes.
        pattern: Vec<u8>,
    },
}

impl Contents {
    /// The chunk of compressible bytes if none is given, as in fio.
    pub const CHUNK_BYTES: u32 = 512;

    /// Fills a buffer. Equal seeds give equal bytes.
    pub(crate) fn fill(&self, seed: u64, buffer: &mut [u8]) {
        match self {
            Self::Random => random::fill(seed, buffer),
            Self::Zeroes => buffer.fill(0),
            Self::Pattern(pattern) => repeat(pattern, buffer),
            Self::Duplicates { of, .. } => of.fill(seed, buffer),
            Self::Verified(pattern) => pattern.fill(0, buffer),
            Self::Compressible { percent, chunk_bytes, pattern } => {
                random::fill(seed, buffer);
                for chunk in buffer.chunks_mut(*chunk_bytes as usize) {
                    let rest = chunk.len() - chunk.len() * *percent as usize / 100;
                    repeat(pattern, &mut chunk[rest..]);
                }
            }
        }
    }

    /// Whether a path makes each write unique, so that no device stores two of them once.
    pub(crate) const fn is_unique(&self) -> bool {
        matches!(self, Self::Random | Self::Compressible { .. })
    }

    /// In words: `random`, `zeroes`, a pattern in hexadecimal digits, or the share of compressible bytes.
    pub fn name(&self) -> String {
        match self {
            Self::Random => "random".to_owned(),
            Self::Zeroes => "zeroes".to_owned(),
            Self::Pattern(pattern) => format!("pattern {}", digits(pattern)),
            Self::Verified(pattern) => format!("pattern {}", pattern.name()),
            Self::Compressible { percent, .. } => format!("{percent}% compressible"),
            Self::Duplicates { percent, of, .. } => format!("{percent}% duplicates, {}", of.name()),
        }
    }
}

/// Bytes that fill each verified block again and again from its start, with the offset of the block in some places.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VerifyPattern {
    bytes: Vec<u8>,
    /// The places of the offset, 8 bytes each, in rising order.
    offsets: Vec<usize>,
}

impl VerifyPattern {
    const OFFSET_BYTES: usize = size_of::<u64>();

    /// A pattern as fio writes it: as [`parse_pattern`], with `%o` for the offset of the block.
    pub fn parse(text: &str) -> Option<Self> {
        let mut pattern = Self::default();
        for (number, part) in text.trim().split("%o").enumerate() {
            if number > 0 {
                pattern.offsets.push(pattern.bytes.len());
                pattern.bytes.extend([0; Self::OFFSET_BYTES]);
            }
            if !part.trim().is_empty() {
                pattern.bytes.extend(parse_pattern(part)?);
            }
        }
        (!pattern.bytes.is_empty()).then_some(pattern)
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Fills a block.
    pub(crate) fn fill(&self, offset: u64, block: &mut [u8]) {
        repeat(&self.bytes, block);
        for piece in block.chunks_mut(self.bytes.len().max(1)) {
            for &at in &self.offsets {
                let end = piece.len().min(at + Self::OFFSET_BYTES);
                if let Some(place) = piece.get_mut(at..end) {
                    place.copy_from_slice(&offset.to_le_bytes()[..place.len()]);
                }
            }
        }
    }

    /// The first byte of a block that differs.
    pub(crate) fn first_difference(&self, offset: u64, block: &[u8]) -> Option<usize> {
        let expected = |index: usize| {
            let of_offset = self.offsets.iter().find(|at| (**at..**at + Self::OFFSET_BYTES).contains(&index));
            of_offset.map_or(self.bytes[index], |at| offset.to_le_bytes()[index - at])
        };
        block.chunks(self.bytes.len().max(1)).enumerate().find_map(|(number, piece)| {
            if self.offsets.is_empty() && *piece == self.bytes[..piece.len()] {
                return None;
            }
            let differs = (0..piece.len()).find(|index| piece[*index] != expected(*index));
            differs.map(|index| number * self.bytes.len() + index)
        })
    }

    fn name(&self) -> String {
        let mut parts = Vec::new();
        let mut from = 0;
        for &at in &self.offsets {
            parts.extend((at > from).then(|| digits(&self.bytes[from..at])));
            parts.push("%o".to_owned());
            from = at + Self::OFFSET_BYTES;
        }
        parts.extend((from < self.bytes.len()).then(|| digits(&self.bytes[from..])));
        parts.join(" ")
    }
}

/// Bytes as a number in hexadecimal digits.
fn digits(bytes: &[u8]) -> String {
    let mut name = "0x".to_owned();
    for byte in bytes {
        let _ = write!(name, "{byte:02x}");
    }
    name
}

/// Makes the content of each write of a job whose writes have duplicates.
#[derive(Debug)]
pub(crate) struct Filler {
    contents: Contents,
    generator: Xoshiro256PlusPlus,
    /// The seed of the last content that is no duplicate.
    last: u64,
    /// Separates the duplicates of a job from those of others.
    own: u64,
}

impl Filler {
    /// The filler of a job; none if the buffers keep their content.
    pub(crate) fn of(contents: &Contents, seed: u64) -> Option<Box<Self>> {
        let is_used = matches!(contents, Contents::Duplicates { .. });
        let filler = || Self {
            contents: contents.clone(),
            generator: random::generator(seed, [PURPOSE, 0]),
            last: 0,
            own: seed,
        };
        is_used.then(|| Box::new(filler()))
    }

    /// Fills the buffer of a write.
    pub(crate) fn fill(&mut self, buffer: &mut [u8]) {
        let Contents::Duplicates { percent, distinct, is_global, of } = &self.contents else { return };
        let first = if *is_global { 0 } else { self.own };
        let seed = if random::below(&mut self.generator, 100) < u64::from(*percent) {
            let drawn = distinct.map(|count| random::below(&mut self.generator, count.get()));
            drawn.map_or(self.last, |number| first.wrapping_add(number))
        } else {
            self.last = self.generator.next_u64();
            self.last
        };
        of.fill(seed, buffer);
    }
}

/// Fills a buffer with copies of a pattern; an empty one is zeroes.
fn repeat(pattern: &[u8], buffer: &mut [u8]) {
    if pattern.is_empty() {
        return buffer.fill(0);
    }
    for piece in buffer.chunks_mut(pattern.len()) {
        piece.copy_from_slice(&pattern[..piece.len()]);
    }
}

/// A pattern as fio writes it: a number, hexadecimal digits after `0x`, a text in double quotes, or several of them one
/// after another. None for anything else, and for no bytes.
pub fn parse_pattern(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        if let Some(quoted) = rest.strip_prefix('"') {
            let (inside, after) = quoted.split_once('"')?;
            bytes.extend(inside.bytes());
            rest = after;
        } else if let Some(digits) = rest.strip_prefix("0x").or_else(|| rest.strip_prefix("0X")) {
            let end = digits.find(|char: char| !char.is_ascii_hexdigit()).unwrap_or(digits.len());
            let (number, after) = digits.split_at(end);
            // An odd number of digits lacks the first one.
            let whole = if number.len() % 2 == 1 { format!("0{number}") } else { number.to_owned() };
            let pairs = whole.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).ok());
            for pair in pairs {
                bytes.push(u8::from_str_radix(pair?, 16).ok()?);
            }
            rest = after;
        } else {
            let end = rest.find(|char: char| !char.is_ascii_digit()).unwrap_or(rest.len());
            let (number, after) = rest.split_at(end);
            let number: u64 = number.parse().ok()?;
            let used = (64 - number.leading_zeros()).div_ceil(8).max(1);
            bytes.extend(&number.to_le_bytes()[..used as usize]);
            rest = after;
        }
    }
    (!bytes.is_empty()).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_has_the_content() {
        let filled = |contents: &Contents, bytes: usize| {
            let mut buffer = vec![9; bytes];
            contents.fill(1, &mut buffer);
            buffer
        };
        assert_eq!(filled(&Contents::Zeroes, 8), [0; 8]);
        assert_eq!(filled(&Contents::Pattern(vec![1, 2, 3]), 7), [1, 2, 3, 1, 2, 3, 1]);
        let compressible = Contents::Compressible { percent: 75, chunk_bytes: 512, pattern: Vec::new() };
        let random = filled(&Contents::Random, 1024);
        let found = filled(&compressible, 1024);
        for chunk in [0, 512] {
            assert_eq!(found[chunk..chunk + 128], random[chunk..chunk + 128]);
            assert_eq!(found[chunk + 128..chunk + 512], [0; 384]);
        }
        assert!(compressible.is_unique() && !Contents::Zeroes.is_unique());
    }

    #[test]
    fn the_share_of_duplicates_is_that_of_the_writes() {
        let contents = |distinct| Contents::Duplicates {
            percent: 40,
            distinct,
            is_global: false,
            of: Box::new(Contents::Random),
        };
        let different = |distinct| {
            let mut filler = Filler::of(&contents(distinct), 1).unwrap();
            let mut seen = std::collections::HashSet::new();
            for _ in 0..1000 {
                let mut buffer = [0; 16];
                filler.fill(&mut buffer);
                seen.insert(buffer);
            }
            seen.len()
        };
        assert!((550..650).contains(&different(None)), "{}", different(None));
        assert!((555..660).contains(&different(NonZeroU64::new(8))), "{}", different(NonZeroU64::new(8)));
        assert!(Filler::of(&Contents::Random, 1).is_none());
    }

    #[test]
    fn patterns_have_the_notation_of_fio() {
        assert_eq!(parse_pattern("0xdeadbeef"), Some(vec![0xde, 0xad, 0xbe, 0xef]));
        assert_eq!(parse_pattern("0xabc"), Some(vec![0x0a, 0xbc]));
        assert_eq!(parse_pattern("\"ab\"0xff\"c\""), Some(vec![b'a', b'b', 0xff, b'c']));
        assert_eq!(parse_pattern("258"), Some(vec![2, 1]));
        assert_eq!(parse_pattern("0"), Some(vec![0]));
        for bad in ["", "abc", "\"a", "0x", "'file'"] {
            assert_eq!(parse_pattern(bad), None, "{bad}");
        }
    }
}
