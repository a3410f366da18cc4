//! The model of the bytes of a volume: for each cell of 64 bytes, the writes whose bytes a read may return, and those
//! that may be left after a power failure.
//!
//! Each write has a token, and fills each of its cells with a pattern of the token and the place of the cell. So a read
//! tells a stale cell from a cell of another place, and both from damage. Token 0 is zeroes.
//!
//! A write is *superseded* by a later one: one that began after it had ended, or that follows it in the same queue. A
//! read may not return a write if another write superseded it before the read began. A power failure may not leave a
//! write if a durable write superseded it.

use std::fmt;
use std::ops::Range;

/// The bytes of a cell.
pub(crate) const CELL: u64 = 64;

/// The token of a discard: after it, any bytes are valid.
pub(crate) const ANY: u64 = u64::MAX;

/// The queue of an I/O that has no order with others: only its start and its end count.
pub(crate) const NO_QUEUE: u8 = u8::MAX;

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
    /// It has ended without an error.
    is_complete: bool,
    is_durable: bool,
    /// A failed flush may have lost it until this event, at which a flush has succeeded. A read that began before may
    /// have taken older bytes from the device.
    at_risk_until: u64,
    /// It was in progress when its owner accepted a loss: the part that had reached the device may be lost.
    is_doomed: bool,
}

impl Entry {
    /// Whether `later` certainly replaces the bytes of this write.
    const fn is_before(&self, later: &Self) -> bool {
        let is_queued = self.queue == later.queue && self.queue != NO_QUEUE;
        self.end < later.start || is_queued && self.start < later.start
    }
}

/// A read, as the model sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader {
    pub(crate) start: u64,
    pub(crate) queue: u8,
}

/// The writes of a volume.
#[derive(Debug)]
pub(crate) struct Contents {
    cells: Vec<Vec<Entry>>,
    /// Cells whose bytes a silent fault may have changed on the medium.
    damaged: Vec<bool>,
}

/// A cell that holds bytes which the rules do not permit.
#[derive(Debug)]
pub(crate) struct Wrong {
    offset: u64,
    found: Found,
    allowed: Vec<u64>,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {} has {:?}, not the bytes of writes {:?}", self.offset, self.found, self.allowed)
    }
}

/// The bytes of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// The bytes of this write, at their place.
    Write(u64),
    /// Any other bytes.
    Foreign([u8; 8]),
}

impl Contents {
    /// A volume of zeroes, or of any bytes.
    pub(crate) fn new(bytes: u64) -> Self {
        let entry = Entry {
            token: 0,
            start: 0,
            end: 0,
            queue: NO_QUEUE,
            is_complete: true,
            is_durable: true,
            at_risk_until: 0,
            is_doomed: false,
        };
        let cells = bytes.div_ceil(CELL) as usize;
        Self { cells: vec![vec![entry]; cells], damaged: vec![false; cells] }
    }

    fn cells(&self, bytes: &Range<u64>) -> Range<usize> {
        let last = self.cells.len() as u64;
        ((bytes.start / CELL).min(last)) as usize..(bytes.end.div_ceil(CELL).min(last)) as usize
    }

