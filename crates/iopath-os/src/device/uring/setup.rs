//! Sets up a ring with the best flags that the kernel supports, and registers the file.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use io_uring::{Builder, IoUring, opcode};

use super::enter::enter;

/// The maximum number of entries of a submission ring (`IORING_MAX_ENTRIES`).
pub(super) const ENTRIES_MAX: u32 = 32_768;

/// The stage at which `io_uring` was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// No ring.
    Ring,
    /// The ring lacks required features: the kernel is too old.
    Features,
    /// The ring refuses the file.
    File,
    /// The ring refuses the buffers, but would work without them.
    Buffers,
}

/// `io_uring` was refused.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) stage: Stage,
    pub(crate) source: io::Error,
}

impl From<Refused> for io::Error {
    fn from(refused: Refused) -> Self {
        refused.source
    }
}

impl Stage {
    pub(super) const fn refused(self) -> impl FnOnce(io::Error) -> Refused {
        move |source| Refused { stage: self, source }
    }
}

type Flags = fn(&mut Builder) -> &mut Builder;

/// The flags to request, best first, each with the kernel version that introduced it.
const ONE_THREAD: &[Flags] = &[
    // 6.6: no indirection between entries and their order.
    |ring| {
        ring.setup_submit_all()
            .setup_coop_taskrun()
            .setup_taskrun_flag()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_no_sqarray()
    },
    // 6.1: completions run only in our calls.
    |ring| {
        ring.setup_submit_all()
            .setup_coop_taskrun()
            .setup_taskrun_flag()
            .setup_single_issuer()
            .setup_defer_taskrun()
    },
    // 5.19: completions do not interrupt us.
    |ring| ring.setup_submit_all().setup_coop_taskrun().setup_taskrun_flag(),
    // 5.11.
    |ring| ring,
];

/// The same for rings that several threads use. `SINGLE_ISSUER` and the flags that depend on it are not allowed; with
/// `COOP_TASKRUN`, completions would wait until the thread that submitted them next enters the kernel.
const ANY_THREAD: &[Flags] = &[
    // 6.6.
    |ring| ring.setup_submit_all().setup_no_sqarray(),
    // 5.18.
    Builder::setup_submit_all,
    // 5.11.
    |ring| ring,
];

/// A ring with a submission entry for each of `depth` requests, and twice as many completion entries, so that no
/// completion is lost.
pub(super) fn ring(depth: u32, one_thread: bool) -> Result<IoUring, Refused> {
    let mut refused = io::Error::from_raw_os_error(libc::EINVAL);
    for flags in if one_thread { ONE_THREAD } else { ANY_THREAD } {
        match flags(&mut IoUring::builder()).dontfork().build(depth) {
            Ok(mut ring) if ring.params().is_feature_ext_arg() && ring.params().is_feature_nodrop() => {
                return try_out(&mut ring).map(|()| ring).map_err(Stage::Ring.refused());
            }
            Ok(_) => return Err(Stage::Features.refused()(io::ErrorKind::Unsupported.into())),
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => refused = error,
            Err(error) => return Err(Stage::Ring.refused()(error)),
        }
    }
    Err(Stage::Ring.refused()(refused))
}

/// Executes a no-op, because a filter of system calls may permit a ring and refuse to enter it.
fn try_out(ring: &mut IoUring) -> io::Result<()> {
    // SAFETY: the entry names no memory.
    unsafe { ring.submission().push(&opcode::Nop::new().build()) }.map_err(io::Error::other)?;
    while ring.completion().next().is_none() {
        let to_submit = ring.submission().len() as u32;
        match enter(ring.as_raw_fd(), to_submit, 1, None) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Registers `file` as number 0, so that the kernel needs no look-up for each request.
pub(super) fn register_file(ring: &IoUring, file: &File) -> Result<(), Refused> {
    ring.submitter().register_files(&[file.as_raw_fd()]).map_err(Stage::File.refused())
}
