//! The model of the bytes of a volume: for each cell of 64 bytes, the writes whose bytes a read may return, and those
//! that may be left after a power failure. A write that covers a part of a cell has the range of its bytes there, so
//! the model is exact to the byte.
//!
//! Each write has a token, and its bytes are a pattern of the token and the place: see `contents/pattern.rs`. Token 0
//! is zeroes.
//!
//! A write is *superseded* by a later one: one that began after it had ended, or that follows it in the same queue. A
//! read may not return a write if another write superseded it before the read began. A power failure may not leave a
//! write if a durable write superseded it.

mod pattern;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

pub(crate) use pattern::fill;

/// The bytes of a cell.
pub(crate) const CELL: u64 = 64;

/// The token of a discard: after it, any bytes are valid.
pub(crate) const ANY: u64 = u64::MAX;

/// The tokens from here on, except [`ANY`], are writes whose bytes the model keeps: see [`Literal`].
const LITERAL: u64 = 1 << 63;

/// The queue of an I/O that has no order with others: only its start and its end count.
pub(crate) const NO_QUEUE: u8 = u8::MAX;

/// The same for a write through a page cache: its bytes may be in the memory of a program only.
pub(crate) const CACHED: u8 = NO_QUEUE - 1;

/// Whether two I/Os are in the order of one queue.
const fn are_queued(one: u8, other: u8) -> bool {
    one == other && one < CACHED
}

/// A time that has not come.
const NEVER: u64 = u64::MAX;

/// A write, as a cell records it.
#[allow(clippy::struct_excessive_bools, reason = "independent facts")]
#[derive(Debug, Clone, Copy)]
struct Entry {
    token: u64,
    start: u64,
    end: u64,
    queue: u8,
    /// The bytes of the cell that it covers.
    from: u8,
    to: u8,
    /// It has ended without an error.
    is_complete: bool,
    is_durable: bool,
    /// The event since which it is durable.
    durable_at: u64,
    /// A failed flush may have lost it until this event, at which a flush has succeeded. A read that began before may
    /// have taken older bytes from the device.
    at_risk_until: u64,
    /// It was in progress when its owner accepted a loss: the part that had reached the device may be lost.
    is_doomed: bool,
}

impl Entry {
    /// A flush that covers it has succeeded at `end`.
    fn make_durable(&mut self, end: u64) {
        self.is_durable = true;
        self.durable_at = self.durable_at.min(end);
        self.at_risk_until = self.at_risk_until.min(end);
    }

    /// A write in progress, of a whole cell.
    const fn begun(token: u64, start: u64, queue: u8) -> Self {
        Self {
            token,
            start,
            end: NEVER,
            queue,
            from: 0,
            to: CELL as u8,
            is_complete: false,
            is_durable: false,
            durable_at: NEVER,
            at_risk_until: 0,
            is_doomed: false,
        }
    }

    /// A whole cell that has been on the medium since this event.
    const fn durable(token: u64, at: u64) -> Self {
        Self {
            end: at,
            is_complete: true,
            is_durable: true,
            durable_at: at,
            ..Self::begun(token, at, NO_QUEUE)
        }
    }

    /// Whether `later` certainly replaces the bytes of this write, as far as it covers them.
    const fn is_before(&self, later: &Self) -> bool {
        self.end < later.start || are_queued(self.queue, later.queue) && self.start < later.start
    }

    const fn is_whole(&self) -> bool {
        self.from == 0 && self.to == CELL as u8
    }

    const fn covers(&self, from: u8, to: u8) -> bool {
        self.from <= from && to <= self.to
    }

    /// Removes the bytes that `durable` has replaced. Returns false if none is left. Bytes on both sides of it stay one
    /// entry.
    const fn remains_after(&mut self, durable: &Self) -> bool {
        if !self.is_before(durable) {
            return true;
        }
        if durable.covers(self.from, self.to) {
            return false;
        }
        if durable.from <= self.from && self.from < durable.to {
            self.from = durable.to;
        } else if durable.from < self.to && self.to <= durable.to {
            self.to = durable.from;
        }
        true
    }
}

