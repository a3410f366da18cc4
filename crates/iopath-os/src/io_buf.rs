//! Memory of the caller for I/O that a queue owns until its completion: the traits, and their implementations for types
//! of the standard library. `io_buf/any.rs` erases the type, `io_buf/bounced.rs` adds an aligned copy.

mod any;
mod bounced;
#[cfg(feature = "bytes")]
mod bytes;

use std::ptr::NonNull;
use std::sync::Arc;

use iopath_core::Op;

use crate::aligned::AlignedBuf;
use crate::memory::Segment;
use crate::pool::PoolBuf;

pub use any::AnyBuf;
pub use bounced::JobBuf;

/// Memory that a batch owns from the request to its completion, such as a `Vec<u8>`.
///
/// Writes use the initialised bytes. Reads need [`IoBufMut`], and may use memory that is not initialised.
///
/// # Safety
/// While the value exists and no method with `&mut self` is called:
/// - the memory of [`IoBuf::start`] and [`IoBuf::space`] stays allocated at the same address, also when the value
///   moves;
/// - any thread may read the initialised bytes, and no code changes them;
/// - the memory of [`IoBuf::space`] belongs to this value alone: no other code reads or writes it.
///
/// No method of this trait panics, and each returns the same value every time, except that [`IoBuf::set_init`] adds
/// initialised bytes.
///
/// Other processes may change the memory of a type with [`IoBuf::IS_SHARED`]. Then only the kernel accesses it, and
/// code that copies by address.
///
/// The memory lies outside of the value: an array is no `IoBuf`. The first [`IoBuf::init_bytes`] bytes from
/// [`IoBuf::start`] on are initialised.
pub unsafe trait IoBuf: 'static {
    /// Whether other processes may change the bytes at any time: see [`SharedBuf`](crate::SharedBuf). No reference to
    /// such bytes may exist, so only a queue whose device passes the addresses to the kernel accepts them.
    #[doc(hidden)]
    const IS_SHARED: bool = false;

    /// The first byte.
    fn start(&self) -> NonNull<u8>;

    /// The number of initialised bytes from the first byte on. A write uses at most these.
    fn init_bytes(&self) -> usize;

    /// The memory that a read may fill: all of it, initialised or not. `None` unless the type implements [`IoBufMut`].
    fn space(&mut self) -> Option<NonNull<[u8]>> {
        None
    }

    /// Records that at least the first `bytes` bytes are initialised. Does not shorten the buffer.
    ///
    /// # Safety
    /// That many bytes of [`IoBuf::space`] are initialised.
    unsafe fn set_init(&mut self, _bytes: usize) {}

    /// The number of the registered buffer that contains the memory: see [`BufferPool`](crate::BufferPool).
    #[doc(hidden)]
    fn registered(&self) -> Option<u16> {
        None
    }
}

/// Memory that reads can fill: [`IoBuf::space`] returns it.
pub trait IoBufMut: IoBuf {}

/// The initialised bytes of a buffer.
///
/// # Panics
/// If other processes may change the bytes: a bug of the caller.
pub fn init_of<B: IoBuf>(buffer: &B) -> &[u8] {
    assert!(!B::IS_SHARED, "no reference to memory that other processes may change");
    // SAFETY: the contract of `IoBuf`: allocated and initialised, and nobody changes the bytes while `buffer` is
    // borrowed.
    unsafe { std::slice::from_raw_parts(buffer.start().as_ptr(), buffer.init_bytes()) }
}

/// The number of bytes that an operation may transfer from or to a buffer: the initialised bytes of a write, the space
/// of a read.
pub fn usable_bytes<B: IoBuf>(buffer: &mut B, op: Op) -> usize {
    if op == Op::Read { space_bytes(buffer) } else { buffer.init_bytes() }
}

/// The number of bytes that a read can fill.
pub fn space_bytes<B: IoBuf>(buffer: &mut B) -> usize {
    buffer.space().map_or(0, NonNull::len)
}

