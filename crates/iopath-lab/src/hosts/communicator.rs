//! What the ranks need of a message-passing library. Not the protocol: see `team.rs`.

use std::fmt;

/// Collective operations of a lane match each other in order. A lane whose barrier a rank has given up is of no more
/// use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// The measurement.
    Work,
    /// Its end, also after a failure.
    End,
}

/// The kind of a message between two ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tag {
    /// From a rank to rank 0: it has ended, or failed.
    Report,
    /// From rank 0 to a rank: end, or another rank has failed.
    Order,
    /// The question for the time, and the answer.
    Clock,
}

/// The ranks of a program. The calls that return none end their wait for another rank when a signal requests the end of
/// this one: the other rank may have died. The caller then makes no other call.
pub trait Communicator: fmt::Debug {
    /// The number of this rank.
    fn rank(&self) -> u32;

    /// The number of ranks.
    fn size(&self) -> u32;

    /// The time of this rank, in seconds. The clocks of ranks may differ.
    fn seconds(&self) -> f64;

    /// Waits until all ranks call it. `give_up` is called at least each millisecond; if it returns true, this rank
    /// waits no longer. Returns whether all ranks called it.
    fn barrier(&self, lane: Lane, give_up: &mut dyn FnMut() -> bool) -> bool;

    /// Waits until all ranks call it, as precisely as possible. Only right after a barrier.
    fn start_together(&self, lane: Lane) -> Option<()>;

    /// The bytes of all ranks on rank 0; nothing on the others. Only right after a barrier.
    fn gather(&self, lane: Lane, bytes: Vec<u8>) -> Option<Vec<Vec<u8>>>;

    /// The bytes of rank 0. Only right after a barrier.
    fn broadcast(&self, lane: Lane, bytes: Vec<u8>) -> Option<Vec<u8>>;

    /// Sends a short message without waiting for its receipt.
    fn send(&self, to: u32, tag: Tag, bytes: &[u8]);

    /// A message that has arrived, and its sender.
    fn poll(&self, tag: Tag) -> Option<(u32, Vec<u8>)>;

    /// Waits for a short message of a rank.
    fn receive(&self, from: u32, tag: Tag) -> Option<Vec<u8>>;
}
