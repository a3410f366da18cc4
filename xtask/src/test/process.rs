//! Runs one test program in a process group of its own. A program fails if it is silent for too long, and if it leaves
//! processes behind: a server that a test forgot holds files and ports of later tests.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// The maximum time between two lines of a program. A program prints a line at the end of each test. The slowest test
/// takes one minute alone on a machine, and some on one with other load.
const SILENCE_MAX: Duration = Duration::from_secs(600);

/// The time in which the processes that a program started must end after it. Some of them are ending when the program
/// exits.
const LEFTOVER_TIME: Duration = Duration::from_secs(10);

const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// How a program ended.
#[derive(Debug)]
pub(super) enum Ending {
    /// By itself, and all of its processes with it.
    Exited(ExitStatus),
    /// It was killed: it had printed nothing for this time.
    Silent(Duration),
    /// It left processes behind, which were killed: their command lines.
    Leftovers(Vec<String>),
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(status) => write!(f, "{status}"),
            Self::Silent(time) => write!(f, "it printed nothing for {} s and was killed", time.as_secs()),
            Self::Leftovers(commands) => write!(f, "it left processes behind: {}", commands.join("; ")),
        }
    }
}

/// Runs a program to its end, with its output in a file. Returns its processor time, too.
pub(super) fn run(command: &mut Command, output: &Path) -> Result<(Ending, Duration)> {
    run_within(command, output, SILENCE_MAX, LEFTOVER_TIME)
}

fn run_within(
    command: &mut Command,
    output: &Path,
    silence_max: Duration,
    leftover_time: Duration,
) -> Result<(Ending, Duration)> {
    let file = File::create(output).with_context(|| format!("cannot write {}", output.display()))?;
    command.stdout(file.try_clone()?).stderr(file.try_clone()?).process_group(0);
    let mut child =
        command.spawn().with_context(|| format!("cannot run {}", command.get_program().display()))?;
    let group = Group::new(&child);
    let is_ended = wait(&child, &file, silence_max)?;
    let cpu = processor_time(child.id());
    if !is_ended {
        group.kill();
    }
    let status = child.wait()?;
    if !is_ended {
        return Ok((Ending::Silent(silence_max), cpu));
    }
    let ended = Instant::now();
    let mut leftovers = group.members();
    while !leftovers.is_empty() && ended.elapsed() < leftover_time {
        std::thread::sleep(CHECK_INTERVAL);
        leftovers = group.members();
    }
    if leftovers.is_empty() {
        return Ok((Ending::Exited(status), cpu));
    }
    group.kill();
    Ok((Ending::Leftovers(leftovers), cpu))
}

/// Waits for the end of a program, and leaves its exit status and its entry in /proc. False if its output has not grown
/// for `silence_max`.
fn wait(child: &Child, output: &File, silence_max: Duration) -> Result<bool> {
    let process = WaitId::Pid(Pid::from_child(child));
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let mut size = 0;
    let mut grown = Instant::now();
    loop {
        if waitid(process.clone(), options)?.is_some() {
            return Ok(true);
        }
        let now = output.metadata()?.len();
        if now != size {
            (size, grown) = (now, Instant::now());
        }
        if grown.elapsed() > silence_max {
            return Ok(false);
        }
        std::thread::sleep(CHECK_INTERVAL);
    }
}

