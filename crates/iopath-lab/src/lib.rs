//! iopath-lab
