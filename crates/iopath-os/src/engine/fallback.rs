//! The reason why an engine differs from the requested one, in one line with the remedy.

use std::fmt;
use std::fs::{self, File};
use std::io::IoSliceMut;

use iopath_core::Limits;
use rustix::io::{Errno, ReadWriteFlags, preadv2};

use super::Engine;
use super::probe::Comparison;
use crate::aligned::AlignedBuf;
use crate::answers::{Answer, Answers};
use crate::device::{Refused, Stage};
use crate::target::FileStat;

/// The engine in use differs from the requested engine, or supports only a part of it. Displays as one line for the
/// user.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fallback {
    /// The engine in use.
    pub engine: Engine,
    /// The reason.
    pub reason: Reason,
}

/// The reason why `io_uring` is not fully used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The setting `kernel.io_uring_disabled` forbids it: 1 for unprivileged users, 2 for all.
    Sysctl(u8),
    /// A system call filter (seccomp) forbids it, as in containers.
    Seccomp,
    /// The kernel has no `io_uring`.
    NoUring,
    /// The kernel is older than 5.11, and its `io_uring` lacks required features.
    TooOld,
    /// The limit of locked memory is reached (`RLIMIT_MEMLOCK`).
    Memlock,
    /// The buffers could not be registered for another reason (an error number), and are used unregistered.
    Buffers(i32),
    /// The target refuses `RWF_NOWAIT`, so `io_uring` would execute each I/O on a kernel thread. Not measured, because
    /// reads on the target are slow or `io_uring` is refused.
    NoNowait,
    /// The target refuses `RWF_NOWAIT`, and a measurement at open showed that threads are the better engine.
    Slower(Comparison),
    /// The process or the system has too many open files (`RLIMIT_NOFILE`, `fs.file-max`).
    OpenFiles,
    /// Any other error (its number).
    Os(i32),
}

impl Fallback {
    /// Determines the reason why `io_uring` was refused.
    pub(super) fn of(engine: Engine, refused: &Refused) -> Self {
        let errno = refused.source.raw_os_error().unwrap_or(libc::EIO);
        let reason = match (refused.stage, errno) {
            (Stage::Features, _) => Reason::TooOld,
            (_, libc::ENOMEM) => Reason::Memlock,
            (_, libc::EMFILE | libc::ENFILE) => Reason::OpenFiles,
            (Stage::Buffers, errno) => Reason::Buffers(errno),
            (_, libc::EPERM | libc::EACCES) => forbidden_by(sysctl()),
            (_, libc::ENOSYS) if is_filtered() => Reason::Seccomp,
            (_, libc::ENOSYS) => Reason::NoUring,
            (_, libc::EINVAL) => Reason::TooOld,
            (_, errno) => Reason::Os(errno),
        };
        Self { engine, reason }
    }
}

fn forbidden_by(sysctl: Option<u8>) -> Reason {
    match sysctl {
        Some(value @ 1..) => Reason::Sysctl(value),
        _ => Reason::Seccomp,
    }
}

/// The setting `kernel.io_uring_disabled`, where the kernel has it (6.6).
fn sysctl() -> Option<u8> {
    fs::read_to_string("/proc/sys/kernel/io_uring_disabled").ok()?.trim().parse().ok()
}

/// Whether this thread has a system call filter, which can be the cause of ENOSYS.
fn is_filtered() -> bool {
    fs::read_to_string("/proc/thread-self/status").is_ok_and(|status| status.contains("\nSeccomp:\t2"))
}

impl fmt::Display for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let uses = match self.engine {
            Engine::Uring => "io_uring with unregistered buffers",
            Engine::Auto | Engine::Threads => "threads instead of io_uring",
        };
        match self.reason {
            Reason::Sysctl(value) => write!(
                f,
                "{uses}: the setting kernel.io_uring_disabled={value} forbids it; to allow it: sysctl \
                 kernel.io_uring_disabled=0"
            ),
            Reason::Seccomp => write!(
                f,
                "{uses}: a system call filter (seccomp) forbids it; to allow it, run the container with a profile \
                 that permits io_uring_setup, io_uring_enter and io_uring_register"
            ),
            Reason::NoUring => {
                write!(f, "{uses}: this kernel has no io_uring; Linux 5.11 with CONFIG_IO_URING has it")
            }
            Reason::TooOld => {
                write!(f, "{uses}: this kernel's io_uring is too old; Linux 5.11 or later is required")
            }
            Reason::Memlock => write!(
                f,
                "{uses}: the limit of locked memory is reached (RLIMIT_MEMLOCK); to allow more: ulimit -l unlimited, or \
                 LimitMEMLOCK= of the service"
            ),
            Reason::Buffers(errno) => {
                write!(f, "{uses}: the kernel refused to register the buffers: {}", os(errno))
            }
            Reason::NoNowait => write!(
                f,
                "{uses}: the target refuses requests that must not wait (RWF_NOWAIT), so io_uring would use threads \
                 of the kernel; to use io_uring, select the engine uring"
            ),
            Reason::Slower(Comparison { uring, threads, depth }) => write!(
                f,
                "{uses}: measured at open at depth {depth}: threads {threads}, io_uring {uring}; to use io_uring, \
                 select the engine uring"
            ),
            Reason::OpenFiles => write!(
                f,
                "{uses}: too many open files; to allow more: ulimit -n, or LimitNOFILE= of the service, or use fewer \
                 threads and batches"
            ),
            Reason::Os(errno) => write!(f, "{uses}: io_uring cannot be set up: {}", os(errno)),
        }
    }
}

