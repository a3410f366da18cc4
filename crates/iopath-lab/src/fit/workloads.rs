//! Workloads as evidence: runs them on the target, in turns, and predicts their figures by running the same workloads
//! on a model in virtual time. So the queue, its merges and splits take part on both sides.

use std::time::{Duration, Instant};

use super::drift;
use super::error::FitError;
use super::evidence::{Case, Evidence, Part, median};
use super::plan::{Planned, Slice};
use crate::campaign::order;
use iopath_bench::engine::{Measured as Run, Worker};
use iopath_bench::error::BenchError;
use iopath_bench::model::ModelTarget;
use iopath_bench::progress::{Progress, Silent, Stage};
use iopath_bench::run::{Lab, Series};
use iopath_bench::runner::Session;
use iopath_bench::simulated::{Simulation, Timeline};
use iopath_bench::target::Target;
use iopath_bench::workload::Workload;

/// Seeds of the measurement and of the prediction: different offsets on each side.
const MEASURED_SEED: u64 = 1;
const PREDICTED_SEED: u64 = 2;

/// The most rounds: the median of more repetitions is hardly better.
const ROUNDS_MAX: u32 = 15;

/// The figures of one run of a workload.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    pub(crate) ios: u64,
    pub(crate) seconds: f64,
    pub(crate) mean_ns: f64,
    pub(crate) min_ns: f64,
    pub(crate) p50_ns: f64,
    pub(crate) p99_ns: f64,
    /// The width of a uniform distribution of these latencies.
    pub(crate) width_ns: f64,
}

impl Sample {
    fn of(run: &Run) -> Self {
        let latency = &run.latency_ns;
        let at = |share| latency.quantile_ns(share) as f64;
        Self {
            ios: run.ios,
            seconds: run.seconds,
            mean_ns: latency.mean_ns(),
            min_ns: latency.min_ns() as f64,
            p50_ns: at(0.5),
            p99_ns: at(0.99),
            width_ns: width(run.ios, at(0.95) - at(0.05)),
        }
    }

    /// The sample as a device of the median round would give it.
    fn at_median_speed(&self, speed: f64) -> Self {
        let Self { ios, seconds, mean_ns, min_ns, p50_ns, p99_ns, width_ns } = *self;
        let [seconds, mean_ns, min_ns, p50_ns, p99_ns, width_ns] =
            [seconds, mean_ns, min_ns, p50_ns, p99_ns, width_ns].map(|time| time * speed);
        Self { ios, seconds, mean_ns, min_ns, p50_ns, p99_ns, width_ns }
    }
}

/// The numbers of the latencies at 5% and at 95% of so many, from 1.
fn ranks(count: u64) -> [f64; 2] {
    [0.05, 0.95].map(|share| (share * count as f64).ceil().max(1.0))
}

/// The width of a uniform distribution, of so many latencies with this distance from 5% to 95%. The distance between
/// two of few values is a smaller part of the width than that between their shares: `r` of `n + 1` for `r` ranks.
fn width(count: u64, distance_ns: f64) -> f64 {
    let [low, high] = ranks(count);
    if high > low { distance_ns * (count + 1) as f64 / (high - low) } else { 0.0 }
}

/// The standard deviation of [`width`] as a fraction.
pub(crate) fn width_deviation(count: u64) -> f64 {
    let [low, high] = ranks(count);
    let (ranks, count) = (high - low, count as f64);
    if ranks > 0.0 { ((count + 1.0 - ranks) / (ranks * (count + 2.0))).sqrt() } else { f64::INFINITY }
}

/// The runs of one workload.
#[derive(Debug, Clone)]
pub(crate) struct Measured {
    pub(crate) planned: Planned,
    pub(crate) samples: Vec<Sample>,
}

impl Measured {
    /// The median of a figure.
    pub(crate) fn median(&self, figure: impl Fn(&Sample) -> f64) -> f64 {
        median(&self.samples.iter().map(figure).collect::<Vec<_>>())
    }

    /// Transfers a second.
    pub(crate) fn rate(&self) -> f64 {
        self.median(|sample| rate(&self.planned, sample))
    }

    /// The median deviation of a run from the median, as a fraction; none with fewer than three runs.
    pub(crate) fn noise(&self) -> Option<f64> {
        let middle = self.rate();
        let deviation = |sample: &Sample| (rate(&self.planned, sample) / middle - 1.0).abs();
        (self.samples.len() >= 3).then(|| self.median(deviation))
    }

    /// The rate of each run.
    fn rates(&self) -> Vec<f64> {
        self.samples.iter().map(|sample| rate(&self.planned, sample)).collect()
    }

    /// The time of the final flush, in seconds.
    pub(crate) fn flush_seconds(&self) -> f64 {
        let depth = f64::from(self.planned.depth);
        self.median(|sample| (sample.seconds - sample.ios as f64 * sample.mean_ns / depth / 1e9).max(0.0))
    }
}

