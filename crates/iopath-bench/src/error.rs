//! Failures of a measurement. Each message is one line with the object, the value and the remedy. Workloads that are
//! refused before they run are in `refusal.rs`.

use std::io;
use std::path::{Path, PathBuf};

use iopath::OpenError;
use iopath_log::LogError;
use iopath_model::ModelError;
use iopath_model::event_loop::LoopError;
use iopath_nbd::{ConnectError, UriError};
use iopath_os::NoMemory;
use iopath_os::kernel::Direction;
use iopath_os::target::{DioError, Refusal, ResidencyError, TargetError};
use iopath_report::UnknownName;
use iopath_report::size::format_size;
use thiserror::Error;

use crate::field::FieldNames;
use crate::own_file::log_with_limit;
use crate::refusal::{Scope, WorkloadError};

/// A failure of a measurement, before it begins or while it runs.
///
/// The messages are complete: they include the text of their sources.
#[derive(Debug, Error)]
pub enum BenchError {
    /// The workload is invalid, or does not suit the path, the target or the memory.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// The file does not exist.
    #[error("{} does not exist; name a file or device, or a directory for a scratch file", target.display())]
    Missing {
        /// The target as given.
        target: PathBuf,
    },
    /// A target that looks like an NBD URI, and is none.
    #[error(transparent)]
    Uri(#[from] UriError),
    /// A server that cannot be reached, or refuses the export.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The file of a model does not exist.
    #[error("model file {} does not exist", file.display())]
    NoModelFile {
        /// The file as given.
        file: PathBuf,
    },
    /// There is no such model, or its parameters are wrong.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The simulation cannot continue.
    #[error("the simulation of {} cannot continue: {source}", target.display())]
    Simulation {
        /// The target as given.
        target: PathBuf,
        /// The cause.
        source: LoopError,
    },
    /// A signal came before there was a result.
    #[error("interrupted before a measurement was complete: there is no result")]
    Interrupted,
    /// Another process that measures at the same time has failed.
    #[error("{0}")]
    Peer(String),
    /// Another process that measures the same workload has refused it. The text names the process.
    #[error("{0}")]
    PeerRefused(String),
    /// The system refuses a setting of a job's thread.
    #[error(
        "{setting}: the system refuses {value} for the thread of a job: {source}; use another value, or run as root"
    )]
    Thread {
        /// The key of the setting.
        setting: &'static str,
        /// The value.
        value: String,
        /// The system's error.
        source: io::Error,
    },
    /// The disk completes no requests without interrupts.
    #[error(
        "hipri: {} has no polled queues (queue/io_poll is not 1), so its completions need interrupts; remove hipri, or load \
         its driver with such queues (nvme.poll_queues=N, virtio_blk.poll_queues=N)",
        disk.as_ref().map_or_else(|| "the target is on no single disk, which".to_owned(), |disk| format!("disk {disk}"))
    )]
    NoPolling {
        /// The kernel's name of the disk.
        disk: Option<String>,
    },
    /// Too few reserved huge pages are free.
    #[error(
        "no huge pages for buffers of {bytes} bytes: {source}; reserve {} of 2 MiB for each clone (sysctl vm.nr_hugepages=N), or \
         remove mem, as larger buffers are on transparent huge pages", bytes.div_ceil(2 << 20)
    )]
    NoHugePages {
        /// The size of the buffers in bytes.
        bytes: usize,
        /// The system's error.
        source: io::Error,
    },
    /// The target disappeared during the run.
    #[error("{} no longer exists: it was removed or renamed during the run", target.display())]
    Gone {
        /// The target.
        target: PathBuf,
    },
    /// The system denies access.
    #[error("no permission to open {} for {access}; run as its owner or as root", target.display())]
    NoPermission {
        /// The target as given.
        target: PathBuf,
        /// The kind of access: reading, or reading and writing.
        access: &'static str,
    },
    /// The directory lies on a filesystem that stores no files of users, such as procfs.
    #[error(
        "no scratch file can be created in {}: {source}; {}name a directory on a disk",
        directory.display(), filesystem.as_ref().map_or_else(String::new, |name| format!("filesystem {name} stores no files; "))
    )]
    NoScratch {
        /// The directory.
        directory: PathBuf,
        /// The type of its filesystem, where that explains the error.
        filesystem: Option<String>,
        /// The system's error.
        source: io::Error,
    },
    /// The block size does not suit direct I/O on the target. The remedy is a number of bytes, because a suffix such as
    /// KiB has another meaning in job files.
    #[error(
        "block size {} is not a multiple of {}, the alignment that direct I/O on {} needs; \
         use {}, or a path through the page cache",
        format_size(*block_bytes), format_size(*alignment), target.display(),
        block_bytes.checked_next_multiple_of(*alignment).unwrap_or(u64::MAX / *alignment * *alignment)
    )]
    Unaligned {
        /// The block size in bytes.
        block_bytes: u64,
        /// The alignment in bytes.
        alignment: u64,
        /// The target.
        target: PathBuf,
    },
    /// The first byte of the range does not suit direct I/O on the target.
    #[error(
        "offset {offset} is not a multiple of {}, the alignment that direct I/O on {} needs; \
         use another offset, or a path through the page cache",
        format_size(*alignment), target.display()
    )]
    UnalignedStart {
        /// The first byte of the range.
        offset: u64,
        /// The alignment in bytes.
        alignment: u64,
        /// The target.
        target: PathBuf,
    },
    /// An unknown name.
    #[error(transparent)]
    Unknown(#[from] UnknownName),
    /// The system cannot start another thread.
    #[error(
        "cannot start the thread of job {} of {jobs}: {source}; raise the limit of processes and threads (ulimit -u, \
         or pids.max of the control group) or of memory (ulimit -v), or use fewer jobs", job + 1
    )]
    NoThread {
        /// The job, from 0.
        job: u32,
        /// The number of jobs.
        jobs: u32,
        /// The system's error.
        source: io::Error,
    },
    /// The kernel or a container refuses `io_uring`.
    #[error("{}", uring_refused(source))]
    UringRefused {
        /// The system's error.
        source: io::Error,
    },
    /// A transfer failed during the measurement.
    #[error("the {direction} of {} at offset {offset} of {} failed: {source}; {}", format_size(u64::from(*bytes)),
        target.display(), advice(source), direction = direction_name(*direction))]
    Transfer {
        /// The target.
        target: PathBuf,
        /// The direction.
        direction: Direction,
        /// The offset in bytes.
        offset: u64,
        /// The length in bytes.
        bytes: u32,
        /// The system's error.
        source: io::Error,
    },
    /// A transfer failed because the connection to its server is lost.
    #[error("the {direction} of {} at offset {offset} of {} failed: the server has ended, or the connection to it is lost and \
        could not be made anew: {reason}", format_size(u64::from(*bytes)), target.display(),
        direction = direction_name(*direction))]
    ServerLost {
        /// The export.
        target: PathBuf,
        /// The direction.
        direction: Direction,
        /// The offset in bytes.
        offset: u64,
        /// The length in bytes.
        bytes: u32,
        /// The reason of the last failure of a connection.
        reason: String,
    },
    /// A flush failed because a connection to its server was lost.
    #[error("cannot flush {}: {reason}; the server may have lost writes since the last flush: write them again",
        target.display())]
    FlushLost {
        /// The export.
        target: PathBuf,
        /// The reason of the last failure of a connection.
        reason: String,
    },
    /// A modelled device failed a transfer.
    #[error("the {direction} of {} at offset {offset} of {} failed: {source}; layers of kind faulty cause such errors \
        (error_one_in)", format_size(u64::from(*bytes)), target.display(), direction = direction_name(*direction))]
    ModelledFault {
        /// The target.
        target: PathBuf,
        /// The direction.
        direction: Direction,
        /// The offset in bytes.
        offset: u64,
        /// The length in bytes.
        bytes: u32,
        /// The error of the model.
        source: iopath_core::IoError,
    },
    /// Any other operation that the system refused.
    #[error("cannot {action} {}: {source}{}", target.display(), call_advice(action, source))]
    Io {
        /// The operation, as in "cannot open".
        action: &'static str,
        /// Its object.
        target: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The target cannot be inspected, or is of a kind that holds no blocks.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The target is in use, or holds data that must not be overwritten.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The target has no direct I/O, or its alignment is unknown.
    #[error(transparent)]
    Direct(#[from] DioError),
    /// The page cache cannot be inspected or emptied.
    #[error(transparent)]
    Residency(#[from] ResidencyError),
    /// The target cannot be opened as a volume, or no engine is available for it.
    #[error(transparent)]
    Volume(#[from] OpenError),
    /// The request log cannot be written.
    #[error(transparent)]
    Log(LogError),
    /// No memory for the buffers.
    #[error(transparent)]
    NoMemory(#[from] NoMemory),
}

/// Implements, for an error that has a variant `Bench` of [`BenchError`], the method `bench`, and `From` of the named
/// causes of a `BenchError`.
#[macro_export]
macro_rules! with_bench_error {
    ($error:ty $(: $($cause:ty),+)?) => {
        impl $error {
            /// The failed measurement, where that is the cause.
            pub fn bench(&self) -> Option<&$crate::BenchError> {
                if let Self::Bench(error) = self { Some(error) } else { None }
            }
        }

        $($(
            impl From<$cause> for $error {
                fn from(cause: $cause) -> Self {
                    Self::Bench(cause.into())
                }
            }
        )+)?
    };
}

impl From<LogError> for BenchError {
    fn from(error: LogError) -> Self {
        Self::Log(log_with_limit(error))
    }
}

impl BenchError {
    /// Whether the arguments are invalid on every machine and target.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Workload(error) => error.is_usage(),
            Self::Model(error) => {
                matches!(error, ModelError::UnknownPreset { .. } | ModelError::UnknownHost { .. })
            }
            // Certificates that are not named.
            Self::Connect(error) => matches!(error, ConnectError::NoCertificates { .. }),
            Self::Unknown(_) | Self::Uri(_) => true,
            Self::Missing { .. }
            | Self::NoModelFile { .. }
            | Self::Simulation { .. }
            | Self::Interrupted
            | Self::Peer(_)
            | Self::PeerRefused(_)
            | Self::Thread { .. }
            | Self::NoPolling { .. }
            | Self::NoHugePages { .. }
            | Self::Gone { .. }
            | Self::NoPermission { .. }
            | Self::NoScratch { .. }
            | Self::Unaligned { .. }
            | Self::UnalignedStart { .. }
            | Self::NoThread { .. }
            | Self::UringRefused { .. }
            | Self::Transfer { .. }
            | Self::ServerLost { .. }
            | Self::FlushLost { .. }
            | Self::ModelledFault { .. }
            | Self::Io { .. }
            | Self::Target(_)
            | Self::Refused(_)
            | Self::Direct(_)
            | Self::Residency(_)
            | Self::Volume(_)
            | Self::Log(_)
            | Self::NoMemory(_) => false,
        }
    }

    /// The message, with the caller's names of the fields.
    pub fn message(&self, names: FieldNames) -> String {
        match self {
            Self::Workload(error) => error.message(names),
            other => other.to_string(),
        }
    }

    /// The part of a campaign that the failure ends. Lists, sweeps and surveys skip one workload and go on, or stop.
    pub fn scope(&self) -> Scope {
        match self {
            Self::Workload(error) => error.scope(),
            // The target or the machine no longer serves anybody, or never did.
            Self::Volume(OpenError::Target(_) | OpenError::System { .. } | OpenError::Directory(_))
            | Self::Missing { .. }
            | Self::Uri(_)
            | Self::Connect(_)
            | Self::NoModelFile { .. }
            | Self::Interrupted
            | Self::Peer(_)
            | Self::Gone { .. }
            | Self::NoPermission { .. }
            | Self::NoScratch { .. }
            | Self::Transfer { .. }
            | Self::ModelledFault { .. }
            | Self::ServerLost { .. }
            | Self::FlushLost { .. }
            | Self::Io { .. }
            | Self::Target(_)
            | Self::Log(_) => Scope::Campaign,
            // Another path, block size, depth, number of jobs or model may be possible.
            Self::Unknown(_)
            | Self::Model(_)
            | Self::Simulation { .. }
            | Self::PeerRefused(_)
            | Self::Thread { .. }
            | Self::NoPolling { .. }
            | Self::NoHugePages { .. }
            | Self::Unaligned { .. }
            | Self::UnalignedStart { .. }
            | Self::NoThread { .. }
            | Self::UringRefused { .. }
            | Self::Refused(_)
            | Self::Direct(_)
            | Self::Residency(_)
            | Self::Volume(_)
            | Self::NoMemory(_) => Scope::Workload,
        }
    }

    /// The failure after which the results so far remain; none after a signal.
    ///
    /// # Errors
    /// The error itself, if there are no results.
    pub fn into_failure(self, has_results: bool) -> Result<Option<Self>, Self> {
        match self {
            error if !has_results => Err(error),
            Self::Interrupted => Ok(None),
            error => Ok(Some(error)),
        }
    }

    /// For `map_err`: the operation that the system refused, and its object.
    pub fn io(action: &'static str, target: &Path) -> impl FnOnce(io::Error) -> Self {
        let target = target.to_owned();
        move |source| match source.kind() {
            io::ErrorKind::NotFound => Self::Missing { target },
            _ => Self::Io { action, target, source },
        }
    }

    /// For `map_err` of an open: a missing permission depends on the kind of access.
    pub fn open(target: &Path, writes: bool) -> impl FnOnce(io::Error) -> Self {
        let target = target.to_owned();
        let access = if writes { "reading and writing" } else { "reading" };
        move |source| match source.kind() {
            io::ErrorKind::PermissionDenied => Self::NoPermission { target, access },
            _ => Self::io("open", &target)(source),
        }
    }
}

fn direction_name(direction: Direction) -> &'static str {
    match direction {
        Direction::Read => "read",
        Direction::Write => "write",
        Direction::Trim => "trim",
    }
}

/// The remedy for a limit of the process or the system; empty for other errors.
fn limit_advice(error: &io::Error) -> &'static str {
    use rustix::io::Errno;
    match Errno::from_io_error(error) {
        Some(Errno::MFILE) => "; raise the limit of open files (ulimit -n), or use fewer jobs",
        Some(Errno::NFILE) => "; the system has too many open files: raise fs.file-max",
        Some(Errno::NOMEM) => "; memory is exhausted or limited (ulimit -v, ulimit -l)",
        _ => "",
    }
}

