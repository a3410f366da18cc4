//! The names of the paths in results. The paths themselves are in `iopath-bench`.

/// All paths, in the order of tables and colours.
pub const PATH_NAMES: [&str; 9] = [
    "kernel-buffered",
    "kernel-direct",
    "kernel-uring",
    "kernel-mmap",
    "iopath-direct",
    "iopath-raw",
    "iopath-buffered",
    "null",
    "noop",
];

/// The paths that transfer no bytes of a target: they measure the tool.
pub const WITHOUT_TARGET: [&str; 2] = ["null", "noop"];
