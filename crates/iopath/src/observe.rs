//! Events for the crate `tracing`. Without this feature, nothing. No I/O is on a path through this file. Values for the
//! crate `metrics`: `metric_values.rs`.

use crate::facts::Facts;
use iopath_os::WriteBackError;
use std::path::Path;
#[cfg(feature = "tracing")]
use std::path::PathBuf;

/// Whether events have a receiver.
pub(crate) const IS_ON: bool = cfg!(feature = "tracing");

/// An open volume. Its drop is the close.
#[derive(Debug)]
pub(crate) struct OpenEvent {
    #[cfg(feature = "tracing")]
    path: PathBuf,
}

impl OpenEvent {
    /// A volume is open. Its page cache may open an engine later.
    pub(crate) fn new(facts: &Facts) -> Self {
        engine_opened(facts);
        #[cfg(feature = "tracing")]
        {
            let Facts { path, size_bytes, block_bytes, engine, .. } = facts;
            tracing::debug!(path = %path.display(), size_bytes, block_bytes, engine, "volume opened");
            Self { path: path.clone() }
        }
        #[cfg(not(feature = "tracing"))]
        Self {}
    }
}

#[cfg(feature = "tracing")]
impl Drop for OpenEvent {
    fn drop(&mut self) {
        tracing::debug!(path = %self.path.display(), "volume closed");
    }
}

/// An engine is open: a fallback costs speed, which a program cannot see otherwise.
#[cfg_attr(not(feature = "tracing"), expect(unused_variables, reason = "nothing is reported"))]
pub(crate) fn engine_opened(facts: &Facts) {
    #[cfg(feature = "tracing")]
    if let Some(fallback) = &facts.fallback {
        tracing::warn!(path = %facts.path.display(), engine = facts.engine, %fallback, "engine fell back");
    }
}

/// The program has acknowledged lost writes.
#[cfg_attr(not(feature = "tracing"), expect(unused_variables, reason = "nothing is reported"))]
pub(crate) fn loss_accepted(facts: &Facts) {
    #[cfg(feature = "tracing")]
    tracing::warn!(path = %facts.path.display(), "lost writes accepted");
}

/// The page cache could not write bytes back.
#[cfg_attr(not(feature = "tracing"), expect(unused_variables, reason = "nothing is reported"))]
pub(crate) fn write_back_failed(path: &Path, failed: &WriteBackError) {
    #[cfg(feature = "tracing")]
    {
        let WriteBackError { range, op, error, .. } = failed;
        let (offset, bytes) = (range.start, range.end - range.start);
        tracing::error!(path = %path.display(), %op, offset, bytes, %error, "write-back failed");
    }
}