/// Transfers a second. That of writes comes from their latency: their time includes the final flush.
fn rate(planned: &Planned, sample: &Sample) -> f64 {
    if planned.rw.writes() {
        f64::from(planned.depth) * 1e9 / sample.mean_ns
    } else {
        sample.ios as f64 / sample.seconds
    }
}

/// The runs of all workloads.
#[derive(Debug)]
pub(crate) struct Runs {
    pub(crate) measured: Vec<Measured>,
    pub(crate) rounds: u32,
    /// The median deviation of a run from the median of its workload, with the drift from round to round; none with
    /// fewer than three rounds.
    pub(crate) noise: Option<f64>,
    pub(crate) warnings: Vec<String>,
}

impl Runs {
    /// The runs without the drift from round to round.
    fn new(mut measured: Vec<Measured>, rounds: u32, warnings: Vec<String>) -> Self {
        let noise: Vec<f64> = measured.iter().filter_map(Measured::noise).collect();
        let noise = (!noise.is_empty()).then(|| median(&noise));
        let speeds = drift::speeds(&measured.iter().map(Measured::rates).collect::<Vec<_>>());
        for sample in measured.iter_mut().flat_map(|one| one.samples.iter_mut().zip(&speeds)) {
            *sample.0 = sample.0.at_median_speed(*sample.1);
        }
        Self { measured, rounds, noise, warnings }
    }
}

/// Runs one workload on a model.
pub(crate) fn simulate(
    model: &ModelTarget,
    planned: &Planned,
    slice: Slice,
    seed: u64,
) -> Result<Sample, FitError> {
    let end = planned.range.end.min(model.size_bytes());
    let workload = Workload { size_bytes: Some(end), ..planned.workload(slice, seed) };
    let (workers, mut timeline) = (Worker::on_each(&workload, [end]), Timeline::default());
    let mut simulation = Simulation::new(&[model], &workers, workload.seed, &timeline);
    simulation.reset(1, &timeline);
    let ran = simulation.measure(&workers, 1, &mut timeline, &mut Silent)?.complete()?;
    Ok(Sample::of(&ran.measured()))
}

/// Runs workloads on a target, in turns, until the deadline; at least once.
pub(crate) fn measure(
    target: &Target,
    lab: Option<&Lab>,
    plan: &[Planned],
    slice: Slice,
    deadline: Instant,
    progress: &mut dyn Progress,
) -> Result<Runs, FitError> {
    match (target.model(), lab) {
        (Some(model), _) => on_model(model, plan, slice),
        (None, Some(lab)) => on_storage(target, lab, plan, slice, deadline, progress),
        (None, None) => Ok(Runs::new(Vec::new(), 0, Vec::new())),
    }
}

fn on_model(model: &ModelTarget, plan: &[Planned], slice: Slice) -> Result<Runs, FitError> {
    let run = |planned: &Planned| {
        let sample = simulate(model, planned, slice, MEASURED_SEED)?;
        Ok(Measured { planned: planned.clone(), samples: vec![sample] })
    };
    let measured = plan.iter().map(run).collect::<Result<_, FitError>>()?;
    Ok(Runs::new(measured, 1, Vec::new()))
}

/// The time that the measurement still takes at most, in round `round`: until the deadline, or until the rounds end.
fn time_left(to_deadline: Duration, round: u32, longest_round: Duration) -> Duration {
    if longest_round.is_zero() {
        to_deadline
    } else {
        to_deadline.min(longest_round * (ROUNDS_MAX + 1 - round))
    }
}

fn on_storage(
    target: &Target,
    lab: &Lab,
    plan: &[Planned],
    slice: Slice,
    deadline: Instant,
    progress: &mut dyn Progress,
) -> Result<Runs, FitError> {
    // A workload on a part of the target never writes past that part.
    let parts: Vec<Option<Target>> =
        plan.iter().map(|planned| (!planned.is_whole()).then(|| target.first(planned.range.end))).collect();
    let series = plan.iter().zip(&parts).map(|(planned, part)| {
        Series::new(&planned.workload(slice, MEASURED_SEED), part.as_ref().unwrap_or(target))
    });
    let mut series = series.collect::<Result<Vec<_>, BenchError>>()?;
    let (mut rounds, mut longest) = (0, Duration::ZERO);
    while rounds < ROUNDS_MAX && (rounds == 0 || Instant::now() + longest <= deadline) {
        let begun = Instant::now();
        rounds += 1;
        // The training and the workloads held back share the load of the machine.
        for index in order(MEASURED_SEED, rounds, plan.len()) {
            let (series, planned) = (&mut series[index], &plan[index]);
            let left = time_left(deadline.saturating_duration_since(Instant::now()), rounds, longest);
            let stage =
                Stage::Turn { workload: planned.to_string(), round: rounds, rounds: ROUNDS_MAX, left };
            progress.stage(&stage);
            series.turn(1, &mut Session::default(), &mut Silent)?;
        }
        longest = longest.max(begun.elapsed());
    }
    let mut warnings: Vec<String> = Vec::new();
    let mut measured = Vec::with_capacity(plan.len());
    for (series, planned) in series.iter().zip(plan) {
        let samples = series.all.iter().map(Sample::of);
        measured.push(Measured { planned: planned.clone(), samples: samples.collect() });
        let result = lab.summarize(series);
        for warning in result.warnings.into_iter().filter(|warning| !warning.starts_with("CV of")) {
            if !warnings.contains(&warning) {
                warnings.push(warning);
            }
        }
    }
    Ok(Runs::new(measured, rounds, warnings))
}

