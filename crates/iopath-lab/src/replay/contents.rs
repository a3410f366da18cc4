//! The contents of writes: a seed and the number of a write give the same bytes in each replay.

use iopath_os::kernel::Stamp;
use iopath_report::random;

/// The distance between the places at which the contents of two writes begin.
const STEP_BYTES: usize = 64;

/// The number of such places.
const STEPS: usize = 1024;

/// Makes the contents of the writes to a target.
#[derive(Debug)]
pub(super) struct Contents {
    /// Incompressible bytes: each write has a part of them, with a stamp in each 4 KiB.
    bytes: Vec<u8>,
    stamp: Stamp,
    writes: usize,
}

impl Contents {
    /// For writes of up to `bytes_max` bytes.
    pub(super) fn new(seed: u64, bytes_max: usize) -> Self {
        let mut bytes = vec![0; bytes_max + STEP_BYTES * STEPS];
        random::fill(seed, &mut bytes);
        Self { bytes, stamp: Stamp::default(), writes: 0 }
    }

    /// Fills the buffer of the next write. Copying costs less than to draw the bytes of each write.
    pub(super) fn fill(&mut self, buffer: &mut [u8], offset: u64) {
        let start = self.writes % STEPS * STEP_BYTES;
        self.writes = self.writes.wrapping_add(1);
        buffer.copy_from_slice(&self.bytes[start..start + buffer.len()]);
        self.stamp.put(buffer, offset);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_bytes_and_each_write_has_its_own() {
        let written = |seed| {
            let mut contents = Contents::new(seed, 4096);
            (0..3000)
                .map(|_| {
                    let mut buffer = vec![0; 4096];
                    contents.fill(&mut buffer, 8192);
                    buffer
                })
                .collect::<Vec<_>>()
        };
        let first = written(1);
        assert_eq!(first, written(1));
        assert_ne!(first[0], written(2)[0]);
        assert_eq!(first.iter().collect::<std::collections::HashSet<_>>().len(), first.len());
    }
}
