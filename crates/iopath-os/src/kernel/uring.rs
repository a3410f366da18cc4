//! Many transfers in flight from one thread with `io_uring`, the kernel's fastest path: registered file and buffers,
//! one system call for several transfers. The kernel orders and merges the transfers.

use std::fmt;
use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::num::NonZeroU32;
use std::os::fd::AsRawFd;
use std::time::Duration;

use io_uring::{IoUring, cqueue, opcode, squeue, types};

use super::{Direction, Done, Progress, Slots, TRIM, Transfer, advance};
use crate::thread_policy::IoPriority;

/// The number of transfers for each system call, unless [`Uring::set_submit_max`] sets another one. Submitting a deep
/// batch at once would save system calls, but leave the device idle while the batch is prepared. Measured with random
/// reads of 4 KiB at depth 32 on one virtio disk (median of 24 alternating pairs, 2 busy CPUs): groups of four have
/// 1.19 times the rate of the whole batch at once, at 0.74 times the CPU time.
const SUBMIT_MAX: NonZeroU32 = NonZeroU32::new(4).unwrap();

/// The registered file's index.
const FILE: types::Fixed = types::Fixed(0);

/// How a ring finds work, instead of system calls and interrupts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Polling {
    /// The caller polls the device for completions (`IORING_SETUP_IOPOLL`), on a device with polled queues.
    pub completions: bool,
    /// A thread of the kernel polls for submissions (`IORING_SETUP_SQPOLL`).
    pub submissions: bool,
    /// The CPU of that thread; unset is any.
    pub cpu: Option<u32>,
}

/// The time after which the kernel's thread sleeps until it is woken, in milliseconds; as in fio.
const SUBMISSION_IDLE_MS: u32 = 1000;

/// An `io_uring` of the calling thread on one file. Its depth is the number of slots.
///
/// Uses `SINGLE_ISSUER` and `DEFER_TASKRUN` (Linux 6.1) if the kernel supports them, so that this thread handles
/// completions in its own calls, without interrupts. Otherwise it uses `COOP_TASKRUN` (5.19), or no flag.
pub struct Uring {
    /// Ring and slots are leaked if a wait for the transfers in flight fails: see `drop`.
    ring: ManuallyDrop<IoUring>,
    slots: ManuallyDrop<Slots>,
    /// Kept open because completions of the ring refer to it.
    file: File,
    align: u32,
    /// The transfer of each slot, and its bytes done.
    in_flight: Vec<Option<(Transfer, u32)>>,
    /// The priority of the transfer of each slot, as [`crate::thread_policy::IoPriority::number`].
    priorities: Vec<u16>,
    in_flight_count: u32,
    /// The queued transfers from which [`Uring::submit`] submits them.
    submit_max: NonZeroU32,
    buffers_registered: bool,
    /// The kernel ties the ring to the thread that made it.
    not_send: PhantomData<*const ()>,
}

impl Uring {
    /// A ring for transfers between `file` and `slots`. `align` is the offset alignment the file was opened with, in
    /// bytes: the device's for `O_DIRECT`, 1 through the page cache.
    ///
    /// Errors: ENOSYS if the kernel has no `io_uring`, EPERM if a sysctl or a container's seccomp filter refuses it,
    /// ENOMEM if memory for the ring is limited.
    pub fn new(file: File, slots: Slots, align: u32) -> io::Result<Self> {
        Self::with_polling(file, slots, align, Polling::default())
    }

