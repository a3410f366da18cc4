//! The contract of all devices of this crate, tested on each device, and the guarantees of some devices. The message of
//! a failure contains the random seed.

mod data;
mod engines;
mod errors;
mod in_flight;
mod remote;
mod rig;
mod waits;

use rig::{ROWS, Rig};

#[test]
fn every_device_is_tested_here() {
    for device in iopath_os::DEVICES.iter().filter(|device| device.name != "null") {
        assert!(ROWS.iter().any(|row| row.name.starts_with(device.name)), "{} has no row", device.name);
    }
}

/// Runs a test on a new device of each row.
fn on_each_device(sectors: u64, test: impl Fn(&mut Rig)) {
    for row in ROWS {
        match Rig::new(row, sectors) {
            Some(mut rig) => test(&mut rig),
            None => eprintln!("skipped on {}: io_uring is refused here", row.name),
        }
    }
}
