//! The tests of the crate in one test program, a module for each subject. A test that needs a process of its own is not
//! here.

#[macro_use]
mod support;

mod buffered;
mod devices;
mod extreme_values;
mod kernel;
mod mapped;
mod mapped_flush;
mod memory_disk;
mod shared;
mod shared_loop;
mod shared_panic;
mod stripe;
mod target_devices;
mod target_files;
mod target_fixtures;
mod target_guard;
mod target_mounts;
mod unplug;
