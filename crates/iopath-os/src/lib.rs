//! iopath-os
