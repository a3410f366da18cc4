//! A queue of a ublk device: fetches requests with their buffers and commits their results. Does not interpret them.
//!
//! # Why this is sound
//!
//! The driver copies the data of a write to the buffer of its tag, and that of a read from it. It does so only in calls
//! of the thread that owns the ring, while the tag is with the driver. The ring owns the buffer then; the caller owns
//! it between the request and the commit. Buffers and ring are made before the device is opened: see
//! [`UblkQueueParts`].

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::time::Duration;

use io_uring::{Builder, IoUring, opcode, types};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::control::passes;
use super::{READ_WRITE, command_of};
use crate::aligned::{AlignedBuf, page_bytes};

/// The size of `struct ublksrv_io_cmd`.
const COMMAND_BYTES: u32 = 16;

const FETCH: u32 = command_of(READ_WRITE, COMMAND_BYTES, 0x20);
const COMMIT_AND_FETCH: u32 = command_of(READ_WRITE, COMMAND_BYTES, 0x21);

/// The largest depth of a queue (`UBLK_MAX_QUEUE_DEPTH`).
const DEPTH_MAX: usize = 4096;

/// The largest number of watched descriptors.
const WATCHES_MAX: usize = 4;

/// The user data of watched descriptors; tags are below.
const WATCH: u64 = 1 << 16;

/// The character device of a ublk device.
#[derive(Debug, Clone)]
pub struct UblkDevice(Arc<File>);

impl UblkDevice {
    /// Opens the device. One process can have it open at a time.
    ///
    /// # Errors
    /// The error of the system; EBUSY if another process has opened it.
    pub fn open(path: &str) -> io::Result<Self> {
        Ok(Self(Arc::new(OpenOptions::new().read(true).write(true).open(path)?)))
    }
}

/// A request of the kernel, as the driver describes it.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UblkDescriptor {
    /// The operation in the lowest byte, and flags.
    pub op_flags: u32,
    /// The length in sectors.
    pub sectors: u32,
    /// The first sector.
    pub start_sector: u64,
    address: u64,
}

impl UblkDescriptor {
    /// A descriptor of a test.
    #[must_use]
    pub const fn new(op_flags: u32, start_sector: u64, sectors: u32) -> Self {
        Self { op_flags, sectors, start_sector, address: 0 }
    }
}

/// An event of a queue.
#[derive(Debug)]
pub enum UblkEvent {
    /// A request. [`UblkQueue::commit`] takes the buffer back.
    Request {
        /// The number of the request in the queue.
        tag: u16,
        /// Its operation and range.
        descriptor: UblkDescriptor,
        /// Its data, if it is a write.
        buffer: AlignedBuf,
    },
    /// The driver has no further requests for this tag: the device has stopped, or the command was refused.
    Ended {
        /// The number of the request in the queue.
        tag: u16,
        /// The reason: ENODEV if the device has stopped.
        errno: i32,
    },
    /// A watched descriptor is readable.
    Readable,
}

/// The buffers and the ring of a queue, before its device: what a queue needs memory for. Belongs to the thread that
/// made it.
pub struct UblkQueueParts {
    ring: IoUring,
    buffers: Vec<Option<AlignedBuf>>,
    buffer_bytes: usize,
    /// The ring accepts the calls of one thread only.
    not_send: PhantomData<*const ()>,
}

impl UblkQueueParts {
    /// A buffer of `buffer_bytes` bytes for each of `depth` tags, and a ring for their commands.
    ///
    /// # Errors
    /// The error of the system.
    pub fn new(depth: u16, buffer_bytes: usize) -> io::Result<Self> {
        let buffers = (0..depth)
            .map(|_| AlignedBuf::new(buffer_bytes).map(Some).map_err(|error| error.source))
            .collect::<io::Result<Vec<_>>>()?;
        // One more entry for each watch.
        let ring = ring(u32::from(depth) + WATCHES_MAX as u32)?;
        // The place of the device.
        ring.submitter().register_files(&[-1])?;
        Ok(Self { ring, buffers, buffer_bytes, not_send: PhantomData })
    }
}

impl fmt::Debug for UblkQueueParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UblkQueueParts").field("buffers", &self.buffers.len()).finish_non_exhaustive()
    }
}

