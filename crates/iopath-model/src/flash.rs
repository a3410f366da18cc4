//! A solid-state disk: dies behind channels, a controller, an interface, a write buffer, and the work of garbage
//! collection.
//!
//! A read uses the controller, its dies, their channels and the interface, in this order. Each of these serves one
//! request at a time. A write completes in the buffer. The controller programs the data of the buffer to the dies, in
//! units. While the buffer is full, writes wait. After a program, a die also copies pages and erases blocks; `gc.rs`
//! computes how many.
//!
//! Not modelled: the mapping of pages (data lies striped over the dies by address), wear, read disturb, SLC caches and
//! the suspension of programs.

mod amplification;
mod gc;
mod spec;

use std::collections::VecDeque;

use iopath_core::{Op, Tag};

use crate::divisor::Divisor;
use crate::event_loop::earlier;
use crate::mechanism::{Completions, Mechanism, Nanos, Request};
use crate::schedule::Schedule;
use gc::Collector;

pub(crate) use spec::{PARAMETERS, Spec};

/// A read whose pages come from several dies.
#[derive(Debug, Clone, Copy)]
struct Read {
    tag: Tag,
    pages: u32,
    bytes: u64,
    /// The times at which the first and the latest page have reached the controller.
    first: Nanos,
    last: Nanos,
}

/// Work that ends at a known time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// A die has read a page of the read in this slot; `bytes` bytes of the page pass the channel.
    Page { slot: u32, die: u32, bytes: u32 },
    /// A die has programmed a unit with `bytes` bytes of the buffer.
    Program { bytes: u32 },
}

/// The state of a solid-state disk.
#[derive(Debug)]
pub(crate) struct Flash {
    spec: Spec,
    page_bytes: Divisor,
    dies: Divisor,
    channels: Divisor,
    controller_free: Nanos,
    interface_free: Nanos,
    die_free: Vec<Nanos>,
    channel_free: Vec<Nanos>,
    collector: Collector,
    events: Schedule<End>,
    reads: Vec<Read>,
    free_slots: Vec<u32>,
    /// Bytes in the write buffer, including those being programmed.
    buffered: u64,
    /// Bytes in the buffer that are not yet part of a unit, and the number of these bytes that were written at random.
    pending: u64,
    pending_random: u64,
    programs: u32,
    next_die: u32,
    /// Writes without room in the buffer.
    waiting: VecDeque<Request>,
    /// Flushes, each with the number of programs that must end before it completes.
    flushes: VecDeque<(u64, Tag)>,
    programs_begun: u64,
    programs_ended: u64,
    completions: Completions,
}

impl Flash {
    pub(crate) fn new(spec: &Spec, depth_max: u32) -> Self {
        let none = Read { tag: Tag::from_bits(0), pages: 0, bytes: 0, first: 0, last: 0 };
        let [page_bytes, dies, channels] =
            [spec.page_bytes, spec.dies.into(), spec.channels.into()].map(Divisor::new);
        Self {
            page_bytes,
            dies,
            channels,
            controller_free: 0,
            interface_free: 0,
            die_free: vec![0; spec.dies as usize],
            channel_free: vec![0; spec.channels as usize],
            collector: Collector::new(spec),
            events: Schedule::with_capacity(depth_max as usize * 2 + spec.dies as usize),
            reads: vec![none; depth_max as usize],
            free_slots: (0..depth_max).rev().collect(),
            buffered: 0,
            pending: 0,
            pending_random: 0,
            programs: 0,
            next_die: 0,
            waiting: VecDeque::with_capacity(depth_max as usize),
            flushes: VecDeque::new(),
            programs_begun: 0,
            programs_ended: 0,
            completions: Completions::with_capacity(depth_max),
            spec: spec.clone(),
        }
    }

    fn advance(&mut self, now: Nanos) {
        while let Some((at, end)) = self.events.pop(now) {
            match end {
                End::Page { slot, die, bytes } => self.collect_page(slot, die, bytes, at),
                End::Program { bytes } => self.end_program(bytes, at),
            }
        }
    }

    fn decode(&mut self, now: Nanos) -> Nanos {
        self.controller_free = self.controller_free.max(now) + self.spec.command;
        self.controller_free
    }

