//! A front end: connects to a server, negotiates, and starts queues on the memory of a guest.

use std::fs::File;
use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use vhost::vhost_user::message::{
    VhostUserConfigFlags, VhostUserHeaderFlag, VhostUserInflight, VhostUserProtocolFeatures,
};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};

use super::guest::{Driver, Guest, HANG, USER};

pub(crate) const READ: u32 = 0;
pub(crate) const WRITE: u32 = 1;
pub(crate) const FLUSH: u32 = 4;
pub(crate) const GET_ID: u32 = 8;
pub(crate) const DISCARD: u32 = 11;
pub(crate) const WRITE_ZEROES: u32 = 13;

pub(crate) const VERSION_1: u64 = 1 << 32;
pub(crate) const EVENT_INDEX: u64 = 1 << 29;
pub(crate) const INDIRECT: u64 = 1 << 28;
const PROTOCOL: u64 = 1 << 30;
pub(crate) const BLK_FLUSH: u64 = 1 << 9;
const BLK_MQ: u64 = 1 << 12;

/// The features that a usual driver uses.
pub(crate) const USUAL: u64 = VERSION_1 | EVENT_INDEX | INDIRECT | BLK_FLUSH | BLK_MQ;

/// A record of requests in flight.
pub(crate) type Record = (VhostUserInflight, Arc<File>);

/// A connected front end with its queues.
#[allow(missing_debug_implementations)]
pub(crate) struct FrontEnd {
    pub frontend: Frontend,
    pub drivers: Vec<Driver>,
}

/// Connects and negotiates, without a queue.
pub(crate) fn connect(socket: &Path, features: u64) -> Frontend {
    let mut frontend = Frontend::connect(socket, 16).unwrap();
    frontend.set_owner().unwrap();
    let offered = frontend.get_features().unwrap();
    let features = features & offered | PROTOCOL;
    let protocol = frontend.get_protocol_features().unwrap();
    let used = VhostUserProtocolFeatures::MQ
        | VhostUserProtocolFeatures::CONFIG
        | VhostUserProtocolFeatures::REPLY_ACK
        | VhostUserProtocolFeatures::BACKEND_REQ
        | VhostUserProtocolFeatures::INFLIGHT_SHMFD
        | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS;
    frontend.set_protocol_features(protocol & used).unwrap();
    frontend.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
    frontend.set_features(features).unwrap();
    frontend
}

/// Passes any descriptor for the first queue, by a message of this number. Returns the server's answer: zero for
/// success.
pub(crate) fn vring_descriptor(socket: &Path, request: u32, descriptor: BorrowedFd<'_>) -> u64 {
    const GET_FEATURES: u32 = 1;
    const SET_FEATURES: u32 = 2;
    const SET_PROTOCOL_FEATURES: u32 = 16;
    const VERSION: u32 = 1;
    const NEED_REPLY: u32 = 1 << 3;
    let message = |request: u32, flags: u32, value: u64| {
        let header = [request, VERSION | flags, 8].map(u32::to_ne_bytes).concat();
        [&header[..], &value.to_ne_bytes()].concat()
    };
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(HANG)).unwrap();
    let mut answer = [0; 20];
    stream.write_all(&[GET_FEATURES, VERSION, 0].map(u32::to_ne_bytes).concat()).unwrap();
    stream.read_exact(&mut answer).unwrap();
    stream.write_all(&message(SET_FEATURES, 0, VERSION_1 | PROTOCOL)).unwrap();
    let acknowledged = VhostUserProtocolFeatures::REPLY_ACK.bits();
    stream.write_all(&message(SET_PROTOCOL_FEATURES, 0, acknowledged)).unwrap();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut passed = SendAncillaryBuffer::new(&mut space);
    let descriptors = [descriptor];
    assert!(passed.push(SendAncillaryMessage::ScmRights(&descriptors)));
    let message = message(request, NEED_REPLY, 0);
    sendmsg(&stream, &[IoSlice::new(&message)], &mut passed, SendFlags::empty()).unwrap();
    stream.read_exact(&mut answer).unwrap();
    u64::from_ne_bytes(answer[12..].try_into().unwrap())
}

/// The memory of a guest as one region.
pub(crate) fn region(guest: &Guest) -> VhostUserMemoryRegionInfo {
    VhostUserMemoryRegionInfo {
        guest_phys_addr: 0,
        memory_size: guest.memory.bytes(),
        userspace_addr: USER,
        mmap_offset: 0,
        mmap_handle: guest.file.as_raw_fd(),
    }
}