/// A queue, of the thread that made it.
pub struct UblkQueue {
    ring: ManuallyDrop<IoUring>,
    descriptors: Descriptors,
    index: u16,
    /// The buffers of the tags that are with the driver.
    buffers: ManuallyDrop<Vec<Option<AlignedBuf>>>,
    buffer_bytes: usize,
    with_driver: u16,
    watched: Vec<OwnedFd>,
    /// Kept open while the ring refers to it.
    device: UblkDevice,
    /// The driver accepts the commands of a queue from one thread only.
    not_send: PhantomData<*const ()>,
}

impl UblkQueue {
    /// Joins the parts to a device, which must have a queue of this number and of their depth. Maps a few pages, and
    /// changes nothing in the driver.
    ///
    /// # Errors
    /// The error of the system.
    pub fn open(parts: UblkQueueParts, device: &UblkDevice, index: u16) -> io::Result<Self> {
        let UblkQueueParts { ring, buffers, buffer_bytes, not_send } = parts;
        let descriptors = Descriptors::map(&device.0, index, buffers.len() as u16)?;
        ring.submitter().register_files_update(0, &[device.0.as_raw_fd()])?;
        Ok(Self {
            ring: ManuallyDrop::new(ring),
            descriptors,
            index,
            buffers: ManuallyDrop::new(buffers),
            buffer_bytes,
            with_driver: 0,
            watched: Vec::new(),
            device: device.clone(),
            not_send,
        })
    }

    /// Fetches the first request of each tag, before the start of the disk: no request comes until then.
    ///
    /// # Errors
    /// The error of the driver, which has refused a tag, or of `io_uring_enter(2)`.
    pub fn fetch(&mut self) -> io::Result<()> {
        for tag in 0..self.descriptors.depth {
            self.push(FETCH, tag, 0);
        }
        self.enter(Duration::ZERO)?;
        match self.next_event() {
            None => Ok(()),
            Some(UblkEvent::Ended { errno, .. }) => Err(io::Error::from_raw_os_error(errno)),
            Some(_) => Err(io::Error::other("the driver has sent a request before the start of the disk")),
        }
    }

    /// Makes [`UblkQueue::enter`] return when the descriptor is readable.
    ///
    /// # Panics
    /// If there are too many.
    pub fn watch(&mut self, descriptor: OwnedFd) {
        assert!(self.watched.len() < WATCHES_MAX, "a queue watches a few descriptors");
        self.watched.push(descriptor);
        self.push_watch(self.watched.len() - 1);
    }

    /// Completes a request with its number of bytes or a negative error number, and fetches the next request of the
    /// tag. The driver takes it in [`UblkQueue::enter`].
    ///
    /// # Panics
    /// If the tag is with the driver, or the buffer is shorter than those of this queue.
    pub fn commit(&mut self, tag: u16, result: i32, buffer: AlignedBuf) {
        assert!(buffer.len() >= self.buffer_bytes, "the driver writes to the whole buffer");
        let place = &mut self.buffers[usize::from(tag)];
        assert!(place.is_none(), "tag {tag} is with the driver");
        *place = Some(buffer);
        self.push(COMMIT_AND_FETCH, tag, result);
    }

    /// Submits the commits, and waits for an event, at most for `limit`. Returns whether there is one.
    ///
    /// # Errors
    /// The error of `io_uring_enter(2)`.
    pub fn enter(&mut self, limit: Duration) -> io::Result<bool> {
        let time = types::Timespec::from(limit);
        let args = types::SubmitArgs::new().timespec(&time);
        match self.ring.submitter().submit_with_args(1, &args) {
            Err(error) if !passes(&error) => Err(error),
            _ => Ok(!self.ring.completion().is_empty()),
        }
    }

    /// The next event of the last [`UblkQueue::enter`].
    pub fn next_event(&mut self) -> Option<UblkEvent> {
        let completion = self.ring.completion().next()?;
        let number = completion.user_data();
        if number >= WATCH {
            self.push_watch((number - WATCH) as usize);
            return Some(UblkEvent::Readable);
        }
        let tag = number as u16;
        let buffer = self.buffers[usize::from(tag)].take().expect("a command completes once");
        self.with_driver -= 1;
        let result = completion.result();
        if result != 0 {
            return Some(UblkEvent::Ended { tag, errno: -result });
        }
        let descriptor = self.descriptors.read(tag);
        Some(UblkEvent::Request { tag, descriptor, buffer })
    }

