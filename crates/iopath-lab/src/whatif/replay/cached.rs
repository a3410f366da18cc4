//! Replays accesses of a program through the page cache, its readahead and its write-back. A stream is a thread, which
//! executes one access at a time.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use iopath_core::{BlockDevice, Instant, Op};
use iopath_model::VirtualClock;
use iopath_model::event_loop::{End, run};

use super::super::meter::Gauge;
use super::super::request::Request;
use super::super::source::{Closed, Open, Source};
use super::super::tally::Tally;
use super::super::trace::Trace;
use super::{Failure, Run};
use crate::recorded_times::Stretch;
use iopath_bench::path::{Direction, Transfer};
use iopath_bench::simulated::accesses::{Access, Accesses, CachedThreads};
use iopath_bench::simulated::{Span, cached_threads};

/// The replay of the accesses to one device.
pub(super) fn tally<D: BlockDevice<Memory = Span>>(
    run: &Run<'_>,
    trace: &Trace,
    device: D,
    gauge: Gauge,
    stop: &AtomicBool,
) -> Result<Tally, Failure> {
    let stretch = Stretch::of_speed(run.timing.speed);
    if run.timing.is_closed {
        replayed(run, trace, device, gauge, Closed::new(trace, stretch), stop)
    } else {
        replayed(run, trace, device, gauge, Open::new(trace, stretch), stop)
    }
}

fn replayed<D: BlockDevice<Memory = Span>, S: Source>(
    Run { input, alternative, wrap, .. }: &Run<'_>,
    trace: &Trace,
    device: D,
    gauge: Gauge,
    source: S,
    stop: &AtomicBool,
) -> Result<Tally, Failure> {
    let tally = Tally::new(input.windows, input.streams.len(), &trace.requests);
    let recorded = Recorded { requests: &trace.requests, wrap: *wrap, source, window: 0, gauge, tally };
    let (cache, elevator) = (&alternative.cache, &alternative.elevator);
    let mut threads =
        cached_threads(device, cache, elevator, alternative.depth, input.streams.len(), recorded);
    let mut watch = |_: &CachedThreads<D, Recorded<'_, S>>, _: Instant| {
        if stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    match run(&mut threads, &mut VirtualClock::default(), &mut watch).map_err(Failure::Loop)? {
        End::Done => {}
        End::Stopped => return Err(Failure::Stopped),
    }
    match threads.finish() {
        Ok(Recorded { mut tally, gauge, .. }) => {
            gauge.add_to(&mut tally);
            Ok(tally)
        }
        Err((index, error)) => Err(Failure::Io { request: trace.requests[index], error }),
    }
}

/// The recorded accesses.
#[derive(Debug)]
struct Recorded<'a, S> {
    requests: &'a [Request],
    wrap: Option<u64>,
    source: S,
    /// The latest window of which an access has begun.
    window: u8,
    gauge: Gauge,
    tally: Tally,
}

impl<S: Source> Accesses for Recorded<'_, S> {
    fn poll_timeout(&self) -> Option<Instant> {
        self.source.poll_timeout().map(Instant::from_nanos)
    }

    fn poll(&mut self, now: Instant) -> Option<Access> {
        let index = self.source.poll(now.as_nanos())?;
        let request = &self.requests[index];
        if request.window > self.window {
            self.window = request.window;
            self.gauge.begin_window(usize::from(request.window), now.as_nanos());
        }
        let sector = self.wrap.map_or(request.sector, |wrap| request.sector % wrap);
        let transfer =
            |direction| Transfer { direction, offset: sector * 512, bytes: request.bytes() as u32 };
        let transfer = match request.op() {
            Op::Read => Some(transfer(Direction::Read)),
            Op::Write => Some(transfer(Direction::Write)),
            _ => None,
        };
        Some(Access { index, thread: request.stream.into(), transfer })
    }

    fn handle_done(&mut self, index: usize, now: Instant) {
        let request = &self.requests[index];
        if request.op().has_memory() {
            self.tally.complete(request, self.source.due_ns(index), now.as_nanos());
        }
        self.source.handle_done(index, now.as_nanos());
    }

    fn is_done(&self) -> bool {
        self.source.is_done()
    }
}