/// Zeroes the first `bytes` bytes of the space, and returns them. `None` if the space is shorter, or shared with other
/// processes.
pub fn zeroed<B: IoBuf>(buffer: &mut B, bytes: usize) -> Option<&mut [u8]> {
    let space = buffer.space().filter(|space| !B::IS_SHARED && space.len() >= bytes)?;
    // SAFETY: the space is at least that long, and belongs to the buffer alone, which is borrowed.
    unsafe { space.cast::<u8>().as_ptr().write_bytes(0, bytes) };
    // SAFETY: just initialised.
    unsafe { buffer.set_init(bytes) };
    // SAFETY: as above; the result borrows the buffer.
    Some(unsafe { std::slice::from_raw_parts_mut(space.cast::<u8>().as_ptr(), bytes) })
}

/// Copies `source` into the space of a buffer, from byte `at` on.
///
/// # Panics
/// If the space is too short: a bug of the caller.
#[inline]
pub(crate) fn fill_space<B: IoBuf>(buffer: &mut B, at: usize, source: &[u8]) {
    let space = buffer.space().unwrap_or(NonNull::slice_from_raw_parts(NonNull::dangling(), 0));
    assert!(at <= space.len() && source.len() <= space.len() - at, "the bytes reach past the buffer");
    let source_start = NonNull::from(source).cast();
    // SAFETY: within the space, which belongs to the buffer alone.
    unsafe { space.cast::<u8>().add(at).copy_from_nonoverlapping(source_start, source.len()) };
}

/// The memory of a buffer for an operation, for a device. `None` if the operation reads and the buffer has no space.
///
/// # Safety
/// The conditions of [`Segment::new`] hold: until the I/O has completed, the buffer is not dropped, and nothing calls
/// a method of it with `&mut self`, nor with `&self` if the I/O reads.
#[inline]
pub(crate) unsafe fn segment_of<B: IoBuf>(buffer: &mut B, op: Op) -> Option<Segment> {
    let (start, bytes) = match op {
        Op::Read => {
            let space = buffer.space()?;
            (space.cast(), space.len())
        }
        _ => (buffer.start(), buffer.init_bytes()),
    };
    // SAFETY: the caller's promise and the contract of `IoBuf`.
    let segment = unsafe { Segment::new(start, bytes) };
    Some(match buffer.registered() {
        Some(number) => segment.in_registered_buffer(number),
        None => segment,
    })
}

// SAFETY: the heap memory of a `Vec` moves only by methods with `&mut self`, and belongs to it alone.
unsafe impl IoBuf for Vec<u8> {
    fn start(&self) -> NonNull<u8> {
        NonNull::from(self.as_slice()).cast()
    }

    fn init_bytes(&self) -> usize {
        self.len()
    }

    fn space(&mut self) -> Option<NonNull<[u8]>> {
        let capacity = self.capacity();
        NonNull::new(self.as_mut_ptr()).map(|start| NonNull::slice_from_raw_parts(start, capacity))
    }

    unsafe fn set_init(&mut self, bytes: usize) {
        if bytes > self.len() {
            // SAFETY: the caller's promise: that many bytes of the capacity are initialised.
            unsafe { self.set_len(bytes) };
        }
    }
}

impl IoBufMut for Vec<u8> {}

// SAFETY: the memory of a box belongs to it alone and never moves.
unsafe impl IoBuf for Box<[u8]> {
    fn start(&self) -> NonNull<u8> {
        NonNull::from(&**self).cast()
    }

    fn init_bytes(&self) -> usize {
        self.len()
    }

    fn space(&mut self) -> Option<NonNull<[u8]>> {
        Some(NonNull::from(&mut **self))
    }
}

impl IoBufMut for Box<[u8]> {}

// SAFETY: the region belongs to the value alone and never moves; it was zeroed.
unsafe impl IoBuf for AlignedBuf {
    fn start(&self) -> NonNull<u8> {
        Self::start(self)
    }

    fn init_bytes(&self) -> usize {
        self.len()
    }

    fn space(&mut self) -> Option<NonNull<[u8]>> {
        Some(NonNull::slice_from_raw_parts(Self::start(self), self.len()))
    }
}

impl IoBufMut for AlignedBuf {}

// SAFETY: the memory of the pool lives as long as the buffer and never moves; the number belongs to this value alone.
unsafe impl IoBuf for PoolBuf {
    #[inline]
    fn start(&self) -> NonNull<u8> {
        Self::start(self)
    }

