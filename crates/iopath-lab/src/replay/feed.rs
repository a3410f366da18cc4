//! Reads a trace ahead of its submission: a thread for each target, which stays a bounded number of I/Os ahead.

use std::collections::HashMap;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use iopath_bench::Interruption;
use iopath_core::{Op, SECTOR_BYTES};
use iopath_log::LogError;
use iopath_report::replay::ReplayTiming;
use iopath_trace::Io;

use super::placement::{Placed, Placement};
use super::scan::{Selection, open};
use crate::recorded_times::{Completions, Link};

/// I/Os that are passed to the submitting thread together.
const CHUNK: usize = 256;

/// Chunks that the reader is ahead at most: 64 Ki I/Os, 5 MiB.
const CHUNKS_AHEAD: usize = 256;

/// An I/O on its way to the target.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrival {
    /// The recorded time of its submission since the first I/O of the replay.
    pub(super) at_ns: u64,
    /// The completion that it follows, in a closed loop.
    pub(super) link: Link,
    pub(super) op: Op,
    pub(super) is_fua: bool,
    pub(super) place: Placed,
    pub(super) stream: u32,
    pub(super) recorded_ns: Option<u64>,
}

/// The I/Os of one recorded device.
#[derive(Debug)]
pub(super) struct Feed<'a> {
    pub(super) trace: &'a Path,
    pub(super) selection: &'a Selection,
    pub(super) queue: Option<u16>,
    pub(super) placement: Placement,
    /// The time of the first I/O of all devices.
    pub(super) first_ns: u64,
    pub(super) timing: ReplayTiming,
    /// The I/Os to send.
    pub(super) planned: u64,
}

/// A channel from the reader to the submitting thread.
pub(super) fn channel() -> (SyncSender<Vec<Arrival>>, Receiver<Vec<Arrival>>) {
    sync_channel(CHUNKS_AHEAD)
}

impl Feed<'_> {
    /// Sends all I/Os in the order of their submission. Ends early when the receiver is dropped.
    ///
    /// # Errors
    /// If the trace cannot be read further. All I/Os before were sent.
    pub(super) fn run(&self, sender: &SyncSender<Vec<Arrival>>) -> Result<(), LogError> {
        let mut ios = open(self.trace, self.selection.level, self.queue)?;
        let mut streams = HashMap::new();
        let mut chunk = Vec::with_capacity(CHUNK);
        let mut left = self.planned;
        loop {
            let next = if left == 0 || Interruption::is_requested() { Ok(None) } else { ios.next() };
            if let Ok(Some(io)) = &next {
                let arrival = self.arrival(io, &mut streams);
                left -= u64::from(arrival.is_some());
                chunk.extend(arrival);
            }
            let is_last = !matches!(next, Ok(Some(_)));
            if chunk.len() == CHUNK || is_last {
                let full = std::mem::replace(&mut chunk, Vec::with_capacity(CHUNK));
                if sender.send(full).is_err() {
                    return Ok(());
                }
            }
            if is_last {
                return next.map(drop);
            }
        }
    }

    fn arrival(&self, io: &Io, streams: &mut HashMap<u32, Completions>) -> Option<Arrival> {
        if !self.selection.admits(io) {
            return None;
        }
        let Io { op, is_fua, stream, latency_ns, .. } = *io;
        let at_ns = io.at_ns.saturating_sub(self.first_ns);
        let place = match op {
            Op::Flush => Placed { offset: 0, bytes: 0, is_widened: false },
            // The first pass has checked that the largest range fits. The file may have changed since.
            _ => self.placement.place(io.sector * SECTOR_BYTES, io.sectors * SECTOR_BYTES)?,
        };
        // Not before the place: an I/O that is not replayed completes none.
        let link = match self.timing {
            ReplayTiming::Closed => {
                let done_ns = latency_ns.map(|latency_ns| at_ns.saturating_add(latency_ns));
                streams.entry(stream).or_default().link(at_ns, done_ns)
            }
            _ => Link { after: 0, think_ns: at_ns },
        };
        Some(Arrival { at_ns, link, op, is_fua, place, stream, recorded_ns: latency_ns })
    }
}
