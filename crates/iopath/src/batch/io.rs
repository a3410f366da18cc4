//! What a batch needs from the path of its requests.

use super::{Completion, Refused, Request};
use crate::error::Result;
use iopath_core::{LogSink, QueueStats};
use iopath_os::{BorrowedBytes, IoBuf, Notifier};
use std::io;
use std::time::Duration;

/// The methods of [`Batch`](super::Batch) that depend on the path: direct, bounced or buffered. Objects, so that
/// only this crate compiles the code of batches of its own buffers. Each crate with batches would compile a generic
/// type again.
pub trait BatchIo<B: IoBuf> {
    fn queue(&mut self, request: Request<B>) -> Result<(), Refused<B>>;
    fn submit(&mut self);
    fn wait(&mut self) -> Result<Option<Completion<B>>>;
    fn poll(&mut self) -> Option<Completion<B>>;
    fn next_completed(&mut self) -> Option<Completion<B>>;
    fn cancel(&mut self, token: u64) -> bool;
    fn borrow(&self, _offset: u64, _bytes: usize) -> Option<BorrowedBytes> {
        None
    }
    fn start_log(&mut self, sink: Box<dyn LogSink>);
    fn in_flight(&self) -> u32;
    fn engine(&self) -> &'static str;
    fn stats(&self) -> QueueStats;
    fn syscalls(&self) -> u64;
    fn set_notifier(&mut self, notifier: &Notifier) -> io::Result<()>;
    fn next_timeout(&self) -> Option<Duration>;
    fn is_buffered(&self) -> bool {
        false
    }
    fn bounced(&self) -> u64 {
        0
    }
}