/// A read, as the model sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader {
    pub(crate) start: u64,
    pub(crate) queue: u8,
}

/// A write whose bytes have no pattern.
#[derive(Debug)]
struct Literal {
    offset: u64,
    bytes: Vec<u8>,
}

/// The writes of a volume.
#[derive(Debug)]
pub(crate) struct Contents {
    /// The offset of the first byte, a multiple of a page.
    base: u64,
    cells: Vec<Vec<Entry>>,
    /// Cells whose bytes a silent fault may have changed on the medium.
    damaged: Vec<bool>,
    literals: Vec<Literal>,
    /// Writes that began before this event are those of programs that have died. A later program does not know them, so
    /// it cannot write them again after a failed flush.
    died_at: u64,
    /// Places within a cell at which the volume has ended, by cell.
    ends: BTreeMap<usize, Vec<u8>>,
}

/// A range of bytes that the rules do not permit.
#[derive(Debug)]
pub(crate) struct Wrong {
    offset: u64,
    bytes: u64,
    found: Found,
    allowed: Vec<u64>,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { offset, bytes, found, allowed } = self;
        write!(f, "byte {offset} has {found:?}, not the bytes of writes {allowed:?} ({bytes} bytes)")
    }
}

/// The bytes of a cell or a part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// The bytes of this write, at their place.
    Write(u64),
    /// Any other bytes: the first of them.
    Foreign([u8; 8]),
}

/// A part of a cell to check.
#[derive(Debug, Clone, Copy)]
struct Part<'a> {
    /// The offset of its first byte in the volume.
    offset: u64,
    bytes: &'a [u8],
}

impl Contents {
    /// A volume of zeroes, whose first byte has this offset.
    pub(crate) fn new(base: u64, bytes: u64) -> Self {
        let cells = bytes.div_ceil(CELL) as usize;
        let zeroes = vec![Entry::durable(0, 0)];
        Self {
            base,
            cells: vec![zeroes; cells],
            damaged: vec![false; cells],
            literals: Vec::new(),
            died_at: 0,
            ends: BTreeMap::new(),
        }
    }

    fn cells(&self, bytes: &Range<u64>) -> Range<usize> {
        let last = self.cells.len() as u64;
        let (start, end) = (bytes.start - self.base, bytes.end - self.base);
        ((start / CELL).min(last)) as usize..(end.div_ceil(CELL).min(last)) as usize
    }

    pub(crate) fn begin_write(&mut self, bytes: &Range<u64>, token: u64, start: u64, queue: u8) {
        let (first, last) = (bytes.start - self.base, bytes.end - self.base);
        for cell in self.cells(bytes) {
            let place = cell as u64 * CELL;
            let from = first.saturating_sub(place) as u8;
            let to = (last - place).min(CELL) as u8;
            self.cells[cell].push(Entry { from, to, ..Entry::begun(token, start, queue) });
        }
    }

    /// The same for a write whose bytes have no pattern.
    pub(crate) fn begin_literal(&mut self, offset: u64, bytes: Vec<u8>, start: u64) {
        let range = offset..offset + bytes.len() as u64;
        let token = LITERAL | self.literals.len() as u64;
        self.literals.push(Literal { offset, bytes });
        self.begin_write(&range, token, start, NO_QUEUE);
    }

    /// A write has ended. A write that failed may have left any of its bytes.
    pub(crate) fn end_write(
        &mut self,
        bytes: &Range<u64>,
        start: u64,
        end: u64,
        is_ok: bool,
        is_durable: bool,
    ) {
        for cell in self.cells(bytes) {
            let entries = &mut self.cells[cell];
            let entry = entries.iter_mut().rfind(|entry| entry.start == start).expect("it has begun");
            let is_complete = is_ok && !entry.is_doomed;
            let is_durable = is_complete && is_durable;
            let durable_at = if is_durable { end } else { NEVER };
            *entry = Entry { end, is_complete, is_durable, durable_at, ..*entry };
        }
    }

