//! The reasons why a device cannot be made, found or removed. One line each, with the way out.

use std::io;

use iopath::OpenError;
use iopath_os::target::Users;
use rustix::io::Errno;
use thiserror::Error;

use crate::info::{DeviceState, disk_of};

/// A device that cannot be made, found or removed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum UblkError {
    /// The driver is not there.
    #[error(
        "the kernel has no ublk driver (/dev/ublk-control is missing): load it with `modprobe ublk_drv`, on Linux 6.5 \
         or newer with CONFIG_BLK_DEV_UBLK"
    )]
    NoDriver,
    /// The driver is not open for this user.
    #[error(
        "no permission to open /dev/ublk-control: run as root, or let udev rules open it to this user (docs/attach.md, \
         \"Without root\")"
    )]
    Permission,
    /// The driver cannot be opened.
    #[error("cannot use the ublk driver: {0}")]
    Driver(io::Error),
    /// The driver is too old.
    #[error("the ublk driver of this kernel is too old: Linux 6.5 or newer is needed")]
    OldDriver,
    /// A command that the driver refused.
    #[error("device {device}: the driver refused to {what}: {source}")]
    Refused {
        /// The device.
        device: u32,
        /// The command.
        what: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// A device that does not exist.
    #[error("there is no device {0}; `iopath attach --list` shows the devices")]
    Missing(u32),
    /// A device of another program.
    #[error("device {0} is not one of iopath; its own program removes it")]
    NotOurs(u32),
    /// A device that is in use.
    #[error("/dev/ublkb{device} is in use: {users}; end that use first, or remove the device with --force")]
    InUse {
        /// The device.
        device: u32,
        /// Its users.
        users: Users,
    },
    /// The number of a device that exists, or was removed while it was in use.
    #[error(
        "there is a device {device} already (`iopath attach --list`), or it was removed and is still in use: {users}"
    )]
    Taken {
        /// The device.
        device: u32,
        /// Its users.
        users: Users,
    },
    /// A disk whose requests do not complete.
    #[error(
        "device {device}: its server (process {pid}) has completed no request for {seconds} s; its target may not \
         respond. Wait, and detach again; or give up what is not written: kill -9 {pid}, then iopath detach --force \
         {device}"
    )]
    NoResponse {
        /// The device.
        device: u32,
        /// The process of the server.
        pid: i32,
        /// The limit.
        seconds: u64,
    },
    /// Pages of a disk that are not on its target.
    #[error(
        "device {device}: what the kernel has cached of it cannot be written: {source}; `iopath detach --force \
         {device}` gives it up"
    )]
    WriteBack {
        /// The device.
        device: u32,
        /// The cause.
        source: io::Error,
    },
    /// A device that another process cannot continue.
    #[error(
        "device {0} cannot go on after the end of its server: its writes were in the memory of the server \
         (iopath-buffered, a model), or it has no privileges; remove it with `iopath detach {0}`"
    )]
    NotRecoverable(u32),
    /// A path or target that keeps completed writes in memory, for a device that must not lose them.
    #[error(
        "device {0} needs a target on iopath-direct or iopath-raw: others lose completed writes with their server"
    )]
    Volatile(u32),
    /// A device that does not wait for a server.
    #[error(
        "device {device} is {state} and does not wait for a server; only one whose server has ended does"
    )]
    NotWaiting {
        /// The device.
        device: u32,
        /// Its state.
        state: DeviceState,
    },
    /// A device whose next server has failed during its start.
    #[error(
        "device {0} waits for a server, but the driver accepts none, because a start of one failed after it had begun; \
         remove the device with `iopath detach {0}`, or with --force if it is in use"
    )]
    Stuck(u32),
    /// A device that cannot be removed yet.
    #[error("device {device} is {state}; only a stopped device is removed")]
    NotStopped {
        /// The device.
        device: u32,
        /// Its state.
        state: DeviceState,
    },
    /// A queue failed.
    #[error("a queue of device {device} failed; {}", remains(*device, *is_left))]
    QueueFailed {
        /// The device.
        device: u32,
        /// The device waits for another server; it is removed otherwise.
        is_left: bool,
    },
    /// A server that does not end.
    #[error(
        "device {device}: its server (process {pid}) has not ended within {seconds} s; its target may not respond, or \
         its flush takes longer: wait, or end the process"
    )]
    ServerRuns {
        /// The device.
        device: u32,
        /// The process of the server.
        pid: i32,
        /// The limit.
        seconds: u64,
    },
    /// A target that is not the one of the device.
    #[error(
        "the target is not the one of device {device}: {what} is {target}, that of the device {expected}"
    )]
    OtherTarget {
        /// The device.
        device: u32,
        /// The property that differs.
        what: &'static str,
        /// That of the target.
        target: u64,
        /// That of the device.
        expected: u64,
    },
    /// The character device cannot be opened.
    #[error("cannot open {path}: {source}")]
    Node {
        /// The path.
        path: String,
        /// The cause.
        source: io::Error,
    },
    /// A queue cannot start.
    #[error("a queue of device {device} cannot start: {source}")]
    Queue {
        /// The device.
        device: u32,
        /// The cause.
        source: io::Error,
    },
    /// The volume has no engine for a queue.
    #[error(transparent)]
    Volume(#[from] OpenError),
    /// The end takes too long.
    #[error("device {device}: {what} made no progress for {seconds} s; the device is left as it is")]
    NoProgress {
        /// The device.
        device: u32,
        /// The step.
        what: &'static str,
        /// The limit.
        seconds: u64,
    },
    /// The last flush failed.
    #[error("the flush at the end failed: {0}")]
    Flush(iopath::Error),
}

fn remains(device: u32, is_left: bool) -> String {
    if is_left {
        format!("the device waits for another server: `iopath attach --recover {device}`")
    } else {
        "the device is removed, and a file system on it must be mounted again as after a power failure"
            .to_owned()
    }
}

impl UblkError {
    /// A device with its present users.
    pub(crate) fn in_use(device: u32) -> Self {
        Self::InUse { device, users: Users::of(&disk_of(device)) }
    }

    /// The error number of a command that the driver refused.
    pub(crate) fn errno(&self) -> Option<Errno> {
        match self {
            Self::Refused { source, .. } => Errno::from_io_error(source),
            _ => None,
        }
    }

    /// The error of a refused command.
    pub(crate) const fn refused(device: u32, what: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Self::Refused { device, what, source }
    }
}
