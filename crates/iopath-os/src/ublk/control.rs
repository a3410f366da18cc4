//! The control commands of the ublk driver, one at a time. Waits for each of them at most for a given time.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::time::Duration;

use io_uring::{IoUring, cqueue, opcode, squeue, types};

use super::{READ, READ_WRITE, command_of};
use crate::aligned::AlignedBuf;
use crate::clock;

/// The device node of the driver.
const NODE: &str = "/dev/ublk-control";

/// The size of `struct ublksrv_ctrl_cmd`.
const HEADER_BYTES: u32 = 32;

/// The number of a queue for a command that concerns none.
const NO_QUEUE: u16 = u16::MAX;

/// A control command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UblkOp {
    /// The state of a device.
    GetDeviceInfo,
    /// Makes a device without a disk.
    AddDevice,
    /// Removes a device.
    DeleteDevice,
    /// Adds the disk of a device, whose queues wait for requests.
    StartDevice,
    /// Removes the disk of a device.
    StopDevice,
    /// Sets the parameters of the disk.
    SetParameters,
    /// The parameters of the disk.
    GetParameters,
    /// Prepares a device for another process, after the first one has ended.
    StartRecovery,
    /// Continues the device, whose queues of the other process wait for requests.
    EndRecovery,
    /// The features of the driver.
    GetFeatures,
}

impl UblkOp {
    const fn code(self) -> u32 {
        let (direction, number) = match self {
            Self::GetDeviceInfo => (READ, 0x12),
            Self::AddDevice => (READ_WRITE, 0x04),
            Self::DeleteDevice => (READ_WRITE, 0x05),
            Self::StartDevice => (READ_WRITE, 0x06),
            Self::StopDevice => (READ_WRITE, 0x07),
            Self::SetParameters => (READ_WRITE, 0x08),
            Self::GetParameters => (READ, 0x09),
            Self::StartRecovery => (READ_WRITE, 0x10),
            Self::EndRecovery => (READ_WRITE, 0x11),
            Self::GetFeatures => (READ, 0x13),
        };
        command_of(direction, HEADER_BYTES, number)
    }
}

/// A command with its argument.
#[derive(Debug)]
pub struct UblkCommand<'a> {
    /// The operation.
    pub op: UblkOp,
    /// The number of the device.
    pub device: u32,
    /// The number that some operations need.
    pub data: u64,
    /// The path of the character device, for the check of the permission; empty for none.
    pub path: &'a str,
    /// The structure that the operation reads or writes; empty for none.
    pub payload: &'a mut [u8],
}

/// The driver.
pub struct UblkControl {
    ring: ManuallyDrop<Ring>,
    file: File,
    sequence: u64,
    /// The memory of commands that did not end in time: the kernel may still write to it.
    abandoned: Vec<(u64, ManuallyDrop<AlignedBuf>)>,
}

impl fmt::Debug for UblkControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UblkControl")
            .field("sequence", &self.sequence)
            .field("abandoned", &self.abandoned.len())
            .finish_non_exhaustive()
    }
}

struct Ring(IoUring<squeue::Entry128, cqueue::Entry>);

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring").finish_non_exhaustive()
    }
}

