//! The ring of one CPU: memory that the kernel fills with records and this process empties. The layout is that of
//! `perf_event_mmap_page` in `linux/perf_event.h`. `rings.rs` opens the events.

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::aligned::page_bytes;

/// Positions in the control page, in bytes.
const DATA_HEAD: usize = 1024;
const DATA_TAIL: usize = 1032;

/// Kinds of records.
const LOST: u32 = 2;
const EXIT: u32 = 4;
const FORK: u32 = 7;
const SAMPLE: u32 = 9;

/// The head of a record: kind, flags and length.
const HEAD_BYTES: usize = 8;

/// A record of a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceRecord<'a> {
    /// An event of a tracepoint.
    Event {
        /// The time in nanoseconds, on the monotonic clock.
        time_ns: u64,
        /// The process.
        pid: u32,
        /// The thread.
        tid: u32,
        /// The event; its fields are in the format of the tracepoint.
        data: &'a [u8],
    },
    /// A process or thread was created.
    Fork {
        /// The time in nanoseconds.
        time_ns: u64,
        /// The new process.
        pid: u32,
        /// The process that created it.
        parent: u32,
    },
    /// A thread has ended.
    Exit {
        /// The time in nanoseconds.
        time_ns: u64,
        /// The thread.
        tid: u32,
    },
    /// The ring was full.
    Lost {
        /// The time in nanoseconds of the next record.
        time_ns: u64,
        /// The number of events that were lost before it.
        events: u64,
    },
}

/// The ring of one CPU.
#[derive(Debug)]
pub(super) struct Ring {
    start: NonNull<u8>,
    /// The length of the records, a power of two.
    data_bytes: usize,
    /// A record that wraps around the end of the ring.
    wrapped: Vec<u8>,
}

// SAFETY: the mapping is valid in all threads, and only `&mut self` reads or releases its records.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps the ring of an event with `data_bytes` bytes of records, a power of two and a multiple of a page.
    pub(super) fn new(event: BorrowedFd<'_>, data_bytes: usize) -> io::Result<Self> {
        assert!(data_bytes.is_power_of_two() && data_bytes.is_multiple_of(page_bytes()));
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let bytes = page_bytes() + data_bytes;
        // SAFETY: a new shared mapping at an address of the kernel's choice touches no existing memory.
        let start = unsafe { mmap(ptr::null_mut(), bytes, protection, MapFlags::SHARED, event, 0)? };
        let start = NonNull::new(start.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, data_bytes, wrapped: Vec::new() })
    }

    /// A counter of the control page.
    fn counter(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the control page is mapped as long as `self`, both counters are in it and aligned, and the kernel and
        // this process access them only as whole words.
        unsafe { self.start.add(offset).cast::<AtomicU64>().as_ref() }
    }

    /// The bytes of the ring from a position of the kernel's count, up to the end of the ring.
    ///
    /// # Safety
    /// The kernel must not write to the first `len` bytes while the slice is in use: they are between tail and head.
    unsafe fn bytes(&self, from: u64, len: usize) -> &[u8] {
        let offset = from as usize & (self.data_bytes - 1);
        let len = len.min(self.data_bytes - offset);
        // SAFETY: the range is within the mapping, which is initialised by the kernel, and the caller excludes writes.
        unsafe { std::slice::from_raw_parts(self.start.add(page_bytes() + offset).as_ptr(), len) }
    }

    /// Calls `visit` with each record that was complete at the time of the call, and releases their memory. Returns the
    /// number of bytes.
    pub(super) fn read(&mut self, mut visit: impl FnMut(TraceRecord<'_>)) -> usize {
        // Acquire: the records before the head are written before it.
        let head = self.counter(DATA_HEAD).load(Ordering::Acquire);
        let begin = self.counter(DATA_TAIL).load(Ordering::Relaxed);
        let mut tail = begin;
        let mut wrapped = std::mem::take(&mut self.wrapped);
        while head.wrapping_sub(tail) >= HEAD_BYTES as u64 {
            // SAFETY: the kernel writes only after the head, and not before the tail has passed these bytes. The head
            // of a record is aligned to its length, so it does not wrap.
            let bytes = unsafe { self.bytes(tail, HEAD_BYTES) };
            let Some((kind, len)) = record_head(bytes) else { break };
            if len < HEAD_BYTES || len as u64 > head.wrapping_sub(tail) {
                // Never written by the kernel. Skipping the rest keeps the reader in step.
                tail = head;
                break;
            }
            // SAFETY: as above, for the whole record.
            let first = unsafe { self.bytes(tail, len) };
            let record = if first.len() == len {
                first
            } else {
                wrapped.clear();
                wrapped.extend_from_slice(first);
                // SAFETY: as above; the rest of the record is at the start of the ring.
                let rest = unsafe { self.bytes(tail + first.len() as u64, len - first.len()) };
                wrapped.extend_from_slice(rest);
                &wrapped
            };
            if let Some(record) = parse(kind, &record[HEAD_BYTES..]) {
                visit(record);
            }
            tail += len as u64;
        }
        self.wrapped = wrapped;
        // Release: the records are read before the kernel may write there again.
        self.counter(DATA_TAIL).store(tail, Ordering::Release);
        tail.wrapping_sub(begin) as usize
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping is our own, and no slice of it outlives a call of `read`.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), page_bytes() + self.data_bytes) };
    }
}

