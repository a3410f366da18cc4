//! The buffer of a job that may be unaligned: the caller's own, or an aligned copy beside it.

use std::fmt;
use std::ptr::NonNull;

use super::{IoBuf, fill_space, init_of};
use crate::aligned::AlignedBuf;

/// The buffer of a request on a volume with bounced I/O.
pub enum JobBuf<B> {
    /// The device transfers the caller's memory.
    Own(B),
    /// The device transfers an aligned copy.
    Bounced {
        /// The caller's buffer.
        own: B,
        /// The copy.
        copy: AlignedBuf,
        /// The position of the caller's first byte in the copy.
        skip: usize,
        /// The number of the caller's bytes.
        bytes: usize,
    },
}

impl<B: IoBuf> JobBuf<B> {
    /// A read of `bytes` bytes through `copy`; the caller's first byte is at `skip` in it.
    pub const fn bounced_read(own: B, copy: AlignedBuf, skip: usize, bytes: usize) -> Self {
        Self::Bounced { own, copy, skip, bytes }
    }

    /// A write of the first `bytes` initialised bytes of `own`, through `copy`.
    ///
    /// # Panics
    /// If either is shorter: a bug of the caller.
    pub fn bounced_write(own: B, mut copy: AlignedBuf, bytes: usize) -> Self {
        copy[..bytes].copy_from_slice(&init_of(&own)[..bytes]);
        Self::Bounced { own, copy, skip: 0, bytes }
    }

    /// The caller's buffer, the number of its bytes that were transferred, and the copy for the next request. The
    /// device has transferred `transferred` bytes of the memory of this value. Those of a read are copied to the
    /// caller's buffer.
    pub fn finish(self, is_read: bool, transferred: usize) -> (B, usize, Option<AlignedBuf>) {
        match self {
            Self::Own(own) => (own, transferred, None),
            Self::Bounced { mut own, copy, skip, bytes } => {
                let bytes = transferred.saturating_sub(skip).min(bytes);
                if is_read {
                    fill_space(&mut own, 0, &copy[skip..skip + bytes]);
                    // SAFETY: just filled.
                    unsafe { own.set_init(bytes) };
                }
                (own, bytes, Some(copy))
            }
        }
    }
}

impl<B: IoBuf> fmt::Debug for JobBuf<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobBuf").field("bytes", &self.init_bytes()).finish_non_exhaustive()
    }
}

// SAFETY: the contract of the inner types.
unsafe impl<B: IoBuf> IoBuf for JobBuf<B> {
    const IS_SHARED: bool = B::IS_SHARED;

    fn start(&self) -> NonNull<u8> {
        match self {
            Self::Own(own) => own.start(),
            Self::Bounced { copy, .. } => IoBuf::start(copy),
        }
    }

    fn init_bytes(&self) -> usize {
        match self {
            Self::Own(own) => own.init_bytes(),
            Self::Bounced { copy, .. } => copy.len(),
        }
    }

    fn space(&mut self) -> Option<NonNull<[u8]>> {
        match self {
            Self::Own(own) => own.space(),
            Self::Bounced { copy, .. } => copy.space(),
        }
    }

    unsafe fn set_init(&mut self, bytes: usize) {
        if let Self::Own(own) = self {
            // SAFETY: passed on. The copy is always initialised.
            unsafe { own.set_init(bytes) };
        }
    }

    fn registered(&self) -> Option<u16> {
        match self {
            Self::Own(own) => own.registered(),
            Self::Bounced { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io_buf::space_bytes;

    #[test]
    fn a_bounced_buffer_transfers_through_its_copy() {
        let copy = AlignedBuf::new(1024).unwrap();
        let mut write = JobBuf::bounced_write(vec![7; 600], copy, 512);
        assert_eq!((&init_of(&write)[..512], init_of(&write)[512]), (&[7; 512][..], 0));
        assert_eq!(space_bytes(&mut write), 1024);
        let (own, bytes, copy) = write.finish(false, 512);
        assert_eq!((own, bytes), (vec![7; 600], 512));
        let mut copy = copy.unwrap();
        copy[10..13].copy_from_slice(b"abc");
        let read = JobBuf::bounced_read(Vec::with_capacity(3), copy, 10, 3);
        let (own, bytes, copy) = read.finish(true, 12);
        assert_eq!((&own[..], bytes), (&b"ab"[..], 2), "the device has read as far as the end of the volume");
        let read = JobBuf::bounced_read(own, copy.unwrap(), 10, 3);
        assert_eq!(read.finish(true, 0).1, 0);
    }
}
