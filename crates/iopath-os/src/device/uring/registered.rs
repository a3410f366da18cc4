//! The registered buffers of a ring: all at once, or each when the first I/O uses it.

use std::fmt;
use std::ops::Range;

use io_uring::IoUring;
use rustix::process::{Resource, getrlimit};
use rustix::thread::{CapabilitySet, capabilities};

use super::setup::{Refused, Stage};
use crate::memory::Segment;
use crate::pool::{BufferPool, Registration};

/// The buffers of a pool, as a ring knows them.
pub(super) struct Registered {
    buffers: Box<[Buffer]>,
    /// Keeps the memory alive as long as the ring.
    _pool: Option<BufferPool>,
}

#[derive(Debug)]
struct Buffer {
    addresses: Range<usize>,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// No I/O has used the buffer.
    Unused,
    Registered,
    /// The kernel refuses it. I/O uses it as any other memory.
    Refused,
}

impl Registered {
    pub(super) fn none() -> Self {
        Self { buffers: Box::default(), _pool: None }
    }

    /// Whether the ring has no buffers.
    pub(super) fn is_none(&self) -> bool {
        self.buffers.is_empty()
    }

    /// Registers the memory of a pool, at the time that the pool states. A kernel before 5.19 registers it at once.
    pub(super) fn new(ring: &IoUring, pool: &BufferPool) -> Result<Self, Refused> {
        if pool.registration() == Registration::Never {
            return Ok(Self::none());
        }
        let (ranges, iovecs): (Vec<Range<usize>>, Vec<libc::iovec>) =
            pool.registered().map(|addresses| (addresses.clone(), iovec(&addresses))).unzip();
        if iovecs.is_empty() {
            return Ok(Self::none()); // The kernel refuses an empty list.
        }
        let on_first_use = pool.registration() == Registration::OnFirstUse;
        if on_first_use && !may_lock(pool.bytes() as u64) {
            // A part of the pool would be slower than the rest, and nobody would know.
            return Err(Stage::Buffers.refused()(std::io::Error::from_raw_os_error(libc::ENOMEM)));
        }
        let is_later = on_first_use && ring.submitter().register_buffers_sparse(iovecs.len() as u32).is_ok();
        if !is_later {
            // SAFETY: the pool lives as long as the ring.
            unsafe { ring.submitter().register_buffers(&iovecs) }.map_err(Stage::Buffers.refused())?;
        }
        let state = if is_later { State::Unused } else { State::Registered };
        let buffers = ranges.into_iter().map(|addresses| Buffer { addresses, state }).collect();
        Ok(Self { buffers, _pool: Some(pool.clone()) })
    }

    /// The registered buffer that holds the whole segment, if any.
    #[inline]
    pub(super) fn find(&mut self, ring: &IoUring, segment: Segment) -> Option<u16> {
        let number = segment.registered()?;
        let buffer = self.buffers.get_mut(usize::from(number))?;
        let Range { start, end } = buffer.addresses;
        if segment.address() < start || end < segment.address() + segment.len() {
            return None;
        }
        if buffer.state == State::Unused {
            buffer.register(ring, number);
        }
        (buffer.state == State::Registered).then_some(number)
    }
}

impl fmt::Debug for Registered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let in_state = |state| self.buffers.iter().filter(|buffer| buffer.state == state).count();
        f.debug_struct("Registered")
            .field("unused", &in_state(State::Unused))
            .field("registered", &in_state(State::Registered))
            .field("refused", &in_state(State::Refused))
            .finish_non_exhaustive()
    }
}

impl Buffer {
    /// Registers the buffer now. The kernel populates its memory.
    #[cold]
    fn register(&mut self, ring: &IoUring, number: u16) {
        // SAFETY: the pool of these addresses lives as long as the ring.
        let updated = unsafe {
            ring.submitter().register_buffers_update(number.into(), &[iovec(&self.addresses)], None)
        };
        self.state = if updated.is_ok() { State::Registered } else { State::Refused };
    }
}

fn iovec(addresses: &Range<usize>) -> libc::iovec {
    libc::iovec { iov_base: std::ptr::without_provenance_mut(addresses.start), iov_len: addresses.len() }
}

