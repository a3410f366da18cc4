//! Orders the events of a trace by time within a window of constant size. Traces of tools are ordered by the time of
//! submission or of completion, and slightly wrong at places; an event that is later than the window allows is moved.

use std::collections::VecDeque;

use crate::event::TraceEvent;

/// The number of events that wait for an earlier one.
const WINDOW: usize = 4096;

/// The events of the window, in the order of time.
#[derive(Debug, Default)]
pub(crate) struct Order {
    waiting: VecDeque<TraceEvent>,
    /// The time of the first event that has left the window.
    first_ns: Option<u64>,
    /// The time of the last event that has left the window.
    last_ns: u64,
    moved: u64,
    moved_max_ns: u64,
}

impl Order {
    /// Adds an event. Returns the earliest one if the window is full.
    #[inline]
    pub(crate) fn push(&mut self, mut event: TraceEvent) -> Option<TraceEvent> {
        if event.at_ns() < self.last_ns {
            self.moved += 1;
            self.moved_max_ns = self.moved_max_ns.max(self.last_ns - event.at_ns());
            event.set_at_ns(self.last_ns);
        }
        // Most events are the latest so far. Events of the same time keep their order.
        if self.waiting.back().is_none_or(|last| last.at_ns() <= event.at_ns()) {
            self.waiting.push_back(event);
        } else {
            let at = self.waiting.partition_point(|other| other.at_ns() <= event.at_ns());
            self.waiting.insert(at, event);
        }
        if self.waiting.len() > WINDOW { self.pop() } else { None }
    }

    /// The earliest event.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<TraceEvent> {
        let event = self.waiting.pop_front()?;
        self.last_ns = event.at_ns();
        self.first_ns.get_or_insert(self.last_ns);
        Some(event)
    }

    /// Whether no event waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether the next event makes one leave the window.
    pub(crate) fn is_full(&self) -> bool {
        self.waiting.len() >= WINDOW
    }

    /// The time of the earliest event. It is final once the window is full.
    pub(crate) fn first_ns(&self) -> Option<u64> {
        self.first_ns.or_else(|| self.waiting.front().map(TraceEvent::at_ns))
    }

    /// A note about moved events.
    pub(crate) fn note(&self) -> Option<String> {
        (self.moved > 0).then(|| {
            format!(
                "{} events are earlier than an event {WINDOW} events before them, by up to {:.6} s: they are moved to the \
                 time of that event",
                self.moved,
                self.moved_max_ns as f64 / 1e9
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use iopath_core::Op;
    use proptest::prelude::*;

    use super::*;
    use crate::event::WholeIo;

    fn ordered(times: &[u64]) -> (Vec<u64>, u64) {
        let mut order = Order::default();
        let mut out: Vec<u64> = Vec::new();
        for at_ns in times {
            let event = TraceEvent::Whole(WholeIo::new(*at_ns, Op::Read));
            out.extend(order.push(event).map(|event| event.at_ns()));
        }
        out.extend(std::iter::from_fn(|| order.pop()).map(|event| event.at_ns()));
        (out, order.moved)
    }

    proptest! {
        #[test]
        fn events_leave_in_the_order_of_time(times in proptest::collection::vec(any::<u64>(), 0..300)) {
            let (out, moved) = ordered(&times);
            let mut sorted = times;
            sorted.sort_unstable();
            prop_assert_eq!((out, moved), (sorted, 0));
        }
    }

    #[test]
    fn an_event_before_the_window_is_moved_and_counted() {
        let mut times: Vec<u64> = (1000..1000 + 2 * WINDOW as u64).collect();
        times.push(5);
        let (out, moved) = ordered(&times);
        assert_eq!((out.len(), moved), (times.len(), 1));
        assert!(out.is_sorted());
    }
}
