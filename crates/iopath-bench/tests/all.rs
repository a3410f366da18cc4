//! The tests of the crate in one test program, a module for each subject.

#[macro_use]
#[path = "../../iopath-os/tests/support/mod.rs"]
mod loops;

mod device_io;
mod device_settings;
mod engine;
mod paths;
mod result;
mod scratch;
mod simulated;
mod steady_state;
mod target_refusals;
