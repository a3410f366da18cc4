//! Lines about a step that takes long, so that a caller sees that it goes on and what it does.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The interval between two lines.
pub(super) const INTERVAL: Duration = Duration::from_secs(60);

/// The most bytes of a line of a log that are shown.
const SHOWN_MAX: usize = 100;

/// The step that runs.
struct Step {
    started: Instant,
    shown: Instant,
    has_lines: bool,
}

/// The step that runs; none in unit tests.
static STEP: Mutex<Option<Step>> = Mutex::new(None);

/// Begins a step: prints its name, and leaves the line open for the result.
pub(super) fn begin(name: &str) {
    let now = Instant::now();
    *STEP.lock().unwrap_or_else(PoisonError::into_inner) =
        Some(Step { started: now, shown: now, has_lines: false });
    print_open(name);
}

/// Ends the step: the result follows on the present line. Returns the duration.
pub(super) fn end(name: &str) -> Duration {
    let step = STEP.lock().unwrap_or_else(PoisonError::into_inner).take().expect("a step has begun");
    if step.has_lines {
        println!();
        print_open(name);
    }
    step.started.elapsed()
}

/// Shows a line if the last one of this step is old enough.
pub(super) fn show_if_due(text: impl FnOnce() -> String) {
    let mut step = STEP.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(step) = step.as_mut().filter(|step| step.shown.elapsed() >= INTERVAL) else { return };
    (step.shown, step.has_lines) = (Instant::now(), true);
    print_open(&format!("\n    {} min: {}", step.started.elapsed().as_secs() / 60, text()));
}

/// The last line of a log that grows, without the JSON messages of cargo, cut to a length that fits a terminal.
pub(super) fn last_line(path: &Path) -> String {
    let read = || -> std::io::Result<(bool, Vec<u8>)> {
        let mut file = File::open(path)?;
        let start = file.metadata()?.len().saturating_sub(16 << 10);
        file.seek(SeekFrom::Start(start))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok((start > 0, bytes))
    };
    let (is_cut, bytes) = read().unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    // The first line may be the rest of a message.
    let text = if is_cut { text.split_once('\n').unwrap_or_default().1 } else { &text };
    let is_text = |line: &&str| !line.is_empty() && !line.starts_with('{');
    let line = text.lines().rev().map(str::trim).find(is_text).unwrap_or("no output yet");
    line.chars().take(SHOWN_MAX).collect()
}

fn print_open(text: &str) {
    print!("{text:<25}");
    let _ = std::io::stdout().flush(); // A failure is harmless: the result is printed later.
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_of_a_log_is_shown_in_part() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        assert_eq!(last_line(file.path()), "no output yet");
        std::fs::write(file.path(), format!("{}\n  the last  \n\n{{\"json\":1}}\n", "long\n".repeat(5000)))
            .expect("it is written");
        assert_eq!(last_line(file.path()), "the last");
        std::fs::write(file.path(), "x".repeat(500)).expect("it is written");
        assert_eq!(last_line(file.path()).len(), SHOWN_MAX);
        assert_eq!(last_line(Path::new("/nonexistent")), "no output yet");
    }
}
