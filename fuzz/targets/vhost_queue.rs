//! Fuzzes the queue of a disk of a virtual machine: rings, chains, requests, and the record of requests in flight.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| iopath_fuzz::drive_vhost_queue(data));