    #[inline]
    fn init_bytes(&self) -> usize {
        self.len()
    }

    #[inline]
    fn space(&mut self) -> Option<NonNull<[u8]>> {
        Some(NonNull::slice_from_raw_parts(Self::start(self), self.len()))
    }

    #[inline]
    fn registered(&self) -> Option<u16> {
        Some(self.piece())
    }
}

impl IoBufMut for PoolBuf {}

// SAFETY: nobody can change the bytes, and they are never freed.
unsafe impl IoBuf for &'static [u8] {
    fn start(&self) -> NonNull<u8> {
        NonNull::from(*self).cast()
    }

    fn init_bytes(&self) -> usize {
        self.len()
    }
}

// SAFETY: nobody can change the bytes while there are several owners; `Arc::get_mut` of a sole owner takes `&mut self`.
unsafe impl IoBuf for Arc<[u8]> {
    fn start(&self) -> NonNull<u8> {
        NonNull::from(&**self).cast()
    }

    fn init_bytes(&self) -> usize {
        self.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::BufferPool;
    use iopath_core::Memory;

    /// Fills the space through the segment, as a device does, after the buffer has moved; then reads it by the buffer.
    fn is_filled_where_it_lies<B: IoBufMut>(mut buffer: B, bytes: usize) -> B {
        // SAFETY: nothing accesses the buffer until the copy is done.
        let segment = unsafe { segment_of(&mut buffer, Op::Read) }.unwrap().slice(0, bytes as u64);
        let slot = vec![Some(buffer)];
        let mut moved = slot;
        let source: Vec<u8> = (0..bytes).map(|byte| byte as u8).collect();
        // SAFETY: the promise above.
        unsafe { segment.fill_from(&source) };
        let mut buffer = moved[0].take().unwrap();
        // SAFETY: just filled.
        unsafe { buffer.set_init(bytes) };
        assert_eq!(&init_of(&buffer)[..bytes], &source);
        buffer
    }

    #[test]
    fn each_type_is_filled_where_it_lies() {
        let vec = is_filled_where_it_lies(Vec::with_capacity(2048), 1024);
        assert_eq!(vec.len(), 1024);
        is_filled_where_it_lies(AlignedBuf::new(4096).unwrap(), 4096);
        is_filled_where_it_lies(BufferPool::new(2, 4096).unwrap().take().unwrap(), 512);
        let any = is_filled_where_it_lies(AnyBuf::new(Vec::with_capacity(700)), 600);
        assert_eq!(any.downcast::<Vec<u8>>().unwrap().len(), 600);
    }

    #[test]
    fn a_buffer_that_is_filled_is_never_shortened() {
        let mut buffer = vec![7; 100];
        // SAFETY: all 100 bytes are initialised.
        unsafe { buffer.set_init(10) };
        assert_eq!(buffer, [7; 100]);
        assert_eq!(zeroed(&mut buffer, 101), None);
        assert_eq!(zeroed(&mut buffer, 50).unwrap(), [0; 50]);
        assert_eq!((buffer.len(), buffer[50]), (100, 7));
    }

    #[test]
    fn memory_for_writes_has_no_space() {
        let mut shared: Arc<[u8]> = Arc::from(&b"shared"[..]);
        let mut fixed: &'static [u8] = b"static";
        assert_eq!((space_bytes(&mut shared), usable_bytes(&mut shared, Op::Write)), (0, 6));
        assert_eq!((space_bytes(&mut fixed), init_of(&fixed)), (0, &b"static"[..]));
        // SAFETY: no device gets it.
        assert!(unsafe { segment_of(&mut shared, Op::Read) }.is_none());
    }

    #[test]
    fn a_box_is_filled_before_it_moves_again() {
        let mut buffer: Box<[u8]> = vec![0; 512].into_boxed_slice();
        // SAFETY: nothing accesses the buffer until the copy is done.
        let segment = unsafe { segment_of(&mut buffer, Op::Read) }.unwrap();
        // SAFETY: the promise above.
        unsafe { segment.fill_from(&[9; 512]) };
        assert!(buffer.iter().all(|&byte| byte == 9));
    }
}