    /// Does the same as [`Self::new`], with polling.
    ///
    /// # Errors
    /// Returns the errors of [`Self::new`]. A device without polled queues completes its transfers with EOPNOTSUPP, or
    /// by interrupts.
    ///
    /// # Panics
    /// Panics like [`Self::new`].
    pub fn with_polling(file: File, slots: Slots, align: u32, polling: Polling) -> io::Result<Self> {
        assert!(align > 0, "an alignment is 1 byte at least");
        let ring = build(slots.depth(), polling)?;
        ring.submitter().register_files(&[file.as_raw_fd()])?;
        let buffers: Vec<libc::iovec> = (0..slots.depth())
            .map(|slot| libc::iovec {
                iov_base: slots.start(slot).as_ptr().cast(),
                iov_len: slots.block_bytes() as usize,
            })
            .collect();
        // SAFETY: the buffers are live memory owned by this value, which frees it only once nothing is in flight.
        let buffers_registered = unsafe { ring.submitter().register_buffers(&buffers) }.is_ok();
        Ok(Self {
            in_flight: vec![None; slots.depth() as usize],
            priorities: vec![0; slots.depth() as usize],
            ring: ManuallyDrop::new(ring),
            slots: ManuallyDrop::new(slots),
            file,
            align,
            in_flight_count: 0,
            submit_max: SUBMIT_MAX,
            buffers_registered,
            not_send: PhantomData,
        })
    }

    /// The maximum number of transfers in flight.
    pub fn depth(&self) -> u32 {
        self.slots.depth()
    }

    /// Whether the kernel has pinned the buffers permanently. If not (`RLIMIT_MEMLOCK` on kernels before 5.12, or a
    /// very large buffer), it pins them at each transfer, which costs CPU.
    pub fn buffers_registered(&self) -> bool {
        self.buffers_registered
    }

    /// Sets the number of transfers that are submitted together at most.
    pub fn set_submit_max(&mut self, transfers: NonZeroU32) {
        self.submit_max = transfers;
    }

    /// Whether transfers are queued and not yet submitted.
    pub fn has_queued(&mut self) -> bool {
        !self.ring.submission().is_empty()
    }

