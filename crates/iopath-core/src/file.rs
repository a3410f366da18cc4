//! The layer above the block layer: pages of a volume, readahead, and the mapping of file ranges to blocks. It returns
//! the I/O to be done, and submits none.

pub mod buffered;
pub mod cache;
pub mod mapped;
pub mod mapper;
pub(crate) mod page;
mod rate;
pub mod readahead;
