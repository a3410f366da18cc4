//! Makes the blocks of a request log of a trace: reads events, orders them, joins them.

use iopath_log::{Block, BlockSource, End, Labels, LogError, Totals};

use crate::event::TraceEvent;
use crate::join::Join;
use crate::order::Order;
use crate::reader::TraceReader;

/// A trace as blocks of records.
pub(crate) struct Source {
    reader: Box<dyn TraceReader>,
    events: Vec<TraceEvent>,
    order: Order,
    join: Join,
    is_at_end: bool,
    /// Whether the last events were joined.
    is_finished: bool,
    /// Why the trace ends. The events before were joined.
    failure: Option<LogError>,
    records: u64,
}

impl Source {
    /// A trace of which nothing is read yet.
    pub(crate) fn new(reader: Box<dyn TraceReader>) -> Self {
        Self {
            reader,
            events: Vec::new(),
            order: Order::default(),
            join: Join::new(),
            is_at_end: false,
            is_finished: false,
            failure: None,
            records: 0,
        }
    }

    /// Reads up to the first events. Returns the time of the earliest one; none if the trace has no events.
    ///
    /// # Errors
    /// If the trace cannot be read, or is wrong.
    pub(crate) fn first_ns(&mut self) -> Result<Option<u64>, LogError> {
        while !self.order.is_full() && !self.is_at_end {
            self.read();
        }
        match self.failure.take_if(|_| self.order.is_empty()) {
            Some(error) => Err(error),
            None => Ok(self.order.first_ns()),
        }
    }

    fn labels(&self) -> Labels {
        let device_name = |device| self.reader.device_name(device);
        self.join.labels(device_name, |process| self.reader.process_name(process))
    }

    /// Reads some events, and joins those that are in order.
    fn read(&mut self) {
        let mut events = std::mem::take(&mut self.events);
        let has_more = self.reader.read(&mut events);
        for event in events.drain(..) {
            self.join.look_ahead(&event);
            if let Some(next) = self.order.push(event) {
                self.join.follow(&next);
            }
        }
        self.events = events;
        match has_more {
            Ok(true) => {}
            Ok(false) => self.is_at_end = true,
            Err(error) => (self.is_at_end, self.failure) = (true, Some(error)),
        }
    }

    /// Joins the last events.
    fn finish(&mut self) {
        while let Some(next) = self.order.pop() {
            self.join.follow(&next);
        }
        self.join.finish();
        self.is_finished = true;
    }
}

impl BlockSource for Source {
    fn read_block(&mut self, block: &mut Block) -> Result<bool, LogError> {
        loop {
            if self.join.take(block) {
                self.records += block.len() as u64;
                return Ok(true);
            }
            if self.is_finished {
                return self.failure.take().map_or(Ok(false), Err);
            }
            if self.is_at_end {
                self.finish();
            } else {
                self.read();
            }
        }
    }

    fn take_labels(&mut self) -> Option<Labels> {
        if !self.join.has_new_labels() {
            return None;
        }
        Some(self.labels())
    }

    fn end(&self) -> End {
        let mut notes = self.reader.notes();
        notes.extend(self.order.note());
        notes.extend(self.join.notes());
        let totals = Totals { records: self.records, ..Totals::default() };
        End { totals, labels: self.labels(), notes, ..End::default() }
    }
}

#[cfg(test)]
mod tests {
    use iopath_core::Op;

    use super::*;
    use crate::event::WholeIo;

    /// All events at once.
    struct AtOnce(Vec<u64>);

    impl TraceReader for AtOnce {
        fn read(&mut self, out: &mut Vec<TraceEvent>) -> Result<bool, LogError> {
            out.extend(self.0.drain(..).map(|at_ns| TraceEvent::Whole(WholeIo::new(at_ns, Op::Read))));
            Ok(false)
        }

        fn notes(&self) -> Vec<String> {
            Vec::new()
        }

        fn device_name(&self, _: u32) -> Option<String> {
            None
        }

        fn process_name(&self, _: u32) -> Option<String> {
            None
        }
    }

    #[test]
    fn a_trace_begins_with_its_earliest_event_however_many_are_read_at_once() {
        for events in [1, 100, 10_000] {
            // The second event is the earliest.
            let times = std::iter::once(1001).chain((0..events).map(|number| 1000 + number)).collect();
            let mut source = Source::new(Box::new(AtOnce(times)));
            assert_eq!(source.first_ns().unwrap(), Some(1000), "{events} events");
        }
        assert_eq!(Source::new(Box::new(AtOnce(Vec::new()))).first_ns().unwrap(), None);
    }
}
