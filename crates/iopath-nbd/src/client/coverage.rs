//! Which connection can make completed writes durable. The connections of a device share it. It sends nothing.
//!
//! A server may be killed and restarted between two requests; its completed writes that no flush covered are lost then.
//! A client sees only that all connections end. So each connection has an *age*: those of the first negotiation have
//! age 1, each connection made anew has the next number. A completed write has the age of its connection. A flush
//! covers it if the connection of the flush is not younger: such a connection was open before the write and is open
//! still, so the server is the same. Without one, the flush fails.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// No write is unflushed, or no connection is established.
const NONE: u64 = u64::MAX;

/// The ages of connections and of unflushed writes.
#[derive(Debug)]
pub(crate) struct Coverage {
    /// The age of each established connection.
    ages: Box<[AtomicU64]>,
    /// The last age.
    last: AtomicU64,
    /// The age of the oldest completed write since the last flush began.
    unflushed: AtomicU64,
    flushes: Mutex<Vec<Flush>>,
    tickets: AtomicU64,
}

/// A flush in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flush {
    ticket: u64,
    /// The age of the oldest write that the flush must cover.
    age_max: u64,
}

/// The connection that a flush belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// The given one.
    This,
    Other(usize),
    /// No connection knows of all writes.
    Lost,
}

impl Coverage {
    pub(crate) fn new(connections: usize) -> Self {
        Self {
            ages: (0..connections).map(|_| AtomicU64::new(NONE)).collect(),
            last: AtomicU64::new(1),
            unflushed: AtomicU64::new(NONE),
            flushes: Mutex::default(),
            tickets: AtomicU64::new(0),
        }
    }

    /// Connection `number` is established: in the first negotiation, or anew.
    pub(crate) fn handle_established(&self, number: usize, is_first: bool) {
        let age = if is_first { 1 } else { self.last.fetch_add(1, Ordering::AcqRel) + 1 };
        self.ages[number].store(age, Ordering::Release);
    }

    pub(crate) fn handle_lost(&self, number: usize) {
        self.ages[number].store(NONE, Ordering::Release);
    }

    /// A write on connection `number` has completed, without FUA.
    pub(crate) fn handle_written(&self, number: usize) {
        let age = self.ages[number].load(Ordering::Relaxed);
        // Seldom changes, so the connections share the cache line without conflict.
        if age < self.unflushed.load(Ordering::Acquire) {
            self.unflushed.fetch_min(age, Ordering::AcqRel);
        }
    }

    /// A flush begins: it covers the writes that have completed. Flushes that are in flight have taken some of them
    /// over.
    pub(crate) fn begin_flush(&self) -> Flush {
        let mut flushes = self.lock();
        let unflushed = self.unflushed.swap(NONE, Ordering::AcqRel);
        let age_max = flushes.iter().map(|flush| flush.age_max).fold(unflushed, u64::min);
        let ticket = self.tickets.fetch_add(1, Ordering::Relaxed);
        let flush = Flush { ticket, age_max };
        flushes.push(flush);
        flush
    }

    pub(crate) fn end_flush(&self, flush: Flush) {
        self.lock().retain(|other| other.ticket != flush.ticket);
    }

    /// The flush has failed at the server, or passes to another connection, where it begins again: its writes are
    /// unflushed.
    pub(crate) fn cancel_flush(&self, flush: Flush) {
        self.unflushed.fetch_min(flush.age_max, Ordering::AcqRel);
        self.end_flush(flush);
    }

    /// The connection for `flush`, which is at connection `number`.
    pub(crate) fn route(&self, flush: Flush, number: usize) -> Route {
        let covers = |number: usize| self.covers(flush.age_max, number);
        if covers(number) {
            return Route::This;
        }
        (0..self.ages.len()).find(|number| covers(*number)).map_or(Route::Lost, Route::Other)
    }

    /// The connection for a flush that begins now. `None` if all are equal.
    pub(crate) fn candidate(&self) -> Option<usize> {
        let unflushed = self.unflushed.load(Ordering::Acquire);
        (0..self.ages.len()).find(|number| self.covers(unflushed, *number))
    }

    fn covers(&self, age_max: u64, number: usize) -> bool {
        let age = self.ages[number].load(Ordering::Acquire);
        age != NONE && age <= age_max
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Flush>> {
        // No panic leaves the list half changed.
        self.flushes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_after_a_new_connection_fails_if_a_write_is_unflushed() {
        let coverage = Coverage::new(1);
        coverage.handle_established(0, true);
        coverage.handle_written(0);
        coverage.handle_lost(0);
        coverage.handle_established(0, false);
        let flush = coverage.begin_flush();
        assert_eq!(coverage.route(flush, 0), Route::Lost);
        coverage.end_flush(flush);
        // The loss is reported; writes on the new connection are covered.
        coverage.handle_written(0);
        let flush = coverage.begin_flush();
        assert_eq!(coverage.route(flush, 0), Route::This);
    }

    #[test]
    fn a_flush_that_failed_at_the_server_leaves_its_writes_to_the_next_flush() {
        let coverage = Coverage::new(1);
        coverage.handle_established(0, true);
        coverage.handle_written(0);
        let failed = coverage.begin_flush();
        assert_eq!(coverage.route(failed, 0), Route::This);
        coverage.cancel_flush(failed);
        coverage.handle_lost(0);
        coverage.handle_established(0, false);
        let flush = coverage.begin_flush();
        assert_eq!(coverage.route(flush, 0), Route::Lost);
    }

    #[test]
    fn a_flush_in_flight_does_not_hide_its_writes_from_the_next_flush() {
        let coverage = Coverage::new(1);
        coverage.handle_established(0, true);
        coverage.handle_written(0);
        let first = coverage.begin_flush();
        coverage.handle_lost(0);
        coverage.handle_established(0, false);
        let second = coverage.begin_flush();
        assert_eq!(coverage.route(first, 0), Route::Lost);
        assert_eq!(coverage.route(second, 0), Route::Lost);
    }

    #[test]
    fn a_connection_that_survived_covers_the_writes_of_one_that_did_not() {
        let coverage = Coverage::new(2);
        coverage.handle_established(0, true);
        coverage.handle_established(1, true);
        coverage.handle_written(0);
        coverage.handle_lost(0);
        coverage.handle_established(0, false);
        let flush = coverage.begin_flush();
        assert_eq!(coverage.route(flush, 0), Route::Other(1));
        coverage.handle_lost(1);
        coverage.handle_established(1, false);
        assert_eq!(coverage.route(flush, 0), Route::Lost);
    }

    #[test]
    fn without_unflushed_writes_any_connection_flushes() {
        let coverage = Coverage::new(1);
        coverage.handle_established(0, true);
        coverage.handle_lost(0);
        coverage.handle_established(0, false);
        let flush = coverage.begin_flush();
        assert_eq!(coverage.route(flush, 0), Route::This);
    }
}
