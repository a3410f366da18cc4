//! Progress on stderr: on a terminal a bar, or the live view of a long run; otherwise lines.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use iopath_bench::Progress;
use iopath_bench::progress::{Sample, Stage};
use iopath_os::process_cpu_times;
use iopath_report::numbers::digits;
use iopath_report::terminal::is_fancy;

use crate::live::{History, Live};

use crate::stderr::{note, plain};

/// Steps of a bar.
const STEPS: u64 = 1000;

/// A run that probably takes longer than this has the live view.
const LIVE_FROM: Duration = Duration::from_secs(10);

/// The interval of lines without a terminal.
const LINE: Duration = Duration::from_secs(5);

/// The progress of a command.
pub(crate) struct Bar {
    /// The bar, if stderr is a terminal.
    meter: Option<ProgressBar>,
    is_quiet: bool,
    history: History,
    live: Option<Live>,
    /// Whether the terminal refused the live view.
    is_refused: bool,
    /// The repetitions of the run.
    count: u32,
    /// The time of the last line.
    line: Instant,
    /// The last round that was reported without a bar.
    round: u32,
}

impl Bar {
    /// A bar on a terminal, unless the user wants plain text; nothing at all if the user wants quiet.
    pub(crate) fn new(is_plain: bool, is_quiet: bool) -> Self {
        let is_fancy = !is_plain && !is_quiet && is_fancy(&std::io::stderr());
        let meter = is_fancy.then(|| {
            let bar = ProgressBar::with_draw_target(Some(STEPS), ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template("{wide_bar} {percent:>3}% {msg}");
            bar.with_style(style.expect("the template is a constant and well-formed"))
        });
        let (history, line) = (History::default(), Instant::now());
        Self { meter, is_quiet, history, live: None, is_refused: false, count: 1, line, round: 0 }
    }

    /// Removes bar and view from the screen.
    pub(crate) fn finish(&mut self) {
        self.live = None;
        if let Some(bar) = &self.meter {
            bar.finish_and_clear();
        }
    }
}

/// The probable time of all repetitions; none before there is any progress.
fn expected(sample: &Sample, count: u32) -> Option<Duration> {
    let seconds = sample.elapsed.as_secs_f64() / sample.done * f64::from(count);
    Duration::try_from_secs_f64(seconds).ok()
}

/// The figures of a line.
fn figures(history: &History) -> String {
    let last = history.last();
    format!(
        "{}: {}%, {} MB/s, {} IOPS",
        history.stage,
        (history.done * 100.0) as u32,
        digits(last.bytes / 1e6),
        digits(last.ios)
    )
}

impl Progress for Bar {
    fn stage(&mut self, stage: &Stage) {
        if self.is_quiet {
            return;
        }
        if let Stage::Repeat { count, .. } = stage {
            self.count = *count;
        }
        let name = plain(&stage.to_string());
        self.history.begin(name.clone());
        self.line = Instant::now();
        if let Some(live) = &mut self.live {
            return live.refresh(&self.history);
        }
        match (&self.meter, stage) {
            // Turns are short and many, so the bar covers all of them.
            (Some(bar), Stage::Turn { .. }) => bar.set_message(name),
            (Some(bar), _) => {
                bar.reset();
                bar.set_message(name);
            }
            (None, Stage::Turn { round, rounds, left, .. }) if *round != self.round => {
                self.round = *round;
                note(format_args!("round {round} of {rounds}, {} s left", left.as_secs()));
            }
            (None, Stage::Turn { .. }) => {}
            (None, _) => note(stage),
        }
    }

    fn advance(&mut self, done: f64) {
        if let (Some(bar), None) = (&self.meter, &self.live) {
            bar.set_position((done.clamp(0.0, 1.0) * STEPS as f64) as u64);
        }
    }

    fn sample(&mut self, sample: &Sample) {
        if self.is_quiet {
            return;
        }
        let cpu = process_cpu_times();
        self.history.add(sample, cpu.user + cpu.system);
        if let Some(bar) = &self.meter {
            let is_long = expected(sample, self.count).is_some_and(|expected| expected > LIVE_FROM);
            if self.live.is_none() && !self.is_refused && is_long {
                bar.finish_and_clear();
                self.live = Live::open();
                self.is_refused = self.live.is_none();
            }
            if let Some(live) = &mut self.live {
                live.refresh(&self.history);
            }
        } else if self.line.elapsed() >= LINE && !self.history.points.is_empty() {
            self.line = Instant::now();
            note(figures(&self.history));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iopath_bench::progress::JobSample;

    fn sample(seconds: u64, done: f64, bytes: u64) -> Sample {
        let job = JobSample { target: "disk".to_owned(), bytes, ios: bytes / 4096, latency_ns: 1000 };
        Sample { elapsed: Duration::from_secs(seconds), done, jobs: vec![job] }
    }

    #[test]
    fn the_expected_time_includes_all_repetitions() {
        assert_eq!(expected(&sample(2, 0.5, 0), 3), Some(Duration::from_secs(12)));
        assert_eq!(expected(&sample(2, 0.0, 0), 3), None);
        assert_eq!(expected(&sample(0, 0.0, 0), 1), None);
    }

    #[test]
    fn a_line_has_the_rates() {
        let mut history = History::default();
        history.begin("measuring, 1 of 3".to_owned());
        history.add(&sample(0, 0.0, 0), Duration::ZERO);
        history.add(&sample(1, 0.25, 409_600_000), Duration::ZERO);
        assert_eq!(figures(&history), "measuring, 1 of 3: 25%, 410 MB/s, 100000 IOPS");
    }
}
