//! What the threads of a device share: counters and messages.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Mutex, PoisonError};

/// Messages that are kept until they are taken.
const MESSAGES_MAX: usize = 64;

/// The shared state of a device.
#[derive(Debug, Default)]
pub(crate) struct SharedState {
    /// Completed requests.
    pub(crate) requests: AtomicU64,
    /// Their bytes.
    pub(crate) bytes: AtomicU64,
    /// The threads end, and leave the device to another server.
    pub(crate) leaves: AtomicBool,
    messages: Mutex<VecDeque<String>>,
}

impl SharedState {
    /// Adds a message. The oldest is dropped if nobody takes them.
    pub(crate) fn note(&self, message: String) {
        let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        if messages.len() == MESSAGES_MAX {
            messages.pop_front();
        }
        messages.push_back(message);
    }

    pub(crate) fn take_messages(&self) -> Vec<String> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect()
    }
}
