//! A modelled disk with bytes and a volatile write cache. It moves bytes from and to the simulated memory, so a request
//! whose memory is wrong is a wrong byte. Queues share a disk: each has a port. `disk/power.rs` has the write cache:
//! flushes, power failures, and disks that lie about flushes. `disk/orphans.rs` has the requests of programs that have
//! died, and `disk/file.rs` the length of a disk that is a file.

mod file;
mod orphans;
mod power;

pub(crate) use orphans::Orphan;

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use iopath_core::{
    BlockDevice, Busy, Completion, Duration, Extent, Instant, Io, IoError, Limits, Memory, Op, SECTOR_BYTES,
    Tag,
};

use crate::arena::{Arena, Moved, Span};
use file::Lengths;
use power::Lies;

const SECTOR: usize = SECTOR_BYTES as usize;

/// Properties of a disk, drawn for each run.
#[derive(Debug, Clone)]
pub(crate) struct DiskConfig {
    pub(crate) limits: Limits,
    /// The time of a request without its seek.
    pub(crate) latency: Duration,
    /// The time of a seek for each sector of its distance.
    pub(crate) seek_nanos: u64,
    /// Requests that are executed at the same time.
    pub(crate) channels: usize,
    /// A write takes its bytes when it begins, instead of when it ends.
    pub(crate) writes_early: bool,
    /// A discard zeroes, instead of doing nothing.
    pub(crate) discard_zeroes: bool,
    /// The byte that fills a new disk.
    pub(crate) fill: u8,
    /// The disk has no bytes before this offset, a multiple of a page.
    pub(crate) base_bytes: u64,
    /// Sectors that the medium writes together; a power failure may tear them.
    pub(crate) physical_sectors: u64,
}

/// The bytes and the time of a disk.
#[derive(Debug)]
pub(crate) struct Platter {
    config: DiskConfig,
    /// The bytes that a read returns.
    bytes: Vec<u8>,
    /// The bytes that survive a power failure in any case.
    medium: Vec<u8>,
    /// Versions of sectors in the write cache, oldest first.
    unflushed: BTreeMap<u64, Vec<Version>>,
    written: u64,
    head: u64,
    free_at: Vec<Instant>,
    executed: u64,
    moved: Moved,
    /// Requests in service, by port.
    in_service: Vec<Vec<Request>>,
    /// Writes of programs that have died.
    orphans: Vec<Orphan>,
    lies: Lies,
    /// The lengths of a plain file.
    lengths: Option<Lengths>,
}

#[derive(Debug, Clone)]
struct Version {
    number: u64,
    bytes: [u8; SECTOR],
}

/// The access of one queue to a disk.
#[derive(Debug)]
pub(crate) struct Port {
    limits: Limits,
    arena: Arena,
    platter: Rc<RefCell<Platter>>,
    number: usize,
    submitted: Vec<Request>,
}

#[derive(Debug)]
struct Request {
    due: Instant,
    tag: Tag,
    op: Op,
    extent: Extent,
    fua: bool,
    memory: Vec<Span>,
    /// Write: its bytes, if it takes them early.
    early: Option<Vec<u8>>,
    /// Flush: the number of writes that had been executed when it began.
    covers: u64,
}

impl Platter {
    pub(crate) fn new(config: DiskConfig) -> Rc<RefCell<Self>> {
        let bytes = vec![config.fill; (config.limits.capacity * SECTOR_BYTES - config.base_bytes) as usize];
        let free_at = vec![Instant::ZERO; config.channels];
        Rc::new(RefCell::new(Self {
            medium: bytes.clone(),
            bytes,
            unflushed: BTreeMap::new(),
            written: 0,
            head: config.base_bytes / SECTOR_BYTES,
            free_at,
            executed: 0,
            moved: Moved::default(),
            in_service: Vec::new(),
            orphans: Vec::new(),
            lies: Lies::default(),
            lengths: None,
            config,
        }))
    }

    /// The bytes that a read returns.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The number of requests executed.
    pub(crate) const fn executed(&self) -> u64 {
        self.executed
    }

    /// The bytes that the disk has moved.
    pub(crate) const fn moved(&self) -> Moved {
        self.moved
    }

    /// All contents of a sector that a power failure could leave.
    pub(crate) fn survivors(&self, sector: u64) -> impl Iterator<Item = &[u8]> {
        let start = sector as usize * SECTOR;
        let versions = self.unflushed.get(&sector).into_iter().flatten();
        std::iter::once(&self.medium[start..start + SECTOR]).chain(versions.map(|version| &version.bytes[..]))
    }