impl UblkControl {
    /// Opens the driver.
    ///
    /// # Errors
    /// `NotFound`: the driver is not there, or not loaded. `PermissionDenied`. The errors of `io_uring_setup(2)`.
    pub fn open() -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(NODE)?;
        let ring = IoUring::<squeue::Entry128, cqueue::Entry>::builder().dontfork().build(4)?;
        Ok(Self { ring: ManuallyDrop::new(Ring(ring)), file, sequence: 0, abandoned: Vec::new() })
    }

    /// Executes a command.
    ///
    /// # Errors
    /// The error of the driver. `TimedOut`: the command has not ended within this time; it may end later.
    ///
    /// # Panics
    /// If path and payload are longer than 64 KiB.
    pub fn execute(&mut self, command: &mut UblkCommand<'_>, limit: Duration) -> io::Result<()> {
        let path_bytes = if command.path.is_empty() { 0 } else { command.path.len() + 1 };
        let bytes = path_bytes + command.payload.len();
        let header = header(command, bytes, path_bytes);
        let mut memory = AlignedBuf::new(bytes.max(1)).map_err(|error| error.source)?;
        memory[..command.path.len()].copy_from_slice(command.path.as_bytes());
        memory[path_bytes..bytes].copy_from_slice(command.payload);
        self.sequence += 1;
        let result = self.run(command.op, header, &memory, limit);
        match result {
            Ok(Some(result)) => {
                command.payload.copy_from_slice(&memory[path_bytes..bytes]);
                if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(()) }
            }
            Ok(None) => {
                self.abandoned.push((self.sequence, ManuallyDrop::new(memory)));
                Err(io::Error::new(io::ErrorKind::TimedOut, "the driver did not execute the command in time"))
            }
            Err(error) => {
                self.abandoned.push((self.sequence, ManuallyDrop::new(memory)));
                Err(error)
            }
        }
    }

    /// Submits the command and waits for its result; `None` after the limit.
    fn run(
        &mut self,
        op: UblkOp,
        mut header: [u8; 80],
        memory: &AlignedBuf,
        limit: Duration,
    ) -> io::Result<Option<i32>> {
        header[8..16].copy_from_slice(&(memory.start().as_ptr() as u64).to_ne_bytes());
        let entry = opcode::UringCmd80::new(types::Fd(self.file.as_raw_fd()), op.code()).cmd(header).build();
        // SAFETY: the memory is released only after the completion of this command: `execute` keeps it otherwise.
        let pushed = unsafe { self.ring.0.submission().push(&entry.user_data(self.sequence)) };
        pushed.map_err(|_| io::Error::other("the ring for control commands is full"))?;
        let end = clock::now() + limit;
        loop {
            let left = end.saturating_since(clock::now());
            let time = types::Timespec::from(left);
            let args = types::SubmitArgs::new().timespec(&time);
            match self.ring.0.submitter().submit_with_args(1, &args) {
                Err(error) if !passes(&error) => return Err(error),
                _ => {}
            }
            while let Some(completion) = self.ring.0.completion().next() {
                let number = completion.user_data();
                if number == self.sequence {
                    return Ok(Some(completion.result()));
                }
                self.abandoned.retain_mut(|(abandoned, memory)| {
                    let is_kept = *abandoned != number;
                    if !is_kept {
                        // SAFETY: its command has completed, and the entry is removed now.
                        unsafe { ManuallyDrop::drop(memory) };
                    }
                    is_kept
                });
            }
            if left.is_zero() {
                return Ok(None);
            }
        }
    }
}

impl Drop for UblkControl {
    /// A command that has not ended keeps its memory and its ring.
    fn drop(&mut self) {
        if self.abandoned.is_empty() {
            // SAFETY: it is not used after this.
            unsafe { ManuallyDrop::drop(&mut self.ring) };
        }
    }
}

/// `struct ublksrv_ctrl_cmd`, without the address.
fn header(command: &UblkCommand<'_>, bytes: usize, path_bytes: usize) -> [u8; 80] {
    let length = u16::try_from(bytes).expect("a path and a structure have less than 64 KiB");
    let mut header = [0; 80];
    header[..4].copy_from_slice(&command.device.to_ne_bytes());
    header[4..6].copy_from_slice(&NO_QUEUE.to_ne_bytes());
    header[6..8].copy_from_slice(&length.to_ne_bytes());
    header[16..24].copy_from_slice(&command.data.to_ne_bytes());
    header[24..26].copy_from_slice(&(path_bytes as u16).to_ne_bytes());
    header
}

/// Whether a wait may go on after this error of `io_uring_enter(2)`.
pub(super) fn passes(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ETIME | libc::EINTR | libc::EAGAIN | libc::EBUSY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_have_the_numbers_of_the_header_of_the_kernel() {
        assert_eq!(UblkOp::AddDevice.code(), 0xc020_7504);
        assert_eq!(UblkOp::GetDeviceInfo.code(), 0x8020_7512);
        assert_eq!(UblkOp::GetFeatures.code(), 0x8020_7513);
    }

    #[test]
    fn a_header_has_the_lengths_of_path_and_structure() {
        let command = UblkCommand {
            op: UblkOp::StartDevice,
            device: 7,
            data: 0x0102,
            path: "/dev/ublkc7",
            payload: &mut [0; 4],
        };
        let header = header(&command, 16, 12);
        let mut expected = [0; 80];
        expected[0] = 7;
        expected[4..8].copy_from_slice(&[0xff, 0xff, 16, 0]);
        expected[16..18].copy_from_slice(&[2, 1]);
        expected[24] = 12;
        assert_eq!(header, expected);
    }
}
