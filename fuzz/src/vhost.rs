//! Serves a queue whose memory has any content, without I/O.
//!
//! An input is four bytes of settings, the record of requests in flight, and the memory of the guest: the table, the
//! available ring and the used ring, one after another, and then anything.

use std::fs::File;
use std::sync::Arc;

use iopath::buffers::SharedMemory;
use iopath_vhost::{
    CHAIN_MAX, Command, Fault, GuestMemory, InflightRegions, Part, Region, Ring, RingPlaces, parse, ranges,
    read_chain,
};
use rustix::fs::{MemfdFlags, memfd_create};

/// The memory of the guest, in two regions that are adjacent.
const BYTES: u64 = 0x1_0000;
const BORDER: u64 = 0x8000;

/// The first address of the front end.
const USER: u64 = 0x7000_0000;

/// The size of the record: of a queue of 64.
const RECORD_BYTES: usize = 1088;

/// The size of the disk in sectors.
const CAPACITY: u64 = 1 << 20;

struct Memory {
    guest: GuestMemory,
    record: File,
}

thread_local! {
    static MEMORY: Memory = Memory::new();
}

impl Memory {
    fn new() -> Self {
        let file = memfd(BYTES);
        let region = |guest: u64, bytes: u64| Region {
            guest,
            user: USER + guest,
            memory: Arc::new(SharedMemory::map(&file, guest, bytes).expect("memory of a test")),
        };
        let guest = GuestMemory::new(vec![region(0, BORDER), region(BORDER, BYTES - BORDER)]);
        Self { guest: guest.expect("two regions"), record: memfd(4096) }
    }
}

fn memfd(bytes: u64) -> File {
    let file = File::from(memfd_create("fuzz", MemfdFlags::CLOEXEC).expect("a memfd"));
    file.set_len(bytes).expect("memory of a test");
    file
}

/// Serves the queue. Each request is valid, or the queue stops with a message.
pub fn drive_vhost_queue(data: &[u8]) {
    let Some((settings, data)) = data.split_at_checked(4) else { return };
    let (record, content) = data.split_at(data.len().min(RECORD_BYTES));
    MEMORY.with(|Memory { guest, record: file }| {
        let mut whole = content[..content.len().min(BYTES as usize)].to_vec();
        whole.resize(BYTES as usize, 0);
        guest.write(0, &whole).expect("the memory has these bytes");
        let stopped = serve(settings, guest, file, record);
        if let Err(fault) = stopped {
            let text = fault.to_string();
            assert!(!text.is_empty() && !text.contains('\n'), "{text}");
        }
    });
}

fn serve(settings: &[u8], memory: &GuestMemory, file: &File, record: &[u8]) -> Result<(), Fault> {
    let size = 1 << (settings[0] % 7);
    let (has_event_index, has_indirect) = (settings[1] & 1 != 0, settings[1] & 2 != 0);
    let next = u16::from_le_bytes([settings[2], settings[3]]);
    let (available, used) = rings(size);
    let places = RingPlaces { size, descriptors: USER, available: USER + available, used: USER + used };
    let mut ring = Ring::new(places, memory, next, has_event_index)?;
    let mut heads = Vec::new();
    let mut inflight = None;
    if settings[1] & 4 != 0 {
        let regions = InflightRegions::open(file, 0, 4096, 1, 64).expect("memory of a test");
        let mapped = SharedMemory::map(file, 0, 4096).expect("memory of a test");
        let mut whole = record.to_vec();
        whole.resize(RECORD_BYTES, 0);
        mapped.write(0, &whole).expect("the record has these bytes");
        let mut opened = regions.of_queue(0).expect("the only queue");
        heads = opened.recover(&mut ring)?;
        assert!(heads.len() <= usize::from(size), "each descriptor once");
        inflight = Some(opened);
    }
    let (mut parts, mut taken) = (Vec::new(), 0);
    loop {
        let recovered = heads.pop();
        let Some(head) = recovered.map_or_else(|| ring.pop(), |head| Ok(Some(head)))? else { break };
        taken += 1;
        // A status may be written to the index of the driver, which then has more requests, as a driver that goes on.
        if taken > 4 * u32::from(size) {
            return Ok(());
        }
        if let Some(inflight) = &mut inflight {
            inflight.begin(head)?;
        }
        request(&ring, memory, head, has_indirect, &mut parts)?;
        ring.push(head, 1)?;
        if let Some(inflight) = &inflight {
            inflight.complete(head)?;
        }
        ring.publish()?;
        if let Some(inflight) = &inflight {
            inflight.publish(&[head], ring.next_used())?;
        }
        ring.needs_notification()?;
    }
    ring.disable_notification()?;
    // The used ring may be part of what the driver states as another ring, so the index may change here.
    ring.enable_notification().map(drop)
}

/// The available and the used ring behind the table of a queue.
fn rings(size: u16) -> (u64, u64) {
    let available = 16 * u64::from(size);
    (available, (available + 6 + 2 * u64::from(size)).next_multiple_of(4))
}

fn request(
    ring: &Ring,
    memory: &GuestMemory,
    head: u16,
    has_indirect: bool,
    parts: &mut Vec<Part>,
) -> Result<(), Fault> {
    parts.clear();
    read_chain(ring, memory, head, has_indirect, parts)?;
    assert!(parts.len() <= CHAIN_MAX as usize);
    assert!(parts.is_sorted_by_key(|part| part.is_writable), "a readable part after a writable one");
    let bytes: u64 = parts.iter().map(|part| u64::from(part.bytes)).sum();
    assert!(bytes <= u64::from(u32::MAX));
    for part in &*parts {
        let mut covered = 0;
        memory.for_parts(part.address, u64::from(part.bytes), |_, _, bytes| covered += bytes)?;
        assert_eq!(covered, u64::from(part.bytes), "a part outside of the memory");
    }
    let header = parse(memory, head, parts)?;
    assert!(header.bytes <= bytes);
    assert_eq!(header.bytes, parts.iter().map(|part| u64::from(part.bytes)).sum::<u64>());
    memory.write(header.status, &[0])?;
    if matches!(header.command, Command::Discard | Command::WriteZeroes) {
        for range in ranges(memory, &header, parts, CAPACITY)?.into_iter().flatten() {
            assert!(range.offset + range.bytes <= CAPACITY * 512);
        }
    }
    Ok(())
}