/// The processor time of a process and of the children that it waited for. Zero if the process is gone.
fn processor_time(process: u32) -> Duration {
    // State is field 3, and the times are fields 14 to 17: proc_pid_stat(5).
    let ticks: Option<u64> =
        stat(process).map(|fields| fields.iter().skip(11).take(4).flat_map(|it| it.parse::<u64>()).sum());
    Duration::from_secs_f64(ticks.unwrap_or(0) as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// The process groups of the programs that run.
static GROUPS: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

/// The process group of a program. A signal of the terminal does not reach it, so a thread passes signals on.
struct Group {
    number: i32,
}

impl Group {
    fn new(leader: &Child) -> Self {
        static SIGNALS: Once = Once::new();
        SIGNALS.call_once(end_groups_on_signals);
        let number = leader.id().cast_signed();
        GROUPS.lock().unwrap_or_else(PoisonError::into_inner).insert(number);
        Self { number }
    }

    fn kill(&self) {
        kill(self.number);
    }

    /// The command lines of its processes that have not ended.
    fn members(&self) -> Vec<String> {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        numbers.filter(|process| group_of_running(*process) == Some(self.number)).map(command_line).collect()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        GROUPS.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.number);
    }
}

fn kill(group: i32) {
    // An error means that all of its processes have ended.
    let _ = Pid::from_raw(group).map(|group| kill_process_group(group, Signal::KILL));
}

/// Kills the running programs when a signal ends xtask.
fn end_groups_on_signals() {
    let Ok(mut signals) = Signals::new([SIGINT, SIGTERM, SIGHUP]) else { return };
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            // Held until the exit, so that no program starts meanwhile.
            let groups = GROUPS.lock().unwrap_or_else(PoisonError::into_inner);
            groups.iter().copied().for_each(kill);
            std::process::exit(128 + signal);
        }
    });
}

/// The process group of a process. None if the process has ended.
fn group_of_running(process: u32) -> Option<i32> {
    let fields = stat(process)?;
    // State, parent, group.
    let state = fields.first()?.as_str();
    (!matches!(state, "Z" | "X")).then(|| fields.get(2)?.parse().ok())?
}

/// The fields of /proc/PROCESS/stat from the state on. None if the process is gone.
fn stat(process: u32) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name before them, in parentheses, may contain any character.
    Some(stat.rsplit_once(')')?.1.split_whitespace().map(str::to_owned).collect())
}

fn command_line(process: u32) -> String {
    let bytes = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    let words: Vec<_> = bytes.split(|byte| *byte == 0).filter(|word| !word.is_empty()).collect();
    format!("{process} {}", String::from_utf8_lossy(&words.join(&b' ')))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Long enough for any program that ends by itself.
    const LONG: Duration = Duration::from_secs(600);
    const SHORT: Duration = Duration::from_millis(100);

    fn run_shell(script: &str, silence_max: Duration, leftover_time: Duration) -> Ending {
        let output = tempfile::NamedTempFile::new().expect("a file");
        let mut command = Command::new("sh");
        run_within(command.args(["-c", script]), output.path(), silence_max, leftover_time)
            .expect("sh runs")
            .0
    }

    #[test]
    fn a_program_that_prints_nothing_is_killed_with_its_children() {
        let ending = run_shell("sleep 1000 & sleep 1000", SHORT, SHORT);
        assert!(matches!(ending, Ending::Silent(_)), "{ending}");
    }

    #[test]
    fn a_program_that_prints_may_take_longer_than_the_limit_of_silence() {
        let ending =
            run_shell("for i in 1 2 3 4 5 6 7 8; do echo; sleep 0.5; done", Duration::from_secs(3), LONG);
        assert!(matches!(ending, Ending::Exited(status) if status.success()), "{ending}");
    }

    #[test]
    fn processes_that_outlive_their_program_are_named_and_killed() {
        let ending = run_shell("sleep 1234.5 & echo $!", LONG, SHORT);
        let Ending::Leftovers(commands) = &ending else { panic!("{ending}") };
        assert_eq!(commands.len(), 1, "{ending}");
        assert!(commands[0].ends_with("sleep 1234.5"), "{ending}");
        let process: u32 =
            commands[0].split(' ').next().and_then(|word| word.parse().ok()).expect("a number");
        let begun = Instant::now();
        while group_of_running(process).is_some() {
            assert!(begun.elapsed() < LONG, "it was not killed");
            std::thread::sleep(CHECK_INTERVAL);
        }
    }

    #[test]
    fn a_child_that_ends_soon_after_its_program_is_no_failure() {
        let ending = run_shell("sleep 0.2 & exit 0", LONG, LONG);
        assert!(matches!(ending, Ending::Exited(status) if status.success()), "{ending}");
    }
}
