//! The request log of a server: a sink for each queue. It does not write the log.

use std::fmt;
use std::sync::Arc;

use iopath::LogSink;

/// Creates a sink for each queue of a server. A stream of the log is a connection, numbered from 1.
#[derive(Clone)]
pub struct RequestLog(Arc<dyn Fn() -> Box<dyn LogSink> + Send + Sync>);

impl RequestLog {
    /// A log whose sinks `new_sink` creates.
    pub fn new(new_sink: impl Fn() -> Box<dyn LogSink> + Send + Sync + 'static) -> Self {
        Self(Arc::new(new_sink))
    }

    pub(super) fn sink(&self) -> Box<dyn LogSink> {
        (self.0)()
    }
}

impl fmt::Debug for RequestLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RequestLog")
    }
}
