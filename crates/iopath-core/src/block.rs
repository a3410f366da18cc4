//! The block layer: bios become requests, an elevator orders them, a device carries them out. Knows no files and caches
//! nothing: see [`crate::file`].

pub(crate) mod bio;
pub(crate) mod device;
pub mod elevator;
pub(crate) mod fault;
pub(crate) mod limits;
pub mod log;
pub(crate) mod merge;
pub(crate) mod queue;
pub(crate) mod queued;
pub(crate) mod stripe;
pub(crate) mod table;
