//! A simulator of both ends in virtual time, from a seed: the production client and server with channels instead of
//! sockets and a modelled disk instead of a volume. Peers are unfair, slow, silent or lying. It makes no system calls.
//!
//! ```text
//!   calls ─▶ Link (client) ◀─ channel ─▶ Service (server) ─▶ Store (modelled disk)
//!              └────────────◀─ channel ─▶ Liar               └ Peer: an unfair client
//!   Model: the bytes that a read may return, and that must be durable
//! ```

mod channel;
mod client;
mod clock;
mod liar;
mod model;
mod peer;
mod random;
mod scenario;
mod server;
mod store;
mod world;

pub use self::world::Counts;

/// Bytes of a cell, the unit of all requests.
const CELL: usize = 512;

/// Runs the scenario of a seed.
///
/// # Errors
/// A violated rule, in words.
pub fn run_seed(seed: u64) -> Result<Counts, String> {
    let run = std::panic::AssertUnwindSafe(|| world::run(&scenario::Scenario::draw(seed)));
    std::panic::catch_unwind(run).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("panic");
        Err(format!("panic: {text}"))
    })
}