    /// The discard that began at `start` has left zeroes.
    pub(crate) fn punched(&mut self, bytes: &Range<u64>, start: u64) {
        for cell in self.cells(bytes) {
            let discard = self.cells[cell].iter_mut().rfind(|entry| entry.start == start);
            discard.expect("it has begun").token = 0;
        }
    }

    /// A flush that began at `start` has succeeded at `end`: it covers all writes that had ended. No call in progress
    /// began before `oldest`, and no other program has pages from before `stale`.
    pub(crate) fn flushed(&mut self, start: u64, end: u64, oldest: u64, stale: u64) {
        for entries in &mut self.cells {
            if entries.len() == 1 && entries[0].is_durable {
                continue;
            }
            for entry in entries.iter_mut().filter(|entry| entry.end < start && entry.is_complete) {
                entry.make_durable(end);
            }
            let is_past = |entry: &&Entry| {
                entry.end < oldest && entry.at_risk_until < oldest && entry.durable_at < stale
            };
            let durable = entries.iter().rfind(|entry| entry.is_durable && is_past(entry)).copied();
            match durable {
                Some(durable) if durable.is_whole() => entries.retain(|entry| !entry.is_before(&durable)),
                Some(_) => {
                    let parts: Vec<Entry> =
                        entries.iter().filter(|entry| entry.is_durable && is_past(entry)).copied().collect();
                    entries.retain_mut(|entry| parts.iter().all(|durable| entry.remains_after(durable)));
                }
                None => {}
            }
        }
    }

    /// A flush of a range that began at `start` has succeeded at `end`: it covers the bytes of writes in the range.
    pub(crate) fn flushed_range(&mut self, bytes: &Range<u64>, start: u64, end: u64) {
        let (first, last) = (bytes.start - self.base, bytes.end - self.base);
        for cell in self.cells(bytes) {
            let place = cell as u64 * CELL;
            let is_inside =
                |entry: &Entry| first <= place + u64::from(entry.from) && place + u64::from(entry.to) <= last;
            let covered = |entry: &&mut Entry| entry.end < start && entry.is_complete && is_inside(entry);
            for entry in self.cells[cell].iter_mut().filter(covered) {
                entry.make_durable(end);
            }
        }
    }

    /// A failed flush may have lost each write that is not durable, and what the device has executed of those in
    /// progress.
    pub(crate) fn put_at_risk(&mut self) {
        for entry in self.cells.iter_mut().flatten().filter(|entry| !entry.is_durable) {
            if entry.start < self.died_at {
                (entry.is_doomed, entry.is_complete) = (entry.end == NEVER, false);
            } else {
                entry.at_risk_until = NEVER;
            }
        }
    }

    /// The owner accepts the loss: each write at risk is a failed write.
    pub(crate) fn accept_loss(&mut self) {
        for entry in self.cells.iter_mut().flatten().filter(|entry| entry.at_risk_until == NEVER) {
            (entry.is_doomed, entry.is_complete, entry.at_risk_until) = (entry.end == NEVER, false, 0);
        }
    }

    /// The writes of the program that has died began before this event.
    pub(crate) const fn set_died(&mut self, now: u64) {
        self.died_at = now;
    }

    /// The program has died: its calls have ended, and what was in its page cache may be lost.
    pub(crate) fn die(&mut self, now: u64) {
        for entry in self.cells.iter_mut().flatten().filter(|entry| !entry.is_durable) {
            // A literal in progress is a write of a program that has died before.
            if entry.end == NEVER && (entry.token < LITERAL || entry.token == ANY) {
                (entry.end, entry.is_complete, entry.is_doomed) = (now, false, false);
            } else if entry.queue == CACHED {
                entry.is_complete = false;
            }
        }
    }

