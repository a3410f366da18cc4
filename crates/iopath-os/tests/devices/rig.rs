//! Creates a device of each kind on a scratch file, and memory for its requests.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use iopath_core::mapper::{Boundary, FileLayout};
use iopath_core::{
    BlockDevice, Busy, Completion, Duration, Extent, Instant, Io, IoError, LengthOnly, Limits, Op,
    StripeConfig, Tag,
};
use iopath_os::{
    AlignedBuf, AnyThread, BufferPool, DeviceRequest, Execute, Fault, Faults, Faulty, FileMap, Geometry,
    InlineDevice, Mapped, MemoryConfig, MemoryDisk, OneThread, RealDevice, Segment, Striped, Threads,
    ThreadsConfig, Timed, Timing, Uring, UringConfig, limits_of, now,
};

/// The logical block size of the scratch files, as on most disks with 4 KiB sectors.
pub(crate) const BLOCK: u64 = 4096;
pub(crate) const DEPTH: u32 = 32;
/// The size of a chunk on one member of a stripe.
const CHUNK_SECTORS: u64 = 64;

type Open = fn(Arc<File>, &Limits, &BufferPool) -> Option<Box<dyn RealDevice>>;

/// A kind of device.
pub(crate) struct Row {
    /// Starts with the name of its row in `DEVICES`.
    pub(crate) name: &'static str,
    files: Files,
    open: Place,
}

/// How the scratch files of a row are opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Files {
    Direct,
    /// Through the page cache. I/O is so fast that the caller executes some of it itself.
    Cached,
    /// In memory. I/O is so fast that the caller soon executes all of it itself.
    InMemory,
}

