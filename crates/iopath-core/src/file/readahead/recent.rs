//! Records the last misses that belong to no stream, and detects whether a miss continues an earlier one. Its result is
//! a guess; `readahead.rs` decides whether to start a stream.

use super::stream::Course;
use crate::file::page::{Page, PageRange};

/// A ring of misses. Each is the last of a chain of misses that may be a pattern.
#[derive(Debug)]
pub(super) struct Recent {
    misses: Box<[Miss]>,
    /// The start of each. A search reads nothing else for misses that are far away. Under random reads, these are all
    /// misses.
    starts: Box<[u64]>,
    /// The largest number of pages of a miss so far.
    longest: u64,
    /// The slot of the oldest miss, which is replaced next.
    oldest: usize,
}

#[derive(Debug, Clone, Copy)]
struct Miss {
    range: PageRange,
    /// The distance from the start of the previous miss of the chain to its own start; 0 if none is near.
    stride: i64,
    /// How often the chain continued as expected.
    confirmed: u8,
    course: Course,
}

/// A detected continuation: a miss continues an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Guess {
    pub(super) course: Course,
    confirmed: u8,
}

impl Guess {
    /// A chain of four misses is a stream.
    pub(super) const fn is_certain(self) -> bool {
        self.confirmed >= 4
    }
}

impl Recent {
    /// The maximum stride in pages.
    const STRIDE_MAX: u64 = 4096;
    const NOTHING: Miss = Miss { range: PageRange::EMPTY, stride: 0, confirmed: 0, course: Course::Forward };

    pub(super) fn new(misses_max: usize) -> Self {
        let starts = vec![Self::NOTHING.range.start().0; misses_max].into();
        Self { misses: vec![Self::NOTHING; misses_max].into(), starts, longest: 0, oldest: 0 }
    }

    /// Records a miss. Returns the chain that it continues if the chain is long enough for a guess: two forward reads,
    /// three backward, four strided.
    pub(super) fn observe(&mut self, at: PageRange) -> Option<Guess> {
        let (chain, nearest) = self.search(at);
        let miss = if let Some((slot, course)) = chain {
            let before = self.put(slot, Self::NOTHING);
            let confirmed = if before.course == course { before.confirmed } else { 0 };
            Miss { range: at, stride: before.stride, confirmed: confirmed.saturating_add(1), course }
        } else {
            let stride = nearest.unwrap_or(0);
            Miss { range: at, stride, confirmed: 0, course: Course::Strided(stride) }
        };
        self.put(self.oldest, miss);
        self.longest = self.longest.max(at.pages());
        self.oldest = (self.oldest + 1) % self.misses.len();
        let needed = match miss.course {
            Course::Forward => 1,
            Course::Backward | Course::Strided(_) => 2,
        };
        let course = through_small_gaps(miss.course, at.pages());
        (miss.confirmed >= needed).then_some(Guess { course, confirmed: miss.confirmed })
    }

    /// Replaces a miss, and returns the old one.
    fn put(&mut self, slot: usize, miss: Miss) -> Miss {
        self.starts[slot] = miss.range.start().0;
        std::mem::replace(&mut self.misses[slot], miss)
    }

    /// The slots of misses near `at`.
    fn near(&self, at: PageRange) -> impl Iterator<Item = usize> {
        // The number of misses compared together without a branch.
        const LANES: usize = 16;
        let reach = Self::STRIDE_MAX.max(self.longest).max(at.pages());
        let first = at.start().0.wrapping_sub(reach);
        let is_near = move |start: &u64| start.wrapping_sub(first) <= reach.saturating_mul(2);
        let lanes = self.starts.chunks(LANES).zip((0..).step_by(LANES));
        let lanes =
            lanes.filter(move |(starts, _)| starts.iter().fold(false, |any, start| any | is_near(start)));
        lanes.flat_map(|(starts, from)| from..from + starts.len())
    }

    /// The miss that `at` continues, and its course. If there is none, the least distance from a miss to `at` that may
    /// be a stride.
    fn search(&self, at: PageRange) -> (Option<(usize, Course)>, Option<i64>) {
        let mut nearest: Option<i64> = None;
        for slot in self.near(at) {
            let miss = &self.misses[slot];
            let from = miss.range;
            if from.end() == at.start() {
                return (Some((slot, Course::Forward)), None);
            }
            if from.start() == at.end() {
                return (Some((slot, Course::Backward)), None);
            }
            let delta = distance(from.start(), at.start());
            if from.is_empty() || delta == 0 || delta.unsigned_abs() > Self::STRIDE_MAX {
                continue;
            }
            if delta == miss.stride {
                return (Some((slot, Course::Strided(delta))), None);
            }
            if nearest.is_none_or(|best| delta.unsigned_abs() < best.unsigned_abs()) {
                nearest = Some(delta);
            }
        }
        (None, nearest)
    }
}

/// The signed distance from one page to another.
const fn distance(from: Page, to: Page) -> i64 {
    to.0.wrapping_sub(from.0).cast_signed()
}

/// Makes a strided course forward if it skips at most as much as it reads: one large request replaces many small ones.
fn through_small_gaps(course: Course, pages: u64) -> Course {
    match course {
        Course::Strided(stride) if stride.unsigned_abs() <= pages.saturating_mul(2) => {
            if stride > 0 {
                Course::Forward
            } else {
                Course::Backward
            }
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guesses(
        recent: &mut Recent,
        starts: impl IntoIterator<Item = u64>,
        pages: u64,
    ) -> Vec<Option<Course>> {
        let observe = |start| recent.observe(PageRange::new(Page(start), pages)).map(|guess| guess.course);
        starts.into_iter().map(observe).collect()
    }

    #[test]
    fn the_second_read_is_forward_the_third_backward_the_fourth_strided() {
        let forward = guesses(&mut Recent::new(8), [100, 104], 4);
        assert_eq!(forward, [None, Some(Course::Forward)]);
        let backward = guesses(&mut Recent::new(8), [100, 96, 92], 4);
        assert_eq!(backward, [None, None, Some(Course::Backward)]);
        let strided = guesses(&mut Recent::new(8), [100, 200, 300, 400], 4);
        assert_eq!(strided, [None, None, None, Some(Course::Strided(100))]);
        let down = guesses(&mut Recent::new(8), [400, 300, 200, 100], 4);
        assert_eq!(down[3], Some(Course::Strided(-100)));
    }

    #[test]
    fn small_gaps_are_read_through() {
        let strided = guesses(&mut Recent::new(8), [100, 108, 116, 124], 4);
        assert_eq!(strided[3], Some(Course::Forward));
    }

    #[test]
    fn detects_as_many_interleaved_streams_as_it_records() {
        let mut recent = Recent::new(64);
        assert!(guesses(&mut recent, (0..64).map(|stream| stream << 20), 4).iter().all(Option::is_none));
        let second = guesses(&mut recent, (0..64).map(|stream| (stream << 20) + 4), 4);
        assert!(second.iter().all(|guess| *guess == Some(Course::Forward)));
    }
}