fn os(errno: i32) -> std::io::Error {
    std::io::Error::from_raw_os_error(errno)
}

/// Whether the filesystem of `file` refuses reads with `RWF_NOWAIT`.
pub(super) fn refuses_nowait(file: &File, limits: &Limits) -> bool {
    static KNOWN: Answers = Answers::new();
    let Ok(stat) = FileStat::of(file) else { return asks_nowait(file, limits).is_yes() };
    KNOWN.of(file, &stat, || asks_nowait(file, limits))
}

/// The kernel refuses before it reads; otherwise one block is read and discarded.
fn asks_nowait(file: &File, limits: &Limits) -> Answer {
    let bytes = limits.logical_block_bytes.max(limits.memory_align_bytes);
    let Ok(mut block) = AlignedBuf::new(bytes as usize) else { return Answer::OfFile(false) };
    match preadv2(file, &mut [IoSliceMut::new(&mut block)], 0, ReadWriteFlags::NOWAIT) {
        Err(Errno::OPNOTSUPP) => Answer::OfFilesystem(true),
        Ok(_) | Err(Errno::AGAIN) => Answer::OfFilesystem(false),
        Err(_) => Answer::OfFile(false),
    }
}

#[cfg(test)]
mod tests {
    use super::super::probe::Rate;
    use super::*;

    fn reason(stage: Stage, errno: i32) -> Reason {
        Fallback::of(Engine::Threads, &Refused { stage, source: os(errno) }).reason
    }

    #[test]
    fn each_refusal_has_its_reason() {
        assert_eq!(reason(Stage::Ring, libc::ENOMEM), Reason::Memlock);
        assert_eq!(reason(Stage::Buffers, libc::ENOMEM), Reason::Memlock);
        assert_eq!(reason(Stage::Buffers, libc::EFAULT), Reason::Buffers(libc::EFAULT));
        assert_eq!(reason(Stage::Ring, libc::EINVAL), Reason::TooOld);
        assert_eq!(reason(Stage::Ring, libc::EMFILE), Reason::OpenFiles);
        assert_eq!(reason(Stage::Ring, libc::EIO), Reason::Os(libc::EIO));
        assert_eq!(forbidden_by(Some(2)), Reason::Sysctl(2));
        assert_eq!(forbidden_by(Some(0)), Reason::Seccomp);
        assert_eq!(forbidden_by(None), Reason::Seccomp);
    }

    #[test]
    fn each_reason_is_one_line_with_a_remedy() {
        let rate = |iops, cpu_ns| Rate { iops, cpu_ns };
        let measured = Comparison { uring: rate(450_000, 3_300), threads: rate(750_000, 2_600), depth: 64 };
        let all = [
            (Reason::Sysctl(2), "sysctl kernel.io_uring_disabled=0"),
            (Reason::Seccomp, "profile"),
            (Reason::NoUring, "Linux 5.11"),
            (Reason::TooOld, "Linux 5.11"),
            (Reason::Memlock, "ulimit -l"),
            (Reason::NoNowait, "RWF_NOWAIT"),
            (
                Reason::Slower(measured),
                "threads 750 K reads/s at 2.60 µs of CPU, io_uring 450 K reads/s at 3.30 µs",
            ),
            (Reason::OpenFiles, "ulimit -n"),
            (Reason::Os(libc::EIO), "os error 5"),
        ];
        for (reason, way_out) in all {
            let line = Fallback { engine: Engine::Threads, reason }.to_string();
            assert!(line.starts_with("threads instead of io_uring: "), "{line}");
            assert!(line.contains(way_out) && !line.contains('\n') && !line.contains("  "), "{line}");
        }
    }
}
