//! Live comparisons of synthetic noise: error rates, power, and partial results.

use super::*;
use crate::compare::data::THROUGHPUT;
use crate::compare::letters;
use iopath_report::random::generator;
use iopath_report::stats::noise::{normal, stall, uniform};
use rand_xoshiro::Xoshiro256PlusPlus;

/// The noise of a sequence of executions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Course {
    /// Normal, 5%.
    Gaussian,
    /// Log-normal, 0.2.
    LogNormal,
    /// Each execution is 1% slower than the one before.
    Drift,
    /// One execution in ten reaches 80%.
    Outliers,
    /// A slow wave of 10% over 15 executions.
    Wave,
    /// Normal with 3%; one execution in fifty takes 3 to 10 times as long.
    Stalls,
    /// Normal with 2% around two levels: three executions in ten reach 85%.
    Bimodal,
}

const COURSES: [Course; 7] = [
    Course::Gaussian,
    Course::LogNormal,
    Course::Drift,
    Course::Outliers,
    Course::Wave,
    Course::Stalls,
    Course::Bimodal,
];

struct Synthetic {
    course: Course,
    generator: Xoshiro256PlusPlus,
    executions: u32,
    change: f64,
    end: Option<(u32, Stopped)>,
}

impl Synthetic {
    fn new(course: Course, seed: u64, change: f64) -> Self {
        let generator = generator(seed, [course as u64, 7]);
        Self { course, generator, executions: 0, change, end: None }
    }
}

impl Executor for Synthetic {
    fn execute(&mut self, side: usize) -> Result<Vec<Run>, End> {
        if self.end == Some((self.executions, Stopped::Failed)) {
            return Err(CompareError::Selection("no".to_owned()).into());
        }
        let (at, noise) = (f64::from(self.executions), normal(&mut self.generator));
        let factor = match self.course {
            Course::Gaussian => 1.0 + 0.05 * noise,
            Course::LogNormal => (0.2 * noise).exp(),
            Course::Drift => (1.0 + 0.02 * noise) * 0.99f64.powf(at),
            Course::Outliers if uniform(&mut self.generator) < 0.1 => 0.8 * (1.0 + 0.02 * noise),
            Course::Wave => (1.0 + 0.02 * noise) * (1.0 + 0.1 * (at / 15.0 * std::f64::consts::TAU).sin()),
            Course::Stalls => (1.0 + 0.03 * noise) / stall(&mut self.generator),
            Course::Bimodal if uniform(&mut self.generator) < 0.3 => 0.85 * (1.0 + 0.02 * noise),
            Course::Outliers | Course::Bimodal => 1.0 + 0.02 * noise,
        };
        self.executions += 1;
        let mut run = Run::default();
        run.sample(THROUGHPUT, Some(vec![100.0 * factor * if side > 0 { self.change } else { 1.0 }]));
        Ok(vec![run])
    }

    fn limit(&mut self, pairs: u32) -> Option<Stopped> {
        self.end.filter(|(at, _)| pairs == *at).map(|(_, stopped)| stopped)
    }
}

fn plan(seed: u64, rounds_max: u32) -> Plan<'static> {
    let sides = letters(&["a".to_owned(), "b".to_owned()]);
    Plan { sides, threshold: 0.03, metric: None, rounds_max, seed }
}

/// The verdict, the cause of the end, and the number of pairs.
fn live(mut executor: Synthetic, plan: &Plan) -> (Verdict, Stopped, u32) {
    let (comparison, error) = run(plan, &mut executor, |_| {});
    assert!(error.is_none(), "{error:?}");
    let comparison = comparison.unwrap();
    let facts = comparison.live.unwrap();
    (comparison.runs[0].metrics[0].verdict, facts.stopped, facts.pairs)
}

#[test]
fn repeated_looks_raise_no_more_than_5_percent_of_false_alarms() {
    const TRIALS: u32 = 1500;
    let limit = 0.05 + 3.0 * (0.05 * 0.95 / f64::from(TRIALS)).sqrt();
    for course in COURSES {
        let alarms = (0..TRIALS).filter(|trial| {
            let seed = u64::from(*trial);
            let (verdict, ..) = live(Synthetic::new(course, seed, 1.0), &plan(seed, 40));
            !matches!(verdict, Verdict::Same | Verdict::Inconclusive)
        });
        let share = alarms.count() as f64 / f64::from(TRIALS);
        eprintln!("live false alarms, {course:?}: {:.2}%", share * 100.0);
        assert!(share <= limit, "{course:?}: {share}");
    }
}

