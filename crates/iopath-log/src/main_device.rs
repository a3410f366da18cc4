//! The device of a log of the kernel that matters most: for readers that replay one device.

use crate::error::LogError;
use crate::filter::Filter;
use crate::reader::LogReader;
use std::io::Read;

/// A device of a log of the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MainDevice {
    /// The number of its queue.
    pub queue: u16,
    /// Its name.
    pub name: String,
    /// The number of other devices with requests.
    pub others: usize,
}

/// The device whose requests moved the most bytes, without devices that only pass bios on. `None` if all queues of the
/// log are of one target, or no device has a request. Reads the whole log.
///
/// # Errors
/// If the log cannot be read.
pub fn main_device<R: Read + Send>(log: LogReader<R>) -> Result<Option<MainDevice>, LogError> {
    if !log.info().has_devices() {
        return Ok(None);
    }
    let mut devices = log.summarise(&Filter::default())?.devices;
    devices.retain(|device| device.requests > 0);
    let others = devices.len().saturating_sub(1);
    let main = devices.into_iter().max_by_key(|device| (device.remapped_bios == 0, device.request_bytes));
    Ok(main.map(|device| MainDevice { queue: device.queue, name: device.device, others }))
}
