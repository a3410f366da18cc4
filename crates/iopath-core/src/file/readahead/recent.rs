//! Records the last misses that belong to no stream, and detects whether a miss continues an earlier one. Decides nothing: a
//! guess is not yet a stream.

use super::stream::Course;
use crate::file::page::{Page, PageRange};

/// A ring of misses, each the head of a chain of misses that look like a pattern.
#[derive(Debug)]
pub(super) struct Recent {
    misses: Box<[Miss]>,
    /// The start of each. For misses that are far away, which is all of them under random reads, nothing else is read.
    starts: Box<[u64]>,
    /// The most pages of a miss so far.
    longest: u64,
    /// The slot of the oldest, which is replaced next.
    oldest: usize,
}

#[derive(Debug, Clone, Copy)]
struct Miss {
    range: PageRange,
    /// The distance from the start of the miss that it continues to its own start; 0 if none is near.
    stride: i64,
    /// How often the chain continued as expected.
    confirmed: u8,
    course: Course,
}

/// A miss continues an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Guess {
    pub(super) course: Course,
    confirmed: u8,
}

impl Guess {
    /// Four misses that continue one another are no accident.
    pub(super) const fn is_certain(self) -> bool {
        self.confirmed >= 4
    }
}

impl Recent {
    /// Misses further apart than this many pages are not two steps of one stride.
    const STRIDE_MAX: u64 = 4096;
    const NOTHING: Miss = Miss { range: PageRange::EMPTY, stride: 0, confirmed: 0, course: Course::Forward };

    pub(super) fn new(misses_max: usize) -> Self {
        let starts = vec![Self::NOTHING.range.start().0; misses_max].into();
        Self { misses: vec![Self::NOTHING; misses_max].into(), starts, longest: 0, oldest: 0 }
    }

    /// Records a miss. Returns the chain that it continues if that suffices for a guess: at the second read forward, the
    /// third backward, the fourth of a stride.
    pub(super) fn observe(&mut self, at: PageRange) -> Option<Guess> {
        let (chain, nearest) = self.search(at);
        let miss = if let Some((place, course)) = chain {
            let before = self.put(place, Self::NOTHING);
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
    fn put(&mut self, place: usize, miss: Miss) -> Miss {
        self.starts[place] = miss.range.start().0;
        std::mem::replace(&mut self.misses[place], miss)
    }

    /// The slots of misses that are near enough to `at` to be related.
    fn near(&self, at: PageRange) -> impl Iterator<Item = usize> {
        // So many at a time are compared without a branch.
        const LANES: usize = 16;
        let reach = Self::STRIDE_MAX.max(self.longest).max(at.pages());
        let first = at.start().0.wrapping_sub(reach);
        let is_near = move |start: &u64| start.wrapping_sub(first) <= reach.saturating_mul(2);
        let lanes = self.starts.chunks(LANES).zip((0..).step_by(LANES));
        let lanes =
            lanes.filter(move |(starts, _)| starts.iter().fold(false, |any, start| any | is_near(start)));
        lanes.flat_map(|(starts, from)| from..from + starts.len())
    }

    /// The miss that `at` continues, and its course; otherwise the least distance from a miss to it that may be a stride.
    fn search(&self, at: PageRange) -> (Option<(usize, Course)>, Option<i64>) {
        let mut nearest: Option<i64> = None;
        for place in self.near(at) {
            let miss = &self.misses[place];
            let from = miss.range;
            if from.end() == at.start() {
                return (Some((place, Course::Forward)), None);
            }
            if from.start() == at.end() {
                return (Some((place, Course::Backward)), None);
            }
            let delta = distance(from.start(), at.start());
            if from.is_empty() || delta == 0 || delta.unsigned_abs() > Self::STRIDE_MAX {
                continue;
            }
            if delta == miss.stride {
                return (Some((place, Course::Strided(delta))), None);
            }
            if nearest.is_none_or(|best| delta.unsigned_abs() < best.unsigned_abs()) {
                nearest = Some(delta);
            }
        }
        (None, nearest)
    }
}

/// From one page to another.
const fn distance(from: Page, to: Page) -> i64 {
    to.0.wrapping_sub(from.0).cast_signed()
}

/// A stride that skips at most as much as it reads is read through: one large request replaces many small ones.
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
