//! Every type in a public signature of the crate can be named by its users. Compiling this is the test.

use iopath::batch::{AnyThread, OneThread, Refused, Threading};
use iopath::buffers::NoMemory;
use iopath::elevator::ElevatorError;
use iopath::engine::{EngineError, Fallback, Reason, UnknownEngine};
use iopath::log::{LogSink, Record, RecordBatch};
use iopath::mapped::MappedError;
use iopath::source::{Limits, WaitError};
use iopath::stats::{CacheStats, ReadaheadStats};
use iopath::stripe::StripedError;
use iopath::testing::{MemoryDevice, MemoryDisk, MemoryTail};
use iopath::{
    Batch, Completion, Cursor, Direct, Error, ErrorKind, Facts, IoError, LocalBatch, Op, OpenError,
    PageGuard, PoolBuf, Request, Result, Volume, log, target,
};
use std::error::Error as StdError;
use std::time::Duration;

/// A type of a program, with fields of the types of the crate.
#[derive(Debug)]
#[allow(dead_code, reason = "the types are what is tested")]
struct Holds<'a, T: Threading> {
    facts: (Facts, target::Target, Option<Fallback>, Option<Reason>),
    batches: (Batch, LocalBatch, Batch<T>, Request, Completion, Refused, PoolBuf),
    volume: (Volume, Cursor, Direct<'a>, PageGuard<'a>, Result<()>),
    errors: (Error, ErrorKind, IoError, Option<Op>, OpenError, NoMemory, WaitError, EngineError),
    opening: (StripedError, MappedError, UnknownEngine, ElevatorError, target::TargetError, target::DioError),
    disk: (MemoryDisk, MemoryDevice, MemoryTail, Limits),
    stats: (CacheStats, ReadaheadStats, Duration),
    log: (Box<dyn LogSink>, RecordBatch, Record, log::Event, log::Step),
}

/// An implementation that names only this crate.
#[derive(Debug)]
struct Counts(u64);

impl LogSink for Counts {
    fn take(&mut self, batch: &mut RecordBatch) -> Result<(), log::NoRoom> {
        self.0 += 1;
        std::mem::take(batch);
        Ok(())
    }
}

fn is_send<T: Send>() {}
fn is_shared<T: Send + Sync + Clone>() {}
fn is_error<T: StdError + Send + Sync + 'static>() {}

#[test]
fn types_have_the_traits_that_programs_rely_on() {
    is_send::<Batch>();
    let _ = std::any::type_name::<Holds<'_, AnyThread>>();
    is_shared::<Volume>();
    is_error::<Error>();
    is_error::<OpenError>();
    is_error::<Refused>();
    let _: fn(Error) -> std::io::Error = From::from;
    let _ = std::any::type_name::<(OneThread, Counts)>();
}
