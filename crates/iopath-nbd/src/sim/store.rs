//! Modelled storage below the server: a volatile and a durable version of each cell, delays, errors, stuck I/O, and
//! completions in any order, except of I/O that overlaps, which completes in the order of submission.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ops::{Deref, DerefMut, Range};
use std::rc::Rc;
use std::time::Duration;

use iopath::Stream;

use super::CELL;
use super::clock::{Clock, Nanos};
use super::random::Random;
use crate::errno::Errno;
use crate::serve::storage::{Data, Done, Io, PIECE, Pages, Storage, Zeroing};

/// The behaviour of a disk.
#[derive(Debug, Clone, Copy)]
pub(super) struct Faults {
    /// Longest time of an I/O.
    pub(super) delay_max: Nanos,
    /// One I/O in so many fails; zero: none.
    pub(super) error: u64,
    /// One flush in so many fails.
    pub(super) flush_error: u64,
    /// One I/O in so many takes `stuck` longer.
    pub(super) stuck_one_in: u64,
    pub(super) stuck: Nanos,
    /// One read in so many finds its pages in a cache.
    pub(super) cached: u64,
}

/// The contents of a disk. It outlives the servers.
#[derive(Debug)]
pub(super) struct Disk {
    pub(super) volatile: Vec<u8>,
    pub(super) durable: Vec<u8>,
    /// When the cell was first written since it was durable, in writes of the disk.
    dirty: Vec<Option<u64>>,
    writes: u64,
    pub(super) faults: Faults,
    pub(super) random: Random,
    /// Buffers of the present server.
    buffers_max: u32,
    pub(super) is_calm: bool,
}

impl Disk {
    pub(super) fn new(cells: usize, faults: Faults, buffers_max: u32, random: Random) -> Self {
        let bytes = vec![0; cells * CELL];
        Self {
            durable: bytes.clone(),
            volatile: bytes,
            dirty: vec![None; cells],
            writes: 0,
            faults,
            random,
            buffers_max,
            is_calm: false,
        }
    }

    fn write(&mut self, cell: usize, bytes: &[u8], is_durable: bool) {
        let range = cell * CELL..(cell + 1) * CELL;
        self.volatile[range.clone()].copy_from_slice(bytes);
        self.writes += 1;
        self.dirty[cell].get_or_insert(self.writes);
        if is_durable {
            self.persist(cell);
        }
    }

    fn persist(&mut self, cell: usize) {
        let range = cell * CELL..(cell + 1) * CELL;
        self.durable[range.clone()].copy_from_slice(&self.volatile[range]);
        self.dirty[cell] = None;
    }

    /// Makes durable what was written before `writes`: a cell that was written again has its last bytes.
    fn flush(&mut self, writes: u64) {
        for cell in 0..self.dirty.len() {
            if self.dirty[cell].is_some_and(|at| at <= writes) || self.random.one_in(4) {
                self.persist(cell);
            }
        }
    }

    /// Writes a range of whole cells.
    pub(super) fn write_range(&mut self, offset: u64, bytes: &[u8], is_durable: bool) {
        for (cell, bytes) in (offset as usize / CELL..).zip(bytes.chunks_exact(CELL)) {
            self.write(cell, bytes, is_durable);
        }
    }

    /// Makes everything durable.
    pub(super) fn flush_all(&mut self) {
        self.flush(self.writes);
    }

    /// The power fails: an unflushed cell is durable or lost.
    pub(super) fn fail_power(&mut self) {
        for cell in 0..self.dirty.len() {
            if self.dirty[cell].is_some() && self.random.one_in(2) {
                self.persist(cell);
            }
            self.dirty[cell] = None;
        }
        self.volatile.copy_from_slice(&self.durable);
    }
}

/// A buffer of the server.
#[derive(Debug)]
pub(crate) struct Buffer {
    bytes: Box<[u8]>,
    used: Rc<Cell<u32>>,
    spare: Rc<RefCell<Vec<Box<[u8]>>>>,
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.used.set(self.used.get() - 1);
        self.spare.borrow_mut().push(std::mem::take(&mut self.bytes));
    }
}

/// Pages of a modelled cache, in parts.
#[derive(Debug)]
pub(crate) struct Cached(Box<[u8]>);

