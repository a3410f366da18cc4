//! A guest without a machine: memory in a memfd, and the driver's side of split virtqueues. Not a front end: see
//! `front_end.rs`.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use iopath::buffers::SharedMemory;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, OFlags, fcntl_getfl, fcntl_setfl, memfd_create};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

/// The guard against hangs.
pub(crate) const HANG: Duration = Duration::from_secs(60);

/// The memory starts at this address of the front end.
pub(crate) const USER: u64 = 0x7f00_0000_0000;

/// The memory of a queue: table, available ring and used ring, at these offsets.
const QUEUE_BYTES: u64 = 0x1_0000;
const AVAILABLE: u64 = 0x4000;
const USED: u64 = 0x8000;

/// The largest number of queues.
const QUEUES_MAX: u64 = 16;

pub(crate) const NEXT: u16 = 1;
pub(crate) const WRITE: u16 = 2;
pub(crate) const INDIRECT: u16 = 4;

/// The memory of a guest.
#[derive(Debug, Clone)]
pub(crate) struct Guest {
    pub file: Arc<File>,
    pub memory: Arc<SharedMemory>,
}

impl Guest {
    pub(crate) fn new(bytes: u64) -> Self {
        let file = File::from(memfd_create("guest", MemfdFlags::CLOEXEC).unwrap());
        file.set_len(bytes).unwrap();
        let memory = Arc::new(SharedMemory::map(&file, 0, bytes).unwrap());
        Self { file: Arc::new(file), memory }
    }

    /// The first address that no queue uses.
    pub(crate) const fn data() -> u64 {
        QUEUES_MAX * QUEUE_BYTES
    }

    pub(crate) fn write(&self, address: u64, bytes: &[u8]) {
        self.memory.write(address, bytes).unwrap();
    }

    pub(crate) fn read(&self, address: u64, bytes: usize) -> Vec<u8> {
        let mut copy = vec![0; bytes];
        self.memory.read(address, &mut copy).unwrap();
        copy
    }
}

/// A part of a request: address, bytes, and whether the device writes it.
pub(crate) type Part = (u64, u32, bool);

/// The driver of a queue.
#[derive(Debug)]
pub(crate) struct Driver {
    pub guest: Guest,
    pub number: usize,
    pub size: u16,
    has_event_index: bool,
    free: Vec<u16>,
    /// The descriptors of each chain, by the first.
    chains: Vec<Vec<u16>>,
    pub next_available: u16,
    shown: u16,
    pub last_used: u16,
    pub kick: EventFd,
    pub call: EventFd,
    /// The same as `call`, to wait for.
    called: OwnedFd,
    /// Notifications sent to the device.
    pub kicks: u64,
}

impl Driver {
    pub(crate) fn new(guest: &Guest, number: usize, size: u16, has_event_index: bool) -> Self {
        let call = EventFd::new(EFD_NONBLOCK).unwrap();
        let myself = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
        let called = pidfd_getfd(myself, call.as_raw_fd(), PidfdGetfdFlags::empty()).unwrap();
        // As a driver after a reset.
        guest.write(number as u64 * QUEUE_BYTES, &vec![0; QUEUE_BYTES as usize]);
        Self {
            guest: guest.clone(),
            number,
            size,
            has_event_index,
            free: (0..size).rev().collect(),
            chains: vec![Vec::new(); usize::from(size)],
            next_available: 0,
            shown: 0,
            last_used: 0,
            kick: EventFd::new(EFD_NONBLOCK).unwrap(),
            call,
            called,
            kicks: 0,
        }
    }

    pub(crate) fn table(&self) -> u64 {
        self.number as u64 * QUEUE_BYTES
    }

    pub(crate) fn available(&self) -> u64 {
        self.table() + AVAILABLE
    }

    pub(crate) fn used(&self) -> u64 {
        self.table() + USED
    }

    /// Writes a descriptor of a table.
    pub(crate) fn describe(
        &self,
        table: u64,
        index: u16,
        (address, bytes): (u64, u32),
        flags: u16,
        next: u16,
    ) {
        let rest = u64::from(bytes) | u64::from(flags) << 32 | u64::from(next) << 48;
        let at = table + 16 * u64::from(index);
        self.guest.memory.store_u64(at, address, Ordering::Relaxed).unwrap();
        self.guest.memory.store_u64(at + 8, rest, Ordering::Relaxed).unwrap();
    }

    /// Makes a request of these parts available. The device sees it after [`Driver::show`]. `None`: no descriptor is
    /// free.
    pub(crate) fn add(&mut self, parts: &[Part]) -> Option<u16> {
        if self.free.len() < parts.len() {
            return None;
        }
        let chain = self.free.split_off(self.free.len() - parts.len());
        for (place, &(address, bytes, is_writable)) in parts.iter().enumerate() {
            let next = chain.get(place + 1).copied();
            let flags = if is_writable { WRITE } else { 0 } | if next.is_some() { NEXT } else { 0 };
            self.describe(self.table(), chain[place], (address, bytes), flags, next.unwrap_or(0));
        }
        let head = chain[0];
        self.chains[usize::from(head)] = chain;
        self.offer(head);
        Some(head)
    }