    /// The write cache loses its bytes.
    pub(crate) fn lose_cache(&mut self) {
        for sector in std::mem::take(&mut self.unflushed).into_keys() {
            let place = sector as usize * SECTOR..(sector as usize + 1) * SECTOR;
            self.bytes[place.clone()].copy_from_slice(&self.medium[place]);
        }
    }

    /// Changes a bit of the medium and of the bytes that a read returns.
    pub(crate) fn flip(&mut self, offset: u64, bit: u8) {
        for bytes in [&mut self.bytes, &mut self.medium] {
            bytes[offset as usize] ^= 1 << bit;
        }
    }

    /// Another program writes a sector, and makes it durable.
    pub(crate) fn write_outside(&mut self, sector: u64, bytes: &[u8]) {
        let place = sector as usize * SECTOR..(sector as usize + 1) * SECTOR;
        self.bytes[place.clone()].copy_from_slice(bytes);
        self.medium[place].copy_from_slice(bytes);
        self.unflushed.remove(&sector);
        self.lies.forget(sector..sector + 1);
    }

    /// The bytes from this sector on are gone: they are zeroes.
    pub(crate) fn cut(&mut self, sector: u64) {
        let place = sector as usize * SECTOR..;
        self.bytes[place.clone()].fill(0);
        self.medium[place].fill(0);
        self.unflushed.split_off(&sector);
        self.lies.forget(sector..u64::MAX);
    }

    /// Writes bytes that are not whole blocks, as a kernel does for the end of a file.
    pub(crate) fn write_tail(&mut self, offset: u64, bytes: &[u8]) {
        let range = offset as usize..offset as usize + bytes.len();
        self.bytes[range.clone()].copy_from_slice(bytes);
        self.record(range.clone(), false);
        self.write_to(range.end as u64);
    }

    /// The bytes that a read of an extent returns: zeroes before the first byte, which readahead may reach.
    fn read(&self, extent: Extent) -> Cow<'_, [u8]> {
        let before = (self.config.base_bytes / SECTOR_BYTES).saturating_sub(extent.start().0);
        if before == 0 {
            return Cow::Borrowed(&self.bytes[self.range(extent)]);
        }
        let (before, rest) = extent.split_at(before.min(extent.sectors()));
        let mut bytes = vec![0; before.bytes() as usize];
        if !rest.is_empty() {
            bytes.extend_from_slice(&self.bytes[self.range(rest)]);
        }
        Cow::Owned(bytes)
    }

    /// The place of the bytes of an extent.
    fn range(&self, extent: Extent) -> Range<usize> {
        let start = extent.offset().checked_sub(self.config.base_bytes);
        let start = start.unwrap_or_else(|| panic!("{extent} is before the first byte of the disk")) as usize;
        start..start + extent.bytes() as usize
    }

    /// The bytes in this range are new: adds versions of their sectors, or changes the medium.
    fn record(&mut self, range: Range<usize>, is_forced: bool) {
        self.written += 1;
        if let Some(lengths) = self.lengths.as_mut().filter(|_| is_forced) {
            // Also the length that the bytes need.
            lengths.flush(u64::MAX);
        }
        for sector in range.start / SECTOR..range.end.div_ceil(SECTOR) {
            let place = sector * SECTOR..(sector + 1) * SECTOR;
            if is_forced || !self.config.limits.volatile_cache {
                if is_forced {
                    self.lies.force(sector as u64, &self.medium[place.clone()]);
                }
                self.unflushed.remove(&(sector as u64));
                self.medium[place.clone()].copy_from_slice(&self.bytes[place]);
            } else {
                let bytes = self.bytes[place].try_into().expect("a sector");
                let version = Version { number: self.written, bytes };
                self.unflushed.entry(sector as u64).or_default().push(version);
            }
        }
    }
}

impl Request {
    fn written_bytes(&self, arena: &Arena) -> Vec<u8> {
        if self.op == Op::WriteZeroes {
            return vec![0; self.extent.bytes() as usize];
        }
        self.early.clone().unwrap_or_else(|| gather(&self.memory, arena))
    }
}

fn gather(memory: &[Span], arena: &Arena) -> Vec<u8> {
    let mut all = Vec::new();
    for span in memory {
        arena.with(*span, |bytes| all.extend_from_slice(bytes));
    }
    all
}

impl Port {
    pub(crate) fn new(platter: &Rc<RefCell<Platter>>, arena: &Arena) -> Self {
        let mut shared = platter.borrow_mut();
        let number = shared.in_service.len();
        shared.in_service.push(Vec::new());
        let limits = shared.config.limits.clone();
        Self { limits, arena: arena.clone(), platter: Rc::clone(platter), number, submitted: Vec::new() }
    }

