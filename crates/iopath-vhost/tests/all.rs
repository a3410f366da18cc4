//! The device, driven by a front end and a driver of these tests, without a machine.

#[macro_use]
#[path = "../../iopath-os/tests/support/mod.rs"]
mod loops;

#[path = "all/config.rs"]
mod config;
#[path = "all/hostile.rs"]
mod hostile;
#[path = "all/overlap.rs"]
mod overlap;
#[path = "all/reconnect.rs"]
mod reconnect;
#[path = "all/requests.rs"]
mod requests;
#[path = "all/stuck.rs"]
mod stuck;
mod support;
