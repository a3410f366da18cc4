//! Offsets and lengths at the limits of arithmetic, for the tests `extreme_values` of `iopath-os` and `iopath`.

/// The size of the volumes under test.
pub(crate) const SIZE: u64 = 1 << 20;

/// Offsets and lengths that are likely to overflow, inside and past the end of a volume of [`SIZE`] bytes.
pub(crate) const EDGES: [u64; 21] = [
    0,
    1,
    511,
    512,
    4095,
    4096,
    SIZE - 4096,
    SIZE - 100,
    SIZE - 1,
    SIZE,
    SIZE + 1,
    SIZE + 4096,
    u32::MAX as u64,
    1 << 55,
    i64::MAX as u64 - 4095,
    i64::MAX as u64,
    i64::MAX as u64 + 1,
    u64::MAX - 4096,
    u64::MAX - 4095,
    u64::MAX - 100,
    u64::MAX,
];

/// Every offset with every length.
pub(crate) fn pairs() -> impl Iterator<Item = (u64, u64)> {
    EDGES.into_iter().flat_map(|offset| EDGES.into_iter().map(move |bytes| (offset, bytes)))
}
