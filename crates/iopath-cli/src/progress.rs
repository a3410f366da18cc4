//! Progress on stderr: a bar on a terminal, otherwise one line for each stage.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use iopath_lab::Progress;
use iopath_lab::progress::Stage;

/// Steps of a bar.
const STEPS: u64 = 1000;

/// The progress of a command.
pub(crate) struct Bar {
    /// None if stderr is not a terminal.
    bar: Option<ProgressBar>,
    /// The last round that was reported without a bar.
    round: u32,
}

impl Bar {
    pub(crate) fn new(is_fancy: bool) -> Self {
        let bar = is_fancy.then(|| {
            let bar = ProgressBar::with_draw_target(Some(STEPS), ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template("{wide_bar} {percent:>3}% {msg}");
            bar.with_style(style.expect("the template is a constant and well-formed"))
        });
        Self { bar, round: 0 }
    }

    /// Removes the bar from the screen.
    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Progress for Bar {
    fn stage(&mut self, stage: &Stage) {
        match (&self.bar, stage) {
            // Turns are short and many, so the bar covers all of them.
            (Some(bar), Stage::Turn { .. }) => bar.set_message(stage.to_string()),
            (Some(bar), _) => {
                bar.reset();
                bar.set_message(stage.to_string());
            }
            (None, Stage::Turn { round, rounds, left, .. }) if *round != self.round => {
                self.round = *round;
                eprintln!("iopath: round {round} of {rounds}, {} s left", left.as_secs());
            }
            (None, Stage::Turn { .. }) => {}
            (None, _) => eprintln!("iopath: {stage}"),
        }
    }

    fn advance(&mut self, done: f64) {
        if let Some(bar) = &self.bar {
            bar.set_position((done.clamp(0.0, 1.0) * STEPS as f64) as u64);
        }
    }
}
