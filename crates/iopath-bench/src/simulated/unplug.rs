//! The rules by which a modelled buffered volume unplugs its queue. The plug itself is that of the queue.

use std::time::Duration;

use iopath_core::{BlockDevice, Instant, QueueConfig, QueuedDevice};

/// The condition to start plugged requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unplug {
    /// At once, after the submission of all bios that are due.
    #[default]
    AtOnce,
    /// As in Linux 2.6.29: when a reader waits for a page, at four requests, or after a time limit.
    WaitOrTimer {
        /// The time limit.
        delay: Duration,
        /// Whether a reader also unplugs after it has started readahead (2.6.33: `blk_run_backing_dev` in
        /// `page_cache_async_readahead`).
        after_readahead: bool,
    },
}

impl Unplug {
    /// `unplug_thresh` of the kernel.
    const KERNEL_REQUESTS: u32 = 4;

    /// The number of plugged requests at which the queue unplugs itself.
    pub(super) const fn plug_requests_max(self) -> u32 {
        match self {
            Self::AtOnce => QueueConfig::PLUG_REQUESTS,
            Self::WaitOrTimer { .. } => Self::KERNEL_REQUESTS,
        }
    }
}

/// A rule and its state.
#[derive(Debug)]
pub(super) struct Unplugger {
    rule: Unplug,
    /// The time of the first plugged bio.
    since: Option<Instant>,
    is_due: bool,
    /// Readahead windows so far.
    windows: u64,
}

impl Unplugger {
    pub(super) const fn new(rule: Unplug) -> Self {
        Self { rule, since: None, is_due: false, windows: 0 }
    }

    /// Call this when a reader waits for a page.
    pub(super) const fn handle_wait(&mut self) {
        self.is_due = true;
    }

    /// The device has completed a request, or idles for this request: the kernel removes the plug (`blk_run_queue`,
    /// `blk_start_queueing`).
    pub(super) const fn handle_ready_device(&mut self) {
        self.is_due = true;
    }

    /// A reader has run. `windows` is the number of readahead windows so far.
    pub(super) fn handle_windows(&mut self, windows: u64) {
        let is_more = windows > std::mem::replace(&mut self.windows, windows);
        self.is_due |= is_more && matches!(self.rule, Unplug::WaitOrTimer { after_readahead: true, .. });
    }

    /// Unplugs the queue if the rule requires it. Call this after the submission of bios, and at the time limit.
    pub(super) fn unplug<D: BlockDevice>(&mut self, queue: &mut QueuedDevice<D>, now: Instant) {
        if let Unplug::WaitOrTimer { delay, .. } = self.rule {
            if queue.is_plugged() {
                let since = *self.since.get_or_insert(now);
                if !self.is_due && now < since + delay {
                    return;
                }
            }
            (self.since, self.is_due) = (None, false);
        }
        queue.unplug(now);
    }

    /// The time limit of the plug.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        match self.rule {
            Unplug::AtOnce => None,
            Unplug::WaitOrTimer { delay, .. } => self.since.map(|since| since + delay),
        }
    }
}

#[cfg(test)]
mod tests {
    use iopath_core::elevator::ElevatorSpec;
    use iopath_core::{Bio, Extent, Sector};
    use iopath_model::{Model, ModelDevice};

    use super::super::span::Span;
    use super::*;

    /// A queue with one plugged read.
    fn plugged(rule: Unplug) -> QueuedDevice<ModelDevice<Span>> {
        let device = ModelDevice::new(&Model::preset("cloud").unwrap(), 1);
        let config = QueueConfig {
            bios_max: 8,
            requests_max: 8,
            depth: 8,
            plug_requests_max: rule.plug_requests_max(),
            elevator: ElevatorSpec::default(),
        };
        let mut queue = QueuedDevice::new(device, &config);
        let extent = Extent::new(Sector(0), 8).unwrap();
        queue.submit_bio(Bio::read(extent, Span { address: 0, bytes: 4096 }, 0), Instant::ZERO).unwrap();
        queue
    }

    #[test]
    fn the_rule_of_the_kernel_unplugs_for_a_waiter_after_readahead_or_at_the_time_limit() {
        let delay = Duration::from_millis(3);
        let rule = |after_readahead| Unplug::WaitOrTimer { delay, after_readahead };
        let is_open = |rule, event: fn(&mut Unplugger), at_ms| {
            let (mut queue, mut unplugger) = (plugged(rule), Unplugger::new(rule));
            unplugger.unplug(&mut queue, Instant::ZERO);
            event(&mut unplugger);
            unplugger.unplug(&mut queue, Instant::ZERO + Duration::from_millis(at_ms));
            queue.dispatch(Instant::ZERO);
            assert_eq!(queue.queue().in_flight() > 0, !queue.is_plugged());
            !queue.is_plugged()
        };
        assert!(is_open(Unplug::AtOnce, |_| {}, 0));
        assert_eq!([2, 3].map(|ms| is_open(rule(false), |_| {}, ms)), [false, true]);
        assert!(is_open(rule(false), Unplugger::handle_wait, 0));
        let readahead: fn(&mut Unplugger) = |unplugger| unplugger.handle_windows(1);
        assert_eq!([false, true].map(|after| is_open(rule(after), readahead, 0)), [false, true]);
    }
}