    /// Begins a read: each page starts on its die after the earlier work of that die.
    fn read(&mut self, request: &Request, now: Nanos) {
        let at = self.decode(now);
        let Some(slot) = self.free_slots.pop() else { unreachable!("the depth limits the reads") };
        let mut offset = request.extent.offset();
        let end = request.extent.offset() + request.extent.bytes();
        let mut pages = 0;
        while offset < end {
            let page = self.page_bytes.div(offset);
            let next = ((page + 1) * self.page_bytes.get()).min(end);
            let die = self.dies.rem(page) as u32;
            let free = &mut self.die_free[die as usize];
            *free = (*free).max(at) + self.spec.read;
            let read = *free;
            self.events.push(End::Page { slot, die, bytes: (next - offset) as u32 }, read);
            (offset, pages) = (next, pages + 1);
        }
        let bytes = request.extent.bytes();
        self.reads[slot as usize] = Read { tag: request.tag, pages, bytes, first: Nanos::MAX, last: 0 };
    }

    /// Passes a page over the channel. After the last page, passes the data of the read over the interface.
    fn collect_page(&mut self, slot: u32, die: u32, bytes: u32, at: Nanos) {
        let collected = self.pass_channel(die, u64::from(bytes), at);
        let read = &mut self.reads[slot as usize];
        read.first = read.first.min(collected);
        read.last = read.last.max(collected);
        read.pages -= 1;
        if read.pages > 0 {
            return;
        }
        let Read { tag, bytes, first, last, .. } = *read;
        self.free_slots.push(slot);
        // The transfer over the interface begins when the first page has arrived.
        self.interface_free = (self.interface_free.max(first) + self.spec.interface_time(bytes)).max(last);
        self.completions.push(tag, self.interface_free + self.spec.read_latency);
    }

    fn pass_channel(&mut self, die: u32, bytes: u64, at: Nanos) -> Nanos {
        let channel = self.channels.rem(die.into()) as usize;
        let free = self.channel_free[channel].max(at) + self.spec.channel_time(bytes);
        self.channel_free[channel] = free;
        free
    }

    /// Whether the buffer has room for a write. An empty buffer accepts a write of any size.
    fn has_room(&self, bytes: u64) -> bool {
        self.buffered == 0 || self.buffered + bytes <= self.spec.buffer_bytes
    }

    fn write(&mut self, request: &Request, at: Nanos) {
        let bytes = request.extent.bytes();
        self.interface_free = self.interface_free.max(at) + self.spec.interface_time(bytes);
        let buffered = self.interface_free;
        self.completions.push(request.tag, buffered + self.spec.write_latency);
        let is_random = !self.collector.is_sequential(request.extent.start().0, request.extent.end().0);
        self.buffered += bytes;
        self.pending += bytes;
        self.pending_random += if is_random { bytes } else { 0 };
        while self.pending >= self.spec.unit_bytes {
            self.program(self.spec.unit_bytes, buffered);
        }
    }

    /// The die that is free first; of several, the next in round-robin order. So an erase on one die does not delay
    /// writes to others.
    fn pick_die(&mut self) -> u32 {
        let dies = self.spec.dies;
        let in_turn = (self.next_die..dies).chain(0..self.next_die);
        let die = in_turn.min_by_key(|&die| self.die_free[die as usize]).unwrap_or(0);
        self.next_die = (die + 1) % dies;
        die
    }

    /// Programs a unit of the buffer on a die, which also collects garbage.
    fn program(&mut self, bytes: u64, at: Nanos) {
        let die = self.pick_die();
        let random = self.pending_random * bytes / self.pending.max(1);
        self.pending -= bytes;
        self.pending_random -= random;
        let loaded = self.pass_channel(die, self.spec.unit_bytes, at);
        let extra = self.collector.after_program(random);
        let free = &mut self.die_free[die as usize];
        let programmed = (*free).max(loaded) + self.spec.program;
        *free = programmed + extra;
        self.programs += 1;
        self.programs_begun += 1;
        // The data stays in the buffer until the die can begin another program. So garbage collection slows writes
        // down.
        let ended = *free;
        self.events.push(End::Program { bytes: bytes as u32 }, ended);
    }

