//! Converts error numbers of the kernel into [`IoError`]s and back. No other module does.

use std::io;

use iopath_core::{IoError, Op};

/// The meaning of error number `errno` (positive) for an I/O of kind `op`.
///
/// The numbers of the block layer are those of `block/blk-core.c` (`blk_errors`). The numbers of files are in the
/// manual pages of `pread(2)`, `pwrite(2)`, `fallocate(2)` and `fsync(2)`.
pub(crate) fn io_error(op: Op, errno: i32) -> IoError {
    match errno {
        // Medium, target and integrity errors of disks; EUCLEAN and EBADMSG are damaged filesystems.
        libc::EIO | libc::ENODATA | libc::EREMOTEIO | libc::EILSEQ | libc::EUCLEAN | libc::EBADMSG => {
            IoError::Media
        }
        libc::ENOSPC | libc::EDQUOT => IoError::NoSpace,
        libc::EOPNOTSUPP | libc::ENOSYS | libc::ENOTTY => IoError::Unsupported,
        libc::ENODEV | libc::ENXIO | libc::ESTALE | libc::ENOLINK => IoError::Gone,
        libc::EROFS => IoError::ReadOnly,
        libc::EBADF | libc::EPERM | libc::EACCES if op != Op::Read => IoError::ReadOnly,
        libc::EINVAL if op.has_memory() => IoError::Alignment,
        other => IoError::Os(other),
    }
}

/// The error of an `op` that the system refused.
pub fn io_error_of(op: Op, error: &io::Error) -> IoError {
    error.raw_os_error().map_or(IoError::Media, |errno| io_error(op, errno))
}

/// The reverse: an [`IoError`] as a system error, for callers that report system errors.
pub fn system_error(error: IoError) -> io::Error {
    io::Error::from_raw_os_error(match error {
        IoError::NoSpace => libc::ENOSPC,
        IoError::Unsupported => libc::EOPNOTSUPP,
        IoError::Gone => libc::ENODEV,
        IoError::Disconnected => libc::ENOTCONN,
        IoError::ReadOnly => libc::EROFS,
        IoError::Alignment => libc::EINVAL,
        IoError::EndOfDevice => return io::ErrorKind::UnexpectedEof.into(),
        IoError::Os(errno) => errno,
        _ => libc::EIO,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_number_means_different_things_to_reads_and_writes() {
        assert_eq!(io_error(Op::Write, libc::EBADF), IoError::ReadOnly);
        assert_eq!(io_error(Op::Read, libc::EBADF), IoError::Os(libc::EBADF));
        assert_eq!(io_error(Op::Write, libc::EINVAL), IoError::Alignment);
        assert_eq!(io_error(Op::Discard, libc::EINVAL), IoError::Os(libc::EINVAL));
        assert_eq!(io_error(Op::Write, libc::EDQUOT), IoError::NoSpace);
        assert_eq!(io_error(Op::Flush, libc::EIO), IoError::Media);
    }
}
