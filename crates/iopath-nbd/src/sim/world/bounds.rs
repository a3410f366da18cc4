//! How long a call, a request on one connection, and an unfair peer may last.

use super::super::CELL;
use super::super::clock::{Nanos, SECOND};
use super::super::peer::Peer;
use super::{CALM_MAX, World};
use crate::client::link::{OVERTAKEN_MAX, SENDS_MAX};

impl World<'_> {
    /// No call and no unfair peer waits for longer than its bound.
    pub(super) fn check_times(&mut self) -> Result<(), String> {
        let now = self.clock.now();
        let bound = if self.scenario.is_calm() { CALM_MAX } else { self.call_max() };
        if let Some(number) = self.open_calls.iter().find(|call| now - self.calls[**call].began_at > bound) {
            let call = &self.calls[*number];
            return Err(format!(
                "liveness: call {number}, {:?} of cells {:?}, waits for {} s, longer than {} s",
                call.op,
                call.cells,
                (now - call.began_at) / SECOND,
                bound / SECOND
            ));
        }
        let sent_max = self.sent_max();
        for client in &self.clients {
            if let Some((waits, call)) = client.longest().filter(|(waits, _)| *waits > sent_max) {
                return Err(format!(
                    "liveness: a connection keeps call {call} for {} s, longer than {} s",
                    waits / SECOND,
                    sent_max / SECOND
                ));
            }
        }
        let patience = self.scenario.server_patience.as_nanos() as Nanos;
        let longest = (32 << 20) / self.scenario.rate_min * SECOND;
        // While its I/O is stuck, a peer has nothing to receive.
        let limit = 2 * patience + longest + 10 * SECOND;
        if self.scenario.faults.stuck_one_in == 0 {
            let limit_of = |peer: &Peer| {
                if peer.manner.is_silent() { 2 * patience + 10 * SECOND } else { limit }
            };
            let late = |peer: &&Peer| peer.manner.is_endless() && now - peer.connected > limit_of(peer);
            if let Some(peer) = self.peers.iter().find(late) {
                return Err(format!("liveness: the server keeps a peer: {:?}", peer.manner));
            }
        }
        Ok(())
    }

    /// The longest call: it is sent some times, and each time it is answered, overtaken or lost in some silences. With
    /// each 64 KiB of data, a server may be silent anew.
    fn call_max(&self) -> Nanos {
        let patience = &self.scenario.patience;
        let lost = patience.connect * 2 + patience.reconnect * 2;
        let times = u64::from(SENDS_MAX + 1) * (self.scenario.links as u64 + 1);
        (self.sent_max() + lost.as_nanos() as Nanos) * times
    }

    /// The longest time of a request on one connection.
    fn sent_max(&self) -> Nanos {
        let patience = &self.scenario.patience;
        let bytes = self.scenario.width as u64 * self.scenario.length_max + 2 * self.scenario.cells as u64;
        let silences = u64::from(OVERTAKEN_MAX) + 2 + bytes * CELL as u64 / (64 << 10);
        (patience.connect + patience.silence * silences as u32).as_nanos() as Nanos
    }
}
