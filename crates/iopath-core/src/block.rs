//! The block layer: bios become requests, an elevator orders them, a device executes them. It has no files and no
//! cache: see [`crate::file`].

pub(crate) mod bio;
pub(crate) mod device;
pub mod elevator;
pub(crate) mod fault;
pub(crate) mod limits;
pub mod log;
pub(crate) mod merge;
pub(crate) mod queue;
pub(crate) mod queued;
pub(crate) mod request;
pub(crate) mod stripe;
pub(crate) mod table;
pub(crate) mod tag_list;
#[cfg(test)]
pub(crate) mod timed_disk;
