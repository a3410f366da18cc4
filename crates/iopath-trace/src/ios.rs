//! The I/Os of a log in the order of their submission, each with its recorded latency: for replays. Memory does not
//! grow with the log.

use std::collections::{HashMap, VecDeque};

use iopath_core::log::Event;
use iopath_core::{Op, Record};
use iopath_log::{Block, End, Entry, Labels, LogError, LogInfo};

use crate::AnyLog;
use crate::bios::{Bios, Followed};
use crate::merge::Merge;

/// I/Os that wait for the end of an earlier one: 16 MiB. If there are more, the latency of the earliest is unknown.
const WINDOW_MAX: usize = 1 << 18;

/// The level of a queue at which an I/O is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Bios, from their queueing to their completion: what programs and file systems submit.
    Queue,
    /// Requests, from their dispatch to their completion: what the device gets after splits and merges.
    Dispatch,
}

/// A recorded I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Io {
    /// The queue.
    pub queue: u16,
    /// The time of its submission, in nanoseconds since the start of the log.
    pub at_ns: u64,
    /// The operation.
    pub op: Op,
    /// Forced unit access.
    pub is_fua: bool,
    /// The first sector; 0 for a flush.
    pub sector: u64,
    /// The number of sectors; 0 for a flush.
    pub sectors: u64,
    /// The stream.
    pub stream: u32,
    /// The time to its completion; none if the log does not have it.
    pub latency_ns: Option<u64>,
}

/// An I/O whose end may still follow.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    io: Io,
    has_ended: bool,
    /// Whether the device refused it: it is dispatched again.
    is_refused: bool,
}

/// The I/Os of a log.
pub struct Ios {
    log: AnyLog,
    level: Level,
    /// The only queue; none for all.
    queue: Option<u16>,
    merge: Merge,
    block: Block,
    bios: Bios,
    /// The number of the I/O in each request slot of each queue.
    requests: HashMap<(u16, u32), u64>,
    window: VecDeque<Waiting>,
    /// The number of the first I/O of the window.
    first: u64,
    is_at_end: bool,
    failure: Option<LogError>,
}

impl std::fmt::Debug for Ios {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ios").field("level", &self.level).field("queue", &self.queue).finish_non_exhaustive()
    }
}

impl Ios {
    /// The I/Os of a log at a level: of one queue, or of all.
    pub fn new(log: AnyLog, level: Level, queue: Option<u16>) -> Self {
        Self {
            log,
            level,
            queue,
            merge: Merge::default(),
            block: Block::default(),
            bios: Bios::default(),
            requests: HashMap::new(),
            window: VecDeque::new(),
            first: 0,
            is_at_end: false,
            failure: None,
        }
    }

    /// The header of the log.
    pub const fn info(&self) -> &LogInfo {
        self.log.info()
    }

    /// The labels read so far.
    pub fn labels(&self) -> &Labels {
        self.log.labels()
    }

    /// The end of the log, after the last I/O.
    pub const fn end(&self) -> Option<&End> {
        self.log.end()
    }

    /// The next I/O; none at the end.
    ///
    /// # Errors
    /// If the log cannot be read further. All I/Os before come first.
    #[expect(clippy::should_implement_trait, reason = "it is fallible")]
    pub fn next(&mut self) -> Result<Option<Io>, LogError> {
        loop {
            let is_known =
                |first: &Waiting| first.has_ended || self.is_at_end || self.window.len() > WINDOW_MAX;
            if let Some(first) = self.window.front().copied().filter(is_known) {
                self.window.pop_front();
                self.first += 1;
                if first.is_refused {
                    continue;
                }
                return Ok(Some(first.io));
            }
            match self.merge.next() {
                Some(entry) => self.follow(&entry),
                None if self.is_at_end => return self.failure.take().map_or(Ok(None), Err),
                None => self.read(),
            }
        }
    }

    fn read(&mut self) {
        match self.log.read_block(&mut self.block) {
            Ok(true) if self.queue.is_none_or(|queue| queue == self.block.queue()) => {
                self.merge.add(&self.block);
                return;
            }
            Ok(true) => return,
            Ok(false) => {}
            Err(error) => self.failure = Some(error),
        }
        // The steps that wait are of use without the rest, too.
        self.merge.end();
        while let Some(entry) = self.merge.next() {
            self.follow(&entry);
        }
        self.is_at_end = true;
    }

    fn follow(&mut self, entry: &Entry) {
        match self.level {
            Level::Queue => self.follow_bio(entry),
            Level::Dispatch => self.follow_request(entry),
        }
    }

    fn follow_bio(&mut self, entry: &Entry) {
        match self.bios.follow(entry) {
            Followed::Queued(bio, before) => {
                if let Some(before) = before {
                    self.end_io(before.number, None);
                }
                let sectors = if bio.op == Op::Flush { 0 } else { bio.sectors };
                self.push(Io {
                    queue: bio.queue,
                    at_ns: self.since_start(bio.queued_ns),
                    op: bio.op,
                    is_fua: bio.is_fua,
                    sector: bio.sector,
                    sectors,
                    stream: bio.stream,
                    latency_ns: None,
                });
            }
            Followed::Completed(bio) => {
                self.end_io(bio.number, Some(entry.time.as_nanos().saturating_sub(bio.queued_ns)));
            }
            // A bio that was passed on is an I/O of this queue all the same.
            Followed::Remapped(_) | Followed::Other => {}
        }
    }