    pub(crate) fn begin_write(&mut self, bytes: &Range<u64>, token: u64, start: u64, queue: u8) {
        let entry = Entry {
            token,
            start,
            end: NEVER,
            queue,
            is_complete: false,
            is_durable: false,
            at_risk_until: 0,
            is_doomed: false,
        };
        for cell in self.cells(bytes) {
            self.cells[cell].push(entry);
        }
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
            *entry = Entry { end, is_complete, is_durable: is_complete && is_durable, ..*entry };
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
    /// began before `oldest`.
    pub(crate) fn flushed(&mut self, start: u64, end: u64, oldest: u64) {
        for entries in &mut self.cells {
            if entries.len() == 1 && entries[0].is_durable {
                continue;
            }
            for entry in entries.iter_mut().filter(|entry| entry.end < start && entry.is_complete) {
                entry.is_durable = true;
                entry.at_risk_until = entry.at_risk_until.min(end);
            }
            let is_past = |entry: &&Entry| entry.end < oldest && entry.at_risk_until < oldest;
            let durable = entries.iter().rfind(|entry| entry.is_durable && is_past(entry)).copied();
            if let Some(durable) = durable {
                entries.retain(|entry| !entry.is_before(&durable));
            }
        }
    }

    /// A failed flush may have lost each write that is not durable, and what the device has executed of those in
    /// progress.
    pub(crate) fn put_at_risk(&mut self) {
        let unflushed = self.cells.iter_mut().flatten().filter(|entry| !entry.is_durable);
        unflushed.for_each(|entry| entry.at_risk_until = NEVER);
    }

    /// The owner accepts the loss: each write at risk is a failed write.
    pub(crate) fn accept_loss(&mut self) {
        for entry in self.cells.iter_mut().flatten().filter(|entry| entry.at_risk_until == NEVER) {
            (entry.is_doomed, entry.is_complete, entry.at_risk_until) = (entry.end == NEVER, false, 0);
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
                let is_ordered = later.queue == reader.queue && reader.queue != NO_QUEUE;
                let is_over = later.end < reader.start || is_ordered && later.start < reader.start;
                let is_safe = later.at_risk_until < reader.start;
                later.is_complete && is_safe && is_over && candidate.is_before(later)
            };
            let is_ahead =
                candidate.queue == reader.queue && reader.queue != NO_QUEUE && candidate.start > reader.start;
            !is_ahead && !entries.iter().any(hides)
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
            let offset = block * block_bytes;
            let is_durable = |entries: &Vec<Entry>| {
                entries.iter().all(|entry| entry.is_durable || !is_left(entries, entry))
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
        for (cell, bytes) in (offset / CELL..).zip(bytes.chunks_exact(CELL as usize)) {
            let Some(entries) = self.cells.get(cell as usize) else { break };
            let found = found(cell, bytes);
            let allowed = |entry: &&Entry| is_allowed(entries, entry);
            let matches = |entry: &Entry| entry.token == ANY || found == Found::Write(entry.token);
            if entries.iter().rev().filter(allowed).any(matches) {
                continue;
            }
            if self.damaged[cell as usize] {
                damaged += 1;
                continue;
            }
            let allowed = entries.iter().filter(allowed).map(|entry| entry.token).collect();
            return Err(Wrong { offset: cell * CELL, found, allowed });
        }
        Ok(damaged)
    }

    /// After a power failure the medium has these bytes: they are durable, and all earlier writes are over.
    pub(crate) fn restart(&mut self, bytes: &[u8], now: u64) {
        for (cell, bytes) in bytes.chunks_exact(CELL as usize).enumerate().take(self.cells.len()) {
            let token = match found(cell as u64, bytes) {
                Found::Write(token) => token,
                Found::Foreign(_) => ANY,
            };
            let (is_complete, is_durable) = (true, true);
            let at_risk_until = 0;
            let is_doomed = false;
            let queue = NO_QUEUE;
            let entry = Entry {
                token,
                start: now,
                end: now,
                queue,
                is_complete,
                is_durable,
                at_risk_until,
                is_doomed,
            };
            self.cells[cell].clear();
            self.cells[cell].push(entry);
        }
    }
}

/// Whether a power failure may leave this write: no durable write has replaced it.
fn is_left(entries: &[Entry], entry: &Entry) -> bool {
    !entries.iter().any(|later| later.is_durable && entry.is_before(later))
}

/// Fills bytes with the pattern of a write.
pub(crate) fn fill(offset: u64, bytes: &mut [u8], token: u64) {
    for (cell, bytes) in (offset / CELL..).zip(bytes.chunks_exact_mut(CELL as usize)) {
        for (half, chunk) in bytes.chunks_exact_mut(16).enumerate() {
            chunk[..8].copy_from_slice(&token.to_le_bytes());
            chunk[8..].copy_from_slice(&mixed(token, cell, half as u64).to_le_bytes());
        }
    }
}

/// A checksum of a part of a cell: a token at another place, or with a changed bit, does not match.
const fn mixed(token: u64, cell: u64, half: u64) -> u64 {
    if token == 0 {
        return 0;
    }
    (token ^ cell.rotate_left(32) ^ half << 61).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

fn found(cell: u64, bytes: &[u8]) -> Found {
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let token = word(0);
    let is_whole =
        (0..4).all(|half| word(half * 16) == token && word(half * 16 + 8) == mixed(token, cell, half as u64));
    if is_whole { Found::Write(token) } else { Found::Foreign(token.to_le_bytes()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_of(token: u64) -> Vec<u8> {
        let mut bytes = vec![0; 128];
        fill(64, &mut bytes, token);
        bytes
    }

    #[test]
    fn a_read_returns_no_write_that_was_superseded_before_it() {
        let mut contents = Contents::new(4096);
        contents.begin_write(&(64..192), 1, 10, NO_QUEUE);
        let reader = |start| Reader { start, queue: NO_QUEUE };
        assert!(contents.check_read(64, &bytes_of(1), reader(11)).is_ok(), "in progress");
        assert!(contents.check_read(64, &[0; 128], reader(11)).is_ok());
        contents.end_write(&(64..192), 10, 12, true, false);
        assert!(contents.check_read(64, &[0; 128], reader(11)).is_ok(), "the read began before the end");
        assert!(contents.check_read(64, &[0; 128], reader(13)).is_err());
        assert!(contents.check_read(64, &bytes_of(2), reader(13)).is_err(), "never written");
        let mut moved = bytes_of(1);
        moved.rotate_left(64);
        assert!(contents.check_read(64, &moved, reader(13)).is_err(), "from another place");
    }

    #[test]
    fn one_queue_orders_by_submission() {
        let mut contents = Contents::new(4096);
        contents.begin_write(&(64..192), 1, 10, 0);
        contents.begin_write(&(64..192), 2, 11, 0);
        let reader = Reader { start: 12, queue: 0 };
        contents.end_write(&(64..192), 10, 20, true, false);
        contents.end_write(&(64..192), 11, 21, true, false);
        assert!(contents.check_read(64, &bytes_of(1), reader).is_err());
        assert!(contents.check_read(64, &bytes_of(2), reader).is_ok());
        let early = Reader { start: 10, queue: 0 };
        assert!(contents.check_read(64, &bytes_of(2), early).is_err(), "a write that was submitted later");
    }

    #[test]
    fn a_flush_makes_completed_writes_durable() {
        let mut contents = Contents::new(4096);
        contents.begin_write(&(64..192), 1, 10, NO_QUEUE);
        contents.end_write(&(64..192), 10, 12, true, false);
        assert!(contents.check_survivor(64, &[0; 128]).is_ok(), "unflushed");
        contents.begin_write(&(64..192), 2, 13, NO_QUEUE);
        contents.flushed(14, 15, 14);
        assert!(contents.check_survivor(64, &[0; 128]).is_err());
        assert!(contents.check_survivor(64, &bytes_of(1)).is_ok());
        assert!(contents.check_survivor(64, &bytes_of(2)).is_ok(), "a later write may be there");
    }

    #[test]
    fn a_read_may_return_bytes_from_before_a_loss_only_if_it_began_before_the_next_good_flush() {
        let mut contents = Contents::new(4096);
        for (token, start) in [(1, 10), (2, 12)] {
            contents.begin_write(&(64..192), token, start, NO_QUEUE);
            contents.end_write(&(64..192), start, start + 1, true, false);
        }
        let reader = |start| Reader { start, queue: NO_QUEUE };
        assert!(contents.check_read(64, &bytes_of(1), reader(14)).is_err(), "no flush has failed");
        contents.put_at_risk();
        assert!(contents.check_read(64, &bytes_of(1), reader(14)).is_ok(), "the device has lost write 2");
        contents.flushed(16, 18, 14);
        assert!(
            contents.check_read(64, &bytes_of(1), reader(14)).is_ok(),
            "taken from the device before the flush"
        );
        assert!(contents.check_read(64, &bytes_of(2), reader(14)).is_ok());
        assert!(contents.check_read(64, &[7; 128], reader(14)).is_err(), "never written");
        assert!(contents.check_read(64, &bytes_of(1), reader(19)).is_err(), "write 2 is on the medium");
        assert!(contents.check_survivor(64, &bytes_of(1)).is_err(), "write 2 is on the medium");
        contents.put_at_risk();
        assert!(contents.check_read(64, &bytes_of(1), reader(19)).is_err(), "a durable write cannot be lost");
    }

    #[test]
    fn without_a_journal_a_block_may_be_stale_until_it_is_durable() {
        let mut contents = Contents::new(1024);
        contents.begin_write(&(64..192), 1, 10, NO_QUEUE);
        contents.end_write(&(64..192), 10, 12, true, false);
        let stale = [[7; 512], [0; 512]].concat();
        assert!(contents.check_survivor(0, &stale).is_err());
        assert!(contents.check_reopened(&stale, 512).is_ok());
        assert!(contents.check_reopened(&[7; 1024], 512).is_err(), "the second block was never written");
        contents.flushed(13, 14, 13);
        assert!(contents.check_reopened(&stale, 512).is_err());
        let mut whole = vec![0; 1024];
        fill(64, &mut whole[64..192], 1);
        assert!(contents.check_reopened(&whole, 512).is_ok());
    }

    #[test]
    fn a_failed_write_may_be_there_until_the_next() {
        let mut contents = Contents::new(4096);
        contents.begin_write(&(64..192), 1, 10, NO_QUEUE);
        contents.end_write(&(64..192), 10, 12, false, false);
        let reader = Reader { start: 13, queue: NO_QUEUE };
        assert!(contents.check_read(64, &bytes_of(1), reader).is_ok());
        assert!(contents.check_read(64, &[0; 128], reader).is_ok());
        contents.begin_write(&(64..192), 2, 14, NO_QUEUE);
        contents.end_write(&(64..192), 14, 15, true, false);
        let reader = Reader { start: 16, queue: NO_QUEUE };
        assert!(contents.check_read(64, &bytes_of(1), reader).is_err());
    }

    #[test]
    fn a_damaged_cell_is_counted() {
        let mut contents = Contents::new(4096);
        contents.damage(&(64..128));
        let reader = Reader { start: 1, queue: NO_QUEUE };
        assert_eq!(contents.check_read(64, &[7; 64], reader).ok(), Some(1));
        assert!(contents.check_read(128, &[7; 64], reader).is_err());
    }
}