    /// The volume ends here for a time: a write that overlaps with the resize may have left its bytes only before the
    /// end.
    pub(crate) fn add_end(&mut self, offset: u64) {
        let (cell, place) = ((offset - self.base) / CELL, (offset - self.base) % CELL);
        if place > 0 {
            let ends = self.ends.entry(cell as usize).or_default();
            if !ends.contains(&(place as u8)) {
                ends.push(place as u8);
            }
        }
    }

    /// A silent fault may have changed the medium at these bytes.
    pub(crate) fn damage(&mut self, bytes: &Range<u64>) {
        let cells = self.cells(bytes);
        self.damaged[cells].fill(true);
    }

    /// Checks bytes that a read returned. Returns the number of cells that silent faults have damaged.
    pub(crate) fn check_read(&self, offset: u64, bytes: &[u8], reader: Reader) -> Result<u64, Wrong> {
        self.check(offset, bytes, |entries, candidate| {
            let hides = |later: &Entry| {
                let is_ordered = are_queued(later.queue, reader.queue) && later.start < reader.start;
                let is_over = later.end < reader.start || is_ordered;
                let is_safe = later.at_risk_until < reader.start;
                later.is_complete && is_safe && is_over && candidate.is_before(later)
            };
            let is_ahead = are_queued(candidate.queue, reader.queue) && candidate.start > reader.start;
            !is_ahead && !entries.iter().any(hides)
        })
    }

    /// Checks bytes that another program has read, which sees all that was durable at this event.
    pub(crate) fn check_stale(&self, offset: u64, bytes: &[u8], since: u64) -> Result<u64, Wrong> {
        self.check(offset, bytes, |entries, candidate| {
            let hides = |later: &Entry| later.durable_at < since && candidate.is_before(later);
            !entries.iter().any(hides)
        })
    }

    /// Checks bytes that a power failure could leave on the medium.
    pub(crate) fn check_survivor(&self, offset: u64, bytes: &[u8]) -> Result<u64, Wrong> {
        self.check(offset, bytes, is_left)
    }

    /// Checks all bytes that a power failure has left of a file without a journal: a block may be stale until the last
    /// write to any part of it is durable.
    pub(crate) fn check_reopened(&self, bytes: &[u8], block_bytes: u64) -> Result<u64, Wrong> {
        let mut damaged = 0;
        for (block, bytes) in (0..).zip(bytes.chunks(block_bytes as usize)) {
            let offset = self.base + block * block_bytes;
            let is_durable = |entries: &Vec<Entry>| {
                let is_gone = |entry: &Entry| {
                    let replaces = |later: &Entry| {
                        later.is_durable && entry.is_before(later) && later.covers(entry.from, entry.to)
                    };
                    entries.iter().any(replaces)
                };
                entries.iter().all(|entry| entry.is_durable || is_gone(entry))
            };
            if self.cells[self.cells(&(offset..offset + block_bytes))].iter().all(is_durable) {
                damaged += self.check(offset, bytes, is_left)?;
            }
        }
        Ok(damaged)
    }

    fn check(
        &self,
        offset: u64,
        bytes: &[u8],
        is_allowed: impl Fn(&[Entry], &Entry) -> bool,
    ) -> Result<u64, Wrong> {
        let mut damaged = 0;
        let mut rest = Part { offset, bytes };
        while !rest.bytes.is_empty() {
            let place = rest.offset - self.base;
            let Some(entries) = self.cells.get((place / CELL) as usize) else { break };
            let (part, after) = rest.split_at((CELL - place % CELL) as usize);
            rest = after;
            let ends = self.ends.get(&((place / CELL) as usize)).map_or(&[][..], Vec::as_slice);
            let checked = if ends.is_empty() && entries.iter().all(Entry::is_whole) {
                self.check_part(entries, part, &is_allowed)
            } else {
                self.check_parts(entries, ends, part, &is_allowed)
            };
            if let Err(wrong) = checked {
                if !self.damaged[(place / CELL) as usize] {
                    return Err(wrong);
                }
                damaged += 1;
            }
        }
        Ok(damaged)
    }

