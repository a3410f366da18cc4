//! The length of a plain file on a disk, as a kernel keeps it: a write past the end moves the end, a truncation zeroes
//! the removed bytes, and a power failure leaves a length that the file has had since the last flush.

use super::{Platter, SECTOR};
use crate::random::Random;

/// The lengths of a file.
#[derive(Debug)]
pub(super) struct Lengths {
    now: u64,
    durable: u64,
    /// The lengths that no flush has made durable, oldest first, each with the number of its change.
    later: Vec<(u64, u64)>,
}

impl Lengths {
    const fn new(bytes: u64) -> Self {
        Self { now: bytes, durable: bytes, later: Vec::new() }
    }

    /// Makes the lengths up to this number durable.
    pub(super) fn flush(&mut self, covers: u64) {
        let covered = self.later.iter().take_while(|(number, _)| *number <= covers).count();
        if let Some(last) = covered.checked_sub(1) {
            self.durable = self.later[last].1;
            self.later.drain(..covered);
        }
    }

    fn lose_power(&mut self, random: &mut Random) {
        let chosen = random.below(self.later.len() as u64 + 1) as usize;
        let length = if chosen == 0 { self.durable } else { self.later[chosen - 1].1 };
        *self = Self::new(length);
    }
}

impl Platter {
    /// The disk is a file of this length.
    pub(crate) fn make_file(&mut self, bytes: u64) {
        self.lengths = Some(Lengths::new(bytes));
    }

    /// The length of the file.
    pub(crate) fn length(&self) -> Option<u64> {
        self.lengths.as_ref().map(|lengths| lengths.now)
    }

    /// Truncates or extends the file. Added bytes are zeroes.
    pub(crate) fn set_length(&mut self, bytes: u64) {
        let Some(now) = self.length().filter(|now| *now != bytes) else { return };
        self.written += 1;
        self.end_at(bytes);
        if bytes < now {
            self.zero_past_file();
        }
    }

    /// A write ends here: the file becomes longer if it ended before.
    pub(super) fn write_to(&mut self, end: u64) {
        if self.length().is_some_and(|length| end > length) {
            self.end_at(end);
        }
    }

    fn end_at(&mut self, bytes: u64) {
        let number = self.written;
        let lengths = self.lengths.as_mut().expect("a file");
        lengths.now = bytes;
        lengths.later.push((number, bytes));
    }

    /// After a power failure, the file has one of its lengths, and zeroes past it.
    pub(super) fn lose_length(&mut self, random: &mut Random) {
        if let Some(lengths) = &mut self.lengths {
            lengths.lose_power(random);
            self.zero_past_file();
        }
    }

    /// A file has no bytes past its end.
    pub(super) fn zero_past_file(&mut self) {
        let Some(length) = self.length() else { return };
        let length = length as usize;
        for bytes in [&mut self.bytes, &mut self.medium] {
            bytes[length..].fill(0);
        }
        // Also in the write cache: the filesystem does not lose a truncation while it runs.
        for (sector, versions) in &mut self.unflushed {
            for version in versions {
                zero_from(length, *sector, &mut version.bytes);
            }
        }
        for (sector, earlier) in self.lies.earlier_mut() {
            for bytes in earlier {
                zero_from(length, *sector, bytes);
            }
        }
    }

    /// Whether the file has no byte of this sector.
    pub(super) fn is_past_file(&self, sector: u64) -> bool {
        self.length().is_some_and(|length| sector * SECTOR as u64 >= length)
    }
}

/// Zeroes the bytes of a sector from this byte of the file on.
fn zero_from(length: usize, sector: u64, bytes: &mut [u8; SECTOR]) {
    bytes[length.saturating_sub(sector as usize * SECTOR).min(SECTOR)..].fill(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_power_failure_leaves_a_length_since_the_last_flush() {
        for seed in 0..32 {
            let mut lengths = Lengths::new(10);
            lengths.later = vec![(1, 20), (2, 5), (3, 30)];
            lengths.flush(2);
            lengths.lose_power(&mut Random::new(seed));
            assert!([5, 30].contains(&lengths.now), "{lengths:?}");
            assert_eq!((lengths.durable, lengths.later.len()), (lengths.now, 0));
        }
    }

    #[test]
    fn a_truncation_zeroes_only_bytes_past_the_end() {
        let mut bytes = [7; SECTOR];
        zero_from(3 * SECTOR, 2, &mut bytes);
        assert_eq!(bytes, [7; SECTOR]);
        zero_from(2 * SECTOR + 500, 2, &mut bytes);
        assert_eq!((bytes[499], bytes[500..].iter().max()), (7, Some(&0)));
        zero_from(0, 2, &mut bytes);
        assert_eq!(bytes, [0; SECTOR]);
    }
}
