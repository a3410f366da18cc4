//! The blocking code under a scheduler that controls its threads: `cargo xtask explore`. A hang, a wake-up that is lost
//! or made up for by a timeout, and a panic fail, with the seed that shows it again. Empty in normal builds.
#![cfg(iopath_explore)]

mod buffered;
mod device;
#[path = "../support/hold.rs"]
mod hold;
mod requests;
mod shared;
mod stripe;
mod threads;
