//! The engine on paths made up for it: it reports what fails, and never waits for a job that is gone.

use std::io;
use std::time::Duration;

use iopath_lab::path::{Connection, Done, IoPath, JobSpec, OpenSpec, PathRow, Transfer};
use iopath_lab::progress::Silent;
use iopath_lab::result::RunResult;
use iopath_lab::{Lab, LabError, Place, Rw, Workload};

/// A path whose job 1 goes wrong in some way, while the others would go on for a minute.
#[derive(Clone, Copy)]
enum Mishap {
    None,
    Connect,
    ConnectPanics,
    Transfer,
    ReapPanics,
    Flush,
}

struct Odd(Mishap);

struct OddConnection {
    mishap: Mishap,
    depth: u32,
    submitted: Vec<u32>,
}

impl IoPath for Odd {
    fn connect(&self, job: &JobSpec) -> Result<Box<dyn Connection>, LabError> {
        let mishap = if job.job == 1 { self.0 } else { Mishap::None };
        match mishap {
            Mishap::Connect => Err(LabError::NoTarget { path: "odd" }),
            Mishap::ConnectPanics => panic!("connecting"),
            _ => Ok(Box::new(OddConnection { mishap, depth: job.depth, submitted: Vec::new() })),
        }
    }
}

impl Connection for OddConnection {
    fn depth(&self) -> u32 {
        self.depth
    }

    fn submit(&mut self, slot: u32, _transfer: Transfer) -> io::Result<()> {
        assert!(slot < self.depth && !self.submitted.contains(&slot), "slot {slot} is free");
        self.submitted.push(slot);
        Ok(())
    }

    /// Completes all but the first, the last submitted first, to see that slots may come back in any order.
    fn reap(&mut self, done: &mut Vec<Done>) -> io::Result<()> {
        match self.mishap {
            Mishap::ReapPanics => panic!("reaping"),
            Mishap::Transfer => {
                let slot = self.submitted.remove(0);
                done.push(Done { slot, result: Err(io::Error::from_raw_os_error(libc::EIO)) });
                return Ok(());
            }
            _ => {}
        }
        let keep = usize::from(self.submitted.len() > 1);
        done.extend(self.submitted.drain(keep..).rev().map(|slot| Done { slot, result: Ok(()) }));
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        assert!(self.submitted.is_empty(), "flushed with {:?} in flight", self.submitted);
        match self.mishap {
            Mishap::Flush => Err(io::Error::from_raw_os_error(libc::EIO)),
            _ => Ok(()),
        }
    }

    fn warnings(&self) -> Vec<String> {
        vec!["an odd path".to_owned()]
    }
}

fn row(mishap: Mishap) -> PathRow {
    let open: fn(&OpenSpec) -> Result<Box<dyn IoPath>, LabError> = match mishap {
        Mishap::None => |_| Ok(Box::new(Odd(Mishap::None))),
        Mishap::Connect => |_| Ok(Box::new(Odd(Mishap::Connect))),
        Mishap::ConnectPanics => |_| Ok(Box::new(Odd(Mishap::ConnectPanics))),
        Mishap::Transfer => |_| Ok(Box::new(Odd(Mishap::Transfer))),
        Mishap::ReapPanics => |_| Ok(Box::new(Odd(Mishap::ReapPanics))),
        Mishap::Flush => |_| Ok(Box::new(Odd(Mishap::Flush))),
    };
    PathRow {
        name: "odd",
        about: "goes wrong",
        needs_target: false,
        direct: false,
        synchronous: false,
        queued: false,
        cached: false,
        open,
    }
}

fn run(mishap: Mishap, workload: &Workload) -> Result<RunResult, LabError> {
    let lab = Lab::new(Duration::from_millis(1), &mut Silent);
    lab.run_row(&row(mishap), workload, &Place::nowhere(100 * 4096), &mut Silent)
}

fn three_jobs(runtime: Option<Duration>) -> Workload {
    Workload { rw: Rw::RandWrite, jobs: 3, io_depth: 4, repeat: 2, runtime, ..Workload::default() }
}

#[test]
fn everything_is_done_once_whatever_the_order_of_completion() {
    let result = run(Mishap::None, &three_jobs(None)).unwrap();
    assert_eq!((result.ios, result.bytes, result.repeats.len()), (200, 200 * 4096, 2));
    assert_eq!(result.warnings.iter().filter(|warning| *warning == "an odd path").count(), 1, "said once");
}

#[test]
fn an_error_in_one_job_ends_them_all() {
    let minute = Some(Duration::from_secs(60));
    for (mishap, runtime, says) in [
        (Mishap::Connect, minute, "path odd needs a target"),
        (Mishap::Transfer, minute, "writing of 4 KiB at offset "),
        (Mishap::Flush, Some(Duration::from_millis(10)), "cannot flush "),
    ] {
        let error = run(mishap, &three_jobs(runtime)).unwrap_err().to_string();
        assert!(error.starts_with(says), "{error}");
    }
}

#[test]
#[should_panic(expected = "connecting")]
fn a_panic_while_connecting_is_passed_on() {
    let _ = run(Mishap::ConnectPanics, &three_jobs(None));
}

#[test]
#[should_panic(expected = "reaping")]
fn a_panic_while_running_is_passed_on() {
    let _ = run(Mishap::ReapPanics, &three_jobs(Some(Duration::from_secs(60))));
}
