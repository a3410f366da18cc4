//! Every public function that takes an offset, a length, a count or a time, with numbers at which arithmetic goes wrong.
//! Nothing panics or wraps: the answer is an error that is documented, or a range that ends where numbers do. To be run
//! with overflow checks (profile `checked`); without them it sees wrong answers only.
//!
//! Not here: states that callers must not bring about (tags that have completed, frames that nobody holds), which are bugs.

mod cache;
mod mapper;
mod queue;
mod ranges;

/// Numbers at which arithmetic goes wrong.
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

/// Those of them that 32 bits hold, and the highest.
fn edges_u32() -> impl Iterator<Item = u32> {
    EDGES.into_iter().filter_map(|edge| u32::try_from(edge).ok())
}

/// Every pair of edges.
fn pairs() -> impl Iterator<Item = (u64, u64)> {
    EDGES.into_iter().flat_map(|a| EDGES.into_iter().map(move |b| (a, b)))
}