    /// Makes a request available whose parts are in an indirect table at `table`.
    pub(crate) fn add_indirect(&mut self, table: u64, parts: &[Part]) -> Option<u16> {
        let head = self.free.pop()?;
        for (place, &(address, bytes, is_writable)) in parts.iter().enumerate() {
            let is_last = place + 1 == parts.len();
            let flags = if is_writable { WRITE } else { 0 } | if is_last { 0 } else { NEXT };
            self.describe(table, place as u16, (address, bytes), flags, place as u16 + 1);
        }
        self.describe(self.table(), head, (table, 16 * parts.len() as u32), INDIRECT, 0);
        self.chains[usize::from(head)] = vec![head];
        self.offer(head);
        Some(head)
    }

    /// Writes the number of a descriptor to the available ring.
    pub(crate) fn offer(&mut self, head: u16) {
        let at = self.available() + 4 + 2 * u64::from(self.next_available & (self.size - 1));
        self.guest.memory.store_u16(at, head, Ordering::Relaxed).unwrap();
        self.next_available = self.next_available.wrapping_add(1);
    }

    /// Shows the device the available requests, and notifies it if it wants to know.
    pub(crate) fn show(&mut self) {
        let (old, new) = (self.shown, self.next_available);
        self.shown = new;
        self.guest.memory.store_u16(self.available() + 2, new, Ordering::Release).unwrap();
        fence(Ordering::SeqCst);
        let wants = if self.has_event_index {
            let event = self.load(self.used() + 4 + 8 * u64::from(self.size));
            new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
        } else {
            self.load(self.used()) & 1 == 0
        };
        if wants {
            self.kicks += 1;
            self.kick.write(1).unwrap();
        }
    }

    /// Waits until the device has taken all requests that it was shown. With event indices.
    ///
    /// # Panics
    /// After a minute.
    pub(crate) fn wait_taken(&self) {
        let began = Instant::now();
        while self.load(self.used() + 4 + 8 * u64::from(self.size)) != self.shown {
            assert!(began.elapsed() < HANG, "queue {} takes no request", self.number);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Fills the counter of notifications, in a descriptor that blocks.
    pub(crate) fn fill_call(&self) {
        let _ = self.call.read();
        self.call.write(u64::MAX - 1).unwrap();
        fcntl_setfl(&self.called, fcntl_getfl(&self.called).unwrap() - OFlags::NONBLOCK).unwrap();
    }

    fn load(&self, at: u64) -> u16 {
        self.guest.memory.load_u16(at, Ordering::Acquire).unwrap()
    }

    /// The next completed request: its first descriptor, and the bytes that the device wrote.
    pub(crate) fn pop_used(&mut self) -> Option<(u16, u32)> {
        if self.load(self.used() + 2) == self.last_used {
            return None;
        }
        let at = self.used() + 4 + 8 * u64::from(self.last_used & (self.size - 1));
        let entry = self.guest.read(at, 8);
        let number = |at: usize| u32::from_le_bytes(entry[at..at + 4].try_into().unwrap());
        let head = number(0) as u16;
        self.last_used = self.last_used.wrapping_add(1);
        self.free.append(&mut self.chains[usize::from(head)]);
        Some((head, number(4)))
    }

    /// The event that the device notifies of: the completion with this index.
    pub(crate) fn set_event(&self, index: u16) {
        let at = self.available() + 4 + 2 * u64::from(self.size);
        self.guest.memory.store_u16(at, index, Ordering::Release).unwrap();
        fence(Ordering::SeqCst);
    }

    /// Whether the device notifies within this time.
    pub(crate) fn is_notified(&self, within: Duration) -> bool {
        is_readable(self.called.as_fd(), within)
    }

    /// The next completed request; waits for a notification if there is none.
    ///
    /// # Panics
    /// After a minute.
    pub(crate) fn wait_used(&mut self) -> (u16, u32) {
        loop {
            if let Some(used) = self.pop_used() {
                return used;
            }
            self.set_event(self.last_used);
            if let Some(used) = self.pop_used() {
                return used;
            }
            assert!(self.is_notified(HANG), "no notification of queue {}", self.number);
            let _ = self.call.read();
        }
    }
}

/// Whether a descriptor becomes readable within this time.
pub(crate) fn is_readable(descriptor: BorrowedFd<'_>, within: Duration) -> bool {
    let mut waits = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
    let timeout = Timespec::try_from(within).unwrap();
    poll(&mut waits, Some(&timeout)).unwrap() > 0
}