/// Whether this process may lock so many bytes of memory (`RLIMIT_MEMLOCK`).
fn may_lock(bytes: u64) -> bool {
    let is_privileged =
        || capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK));
    getrlimit(Resource::Memlock).current.is_none_or(|limit| bytes <= limit) || is_privileged()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use iopath_core::{BlockDevice, Extent, Io, Limits, Memory, Op, Tag};

    use super::super::{AnyThread, Uring, UringConfig};
    use super::*;
    use crate::aligned::AlignedBuf;
    use crate::clock;
    use crate::device::RealDevice;

    const PAGE: u32 = 4096;

    /// A read into the last pages of the first piece registers that piece alone; one that crosses into the next piece
    /// registers nothing. Both arrive.
    #[test]
    fn a_piece_of_a_pool_is_registered_by_the_first_request_that_lies_in_it() {
        const FIRST: u32 = (2 << 20) / PAGE;
        let written: Vec<u8> = (0..4 * PAGE).map(|byte| (byte % 251) as u8).collect();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &written).unwrap();
        let file = Arc::new(file.reopen().unwrap());
        let pool = BufferPool::of_frames(4 * FIRST, PAGE as usize).unwrap();
        let limits =
            Limits { logical_block_bytes: PAGE, ..Limits::with_capacity(written.len() as u64 / 512) };
        let config = UringConfig { depth: 8, pool: Some(pool.clone()) };
        let mut ring = match Uring::<AnyThread>::new(file, &limits, &config) {
            Ok(ring) => ring,
            Err(refused) => return eprintln!("skipped: io_uring is refused here ({refused})"),
        };
        let count = |ring: &Uring<_>, state| {
            ring.registered.buffers.iter().filter(|buffer| buffer.state == state).count()
        };
        if count(&ring, State::Unused) == 0 {
            return eprintln!("skipped: this kernel registers buffers at once");
        }
        for (first_frame, registered) in [(FIRST - 2, 0), (FIRST - 4, 1), (FIRST - 4, 1)] {
            // SAFETY: the pool has these frames; no code accesses them until the read has completed.
            let pages = (first_frame..first_frame + 4).map(|frame| unsafe { pool.segment(frame) });
            let whole: Segment = pages.reduce(|run, page| run.join(page).unwrap_or(run)).unwrap();
            assert_eq!(whole.bytes(), if registered == 0 { 2 } else { 4 } * u64::from(PAGE));
            // SAFETY: as above. The memory of the pages is contiguous.
            let run = unsafe { Segment::of_iovec(libc::iovec { iov_len: written.len(), ..whole.iovec() }) };
            let run = run.unwrap().in_registered_buffer(whole.registered().unwrap());
            let extent = Extent::from_bytes(0, written.len() as u64).unwrap();
            ring.submit(&Io::new(Tag::from_bits(1), Op::Read, extent, &[run]), clock::now()).unwrap();
            ring.commit_and_wait(1, None).unwrap();
            assert_eq!(ring.poll_completion(clock::now()).unwrap().result, Ok(()));
            let mut read = vec![0; written.len()];
            // SAFETY: the read has completed.
            unsafe { run.copy_to(&mut read) };
            assert!(read == written);
            assert_eq!(count(&ring, State::Registered), registered, "{ring:?}");
        }
    }

    /// Memory of the program is registered by the first request in each piece, as memory of the pool.
    #[test]
    fn memory_of_the_program_is_registered_piece_by_piece() {
        let written: Vec<u8> = (0..PAGE).map(|byte| (byte % 251) as u8).collect();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &written).unwrap();
        let frames = AlignedBuf::new(8 << 20).unwrap();
        // SAFETY: the region has these frames, the pool owns it, and nothing else accesses it.
        let pool = unsafe { BufferPool::of_memory(frames.start(), 2048, PAGE as usize, frames) }.unwrap();
        let limits = Limits { logical_block_bytes: PAGE, ..Limits::with_capacity(u64::from(PAGE) / 512) };
        let config = UringConfig { depth: 8, pool: Some(pool.clone()) };
        let mut ring = match Uring::<AnyThread>::new(Arc::new(file.reopen().unwrap()), &limits, &config) {
            Ok(ring) => ring,
            Err(refused) => return eprintln!("skipped: io_uring is refused here ({refused})"),
        };
        if ring.registered.buffers.iter().all(|buffer| buffer.state == State::Registered) {
            return eprintln!("skipped: this kernel registers buffers at once");
        }
        for last in [0, 2047] {
            // SAFETY: the pool has these frames; no code accesses them until the read has completed.
            let segment = unsafe { pool.segment(last) };
            let extent = Extent::from_bytes(0, u64::from(PAGE)).unwrap();
            ring.submit(&Io::new(Tag::from_bits(1), Op::Read, extent, &[segment]), clock::now()).unwrap();
            ring.commit_and_wait(1, None).unwrap();
            assert_eq!(ring.poll_completion(clock::now()).unwrap().result, Ok(()));
            let mut read = vec![0; written.len()];
            // SAFETY: the read has completed.
            unsafe { segment.copy_to(&mut read) };
            assert!(read == written);
            let number = segment.registered().unwrap();
            assert_eq!(ring.registered.buffers[usize::from(number)].state, State::Registered, "{ring:?}");
        }
    }
}
