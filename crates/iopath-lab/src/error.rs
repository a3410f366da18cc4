//! What can go wrong with a measurement, each in one line that names the thing, the value and the way out.

use std::io;
use std::path::{Path, PathBuf};

use iopath::OpenError;
use iopath_core::elevator::ElevatorError;
use iopath_log::LogError;
use iopath_os::kernel::Direction;
use iopath_os::target::{DioError, ExtentError, Refusal, ResidencyError, TargetError};
use iopath_os::{NoMemory, UnknownEngine};
use thiserror::Error;

use crate::size::format_size;

/// Why a measurement could not be made or was broken off.
///
/// The messages are whole: they contain what their sources say.
#[derive(Debug, Error)]
pub enum LabError {
    /// A path that moves bytes was given nothing to move them to.
    #[error(
        "path {path} needs a target: a directory (a scratch file is made there and removed), a file or a block device"
    )]
    NoTarget {
        /// The path's name.
        path: &'static str,
    },
    /// There is no such file.
    #[error("{} does not exist; give a directory to have a scratch file made there", target.display())]
    Missing {
        /// The target as given.
        target: PathBuf,
    },
    /// There is no such file, where no directory would do.
    #[error("{} does not exist; name a regular file", target.display())]
    NoFile {
        /// The target as given.
        target: PathBuf,
    },
    /// It was there when the run began.
    #[error("{} is gone: it was removed or renamed since the run began", target.display())]
    Gone {
        /// The target.
        target: PathBuf,
    },
    /// The system refuses access.
    #[error("no permission to open {} for {access}; run as its owner or as root", target.display())]
    NoPermission {
        /// The target as given.
        target: PathBuf,
        /// What for: reading, or reading and writing.
        access: &'static str,
    },
    /// Writing would destroy what is not ours.
    #[error(
        "writing to {} destroys what it holds; give a directory to use a scratch file, or say --overwrite",
        target.display()
    )]
    Overwrite {
        /// The target as given.
        target: PathBuf,
    },
    /// Neither a directory nor something that holds bytes at offsets.
    #[error("{} is neither a directory, a regular file nor a block device", target.display())]
    WrongKind {
        /// The target as given.
        target: PathBuf,
    },
    /// A block size that direct I/O cannot use there.
    #[error(
        "block size {} is not a multiple of {}, the alignment that direct I/O on {} needs; \
         use {}, or a path through the page cache",
        format_size(*block_bytes), format_size(*alignment), target.display(),
        format_size(block_bytes.checked_next_multiple_of(*alignment).unwrap_or(u64::MAX / *alignment * *alignment))
    )]
    Unaligned {
        /// What was asked for, in bytes.
        block_bytes: u64,
        /// What it has to be a multiple of, in bytes.
        alignment: u64,
        /// The target.
        target: PathBuf,
    },
    /// Not enough room for a scratch file.
    #[error(
        "a scratch file in {} needs {} and a margin of {}, but only {} are free; \
         free some space, name another directory or, for a run, use a smaller --size",
        directory.display(), format_size(*needed), format_size(*margin), format_size(*free)
    )]
    NoSpace {
        /// Where the file was to be.
        directory: PathBuf,
        /// Its size in bytes.
        needed: u64,
        /// What is left to the others, in bytes.
        margin: u64,
        /// What there is for us, in bytes.
        free: u64,
    },
    /// The target has fewer bytes than the workload wants to touch.
    #[error("{} holds {}, less than the {} to be touched (a block for each job at least); name a larger one, or use a \
        smaller --size, --bs or --numjobs", target.display(), format_size(*has), format_size(*wanted))]
    TooSmall {
        /// The target.
        target: PathBuf,
        /// Its size in bytes.
        has: u64,
        /// The workload's size in bytes.
        wanted: u64,
    },
    /// The target has too few bytes to survey.
    #[error("{} holds {}, and a survey needs {} at least; name a larger file, or a directory to use a scratch file",
        target.display(), format_size(*has), format_size(*needed))]
    TooSmallToSurvey {
        /// The target.
        target: PathBuf,
        /// Its size in bytes.
        has: u64,
        /// What it takes, in bytes.
        needed: u64,
    },
    /// A name that is in none of the tables.
    #[error("there is no {kind} `{name}`; known are {}", known.join(", "))]
    Unknown {
        /// Of what: path, elevator, engine, rw.
        kind: &'static str,
        /// What was asked for.
        name: String,
        /// What there is.
        known: Vec<String>,
    },
    /// A setting that the path has no use for.
    #[error("path {path} takes no {setting} (`{value}`); leave it out, or use a path of iopath's own")]
    NotForPath {
        /// The path's name.
        path: &'static str,
        /// Which setting.
        setting: &'static str,
        /// What was asked for.
        value: String,
    },
    /// A setting of a page cache, for a path that has none of iopath's.
    #[error(
        "path {path} has no page cache of iopath's and takes no {setting}; leave it out, or use iopath-buffered"
    )]
    NoCache {
        /// The path's name.
        path: &'static str,
        /// Which setting.
        setting: &'static str,
    },
    /// Borrowing, where nothing is read.
    #[error("rw `{rw}` reads nothing that --borrow could lend; leave it out, or use a workload that reads")]
    NothingToBorrow {
        /// What was asked for.
        rw: &'static str,
    },
    /// Only some transfers are to be timed, where timing all costs no more.
    #[error(
        "path {path} times transfers by the batch and takes no --latency-every; leave it out, or use a path that waits \
         for each transfer"
    )]
    AllTimed {
        /// The path's name.
        path: &'static str,
    },
    /// Hits are to be measured of what does not fit the cache.
    #[error(
        "--warm measures hits, and the {} to be touched do not fit the cache of {}; use a larger --cache or a smaller \
         --size",
        format_size(*needed), format_size(*cache)
    )]
    NotAllCached {
        /// The range to be touched, in whole pages, in bytes.
        needed: u64,
        /// The cache's size in bytes.
        cache: u64,
    },
    /// A number out of its range.
    #[error("{what} {value} is out of range: {range}")]
    OutOfRange {
        /// What the number is.
        what: &'static str,
        /// The number.
        value: u64,
        /// What it may be.
        range: String,
    },
    /// The kernel or a container refuses `io_uring`.
    #[error(
        "io_uring is refused here ({source}): look at /proc/sys/kernel/io_uring_disabled and, in a container, its \
         seccomp profile; path kernel-direct does without"
    )]
    UringRefused {
        /// What the system said: ENOSYS, EPERM, EACCES or ENOMEM.
        source: io::Error,
    },
    /// A transfer failed during the measurement.
    #[error("{direction} of {} at offset {offset} of {} failed: {source}; {}", format_size(u64::from(*bytes)),
        target.display(), advice(source), direction = direction_name(*direction))]
    Transfer {
        /// The target.
        target: PathBuf,
        /// Which way.
        direction: Direction,
        /// Where, in bytes.
        offset: u64,
        /// How much, in bytes.
        bytes: u32,
        /// What the system said.
        source: io::Error,
    },
    /// Any other thing that the system refused.
    #[error("cannot {action} {}: {source}", target.display())]
    Io {
        /// What was tried, as in "cannot open".
        action: &'static str,
        /// With what.
        target: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Something that has no extents.
    #[error("{} is a {kind}, which has no extents; name a regular file", target.display())]
    NotAFile {
        /// The target.
        target: PathBuf,
        /// What it is.
        kind: &'static str,
    },
    /// The extents of a file cannot be told.
    #[error("{}: {source}", target.display())]
    Extents {
        /// The file.
        target: PathBuf,
        /// Why.
        source: ExtentError,
    },
    /// What the target is cannot be learnt.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The target is in use, or holds something of value.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The target has no direct I/O, or does not say how it wants it.
    #[error(transparent)]
    Direct(#[from] DioError),
    /// The page cache cannot be looked into or emptied.
    #[error(transparent)]
    Residency(#[from] ResidencyError),
    /// The target cannot be opened as a volume, or no engine can be had for it.
    #[error(transparent)]
    Volume(#[from] OpenError),
    /// The request log cannot be written.
    #[error(transparent)]
    Log(#[from] LogError),
    /// There is no such engine.
    #[error(transparent)]
    Engine(#[from] UnknownEngine),
    /// There is no such elevator, or it cannot be set so.
    #[error(transparent)]
    Elevator(#[from] ElevatorError),
    /// Buffers that would take the machine's memory from everyone else.
    #[error(
        "buffers of {} (jobs × depth × block size, and the cache of iopath-buffered) do not fit the {} of memory that \
         are available; use a smaller --bs, --iodepth, --numjobs or --cache",
        format_size(*needed), format_size(*available)
    )]
    Buffers {
        /// What the buffers need, in bytes.
        needed: u64,
        /// What there is, in bytes.
        available: u64,
    },
    /// No memory for the buffers.
    #[error(transparent)]
    NoMemory(#[from] NoMemory),
}

impl LabError {
    /// Whether what was asked for is at fault, whatever the machine and the target are.
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::NoTarget { .. }
                | Self::Unknown { .. }
                | Self::NotForPath { .. }
                | Self::NoCache { .. }
                | Self::NothingToBorrow { .. }
                | Self::AllTimed { .. }
                | Self::NotAllCached { .. }
                | Self::OutOfRange { .. }
                | Self::Engine(_)
                | Self::Elevator(_)
        )
    }

    /// For `map_err`: what the system refused, in terms of what was tried with which file.
    pub fn io(action: &'static str, target: &Path) -> impl FnOnce(io::Error) -> Self {
        let target = target.to_owned();
        move |source| match source.kind() {
            io::ErrorKind::NotFound => Self::Missing { target },
            _ => Self::Io { action, target, source },
        }
    }

    /// The same for opening, where a refusal depends on what for.
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
        Direction::Read => "reading",
        Direction::Write => "writing",
    }
}

/// The way out of a failed transfer.
fn advice(error: &io::Error) -> &'static str {
    use rustix::io::Errno;
    match error.kind() {
        io::ErrorKind::UnexpectedEof => return "it ends before that: it shrank since the run began",
        io::ErrorKind::WriteZero => return "the device takes no more bytes",
        _ => {}
    }
    match Errno::from_io_error(error) {
        Some(Errno::NODEV) => "ENODEV: the device is gone",
        Some(Errno::NXIO) => "ENXIO: the device is gone or the offset lies beyond its end",
        Some(Errno::STALE) => "ESTALE: the server no longer knows the file; mount it again",
        Some(Errno::IO) => "EIO: the device fails or is gone; the kernel's log (dmesg) says which",
        Some(Errno::INVAL) => "EINVAL: offset, length or memory does not suit direct I/O there",
        Some(Errno::NOSPC) => "ENOSPC: free some space, or use a smaller --size",
        _ => "the kernel's log (dmesg) may say more",
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
            let error = LabError::Transfer {
                target: "/dev/sdz".into(),
                direction: Direction::Read,
                offset: 8192,
                bytes: 4096,
                source: io::Error::from_raw_os_error(errno),
            };
            let text = error.to_string();
            assert!(text.starts_with("reading of 4 KiB at offset 8192 of /dev/sdz failed: "), "{text}");
            assert!(text.contains(name), "{text}");
        }
    }

    #[test]
    fn unaligned_names_block_alignment_and_the_next_size_that_works() {
        let error = LabError::Unaligned { block_bytes: 1000, alignment: 512, target: "f".into() };
        let text = error.to_string();
        assert!(
            text.contains("1000 bytes") && text.contains("512 bytes") && text.contains("use 1 KiB"),
            "{text}"
        );
    }
}
