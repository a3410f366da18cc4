//! A rotating disk: one arm over zoned tracks, a buffer with readahead, a write cache, and a command queue. The disk
//! serves the request with the shortest positioning time first.
//!
//! The controller decodes one request after another; each costs its command overhead. A read whose sectors are in the
//! buffer, or a write that fits into the cache, uses the interface at once. All other requests wait for the arm, which
//! may be busy meanwhile. The arm seeks, while the data of a write arrives, waits for the rotation to the first sector,
//! and transfers the sectors. After a read, the heads read ahead until another request needs the arm. A queued read of
//! these sectors does not seek: it waits until the heads have passed them.
//!
//! Not modelled: defects, retries, thermal calibration, zones of shingled tracks, and a media cache.

mod geometry;
mod position;
mod seek;
mod segments;
mod spec;
mod write_cache;

use std::collections::VecDeque;

use iopath_core::{Op, Tag};

use crate::event_loop::earlier;
use crate::mechanism::{Completions, Mechanism, Nanos, Request};
use position::Arm;
use segments::Segments;
use write_cache::WriteCache;

pub(crate) use spec::{PARAMETERS, Spec, ZONE};

/// A request that waits for the arm, or for room in the write cache.
#[derive(Debug, Clone, Copy)]
struct Entry {
    tag: Tag,
    is_write: bool,
    start: u64,
    end: u64,
    /// The time at which the controller has decoded the request. The data of a write arrives from then on, at no time
    /// later than the medium needs it.
    ready: Nanos,
    arrived: Nanos,
    /// The track of its first sector.
    track: geometry::Track,
}

/// The current work of the arm.
#[derive(Debug, Clone, Copy)]
enum Job {
    Read { tag: Tag, end: u64, sectors: u64, since: Nanos },
    Write { tag: Tag },
    Destage,
}

/// The next work of the arm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// The index of an entry in the queue.
    Entry(usize),
    /// The index of a run in the write cache.
    Run(usize),
}

/// The state of a rotating disk.
#[derive(Debug)]
pub(crate) struct Disk {
    spec: Spec,
    arm: Arm,
    segments: Segments,
    write_cache: WriteCache,
    /// In the order of arrival.
    queue: Vec<Entry>,
    /// Writes for which the cache has no room.
    waiting: VecDeque<Entry>,
    job: Option<(Nanos, Job)>,
    controller_free: Nanos,
    interface_free: Nanos,
    last_request: Nanos,
    completions: Completions,
    /// The next internal event.
    wake: Option<Nanos>,
    /// The track of the last look-up.
    memo: geometry::Track,
}

impl Disk {
    pub(crate) fn new(spec: &Spec) -> Self {
        let depth = spec.queue_depth;
        Self {
            arm: Arm::new(&spec.mechanics),
            segments: Segments::new(spec.segments, spec.segment_sectors),
            write_cache: WriteCache::new(spec.cache_sectors, spec.cache_runs),
            queue: Vec::with_capacity(depth as usize),
            waiting: VecDeque::with_capacity(depth as usize),
            job: None,
            controller_free: 0,
            interface_free: 0,
            last_request: 0,
            completions: Completions::with_capacity(depth),
            wake: None,
            memo: spec.mechanics.geometry.track(0),
            spec: spec.clone(),
        }
    }

    /// Runs all internal events up to `now`.
    fn advance(&mut self, now: Nanos) {
        while let Some(at) = self.wake.filter(|&at| at <= now) {
            self.step(at);
        }
    }

    /// Executes the internal event at one time. The job ends, which may free room in the cache and complete flushes.
    /// Then the arm begins the next job.
    fn step(&mut self, at: Nanos) {
        if let Some((_, job)) = self.job.take_if(|(until, _)| *until <= at) {
            self.finish(job, at);
        }
        if self.job.is_none() {
            self.start(at);
        }
        self.wake = self.next_step();
    }

