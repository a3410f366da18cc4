//! Why events cannot be recorded, with the remedy.

use std::fmt;
use std::io;

/// An error of tracepoints or their rings.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The file system of tracepoints is not mounted, and cannot be.
    #[error(
        "the kernel's tracepoints are not visible ({source}): mount them with `mount -t tracefs nodev /sys/kernel/tracing`, or run as root"
    )]
    NoTracefs {
        /// The cause.
        source: io::Error,
    },
    /// The file system of tracepoints is only for root.
    #[error(
        "{path} cannot be read ({source}): run as root, or let your group read it (`mount -o remount,gid=… {path}`)"
    )]
    Unreadable {
        /// The mount point.
        path: String,
        /// The cause.
        source: io::Error,
    },
    /// The kernel has no such tracepoint.
    #[error("this kernel has no tracepoint {name}: it needs CONFIG_BLK_DEV_IO_TRACE")]
    NoTracepoint {
        /// The tracepoint.
        name: String,
    },
    /// The format of a tracepoint is unknown.
    #[error("the format of tracepoint {name} has no field `{field}`: this kernel is unknown to iopath")]
    NoField {
        /// The tracepoint.
        name: String,
        /// The field.
        field: String,
    },
    /// The process lacks the right to record events.
    #[error(
        "the kernel refuses to record its events: run as root or with CAP_PERFMON; kernel.perf_event_paranoid is {paranoid}, and -1 permits it for all users"
    )]
    NotPermitted {
        /// The value of the setting.
        paranoid: String,
    },
    /// There is no memory for the rings.
    #[error(
        "the kernel refuses a ring of {bytes} bytes for each CPU ({source}): run as root or with CAP_IPC_LOCK, or raise kernel.perf_event_mlock_kb"
    )]
    NoMemory {
        /// The size.
        bytes: usize,
        /// The cause.
        source: io::Error,
    },
    /// The kernel does not describe its types.
    #[error(
        "accesses need the kernel's description of its types, {path} ({source}): use a kernel with CONFIG_DEBUG_INFO_BTF, or record without --accesses"
    )]
    NoTypes {
        /// Where it should be.
        path: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// A structure of the kernel lacks a member.
    #[error(
        "the kernel's structure `{structure}` has no member `{member}`: this kernel is unknown to iopath; record without --accesses"
    )]
    NoMember {
        /// The structure.
        structure: String,
        /// The member.
        member: String,
    },
    /// The kernel refuses the program that records accesses.
    #[error(
        "the kernel refuses the program that records accesses ({source}): run as root or with CAP_BPF and CAP_PERFMON, or record without --accesses"
    )]
    NoProgram {
        /// The cause.
        source: io::Error,
    },
    /// The kernel cannot run the program that records accesses.
    #[error(
        "the kernel cannot run the program that records accesses ({source}): use Linux 5.5 or later with CONFIG_BPF_SYSCALL and CONFIG_BPF_EVENTS, or record without --accesses"
    )]
    UnsupportedProgram {
        /// The cause.
        source: io::Error,
    },
    /// Accesses are not recorded in this place.
    #[error("accesses cannot be recorded in {what}: record on the host, or without --accesses")]
    NoAccessesHere {
        /// The place.
        what: &'static str,
    },
    /// Another system call failed.
    #[error("cannot record events of the kernel: {what}: {source}")]
    Os {
        /// What was attempted.
        what: &'static str,
        /// The cause.
        source: io::Error,
    },
}

impl fmt::Debug for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        iopath_core::debug::error("TraceError", self, f)
    }
}

impl TraceError {
    /// The error of a call that loads the program that records accesses, or that prepares it.
    pub(super) fn of_program(source: io::Error) -> Self {
        if source.kind() == io::ErrorKind::PermissionDenied {
            Self::NoProgram { source }
        } else {
            Self::UnsupportedProgram { source }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_without_the_right_and_one_without_a_kernel_have_remedies_of_their_own() {
        let text = |errno| TraceError::of_program(io::Error::from_raw_os_error(errno)).to_string();
        for errno in [libc::EPERM, libc::EACCES] {
            assert!(text(errno).contains("CAP_BPF"), "{}", text(errno));
        }
        for errno in [libc::EINVAL, libc::ENOSYS, libc::E2BIG] {
            assert!(text(errno).contains("Linux 5.5"), "{}", text(errno));
        }
    }
}