#[derive(Clone, Copy)]
enum Place {
    File(Open),
    /// A stripe with one member for each function.
    Files(&'static [Open]),
    Memory(fn(&MemoryDisk) -> Box<dyn RealDevice>),
    /// A file, mapped by the named mapper, on a disk in memory with requests of at most 16 KiB, or on a file.
    MappedMemory(&'static str, fn(&MemoryDisk) -> Box<dyn RealDevice>),
    MappedFile(&'static str, Open),
    /// A server of a file.
    Remote,
}

pub(crate) const ROWS: &[Row] = &[
    Row {
        name: "uring",
        files: Files::Direct,
        open: Place::File(|file, limits, _| {
            let config = UringConfig { depth: DEPTH, pool: None };
            Some(Box::new(Uring::<OneThread>::new(file, limits, &config).ok()?))
        }),
    },
    Row { name: "uring, registered buffers", files: Files::Direct, open: Place::File(open_uring) },
    Row {
        name: "uring, any thread",
        files: Files::Direct,
        open: Place::File(|file, limits, pool| {
            let config = UringConfig { depth: DEPTH, pool: Some(pool.clone()) };
            Some(Box::new(Uring::<AnyThread>::new(file, limits, &config).ok()?))
        }),
    },
    Row { name: "threads", files: Files::Direct, open: Place::File(open_threads) },
    Row { name: "threads, page cache", files: Files::Cached, open: Place::File(open_threads) },
    Row { name: "threads, file in memory", files: Files::InMemory, open: Place::File(open_threads) },
    Row {
        name: "threads, shuffled and cut short",
        files: Files::Direct,
        open: Place::File(|file, limits, pool| Some(with_faults(open_threads(file, limits, pool)?))),
    },
    Row { name: "stripe of uring", files: Files::Direct, open: Place::Files(&[open_uring as Open; 2]) },
    Row {
        name: "stripe of uring and threads",
        files: Files::Direct,
        open: Place::Files(&[open_uring, open_threads]),
    },
    Row {
        name: "stripe of threads, page cache",
        files: Files::Cached,
        open: Place::Files(&[open_threads as Open; 2]),
    },
    Row {
        name: "stripe of threads, files in memory",
        files: Files::InMemory,
        open: Place::Files(&[open_threads as Open; 2]),
    },
    Row { name: "memory", files: Files::Cached, open: Place::Memory(|disk| Box::new(disk.open())) },
    Row {
        name: "memory, shuffled and cut short",
        files: Files::Cached,
        open: Place::Memory(|disk| with_faults(Box::new(disk.open()))),
    },
    Row { name: "program", files: Files::Cached, open: Place::Memory(open_program) },
    Row { name: "timed", files: Files::Cached, open: Place::Memory(open_timed) },
    Row {
        name: "mapped, identity, memory",
        files: Files::Cached,
        open: Place::MappedMemory("identity", open_memory),
    },
    Row {
        name: "mapped, extent, memory",
        files: Files::Cached,
        open: Place::MappedMemory("extent", open_memory),
    },
    Row {
        name: "mapped, indirect, memory",
        files: Files::Cached,
        open: Place::MappedMemory("indirect", open_memory),
    },
    Row {
        name: "mapped, extent, memory, shuffled and cut short",
        files: Files::Cached,
        open: Place::MappedMemory("extent", |disk| with_faults(open_memory(disk))),
    },
    Row {
        name: "mapped, indirect, memory, shuffled and cut short",
        files: Files::Cached,
        open: Place::MappedMemory("indirect", |disk| with_faults(open_memory(disk))),
    },
    Row {
        name: "mapped, extent, uring",
        files: Files::Direct,
        open: Place::MappedFile("extent", open_uring),
    },
    Row {
        name: "mapped, indirect, threads",
        files: Files::Direct,
        open: Place::MappedFile("indirect", open_threads),
    },
    Row {
        name: "mapped, indirect, threads, file in memory",
        files: Files::InMemory,
        open: Place::MappedFile("indirect", open_threads),
    },
    Row { name: "remote", files: Files::InMemory, open: Place::Remote },
];

/// Storage of a program: bytes behind a lock.
#[derive(Debug)]
struct Bytes(Mutex<Vec<u8>>);

impl Execute for Bytes {
    fn execute(&mut self, request: &mut DeviceRequest<'_>) -> Result<(), IoError> {
        let mut bytes = self.0.lock().expect("no test panics here");
        let part = bytes.get_mut(request.range()).ok_or(IoError::EndOfDevice)?;
        match request.op() {
            Op::Read => request.fill(0, part),
            Op::Write => request.copy_to(0, part),
            Op::Discard | Op::WriteZeroes => part.fill(0),
            Op::Flush => {}
        }
        Ok(())
    }
}

fn open_program(disk: &MemoryDisk) -> Box<dyn RealDevice> {
    let bytes = Bytes(Mutex::new(vec![0; disk.size_bytes() as usize]));
    Box::new(InlineDevice::new(bytes, disk.limits()))
}

/// A disk in memory on which each request takes 50 µs.
fn open_timed(disk: &MemoryDisk) -> Box<dyn RealDevice> {
    let model = Constant { limits: disk.limits(), submitted: Vec::new(), in_flight: VecDeque::new() };
    Box::new(Timed::new(disk.open(), &Timing::new(Box::new(model))))
}

/// A model that completes each request 50 µs after its commit.
struct Constant {
    limits: Limits,
    submitted: Vec<Tag>,
    in_flight: VecDeque<(Instant, Tag)>,
}

impl BlockDevice for Constant {
    type Memory = LengthOnly;

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn submit(&mut self, io: &Io<'_, LengthOnly>, _now: Instant) -> Result<(), Busy> {
        if self.submitted.len() + self.in_flight.len() >= self.limits.depth_max as usize {
            return Err(Busy { tag: io.tag });
        }
        self.submitted.push(io.tag);
        Ok(())
    }

    fn commit(&mut self, now: Instant) {
        let due = now + Duration::from_micros(50);
        self.in_flight.extend(self.submitted.drain(..).map(|tag| (due, tag)));
    }

    fn poll_completion(&mut self, now: Instant) -> Option<Completion> {
        let (_, tag) = self.in_flight.front().copied().filter(|(due, _)| *due <= now)?;
        self.in_flight.pop_front();
        Some(Completion { tag, result: Ok(()) })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.in_flight.front().map(|(due, _)| *due)
    }
}

fn open_memory(disk: &MemoryDisk) -> Box<dyn RealDevice> {
    Box::new(disk.open_with(Limits { request_bytes_max: 16 << 10, ..disk.limits() }))
}

/// A device with faults that change the order and the length of transfers and cause no errors.
fn with_faults(device: Box<dyn RealDevice>) -> Box<dyn RealDevice> {
    let faults = Faults::new(1);
    faults.shuffle(true);
    faults.add(Fault::short().one_in(3));
    Box::new(Faulty::new(device, &faults))
}

fn open_uring(file: Arc<File>, limits: &Limits, pool: &BufferPool) -> Option<Box<dyn RealDevice>> {
    let config = UringConfig { depth: DEPTH, pool: Some(pool.clone()) };
    Some(Box::new(Uring::<OneThread>::new(file, limits, &config).ok()?))
}

fn open_threads(file: Arc<File>, limits: &Limits, _: &BufferPool) -> Option<Box<dyn RealDevice>> {
    let config = ThreadsConfig { depth: DEPTH, threads_max: 8 };
    Some(Box::new(Threads::new(file, limits, &config).ok()?))
}

pub(crate) struct Rig {
    pub(crate) name: &'static str,
    pub(crate) device: Box<dyn RealDevice>,
    pub(crate) file: Option<Arc<File>>,
    pub(crate) pool: BufferPool,
}

impl Rig {
    /// A device of `sectors` sectors of zeroes; `None` if the system refuses this kind.
    pub(crate) fn new(row: &Row, sectors: u64) -> Option<Self> {
        match row.open {
            Place::File(open) => Self::on(row.name, open, row.scratch(sectors * 512)),
            Place::Files(open) => Self::on_files(row, open, sectors),
            Place::Memory(open) => {
                let config = MemoryConfig { cache_bytes: 64 << 10, ..MemoryConfig::of_bytes(sectors * 512) };
                let device = open(&MemoryDisk::new(&config).expect("memory"));
                Some(Self { name: row.name, device, file: None, pool: pool() })
            }
            Place::MappedMemory(mapper, open) => {
                let config = MemoryConfig { cache_bytes: 64 << 10, ..MemoryConfig::of_bytes(sectors * 1024) };
                let disk = MemoryDisk::new(&config).expect("memory");
                Some(Self::mapped(row.name, mapper, open(&disk), sectors, pool()))
            }
            Place::Remote => {
                let file = row.scratch(sectors * 512);
                let device = super::remote::open(Arc::clone(&file), &limits(&file), DEPTH);
                Some(Self { name: row.name, device, file: None, pool: pool() })
            }
            Place::MappedFile(mapper, open) => {
                let (pool, file) = (pool(), row.scratch(sectors * 1024));
                let device = open(Arc::clone(&file), &limits(&file), &pool)?;
                Some(Self::mapped(row.name, mapper, device, sectors, pool))
            }
        }
    }

    /// A file of `sectors` sectors on a device that is twice as large.
    fn mapped(
        name: &'static str,
        mapper: &str,
        device: Box<dyn RealDevice>,
        sectors: u64,
        pool: BufferPool,
    ) -> Self {
        let capacity = device.limits().capacity;
        let layout = FileLayout {
            block_bytes: BLOCK as u32,
            size_bytes: sectors * 512,
            capacity_bytes: 512 * capacity,
        };
        let file = FileMap::fresh(mapper, &layout).expect("a mapping");
        let device = Mapped::new(device, &file, Boundary::Once).expect("blocks that fit");
        Self { name, device: Box::new(device), file: None, pool }
    }

    /// A stripe with one member for each element of `open`.
    fn on_files(row: &Row, open: &[Open], sectors: u64) -> Option<Self> {
        let pool = pool();
        let member_sectors = (sectors / open.len() as u64).max(CHUNK_SECTORS);
        let member = |open: &Open| {
            let file = row.scratch(member_sectors * 512);
            open(Arc::clone(&file), &limits(&file), &pool)
        };
        let members: Option<Vec<_>> = open.iter().map(member).collect();
        let config = StripeConfig { chunk_sectors: CHUNK_SECTORS, ..StripeConfig::default() };
        let device = Box::new(Striped::new(members?, &config).expect("a stripe"));
        Some(Self { name: row.name, device, file: None, pool })
    }

    fn on(name: &'static str, open: Open, file: Arc<File>) -> Option<Self> {
        let pool = pool();
        let device = open(Arc::clone(&file), &limits(&file), &pool)?;
        Some(Self { name, device, file: Some(file), pool })
    }

    /// The same kind of device on another file. `None` if the kind needs no file.
    pub(crate) fn new_on(row: &Row, file: Arc<File>) -> Option<Self> {
        let Place::File(open) = row.open else { return None };
        Self::on(row.name, open, file)
    }

    /// Submits one request and waits for its end.
    pub(crate) fn run(&mut self, op: Op, offset: u64, bytes: u64, memory: &[Segment]) -> Result<(), IoError> {
        let extent = Extent::from_bytes(offset, bytes).expect("sectors");
        self.run_io(&Io::new(Tag::from_bits(9), op, extent, memory))
    }

    pub(crate) fn run_io(&mut self, io: &Io<'_, Segment>) -> Result<(), IoError> {
        self.device.submit(io, now()).expect("room for one request");
        let done = self.wait_for_one();
        assert_eq!(done.tag, io.tag, "{}", self.name);
        done.result
    }

    /// Waits for the next completion.
    pub(crate) fn wait_for_one(&mut self) -> Completion {
        loop {
            self.device.commit_and_wait(1, None).expect("a wait");
            if let Some(done) = self.device.poll_completion(now()) {
                return done;
            }
        }
    }

    /// Reads `bytes` bytes at `offset`.
    pub(crate) fn read(&mut self, offset: u64, bytes: usize) -> Result<Vec<u8>, IoError> {
        let mut memory = AlignedBuf::new(bytes).expect("memory");
        memory.fill(0xee);
        self.run(Op::Read, offset, bytes as u64, &[segment(&mut memory)])?;
        Ok(memory.to_vec())
    }

    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), IoError> {
        let mut memory = AlignedBuf::new(data.len()).expect("memory");
        memory.copy_from_slice(data);
        self.run(Op::Write, offset, data.len() as u64, &[segment(&mut memory)])
    }
}

fn pool() -> BufferPool {
    BufferPool::new(DEPTH, 64 << 10).expect("memory")
}

pub(crate) fn limits(file: &File) -> Limits {
    let geometry =
        Geometry { memory_align_bytes: 512, logical_block_bytes: BLOCK as u32, request_bytes_max: 1 << 20 };
    limits_of(file, &geometry).expect("limits of a file")
}

/// All of `memory` as a segment. The tests do not access the memory until the request has completed.
pub(crate) fn segment(memory: &mut [u8]) -> Segment {
    // SAFETY: all callers in these tests keep the memory, and do not access it, until the request has completed or the
    // device is dropped.
    unsafe { Segment::new(NonNull::from(&mut *memory).cast(), memory.len()) }
}

impl Row {
    /// An unlinked file.
    pub(crate) fn scratch(&self, bytes: u64) -> Arc<File> {
        if self.files == Files::InMemory {
            return in_memory(bytes);
        }
        let named = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a scratch file");
        let file = self.open_file(named.path(), true).expect("the scratch file");
        file.set_len(bytes).expect("its size");
        Arc::new(file)
    }

    /// Opens the file for direct I/O if the row requires it and the filesystem supports it.
    pub(crate) fn open_file(&self, path: &Path, write: bool) -> std::io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(write);
        let flags = if self.files == Files::Direct { libc::O_DIRECT } else { 0 };
        options.clone().custom_flags(flags).open(path).or_else(|_| options.open(path))
    }
}

/// A file in the kernel's tmpfs.
pub(crate) fn in_memory(bytes: u64) -> Arc<File> {
    let file =
        rustix::fs::memfd_create("scratch", rustix::fs::MemfdFlags::CLOEXEC).expect("a file in memory");
    let file = File::from(file);
    file.set_len(bytes).expect("its size");
    Arc::new(file)
}

/// An unlinked file, opened as those of the first row.
pub(crate) fn scratch(bytes: u64) -> Arc<File> {
    ROWS[0].scratch(bytes)
}

/// Bytes that are different for each sector and each seed.
pub(crate) fn pattern(bytes: usize, seed: u8) -> Vec<u8> {
    (0..bytes).map(|i| (i / 512 * 31 + i % 251) as u8 ^ seed).collect()
}
