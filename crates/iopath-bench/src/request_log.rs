//! The request log of a run: creates the file, and reports records that it lacks. `iopath-log` writes it.

use std::sync::Arc;
use std::time::SystemTime;

use iopath_log::{LogInfo, LogOptions, LogWriter, SyncLogWriter, Totals};

use crate::cache::readahead_text;
use crate::error::BenchError;
use crate::signals::Interruption;
use crate::workload::{DeviceDepth, LogSettings, Workload};

/// The compression of a log in virtual time. The run itself compresses, at millions of records a second: this level
/// takes about half of the CPU time of level 1, for a file half as large again.
const VIRTUAL_LOG_LEVEL: i32 = -5;

/// The request log of a run. A signal ends the process after the log is complete.
pub struct RequestLog {
    pub(crate) writer: Writer,
    _interruption: Interruption,
}

/// The writer of a log.
pub(crate) enum Writer {
    Real(Arc<LogWriter>),
    /// In virtual time.
    Virtual(SyncLogWriter),
}

impl RequestLog {
    /// Creates the log of a workload; none if the workload has none. `targets` are the names in its head. Nothing in a
    /// log in virtual time is of this machine or of this moment.
    pub fn start(
        workload: &Workload,
        targets: &[String],
        is_virtual: bool,
    ) -> Result<Option<Self>, BenchError> {
        let Some(LogSettings { file, limit_bytes, .. }) = &workload.log else { return Ok(None) };
        let defaults = LogOptions::default();
        let options = LogOptions { limit_bytes: limit_bytes.unwrap_or(defaults.limit_bytes), ..defaults };
        let target = if targets.is_empty() { "null".to_owned() } else { targets.join(", ") };
        let info = LogInfo { target, ..settings(workload) };
        let writer = if is_virtual {
            let info = LogInfo { clock: "virtual".to_owned(), ..info };
            let options = LogOptions { level: VIRTUAL_LOG_LEVEL, ..options };
            Writer::Virtual(SyncLogWriter::create(file, &info, &options)?)
        } else {
            let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let start_ns = iopath_os::now().as_nanos();
            let info = LogInfo { start_ns, started_unix_ns: since_1970.as_nanos() as u64, ..info };
            Writer::Real(Arc::new(LogWriter::create(file, &info, &options)?))
        };
        Ok(Some(Self { writer, _interruption: Interruption::catch() }))
    }

    /// The writer of a log in real time; none in virtual time.
    pub fn in_real_time(&self) -> Option<&Arc<LogWriter>> {
        match &self.writer {
            Writer::Real(log) => Some(log),
            Writer::Virtual(_) => None,
        }
    }

    /// Completes the log. Returns a warning about records that it lacks. All paths are closed.
    pub fn finish(self) -> Result<Option<String>, BenchError> {
        match self.writer {
            Writer::Real(log) => {
                Ok(missed(&Arc::into_inner(log).map_or(Ok(Totals::default()), LogWriter::finish)?))
            }
            Writer::Virtual(log) => Ok(over_limit(&log.finish()?)),
        }
    }
}

/// The part of the header that the workload determines. A kernel path has no elevator of iopath.
fn settings(workload: &Workload) -> LogInfo {
    let capabilities = workload.path.capabilities;
    let elevator = || workload.elevator.as_ref().map_or_else(|| "none".to_owned(), ToString::to_string);
    let cache = capabilities.cache.then_some(&workload.cache);
    LogInfo {
        elevator: if capabilities.queue { elevator() } else { String::new() },
        device_depth: workload.device_depth.map(DeviceDepth::get),
        has_accesses: workload.logs_accesses(),
        readahead: cache.and_then(|cache| cache.readahead).map(readahead_text),
        cache_bytes: cache.and_then(|cache| cache.cache_bytes),
        ..LogInfo::default()
    }
}

/// A warning about records of a log in virtual time that its size limit excludes.
fn over_limit(totals: &Totals) -> Option<String> {
    let Totals { records, over_limit, .. } = *totals;
    (over_limit > 0).then(|| {
        format!("the log ends after {records} records at its size limit: {over_limit} more were dropped")
    })
}

/// A warning about missing records of the log.
fn missed(totals: &Totals) -> Option<String> {
    let Totals { records, missed, .. } = *totals;
    (missed > 0).then(|| {
        format!(
            "the log lacks {missed} of {} records: the disk or CPU was too slow for them; log to a faster disk",
            records + missed
        )
    })
}
