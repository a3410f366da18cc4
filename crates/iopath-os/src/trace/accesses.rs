//! What programs ask for above the page cache: reads, writes and flushes of files, as system calls. A program in the
//! kernel runs at the begin and the end of each system call, finds the file of its descriptor, and puts a record into
//! the ring of the CPU. A search through `/proc` afterwards would be too late for short programs.
//!
//! `accesses/program.rs` is the program. `bpf.rs` assembles and loads it, `btf.rs` has the offsets of the kernel's
//! structures.

use std::ffi::CStr;
use std::fmt;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use iopath_core::Op;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use self::program::{Maps, Offsets, REGISTERS};
use super::bpf::{self, Assembler};
use super::btf::Btf;
use super::error::TraceError;

mod program;

/// The number in the place of a tracepoint's; no tracepoint has it.
const NO_TRACEPOINT: u16 = 0;

/// Kinds of records.
const BEGIN: u16 = 1;
const END: u16 = 2;

/// The maximum number of processes, and of system calls in progress.
const PROCESSES_MAX: u32 = 1 << 16;
const CALLS_MAX: u32 = 1 << 16;

/// Types of files in `i_mode`.
const TYPE_MASK: i32 = 0xF000;
const REGULAR: i32 = 0x8000;
const BLOCK: i32 = 0x6000;

/// `O_APPEND`
const APPEND: u32 = libc::O_APPEND as u32;

/// The inode of the first PID namespace, `PROC_PID_INIT_INO` of the kernel.
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";

/// The length of a command and of a file name in a record.
const COMMAND_BYTES: usize = 16;
const NAME_BYTES: usize = 32;

/// Where the values of a record are.
mod at {
    pub(super) const KIND: usize = 2;
    pub(super) const CALL: usize = 4;
    /// The second argument of the call and the two after it; of an end, the result.
    pub(super) const ARGUMENTS: usize = 8;
    pub(super) const RESULT: usize = ARGUMENTS;
    pub(super) const END_BYTES: usize = RESULT + 8;
    pub(super) const INODE: usize = 32;
    pub(super) const POSITION: usize = 40;
    pub(super) const FILE_BYTES: usize = 48;
    pub(super) const FLAGS: usize = 56;
    pub(super) const DESCRIPTOR: usize = 60;
    pub(super) const DEVICE: usize = 64;
    pub(super) const OWN_DEVICE: usize = 68;
    pub(super) const MODE: usize = 72;
    pub(super) const GENERATION: usize = 76;
    pub(super) const COMMAND: usize = 80;
    pub(super) const NAME: usize = COMMAND + super::COMMAND_BYTES;
    pub(super) const BEGIN_BYTES: usize = NAME + super::NAME_BYTES;
}

/// How a system call states its range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// `read`: the length; the range begins at the position of the file.
    Length,
    /// `readv`: only the result states the length.
    Vector,
    /// `pread64`: length and offset.
    LengthAt,
    /// `preadv`: offset.
    VectorAt,
    /// `fsync`
    Flush,
}

/// The system calls that are recorded.
const CALLS: [(libc::c_long, Op, Form); 13] = [
    (libc::SYS_read, Op::Read, Form::Length),
    (libc::SYS_write, Op::Write, Form::Length),
    (libc::SYS_pread64, Op::Read, Form::LengthAt),
    (libc::SYS_pwrite64, Op::Write, Form::LengthAt),
    (libc::SYS_readv, Op::Read, Form::Vector),
    (libc::SYS_writev, Op::Write, Form::Vector),
    (libc::SYS_preadv, Op::Read, Form::VectorAt),
    (libc::SYS_pwritev, Op::Write, Form::VectorAt),
    (libc::SYS_preadv2, Op::Read, Form::VectorAt),
    (libc::SYS_pwritev2, Op::Write, Form::VectorAt),
    (libc::SYS_fsync, Op::Flush, Form::Flush),
    (libc::SYS_fdatasync, Op::Flush, Form::Flush),
    (libc::SYS_sync_file_range, Op::Flush, Form::Flush),
];

