//! Records how many bytes the jobs have moved over time, for the course of a repetition. Does not read the counters of
//! the jobs: the coordinator does, about ten times a second.

use iopath_report::result::Course;

/// The most intervals of a course.
const INTERVALS_MAX: usize = 100;

/// The fewest samples of a course: fewer show no shape.
const SAMPLES_MIN: usize = 8;

/// Samples kept. At this number, every second one is dropped.
const SAMPLES_MAX: usize = 4096;

/// The samples of a repetition.
#[derive(Debug, Default)]
pub(super) struct CourseRecorder {
    /// Times and sums of bytes, both not decreasing.
    samples: Vec<(u64, u64)>,
    /// Samples to skip between two that are kept, and before the next one.
    skip: u32,
    skip_left: u32,
}

impl CourseRecorder {
    /// Adds a sample: the bytes that all jobs have moved up to a time.
    pub(super) fn add(&mut self, now_ns: u64, bytes: u64) {
        if self.skip_left > 0 {
            self.skip_left -= 1;
            return;
        }
        self.skip_left = self.skip;
        self.samples.push((now_ns, bytes));
        if self.samples.len() == SAMPLES_MAX {
            let mut number = 0;
            self.samples.retain(|_| {
                number += 1;
                number % 2 == 0
            });
            self.skip = self.skip * 2 + 1;
        }
    }

    /// The course of a repetition with this start, end and sum; none of a short one.
    pub(super) fn course(&self, started_ns: u64, ended_ns: u64, bytes: u64) -> Option<Course> {
        let inside = |(at, _): &&(u64, u64)| *at > started_ns && *at < ended_ns;
        let mut samples = vec![(started_ns, 0)];
        // The counters of the jobs may include transfers before the measurement, such as those of a ramp.
        let before = self.samples.iter().rev().find(|(at, _)| *at <= started_ns).map_or(0, |(_, sum)| *sum);
        samples.extend(
            self.samples.iter().filter(inside).map(|(at, sum)| (*at, sum.saturating_sub(before).min(bytes))),
        );
        if samples.len() < SAMPLES_MIN {
            return None;
        }
        samples.push((ended_ns, bytes));
        let count = (samples.len() - 1).min(INTERVALS_MAX);
        let length_ns = (ended_ns - started_ns) as f64 / count as f64;
        let mut next = 0;
        // The bytes up to a time, on straight lines between the samples.
        let mut up_to = |time_ns: f64| {
            while next + 2 < samples.len() && (samples[next + 1].0 as f64) < time_ns {
                next += 1;
            }
            let ((from, low), (to, high)) = (samples[next], samples[next + 1]);
            let share = (time_ns - from as f64) / (to - from).max(1) as f64;
            low as f64 + share.clamp(0.0, 1.0) * high.saturating_sub(low) as f64
        };
        let ends: Vec<u64> =
            (1..=count).map(|end| up_to(started_ns as f64 + length_ns * end as f64).round() as u64).collect();
        let mut last = 0;
        let of_interval = |end: &u64| end.saturating_sub(std::mem::replace(&mut last, *end));
        let intervals = ends.iter().map(of_interval).collect();
        Some(Course { interval_seconds: length_ns / 1e9, bytes: intervals })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK_NS: u64 = 100_000_000;

    #[test]
    fn a_course_adds_up_and_shows_a_stall() {
        let mut recorder = CourseRecorder::default();
        let mut sum = 0;
        for tick in 1..=50 {
            // A stall from the 21st to the 30th tick; ticks are late by up to a third.
            sum += if (21..=30).contains(&tick) { 0 } else { 4096 };
            recorder.add(1000 + tick * TICK_NS + tick % 3 * TICK_NS / 10, sum);
        }
        let course = recorder.course(1000, 1000 + 51 * TICK_NS, sum + 4096).unwrap();
        assert_eq!(course.bytes.iter().sum::<u64>(), sum + 4096);
        assert_eq!(course.bytes.len(), 51);
        assert!((course.interval_seconds - 0.1).abs() < 1e-9);
        assert!(course.bytes[21..29].iter().all(|bytes| *bytes == 0), "{:?}", course.bytes);
        assert!(course.bytes[..19].iter().all(|bytes| (2500..5800).contains(bytes)), "{:?}", course.bytes);
        assert_eq!(recorder.course(1000, 1000 + 3 * TICK_NS, 3 * 4096), None, "too short");
    }

    #[test]
    fn a_long_course_is_bounded_and_transfers_before_the_measurement_do_not_count() {
        let mut recorder = CourseRecorder::default();
        for tick in 1..=100_000 {
            recorder.add(tick * TICK_NS, tick * 1000);
        }
        assert!(recorder.samples.len() < SAMPLES_MAX);
        let (started, ended) = (10_000 * TICK_NS, 100_000 * TICK_NS);
        let course = recorder.course(started, ended, 90_000_000).unwrap();
        assert_eq!((course.bytes.len(), course.bytes.iter().sum::<u64>()), (100, 90_000_000));
        assert!(course.bytes.iter().all(|bytes| (800_000..1_000_000).contains(bytes)), "{:?}", course.bytes);
    }
}
