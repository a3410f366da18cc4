//! The buffers of the crate `bytes`.

use std::ptr::NonNull;

use bytes::{Bytes, BytesMut};

use super::{IoBuf, IoBufMut};

// SAFETY: nobody can change the bytes of a `Bytes`, and they stay at their address.
unsafe impl IoBuf for Bytes {
    fn start(&self) -> NonNull<u8> {
        NonNull::from(&**self).cast()
    }

    fn init_bytes(&self) -> usize {
        self.len()
    }
}

// SAFETY: the memory of a `BytesMut` belongs to it alone, and moves only by methods with `&mut self`.
unsafe impl IoBuf for BytesMut {
    fn start(&self) -> NonNull<u8> {
        NonNull::from(&**self).cast()
    }

    fn init_bytes(&self) -> usize {
        self.len()
    }

    fn space(&mut self) -> Option<NonNull<[u8]>> {
        // `as_mut_ptr` permits access to the initialised bytes only. All of an empty buffer is spare.
        let bytes = self.len();
        // SAFETY: no byte is initialised of none; the old length is restored below.
        unsafe { self.set_len(0) };
        let space = NonNull::from(self.spare_capacity_mut());
        // SAFETY: these bytes were initialised before, and nothing has written to them.
        unsafe { self.set_len(bytes) };
        Some(NonNull::slice_from_raw_parts(space.cast(), space.len()))
    }

    unsafe fn set_init(&mut self, bytes: usize) {
        if bytes > self.len() {
            // SAFETY: the caller's promise: that many bytes of the capacity are initialised.
            unsafe { self.set_len(bytes) };
        }
    }
}

impl IoBufMut for BytesMut {}

#[cfg(test)]
mod tests {
    use super::super::{AnyBuf, init_of, zeroed};
    use super::*;

    #[test]
    fn bytes_are_written_and_bytes_mut_is_filled() {
        let mut shared = Bytes::from(vec![1, 2, 3]);
        assert_eq!(init_of(&shared), &[1, 2, 3]);
        assert!(shared.space().is_none());
        let mut unique = BytesMut::with_capacity(100);
        assert_eq!(zeroed(&mut unique, 40).map(|bytes| bytes.len()), Some(40));
        let any = AnyBuf::new(unique);
        assert_eq!(any.downcast::<BytesMut>().unwrap().len(), 40);
        assert_eq!(AnyBuf::new(shared.clone()).downcast::<Bytes>().unwrap(), shared);
    }
}