    fn push(&mut self, code: u32, tag: u16, result: i32) {
        let buffer = self.buffers[usize::from(tag)].as_ref().expect("each command has a buffer");
        let mut command = [0; COMMAND_BYTES as usize];
        command[..2].copy_from_slice(&self.index.to_ne_bytes());
        command[2..4].copy_from_slice(&tag.to_ne_bytes());
        command[4..8].copy_from_slice(&result.to_ne_bytes());
        command[8..].copy_from_slice(&(buffer.start().as_ptr() as u64).to_ne_bytes());
        let entry = opcode::UringCmd16::new(types::Fixed(0), code).cmd(command).build();
        self.with_driver += 1;
        // SAFETY: the buffer is in `buffers` until the completion, and leaked if this value is dropped before.
        let pushed = unsafe { self.ring.submission().push(&entry.user_data(u64::from(tag))) };
        pushed.expect("the ring has an entry for each tag, and a tag is in it once");
    }

    /// A watch ends with its event, so it begins again.
    fn push_watch(&mut self, index: usize) {
        let descriptor = types::Fd(self.watched[index].as_raw_fd());
        let entry = opcode::PollAdd::new(descriptor, libc::POLLIN as u32).build();
        // SAFETY: the entry refers to no memory; the descriptor is open as long as this value lives.
        let pushed = unsafe { self.ring.submission().push(&entry.user_data(WATCH + index as u64)) };
        pushed.expect("the ring has an entry for each watch");
    }
}

impl fmt::Debug for UblkQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UblkQueue")
            .field("device", &self.device)
            .field("index", &self.index)
            .field("with_driver", &self.with_driver)
            .finish_non_exhaustive()
    }
}

impl Drop for UblkQueue {
    /// The end of the ring ends the fetches later, so their buffers are leaked.
    fn drop(&mut self) {
        // SAFETY: the ring is not used after this.
        unsafe { ManuallyDrop::drop(&mut self.ring) };
        if self.with_driver == 0 {
            // SAFETY: nor are the buffers, and the driver has none of them.
            unsafe { ManuallyDrop::drop(&mut self.buffers) };
        }
    }
}

/// The descriptors of a queue, which the driver writes.
#[derive(Debug)]
struct Descriptors {
    start: NonNull<UblkDescriptor>,
    depth: u16,
    bytes: usize,
}

impl Descriptors {
    fn map(file: &File, index: u16, depth: u16) -> io::Result<Self> {
        let page = page_bytes();
        let bytes = (usize::from(depth) * size_of::<UblkDescriptor>()).next_multiple_of(page);
        let distance = (DEPTH_MAX * size_of::<UblkDescriptor>()).next_multiple_of(page);
        let offset = u64::from(index) * distance as u64;
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
        let start =
            unsafe { mmap(ptr::null_mut(), bytes, ProtFlags::READ, MapFlags::SHARED, file.as_fd(), offset)? };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, depth, bytes })
    }

    fn read(&self, tag: u16) -> UblkDescriptor {
        assert!(tag < self.depth, "tag {tag} of {}", self.depth);
        // SAFETY: the mapping has `depth` descriptors. The driver has written this one before the completion that was
        // read from the ring, and does not write it again before the commit.
        unsafe { self.start.add(usize::from(tag)).read_volatile() }
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and no reference to it exists.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// A ring whose completions run in the calls of this thread, as far as the kernel can.
fn ring(entries: u32) -> io::Result<IoUring> {
    let flags: [fn(&mut Builder) -> &mut Builder; 2] = [
        |ring| ring.setup_submit_all().setup_coop_taskrun().setup_single_issuer().setup_defer_taskrun(),
        |ring| ring.setup_submit_all(),
    ];
    let mut refused = io::Error::from_raw_os_error(libc::EINVAL);
    for set in flags {
        match set(&mut IoUring::builder()).dontfork().build(entries) {
            Ok(ring) => return Ok(ring),
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => refused = error,
            Err(error) => return Err(error),
        }
    }
    Err(refused)
}
