//! Runs a command without access to `io_uring`, as in a container. Uses a seccomp filter, which affects only that
//! command: the sysctl would affect the whole machine.
//!
//! Not a sandbox: the filter allows all other system calls.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result, anyhow};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};

/// `io_uring_setup`, `io_uring_enter`, `io_uring_register`: these numbers are the same on every architecture
/// (linux/include/uapi/asm-generic/unistd.h).
const IO_URING_SYSCALLS: [i64; 3] = [425, 426, 427];

/// The error of container runtimes for a system call outside their profile.
const EPERM: u32 = 1;

/// Replaces this process by `command`, which has no access to `io_uring`. Returns only on failure.
pub(crate) fn run_without_io_uring(command: &[OsString]) -> Result<bool> {
    let (program, arguments) = command.split_first().context("no command given")?;
    refuse_io_uring()?;
    let error = Command::new(program).args(arguments).exec();
    Err(anyhow!(error).context(format!("cannot run {}", program.display())))
}

/// Makes each `io_uring` system call of this thread, and of all threads and processes that it starts, fail with EPERM.
fn refuse_io_uring() -> Result<()> {
    let arch = std::env::consts::ARCH;
    let arch = TargetArch::try_from(arch).map_err(|_| {
        anyhow!("no seccomp filter for {arch}: run the tests with io_uring_disabled=2 instead")
    })?;
    let refused: BTreeMap<_, _> = IO_URING_SYSCALLS.map(|syscall| (syscall, Vec::new())).into();
    let filter = SeccompFilter::new(refused, SeccompAction::Allow, SeccompAction::Errno(EPERM), arch)?;
    let program: BpfProgram = filter.try_into()?;
    seccompiler::apply_filter(&program)
        .context("the kernel accepts no seccomp filter (CONFIG_SECCOMP_FILTER)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_filtered_thread_is_refused_a_ring() {
        let before = io_uring::IoUring::new(2).map(drop);
        let refused = std::thread::spawn(|| {
            refuse_io_uring().expect("a filter can be installed");
            io_uring::IoUring::new(2).map(drop)
        });
        let refused = refused.join().expect("the thread ends");
        let after = io_uring::IoUring::new(2).map(drop);

        assert_eq!(refused.expect_err("a ring is refused").raw_os_error(), Some(EPERM.cast_signed()));
        assert_eq!(before.is_ok(), after.is_ok(), "other threads are not affected");
    }

    #[test]
    fn a_missing_command_is_named() {
        let command = [OsString::from("/no/such/program")];
        let error = std::thread::spawn(move || run_without_io_uring(&command).expect_err("nothing to run"));
        let error = error.join().expect("the thread ends");
        assert!(format!("{error:#}").contains("/no/such/program"), "{error:#}");
    }
}
