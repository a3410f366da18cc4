//! A buffer of any type, for a queue whose requests have different ones. Allocates only for types larger than five
//! words.

use std::any::TypeId;
use std::fmt;
use std::mem::{ManuallyDrop, MaybeUninit, align_of, size_of};
use std::ptr::NonNull;

use super::{IoBuf, IoBufMut};

/// The size of the types that are stored inline: `bytes::Bytes` has four words.
const WORDS: usize = 5;

/// Words without a type: a move copies them, and does not count as a use of the pointers in them.
type Words = [MaybeUninit<*mut ()>; WORDS];

/// An [`IoBuf`] of any type: [`AnyBuf::downcast`] returns it.
pub struct AnyBuf {
    /// The value, or a pointer to it in a box of its own: see [`Kind::of`].
    words: Words,
    kind: &'static Kind,
}

/// The functions of a type. Each argument is the address of a value of that type.
struct Kind {
    type_id: fn() -> TypeId,
    name: fn() -> &'static str,
    is_inline: bool,
    start: unsafe fn(*const ()) -> NonNull<u8>,
    init_bytes: unsafe fn(*const ()) -> usize,
    space: unsafe fn(*mut ()) -> Option<NonNull<[u8]>>,
    set_init: unsafe fn(*mut (), usize),
    registered: unsafe fn(*const ()) -> Option<u16>,
    drop: unsafe fn(*mut ()),
}

// SAFETY: `new` accepts only values that may move between threads.
unsafe impl Send for AnyBuf {}

impl Kind {
    const fn of<B: IoBuf>() -> &'static Self {
        // SAFETY: of each function: the caller passes the address of a live value of type `B`, of its own for `*mut`.
        const {
            &Self {
                type_id: TypeId::of::<B>,
                name: std::any::type_name::<B>,
                is_inline: size_of::<B>() <= size_of::<Words>() && align_of::<B>() <= align_of::<Words>(),
                // SAFETY: as stated above.
                start: |value| unsafe { (*value.cast::<B>()).start() },
                // SAFETY: as stated above.
                init_bytes: |value| unsafe { (*value.cast::<B>()).init_bytes() },
                // SAFETY: as stated above.
                space: |value| unsafe { (*value.cast::<B>()).space() },
                // SAFETY: as stated above, and the promise of `IoBuf::set_init` is passed on.
                set_init: |value, bytes| unsafe { (*value.cast::<B>()).set_init(bytes) },
                // SAFETY: as stated above.
                registered: |value| unsafe { (*value.cast::<B>()).registered() },
                // SAFETY: as stated above; the value is not used afterwards.
                drop: |value| unsafe {
                    if Self::of::<B>().is_inline {
                        value.cast::<B>().drop_in_place();
                    } else {
                        drop(Box::from_raw(value.cast::<B>()));
                    }
                },
            }
        }
    }
}

impl AnyBuf {
    /// Erases the type of a buffer, except of memory that other processes may change, which does not compile.
    pub fn new<B: IoBuf + Send>(buffer: B) -> Self {
        const { assert!(!B::IS_SHARED, "queues could not tell shared memory from other memory") };
        let kind = Kind::of::<B>();
        let mut words: Words = [MaybeUninit::uninit(); WORDS];
        if kind.is_inline {
            // SAFETY: the words are large enough for the value, and aligned for it.
            unsafe { words.as_mut_ptr().cast::<B>().write(buffer) };
        } else {
            words[0].write(Box::into_raw(Box::new(buffer)).cast());
        }
        Self { words, kind }
    }

    /// The buffer, if it has the type `B`; otherwise this value.
    ///
    /// # Errors
    /// This value, if the buffer has another type.
    pub fn downcast<B: IoBuf>(self) -> Result<B, Self> {
        if (self.kind.type_id)() != TypeId::of::<B>() {
            return Err(self);
        }
        let mut this = ManuallyDrop::new(self);
        let value = this.value_mut().cast::<B>();
        // SAFETY: a value of that type, which is moved out once: `this` does not drop it.
        Ok(unsafe { if this.kind.is_inline { value.read() } else { *Box::from_raw(value) } })
    }

