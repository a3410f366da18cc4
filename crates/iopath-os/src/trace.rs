//! Tracepoints of the kernel: their formats (`trace/tracefs.rs`) and the rings in which the kernel delivers their
//! events (`trace/rings.rs`, `trace/ring.rs`). The meaning of an event is the caller's matter. `trace/accesses.rs`
//! records system calls that access files.

mod accesses;
mod bpf;
mod btf;
mod error;
mod ring;
mod rings;
mod tracefs;

pub use accesses::{AccessCall, AccessProgram, AccessRecord, Recorded};
pub use error::TraceError;
pub use ring::TraceRecord;
pub use rings::{EventLoss, RingsConfig, TraceRings, Traced};
pub use tracefs::{Field, Format, Tracefs, Tracepoint};
