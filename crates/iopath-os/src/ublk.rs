//! The ublk driver of the kernel, whose block devices are served by a process: control commands, and the queues of a
//! device. Passes commands, descriptors and buffers; the protocol is in `iopath-ublk`. (Kernel:
//! `Documentation/block/ublk.rst`, `include/uapi/linux/ublk_cmd.h`; Linux 6.5 or newer.)

mod control;
mod queue;

pub use control::{UblkCommand, UblkControl, UblkOp};
pub use queue::{UblkDescriptor, UblkDevice, UblkEvent, UblkQueue, UblkQueueParts};

/// Commands are numbered as `ioctl(2)`: direction, size of the argument, type, number.
const fn command_of(direction: u32, argument_bytes: u32, number: u32) -> u32 {
    direction << 30 | argument_bytes << 16 | (b'u' as u32) << 8 | number
}

/// The command reads the argument.
const READ: u32 = 2;

/// The command reads and writes the argument.
const READ_WRITE: u32 = 3;