    /// Checks a part of a cell in which writes or the volume begin or end.
    fn check_parts(
        &self,
        entries: &[Entry],
        ends: &[u8],
        part: Part<'_>,
        is_allowed: &impl Fn(&[Entry], &Entry) -> bool,
    ) -> Result<(), Wrong> {
        let first = ((part.offset - self.base) % CELL) as u8;
        let last = first + part.bytes.len() as u8;
        let mut edges: Vec<u8> = entries.iter().flat_map(|entry| [entry.from, entry.to]).collect();
        edges.extend([first, last]);
        edges.extend(ends);
        edges.retain(|edge| (first..=last).contains(edge));
        edges.sort_unstable();
        edges.dedup();
        let mut there = Vec::with_capacity(entries.len());
        let mut rest = part;
        for edge in edges.windows(2) {
            let (part, after) = rest.split_at(usize::from(edge[1] - edge[0]));
            rest = after;
            there.clear();
            there.extend(entries.iter().filter(|entry| entry.covers(edge[0], edge[1])));
            self.check_part(&there, part, is_allowed)?;
        }
        Ok(())
    }

    /// Checks a part of a cell that all of these writes cover.
    fn check_part(
        &self,
        entries: &[Entry],
        part: Part<'_>,
        is_allowed: &impl Fn(&[Entry], &Entry) -> bool,
    ) -> Result<(), Wrong> {
        let Part { offset, bytes } = part;
        let allowed = |entry: &&Entry| is_allowed(entries, entry);
        if entries.iter().rev().any(|entry| self.has(entry.token, part) && allowed(&entry)) {
            return Ok(());
        }
        let known = entries.iter().map(|entry| entry.token).find(|token| self.has(*token, part));
        let found = known.or_else(|| pattern::find(offset, bytes)).map_or_else(
            || Found::Foreign(std::array::from_fn(|index| bytes.get(index).copied().unwrap_or(0))),
            Found::Write,
        );
        let allowed = entries.iter().filter(allowed).map(|entry| entry.token).collect();
        Err(Wrong { offset, bytes: bytes.len() as u64, found, allowed })
    }

    /// Whether bytes are those of a write.
    fn has(&self, token: u64, Part { offset, bytes }: Part<'_>) -> bool {
        match token {
            ANY => true,
            LITERAL.. => {
                let Literal { offset: first, bytes: all } = &self.literals[(token - LITERAL) as usize];
                let start = (offset - first) as usize;
                all[start..start + bytes.len()] == *bytes
            }
            _ => pattern::is_filled(offset, bytes, token),
        }
    }

    /// After a power failure the medium has these bytes: they are durable, and all earlier writes are over.
    pub(crate) fn restart(&mut self, mut bytes: Vec<u8>, now: u64) {
        // A volume may end within a cell.
        bytes.resize(bytes.len().next_multiple_of(CELL as usize), 0);
        self.literals = vec![Literal { offset: self.base, bytes }];
        for entries in &mut self.cells {
            entries.clear();
            entries.push(Entry::durable(LITERAL, now));
        }
    }
}

impl<'a> Part<'a> {
    /// The first bytes, at most `bytes` of them, and the rest.
    fn split_at(self, bytes: usize) -> (Self, Self) {
        let Part { offset, bytes: all } = self;
        let (head, rest): (&'a [u8], &'a [u8]) = all.split_at(bytes.min(all.len()));
        (Part { offset, bytes: head }, Part { offset: offset + head.len() as u64, bytes: rest })
    }
}

/// Whether a power failure may leave this write: no durable write has replaced it. All writes cover the same bytes.
fn is_left(entries: &[Entry], entry: &Entry) -> bool {
    !entries.iter().any(|later| later.is_durable && entry.is_before(later))
}
