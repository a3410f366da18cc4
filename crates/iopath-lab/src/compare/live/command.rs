//! Executes one command of a live comparison and reads its result. Does not repeat it: see `live.rs`.

use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use signal_hook::iterator::Signals;

use super::{End, Executor};
use crate::compare::data::{Run, TIME};
use crate::compare::report::Stopped;
use crate::compare::source::{json_of, parse_json};
use crate::compare_error::CompareError;
use crate::scratch::ending_signals;

/// The output of a command that is kept. JSON of thousands of workloads is smaller.
const OUTPUT_MAX: u64 = 64 << 20;

/// The time between two checks for a signal.
const POLL: Duration = Duration::from_millis(20);

/// The two commands, their limits, and the signals that end the comparison.
#[derive(Debug)]
pub(in crate::compare) struct Commands {
    texts: [String; 2],
    started: Instant,
    time_max: Duration,
    signals: Signals,
    /// The first signal that was received.
    pub(in crate::compare) received: Option<i32>,
}

impl Commands {
    pub(in crate::compare) fn new(texts: [String; 2], time_max: Duration) -> io::Result<Self> {
        let signals = Signals::new(ending_signals())?;
        Ok(Self { texts, started: Instant::now(), time_max, signals, received: None })
    }

    /// Passes signals to the process group of the command: the first one as SIGTERM, so that it removes its scratch file,
    /// a second one as SIGKILL.
    fn forward_signals(&mut self, group: Pid) {
        for signal in self.signals.pending() {
            let passed = if self.received.is_none() { Signal::TERM } else { Signal::KILL };
            self.received = self.received.or(Some(signal));
            let _ = kill_process_group(group, passed);
        }
    }

    fn is_interrupted(&mut self) -> bool {
        self.received = self.received.or_else(|| self.signals.pending().next());
        self.received.is_some()
    }

    fn error(&self, side: usize, problem: String) -> End {
        let command = self.texts[side].clone();
        End::Failed(CompareError::Command { side: ["A", "B"][side], command, problem })
    }
}

impl Executor for Commands {
    fn execute(&mut self, side: usize) -> Result<Vec<Run>, End> {
        if self.is_interrupted() {
            return Err(End::Interrupted);
        }
        let started = Instant::now();
        let child = Command::new("sh")
            .args(["-c", &self.texts[side]])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|error| self.error(side, format!("cannot be started: {error}")))?;
        let output = self.wait(child);
        if self.received.is_some() {
            return Err(End::Interrupted);
        }
        let Output { status, ended, stdout, stderr } =
            output.map_err(|error| self.error(side, format!("failed: {error}")))?;
        if !status.success() {
            let cause = stderr.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
            let separator = if cause.is_empty() { "" } else { ": " };
            return Err(self.error(side, format!("failed ({status}){separator}{cause}")));
        }
        result(&self.texts[side], &stdout, ended.duration_since(started))
    }

    fn limit(&mut self, pairs: u32) -> Option<Stopped> {
        if self.is_interrupted() {
            return Some(Stopped::Interrupted);
        }
        let elapsed = self.started.elapsed();
        // A pair that would probably end too late does not start.
        let pair = elapsed.checked_div(pairs).unwrap_or_default();
        (pairs > 0 && elapsed + pair > self.time_max).then_some(Stopped::Time)
    }
}

/// The runs in the output of a command, or its wall time.
fn result(command: &str, stdout: &str, time: Duration) -> Result<Vec<Run>, End> {
    if let Some(json) = json_of(stdout) {
        match parse_json(&format!("the output of `{command}`"), json) {
            // JSON of another program.
            Err(CompareError::Format { .. }) => {}
            runs => return Ok(runs?),
        }
    }
    let mut run = Run::default();
    run.identity("tool", "command");
    run.sample(TIME, Some(vec![time.as_secs_f64()]));
    Ok(vec![run])
}

struct Output {
    status: ExitStatus,
    ended: Instant,
    stdout: String,
    stderr: String,
}

/// A part of the end of a command. A program in the background may keep the streams open after it.
enum Part {
    Ended(io::Result<ExitStatus>, Instant),
    Stdout(io::Result<String>),
    Stderr(io::Result<String>),
}

impl Commands {
    fn wait(&mut self, mut child: Child) -> io::Result<Output> {
        let group = Pid::from_child(&child);
        let (parts, received) = mpsc::channel();
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let (mut ended, mut streams) = (None, (None, None));
        thread::scope(|scope| {
            let (for_stdout, for_stderr) = (parts.clone(), parts.clone());
            scope.spawn(move || {
                let status = child.wait();
                parts.send(Part::Ended(status, Instant::now()))
            });
            scope.spawn(move || for_stdout.send(Part::Stdout(read(stdout))));
            scope.spawn(move || for_stderr.send(Part::Stderr(read(stderr))));
            loop {
                match received.recv_timeout(POLL) {
                    Ok(Part::Ended(status, at)) => ended = Some((status, at)),
                    Ok(Part::Stdout(text)) => streams.0 = Some(text),
                    Ok(Part::Stderr(text)) => streams.1 = Some(text),
                    Err(RecvTimeoutError::Timeout) => self.forward_signals(group),
                    Err(RecvTimeoutError::Disconnected) => break,
                }
                if self.received.is_some() && ended.is_some() && (streams.0.is_none() || streams.1.is_none())
                {
                    // Processes that the command left behind keep the streams open.
                    let _ = kill_process_group(group, Signal::KILL);
                }
            }
        });
        let (Some((status, ended)), (Some(stdout), Some(stderr))) = (ended, streams) else {
            return Err(io::Error::other("a thread has failed"));
        };
        Ok(Output { status: status?, ended, stdout: stdout?, stderr: stderr? })
    }
}

/// The beginning of a stream, read to its end so that its writer does not block.
fn read(stream: Option<impl Read>) -> io::Result<String> {
    let Some(mut stream) = stream else { return Ok(String::new()) };
    let mut bytes = Vec::new();
    stream.by_ref().take(OUTPUT_MAX).read_to_end(&mut bytes)?;
    io::copy(&mut stream, &mut io::sink())?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
