//! iopath
