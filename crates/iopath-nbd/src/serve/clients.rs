//! The clients of a server: counts that all of its workers share, their limits, and messages for the user.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The clients of all workers.
#[derive(Debug)]
pub(crate) struct Clients {
    connections: AtomicU32,
    accepted: AtomicU64,
    /// Connections of them that negotiate.
    negotiating: AtomicU32,
    connections_max: u32,
    /// Connections of one worker that negotiate.
    handshakes_max: usize,
    /// The limit of [`super::ServeOptions::patience`].
    patience: Duration,
    /// For the user: why connections were closed, or cannot be accepted.
    messages: Mutex<VecDeque<String>>,
}

/// Messages that a server keeps for its caller.
const MESSAGES_MAX: usize = 64;

impl Clients {
    /// No clients yet. `handshakes_max` is the limit of one worker.
    pub(crate) fn new(connections_max: u32, handshakes_max: usize, patience: Duration) -> Self {
        Self {
            connections: AtomicU32::new(0),
            accepted: AtomicU64::new(0),
            negotiating: AtomicU32::new(0),
            connections_max,
            handshakes_max,
            patience,
            messages: Mutex::default(),
        }
    }

    /// Connections at present.
    pub(crate) fn connections(&self) -> u32 {
        self.connections.load(Ordering::Relaxed)
    }

    /// Connections since the start.
    pub(crate) fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Connections of one worker that negotiate at the same time.
    pub(super) fn handshakes_max(&self) -> usize {
        self.handshakes_max
    }

    /// The limit of [`super::ServeOptions::patience`].
    pub(super) fn patience(&self) -> Duration {
        self.patience
    }

    /// Takes the messages.
    pub(crate) fn take_messages(&self) -> Vec<String> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect()
    }

    /// Numbers a connection that was accepted. Returns the number of those before it.
    pub(super) fn count_accepted(&self) -> u64 {
        self.accepted.fetch_add(1, Ordering::Relaxed)
    }

    /// Keeps a message. The oldest one is dropped if the caller does not take them.
    pub(super) fn note(&self, message: &str) {
        let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        if messages.len() == MESSAGES_MAX {
            messages.pop_front();
        }
        messages.push_back(message.to_owned());
    }

    /// Whether there is no place for a further client. Connections that negotiate have places of their own.
    pub(super) fn is_full(&self) -> bool {
        let all = self.connections.load(Ordering::Acquire);
        all.saturating_sub(self.negotiating.load(Ordering::Acquire)) >= self.connections_max
    }

    /// A connection was accepted.
    pub(crate) fn add_handshake(&self) {
        // In this order, it never counts as a client.
        self.negotiating.fetch_add(1, Ordering::AcqRel);
        self.connections.fetch_add(1, Ordering::AcqRel);
    }

    /// A connection that negotiated is a client now.
    pub(super) fn end_handshake(&self) {
        self.negotiating.fetch_sub(1, Ordering::AcqRel);
    }

    /// A client is gone.
    pub(super) fn release_client(&self) {
        self.connections.fetch_sub(1, Ordering::AcqRel);
    }

    /// An accepted connection has ended before it was a client.
    pub(super) fn release_handshake(&self) {
        self.connections.fetch_sub(1, Ordering::AcqRel);
        self.negotiating.fetch_sub(1, Ordering::AcqRel);
    }
}
