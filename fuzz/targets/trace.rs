//! Fuzzes the readers of traces, the joiner of events, and the outputs.

#![no_main]

use std::sync::LazyLock;

use iopath_fuzz::{drive_trace, is_format};
use libfuzzer_sys::Corpus;

/// Other formats are rejected; none: all formats are tested.
static FORMAT: LazyLock<Option<String>> = LazyLock::new(|| std::env::var("IOPATH_FUZZ_FORMAT").ok());

libfuzzer_sys::fuzz_target!(|data: &[u8]| -> Corpus {
    if FORMAT.as_deref().is_some_and(|format| !is_format(data, format)) {
        return Corpus::Reject;
    }
    drive_trace(data);
    Corpus::Keep
});
