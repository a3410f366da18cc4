//! iopath-core
