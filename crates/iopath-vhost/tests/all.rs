//! The device, driven by a front end and a driver of these tests, without a machine.

#[path = "all/config.rs"]
mod config;
#[path = "all/hostile.rs"]
mod hostile;
#[path = "all/reconnect.rs"]
mod reconnect;
#[path = "all/requests.rs"]
mod requests;
mod support;