impl Pages for Cached {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn slices(&self) -> impl Iterator<Item = &[u8]> {
        self.0.chunks(4096)
    }
}

#[derive(Debug)]
struct Pending {
    io: Io<Buffer>,
    token: u64,
    /// Cells that it accesses.
    cells: Range<usize>,
    is_write: bool,
    /// Writes of the disk at its submission.
    writes: u64,
    /// `None`: queued.
    due: Option<Nanos>,
}

/// What a server needs to open the disk.
#[derive(Debug)]
pub(crate) struct Opener {
    pub(super) disk: Rc<RefCell<Disk>>,
    pub(super) clock: Clock,
}

/// The disk of one server.
#[derive(Debug)]
pub(crate) struct Store {
    disk: Rc<RefCell<Disk>>,
    clock: Clock,
    used: Rc<Cell<u32>>,
    spare: Rc<RefCell<Vec<Box<[u8]>>>>,
    /// In the order of submission.
    pending: VecDeque<Pending>,
    completed: VecDeque<Done<Self>>,
}

impl Store {
    fn overlaps(&self, cells: &Range<usize>) -> bool {
        let of = |other: &Pending| other.cells.start < cells.end && cells.start < other.cells.end;
        self.pending.iter().any(|other| other.is_write && of(other))
    }

    /// No I/O is stuck from now on.
    pub(super) fn release(&mut self) {
        let now = self.clock.now();
        self.pending
            .iter_mut()
            .filter(|pending| pending.due.is_some())
            .for_each(|pending| pending.due = Some(now));
    }

    /// The process dies: each I/O in flight is executed or not, cell by cell.
    pub(super) fn kill(&mut self) {
        for pending in std::mem::take(&mut self.pending) {
            self.execute(pending, Some(2));
        }
    }

    /// Executes an I/O. With `lost`, one cell in so many is not written.
    fn execute(&mut self, pending: Pending, lost: Option<u64>) -> Done<Self> {
        let Pending { io, token, cells, writes, .. } = pending;
        let disk = &mut *self.disk.borrow_mut();
        let Faults { error, flush_error, .. } = disk.faults;
        let is_flush = matches!(io, Io::Flush);
        let fails = !disk.is_calm && disk.random.one_in(if is_flush { flush_error } else { error });
        let lost = if fails { Some(2) } else { lost };
        let mut data = None;
        let length = (cells.end - cells.start) * CELL;
        match io {
            Io::Read { mut buffer, offset, length } => {
                let from = offset as usize;
                buffer[..length].copy_from_slice(&disk.volatile[from..from + length]);
                data = Some(Data::Buffer(buffer, length));
            }
            Io::Write { buffer, is_durable, .. } => {
                for (number, cell) in cells.enumerate() {
                    if !lost.is_some_and(|lost| disk.random.one_in(lost)) {
                        let bytes = &buffer[number * CELL..(number + 1) * CELL];
                        disk.write(cell, bytes, is_durable);
                    }
                }
            }
            Io::Discard { .. } | Io::Zeroes { .. } => {
                for cell in cells {
                    if !lost.is_some_and(|lost| disk.random.one_in(lost)) {
                        disk.write(cell, &[0; CELL], false);
                    }
                }
            }
            Io::Flush if lost.is_none() => disk.flush(writes),
            Io::Flush => {}
        }
        let result = if fails { Err((Errno::IO, "modelled error".to_owned())) } else { Ok(length) };
        Done { token, data: data.filter(|_| !fails), result }
    }
}

fn cells_of<B>(io: &Io<B>) -> Range<usize> {
    let (offset, length) = match *io {
        Io::Read { offset, length, .. } | Io::Write { offset, length, .. } => (offset, length as u64),
        Io::Discard { offset, length } | Io::Zeroes { offset, length } => (offset, length),
        Io::Flush => (0, 0),
    };
    offset as usize / CELL..(offset + length) as usize / CELL
}

impl Storage for Store {
    type Buffer = Buffer;
    type Pages = Cached;
    type Source = Opener;

    fn open(source: &mut Opener, _export: usize) -> Result<Self, String> {
        Ok(Self {
            disk: Rc::clone(&source.disk),
            clock: source.clock.clone(),
            used: Rc::default(),
            spare: Rc::default(),
            pending: VecDeque::new(),
            completed: VecDeque::new(),
        })
    }

