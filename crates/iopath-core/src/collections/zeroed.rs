//! Tables whose entries are zeroes at first. The system supplies the zeroes when an entry is first used, so the unused
//! part of a large table takes no memory and no time.

/// `count` entries of zeroes.
///
/// # Panics
/// If there is no memory for them, as for any other collection.
#[cfg(not(iopath_explore))]
pub(crate) fn zeroed<T: zerocopy::FromZeros + zerocopy::KnownLayout>(count: usize) -> Box<[T]> {
    zerocopy::FromZeros::new_box_zeroed_with_elems(count).expect("memory for a table")
}

/// The same in an explored build, whose atomics are no plain memory.
#[cfg(iopath_explore)]
pub(crate) fn zeroed<T: Default>(count: usize) -> Box<[T]> {
    (0..count).map(|_| T::default()).collect()
}
