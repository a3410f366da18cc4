//! The record of requests in flight, in memory that the front end keeps: after the end of this process, the next one
//! executes them again. (vhost-user protocol, "Inflight I/O tracking", split virtqueues.)
//!
//! The order of the stores matters, since the process may end between any two of them. Other processes read the region
//! only after the end of this one, so the stores need no fences beyond those of the compiler.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{Ordering, compiler_fence};

use iopath::buffers::SharedMemory;
use rustix::fs::{MemfdFlags, memfd_create};

use crate::fault::Fault;
use crate::memory::Area;
use crate::ring::{QUEUE_SIZE_MAX, Ring};

/// The fields of a queue's region.
const VERSION_AT: u64 = 8;
const SIZE_AT: u64 = 10;
const LAST_BATCH_AT: u64 = 12;
const USED_INDEX_AT: u64 = 14;
const HEADER_BYTES: u64 = 16;

/// The fields of a descriptor's entry.
const NEXT_AT: u64 = 6;
const COUNTER_AT: u64 = 8;
const ENTRY_BYTES: u64 = 16;

const VERSION: u16 = 1;

/// Each queue's region starts at a multiple of this.
const ALIGN: u64 = 64;

/// The regions of all queues.
#[derive(Debug, Clone)]
pub struct InflightRegions {
    memory: Arc<SharedMemory>,
    queues: u16,
    size: u16,
}

/// The bytes of the regions.
///
/// # Errors
/// A queue size that this device does not have.
pub(crate) fn region_bytes(queues: u16, size: u16) -> Result<u64, Fault> {
    if size == 0 || size > QUEUE_SIZE_MAX || queues == 0 {
        return Err(Fault::Size { size: u32::from(size), max: QUEUE_SIZE_MAX });
    }
    Ok(u64::from(queues) * queue_bytes(size))
}

fn queue_bytes(size: u16) -> u64 {
    (HEADER_BYTES + ENTRY_BYTES * u64::from(size)).next_multiple_of(ALIGN)
}

impl InflightRegions {
    /// New regions, and the file that the front end keeps.
    ///
    /// # Errors
    /// The system refuses the memory. A size that is not valid.
    pub fn create(queues: u16, size: u16) -> io::Result<(Self, File)> {
        let bytes = region_bytes(queues, size).map_err(io::Error::other)?;
        let file = File::from(memfd_create("iopath-inflight", MemfdFlags::CLOEXEC)?);
        file.set_len(bytes)?;
        Ok((Self::open(&file, 0, bytes, queues, size)?, file))
    }

    /// The regions of a file that the front end has kept. Zeroes are regions without requests.
    ///
    /// # Errors
    /// The system refuses the memory. The file is too short.
    pub fn open(file: &File, offset: u64, bytes: u64, queues: u16, size: u16) -> io::Result<Self> {
        let needed = region_bytes(queues, size).map_err(io::Error::other)?;
        if bytes < needed {
            return Err(io::Error::other(Fault::Inflight("it is too short for its queues")));
        }
        Ok(Self { memory: Arc::new(SharedMemory::map(file, offset, bytes)?), queues, size })
    }

    /// The bytes of the regions.
    pub fn bytes(&self) -> u64 {
        self.memory.bytes()
    }

    /// The record of a queue; `None` if the regions have none.
    pub fn of_queue(&self, queue: u16) -> Option<Inflight> {
        let at = u64::from(queue) * queue_bytes(self.size);
        let area = Area { memory: Arc::clone(&self.memory), at };
        (queue < self.queues).then_some(Inflight { area, size: self.size, counter: 0 })
    }
}

/// The record of a queue.
#[derive(Debug)]
pub struct Inflight {
    area: Area,
    size: u16,
    /// The number of the last request.
    counter: u64,
}

