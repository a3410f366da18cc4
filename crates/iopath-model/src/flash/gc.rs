//! The cost of garbage collection: how many pages a die copies for each page that the host writes, and when it erases a
//! block. The model is analytic and does not map pages. `amplification.rs` computes the number of copies for a random
//! write. A write that continues one of the last streams invalidates whole blocks and needs no copy.

use crate::flash::spec::Spec;
use crate::mechanism::Nanos;

/// The number of write streams that are detected at one time.
const STREAMS: usize = 8;

/// One copy: the collector counts fractions of a copy in units of 1 / `ONE`.
const ONE: u64 = 1 << 16;

/// The garbage collector of one disk.
#[derive(Debug)]
pub(crate) struct Collector {
    /// Copies for each unit written at random.
    copies: u64,
    unit_bytes: u64,
    copy: Nanos,
    erase: Nanos,
    units_per_block: u32,
    due_copies: u64,
    units: u32,
    ends: [u64; STREAMS],
    oldest: usize,
}

impl Collector {
    pub(crate) fn new(spec: &Spec) -> Self {
        Self {
            copies: ((spec.amplification - 1.0) * ONE as f64).round() as u64,
            unit_bytes: spec.unit_bytes,
            copy: spec.read + spec.program,
            erase: spec.erase,
            units_per_block: spec.units_per_block,
            due_copies: 0,
            units: 0,
            ends: [u64::MAX; STREAMS],
            oldest: 0,
        }
    }

    /// Whether a write continues a stream. Records the end of the write as the new end of that stream, or of a new one.
    pub(crate) fn is_sequential(&mut self, start: u64, end: u64) -> bool {
        if let Some(stream) = self.ends.iter_mut().find(|stream| **stream == start) {
            *stream = end;
            return true;
        }
        self.ends[self.oldest] = end;
        self.oldest = (self.oldest + 1) % STREAMS;
        false
    }

    /// The time that a die needs for garbage collection after it has programmed a unit with `random_bytes` bytes that
    /// were written at random.
    pub(crate) fn after_program(&mut self, random_bytes: u64) -> Nanos {
        self.due_copies += self.copies * random_bytes / self.unit_bytes;
        let copies = self.due_copies / ONE;
        self.due_copies %= ONE;
        self.units += 1 + copies as u32;
        let erases = self.units / self.units_per_block;
        self.units %= self.units_per_block;
        copies * self.copy + u64::from(erases) * self.erase
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_that_continues_one_of_the_last_streams_is_sequential() {
        let spec = Spec::for_tests();
        let mut collector = Collector::new(&spec);
        for stream in 0..STREAMS as u64 {
            assert!(!collector.is_sequential(stream * 1000, stream * 1000 + 8));
        }
        for stream in 0..STREAMS as u64 {
            assert!(collector.is_sequential(stream * 1000 + 8, stream * 1000 + 16));
        }
        assert!(
            !collector.is_sequential(77, 99) && !collector.is_sequential(16, 24),
            "the newest stream replaced the oldest"
        );
    }
}
