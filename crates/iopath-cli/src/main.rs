//! The iopath program.

fn main() {}
