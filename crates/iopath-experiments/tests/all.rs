//! The tests of the crate in one test program, a module for each subject.

mod experiment_values;
mod experiments;
