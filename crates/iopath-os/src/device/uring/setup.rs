//! Sets up a ring with the best flags that the kernel has, and registers file and buffers with it.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use io_uring::{Builder, IoUring};

use crate::pool::BufferPool;

/// The most entries the kernel gives a submission ring (`IORING_MAX_ENTRIES`).
pub(super) const ENTRIES_MAX: u32 = 32_768;

/// At which stage `io_uring` was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// No ring.
    Ring,
    /// A ring, but one too old to use.
    Features,
    /// A ring that does not take the file.
    File,
    /// A ring that does not take the buffers: it would work without.
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
    const fn refused(self) -> impl FnOnce(io::Error) -> Refused {
        move |source| Refused { stage: self, source }
    }
}

type Flags = fn(&mut Builder) -> &mut Builder;

/// What to ask for, best first. Each row says since which kernel it is there.
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
    // 6.1: completions run in our calls alone.
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

/// The same for rings that several threads use. They may not say `SINGLE_ISSUER` nor what depends on it; and with
/// `COOP_TASKRUN` completions would wait until the thread that submitted them next enters the kernel, for whatever.
const ANY_THREAD: &[Flags] = &[
    // 6.6.
    |ring| ring.setup_submit_all().setup_no_sqarray(),
    // 5.18.
    Builder::setup_submit_all,
    // 5.11.
    |ring| ring,
];

/// A ring with an entry for each of `depth` requests. It has twice as many for completions: none is ever lost.
pub(super) fn ring(depth: u32, one_thread: bool) -> Result<IoUring, Refused> {
    let mut refused = io::Error::from_raw_os_error(libc::EINVAL);
    for flags in if one_thread { ONE_THREAD } else { ANY_THREAD } {
        match flags(&mut IoUring::builder()).dontfork().build(depth) {
            Ok(ring) if ring.params().is_feature_ext_arg() && ring.params().is_feature_nodrop() => {
                return Ok(ring);
            }
            Ok(_) => return Err(Stage::Features.refused()(io::ErrorKind::Unsupported.into())),
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => refused = error,
            Err(error) => return Err(Stage::Ring.refused()(error)),
        }
    }
    Err(Stage::Ring.refused()(refused))
}

/// Makes `file` number 0 of the ring's files: the kernel need not look it up at each request.
pub(super) fn register_file(ring: &IoUring, file: &File) -> Result<(), Refused> {
    ring.submitter().register_files(&[file.as_raw_fd()]).map_err(Stage::File.refused())
}

/// Registers the pool's regions; returns the first address and the one after the last of each.
pub(super) fn register_buffers(ring: &IoUring, pool: &BufferPool) -> Result<Box<[(usize, usize)]>, Refused> {
    let iovecs: Vec<libc::iovec> = pool
        .regions()
        .map(|(start, len)| libc::iovec { iov_base: start.as_ptr().cast(), iov_len: len })
        .collect();
    if iovecs.is_empty() {
        return Ok(Box::default()); // The kernel refuses to register nothing.
    }
    // SAFETY: the device keeps the pool as long as the ring, so the memory stays.
    unsafe { ring.submitter().register_buffers(&iovecs) }.map_err(Stage::Buffers.refused())?;
    let bounds = |iovec: &libc::iovec| (iovec.iov_base.addr(), iovec.iov_base.addr() + iovec.iov_len);
    Ok(iovecs.iter().map(bounds).collect())
}
