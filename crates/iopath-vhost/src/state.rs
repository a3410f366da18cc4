//! What the threads of a device share: counters, messages, and the values that change while it runs.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use iopath::log::RequestLog;
use iopath::stats::LatencyCounts;

use crate::request::ID_BYTES;

/// Messages that are kept until they are taken.
const MESSAGES_MAX: usize = 64;

/// The device of a queue.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts of the device")]
pub(crate) struct Disk {
    pub(crate) state: Arc<DeviceState>,
    pub(crate) is_writable: bool,
    pub(crate) id: [u8; ID_BYTES],
    /// Whether the device offers discards.
    pub(crate) has_discard: bool,
    /// Whether the device offers writes of zeroes.
    pub(crate) has_zeroes: bool,
    pub(crate) discard_zeroes: bool,
    /// The latencies of the queue: reads, writes, and other requests.
    pub(crate) latencies: Arc<[LatencyCounts; 3]>,
    pub(crate) log: Option<RequestLog>,
}

/// The shared state of a device.
#[derive(Debug, Default)]
pub(crate) struct DeviceState {
    /// The size in sectors.
    pub(crate) capacity: AtomicU64,
    /// The guest has made a mistake, or requests did not complete in time: no queue takes requests or publishes
    /// completions until the front end has stopped all queues.
    pub(crate) is_broken: AtomicBool,
    /// Completed requests.
    pub(crate) requests: AtomicU64,
    /// Their bytes.
    pub(crate) bytes: AtomicU64,
    /// Requests whose data was copied.
    pub(crate) copied: AtomicU64,
    messages: Mutex<VecDeque<String>>,
}

impl DeviceState {
    /// Adds a message. The oldest is dropped if nobody takes them.
    pub(crate) fn note(&self, message: String) {
        let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        if messages.len() == MESSAGES_MAX {
            messages.pop_front();
        }
        messages.push_back(message);
    }

    /// Whether the device has stopped.
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Acquire)
    }

    /// Stops the device after a mistake: one message, however many queues find one.
    pub(crate) fn stop_for(&self, queue: u16, reason: &dyn std::fmt::Display) {
        if !self.is_broken.swap(true, Ordering::AcqRel) {
            self.note(format!(
                "the device has stopped: queue {queue}: {reason}; reset the device or restart the guest"
            ));
        }
    }

    pub(crate) fn take_messages(&self) -> Vec<String> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use iopath::Volume;

    /// A read-only disk.
    pub(crate) fn disk(volume: &Volume) -> Disk {
        let state = DeviceState::default();
        state.capacity.store(volume.size_bytes() / crate::config::SECTOR_BYTES, Ordering::Relaxed);
        Disk {
            state: Arc::new(state),
            is_writable: false,
            id: [b'x'; ID_BYTES],
            has_discard: false,
            has_zeroes: false,
            discard_zeroes: false,
            latencies: Arc::default(),
            log: None,
        }
    }
}