    /// Queues a transfer. It is submitted to the kernel together with a few others, or in [`Self::reap`].
    ///
    /// # Errors
    /// EINVAL for an offset that exceeds the range of the system, as in `pread(2)`; otherwise the errors of
    /// `io_uring_enter(2)`.
    ///
    /// # Panics
    /// If the slot is in flight, or the transfer does not fit its buffer.
    pub fn submit(&mut self, slot: u32, transfer: Transfer) -> io::Result<()> {
        assert!(self.in_flight[slot as usize].is_none(), "slot {slot} is in flight");
        assert!(transfer.bytes <= self.slots.block_bytes(), "{transfer:?} does not fit its buffer");
        // The highest number means the file's current position, and would move bytes there.
        let end = transfer.offset.checked_add(u64::from(transfer.bytes));
        if end.is_none_or(|end| i64::try_from(end).is_err()) {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        if transfer.direction == Direction::Write {
            // SAFETY: the slot is not in flight, as checked above.
            unsafe { self.slots.stamp(slot, transfer.offset) };
        }
        self.in_flight[slot as usize] = Some((transfer, 0));
        self.in_flight_count += 1;
        self.push(slot, transfer, 0);
        if self.ring.submission().len() < self.submit_max.get() as usize {
            return Ok(());
        }
        self.submit_queued()
    }

    /// Submits the queued transfers to the kernel, without a wait for completions.
    ///
    /// # Errors
    /// Returns the errors of `io_uring_enter(2)`.
    pub fn submit_queued(&mut self) -> io::Result<()> {
        match self.ring.submit() {
            // If the kernel has no room now, the entries stay in the queue until `reap` makes room.
            Err(error) if !is_passing(&error) => Err(error),
            _ => Ok(()),
        }
    }

    /// Does the same as [`Self::submit`], with a priority of its own instead of that of the thread.
    ///
    /// # Errors
    /// Returns the errors of [`Self::submit`]. A kernel or a device without such priorities ignores the priority.
    ///
    /// # Panics
    /// Panics like [`Self::submit`].
    pub fn submit_prioritized(
        &mut self,
        slot: u32,
        transfer: Transfer,
        priority: IoPriority,
    ) -> io::Result<()> {
        self.priorities[slot as usize] = priority.number();
        self.submit(slot, transfer)
    }

    /// Submits the remaining queued transfers to the kernel and, with the same system call, waits until at least one
    /// transfer has completed. Returns at once if no transfer is in flight.
    pub fn reap(&mut self, done: &mut Vec<Done>) -> io::Result<()> {
        let before = done.len();
        while self.in_flight_count > 0 && done.len() == before {
            self.enter(1)?;
            self.take_completions(done);
        }
        Ok(())
    }

    /// Does the same as [`Self::reap`], but returns after `wait` at the latest, possibly without a completion.
    ///
    /// # Errors
    /// Returns the errors of `io_uring_enter(2)`: EINVAL on a kernel before 5.11, which has no time limit for it.
    pub fn reap_within(&mut self, done: &mut Vec<Done>, wait: Duration) -> io::Result<()> {
        let limit = types::Timespec::from(wait);
        let limit = types::SubmitArgs::new().timespec(&limit);
        match self.ring.submitter().submit_with_args(1, &limit) {
            Err(error) if !is_passing(&error) && error.raw_os_error() != Some(libc::ETIME) => {
                return Err(error);
            }
            _ => self.take_completions(done),
        }
        Ok(())
    }

    fn take_completions(&mut self, done: &mut Vec<Done>) {
        while let Some(completion) = self.next_completion() {
            let slot = completion.user_data() as u32;
            if let Some(result) = self.complete(slot, completion.result()) {
                self.in_flight[slot as usize] = None;
                self.priorities[slot as usize] = 0;
                self.in_flight_count -= 1;
                done.push(Done { slot, result });
            }
        }
    }

    /// The bytes in the buffer of a slot.
    ///
    /// # Panics
    /// If the slot is in flight.
    pub fn buffer(&mut self, slot: u32) -> &mut [u8] {
        assert!(self.in_flight[slot as usize].is_none(), "slot {slot} is in flight");
        // SAFETY: the slot is not in flight, as checked above, and `&mut self` keeps it so.
        unsafe { self.slots.buffer(slot) }
    }

    /// Returns when all completed writes are on the medium (`fdatasync(2)`).
    pub fn flush(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// As [`Uring::flush`], with the metadata of the file (`fsync(2)`).
    pub fn flush_all(&mut self) -> io::Result<()> {
        self.file.sync_all()
    }

    fn next_completion(&mut self) -> Option<cqueue::Entry> {
        self.ring.completion().next()
    }

    /// Handles a completion: the end of a transfer, or `None` if the rest of it was submitted.
    fn complete(&mut self, slot: u32, result: i32) -> Option<io::Result<()>> {
        let (transfer, from) =
            self.in_flight[slot as usize].expect("a completion belongs to a slot in flight");
        let next = match u32::try_from(result) {
            Err(_) if matches!(-result, libc::EAGAIN | libc::EINTR) => from,
            Err(_) => return Some(Err(io::Error::from_raw_os_error(-result))),
            Ok(_) if transfer.direction == Direction::Trim => return Some(Ok(())),
            Ok(moved) => match advance(transfer, from, moved, self.align) {
                Progress::Whole => return Some(Ok(())),
                Progress::From(next) => next,
                Progress::Ended(kind) => return Some(Err(kind.into())),
            },
        };
        self.in_flight[slot as usize] = Some((transfer, next));
        self.push(slot, transfer, next);
        None
    }

    /// Submits the transfer without its first `from` bytes.
    fn push(&mut self, slot: u32, transfer: Transfer, from: u32) {
        // SAFETY: `from` is within the transfer, which fits the slot's buffer.
        let start = unsafe { self.slots.start(slot).add(from as usize) }.as_ptr();
        let (bytes, offset) = (transfer.bytes - from, transfer.offset + u64::from(from));
        let priority = self.priorities[slot as usize];
        let entry: squeue::Entry = match (transfer.direction, self.buffers_registered) {
            (Direction::Trim, _) => opcode::Fallocate::new(FILE, bytes.into())
                .offset(offset)
                .mode(TRIM.bits().cast_signed())
                .build(),
            (Direction::Read, true) => opcode::ReadFixed::new(FILE, start, bytes, slot as u16)
                .offset(offset)
                .ioprio(priority)
                .build(),
            (Direction::Write, true) => opcode::WriteFixed::new(FILE, start, bytes, slot as u16)
                .offset(offset)
                .ioprio(priority)
                .build(),
            (Direction::Read, false) => {
                opcode::Read::new(FILE, start, bytes).offset(offset).ioprio(priority).build()
            }
            (Direction::Write, false) => {
                opcode::Write::new(FILE, start, bytes).offset(offset).ioprio(priority).build()
            }
        };
        // SAFETY: the buffer stays where it is and untouched until the completion arrives: it is ours, its slot is
        // in flight, and `drop` waits.
        let pushed = unsafe { self.ring.submission().push(&entry.user_data(u64::from(slot))) };
        pushed.expect("the queue has an entry for each slot, and each slot is in it once");
    }

    /// `io_uring_enter(2)`, repeated while a signal or a full completion queue interrupts it.
    fn enter(&mut self, wait_for: usize) -> io::Result<()> {
        loop {
            match self.ring.submit_and_wait(wait_for) {
                Ok(_) => return Ok(()),
                Err(error) if !is_passing(&error) => return Err(error),
                // Reaping the ready completions makes room.
                Err(_) if !self.ring.completion().is_empty() => return Ok(()),
                Err(_) => std::thread::yield_now(),
            }
        }
    }
}

impl fmt::Debug for Uring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Uring").field("in_flight", &self.in_flight_count).finish_non_exhaustive()
    }
}

