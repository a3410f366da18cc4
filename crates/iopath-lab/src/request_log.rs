//! The request log of a run: creates the file, and reports records that it lacks. `iopath-log` writes it.

use std::sync::Arc;
use std::time::SystemTime;

use iopath_log::{LogInfo, LogOptions, LogWriter, SyncLogWriter, Totals};

use crate::cache::readahead_text;
use crate::error::LabError;
use crate::workload::{DeviceDepth, LogSettings, Workload};

/// The compression of a log in virtual time. The run itself compresses, at millions of records a second: this level
/// takes about half of the CPU time of level 1, for a file half as large again.
const VIRTUAL_LOG_LEVEL: i32 = -5;

/// Creates the request log of the workload. `targets` are the names in its head.
pub(crate) fn start_log(workload: &Workload, targets: &[String]) -> Result<Option<Arc<LogWriter>>, LabError> {
    let Some(LogSettings { file, limit_bytes, .. }) = &workload.log else { return Ok(None) };
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let info = LogInfo {
        target: if targets.is_empty() { "null".to_owned() } else { targets.join(", ") },
        start_ns: iopath_os::now().as_nanos(),
        started_unix_ns: since_1970.as_nanos() as u64,
        ..settings(workload)
    };
    let defaults = LogOptions::default();
    let limit_bytes = limit_bytes.unwrap_or(defaults.limit_bytes);
    Ok(Some(Arc::new(LogWriter::create(file, &info, &LogOptions { limit_bytes, ..defaults })?)))
}

/// Creates the request log of a workload on a model. Nothing in it is of this machine or of this moment.
pub(crate) fn start_virtual_log(
    workload: &Workload,
    models: &[String],
) -> Result<Option<SyncLogWriter>, LabError> {
    let Some(LogSettings { file, limit_bytes, .. }) = &workload.log else { return Ok(None) };
    let info = LogInfo { target: models.join(", "), clock: "virtual".to_owned(), ..settings(workload) };
    let defaults = LogOptions::default();
    let limit_bytes = limit_bytes.unwrap_or(defaults.limit_bytes);
    let options = LogOptions { limit_bytes, level: VIRTUAL_LOG_LEVEL, ..defaults };
    Ok(Some(SyncLogWriter::create(file, &info, &options)?))
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
pub(crate) fn over_limit(totals: &Totals) -> Option<String> {
    let Totals { records, over_limit, .. } = *totals;
    (over_limit > 0).then(|| {
        format!("the log ends after {records} records at its size limit: {over_limit} more were dropped")
    })
}

/// A warning about missing records of the log.
pub(crate) fn missed(totals: &Totals) -> Option<String> {
    let Totals { records, missed, .. } = *totals;
    (missed > 0).then(|| {
        format!(
            "the log lacks {missed} of {} records: the disk or CPU was too slow for them; log to a faster disk",
            records + missed
        )
    })
}
