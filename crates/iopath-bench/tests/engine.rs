//! The engine on paths that fail on purpose: it reports the failure, and does not wait for a job that has ended.

use std::io;
use std::time::Duration;

use iopath_bench::path::{Capabilities, Connection, Done, IoPath, JobSpec, OpenSpec, PathRow, Transfer};
use iopath_bench::progress::Silent;
use iopath_bench::{BenchError, Depth, End, Jobs, Lab, Repetitions, Target, Workload, WorkloadError};
use iopath_report::Rw;
use iopath_report::result::RunResult;

/// How job 1 fails while the others would run for a minute.
#[derive(Clone, Copy)]
enum Failure {
    None,
    Connect,
    ConnectPanics,
    Transfer,
    ReapPanics,
    Flush,
    FlushAll,
}

struct FailingPath(Failure);

struct FailingConnection {
    failure: Failure,
    depth: u32,
    submitted: Vec<u32>,
}

impl IoPath for FailingPath {
    fn connect(&self, job: &JobSpec) -> Result<Box<dyn Connection>, BenchError> {
        let failure = if job.job == 1 { self.0 } else { Failure::None };
        match failure {
            Failure::Connect => Err(WorkloadError::NoTarget { path: "failing" }.into()),
            Failure::ConnectPanics => panic!("connecting"),
            _ => Ok(Box::new(FailingConnection { failure, depth: job.depth, submitted: Vec::new() })),
        }
    }
}

impl Connection for FailingConnection {
    fn depth(&self) -> u32 {
        self.depth
    }

    fn submit(&mut self, slot: u32, _transfer: Transfer) -> io::Result<()> {
        assert!(slot < self.depth && !self.submitted.contains(&slot), "slot {slot} is free");
        self.submitted.push(slot);
        Ok(())
    }

    /// Completes all transfers except the first, in reverse order: slots may complete in any order.
    fn reap(&mut self, done: &mut Vec<Done>) -> io::Result<()> {
        match self.failure {
            Failure::ReapPanics => panic!("reaping"),
            Failure::Transfer => {
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
        match self.failure {
            Failure::Flush => Err(io::Error::from_raw_os_error(libc::EIO)),
            _ => Ok(()),
        }
    }

    fn flush_all(&mut self) -> io::Result<()> {
        match self.failure {
            Failure::FlushAll => Err(io::Error::from_raw_os_error(libc::EIO)),
            _ => self.flush(),
        }
    }

    fn warnings(&self) -> Vec<String> {
        vec!["a warning".to_owned()]
    }
}

fn row(failure: Failure) -> &'static PathRow {
    let open: fn(&OpenSpec) -> Result<Box<dyn IoPath>, BenchError> = match failure {
        Failure::None => |_| Ok(Box::new(FailingPath(Failure::None))),
        Failure::Connect => |_| Ok(Box::new(FailingPath(Failure::Connect))),
        Failure::ConnectPanics => |_| Ok(Box::new(FailingPath(Failure::ConnectPanics))),
        Failure::Transfer => |_| Ok(Box::new(FailingPath(Failure::Transfer))),
        Failure::ReapPanics => |_| Ok(Box::new(FailingPath(Failure::ReapPanics))),
        Failure::Flush => |_| Ok(Box::new(FailingPath(Failure::Flush))),
        Failure::FlushAll => |_| Ok(Box::new(FailingPath(Failure::FlushAll))),
    };
    let capabilities = Capabilities {
        needs_target: false,
        direct: false,
        synchronous: false,
        queue: false,
        cache: false,
        priorities: false,
        polls: false,
        durable_writes: true,
        stripes: false,
    };
    Box::leak(Box::new(PathRow { name: "failing", about: "fails", capabilities, open }))
}

fn run(failure: Failure, workload: &Workload) -> Result<RunResult, BenchError> {
    let lab = Lab::new(Duration::from_millis(1), &mut Silent);
    let workload = Workload { path: row(failure), ..workload.clone() };
    lab.run(&workload, &Target::none(100 * 4096), &mut Silent)
}

fn three_jobs(end: End) -> Workload {
    let (jobs, depth, repetitions) = (Jobs::constant(3), Depth::constant(4), Repetitions::constant(2));
    Workload { rw: Rw::RandWrite, jobs, depth, repetitions, end, ..Workload::default() }
}

#[test]
fn every_transfer_is_counted_once_in_any_order_of_completion() {
    let result = run(Failure::None, &three_jobs(End::Pass)).unwrap();
    assert_eq!((result.ios, result.bytes, result.repeats.len()), (200, 200 * 4096, 2));
    assert_eq!(result.warnings.iter().filter(|warning| *warning == "a warning").count(), 1, "reported once");
}

#[test]
fn an_error_in_one_job_ends_them_all() {
    let minute = End::Time(Duration::from_secs(60));
    for (failure, end, text) in [
        (Failure::Connect, minute, "path failing needs a target"),
        (Failure::Transfer, minute, "the write of 4 KiB at offset "),
        (Failure::Flush, End::Time(Duration::from_millis(10)), "cannot flush "),
    ] {
        let error = run(failure, &three_jobs(end)).unwrap_err().to_string();
        assert!(error.starts_with(text), "{error}");
    }
}

#[test]
fn fsync_flushes_the_metadata_and_fdatasync_does_not() {
    let flushing = |flush_all| Workload {
        flush_every: std::num::NonZeroU64::new(4),
        flush_all,
        ..three_jobs(End::Pass)
    };
    let result = run(Failure::FlushAll, &flushing(false)).unwrap();
    assert!(result.flushes.is_some_and(|flushes| flushes.count > 0));
    let error = run(Failure::FlushAll, &flushing(true)).unwrap_err().to_string();
    assert!(error.starts_with("cannot flush "), "{error}");
}

#[test]
#[should_panic(expected = "connecting")]
fn a_panic_while_connecting_reaches_the_caller() {
    let _ = run(Failure::ConnectPanics, &three_jobs(End::Pass));
}

#[test]
#[should_panic(expected = "reaping")]
fn a_panic_while_running_reaches_the_caller() {
    let _ = run(Failure::ReapPanics, &three_jobs(End::Time(Duration::from_secs(60))));
}