/// The remedy for a failed call; empty if there is none.
fn call_advice(action: &str, error: &io::Error) -> &'static str {
    use rustix::io::Errno;
    match Errno::from_io_error(error) {
        Some(Errno::NOTCONN) if action == "flush" => {
            "; the server ended or was restarted, so it may have lost writes since the last flush: write them again"
        }
        _ => limit_advice(error),
    }
}

/// The message for a refusal of `io_uring`: each cause has its own remedy.
fn uring_refused(source: &io::Error) -> String {
    let limit = limit_advice(source);
    if limit.is_empty() {
        return format!(
            "io_uring is refused here ({source}): check /proc/sys/kernel/io_uring_disabled and, in a container, its \
             seccomp profile; path kernel-direct works without it"
        );
    }
    format!("io_uring cannot be set up ({source}){limit}")
}

/// The remedy for a failed transfer.
fn advice(error: &io::Error) -> &'static str {
    use rustix::io::Errno;
    match error.kind() {
        io::ErrorKind::UnexpectedEof => return "the target ends before this offset: it shrank during the run",
        io::ErrorKind::WriteZero => return "the device is full; access fewer bytes",
        _ => {}
    }
    match Errno::from_io_error(error) {
        Some(Errno::NODEV) => "ENODEV: the device no longer exists",
        Some(Errno::NXIO) => "ENXIO: the device no longer exists, or the offset lies beyond its end",
        Some(Errno::STALE) => "ESTALE: the file no longer exists on the server; mount the filesystem again",
        Some(Errno::IO) => "EIO: the device failed or was removed; the kernel's log (dmesg) has the cause",
        Some(Errno::INVAL) => {
            "EINVAL: the target refuses direct I/O at this offset, length or memory address"
        }
        Some(Errno::NOTCONN | Errno::CONNRESET | Errno::CONNREFUSED | Errno::PIPE | Errno::TIMEDOUT) => {
            "the server has ended, or the connection to it is lost and could not be made anew"
        }
        Some(Errno::NOSPC) => "ENOSPC: free some space, or access fewer bytes",
        _ => "the kernel's log (dmesg) may have the cause",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vanished_target_is_named_with_its_errno_and_offset() {
        for (errno, name) in
            [(libc::ENODEV, "ENODEV"), (libc::EIO, "EIO"), (libc::ENXIO, "ENXIO"), (libc::ESTALE, "ESTALE")]
        {
            let error = BenchError::Transfer {
                target: "/dev/sdz".into(),
                direction: Direction::Read,
                offset: 8192,
                bytes: 4096,
                source: io::Error::from_raw_os_error(errno),
            };
            let text = error.to_string();
            assert!(text.starts_with("the read of 4 KiB at offset 8192 of /dev/sdz failed: "), "{text}");
            assert!(text.contains(name), "{text}");
        }
    }

    #[test]
    fn unaligned_names_block_alignment_and_the_next_size_that_works() {
        let error = BenchError::Unaligned { block_bytes: 1000, alignment: 512, target: "f".into() };
        let text = error.to_string();
        assert!(
            text.contains("1000 bytes") && text.contains("512 bytes") && text.contains("use 1024, or"),
            "{text}"
        );
    }

    #[test]
    fn too_many_open_files_name_that_limit_and_not_seccomp() {
        let source = || io::Error::from_raw_os_error(libc::EMFILE);
        let opened = BenchError::open(Path::new("f"), false)(source()).to_string();
        let uring = BenchError::UringRefused { source: source() }.to_string();
        for text in [opened, uring] {
            assert!(text.contains("ulimit -n") && !text.contains("seccomp"), "{text}");
        }
        let refused =
            BenchError::UringRefused { source: io::Error::from_raw_os_error(libc::EPERM) }.to_string();
        assert!(refused.contains("seccomp"), "{refused}");
    }

    #[test]
    fn a_vanished_target_ends_a_campaign_and_a_refused_path_does_not() {
        assert_eq!(BenchError::Missing { target: "f".into() }.scope(), Scope::Campaign);
        let refused = BenchError::UringRefused { source: io::ErrorKind::PermissionDenied.into() };
        assert_eq!(refused.scope(), Scope::Workload);
        let gone = OpenError::Directory("f".into());
        assert_eq!(BenchError::Volume(gone).scope(), Scope::Campaign);
        assert_eq!(BenchError::from(WorkloadError::NoTarget { path: "null" }).scope(), Scope::Campaign);
        let read_only = BenchError::from(WorkloadError::Overwrite { target: "f".into() });
        assert_eq!(read_only.scope(), Scope::Workload, "workloads that only read may run");
    }

    #[test]
    fn results_remain_after_a_failure_and_after_a_signal_which_is_no_failure() {
        let missing = || BenchError::Missing { target: "f".into() };
        assert!(matches!(missing().into_failure(true), Ok(Some(BenchError::Missing { .. }))));
        assert!(matches!(BenchError::Interrupted.into_failure(true), Ok(None)));
        assert!(matches!(missing().into_failure(false), Err(BenchError::Missing { .. })));
        assert!(matches!(BenchError::Interrupted.into_failure(false), Err(BenchError::Interrupted)));
    }

    #[test]
    fn only_arguments_are_a_usage_error() {
        let range = WorkloadError::NoTarget { path: "kernel-direct" };
        assert!(BenchError::from(range).is_usage());
        assert!(!BenchError::from(WorkloadError::Overwrite { target: "f".into() }).is_usage());
        assert!(!BenchError::Missing { target: "f".into() }.is_usage());
        let uri = |text: &str| BenchError::from(text.parse::<iopath_nbd::NbdUri>().unwrap_err());
        assert!(uri("nbd://h:99999/x").is_usage() && uri("nbd+unix:///x").is_usage());
    }
}
