//! Options of series over time, in the format of fio's logs. Only job files have them.

use super::Support::Yes;
use super::{OptionRow, Refused, set};

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
        &["write_hist_log"],
        "histograms of the latencies from the submission over time, in the classes of fio: `NAME_clat_hist.NUMBER.log`",
        |settings, given| {
            settings.controls.histogram_log = Some(given.log_name());
            Ok(())
        },
    ),
    OptionRow::only_key(
        Yes,
        &["log_hist_msec"],
        "the time that a histogram covers, in milliseconds; 0, the default, writes none",
        set!(controls.histogram_interval = millis),
    ),
    OptionRow::only_key(
        Yes,
        &["log_hist_coarseness"],
        "0 to 6: a class of a histogram has two to this power classes of fio",
        |settings, given| {
            let coarseness = u32::try_from(given.bytes()?).ok().filter(|coarseness| *coarseness <= 6);
            settings.controls.histogram_coarseness =
                coarseness.ok_or(Refused::Expected("a whole number from 0 to 6"))?;
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
