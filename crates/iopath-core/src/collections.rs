//! Data structures of the path. Each is allocated once, at the size of the queue or cache that owns it, and is
//! independent of the block and file layers.

pub(crate) mod fifo;
pub(crate) mod list;
pub(crate) mod number_set;
pub mod sorted;
pub(crate) mod zeroed;
