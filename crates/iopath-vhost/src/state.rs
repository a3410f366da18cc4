//! What the threads of a device share: counters, messages, and the values that change while it runs.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Messages that are kept until they are taken.
const MESSAGES_MAX: usize = 64;

/// The shared state of a device.
#[derive(Debug, Default)]
pub(crate) struct DeviceState {
    /// The size in sectors.
    pub(crate) capacity: AtomicU64,
    /// The guest has made a mistake: no queue takes further requests until the front end starts the queues again.
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

    /// Stops the device after a mistake of the guest: one message, however many queues find one.
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