impl Drop for Uring {
    /// Waits for the transfers in flight, since the kernel uses their memory. If the wait fails, leaks memory and ring,
    /// so that the kernel never writes to freed memory.
    fn drop(&mut self) {
        let mut done = Vec::with_capacity(self.slots.depth() as usize);
        while self.in_flight_count > 0 {
            if self.reap(&mut done).is_err() {
                return;
            }
            done.clear();
        }
        // SAFETY: neither is used after this, and nothing in flight refers to the memory.
        unsafe { ManuallyDrop::drop(&mut self.ring) };
        // SAFETY: as above.
        unsafe { ManuallyDrop::drop(&mut self.slots) };
    }
}

/// Whether the error of `io_uring_enter(2)` is transient: a signal, or no room now.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY))
}

/// A ring with the best flags that the kernel supports; it refuses unknown flags with EINVAL.
fn build(depth: u32, polling: Polling) -> io::Result<IoUring> {
    let flags: [fn(&mut io_uring::Builder); 3] = [
        |ring| {
            ring.setup_single_issuer().setup_defer_taskrun();
        },
        |ring| {
            ring.setup_coop_taskrun();
        },
        |_| (),
    ];
    let mut refused = io::Error::from_raw_os_error(libc::EINVAL);
    for set in flags {
        let mut builder = IoUring::builder();
        // Completions of a ring that a thread of the kernel serves are no work of the caller's.
        if !polling.submissions {
            set(&mut builder);
        }
        poll(&mut builder, polling);
        match builder.build(depth) {
            Ok(ring) => return Ok(ring),
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => refused = error,
            Err(error) => return Err(error),
        }
    }
    Err(refused)
}

fn poll(builder: &mut io_uring::Builder, polling: Polling) {
    if polling.completions {
        builder.setup_iopoll();
    }
    if polling.submissions {
        builder.setup_sqpoll(SUBMISSION_IDLE_MS);
    }
    if let Some(cpu) = polling.cpu.filter(|_| polling.submissions) {
        builder.setup_sqpoll_cpu(cpu);
    }
}