/// Kind and length of a record.
fn record_head(bytes: &[u8]) -> Option<(u32, usize)> {
    let (kind, rest) = bytes.split_first_chunk()?;
    let (_misc, rest) = rest.split_first_chunk::<2>()?;
    let (len, _) = rest.split_first_chunk()?;
    Some((u32::from_ne_bytes(*kind), usize::from(u16::from_ne_bytes(*len))))
}

/// The record of this kind, if it is of interest and complete. Samples have the thread, the time and the raw event.
/// Other records end with the thread and the time.
fn parse(kind: u32, body: &[u8]) -> Option<TraceRecord<'_>> {
    let mut words = Words(body);
    match kind {
        SAMPLE => {
            let (pid, tid) = (words.u32()?, words.u32()?);
            let time_ns = words.u64()?;
            let bytes = words.u32()? as usize;
            Some(TraceRecord::Event { time_ns, pid, tid, data: words.0.get(..bytes)? })
        }
        FORK => {
            let (pid, parent) = (words.u32()?, words.u32()?);
            let _threads = words.u64()?;
            Some(TraceRecord::Fork { time_ns: words.u64()?, pid, parent })
        }
        EXIT => {
            let _processes = words.u64()?;
            let (tid, _parent) = (words.u32()?, words.u32()?);
            Some(TraceRecord::Exit { time_ns: words.u64()?, tid })
        }
        LOST => {
            let _id = words.u64()?;
            let events = words.u64()?;
            let _thread = words.u64()?;
            Some(TraceRecord::Lost { time_ns: words.u64()?, events })
        }
        _ => None,
    }
}

/// Numbers in this machine's byte order.
struct Words<'a>(&'a [u8]);

impl Words<'_> {
    fn u32(&mut self) -> Option<u32> {
        let (word, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_ne_bytes(*word))
    }

    fn u64(&mut self) -> Option<u64> {
        let (word, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_ne_bytes(*word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    fn sample(time_ns: u64, data: &[u8]) -> Vec<u8> {
        let mut body = Vec::new();
        body.extend(7_u32.to_ne_bytes());
        body.extend(8_u32.to_ne_bytes());
        body.extend(time_ns.to_ne_bytes());
        body.extend((data.len() as u32).to_ne_bytes());
        body.extend(data);
        body.resize(body.len().next_multiple_of(8), 0);
        let mut record = SAMPLE.to_ne_bytes().to_vec();
        record.extend(0_u16.to_ne_bytes());
        record.extend(((body.len() + HEAD_BYTES) as u16).to_ne_bytes());
        record.extend(body);
        record
    }

    /// A file in the place of the kernel: it has a control page and one page of records.
    fn ring() -> (File, Ring) {
        let file = tempfile::tempfile().unwrap();
        file.set_len(2 * page_bytes() as u64).unwrap();
        let ring = Ring::new(file.as_fd(), page_bytes()).unwrap();
        (file, ring)
    }

    fn write(file: &File, head: &mut u64, record: &[u8]) {
        for byte in record {
            let at = *head as usize % page_bytes() + page_bytes();
            file.write_all_at(&[*byte], at as u64).unwrap();
            *head += 1;
        }
        file.write_all_at(&head.to_ne_bytes(), DATA_HEAD as u64).unwrap();
    }

    #[test]
    fn records_are_read_in_order_and_around_the_end_of_the_ring() {
        let (file, mut ring) = ring();
        let mut head = 0;
        let mut expected = 0;
        for round in 0..500_u64 {
            // The lengths differ, so that records wrap at many places.
            let data = vec![round as u8; (round % 90) as usize];
            write(&file, &mut head, &sample(round, &data));
            ring.read(|record| {
                assert_eq!(record, TraceRecord::Event { time_ns: expected, pid: 7, tid: 8, data: &data });
                expected += 1;
            });
        }
        assert_eq!(expected, 500);
        assert_eq!(ring.read(|_| panic!("the ring is empty")), 0);
    }

    #[test]
    fn processes_begin_and_threads_end() {
        let mut body: Vec<u8> = [40_u32, 10, 41, 11].iter().flat_map(|number| number.to_ne_bytes()).collect();
        body.extend(99_u64.to_ne_bytes());
        assert_eq!(parse(FORK, &body), Some(TraceRecord::Fork { time_ns: 99, pid: 40, parent: 10 }));
        assert_eq!(parse(EXIT, &body), Some(TraceRecord::Exit { time_ns: 99, tid: 41 }));
        assert_eq!(parse(EXIT, &body[..20]), None);
    }

    #[test]
    fn a_broken_record_ends_the_read_and_not_the_process() {
        let (file, mut ring) = ring();
        let mut head = 0;
        write(&file, &mut head, &[9, 0, 0, 0, 0, 0, 0xFF, 0xFF]);
        ring.read(|_| panic!("it is longer than the content"));
        // A sample without its values, and one whose event is longer than the record.
        write(&file, &mut head, &[9, 0, 0, 0, 0, 0, 8, 0]);
        let mut long = sample(1, &[1; 4]);
        long[24..28].copy_from_slice(&1000_u32.to_ne_bytes());
        write(&file, &mut head, &long);
        ring.read(|_| panic!("it is not complete"));
        write(&file, &mut head, &sample(2, &[5]));
        let mut count = 0;
        ring.read(|_| count += 1);
        assert_eq!(count, 1);
    }
}
