//! Tables whose entries are zeroes at first. The system supplies the zeroes when an entry is first used, so the unused
//! part of a large table takes no memory and no time.

/// A type whose first value is all zeroes.
pub(crate) trait Zeroed: Sized {
    /// `count` entries of zeroes.
    ///
    /// # Panics
    /// If there is no memory for them, as for any other collection.
    fn zeroed(count: usize) -> Box<[Self]>;
}

#[cfg(not(iopath_explore))]
impl<T: zerocopy::FromZeros + zerocopy::KnownLayout> Zeroed for T {
    fn zeroed(count: usize) -> Box<[Self]> {
        zerocopy::FromZeros::new_box_zeroed_with_elems(count).expect("memory for a table")
    }
}

/// The atomics of an explored build are no plain memory.
#[cfg(iopath_explore)]
impl<T: Default> Zeroed for T {
    fn zeroed(count: usize) -> Box<[Self]> {
        (0..count).map(|_| T::default()).collect()
    }
}