    fn follow_request(&mut self, entry: &Entry) {
        let record = entry.record;
        let slot = (entry.queue, record.tag());
        match record.event() {
            Some(Event::Dispatch) => {
                let Some(io) = self.dispatched(entry, record) else { return };
                let number = self.first + self.window.len() as u64;
                if let Some(before) = self.requests.insert(slot, number) {
                    self.end_io(before, None);
                }
                self.push(io);
            }
            Some(Event::Requeue) => {
                let number = self.requests.remove(&slot);
                if let Some(waiting) = number.and_then(|number| self.waiting(number)) {
                    (waiting.has_ended, waiting.is_refused) = (true, true);
                }
            }
            Some(Event::Complete) if record.is_request() => {
                if let Some(number) = self.requests.remove(&slot) {
                    let now = self.since_start(entry.time.as_nanos());
                    let begun = self.waiting(number).map(|waiting| waiting.io.at_ns);
                    self.end_io(number, begun.map(|begun| now.saturating_sub(begun)));
                }
            }
            Some(Event::Missed) => self.requests.retain(|(queue, _), _| *queue != entry.queue),
            _ => {}
        }
    }

    fn dispatched(&self, entry: &Entry, record: Record) -> Option<Io> {
        let op = record.op()?;
        Some(Io {
            queue: entry.queue,
            at_ns: self.since_start(entry.time.as_nanos()),
            op,
            is_fua: record.step().is_ok_and(|step| step.is_fua),
            sector: record.sector(),
            sectors: if op == Op::Flush { 0 } else { record.sectors() },
            stream: record.stream().0,
            latency_ns: None,
        })
    }

    fn since_start(&self, time_ns: u64) -> u64 {
        time_ns.saturating_sub(self.log.info().start_ns)
    }

    fn push(&mut self, io: Io) {
        self.window.push_back(Waiting { io, has_ended: false, is_refused: false });
    }

    /// The I/O with this number, unless it was returned.
    fn waiting(&mut self, number: u64) -> Option<&mut Waiting> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.window.get_mut(index)
    }

    fn end_io(&mut self, number: u64, latency_ns: Option<u64>) {
        if let Some(waiting) = self.waiting(number) {
            waiting.has_ended = true;
            waiting.io.latency_ns = latency_ns;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::read;

    fn ios(text: &str, level: Level) -> (Vec<Io>, Option<String>) {
        let log =
            read(Path::new("trace"), Box::new(std::io::Cursor::new(text.to_owned().into_bytes()))).unwrap();
        let mut ios = Ios::new(log, level, None);
        let mut list = Vec::new();
        loop {
            match ios.next() {
                Ok(Some(io)) => list.push(io),
                Ok(None) => return (list, None),
                Err(error) => return (list, Some(error.to_string())),
            }
        }
    }

    fn shown(list: &[Io]) -> Vec<(u64, Op, u64, u64, Option<u64>)> {
        list.iter().map(|io| (io.at_ns, io.op, io.sector, io.sectors, io.latency_ns)).collect()
    }

    #[test]
    fn ios_are_in_the_order_of_submission_with_their_latencies() {
        let text = "time_ns,op,sector,sectors,latency_ns\n0,read,8,8,900\n100,write,0,16,50\n200,flush,,,\n300,read,1,1,10\n";
        for level in [Level::Queue, Level::Dispatch] {
            let (list, failure) = ios(text, level);
            let mut expected = vec![
                (0, Op::Read, 8, 8, Some(900)),
                (100, Op::Write, 0, 16, Some(50)),
                (200, Op::Flush, 0, 0, None),
                (300, Op::Read, 1, 1, Some(10)),
            ];
            // An I/O without a latency has a queueing only.
            if level == Level::Dispatch {
                expected.remove(2);
            }
            assert_eq!((shown(&list), failure), (expected, None), "{level:?}");
        }
    }

    #[test]
    fn a_trace_that_is_wrong_in_the_middle_has_the_ios_before() {
        let text = "time_ns,op,sector,sectors\n0,read,8,8\n100,read,16,8\n200,read,x,8\n300,read,0,8\n";
        let (list, failure) = ios(text, Level::Queue);
        assert_eq!(list.len(), 2, "{list:?}");
        assert!(failure.as_ref().is_some_and(|text| text.contains("line 4")), "{failure:?}");
    }

    /// Two bios that merge are one request.
    const BLKPARSE: &str = "\
8,0 1 1 0.000000000 7 Q R 0 + 8 [a]
8,0 1 2 0.000000100 7 G R 0 + 8 [a]
8,0 1 3 0.000000200 7 I R 0 + 8 [a]
8,0 1 4 0.000000300 7 Q R 8 + 8 [a]
8,0 1 5 0.000000400 7 M R 8 + 8 [a]
8,0 1 6 0.000001000 7 D R 0 + 16 [a]
8,0 1 7 0.000001500 7 R R 0 + 16 [a]
8,0 1 8 0.000002000 7 D R 0 + 16 [a]
8,0 1 9 0.000005000 0 C R 0 + 16 [0]
";

    #[test]
    fn merged_bios_are_one_request_which_counts_from_its_last_dispatch() {
        let (bios, _) = ios(BLKPARSE, Level::Queue);
        let expected = vec![(0, Op::Read, 0, 8, Some(5000)), (300, Op::Read, 8, 8, Some(4700))];
        assert_eq!(shown(&bios), expected);
        let (requests, _) = ios(BLKPARSE, Level::Dispatch);
        assert_eq!(shown(&requests), [(2000, Op::Read, 0, 16, Some(3000))]);
    }
}
