//! iopath-core

pub mod sorted;
