//! Fuzzes the readers of traces, the joiner of events, and the outputs.

#![no_main]

use iopath_fuzz::drive_trace;

libfuzzer_sys::fuzz_target!(|data: &[u8]| drive_trace(data));
