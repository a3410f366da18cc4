//! The tests of the core in one test program, a module for each subject.

#![expect(
    clippy::duplicate_mod,
    reason = "modules that share a file of their neighbour use different parts of it"
)]

mod bad_elevator;
mod buffered;
mod cache;
mod cache_crash;
mod cache_model;
mod cache_room;
mod debug_output;
mod elevators;
mod extreme_values;
mod faults;
mod holding;
mod mapped;
mod mapper;
mod mapper_model;
mod model;
mod plug;
mod stripe;
