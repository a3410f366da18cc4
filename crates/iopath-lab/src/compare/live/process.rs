//! Waits for the end of a command, reads its output, and passes signals to it. Does not interpret the output.
//!
//! A program that the command left in the background may keep the output open. The command has ended all the same: its
//! output is then read for [`DRAIN`] only.

use std::io::{self, PipeReader, Read};
use std::os::fd::OwnedFd;
use std::process::{Child, ExitStatus};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};

/// The output of a command that is kept. JSON of thousands of workloads is smaller.
const OUTPUT_MAX: usize = 64 << 20;

/// The time between two checks for a signal.
const POLL: Duration = Duration::from_millis(20);

/// The time for which the output is read after the command has ended.
const DRAIN: Duration = Duration::from_millis(500);

/// Signals within this time of the first one are one request to end: a terminal or service manager that closes sends
/// SIGHUP and SIGTERM together.
const SECOND_AFTER: Duration = Duration::from_millis(500);

/// The time in which processes that the command left behind may end after SIGTERM, before SIGKILL.
const GRACE: Duration = Duration::from_secs(2);

/// The end of a command.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) status: ExitStatus,
    pub(super) at: Instant,
    pub(super) stdout: String,
    pub(super) stderr: String,
    /// Whether another process kept the output open after the command had ended.
    pub(super) is_open: bool,
}

/// Waits for a command, the leader of its process group. `signals` returns the number of signals since the last call.
/// The first signal ends the group with SIGTERM, so that it removes its scratch files; a later one with SIGKILL.
pub(super) fn wait(mut child: Child, mut signals: impl FnMut() -> usize) -> io::Result<Ended> {
    let group = Pid::from_child(&child);
    let mut streams = [
        Stream::new(child.stdout.take().map(OwnedFd::from)),
        Stream::new(child.stderr.take().map(OwnedFd::from)),
    ];
    let (end, writer) = io::pipe()?;
    let (status, at, is_open) = thread::scope(|scope| {
        let waiter = scope.spawn(move || {
            let status = child.wait();
            let at = Instant::now();
            // The closed pipe ends the poll.
            drop(writer);
            (status, at)
        });
        let mut escalation = Escalation { group, terminated: None };
        run(&end, waiter, &mut streams, &mut escalation, &mut signals)
    });
    let [stdout, stderr] = streams.map(|stream| String::from_utf8_lossy(&stream.bytes).into_owned());
    Ok(Ended { status: status?, at, stdout, stderr, is_open })
}

/// Reads the streams until the command has ended and they are closed, or their time is over.
fn run(
    end: &PipeReader,
    waiter: ScopedJoinHandle<'_, (io::Result<ExitStatus>, Instant)>,
    streams: &mut [Stream; 2],
    escalation: &mut Escalation,
    signals: &mut impl FnMut() -> usize,
) -> (io::Result<ExitStatus>, Instant, bool) {
    let mut waiter = Some(waiter);
    let mut ended: Option<(io::Result<ExitStatus>, Instant)> = None;
    loop {
        read_ready(streams, waiter.is_some().then_some(end));
        escalation.signalled(signals());
        if let Some(finished) = waiter.take_if(|waiter| waiter.is_finished()) {
            let panicked = || (Err(io::Error::other("the waiting thread has failed")), Instant::now());
            ended = Some(finished.join().unwrap_or_else(|_| panicked()));
        }
        let Some((_, at)) = &ended else { continue };
        let is_open = streams.iter().any(|stream| stream.file.is_some());
        if !is_open || escalation.is_over(*at) {
            let (status, at) = ended.expect("the command has ended");
            return (status, at, is_open);
        }
    }
}

/// Waits until a stream has data, the command has ended, or [`POLL`] is over, and reads the data.
fn read_ready(streams: &mut [Stream; 2], end: Option<&PipeReader>) {
    let open: Vec<usize> = (0..streams.len()).filter(|index| streams[*index].file.is_some()).collect();
    let files = open.iter().filter_map(|index| streams[*index].file.as_ref());
    let mut polled: Vec<PollFd> = files.map(|file| PollFd::new(file, PollFlags::IN)).collect();
    polled.extend(end.map(|end| PollFd::new(end, PollFlags::IN)));
    let timeout = Timespec { tv_sec: 0, tv_nsec: POLL.subsec_nanos().into() };
    match poll(&mut polled, Some(&timeout)) {
        Ok(_) => {}
        Err(Errno::INTR) => return,
        // Without poll, the loop continues at its interval, and reads nothing.
        Err(_) => return thread::sleep(POLL),
    }
    let is_ready: Vec<bool> = polled.iter().map(|polled| !polled.revents().is_empty()).collect();
    drop(polled);
    for (index, is_ready) in open.into_iter().zip(is_ready) {
        if is_ready {
            streams[index].read();
        }
    }
}

/// An output of the command.
struct Stream {
    /// None after its end.
    file: Option<PipeReader>,
    bytes: Vec<u8>,
}

impl Stream {
    fn new(file: Option<OwnedFd>) -> Self {
        Self { file: file.map(PipeReader::from), bytes: Vec::new() }
    }

    /// Reads once. Bytes beyond [`OUTPUT_MAX`] are dropped, so that the writer does not block.
    fn read(&mut self) {
        let mut buffer = [0; 1 << 13];
        let read = self.file.as_mut().map_or(Ok(0), |file| file.read(&mut buffer));
        match read {
            Ok(0) => self.file = None,
            Ok(count) => {
                let kept = count.min(OUTPUT_MAX.saturating_sub(self.bytes.len()));
                self.bytes.extend_from_slice(&buffer[..kept]);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => self.file = None,
        }
    }
}

/// The signals that the process group received.
struct Escalation {
    group: Pid,
    /// The time of SIGTERM.
    terminated: Option<Instant>,
}

impl Escalation {
    fn signalled(&mut self, count: usize) {
        if count == 0 {
            return;
        }
        match self.terminated {
            None => {
                self.terminated = Some(Instant::now());
                let _ = kill_process_group(self.group, Signal::TERM);
            }
            Some(first) if first.elapsed() >= SECOND_AFTER => self.kill(),
            Some(_) => {}
        }
    }

    /// Whether the output is read no longer. `ended` is the end of the command.
    fn is_over(&self, ended: Instant) -> bool {
        let Some(terminated) = self.terminated else { return ended.elapsed() >= DRAIN };
        let is_over = ended.max(terminated).elapsed() >= GRACE;
        if is_over {
            self.kill();
        }
        is_over
    }

    fn kill(&self) {
        let _ = kill_process_group(self.group, Signal::KILL);
    }
}
