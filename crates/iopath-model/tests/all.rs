//! The tests of the models in one test program, a module for each subject.

mod rig;

mod composed;
mod conformance;
mod disk;
mod figures;
mod flash;
mod golden;
mod input;
mod laws;
mod layered;
mod stages;
mod submitter;