    fn execute(&self, request: &Request) -> Result<(), IoError> {
        let length: u64 = request.memory.iter().map(Memory::bytes).sum();
        let expected = if request.op.has_memory() { request.extent.bytes() } else { 0 };
        assert_eq!(length, expected, "the memory of {request:?} has another length");
        let platter = &mut *self.platter.borrow_mut();
        platter.executed += 1;
        let range = if request.op.is_write() { platter.range(request.extent) } else { 0..0 };
        for span in &request.memory {
            // A queue joins the memory of adjacent bios, also of several owners.
            for at in (0..span.bytes()).step_by(SECTOR) {
                let part = span.slice(at, SECTOR_BYTES.min(span.bytes() - at));
                platter.moved.add(self.arena.owner(part), part.bytes());
            }
        }
        match request.op {
            Op::Flush => platter.flush(request.covers),
            Op::Read if platter.is_past_file(request.extent.end().0 - 1) => return Err(IoError::EndOfDevice),
            Op::Read => {
                let bytes = platter.read(request.extent);
                let mut rest = &bytes[..];
                for span in &request.memory {
                    let (part, after) = rest.split_at(span.bytes() as usize);
                    self.arena.with(*span, |bytes| bytes.copy_from_slice(part));
                    rest = after;
                }
            }
            Op::Discard if !platter.config.discard_zeroes => {}
            Op::Discard | Op::Write | Op::WriteZeroes => {
                match request.op {
                    Op::Write => {
                        let bytes = request.written_bytes(&self.arena);
                        platter.bytes[range.clone()].copy_from_slice(&bytes);
                    }
                    _ => platter.bytes[range.clone()].fill(0),
                }
                platter.record(range.clone(), request.fua);
                if request.op == Op::Write {
                    platter.write_to(range.end as u64);
                }
            }
        }
        Ok(())
    }
}

impl BlockDevice for Port {
    type Memory = Span;

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn submit(&mut self, io: &Io<'_, Span>, _now: Instant) -> Result<(), Busy> {
        // All queues share the room of the disk, so a queue may find it busy.
        let in_service: usize = self.platter.borrow().in_service.iter().map(Vec::len).sum();
        if self.submitted.len() + in_service >= self.limits.depth_max as usize {
            return Err(Busy { tag: io.tag });
        }
        let Io { tag, op, extent, fua, .. } = *io;
        // A misdirected request of a fault device keeps its length, so it is within the limits as well.
        assert!(op == Op::Flush || extent.end().0 <= self.limits.capacity, "{op} of {extent} past the end");
        assert!(
            op == Op::Flush || self.limits.fits(op, extent),
            "{op} of {extent} exceeds {:?}",
            self.limits
        );
        assert!(!fua || self.limits.fua, "a forced write on a device without FUA");
        let memory: Vec<Span> = io.segments().collect();
        assert!(memory.len() <= usize::from(self.limits.segments_max), "{} segments", memory.len());
        let due = Instant::ZERO;
        self.submitted.push(Request { due, tag, op, extent, fua, memory, early: None, covers: 0 });
        Ok(())
    }

    fn commit(&mut self, now: Instant) {
        for mut request in std::mem::take(&mut self.submitted) {
            let is_early = self.platter.borrow().config.writes_early;
            if is_early && request.op == Op::Write {
                request.early = Some(gather(&request.memory, &self.arena));
            }
            let platter = &mut *self.platter.borrow_mut();
            // A flush has no place.
            let place = request.extent.start().0.max(platter.config.base_bytes / SECTOR_BYTES);
            let distance = platter.head.abs_diff(place);
            if request.op != Op::Flush {
                platter.head = request.extent.end().0;
            }
            let seek = distance * platter.config.seek_nanos;
            let service = platter.config.latency + Duration::from_nanos(seek + 50 * request.extent.sectors());
            let free_at = platter.free_at.iter_mut().min().expect("a disk has a channel");
            *free_at = (*free_at).max(now) + service;
            request.due = *free_at;
            request.covers = platter.written;
            platter.in_service[self.number].push(request);
        }
    }

    fn poll_completion(&mut self, now: Instant) -> Option<Completion> {
        let request = {
            let in_service = &mut self.platter.borrow_mut().in_service[self.number];
            let next = (0..in_service.len()).min_by_key(|index| in_service[*index].due)?;
            (in_service[next].due <= now).then_some(())?;
            in_service.remove(next)
        };
        let result = self.execute(&request);
        Some(Completion { tag: request.tag, result })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.platter.borrow().in_service[self.number].iter().map(|request| request.due).min()
    }
}
