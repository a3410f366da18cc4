//! RAID 0 over real devices of any kind: waits for its members. Layout, splitting and merging are in the core
//! ([`Stripe`]).

use std::io;
use std::sync::Arc;

use iopath_core::{
    BlockDevice, Busy, Completion, Duration, Instant, Io, Limits, QueueStats, Stripe, StripeConfig,
    StripeError,
};

use super::{Notifier, RealDevice, WaitError, Watch};
use crate::clock;
use crate::memory::Segment;
use crate::sync::thread;

/// One device made of several: see [`Stripe`].
///
/// Each member has its own engine. A commit costs as much as the commits of the members with requests. A wait costs one
/// system call more, unless a single member has requests: then the thread waits in that member.
#[derive(Debug)]
pub struct Striped<D: RealDevice> {
    stripe: Stripe<D>,
    notifier: Notifier,
    /// System calls made by waits for the notifier.
    waits: u64,
}

/// The devices cannot form a stripe.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StripedError {
    /// Their limits do not fit.
    #[error(transparent)]
    Layout(#[from] StripeError),
    /// The process cannot wait for several devices.
    #[error("cannot wait for several devices together ({0}); raise the limit of open files (ulimit -n)")]
    Notifier(#[source] io::Error),
}

impl<D: RealDevice> Striped<D> {
    /// A stripe of `members`, in that order.
    ///
    /// # Panics
    /// If a member has requests in flight: it would report their completions to the stripe.
    pub fn new(mut members: Vec<D>, config: &StripeConfig) -> Result<Self, StripedError> {
        let notifier = Notifier::new().map_err(StripedError::Notifier)?;
        for member in &mut members {
            assert!(member.in_flight() == 0, "{member:?} already has requests in flight");
            member.set_notifier(&notifier).map_err(StripedError::Notifier)?;
        }
        Ok(Self { stripe: Stripe::new(members, config)?, notifier, waits: 0 })
    }

    /// The members, in order.
    pub fn members(&self) -> impl ExactSizeIterator<Item = &D> {
        self.stripe.members()
    }

    /// The statistics of the members' queues, in the order of the members.
    pub fn queue_stats(&self) -> impl ExactSizeIterator<Item = &QueueStats> {
        self.stripe.queue_stats()
    }

    /// Waits until a member must be polled, after all have been polled and committed.
    fn wait(&mut self, timeout: Option<Duration>) -> Result<(), WaitError> {
        let mut busy = self.stripe.members_mut().filter(|member| member.in_flight() > 0);
        match (busy.next(), busy.next()) {
            (Some(only), None) => return only.commit_and_wait(1, timeout),
            // No member has a request of this stripe: it cannot accept one yet, or its elevator holds requests back.
            (None, _) => thread::sleep(timeout.expect("requests that no member has begun have a time")),
            (Some(_), Some(_)) => {
                drop(busy);
                self.waits += self.notifier.wait(timeout)?;
            }
        }
        Ok(())
    }
}

impl<D: RealDevice> BlockDevice for Striped<D> {
    type Memory = Segment;

    fn limits(&self) -> &Limits {
        self.stripe.limits()
    }

    /// # Panics
    /// If the request violates the limits, or a segment is not whole blocks: a bug of the caller.
    fn submit(&mut self, io: &Io<'_, Segment>, now: Instant) -> Result<(), Busy> {
        self.stripe.submit(io, now)
    }

    fn commit(&mut self, now: Instant) {
        self.stripe.commit(now);
        if self.stripe.ready() > 0 {
            // No member announces these: they were collected together with a polled one.
            self.notifier.notify();
        }
    }

    fn poll_completion(&mut self, now: Instant) -> Option<Completion> {
        self.stripe.poll_completion(now)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.stripe.poll_timeout()
    }
}

// SAFETY: a request has completed when each of its parts has; each part is at one member, which keeps this promise,
// too. A dropped stripe drops its members, each of which waits for its requests; parts in the members' queues were
// never begun.
unsafe impl<D: RealDevice> RealDevice for Striped<D> {
    fn commit_and_wait(&mut self, completions: u32, timeout: Option<Duration>) -> Result<(), WaitError> {
        let mut now = clock::now();
        let end = timeout.map(|timeout| now + timeout);
        self.stripe.commit(now);
        while self.stripe.advance(now) < completions.min(self.in_flight()) {
            if end.is_some_and(|end| end <= now) {
                break;
            }
            let due = [end, self.stripe.poll_timeout()].into_iter().flatten().min();
            self.wait(due.map(|due| due.saturating_since(now)))?;
            now = clock::now();
        }
        Ok(())
    }

    fn watch(&self) -> Arc<dyn Watch> {
        Arc::new(self.notifier.clone())
    }

    fn end_watch(&mut self) {
        self.notifier.notify();
    }

    fn in_flight(&self) -> u32 {
        self.stripe.in_flight()
    }

    fn syscalls(&self) -> u64 {
        self.waits + self.members().map(RealDevice::syscalls).sum::<u64>()
    }

    fn fills_reads(&self) -> bool {
        self.members().all(RealDevice::fills_reads)
    }

    /// Members notify `notifier` directly: it becomes the stripe's own.
    fn set_notifier(&mut self, notifier: &Notifier) -> io::Result<()> {
        self.stripe.members_mut().try_for_each(|member| member.set_notifier(notifier))?;
        self.notifier = notifier.clone();
        Ok(())
    }
}
