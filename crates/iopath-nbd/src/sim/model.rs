//! What an export may contain: for each cell the writes that a read may return, and those that must be durable.
//!
//! A write *supersedes* another one that ended before it began. A read returns no write that another one superseded
//! whose success was known before the read began. A write that failed, or whose end is unknown, may have been executed
//! in part, at any time until a later write of the cell succeeds.

use super::CELL;

/// The order of events. Not a time: several events have the same.
pub(super) type Event = u64;

/// A write of one cell.
#[derive(Debug, Clone, Copy)]
struct Version {
    /// The number of the write; zero: zeroes.
    write: u64,
    began: Event,
    /// When it succeeded or failed.
    ended: Option<Event>,
    succeeded: Option<Event>,
    /// A flush or FUA has made it durable.
    is_durable: bool,
    /// A flush after it failed, so that it may be lost.
    is_reported: bool,
    /// The incarnation of the server in which it succeeded.
    epoch: u32,
    call: usize,
}

/// The contents of an export.
#[derive(Debug)]
pub(super) struct Model {
    cells: Vec<Vec<Version>>,
    /// Incarnations of the server.
    pub(super) epoch: u32,
    next: Event,
    /// When the oldest call in progress began.
    pub(super) oldest: Event,
}

impl Model {
    pub(super) fn new(cells: usize) -> Self {
        let zeroes = Version {
            write: 0,
            began: 0,
            ended: Some(0),
            succeeded: Some(0),
            is_durable: true,
            is_reported: false,
            epoch: 0,
            call: usize::MAX,
        };
        Self { cells: vec![vec![zeroes]; cells], epoch: 0, next: 1, oldest: 0 }
    }

    /// The next event.
    pub(super) fn event(&mut self) -> Event {
        self.next += 1;
        self.next
    }

    /// The bytes of a write, for one cell. Each word names the write and the cell.
    pub(super) fn fill(write: u64, cell: usize, bytes: &mut [u8]) {
        let word = if write == 0 { 0 } else { write << 24 | cell as u64 };
        bytes.chunks_exact_mut(8).for_each(|part| part.copy_from_slice(&word.to_le_bytes()));
    }

    /// A write of cells begins.
    pub(super) fn begin_write(&mut self, call: usize, cells: std::ops::Range<usize>, write: u64) -> Event {
        let began = self.event();
        for cell in cells {
            self.cells[cell].push(Version {
                write,
                began,
                ended: None,
                succeeded: None,
                is_durable: false,
                is_reported: false,
                epoch: 0,
                call,
            });
        }
        began
    }

    /// It has ended, on a connection to the server of `epoch`. A discard does not succeed: its range may keep its
    /// bytes.
    pub(super) fn end_write(
        &mut self,
        call: usize,
        cells: std::ops::Range<usize>,
        succeeded: bool,
        is_durable: bool,
        epoch: u32,
    ) {
        let now = self.event();
        for cell in cells {
            let version = self.cells[cell].iter_mut().find(|version| version.call == call);
            let version = version.expect("the write began");
            version.ended = Some(now);
            version.succeeded = succeeded.then_some(now);
            version.is_durable = is_durable && succeeded;
            version.epoch = epoch;
            self.prune(cell);
        }
    }

    /// A flush that began at `began` has ended.
    pub(super) fn end_flush(&mut self, began: Event, is_reported: bool) {
        for cell in 0..self.cells.len() {
            for version in &mut self.cells[cell] {
                if version.succeeded.is_some_and(|at| at < began) && !version.is_durable {
                    version.is_reported |= is_reported;
                    version.is_durable |= !is_reported && !version.is_reported;
                }
            }
            self.prune(cell);
        }
    }

    /// Forgets versions that no read may return again, if the oldest call in progress began at `oldest`.
    fn prune(&mut self, cell: usize) {
        let oldest = self.oldest;
        let versions = &self.cells[cell];
        let is_known = |other: &&Version| other.is_durable && other.succeeded.is_some_and(|at| at < oldest);
        let began = versions.iter().filter(is_known).map(|other| other.began).max();
        let began = began.unwrap_or(0);
        self.cells[cell].retain(|version| version.ended.is_none_or(|ended| ended >= began));
    }

    /// Whether a read that began at `began` may find this version in a cell.
    fn is_permitted(&self, cell: usize, version: &Version, began: Event) -> bool {
        !self.cells[cell].iter().any(|other| {
            (other.is_durable || other.epoch == self.epoch)
                && other.succeeded.is_some_and(|at| at < began)
                && version.ended.is_some_and(|ended| ended < other.began)
        })
    }

    /// Checks a cell that a read returned, which began at `began`.
    pub(super) fn check_read(&self, cell: usize, bytes: &[u8], began: Event) -> Result<(), String> {
        self.check(cell, bytes, |version| self.is_permitted(cell, version, began))
    }

    /// Checks the durable bytes of a cell after a flush that began at `began` and succeeded.
    pub(super) fn check_durable(&self, cell: usize, bytes: &[u8], began: Event) -> Result<(), String> {
        self.check(cell, bytes, |version| {
            !self.cells[cell].iter().any(|other| {
                !other.is_reported
                    && other.succeeded.is_some_and(|at| at < began)
                    && version.ended.is_some_and(|ended| ended < other.began)
            })
        })
    }

    fn check(&self, cell: usize, bytes: &[u8], permitted: impl Fn(&Version) -> bool) -> Result<(), String> {
        let mut expected = [0; CELL];
        for version in &self.cells[cell] {
            Self::fill(version.write, cell, &mut expected);
            if expected == bytes && permitted(version) {
                return Ok(());
            }
        }
        let word = u64::from_le_bytes(bytes[..8].try_into().expect("a cell is longer"));
        let whole = bytes.chunks_exact(8).all(|part| part == &bytes[..8]);
        let (write, place) = (word >> 24, word & 0xff_ffff);
        let permitted: Vec<u64> = self.cells[cell]
            .iter()
            .filter(|version| permitted(version))
            .map(|version| version.write)
            .collect();
        Err(format!(
            "cell {cell} has write {write} of cell {place}{}, and may have the writes {permitted:?}",
            if whole { "" } else { ", torn" }
        ))
    }
}