/// A record of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessRecord {
    /// A system call begins.
    Begin(AccessCall),
    /// The system call of the thread has ended.
    End {
        /// The number of bytes, or a negative errno.
        result: i64,
    },
}

/// A system call that accesses a regular file or a block device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccessCall {
    /// [`Op::Read`], [`Op::Write`] or [`Op::Flush`].
    pub op: Op,
    /// The first byte; 0 for a flush.
    pub offset: u64,
    /// The number of bytes; `None` if only the result states it.
    pub bytes: Option<u64>,
    /// The device of the file's file system, or the block device: major number in the upper 12 bits, minor in the lower
    /// 20.
    pub device: u32,
    /// The number of the inode; 0 for a block device.
    pub inode: u64,
    /// The generation of the inode, which tells a file from a later one with the number; 0 for a block device.
    pub generation: u32,
    /// The descriptor.
    pub descriptor: u32,
    /// The name of the thread's command, ended by a zero.
    pub command: [u8; COMMAND_BYTES],
    /// The last part of the file's name, ended by a zero or truncated.
    pub name: [u8; NAME_BYTES],
}

impl AccessRecord {
    /// The record in the data of an event; `None` for events of tracepoints.
    pub fn parse(data: &[u8]) -> Option<Self> {
        if u16_at(data, 0)? != NO_TRACEPOINT {
            return None;
        }
        match u16_at(data, at::KIND)? {
            BEGIN => AccessCall::parse(data).map(Self::Begin),
            END => Some(Self::End { result: u64_at(data, at::RESULT)?.cast_signed() }),
            _ => None,
        }
    }
}

impl AccessCall {
    fn parse(data: &[u8]) -> Option<Self> {
        let call = libc::c_long::from(u32_at(data, at::CALL)?);
        let (_, op, form) = CALLS.into_iter().find(|(number, ..)| *number == call)?;
        let argument = |index: usize| u64_at(data, at::ARGUMENTS + 8 * index);
        let is_append = op == Op::Write && u32_at(data, at::FLAGS)? & APPEND != 0;
        let position = u64_at(data, if is_append { at::FILE_BYTES } else { at::POSITION })?;
        // Linux appends even where the call states an offset.
        let at_offset = |offset: u64| if is_append { position } else { offset };
        let (offset, bytes) = match form {
            Form::Length => (position, Some(argument(1)?)),
            Form::Vector => (position, None),
            Form::LengthAt => (at_offset(argument(2)?), Some(argument(1)?)),
            // The second form of these calls has -1 for the position of the file.
            Form::VectorAt if argument(2)? == u64::MAX => (position, None),
            Form::VectorAt => (at_offset(argument(2)?), None),
            Form::Flush => (0, Some(0)),
        };
        let is_block = u32_at(data, at::MODE)? & TYPE_MASK as u32 == BLOCK as u32;
        Some(Self {
            op,
            offset,
            bytes,
            device: u32_at(data, if is_block { at::OWN_DEVICE } else { at::DEVICE })?,
            inode: if is_block { 0 } else { u64_at(data, at::INODE)? },
            generation: if is_block { 0 } else { u32_at(data, at::GENERATION)? },
            descriptor: u32_at(data, at::DESCRIPTOR)?,
            command: *data.get(at::COMMAND..)?.first_chunk()?,
            name: *data.get(at::NAME..)?.first_chunk()?,
        })
    }
}

fn u16_at(data: &[u8], at: usize) -> Option<u16> {
    data.get(at..)?.first_chunk().map(|bytes| u16::from_ne_bytes(*bytes))
}

fn u32_at(data: &[u8], at: usize) -> Option<u32> {
    data.get(at..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

fn u64_at(data: &[u8], at: usize) -> Option<u64> {
    data.get(at..)?.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes))
}

/// The processes whose accesses are recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recorded {
    /// All but this one.
    All,
    /// Those that this process starts, and those that they start.
    Started,
}

/// The program in the kernel. It runs until this value is dropped.
pub struct AccessProgram {
    _attached: Vec<OwnedFd>,
    /// Closing the map of the events would remove them from it.
    maps: Maps,
    /// Whether requests of `io_uring` are counted.
    counts_rings: bool,
}