    /// The end of the job, or the time at which an idle arm may have work.
    fn next_step(&self) -> Option<Nanos> {
        if let Some((until, _)) = self.job {
            return Some(until);
        }
        let ready = self.queue.iter().map(|entry| entry.ready).min();
        let destage = (!self.write_cache.is_empty()).then(|| self.destage_at());
        earlier(ready, destage)
    }

    /// The time at which an idle arm begins to write cached sectors.
    fn destage_at(&self) -> Nanos {
        let is_urgent = !self.waiting.is_empty()
            || self.write_cache.flush_up_to().is_some()
            || self.write_cache.is_half_full();
        if is_urgent { 0 } else { self.last_request + self.spec.destage_delay }
    }

    fn finish(&mut self, job: Job, at: Nanos) {
        match job {
            Job::Read { tag, end, sectors, since } => {
                self.segments.extend(self.arm.stream_segment(), end);
                let done = self.transfer(since, sectors).max(at);
                self.interface_free = done;
                self.completions.push(tag, done);
            }
            Job::Write { tag } => self.completions.push(tag, at),
            Job::Destage => {
                self.write_cache.written();
                self.accept_waiting(at);
            }
        }
        while let Some(tag) = self.write_cache.pop_flushed() {
            self.completions.push(tag, at.max(self.controller_free));
        }
    }

    /// Moves waiting writes into the cache, in order, while it has room.
    fn accept_waiting(&mut self, at: Nanos) {
        while let Some(entry) = self.waiting.front().copied() {
            if !self.write_cache.has_room(entry.end - entry.start) {
                return;
            }
            self.waiting.pop_front();
            self.accept(&entry, at.max(entry.ready));
        }
    }

    fn accept(&mut self, entry: &Entry, at: Nanos) {
        let done = self.transfer(at, entry.end - entry.start);
        self.write_cache.insert(entry.start, entry.end, &self.arm.geometry);
        self.completions.push(entry.tag, done);
    }

    /// Transfers `sectors` sectors over the interface, not earlier than `from`. Returns the end of the transfer.
    fn transfer(&mut self, from: Nanos, sectors: u64) -> Nanos {
        self.interface_free = self.interface_free.max(from) + ((sectors * self.spec.sector_interface) >> 16);
        self.interface_free
    }

    /// The track of a sector. Needs no division if the sector of the previous call was on the same track.
    fn track(&mut self, sector: u64) -> geometry::Track {
        if !self.memo.contains(sector) {
            self.memo = self.arm.geometry.track(sector);
        }
        self.memo
    }

    /// The controller decodes a command. Returns the time at which it has finished.
    fn decode(&mut self, overhead: Nanos, now: Nanos) -> Nanos {
        self.controller_free = self.controller_free.max(now) + overhead;
        self.controller_free
    }

    fn submit_write(&mut self, tag: Tag, start: u64, end: u64, fua: bool, now: Nanos) {
        let stream = self.arm.stream.as_ref().filter(|_| self.job.is_none());
        if stream.is_some_and(|stream| start < stream.limit && self.segments.get(stream.segment).start < end)
        {
            self.end_stream(now);
        }
        self.segments.invalidate(start, end);
        let mut entry = Entry { tag, is_write: true, start, end, ready: 0, arrived: now, track: self.memo };
        if self.write_cache.is_on() && !fua {
            entry.ready = self.decode(self.spec.buffered_overhead, now);
            if self.waiting.is_empty() && self.write_cache.has_room(end - start) {
                self.accept(&entry, entry.ready);
            } else {
                self.waiting.push_back(entry);
            }
        } else {
            // The arm seeks while the data arrives. The last sector is at the buffer before it is at the head.
            let begun = self.decode(self.spec.overhead, now).max(self.interface_free);
            let arrived = self.transfer(begun, end - start);
            entry.track = self.track(start);
            let last = self.track(end - 1);
            let medium = self.arm.geometry.time(last.turns_to(end) - entry.track.turns_to(start));
            entry.ready = begun.max(arrived.saturating_sub(medium));
            self.queue.push(entry);
        }
    }