impl Inflight {
    /// Completes what the last process had begun, and returns the first descriptors of the requests that it had not
    /// completed, in their order. Sets the ring to the next request after them.
    ///
    /// # Errors
    /// The record is not one of this queue.
    pub fn recover(&mut self, ring: &mut Ring) -> Result<Vec<u16>, Fault> {
        if self.size < ring.size() {
            return Err(Fault::Inflight("it has fewer entries than the queue"));
        }
        let published = ring.published()?;
        if self.u16(VERSION_AT)? != VERSION {
            self.set_u16(SIZE_AT, self.size)?;
            self.set_u16(USED_INDEX_AT, published)?;
            self.set_u16(VERSION_AT, VERSION)?;
        }
        self.finish_batch(published)?;
        let mut heads = Vec::new();
        for head in 0..ring.size() {
            if self.flag(head)? {
                heads.push((self.u64(entry(head) + COUNTER_AT)?, head));
            }
        }
        heads.sort_unstable();
        self.counter = heads.last().map_or(0, |last| last.0);
        let heads: Vec<u16> = heads.into_iter().map(|(_, head)| head).collect();
        // The requests in flight were taken, in their order, after the completed ones.
        ring.set_next_available(published.wrapping_add(heads.len() as u16));
        Ok(heads)
    }

    /// The driver may have seen a batch whose flags the last process had not cleared.
    fn finish_batch(&self, published: u16) -> Result<(), Fault> {
        let unfinished = published.wrapping_sub(self.u16(USED_INDEX_AT)?);
        if unfinished > self.size {
            return Err(Fault::Inflight("its index is not that of the used ring"));
        }
        let mut head = self.u16(LAST_BATCH_AT)?;
        for _ in 0..unfinished {
            if head >= self.size {
                return Err(Fault::Inflight("its list of completed requests leaves the table"));
            }
            self.set_flag(head, false)?;
            head = self.u16(entry(head) + NEXT_AT)?;
        }
        self.set_u16(USED_INDEX_AT, published)
    }

    /// Records that a request was taken from the ring.
    ///
    /// # Errors
    /// The front end has truncated the record.
    pub fn begin(&mut self, head: u16) -> Result<(), Fault> {
        // A record of another program may have the last number.
        self.counter = self.counter.wrapping_add(1);
        self.set_u64(entry(head) + COUNTER_AT, self.counter)?;
        compiler_fence(Ordering::SeqCst);
        self.set_flag(head, true)
    }

    /// Records that a request is about to be published.
    ///
    /// # Errors
    /// The front end has truncated the record.
    pub fn complete(&self, head: u16) -> Result<(), Fault> {
        self.set_u16(entry(head) + NEXT_AT, self.u16(LAST_BATCH_AT)?)?;
        compiler_fence(Ordering::SeqCst);
        self.set_u16(LAST_BATCH_AT, head)?;
        compiler_fence(Ordering::SeqCst);
        Ok(())
    }

    /// Records that the requests of a batch have been published, up to this index of the used ring.
    ///
    /// # Errors
    /// The front end has truncated the record.
    pub fn publish(&self, heads: &[u16], used_index: u16) -> Result<(), Fault> {
        compiler_fence(Ordering::SeqCst);
        heads.iter().try_for_each(|&head| self.set_flag(head, false))?;
        compiler_fence(Ordering::SeqCst);
        self.set_u16(USED_INDEX_AT, used_index)
    }

    fn flag(&self, head: u16) -> Result<bool, Fault> {
        let mut flag = [0];
        self.area.memory.read(self.area.at + entry(head), &mut flag).ok_or(Fault::Truncated)?;
        Ok(flag[0] != 0)
    }

    fn set_flag(&self, head: u16, is_set: bool) -> Result<(), Fault> {
        let at = self.area.at + entry(head);
        self.area.memory.write(at, &[u8::from(is_set)]).ok_or(Fault::Truncated)
    }

    fn u16(&self, at: u64) -> Result<u16, Fault> {
        self.area.memory.load_u16(self.area.at + at, Ordering::Acquire).ok_or(Fault::Truncated)
    }

