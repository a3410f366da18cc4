//! A vhost-user-blk device: a volume of iopath as a disk of a virtual machine, for QEMU, cloud-hypervisor and crosvm.
//! Also usable without the program `iopath`, by a monitor of virtual machines that links it.
//!
//! ```text
//!  guest           driver ──▶ queues in shared memory ◀──────────────┐
//!                                 │ kick                  completion │
//!  VMM  ◀── vhost-user ──▶ server.rs, control.rs                     │
//!           (crate vhost)     │ start, stop                          │
//!                             ▼                                      │
//!                          worker.rs, a thread for each queue ───────┘
//!                             │ chain.rs, request.rs
//!                             ▼
//!                          io.rs: a batch on the volume; the device transfers the guest's memory
//! ```
//!
//! # Why not `vhost-user-backend`
//! That crate has an event loop of its own, which calls the device for a kick. It has no place for the descriptor of a
//! batch beside the queues, joins its threads without a limit of time, reads each kick, and locks each queue for each
//! request. Here the loop of a queue waits for kicks and completions together, a thread owns its queue without a lock,
//! and every thread ends by an event. The crate `vhost` decodes the messages; this crate executes them.
//!
//! # Hostile guests
//! Everything in the memory of the guest is copied before it is checked, and checked before it is used. A mistake stops
//! the device ([`Fault`]) with one message. The work for each request has a bound.

mod bounce;
mod chain;
mod config;
mod control;
mod fault;
mod front_end;
mod inflight;
mod io;
mod memory;
mod request;
mod ring;
mod running;
mod server;
mod slot;
mod state;
mod worker;

pub use chain::{CHAIN_MAX, Part, read_chain};
pub use fault::Fault;
pub use inflight::{Inflight, InflightRegions};
pub use memory::{Area, GuestMemory, Region};
pub use request::{ClearRange, Command, Header, Status, parse, ranges};
pub use ring::{Descriptor, QUEUE_SIZE_MAX, Ring, RingPlaces};
pub use server::{QUEUES_MAX, VhostOptions, VhostServer, VhostTotals};

/// The examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