    /// Begins the next job of an idle arm. A read whose sectors are in the buffer by now needs no arm and completes at
    /// once.
    fn start(&mut self, at: Nanos) {
        while self.job.is_none() {
            match self.choose(at) {
                Some(Next::Entry(index)) => {
                    let entry = self.queue.remove(index);
                    if entry.is_write {
                        self.job = Some(self.write(&entry, at));
                    } else if self.is_buffered(entry.start, entry.end, at) {
                        let done = self.transfer(at, entry.end - entry.start);
                        self.completions.push(entry.tag, done);
                    } else {
                        self.job = Some(self.read(&entry, at));
                    }
                }
                Some(Next::Run(index)) => {
                    self.end_stream(at);
                    let run = self.write_cache.take(index, self.spec.destage_sectors, &self.arm.geometry);
                    let until = self.arm.write(&run.track, run.start, run.end, at);
                    self.job = Some((until, Job::Destage));
                }
                None => return,
            }
        }
    }

    /// Chooses the next of the ready requests and cached runs. The oldest request is next if it has waited longer than
    /// `queue_age_max_ms`. Otherwise, the shortest positioning time decides. Cached runs compete with requests only
    /// while a write waits for room or a flush waits for the runs.
    fn choose(&mut self, at: Nanos) -> Option<Next> {
        let oldest = self.queue.iter().position(|entry| entry.ready <= at);
        let has_ready = oldest.is_some();
        let is_awaited = !self.waiting.is_empty() || self.write_cache.flush_up_to().is_some();
        let may_destage =
            !self.write_cache.is_empty() && if has_ready { is_awaited } else { self.destage_at() <= at };
        if !has_ready && !may_destage {
            return None;
        }
        if let ([entry], false) = (&self.queue[..], may_destage) {
            return (entry.ready <= at).then_some(Next::Entry(0));
        }
        let mut best = None;
        let from = self.arm.origin(at);
        if let Some(oldest) = oldest {
            if self.queue[oldest].arrived + self.spec.queue_age_max < at {
                return Some(Next::Entry(oldest));
            }
            for (index, entry) in self.queue.iter().enumerate().skip(oldest) {
                if entry.ready > at {
                    continue;
                }
                let is_streamed = !entry.is_write && self.is_streamed(entry.start, entry.end, at);
                let time = if is_streamed {
                    self.arm.stream_time(entry.start).saturating_sub(at)
                } else {
                    self.arm.positioning(
                        &from,
                        &entry.track,
                        entry.track.turns_to(entry.start),
                        entry.is_write,
                    )
                };
                if best.is_none_or(|(least, _)| time < least) {
                    best = Some((time, Next::Entry(index)));
                }
            }
        }
        if may_destage {
            let up_to = self.write_cache.flush_up_to().unwrap_or(u64::MAX);
            for (index, run) in self.write_cache.runs().iter().enumerate() {
                if run.oldest > up_to {
                    continue;
                }
                let time = self.arm.positioning(&from, &run.track, run.track.turns_to(run.start), true);
                if best.is_none_or(|(least, _)| time < least) {
                    best = Some((time, Next::Run(index)));
                }
            }
        }
        best.map(|(_, next)| next)
    }

    /// Whether the readahead has read these sectors, or will reach the first of them without a seek.
    fn is_streamed(&self, start: u64, end: u64, at: Nanos) -> bool {
        self.arm.stream.as_ref().is_some_and(|stream| {
            let is_ahead = end <= stream.limit || (start <= stream.limit && at < stream.stop);
            is_ahead && self.segments.get(stream.segment).start <= start
        })
    }

