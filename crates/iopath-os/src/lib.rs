//! iopath-os

pub mod target;