    fn end_program(&mut self, bytes: u32, at: Nanos) {
        self.buffered -= u64::from(bytes);
        self.programs -= 1;
        self.programs_ended += 1;
        while let Some(&(_, tag)) =
            self.flushes.front().filter(|(programs, _)| *programs <= self.programs_ended)
        {
            self.flushes.pop_front();
            self.completions.push(tag, at);
        }
        self.admit(at);
    }

    /// Moves waiting writes into the buffer while it has room. If no program is in flight to free room, programs a
    /// partly filled unit.
    fn admit(&mut self, at: Nanos) {
        while let Some(request) = self.waiting.front().copied() {
            if self.has_room(request.extent.bytes()) {
                self.waiting.pop_front();
                self.write(&request, at);
            } else if self.programs == 0 && self.pending > 0 {
                self.program(self.pending, at);
            } else {
                return;
            }
        }
    }

    fn flush(&mut self, tag: Tag, now: Nanos) {
        let at = self.decode(now);
        if !self.spec.is_volatile {
            self.completions.push(tag, at);
            return;
        }
        if self.pending > 0 {
            self.program(self.pending, at);
        }
        if self.programs_begun == self.programs_ended {
            self.completions.push(tag, at);
        } else {
            self.flushes.push_back((self.programs_begun, tag));
        }
    }
}

impl Mechanism for Flash {
    fn submit(&mut self, request: Request, now: Nanos) {
        self.advance(now);
        match request.op {
            Op::Read => self.read(&request, now),
            Op::Flush => self.flush(request.tag, now),
            _ => {
                let at = self.decode(now);
                self.waiting.push_back(request);
                self.admit(at);
            }
        }
    }

    fn commit(&mut self, now: Nanos) {
        self.advance(now);
    }

    fn poll(&mut self, now: Nanos) -> Option<Tag> {
        self.advance(now);
        self.completions.pop(now)
    }

    /// The time of a completion, or the earliest time of a completion that an event may cause.
    fn next_event(&self) -> Option<Nanos> {
        let event =
            self.events.next().map(|at| if self.programs == 0 { at + self.spec.read_latency } else { at });
        earlier(self.completions.next(), event)
    }
}

#[cfg(test)]
mod tests {
    use iopath_core::{Extent, Sector};
    use rand_xoshiro::Xoshiro256PlusPlus;
    use rand_xoshiro::rand_core::{RngCore, SeedableRng};

    use super::*;

    /// One disk is polled at its events only, the other also a nanosecond before each.
    #[test]
    fn no_request_completes_before_the_next_event() {
        // Flushes wait for programs, and writes wait for room.
        let overrides = [("buffer_is_volatile", "1"), ("write_buffer_kib", "1024")];
        let model = crate::Model::preset_with("ssd-nvme", &overrides).unwrap();
        let crate::model::Spec::Flash(spec) = model.spec() else {
            unreachable!("the preset is of this kind")
        };
        let [mut disk, mut other] = [0, 1].map(|_| Flash::new(spec, 1024));
        let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
        let (mut now, mut completed, requests) = (0, 0, 3000);
        for bits in 0..requests {
            let draw = random.next_u64();
            let op = [Op::Read, Op::Read, Op::Read, Op::Write, Op::Flush][draw as usize % 5];
            let sectors = if op == Op::Flush { 0 } else { 1 + (draw >> 8) % 64 };
            let extent = Extent::new(Sector((draw >> 16) % 1_000_000), sectors).unwrap();
            let request = Request { tag: Tag::from_bits(bits), op, extent, fua: false };
            for disk in [&mut disk, &mut other] {
                disk.submit(request, now);
                disk.commit(now);
            }
            let until = if bits + 1 == requests { Nanos::MAX } else { now + (draw >> 40) % 40_000 };
            while let Some(at) = disk.next_event().filter(|at| *at <= until) {
                assert_eq!(other.poll(at.max(now + 1) - 1), None, "before {at}");
                while let Some(tag) = disk.poll(at) {
                    assert_eq!(other.poll(at), Some(tag));
                    completed += 1;
                }
                now = at;
            }
            now = until;
        }
        assert_eq!(completed, requests);
    }
}
