//! Tests of traces: each row of the tables of formats and outputs, hostile files, and the programs of others.

#[path = "all/formats.rs"]
mod formats;
#[path = "all/hostile.rs"]
mod hostile;
#[path = "all/outputs.rs"]
mod outputs;
#[path = "all/peers.rs"]
mod peers;
#[path = "all/samples.rs"]
mod samples;
