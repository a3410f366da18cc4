//! The state of a device, as the driver keeps it (`struct ublksrv_ctrl_dev_info`), and its nodes. Plain data.

/// The size of the structure.
pub(crate) const INFO_BYTES: usize = 64;

/// The number that marks the devices of iopath, in one half of the field that the driver keeps for servers.
const MARK: u32 = u32::from_le_bytes(*b"iop\x02");

/// The device continues with another process after the end of the first.
pub(crate) const RECOVERY: u64 = 1 << 3;

/// Requests that the first process had not completed are issued again.
pub(crate) const RECOVERY_REISSUE: u64 = 1 << 4;

/// A user without privileges owns the device.
pub(crate) const UNPRIVILEGED: u64 = 1 << 5;

/// The driver knows the commands that are encoded as `ioctl(2)`.
pub(crate) const IOCTL_COMMANDS: u64 = 1 << 6;

/// The state of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceState {
    /// It has no disk: it is not started, or stopped.
    Dead,
    /// It has a server.
    Live,
    /// Its server has ended, and requests wait for the next one.
    Waiting,
    /// Its server has ended, and requests fail until there is another.
    Failing,
    /// A state that this version does not know.
    Unknown(u16),
}

impl DeviceState {
    const fn of(number: u16) -> Self {
        match number {
            0 => Self::Dead,
            1 => Self::Live,
            2 => Self::Waiting,
            3 => Self::Failing,
            other => Self::Unknown(other),
        }
    }

    const fn number(self) -> u16 {
        match self {
            Self::Dead => 0,
            Self::Live => 1,
            Self::Waiting => 2,
            Self::Failing => 3,
            Self::Unknown(number) => number,
        }
    }
}

impl std::fmt::Display for DeviceState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Dead => f.write_str("stopped"),
            Self::Live => f.write_str("live"),
            Self::Waiting => f.write_str("waits for a server"),
            Self::Failing => f.write_str("fails without a server"),
            Self::Unknown(number) => write!(f, "state {number}"),
        }
    }
}

/// A device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceInfo {
    /// The number of the device.
    pub device: u32,
    /// Queues, each with a thread of the server.
    pub queues: u16,
    /// Requests of each queue.
    pub depth: u16,
    /// The largest request with data, in bytes.
    pub buffer_bytes: u32,
    /// The state.
    pub state: DeviceState,
    /// The process of the server; -1 for none.
    pub pid: i32,
    /// Whether iopath has attached it.
    pub is_ours: bool,
    /// A random number of this device: another device may have its number later.
    pub instance: u32,
    pub(crate) flags: u64,
}

impl DeviceInfo {
    /// Whether the device continues with another process after its server was killed.
    #[must_use]
    pub const fn is_recoverable(&self) -> bool {
        self.flags & RECOVERY != 0
    }

    pub(crate) fn to_bytes(self) -> [u8; INFO_BYTES] {
        let mut bytes = [0; INFO_BYTES];
        bytes[..2].copy_from_slice(&self.queues.to_ne_bytes());
        bytes[2..4].copy_from_slice(&self.depth.to_ne_bytes());
        bytes[4..6].copy_from_slice(&self.state.number().to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.buffer_bytes.to_ne_bytes());
        bytes[12..16].copy_from_slice(&self.device.to_ne_bytes());
        bytes[16..20].copy_from_slice(&self.pid.to_ne_bytes());
        bytes[24..32].copy_from_slice(&self.flags.to_ne_bytes());
        let mark = if self.is_ours { MARK } else { 0 };
        bytes[32..36].copy_from_slice(&self.instance.to_ne_bytes());
        bytes[36..40].copy_from_slice(&mark.to_ne_bytes());
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8; INFO_BYTES]) -> Self {
        let short = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        let word = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let long = |at: usize| {
            let (low, high) = (u64::from(word(at)), u64::from(word(at + 4)));
            if cfg!(target_endian = "little") { low | high << 32 } else { high | low << 32 }
        };
        Self {
            device: word(12),
            queues: short(0),
            depth: short(2),
            buffer_bytes: word(8),
            state: DeviceState::of(short(4)),
            pid: word(16).cast_signed(),
            is_ours: word(36) == MARK,
            instance: word(32),
            flags: long(24),
        }
    }
}

/// The character device, which the server opens.
#[must_use]
pub(crate) fn node_of(device: u32) -> String {
    format!("/dev/ublkc{device}")
}

/// The block device.
#[must_use]
pub(crate) fn disk_of(device: u32) -> String {
    format!("/dev/ublkb{device}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_survives_the_structure_of_the_kernel() {
        let info = DeviceInfo {
            device: 3,
            queues: 2,
            depth: 128,
            buffer_bytes: 1 << 19,
            state: DeviceState::Waiting,
            pid: -1,
            is_ours: true,
            instance: 7,
            flags: RECOVERY | 1 << 40,
        };
        let bytes = info.to_bytes();
        assert_eq!(DeviceInfo::from_bytes(&bytes), info);
        assert_eq!((bytes[0], bytes[2], bytes[4], bytes[12], bytes[24]), (2, 128, 2, 3, 8));
        let other = DeviceInfo { is_ours: false, state: DeviceState::Unknown(9), ..info };
        assert_eq!(DeviceInfo::from_bytes(&other.to_bytes()), other);
    }
}
