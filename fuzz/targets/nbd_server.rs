//! Fuzzes the state machines of the NBD server.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| iopath_fuzz::drive_server(data));