/// Workloads and their figures.
#[derive(Debug)]
pub(crate) struct Workloads {
    pub(crate) runs: Runs,
    cases: Vec<Case>,
    slice: Slice,
}

impl Workloads {
    pub(crate) fn new(runs: Runs, slice: Slice) -> Self {
        let case = |measured: &Measured| Case {
            name: measured.planned.to_string(),
            rw: measured.planned.rw.name(),
            block_bytes: measured.planned.block_bytes.into(),
            depth: measured.planned.depth,
            part: measured.planned.part,
            measured: measured.rate(),
            noise: measured.noise(),
        };
        let cases = runs.measured.iter().map(case).collect();
        Self { runs, cases, slice }
    }

    /// The uncertainty of the figures; none with too few rounds.
    pub(crate) fn noise_floor(&self) -> Option<f64> {
        drift::uncertainty(&self.runs.measured.iter().map(Measured::rates).collect::<Vec<_>>())
    }

    /// The runs that the parameters are fitted to.
    pub(crate) fn training(&self) -> impl Iterator<Item = &Measured> {
        self.runs.measured.iter().filter(|measured| measured.planned.part == Part::Training)
    }
}

impl Evidence for Workloads {
    fn cases(&self) -> &[Case] {
        &self.cases
    }

    fn predict(&self, model: &ModelTarget, part: Part) -> Result<Vec<f64>, FitError> {
        let plan = self
            .runs
            .measured
            .iter()
            .map(|measured| &measured.planned)
            .filter(|planned| planned.part == part);
        plan.map(|planned| Ok(rate(planned, &simulate(model, planned, self.slice, PREDICTED_SEED)?)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_under_load_changes_no_figure_and_counts_as_noise() {
        let planned = |depth| {
            let mut planned = Planned::probe(1 << 30, 1.0).unwrap();
            planned.depth = depth;
            planned
        };
        let sample = |rate: f64| Sample {
            ios: 1000,
            seconds: 1000.0 / rate,
            mean_ns: 1e9 / rate,
            min_ns: 0.9e9 / rate,
            p50_ns: 1e9 / rate,
            p99_ns: 2e9 / rate,
            width_ns: 1e8 / rate,
        };
        let measured = |depth: u32| {
            let loads = [1.0, 0.4, 0.5, 1.0, 0.45, 0.5];
            let rates = loads.map(|load| load * 1000.0 * f64::from(depth));
            Measured { planned: planned(depth), samples: rates.map(sample).into() }
        };
        let runs = Runs::new((1..=9).map(measured).collect(), 6, Vec::new());
        assert!(runs.noise.unwrap() > 0.05, "{:?}", runs.noise);
        for (depth, one) in (1..).zip(&runs.measured) {
            assert!((one.rate() / f64::from(depth) / 500.0 - 1.0).abs() < 0.05, "{}", one.rate());
            assert!(one.noise().unwrap() < 1e-9);
        }
    }

    #[test]
    fn the_width_of_a_uniform_distribution_is_that_of_many_and_of_few_latencies() {
        // Equally spaced latencies, as they are on average.
        for count in [5, 20, 100, 5000] {
            let value = |rank: f64| 8.0e6 * rank / (count + 1) as f64;
            let [low, high] = ranks(count).map(value);
            assert!((width(count, high - low) / 8.0e6 - 1.0).abs() < 1e-9, "{count}");
        }
        assert_eq!([0, 1].map(|count| width(count, 0.0) as u64), [0, 0]);
        assert!((width_deviation(20) - 0.087).abs() < 0.001 && width_deviation(1).is_infinite());
    }

    #[test]
    fn the_time_left_ends_with_the_last_round_or_at_the_deadline() {
        let [second, hour] = [1, 3600].map(Duration::from_secs);
        assert_eq!(time_left(hour, 1, Duration::ZERO), hour);
        assert_eq!(time_left(hour, ROUNDS_MAX, second), second);
        assert_eq!(time_left(hour, 2, second), second * (ROUNDS_MAX - 1));
        assert_eq!(time_left(second, 2, second), second);
    }
}
