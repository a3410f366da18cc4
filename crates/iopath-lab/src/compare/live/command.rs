//! Executes one command of a live comparison and reads its result. Does not repeat it: see `live.rs`.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use signal_hook::iterator::Signals;

use super::process::{Ended, wait};
use super::{End, Executor};
use crate::compare::data::{Run, TIME};
use crate::compare::source::{json_of, parse_json};
use crate::compare::{Around, CompareError, Execution, NamedSide};
use iopath_bench::signals::ending_signals;
use iopath_report::compare::Stopped;

/// The compared commands, those around them, their limits, and the signals that end the comparison.
#[derive(Debug)]
pub(in crate::compare) struct Commands {
    sides: Vec<NamedSide>,
    around: Around,
    /// The wall times of all executions that count, in their order.
    pub(in crate::compare) executions: Vec<Execution>,
    started: Instant,
    time_max: Duration,
    signals: Signals,
    /// The first signal that was received.
    pub(in crate::compare) received: Option<i32>,
    /// Facts about each command that qualify its results, each once.
    notes: Vec<Vec<Note>>,
}

/// A fact about a command that qualifies its results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Note {
    /// It printed text that is not one JSON object.
    NotJson,
    /// It printed JSON of another program.
    OtherJson,
    /// It left a process behind that holds its output open.
    LeftRunning,
}

impl Note {
    fn text(self, side: &str) -> String {
        match self {
            Self::NotJson => format!(
                "The output of {side} is not one JSON object: its wall time is compared. To compare the metrics of its \
                 results, print the JSON of one run only (iopath run --json -, fio --output-format=json)."
            ),
            Self::OtherJson => {
                format!("The output of {side} is JSON of neither iopath nor fio: its wall time is compared.")
            }
            Self::LeftRunning => format!(
                "{side} left a process in the background that holds its output open: it may disturb the other executions."
            ),
        }
    }
}

impl Commands {
    pub(in crate::compare) fn new(
        sides: Vec<NamedSide>,
        around: Around,
        time_max: Duration,
    ) -> io::Result<Self> {
        let signals = Signals::new(ending_signals())?;
        Ok(Self {
            notes: vec![Vec::new(); sides.len()],
            sides,
            around,
            executions: Vec::new(),
            started: Instant::now(),
            time_max,
            signals,
            received: None,
        })
    }

    /// The facts about the commands that qualify their results, as sentences.
    pub(in crate::compare) fn notes(&self) -> Vec<String> {
        let sides = self.sides.iter().zip(&self.notes);
        sides.flat_map(|(side, notes)| notes.iter().map(|note| note.text(&side.name))).collect()
    }

    fn note(&mut self, side: usize, note: Note) {
        if !self.notes[side].contains(&note) {
            self.notes[side].push(note);
        }
    }

    fn is_interrupted(&mut self) -> bool {
        self.received = self.received.or_else(|| self.signals.pending().next());
        self.received.is_some()
    }

    /// Executes the setup, and all commands for the warm-up, whose results do not count.
    pub(in crate::compare) fn begin(&mut self) -> Result<(), End> {
        if let Some(setup) = self.around.setup.clone() {
            self.shell("--setup", &setup)?;
        }
        for _ in 0..self.around.warmup {
            for side in 0..self.sides.len() {
                self.execute(side)?;
            }
        }
        self.executions.clear();
        // The limit is of the executions that count.
        self.started = Instant::now();
        Ok(())
    }

    /// Executes the cleanup, also after a failure or a signal.
    pub(in crate::compare) fn end(&mut self) -> Result<(), CompareError> {
        let Some(cleanup) = self.around.cleanup.clone() else { return Ok(()) };
        // A signal before it has ended the commands, and not the cleanup.
        let received = self.received.take();
        let ended = self.shell("--cleanup", &cleanup);
        self.received = received.or(self.received);
        match ended {
            Err(End::Failed(error)) => Err(error),
            Ok(_) | Err(End::Interrupted) => Ok(()),
        }
    }

    /// Executes a shell command. Returns its start and its end.
    fn shell(&mut self, role: &str, text: &str) -> Result<(Instant, Ended), End> {
        let failed = |problem| {
            End::Failed(CompareError::Command { side: role.to_owned(), command: text.to_owned(), problem })
        };
        if self.is_interrupted() {
            return Err(End::Interrupted);
        }
        let started = Instant::now();
        let child = Command::new("sh")
            .args(["-c", text])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|error| failed(format!("cannot be started: {error}")))?;
        let Self { signals, received, .. } = self;
        let ended = wait(child, || {
            let new = signals.pending().inspect(|signal| *received = received.or(Some(*signal)));
            new.count()
        });
        if self.received.is_some() {
            return Err(End::Interrupted);
        }
        let ended = ended.map_err(|error| failed(format!("failed: {error}")))?;
        if !ended.status.success() {
            let cause = ended.stderr.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
            let separator = if cause.is_empty() { "" } else { ": " };
            return Err(failed(format!("failed ({}){separator}{cause}", ended.status)));
        }
        Ok((started, ended))
    }
}

impl Executor for Commands {
    fn execute(&mut self, side: usize) -> Result<Vec<Run>, End> {
        if let Some(prepare) = self.around.prepare.clone() {
            self.shell("--prepare", &prepare)?;
        }
        let NamedSide { name, text } = self.sides[side].clone();
        let (started, Ended { at, stdout, is_open, .. }) = self.shell(&name, &text)?;
        if is_open {
            self.note(side, Note::LeftRunning);
        }
        let time = at.duration_since(started);
        let (runs, note) = result(&text, &stdout, time)?;
        self.executions.push(Execution { side: name, seconds: time.as_secs_f64() });
        if let Some(note) = note {
            self.note(side, note);
        }
        Ok(runs)
    }

    fn limit(&mut self, rounds: u32) -> Option<Stopped> {
        if self.is_interrupted() {
            return Some(Stopped::Interrupted);
        }
        let elapsed = self.started.elapsed();
        // A round that would probably end too late does not start.
        let round = elapsed.checked_div(rounds).unwrap_or_default();
        (rounds > 0 && elapsed + round > self.time_max).then_some(Stopped::Time)
    }
}

/// The runs in the output of a command; or its wall time, with the reason unless it printed nothing.
fn result(command: &str, stdout: &str, time: Duration) -> Result<(Vec<Run>, Option<Note>), End> {
    let parsed = match json_of(stdout)[..] {
        [json] => Some(parse_json(&format!("the output of `{command}`"), json)),
        _ => None,
    };
    let note = match parsed {
        Some(Ok(runs)) => return Ok((runs, None)),
        Some(Err(CompareError::Format { .. })) => Some(Note::OtherJson),
        Some(Err(CompareError::Json { .. })) => Some(Note::NotJson),
        Some(Err(error)) => return Err(error.into()),
        None => (!stdout.trim().is_empty()).then_some(Note::NotJson),
    };
    let mut run = Run::default();
    run.identity("tool", "command");
    run.sample(TIME, Some(vec![time.as_secs_f64()]));
    Ok((vec![run], note))
}
