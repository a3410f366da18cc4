//! Every public function with an offset, length, count or time, called with numbers at which arithmetic overflows. No
//! call panics or wraps: the result is a documented error, or a range that ends at the highest number. Without overflow
//! checks, it finds only wrong results.
//!
//! Bugs of the caller are not tested here, such as tags that have completed or frames that are not pinned.

mod cache;
mod mapper;
mod queue;
mod ranges;

/// Numbers at which arithmetic overflows.
const EDGES: [u64; 21] = [
    0,
    1,
    2,
    511,
    512,
    513,
    4095,
    4096,
    u32::MAX as u64 - 1,
    u32::MAX as u64,
    1 << 32,
    (1 << 55) - 2,
    (1 << 55) - 1,
    1 << 55,
    i64::MAX as u64 - 4095,
    i64::MAX as u64,
    i64::MAX as u64 + 1,
    u64::MAX - 4096,
    u64::MAX - 511,
    u64::MAX - 1,
    u64::MAX,
];

/// The edges that fit 32 bits, and the highest such number.
fn edges_u32() -> impl Iterator<Item = u32> {
    EDGES.into_iter().filter_map(|edge| u32::try_from(edge).ok())
}

/// Every pair of edges.
fn pairs() -> impl Iterator<Item = (u64, u64)> {
    EDGES.into_iter().flat_map(|a| EDGES.into_iter().map(move |b| (a, b)))
}
