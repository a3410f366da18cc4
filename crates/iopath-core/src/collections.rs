//! Data structures of the path: allocated once, sized by the queue or cache that owns them. They know no I/O.

pub(crate) mod fifo;
pub(crate) mod list;
pub mod sorted;