    fn set_u16(&self, at: u64, value: u16) -> Result<(), Fault> {
        self.area.memory.store_u16(self.area.at + at, value, Ordering::Release).ok_or(Fault::Truncated)
    }

    fn u64(&self, at: u64) -> Result<u64, Fault> {
        self.area.memory.load_u64(self.area.at + at, Ordering::Acquire).ok_or(Fault::Truncated)
    }

    fn set_u64(&self, at: u64, value: u64) -> Result<(), Fault> {
        self.area.memory.store_u64(self.area.at + at, value, Ordering::Release).ok_or(Fault::Truncated)
    }
}

/// The position of a descriptor's entry.
fn entry(head: u16) -> u64 {
    HEADER_BYTES + ENTRY_BYTES * u64::from(head)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::GuestMemory;
    use crate::memory::tests::region;
    use crate::ring::RingPlaces;

    /// A queue of four, whose used ring is at index 3.
    fn queue() -> (GuestMemory, Ring) {
        let memory = GuestMemory::new(vec![region(0, 0x1000)]).unwrap();
        memory.write(0x202, &3u16.to_le_bytes()).unwrap();
        let user = 0x7000_0000_0000;
        let places = RingPlaces { size: 4, descriptors: user, available: user + 0x100, used: user + 0x200 };
        let ring = Ring::new(places, &memory, 0, false).unwrap();
        (memory, ring)
    }

    #[test]
    fn requests_return_in_the_order_in_which_they_were_taken() {
        let (_memory, mut ring) = queue();
        let (regions, file) = InflightRegions::create(2, 4).unwrap();
        let mut record = regions.of_queue(1).unwrap();
        assert_eq!(record.recover(&mut ring), Ok(vec![]));
        for head in [2, 0, 3] {
            record.begin(head).unwrap();
        }
        record.complete(0).unwrap();
        let again = InflightRegions::open(&file, 0, regions.bytes(), 2, 4).unwrap();
        assert_eq!(again.of_queue(1).unwrap().recover(&mut ring), Ok(vec![2, 0, 3]), "0 was not published");
        assert_eq!(ring.next_available(), 6);
        assert_eq!(again.of_queue(0).unwrap().recover(&mut ring), Ok(vec![]), "the other queue");
    }

    #[test]
    fn a_batch_that_the_driver_has_seen_is_complete() {
        let (memory, mut ring) = queue();
        let (regions, _file) = InflightRegions::create(1, 4).unwrap();
        let mut record = regions.of_queue(0).unwrap();
        record.recover(&mut ring).unwrap();
        for head in [0, 1, 2] {
            record.begin(head).unwrap();
        }
        record.complete(2).unwrap();
        record.complete(0).unwrap();
        // The process ends after the index was published, before the flags were cleared.
        memory.write(0x202, &5u16.to_le_bytes()).unwrap();
        assert_eq!(regions.of_queue(0).unwrap().recover(&mut ring), Ok(vec![1]));
        assert_eq!(ring.next_available(), 6);
    }

    #[test]
    fn a_record_of_another_queue_is_refused() {
        let (memory, mut ring) = queue();
        let (regions, file) = InflightRegions::create(1, 2).unwrap();
        let small = regions.of_queue(0).unwrap().recover(&mut ring);
        assert!(matches!(small, Err(Fault::Inflight(_))));
        assert!(InflightRegions::open(&file, 0, 16, 1, 2).is_err(), "too short");
        assert!(regions.of_queue(1).is_none());
        let (regions, _file) = InflightRegions::create(1, 4).unwrap();
        regions.of_queue(0).unwrap().recover(&mut ring).unwrap();
        memory.write(0x202, &900u16.to_le_bytes()).unwrap();
        let jumped = regions.of_queue(0).unwrap().recover(&mut ring);
        assert!(matches!(jumped, Err(Fault::Inflight(_))));
    }
}
