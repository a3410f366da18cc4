//! The tests of the crate in one test program, a module for each subject.

mod formats;
mod lists;
mod page;
mod schema;
mod stripe_targets;
mod verify;
mod whatif;
mod whatif_accesses;
