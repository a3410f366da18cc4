//! The request log of a server: a file of `iopath log`, in which each connection is a stream, or each queue of a disk.

use std::sync::Arc;
use std::time::SystemTime;

use iopath::log::RequestLog;
use iopath_log::{LogError, LogInfo, LogOptions, LogWriter, Totals};

use super::ServeRequest;
use iopath_bench::workload::LogSettings;

/// Creates the file. The queues of the server add their records to it.
pub(super) fn create(settings: &LogSettings, request: &ServeRequest) -> Result<Arc<LogWriter>, LogError> {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let targets: Vec<_> = request.targets.iter().map(|target| target.to_string_lossy()).collect();
    let info = LogInfo {
        elevator: request.volume.elevator.as_ref().map_or_else(|| "none".to_owned(), ToString::to_string),
        target: targets.join(", "),
        start_ns: iopath_os::now().as_nanos(),
        started_unix_ns: since_1970.as_nanos() as u64,
        ..LogInfo::default()
    };
    let defaults = LogOptions::default();
    let limit_bytes = settings.limit_bytes.unwrap_or(defaults.limit_bytes);
    Ok(Arc::new(LogWriter::create(&settings.file, &info, &LogOptions { limit_bytes, ..defaults })?))
}

/// The sinks of the queues.
pub(super) fn sinks(log: &Arc<LogWriter>) -> RequestLog {
    let log = Arc::clone(log);
    RequestLog::new(move || Box::new(log.add_queue()))
}

/// Ends the log after the server has ended.
pub(super) fn finish(log: Option<Arc<LogWriter>>) -> Result<Option<Totals>, LogError> {
    log.and_then(Arc::into_inner).map(LogWriter::finish).transpose()
}