impl fmt::Debug for AccessProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessProgram").field("counts_rings", &self.counts_rings).finish_non_exhaustive()
    }
}

impl AccessProgram {
    /// Loads the program. Its records go to the rings of these events, each with its CPU.
    ///
    /// # Errors
    /// If the process lacks the right, or the kernel has no programs or no description of its types.
    pub fn attach<'a>(
        events: impl Iterator<Item = (u32, BorrowedFd<'a>)>,
        recorded: Recorded,
    ) -> Result<Self, TraceError> {
        let Some(registers) = REGISTERS else {
            return Err(TraceError::NoAccessesHere { what: "this processor" });
        };
        // The program compares process numbers of the kernel, which differ in a container.
        if !fs::read_link("/proc/self/ns/pid").is_ok_and(|link| link.as_os_str() == FIRST_PID_NAMESPACE) {
            return Err(TraceError::NoAccessesHere { what: "a container with its own process numbers" });
        }
        let kernel = Offsets::find(&Btf::of_kernel()?, registers)?;
        let events: Vec<_> = events.collect();
        with_unlimited_memory(|| Self::load(&events, &kernel, recorded)).map_err(TraceError::of_program)
    }

    fn load(events: &[(u32, BorrowedFd<'_>)], kernel: &Offsets, recorded: Recorded) -> io::Result<Self> {
        let cpus = events.iter().map(|(cpu, _)| cpu + 1).max().unwrap_or(1);
        let maps = Maps {
            events: bpf::create_map(bpf::MAP_PERF_EVENTS, 4, 4, cpus)?,
            processes: bpf::create_map(bpf::MAP_HASH, 4, 4, PROCESSES_MAX)?,
            calls: bpf::create_map(bpf::MAP_HASH, 8, 4, CALLS_MAX)?,
            ring_requests: bpf::create_map(bpf::MAP_ARRAY, 4, 8, 1)?,
        };
        for (cpu, event) in events {
            bpf::set_in_map(maps.events.as_fd(), *cpu, event.as_raw_fd() as u32)?;
        }
        bpf::set_in_map(maps.processes.as_fd(), std::process::id(), program::RECORDER as u32)?;
        let mut programs: Vec<(&CStr, Assembler)> = vec![
            (c"sys_exit", program::end_of_call(&maps)),
            (c"sys_enter", program::begin_of_call(&maps, kernel, recorded)),
        ];
        if recorded == Recorded::Started {
            programs.push((c"sched_process_fork", program::fork(&maps, kernel)));
            programs.push((c"sched_process_free", program::free(&maps, kernel)));
        }
        let mut attached = Vec::new();
        for (tracepoint, program) in programs {
            attached.push(bpf::attach(&program.load_program()?, tracepoint)?);
        }
        // Older kernels have no such tracepoint.
        let rings = program::ring_request(&maps, kernel, recorded)
            .and_then(|program| bpf::attach(&program.load_program().ok()?, c"io_uring_submit_req").ok());
        let counts_rings = rings.is_some();
        attached.extend(rings);
        Ok(Self { _attached: attached, maps, counts_rings })
    }

    /// The reads, writes and flushes that the processes have submitted through `io_uring` so far; `None` if the kernel
    /// does not report them.
    pub fn ring_requests(&self) -> Option<u64> {
        if !self.counts_rings {
            return None;
        }
        bpf::value_in_map(self.maps.ring_requests.as_fd(), 0).ok()
    }
}

/// Before Linux 5.11, maps and programs count against the limit of locked memory, also for root. Who may not raise it
/// creates them within it.
fn with_unlimited_memory<T>(create: impl FnOnce() -> T) -> T {
    let before = getrlimit(Resource::Memlock);
    let _ = setrlimit(Resource::Memlock, Rlimit { current: None, maximum: None });
    let result = create();
    let _ = setrlimit(Resource::Memlock, before);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The record of a call with these arguments, of a regular file at position 1,000 with 5,000 bytes.
    fn begin(call: libc::c_long, arguments: [u64; 3], flags: u32) -> Vec<u8> {
        let mut data = vec![0; at::BEGIN_BYTES];
        let mut put = |at: usize, bytes: &[u8]| data[at..at + bytes.len()].copy_from_slice(bytes);
        put(at::KIND, &BEGIN.to_ne_bytes());
        put(at::CALL, &(call as u32).to_ne_bytes());
        for (index, argument) in arguments.iter().enumerate() {
            put(at::ARGUMENTS + 8 * index, &argument.to_ne_bytes());
        }
        put(at::INODE, &77_u64.to_ne_bytes());
        put(at::POSITION, &1000_u64.to_ne_bytes());
        put(at::FILE_BYTES, &5000_u64.to_ne_bytes());
        put(at::FLAGS, &flags.to_ne_bytes());
        put(at::DESCRIPTOR, &3_u32.to_ne_bytes());
        put(at::DEVICE, &(8_u32 << 20).to_ne_bytes());
        put(at::OWN_DEVICE, &(7_u32 << 20).to_ne_bytes());
        put(at::GENERATION, &9_u32.to_ne_bytes());
        put(at::MODE, &(REGULAR as u32 | 0o644).to_ne_bytes());
        put(at::COMMAND, b"dd");
        put(at::NAME, b"data.db");
        data
    }

    fn parsed(data: &[u8]) -> AccessCall {
        match AccessRecord::parse(data) {
            Some(AccessRecord::Begin(call)) => call,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_call_has_its_range() {
        let range = |call, arguments, flags| {
            let AccessCall { op, offset, bytes, .. } = parsed(&begin(call, arguments, flags));
            (op, offset, bytes)
        };
        assert_eq!(range(libc::SYS_read, [9, 512, 7], 0), (Op::Read, 1000, Some(512)));
        assert_eq!(range(libc::SYS_write, [9, 512, 7], APPEND), (Op::Write, 5000, Some(512)));
        assert_eq!(range(libc::SYS_pread64, [9, 512, 7], APPEND), (Op::Read, 7, Some(512)));
        assert_eq!(range(libc::SYS_pwrite64, [9, 512, 7], APPEND), (Op::Write, 5000, Some(512)));
        assert_eq!(range(libc::SYS_readv, [9, 2, 7], 0), (Op::Read, 1000, None));
        assert_eq!(range(libc::SYS_preadv, [9, 2, 7], 0), (Op::Read, 7, None));
        assert_eq!(range(libc::SYS_pwritev2, [9, 2, u64::MAX], 0), (Op::Write, 1000, None));
        assert_eq!(range(libc::SYS_fsync, [9, 2, 7], 0), (Op::Flush, 0, Some(0)));
    }

    #[test]
    fn a_file_is_its_inode_and_a_block_device_is_its_number() {
        let mut data = begin(libc::SYS_read, [0; 3], 0);
        let file = parsed(&data);
        assert_eq!((file.device, file.inode, file.generation, file.descriptor), (8 << 20, 77, 9, 3));
        assert_eq!((&file.command[..3], &file.name[..8]), (&b"dd\0"[..], &b"data.db\0"[..]));
        data[at::MODE..at::MODE + 4].copy_from_slice(&(BLOCK as u32).to_ne_bytes());
        let device = parsed(&data);
        assert_eq!((device.device, device.inode, device.generation), (7 << 20, 0, 0));
    }

    #[test]
    fn other_and_short_records_are_none() {
        let data = begin(libc::SYS_read, [0; 3], 0);
        for len in 0..data.len() {
            assert_eq!(AccessRecord::parse(&data[..len]), None, "{len} bytes");
        }
        assert_eq!(AccessRecord::parse(&begin(libc::SYS_openat, [0; 3], 0)), None);
        let mut other = data;
        other[0] = 1;
        assert_eq!(AccessRecord::parse(&other), None, "an event of a tracepoint");
        let mut end = vec![0; at::END_BYTES];
        end[at::KIND..at::KIND + 2].copy_from_slice(&END.to_ne_bytes());
        end[at::RESULT..].copy_from_slice(&(-5_i64).to_ne_bytes());
        assert_eq!(AccessRecord::parse(&end), Some(AccessRecord::End { result: -5 }));
    }
}
