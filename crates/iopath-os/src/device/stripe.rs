//! RAID 0 over real devices of any kind. Where chunks lie, how requests are cut and joined, is the core's
//! ([`Stripe`]); here they are waited for.

use std::io;
use std::sync::Arc;

use iopath_core::{
    BlockDevice, Busy, Completion, Duration, Instant, Io, Limits, QueueStats, Stripe, StripeConfig,
    StripeError,
};

use super::{Bell, RealDevice, WaitError, Watch};
use crate::clock;
use crate::memory::Segment;
use crate::sync::thread;

/// One device of several, each of which holds every so-manyth chunk.
///
/// Each member has its own engine. Handing over costs what it costs the members that got something; a wait costs one
/// call more, and while a single member has requests that member is waited for by itself.
#[derive(Debug)]
pub struct Striped<D: RealDevice> {
    stripe: Stripe<D>,
    bell: Bell,
    /// System calls made by waits for the bell.
    waits: u64,
}

/// These devices make no stripe.
#[derive(Debug, thiserror::Error)]
pub enum StripedError {
    /// They do not fit.
    #[error(transparent)]
    Layout(#[from] StripeError),
    /// They cannot be waited for together.
    #[error("several devices cannot be waited for together ({0}); raise the limit of open files (ulimit -n)")]
    Bell(#[source] io::Error),
}

impl<D: RealDevice> Striped<D> {
    /// A stripe of `members`, in that order.
    ///
    /// # Panics
    /// If a member has requests already: nobody would be told of their end.
    pub fn new(mut members: Vec<D>, config: &StripeConfig) -> Result<Self, StripedError> {
        let bell = Bell::new().map_err(StripedError::Bell)?;
        for member in &mut members {
            assert!(member.in_flight() == 0, "{member:?} already has requests in flight");
            member.ring_when_over(&bell).map_err(StripedError::Bell)?;
        }
        Ok(Self { stripe: Stripe::new(members, config)?, bell, waits: 0 })
    }

    /// The members, in order.
    pub fn members(&self) -> impl ExactSizeIterator<Item = &D> {
        self.stripe.members()
    }

    /// What the members' queues have done so far, in the order of the members.
    pub fn queue_stats(&self) -> impl ExactSizeIterator<Item = &QueueStats> {
        self.stripe.queue_stats()
    }

    /// Waits until a member has something to be polled, after all have been polled and committed.
    fn wait(&mut self, timeout: Option<Duration>) -> Result<(), WaitError> {
        let mut busy = self.stripe.members_mut().filter(|member| member.in_flight() > 0);
        match (busy.next(), busy.next()) {
            (Some(only), None) => return only.commit_and_wait(1, timeout),
            // A member was busy with nothing of this stripe's, or its elevator holds requests back.
            (None, _) => thread::sleep(timeout.expect("what no member has begun is due some time")),
            (Some(_), Some(_)) => {
                drop(busy);
                for member in self.stripe.members_mut().filter(|member| member.poll_timeout().is_some()) {
                    // One that the system refuses for good says so here; the bell could not.
                    member.commit_and_wait(0, None)?;
                }
                self.waits += self.bell.wait(timeout)?;
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
    /// If the request does not keep to the limits, or a segment is not whole blocks: a bug of the caller.
    fn submit(&mut self, io: &Io<'_, Segment>, now: Instant) -> Result<(), Busy> {
        self.stripe.submit(io, now)
    }

    fn commit(&mut self, now: Instant) {
        self.stripe.commit(now);
        if self.stripe.ready() > 0 {
            // Of these no member knows: they were collected together with one that has been polled.
            self.bell.ring();
        }
    }

    fn poll_completion(&mut self, now: Instant) -> Option<Completion> {
        self.stripe.poll_completion(now)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.stripe.poll_timeout()
    }
}

// SAFETY: a request has completed when each of its parts is, of which each is at one member, which keeps to this, too; a
// stripe that goes drops its members, each of which waits for all it took, and what waits in their queues was never
// begun.
unsafe impl<D: RealDevice> RealDevice for Striped<D> {
    fn commit_and_wait(&mut self, completions: u32, timeout: Option<Duration>) -> Result<(), WaitError> {
        let mut now = clock::now();
        let end = timeout.map(|timeout| now + timeout);
        self.stripe.commit(now);
        while self.stripe.look(now) < completions.min(self.in_flight()) {
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
        Arc::new(self.bell.clone())
    }

    fn end_watch(&mut self) {
        self.bell.ring();
    }

    fn in_flight(&self) -> u32 {
        self.stripe.in_flight()
    }

    fn syscalls(&self) -> u64 {
        self.waits + self.members().map(RealDevice::syscalls).sum::<u64>()
    }

    /// The members go on ringing the stripe's own bell, which is this one's from now on.
    fn ring_when_over(&mut self, bell: &Bell) -> io::Result<()> {
        self.stripe.members_mut().try_for_each(|member| member.ring_when_over(bell))?;
        self.bell = bell.clone();
        Ok(())
    }
}
