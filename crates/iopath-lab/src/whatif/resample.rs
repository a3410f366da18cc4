//! Intervals from a block bootstrap (Künsch, 1989): windows of consecutive requests are drawn with replacement, the
//! same windows of both replays, and the seeds of the model are drawn with them. So bursts and the state of queues stay
//! within a window, and an effect on both replays cancels out.

use iopath_report::random::{below, generator};
use iopath_report::whatif::{Change, Changes, Figures, METRICS};

use super::tally::{Digest, Scratch};

/// Separates the resampling from other random numbers.
const PURPOSE: u64 = 0xB007;

/// The number of resampled traces.
const DRAWS: usize = 400;

/// With fewer windows, a bootstrap understates the interval.
const WINDOWS_MIN: usize = 6;

/// The means of the figures of all seeds.
pub(crate) fn mean(digests: &[Digest]) -> Figures {
    let all: Vec<Figures> = digests.iter().map(Digest::all).collect();
    mean_of(&all)
}

fn mean_of(all: &[Figures]) -> Figures {
    let mean = |of: fn(&Figures) -> f64| all.iter().map(of).sum::<f64>() / all.len().max(1) as f64;
    Figures {
        bytes_per_s: mean(|one| one.bytes_per_s),
        iops: mean(|one| one.iops),
        mean_ns: mean(|one| one.mean_ns),
        p50_ns: mean(|one| one.p50_ns),
        p99_ns: mean(|one| one.p99_ns),
        p999_ns: mean(|one| one.p999_ns),
        device_ios: mean(|one| one.device_ios),
        request_bytes: mean(|one| one.request_bytes),
        seek_bytes: mean(|one| one.seek_bytes),
        utilisation: mean(|one| one.utilisation),
        fairness: mean(|one| one.fairness),
    }
}

/// The differences of `of` from `from`. Each has a digest for each seed; one digest without seeds is compared with all.
pub(crate) fn changes(of: &[Digest], from: &[Digest]) -> Changes {
    let (after, before) = (mean(of), mean(from));
    let drawn = drawn(of, from);
    let mut changes = [None; 11];
    for (index, (change, metric)) in changes.iter_mut().zip(METRICS).enumerate() {
        let Some(fraction) = fraction((metric.of)(&after), (metric.of)(&before)) else { continue };
        let interval = drawn.as_ref().and_then(|drawn| interval(drawn, index, fraction));
        *change = Some(Change { fraction, interval });
    }
    Changes::of(&changes)
}

fn fraction(after: f64, before: f64) -> Option<f64> {
    (before > 0.0).then(|| after / before - 1.0)
}

/// The figures of resampled traces of both sides; none with too few windows.
fn drawn(of: &[Digest], from: &[Digest]) -> Option<Vec<[Figures; 2]>> {
    let windows = of.first().map_or(0, Digest::windows);
    if windows < WINDOWS_MIN || from.is_empty() {
        return None;
    }
    let mut random = generator(1, [PURPOSE, 0]);
    let mut scratch = Scratch::default();
    let draw = |_| {
        let seed = below(&mut random, of.len() as u64) as usize;
        let selected: Vec<usize> =
            (0..windows).map(|_| below(&mut random, windows as u64) as usize).collect();
        [of, from].map(|side| {
            let digest = &side[if side.len() > 1 { seed % side.len() } else { 0 }];
            digest.figures(selected.iter().copied(), &mut scratch)
        })
    };
    Some((0..DRAWS).map(draw).collect())
}

/// The central 95% of the resampled differences of a metric. The interval contains the difference itself.
fn interval(drawn: &[[Figures; 2]], metric: usize, observed: f64) -> Option<[f64; 2]> {
    let of = METRICS[metric].of;
    let mut values: Vec<f64> =
        drawn.iter().filter_map(|[after, before]| fraction(of(after), of(before))).collect();
    if values.len() < DRAWS / 2 {
        return None;
    }
    values.sort_by(f64::total_cmp);
    let at = |share: f64| values[((values.len() - 1) as f64 * share).round() as usize];
    Some([at(0.025).min(observed), at(0.975).max(observed)])
}

#[cfg(test)]
mod tests {
    use super::super::request::Found;
    use super::super::tally::Tally;
    use super::super::trace::Builder;
    use super::*;
    use iopath_core::Op;

    /// A replay of 640 requests whose latencies are `latency_ns(number)`.
    fn digest(latency_ns: impl Fn(u64) -> u64) -> Digest {
        let mut builder = Builder::default();
        for number in 0..640 {
            let found = Found {
                at_ns: number * 1_000_000,
                op: Op::Read,
                is_fua: false,
                sector: 0,
                sectors: 8,
                stream: 0,
                device: 0,
            };
            builder.push(&found).unwrap();
        }
        let built = builder.finish();
        let mut tally = Tally::new(built.windows, 1, &built.devices[0].requests);
        for (number, request) in built.devices[0].requests.iter().enumerate() {
            let due_ns = request.at_ns;
            tally.complete(request, due_ns, due_ns + latency_ns(number as u64));
        }
        tally.digest()
    }

    /// Noise of a request that is the same in each replay.
    fn noise(number: u64) -> u64 {
        number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 48
    }

    #[test]
    fn an_effect_on_every_request_is_significant_and_noise_of_both_replays_cancels_out() {
        let (slow, fast) =
            (digest(|number| 200_000 + noise(number)), digest(|number| 180_000 + noise(number)));
        let mean = changes(&[fast], &[slow]).mean.unwrap();
        assert!((-0.1..-0.08).contains(&mean.fraction) && mean.is_significant(), "{mean:?}");
        let [low, high] = mean.interval.unwrap();
        assert!(high - low < 0.01, "{mean:?}");
    }

    #[test]
    fn the_effect_of_one_burst_is_not_significant() {
        let burst = |number: u64| if (300..310).contains(&number) { 5_000_000 } else { 200_000 };
        let mean = changes(&[digest(burst)], &[digest(|_| 200_000)]).mean.unwrap();
        assert!(mean.fraction > 0.3 && !mean.is_significant(), "{mean:?}");
    }

    #[test]
    fn equal_replays_do_not_differ() {
        let same = || digest(|number| 200_000 + noise(number));
        let changes = changes(&[same(), same()], &[same()]);
        for change in changes.all().into_iter().flatten() {
            assert_eq!((change.fraction, change.interval), (0.0, Some([0.0, 0.0])));
        }
        assert_eq!(changes.device_ios, None, "the figure is 0");
    }
}