/// Starts the queue of a driver.
pub(crate) fn start(frontend: &mut Frontend, driver: &Driver, base: u16) -> vhost::Result<()> {
    let number = driver.number;
    let places = VringConfigData {
        queue_max_size: driver.size,
        queue_size: driver.size,
        flags: 0,
        desc_table_addr: USER + driver.table(),
        used_ring_addr: USER + driver.used(),
        avail_ring_addr: USER + driver.available(),
        log_addr: None,
    };
    frontend.set_vring_num(number, driver.size)?;
    frontend.set_vring_addr(number, &places)?;
    frontend.set_vring_base(number, base)?;
    frontend.set_vring_call(number, &driver.call)?;
    frontend.set_vring_kick(number, &driver.kick)?;
    frontend.set_vring_enable(number, true)
}

impl FrontEnd {
    /// Connects and starts queues of this size.
    pub(crate) fn new(socket: &Path, guest: &Guest, queues: usize, size: u16, features: u64) -> Self {
        let mut frontend = connect(socket, features);
        frontend.set_mem_table(&[region(guest)]).unwrap();
        let has_event_index = features & EVENT_INDEX != 0;
        let drivers: Vec<_> =
            (0..queues).map(|number| Driver::new(guest, number, size, has_event_index)).collect();
        for driver in &drivers {
            start(&mut frontend, driver, 0).unwrap();
        }
        Self { frontend, drivers }
    }

    /// As `new`, with a record of requests in flight. Takes the drivers of an earlier connection.
    pub(crate) fn with_record(
        socket: &Path,
        guest: &Guest,
        drivers: Vec<Driver>,
        record: Option<Record>,
    ) -> (Self, Record) {
        let mut frontend = connect(socket, USUAL);
        frontend.set_mem_table(&[region(guest)]).unwrap();
        let (queues, size) = (drivers.len() as u16, drivers[0].size);
        let record = record.unwrap_or_else(|| {
            let wanted = VhostUserInflight::new(0, 0, queues, size);
            let (about, file) = frontend.get_inflight_fd(&wanted).unwrap();
            (about, Arc::new(file))
        });
        frontend.set_inflight_fd(&record.0, record.1.as_raw_fd()).unwrap();
        for driver in &drivers {
            // As QEMU after a lost connection: the index of the used ring.
            start(&mut frontend, driver, driver.last_used).unwrap();
        }
        (Self { frontend, drivers }, record)
    }

    /// `bytes` bytes of the configuration.
    pub(crate) fn config(&mut self, offset: u32, bytes: u32) -> Vec<u8> {
        let space = vec![0; bytes as usize];
        let flags = VhostUserConfigFlags::WRITABLE;
        self.frontend.get_config(offset, bytes, flags, &space).unwrap().1
    }
}

/// A request at a place of the guest's memory: its header, the data at `+0x1000`, and its status.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slot(pub u64);

impl Slot {
    /// The slot of this number, with 60 KiB of data.
    pub(crate) fn of(number: u64) -> Self {
        Self(Guest::data() + number * 0x1_0000)
    }

    pub(crate) fn data(self) -> u64 {
        self.0 + 0x1000
    }

    fn status_place(self) -> u64 {
        self.0 + 16
    }

    /// The parts of a request whose data is `data`: addresses and lengths.
    pub(crate) fn parts(
        self,
        guest: &Guest,
        kind: u32,
        sector: u64,
        data: &[(u64, u32)],
    ) -> Vec<super::guest::Part> {
        let mut header = [0; 16];
        header[..4].copy_from_slice(&kind.to_le_bytes());
        header[8..].copy_from_slice(&sector.to_le_bytes());
        guest.write(self.0, &header);
        guest.write(self.status_place(), &[0xff]);
        let is_writable = kind == READ || kind == GET_ID;
        let mut parts = vec![(self.0, 16, false)];
        parts.extend(data.iter().map(|&(address, bytes)| (address, bytes, is_writable)));
        parts.push((self.status_place(), 1, true));
        parts
    }

    pub(crate) fn status(self, guest: &Guest) -> u8 {
        guest.read(self.status_place(), 1)[0]
    }
}

impl FrontEnd {
    /// Executes a request on the first queue. Returns its status.
    pub(crate) fn execute(&mut self, kind: u32, sector: u64, data: &[(u64, u32)]) -> u8 {
        let slot = Slot::of(0);
        let driver = &mut self.drivers[0];
        let guest = driver.guest.clone();
        let parts = slot.parts(&guest, kind, sector, data);
        let head = driver.add(&parts).unwrap();
        driver.show();
        let (used, _) = driver.wait_used();
        assert_eq!(used, head);
        slot.status(&guest)
    }
}