#[test]
fn several_commands_raise_no_more_false_alarms_than_two() {
    const TRIALS: u32 = 400;
    let texts = ["a", "b", "c", "d"].map(str::to_owned);
    let limit = 0.05 + 3.0 * (0.05 * 0.95 / f64::from(TRIALS)).sqrt();
    let alarms = (0..TRIALS).filter(|trial| {
        let seed = u64::from(*trial);
        let four = Plan { sides: letters(&texts), ..plan(seed, 20) };
        let (comparison, _) = run(&four, &mut Synthetic::new(Course::Gaussian, seed, 1.0), |_| {});
        let runs = comparison.unwrap().runs;
        assert_eq!(runs.iter().map(|run| run.side.as_str()).collect::<Vec<_>>(), ["B", "C", "D"]);
        runs.iter().any(|run| !matches!(run.metrics[0].verdict, Verdict::Same | Verdict::Inconclusive))
    });
    let share = alarms.count() as f64 / f64::from(TRIALS);
    eprintln!("live false alarms, four commands: {:.2}%", share * 100.0);
    assert!(share <= limit, "{share}");
}

#[test]
fn a_true_change_of_5_percent_is_found_early() {
    const TRIALS: u32 = 300;
    for (course, pairs_max) in [
        (Course::Gaussian, 60),
        (Course::Drift, 60),
        (Course::Outliers, 60),
        (Course::Wave, 60),
        (Course::Stalls, 60),
        (Course::Bimodal, 120),
    ] {
        let (mut found, mut opposite, mut pairs) = (0, 0, 0);
        for trial in 0..TRIALS {
            let seed = u64::from(trial);
            let (verdict, _, used) = live(Synthetic::new(course, seed, 0.95), &plan(seed, pairs_max));
            opposite += u32::from(verdict == Verdict::Faster);
            found += u32::from(verdict == Verdict::Slower);
            pairs += used;
        }
        let share = f64::from(found) / f64::from(TRIALS);
        let mean = f64::from(pairs) / f64::from(TRIALS);
        eprintln!("live power, {course:?}: {:.1}% after {mean:.1} of {pairs_max} pairs", share * 100.0);
        assert!(share >= 0.9, "{course:?}: {share}");
        assert!(opposite <= TRIALS / 100, "{course:?}: {opposite} in the opposite direction");
        assert!(mean < f64::from(pairs_max) * 0.8, "{course:?}: {mean}");
    }
}

#[test]
fn an_end_before_the_limits_keeps_the_complete_pairs() {
    for (at, stopped, partial) in
        [(6, Stopped::Interrupted, true), (6, Stopped::Time, false), (1, Stopped::Interrupted, true)]
    {
        let mut executor = Synthetic::new(Course::LogNormal, 3, 1.0);
        executor.end = Some((at, stopped));
        let (comparison, error) = run(&plan(3, 40), &mut executor, |_| {});
        let live = comparison.unwrap().live.unwrap();
        assert_eq!((live.pairs, live.stopped, live.partial, error.is_none()), (at, stopped, partial, true));
    }
    let mut executor = Synthetic::new(Course::Gaussian, 3, 1.0);
    executor.end = Some((0, Stopped::Interrupted));
    assert!(run(&plan(3, 40), &mut executor, |_| {}).0.is_none(), "no pair, no comparison");
}

#[test]
fn a_failed_command_keeps_the_complete_pairs_and_is_reported() {
    let mut executor = Synthetic::new(Course::LogNormal, 3, 1.0);
    executor.end = Some((7, Stopped::Failed));
    let (comparison, error) = run(&plan(3, 40), &mut executor, |_| {});
    let live = comparison.unwrap().live.unwrap();
    assert_eq!((live.pairs, live.stopped), (3, Stopped::Failed));
    assert!(error.is_some());
}
