//! What is being measured and for how long, on stderr: a moving bar on a terminal, a line a stage elsewhere.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use iopath_lab::Progress;
use iopath_lab::progress::Stage;

/// Steps of a bar.
const STEPS: u64 = 1000;

/// The progress of a command.
pub(crate) struct Bar {
    /// None where stderr is no terminal.
    bar: Option<ProgressBar>,
    /// Said before each stage.
    prefix: String,
}

impl Bar {
    pub(crate) fn new(is_fancy: bool) -> Self {
        let bar = is_fancy.then(|| {
            let bar = ProgressBar::with_draw_target(Some(STEPS), ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template("{msg} {wide_bar} {percent:>3}% {eta:>4}");
            bar.with_style(style.expect("the template is a constant and well-formed"))
        });
        Self { bar, prefix: String::new() }
    }

    /// Takes the bar off the screen.
    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Progress for Bar {
    fn stage(&mut self, stage: &Stage) {
        let text = format!("{}{stage}", self.prefix);
        match &self.bar {
            Some(bar) => {
                bar.reset();
                bar.set_message(text);
            }
            None => eprintln!("iopath: {text}"),
        }
    }

    fn advance(&mut self, done: f64) {
        if let Some(bar) = &self.bar {
            bar.set_position((done.clamp(0.0, 1.0) * STEPS as f64) as u64);
        }
    }
}
