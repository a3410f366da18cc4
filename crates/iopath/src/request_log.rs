//! The request log of a server: a sink for each queue. Does not write the log: `iopath-log` has a sink that does.

use std::fmt;
use std::sync::Arc;

use iopath_core::LogSink;

/// Creates a sink for each queue of a server, for [`Batch::start_log`](crate::Batch::start_log). The server says what a
/// stream of the log is.
#[derive(Clone)]
pub struct RequestLog(Arc<dyn Fn() -> Box<dyn LogSink> + Send + Sync>);

impl RequestLog {
    /// A log whose sinks `new_sink` creates.
    pub fn new(new_sink: impl Fn() -> Box<dyn LogSink> + Send + Sync + 'static) -> Self {
        Self(Arc::new(new_sink))
    }

    /// A sink for another queue.
    #[must_use]
    pub fn sink(&self) -> Box<dyn LogSink> {
        (self.0)()
    }
}

impl fmt::Debug for RequestLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RequestLog")
    }
}
