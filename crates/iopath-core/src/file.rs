//! The storey above the block layer: pages of a volume, readahead, and the mapping of file ranges to blocks. Submits
//! nothing itself: it names the I/O that is to be done.

pub mod buffered;
pub mod cache;
pub mod mapped;
pub mod mapper;
pub(crate) mod page;
mod rate;
pub mod readahead;