    fn buffer(&self) -> Option<Buffer> {
        if self.used.get() >= self.disk.borrow().buffers_max {
            return None;
        }
        self.used.set(self.used.get() + 1);
        // A stale buffer must not look like the data of a request.
        let mut bytes = self.spare.borrow_mut().pop().unwrap_or_else(|| vec![0; PIECE].into());
        bytes[..CELL].fill(0xd5);
        Some(Buffer { bytes, used: Rc::clone(&self.used), spare: Rc::clone(&self.spare) })
    }

    fn read_cached(&mut self, offset: u64, length: usize, token: u64) -> bool {
        let cells = offset as usize / CELL..(offset as usize + length) / CELL;
        let disk = &mut *self.disk.borrow_mut();
        if !disk.random.one_in(disk.faults.cached) || self.overlaps(&cells) {
            return false;
        }
        let bytes = disk.volatile[offset as usize..offset as usize + length].into();
        self.completed.push_back(Done { token, data: Some(Data::Pages(Cached(bytes))), result: Ok(length) });
        true
    }

    fn queue(&mut self, io: Io<Buffer>, token: u64, _stream: Stream) {
        assert!(self.has_room(), "the server checks for room");
        let cells = cells_of(&io);
        let is_write = !matches!(io, Io::Read { .. } | Io::Flush);
        self.pending.push_back(Pending { io, token, cells, is_write, writes: 0, due: None });
    }

    fn has_room(&self) -> bool {
        self.pending.len() < self.disk.borrow().buffers_max as usize
    }

    fn handle_notification(&mut self) {}

    fn submit(&mut self) {
        while let Some(at) = self.pending.iter().position(|pending| pending.due.is_none()) {
            let mut pending = self.pending.remove(at).expect("it was found");
            let earlier = {
                let others = self.pending.iter().take(at).filter(|other| {
                    (pending.is_write || other.is_write)
                        && other.cells.start < pending.cells.end
                        && pending.cells.start < other.cells.end
                });
                others.filter_map(|other| other.due).max().unwrap_or(0)
            };
            let mut disk = self.disk.borrow_mut();
            let Faults { delay_max, stuck_one_in, stuck, .. } = disk.faults;
            let mut delay = disk.random.below(delay_max + 1);
            if !disk.is_calm && disk.random.one_in(stuck_one_in) {
                delay += disk.random.below(stuck + 1);
            }
            pending.due = Some((self.clock.now() + delay).max(earlier));
            pending.writes = disk.writes;
            drop(disk);
            self.pending.insert(at, pending);
        }
    }

    fn poll(&mut self) -> Option<Done<Self>> {
        if let Some(done) = self.completed.pop_front() {
            return Some(done);
        }
        let now = self.clock.now();
        // Of those that are due, the earliest; of equal ones, the first: overlapping ones are in order.
        let next = self.pending.iter().enumerate().filter_map(|(at, pending)| Some((pending.due?, at))).min();
        let (_, at) = next.filter(|(due, _)| *due <= now)?;
        let pending = self.pending.remove(at).expect("it was found");
        Some(self.execute(pending, None))
    }

    fn next_timeout(&self) -> Option<Duration> {
        if !self.completed.is_empty() {
            return Some(Duration::ZERO);
        }
        let due = self.pending.iter().filter_map(|pending| pending.due).min()?;
        Some(Duration::from_nanos(due.saturating_sub(self.clock.now())))
    }

    fn zeroing(&self) -> Zeroing {
        Zeroing { punches: true, is_file: true, block_bytes: CELL as u32 }
    }

    fn data_ranges(&self, offset: u64, length: u64, ranges_max: usize) -> Result<Vec<Range<u64>>, String> {
        let cells = offset / CELL as u64..(offset + length).div_ceil(CELL as u64);
        let ranges = cells.filter(|cell| cell % 3 > 0);
        Ok(ranges.map(|cell| cell * CELL as u64..(cell + 1) * CELL as u64).take(ranges_max).collect())
    }

    fn prefetch(&self, _offset: u64, _length: u64) {}
}
