//! The tests of the crate in one test program, a module for each subject.

mod support;

mod jobfile;
mod jobfile_controls;
mod jobfile_keys;
mod jobfile_models;
mod kept_files;
mod pasted_keys;
mod places;
