//! The time of a seek as a function of its length: a square root up to a third of the stroke, then linear. The curve
//! passes through the three figures of a data sheet. Rotation is in `geometry.rs`.
//!
//! Data sheets give the mean time over all pairs of cylinders. It is less than the time of a seek of mean length,
//! because the curve is concave. The mean is linear in the time at the knee of the curve, so that time is calculated
//! from the mean.

use crate::mechanism::Nanos;

/// Each shorter distance has a table entry of its own.
const EXACT: u32 = 1024;

/// The maximum number of table entries for longer distances.
const COARSE: u32 = 2048;

/// The times of all seeks of a disk, in two tables.
#[derive(Debug, Clone)]
pub(crate) struct SeekCurve {
    /// One table for distances below [`EXACT`], one for longer distances in steps of `1 << shift`.
    times: Vec<u32>,
    shift: u32,
}

/// The three figures of a data sheet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SeekPoints {
    /// To the next cylinder.
    pub(crate) track: Nanos,
    /// The mean over all pairs of cylinders.
    pub(crate) average: Nanos,
    /// Over all cylinders.
    pub(crate) full: Nanos,
}

impl SeekCurve {
    /// The curve of a disk of `cylinders` cylinders; `None` if no rising curve has these three points.
    pub(crate) fn new(cylinders: u32, points: SeekPoints) -> Option<Self> {
        let stroke = f64::from(cylinders.saturating_sub(1).max(1));
        let knee_at = (stroke / 3.0).max(1.0);
        let (track, full) = (points.track as f64, points.full as f64);
        let time = |distance: f64, knee: f64| {
            if distance <= knee_at {
                let share = if knee_at > 1.0 { ((distance - 1.0) / (knee_at - 1.0)).sqrt() } else { 1.0 };
                track + (knee - track) * share
            } else {
                knee + (full - knee) * (distance - knee_at) / (stroke - knee_at)
            }
        };
        let mean = |knee: f64| mean_over_pairs(stroke, |distance| time(distance, knee));
        let (low, high) = (mean(track), mean(full));
        let knee = if stroke <= 3.0 || high <= low {
            points.average as f64
        } else {
            track + (full - track) * (points.average as f64 - low) / (high - low)
        };
        let rises = track <= knee && knee <= full;
        let shift = (0..32).find(|shift| cylinders >> shift <= COARSE)?;
        let middle = |index: u32| {
            let first = f64::from(index << shift);
            time((first + f64::from((1_u32 << shift) - 1) / 2.0).clamp(1.0, stroke), knee).round() as u32
        };
        let exact = (0..EXACT).map(|distance| match distance {
            0 => 0,
            _ => time(f64::from(distance).min(stroke), knee).round() as u32,
        });
        rises.then(|| Self { times: exact.chain((0..=cylinders >> shift).map(middle)).collect(), shift })
    }

    /// The same curve, with `settle` added to each seek, and with other times for short seeks. A switch of heads on the
    /// same cylinder takes `head_switch`. A seek to the next cylinder takes at most `cylinder_switch`.
    pub(crate) fn with_switches(&self, settle: Nanos, head_switch: Nanos, cylinder_switch: Nanos) -> Self {
        let mut times: Vec<_> = self.times.iter().map(|time| time + settle as u32).collect();
        times[0] = head_switch as u32;
        times[1] = times[1].min(cylinder_switch as u32);
        Self { times, shift: self.shift }
    }

    /// The time of a seek over `cylinders` cylinders, in nanoseconds. The disk must have these cylinders.
    #[inline]
    pub(crate) fn time(&self, cylinders: u32) -> u32 {
        let index = if cylinders < EXACT { cylinders } else { EXACT + (cylinders >> self.shift) };
        self.times[index as usize]
    }
}

/// The mean of a function of the distance over all pairs of different cylinders.
fn mean_over_pairs(stroke: f64, time: impl Fn(f64) -> f64) -> f64 {
    // There are 2 (stroke + 1 - d) pairs at distance d. For a smooth function, steps of equal width suffice.
    let steps = stroke.clamp(1.0, 20_000.0).floor();
    let width = stroke / steps;
    let (mut sum, mut weights, mut step) = (0.0, 0.0, 0.0);
    while step < steps {
        let distance = if steps < stroke { (step + 0.5) * width } else { step + 1.0 };
        let weight = stroke + 1.0 - distance;
        sum += weight * time(distance.max(1.0));
        weights += weight;
        step += 1.0;
    }
    sum / weights
}

#[cfg(test)]
mod tests {
    use super::*;

    const POINTS: SeekPoints = SeekPoints { track: 1_000_000, average: 9_000_000, full: 17_000_000 };

    #[test]
    fn the_curve_has_the_three_figures_of_the_data_sheet() {
        for cylinders in [5000, 50_000, 500_000] {
            let curve = SeekCurve::new(cylinders, POINTS).unwrap();
            assert_eq!((curve.time(0), curve.time(1)), (0, POINTS.track as u32));
            assert!(Nanos::from(curve.time(cylinders - 1)).abs_diff(POINTS.full) < POINTS.full / 500);
            let (mut sum, mut pairs) = (0_u128, 0_u128);
            for distance in 1..cylinders {
                let weight = u128::from(cylinders - distance);
                sum += weight * u128::from(curve.time(distance));
                pairs += weight;
            }
            let mean = (sum / pairs) as Nanos;
            assert!(mean.abs_diff(POINTS.average) < POINTS.average / 500, "{cylinders} cylinders: {mean}");
        }
    }

    #[test]
    fn a_longer_seek_takes_no_less_time() {
        let curve = SeekCurve::new(300_000, POINTS).unwrap();
        assert!((1..300_000).all(|distance| curve.time(distance - 1) <= curve.time(distance)));
    }

    #[test]
    fn figures_that_contradict_each_other_have_no_curve() {
        assert!(SeekCurve::new(50_000, SeekPoints { average: 16_900_000, ..POINTS }).is_none());
        assert!(SeekCurve::new(50_000, SeekPoints { average: 1_100_000, ..POINTS }).is_none());
        assert!(SeekCurve::new(50_000, SeekPoints { full: 900_000, ..POINTS }).is_none());
    }
}
