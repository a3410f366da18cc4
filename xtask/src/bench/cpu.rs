//! CPU time of a process and of the whole machine, from /proc (proc(5)).
//!
//! Observes the middle of a run only, without start-up, warm-up and the report at the end.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// The tick of /proc, `USER_HZ`: 100 per second on every architecture.
const TICKS_PER_SECOND: f64 = 100.0;

/// Busy cores.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Usage {
    pub(super) process_cores: f64,
    pub(super) machine_cores: f64,
}

/// Observes the new process `pid`, which runs for `runtime`, between 25% and 90% of that time.
pub(super) fn watch(pid: u32, runtime: Duration) -> Result<Usage> {
    let start = Instant::now();
    std::thread::sleep(runtime / 4);
    let first = Sample::of(Some(pid))?;
    std::thread::sleep((runtime * 9 / 10).saturating_sub(start.elapsed()));
    Ok(first.usage_until(&Sample::of(Some(pid))?))
}

/// Busy cores of the idle machine, observed for `time`.
pub(super) fn idle_cores(time: Duration) -> Result<f64> {
    let first = Sample::of(None)?;
    std::thread::sleep(time);
    Ok(first.usage_until(&Sample::of(None)?).machine_cores)
}

/// CPU time of the process `pid` so far, in seconds.
pub(super) fn process_seconds(pid: u32) -> Result<f64> {
    Ok(Sample::of(Some(pid))?.process_ticks as f64 / TICKS_PER_SECOND)
}

/// CPU time of the children of this process that have ended, in seconds.
pub(super) fn children_seconds() -> Result<f64> {
    let ticks = children_ticks(&read("/proc/self/stat")?).context("/proc/self/stat: no times of children")?;
    Ok(ticks as f64 / TICKS_PER_SECOND)
}

/// The counters at one point in time.
#[derive(Debug, Clone, Copy)]
struct Sample {
    at: Instant,
    process_ticks: u64,
    machine_ticks: u64,
}

impl Sample {
    fn of(pid: Option<u32>) -> Result<Self> {
        let process_ticks = match pid {
            Some(pid) => {
                process_ticks(&read(&format!("/proc/{pid}/stat"))?).context("/proc/PID/stat: no times")?
            }
            None => 0,
        };
        let machine_ticks = machine_ticks(&read("/proc/stat")?).context("/proc/stat: no times")?;
        Ok(Self { at: Instant::now(), process_ticks, machine_ticks })
    }

    fn usage_until(&self, later: &Self) -> Usage {
        let ticks = (later.at - self.at).as_secs_f64() * TICKS_PER_SECOND;
        let cores = |before: u64, after: u64| after.saturating_sub(before) as f64 / ticks;
        Usage {
            process_cores: cores(self.process_ticks, later.process_ticks),
            machine_cores: cores(self.machine_ticks, later.machine_ticks),
        }
    }
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {path}"))
}

/// `utime` and `stime` of all threads, including the `io_uring` workers of the process: fields 14 and 15 of
/// /proc/PID/stat.
fn process_ticks(stat: &str) -> Option<u64> {
    sum_of_two(stat, 14)
}

/// `cutime` and `cstime`: fields 16 and 17.
fn children_ticks(stat: &str) -> Option<u64> {
    sum_of_two(stat, 16)
}

/// The sum of a field, of which the first is 1, and the next.
fn sum_of_two(stat: &str, field: usize) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut times = after_name.split_whitespace().skip(field - 3).map(str::parse::<u64>);
    Some(times.next()?.ok()? + times.next()?.ok()?)
}

/// Busy time without steal: user, nice, system, irq, softirq of the first line of /proc/stat.
fn machine_ticks(stat: &str) -> Option<u64> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let times: Vec<u64> = line.split_whitespace().map_while(|time| time.parse().ok()).collect();
    let busy = [0, 1, 2, 5, 6].map(|field| times.get(field).copied());
    busy.into_iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_times_are_read_for_any_name() {
        let stat = "42 (a ) b) S 1 1 1 0 -1 4194560 10 0 0 0 120 30 7 8 20 0 1 0 100 1000 10";
        assert_eq!(process_ticks(stat), Some(150));
        assert_eq!(children_ticks(stat), Some(15));
        assert_eq!(process_ticks("42 (a) S 1"), None);
    }

    #[test]
    fn idle_and_stolen_time_is_not_busy() {
        let stat = "cpu  100 1 50 9000 80 3 4 70 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        assert_eq!(machine_ticks(stat), Some(158));
        assert_eq!(machine_ticks("cpu  100 1\n"), None);
    }

    #[test]
    fn ticks_over_time_are_cores() {
        let at = Instant::now();
        let first = Sample { at, process_ticks: 100, machine_ticks: 1000 };
        let later = Sample { at: at + Duration::from_secs(2), process_ticks: 150, machine_ticks: 1300 };
        assert_eq!(first.usage_until(&later), Usage { process_cores: 0.25, machine_cores: 1.5 });
    }

    #[test]
    fn only_a_busy_child_uses_cpu() {
        let cores = |script: &str| {
            let mut child = std::process::Command::new("sh").args(["-c", script]).spawn().expect("a shell");
            let usage = watch(child.id(), Duration::from_millis(800)).expect("/proc is there");
            child.kill().expect("it still runs");
            child.wait().expect("it ends");
            usage.process_cores
        };
        assert!(cores("while :; do :; done") > 0.05);
        assert!(cores("exec sleep 5") < 0.05);
    }
}