    /// A read by the arm. It continues the current stream, or begins a stream at the first sector that is in no
    /// segment.
    fn read(&mut self, entry: &Entry, at: Nanos) -> (Nanos, Job) {
        let limit = (entry.end + self.spec.readahead_sectors).min(self.arm.geometry.sectors());
        if !self.is_streamed(entry.start, entry.end, at) {
            self.end_stream(at);
            let found =
                self.segments.find(entry.start).filter(|&index| self.segments.get(index).end < entry.end);
            let segment = found.unwrap_or_else(|| self.segments.begin(entry.start));
            let from = self.segments.get(segment).end.max(entry.start);
            let track = if entry.track.contains(from) { entry.track } else { self.arm.geometry.track(from) };
            self.arm.begin_stream(segment, &track, from, at);
        }
        let until = self.arm.stream_to(entry.end, limit).max(at);
        let job = Job::Read { tag: entry.tag, end: entry.end, sectors: entry.end - entry.start, since: at };
        (until, job)
    }

    fn write(&mut self, entry: &Entry, at: Nanos) -> (Nanos, Job) {
        self.end_stream(at);
        (self.arm.write(&entry.track, entry.start, entry.end, at), Job::Write { tag: entry.tag })
    }

    /// The heads stop reading ahead; the segment keeps the sectors already read.
    fn end_stream(&mut self, at: Nanos) {
        if let Some((segment, end)) = self.arm.end_stream(at) {
            self.segments.extend(segment, end);
        }
    }

    /// Whether the buffer has all sectors of a read. If so, the stream continues to read ahead past the end of the
    /// read.
    fn is_buffered(&mut self, start: u64, end: u64, now: Nanos) -> bool {
        if self.write_cache.contains(start, end) {
            return true;
        }
        let stream = self.arm.stream.as_ref();
        let stream = stream
            .filter(|stream| end <= stream.limit && self.segments.get(stream.segment).start <= start)
            .map(|stream| (stream.segment, stream.limit, stream.stop));
        let Some((segment, limit, stop)) = stream.filter(|_| self.arm.stream_time(end) <= now) else {
            return self.segments.find(start).is_some_and(|index| self.segments.get(index).end >= end);
        };
        self.segments.touch(segment);
        // A stream that has stopped needs a seek before it continues. The sectors already read stay available
        // meanwhile.
        self.segments.extend(segment, if stop <= now { limit } else { end });
        if self.job.is_none() {
            let limit = (end + self.spec.readahead_sectors).min(self.arm.geometry.sectors());
            self.arm.read_on(limit, self.spec.readahead_sectors / 2, now);
        }
        true
    }
}

impl Mechanism for Disk {
    fn submit(&mut self, request: Request, now: Nanos) {
        self.advance(now);
        let Request { tag, op, extent, fua } = request;
        let (start, end) = (extent.start().0, extent.end().0);
        self.last_request = now;
        match op {
            Op::Write => self.submit_write(tag, start, end, fua, now),
            Op::Flush => {
                let ready = self.decode(self.spec.buffered_overhead, now);
                self.write_cache.flush(tag);
                while let Some(tag) = self.write_cache.pop_flushed() {
                    self.completions.push(tag, ready);
                }
            }
            _ if self.is_buffered(start, end, now) => {
                let ready = self.decode(self.spec.buffered_overhead, now);
                let done = self.transfer(ready, end - start);
                self.completions.push(tag, done);
            }
            _ => {
                let is_streamed = self.is_streamed(start, end, now);
                let overhead = if is_streamed { self.spec.buffered_overhead } else { self.spec.overhead };
                let ready = self.decode(overhead, now);
                let track = self.track(start);
                self.queue.push(Entry { tag, is_write: false, start, end, ready, arrived: now, track });
            }
        }
    }

    fn commit(&mut self, now: Nanos) {
        self.advance(now);
        if self.job.is_none() {
            self.step(now);
        }
    }

    fn poll(&mut self, now: Nanos) -> Option<Tag> {
        self.advance(now);
        self.completions.pop(now)
    }

    fn next_event(&self) -> Option<Nanos> {
        earlier(self.completions.next(), self.wake)
    }
}
