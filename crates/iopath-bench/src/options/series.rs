//! Options of series over time, in the format of fio's logs. Only job files have them.

use super::Support::Yes;
use super::{OptionRow, set};

pub(super) const ROWS: &[OptionRow] = &[
    OptionRow::only_key(
        Yes,
        &["write_bw_log"],
        "throughput over time, as fio's file `NAME_bw.NUMBER.log`; see *Series over time*",
        |settings, given| {
            settings.controls.throughput_log = Some(given.log_name());
            Ok(())
        },
    ),
    OptionRow::only_key(
        Yes,
        &["write_lat_log"],
        "latencies over time: `NAME_lat.NUMBER.log`, and from the submission `NAME_clat.NUMBER.log`",
        |settings, given| {
            settings.controls.latency_log = Some(given.log_name());
            Ok(())
        },
    ),
    OptionRow::only_key(
        Yes,
        &["write_iops_log"],
        "transfers a second over time: `NAME_iops.NUMBER.log`",
        |settings, given| {
            settings.controls.iops_log = Some(given.log_name());
            Ok(())
        },
    ),
    OptionRow::only_key(
        Yes,
        &["log_avg_msec"],
        "the time that a line of these files covers, in milliseconds; default: a line for each transfer",
        set!(controls.log_average = millis),
    ),
    OptionRow::only_key(
        Yes,
        &["per_job_logs"],
        "0: the names of the files lack the number, so the series of several clones go to one file",
        |settings, given| {
            settings.controls.joins_logs = !given.flag()?;
            Ok(())
        },
    ),
    OptionRow::only_key(
        Yes,
        &["log_offset"],
        "1 adds the offset to each line",
        set!(controls.log_offset = flag),
    ),
    OptionRow::only_key(
        Yes,
        &["log_prio"],
        "1 writes the number of the thread's priority",
        set!(controls.log_priority = flag),
    ),
];