    fn value(&self) -> *const () {
        if self.kind.is_inline {
            return self.words.as_ptr().cast();
        }
        // SAFETY: a type that is not inline has its address in the first word.
        unsafe { self.words[0].assume_init() }
    }

    fn value_mut(&mut self) -> *mut () {
        if self.kind.is_inline {
            return self.words.as_mut_ptr().cast();
        }
        // SAFETY: as in `value`.
        unsafe { self.words[0].assume_init() }
    }
}

// SAFETY: the contract of the inner type, whose memory does not move with the value; the inner value moves only as
// words without a type.
unsafe impl IoBuf for AnyBuf {
    fn start(&self) -> NonNull<u8> {
        // SAFETY: the value has the type of the functions.
        unsafe { (self.kind.start)(self.value()) }
    }

    fn init_bytes(&self) -> usize {
        // SAFETY: as in `start`.
        unsafe { (self.kind.init_bytes)(self.value()) }
    }

    fn space(&mut self) -> Option<NonNull<[u8]>> {
        // SAFETY: as in `start`.
        unsafe { (self.kind.space)(self.value_mut()) }
    }

    unsafe fn set_init(&mut self, bytes: usize) {
        // SAFETY: as in `start`, and the caller's promise.
        unsafe { (self.kind.set_init)(self.value_mut(), bytes) }
    }

    fn registered(&self) -> Option<u16> {
        // SAFETY: as in `start`.
        unsafe { (self.kind.registered)(self.value()) }
    }
}

/// A read into a buffer of a type that has no space is refused: the buffer is too small.
impl IoBufMut for AnyBuf {}

impl Drop for AnyBuf {
    fn drop(&mut self) {
        // SAFETY: the value has the type of the functions, and is not used afterwards.
        unsafe { (self.kind.drop)(self.value_mut()) }
    }
}

impl fmt::Debug for AnyBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnyBuf")
            .field("type", &(self.kind.name)())
            .field("bytes", &self.init_bytes())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::init_of;
    use super::*;

    /// A buffer of more words than fit inline, and of a larger alignment.
    #[repr(align(64))]
    struct Large {
        bytes: Vec<u8>,
        _rest: [usize; 8],
        _alive: Arc<()>,
    }

    // SAFETY: as of the `Vec`.
    unsafe impl IoBuf for Large {
        fn start(&self) -> NonNull<u8> {
            IoBuf::start(&self.bytes)
        }

        fn init_bytes(&self) -> usize {
            self.bytes.len()
        }

        fn space(&mut self) -> Option<NonNull<[u8]>> {
            self.bytes.space()
        }
    }

    #[test]
    fn a_buffer_of_each_size_keeps_its_bytes_and_is_dropped_once() {
        let alive = Arc::new(());
        let large = || Large { bytes: vec![3; 9], _rest: [0; 8], _alive: Arc::clone(&alive) };
        let any = AnyBuf::new(large());
        assert!(!any.kind.is_inline);
        assert_eq!((init_of(&any), Arc::strong_count(&alive)), (&[3; 9][..], 2));
        let any = any.downcast::<Vec<u8>>().unwrap_err();
        assert_eq!(any.downcast::<Large>().map(|large| large.bytes.len()).ok(), Some(9));
        drop(AnyBuf::new(large()));
        assert_eq!(Arc::strong_count(&alive), 1);
        let shared: Arc<[u8]> = Arc::from(&[1, 2][..]);
        let any = AnyBuf::new(Arc::clone(&shared));
        assert!(any.kind.is_inline);
        assert_eq!(init_of(&any), &[1, 2]);
        drop(any);
        assert_eq!(Arc::strong_count(&shared), 1);
    }

    #[test]
    fn a_buffer_crosses_threads() {
        let any = AnyBuf::new(vec![5_u8; 3]);
        let any = std::thread::spawn(move || any).join().unwrap();
        assert_eq!(any.downcast::<Vec<u8>>().unwrap(), [5; 3]);
    }
}
