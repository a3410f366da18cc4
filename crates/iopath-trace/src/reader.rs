//! The interface of all readers of traces.

use iopath_log::LogError;

use crate::event::TraceEvent;

/// Reads the events of a trace. Its memory does not grow with the trace.
pub(crate) trait TraceReader: Send {
    /// Adds the next events to `out`, possibly none. Returns `false` at the end.
    ///
    /// # Errors
    /// If the file cannot be read, or has a part that is wrong.
    fn read(&mut self, out: &mut Vec<TraceEvent>) -> Result<bool, LogError>;

    /// What was counted so far and limits the conclusions, in words.
    fn notes(&self) -> Vec<String>;

    /// The name of a device that has occurred, if the trace has it.
    fn device_name(&self, device: u32) -> Option<String>;

    /// The name of the command of a process that has occurred, if the trace has it and its events have not.
    fn process_name(&self, process: u32) -> Option<String>;
}
