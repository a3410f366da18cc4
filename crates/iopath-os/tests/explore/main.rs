//! The blocking code under a scheduler that controls its threads: `cargo xtask explore`. A hang, a panic, and a lost
//! wake-up fail, also if a timeout hides the lost wake-up. The failure prints the seed that reproduces it. Empty in
//! normal builds.
#![cfg(iopath_explore)]

mod buffered;
mod device;
#[path = "../../src/election.rs"]
mod election;
mod elections;
#[path = "../support/hold.rs"]
mod hold;
mod requests;
mod shared;
mod stripe;
mod threads;
