//! The parts of a read that have arrived, in any order. It detects overlaps and gaps, and holds no data.

use std::ops::Range;

/// Separate parts that a read may have at one time. Servers send large chunks in order; a hostile one could send
/// single bytes far apart.
const PARTS_MAX: usize = 4096;

/// Parts for which memory is kept.
const PARTS_KEPT: usize = 16;

/// Disjoint ranges, sorted, adjacent ones joined.
#[derive(Debug, Default)]
pub(crate) struct Chunks {
    parts: Vec<Range<u64>>,
}

impl Chunks {
    /// Adds `start..end`. Returns whether the range is new as a whole and the number of parts is in its limit.
    pub(crate) fn add(&mut self, start: u64, end: u64) -> bool {
        if start >= end {
            return false;
        }
        let at = self.parts.partition_point(|part| part.end <= start);
        if self.parts.get(at).is_some_and(|next| next.start < end) {
            return false;
        }
        let joins_previous = at > 0 && self.parts[at - 1].end == start;
        let joins_next = self.parts.get(at).is_some_and(|next| next.start == end);
        match (joins_previous, joins_next) {
            (true, true) => self.parts[at - 1].end = self.parts.remove(at).end,
            (true, false) => self.parts[at - 1].end = end,
            (false, true) => self.parts[at].start = start,
            (false, false) if self.parts.len() == PARTS_MAX => return false,
            (false, false) => self.parts.insert(at, start..end),
        }
        true
    }

    /// Forgets the parts and keeps their memory, unless a server made it large.
    pub(crate) fn clear(&mut self) {
        self.parts.clear();
        self.parts.shrink_to(PARTS_KEPT);
    }

    /// Bytes that have arrived.
    pub(crate) fn total(&self) -> u64 {
        self.parts.iter().map(|part| part.end - part.start).sum()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn refuses_an_overlap_and_an_empty_range() {
        let mut chunks = Chunks::default();
        assert!(chunks.add(10, 20));
        assert!(chunks.add(0, 10));
        assert!(!chunks.add(19, 21));
        assert!(!chunks.add(5, 5));
        assert!(chunks.add(20, 30));
        assert_eq!((chunks.parts.len(), &chunks.parts[0]), (1, &(0..30)));
    }

    proptest! {
        #[test]
        fn agrees_with_a_set_of_bytes(ranges in prop::collection::vec((0u64..64, 0u64..16), 0..24)) {
            let mut chunks = Chunks::default();
            let mut set = std::collections::BTreeSet::new();
            for (start, length) in ranges {
                let bytes = start..start + length;
                let is_new = length > 0 && bytes.clone().all(|byte| !set.contains(&byte));
                prop_assert_eq!(chunks.add(start, start + length), is_new);
                if is_new {
                    set.extend(bytes);
                }
                prop_assert_eq!(chunks.total(), set.len() as u64);
            }
        }
    }
}
