//! Options of time: the end of a repetition, pauses, rates, flushes and the steady state.

use std::num::NonZeroU64;

use super::Form::{One, Optional};
use super::Support::{Partly, Yes};
use super::{
    Decides, Difference, Fact, Given, Kind, NONE, OptionRow, Refused, Settings, SteadyKey, command_line, set,
};
use crate::field::Field;
use crate::place::Place;
use crate::steady::{SteadyMetric, SteadyState};
use crate::workload::{LatencyFrom, Rate, RateProcess, SyncWrites, ThinkCount};

pub(super) const ROWS: &[OptionRow] = &[
    OptionRow::option(
        "--runtime",
        One("TIME"),
        "Time of each repetition (5s, 500ms, 1m; a plain number is seconds); default: until SIZE is transferred",
        set!(runtime = time_limit),
    )
    .field(Field::END)
    .states(
        "runtime_seconds",
        Kind::Seconds,
        Difference::Shown,
        "The time limit of a repetition, in seconds; none without one.",
        |ran| ran.workload.end.time().map(|time| time.as_secs_f64().into()),
    )
    .or_null()
    .of_job_file()
    .key(Yes, &["runtime", "timeout"], "`--runtime`"),
    OptionRow::only_key(
        Yes,
        &["time_based"],
        "repeats the range until the end of `runtime`",
        set!(time_based = flag),
    ).switch(),
    OptionRow::only_key(Yes, &["ramp_time"], "runs before the measurement", set!(ramp = seconds)),
    OptionRow::only_key(
        Yes,
        &["startdelay"],
        "a time, or a range from which each clone draws its own: `0-5`",
        |settings, given| {
            const EXPECTED: Refused = Refused::Expected("seconds, a number with m, s or ms, or a range: 3, 500ms, 0-5");
            let text = given.text()?;
            let (least, most) = text.split_once(['-', ':']).unwrap_or((text, text));
            let [least, most] = [least, most].map(|text| Given::seconds_of(text).ok_or(EXPECTED));
            settings.start_delay = [least?, most?];
            settings.start_delay.sort_unstable();
            Ok(())
        },
    )
    .neutral(&["0"]),
    OptionRow::option(
        "--thinktime",
        One("TIME"),
        "Pause between the completion of a transfer and the start of the next transfer in its place; default: none",
        set!(workload.think = micros),
    )
    .field(Field::THINK)
    .fact(Fact::of_run("think_ns", Kind::Nanoseconds, Difference::RefusedOr(NONE)))
    .key(Partly, &["thinktime"], "`--thinktime`; as in fio, a job waits for its transfers in flight before it pauses"),
    OptionRow::only_key(
        Yes,
        &["thinktime_blocks"],
        "the transfers before each pause; default: 1",
        |settings, given| {
            settings.workload.think_every = given.every()?.unwrap_or(NonZeroU64::MIN);
            Ok(())
        },
    ).neutral(&["0"])
    .states(
        "think_every",
        Kind::Whole,
        Difference::RefusedOr(NONE),
        "The transfers of a job before each pause; none for 1, and without pauses.",
        |ran| {
            let every = ran.workload.think_every.get();
            (every > 1 && !ran.workload.think.is_zero()).then(|| every.into())
        },
    ),
    OptionRow::only_key(
        Yes,
        &["thinktime_blocks_type"],
        "the transfers that count for a pause: `complete`, or `issue`; as in fio, the completions that a job waits for before a \
         pause count for the next one",
        |settings, given| {
            settings.think_count = match given.text()? {
                "complete" => ThinkCount::Completed,
                "issue" => ThinkCount::Started,
                _ => return Err(Refused::Expected("complete or issue")),
            };
            Ok(())
        },
    ),
    OptionRow::option(
        "--rate-iops",
        One("N"),
        "Transfers that each job starts per second, at fixed times. The latency of a transfer counts from its fixed start \
         time, so a late start increases it (no coordinated omission)",
        |settings, given| {
            if given.is_in_job_file() {
                settings.rate_ios = given.limits()?;
            } else {
                settings.workload.rate = Some(Rate::Ios(given.typed(command_line::rate_iops)?));
            }
            Ok(())
        },
    )
    .conflicts(&["rate"])
    .field(Field::RATE_IOPS)
    .fact(Fact::of_run("rate_iops", Kind::Number, Difference::RefusedOr(NONE)))
    .key(Partly, &["rate_iops"], "`--rate-iops`, as `rate`").neutral(&["0"]),
    OptionRow::option(
        "--rate",
        One("SIZE"),
        "Bytes that each job transfers per second. The transfers start at fixed times, as with --rate-iops",
        |settings, given| {
            if given.is_in_job_file() {
                settings.rate_bytes = given.limits()?;
            } else {
                settings.workload.rate = Some(Rate::Bytes(given.typed(command_line::rate)?));
            }
            Ok(())
        },
    )
    .field(Field::RATE)
    .key(
        Partly,
        &["rate"],
        "`--rate`; a mixed pattern has a rate for reads and one for writes, or for one of them: `rate=,10m`",
    ).neutral(&["0"]),
    OptionRow::option(
        "--rate-process",
        One("linear|poisson"),
        "The distances between the starts of transfers with a rate: equal, or random as of independent clients (poisson)",
        |settings, given| {
            settings.workload.rate_process = match given.text()? {
                "linear" => RateProcess::Linear,
                "poisson" => RateProcess::Poisson,
                _ => return Err(Refused::Expected("linear or poisson")),
            };
            Ok(())
        },
    )
    .default("linear")
    .states(
        "rate_process",
        Kind::Text,
        Difference::RefusedOr("linear"),
        "The distances between the starts of transfers with a rate, `linear` or `poisson`; none without a rate.",
        |ran| ran.workload.rate.map(|_| ran.workload.rate_process.name().into()),
    )
    .key(Yes, &["rate_process"], "`--rate-process`: `linear` or `poisson`"),
    OptionRow::only_key(
        Yes,
        &["latency_from"],
        "not a key of fio: `submission`, as fio measures, or `due`, the time at which the rate intends a transfer",
        |settings, given| {
            settings.workload.latency_from = match given.text()? {
                "submission" => LatencyFrom::Submission,
                "due" => LatencyFrom::Due,
                _ => return Err(Refused::Expected("submission or due")),
            };
            Ok(())
        },
    )
    .states(
        "latency_from",
        Kind::Text,
        Difference::RefusedOr("due"),
        "The start of the latencies of a run with a rate: `due` or `submission`; none without a rate.",
        |ran| ran.workload.rate.map(|_| ran.workload.latency_from.name().into()),
    ),
    OptionRow::option(
        "--fsync",
        One("N"),
        "Flush after each N writes of a job, with the metadata of the file (fsync), with the latencies of flushes apart. A \
         writing job always flushes at its end",
        set!(fsync_every = every),
    )
    .field(Field("number of writes between flushes"))
    .only_on(&[Place::EveryLatency], |workload| workload.flush_every.map(|every| every.to_string()))
    .states(
        "flush_every",
        Kind::Whole,
        Difference::RefusedOr(NONE),
        "The writes of a job after which it flushes; none without flushes between transfers.",
        |ran| ran.workload.flush_every.map(|every| every.get().into()),
    )
    .key(Yes, &["fsync"], "`--fsync`: a flush after each number of writes, with its own latency").decides(Decides::Durability),
    OptionRow::option(
        "--fdatasync",
        One("N"),
        "As --fsync, without metadata that the data does not need (fdatasync)",
        set!(fdatasync_every = every),
    )
    .conflicts(&["fsync"])
    .states(
        "flush_call",
        Kind::Text,
        Difference::RefusedOr("fdatasync"),
        "The call of the flushes between transfers, `fsync`, or both: `fsync, fdatasync after 4 writes`; none for `fdatasync`, \
         and without flushes.",
        |ran| {
            let call = ran.workload.flush_data_every.map_or_else(
                || "fsync".to_owned(),
                |every| format!("fsync, fdatasync after {every} writes"),
            );
            (ran.workload.flush_all && ran.workload.flush_every.is_some()).then(|| call.into())
        },
    )
    .key(Yes, &["fdatasync"], "`--fdatasync`; with `fsync`, where that does not flush").decides(Decides::Durability),
    OptionRow::only_key(
        Yes,
        &["end_fsync"],
        "1: the time of a writing job includes a flush at its end; 0: the flush follows the measurement",
        set!(end_fsync = flag),
    )
    .states(
        "final_flush",
        Kind::Text,
        Difference::RefusedOr(NONE),
        "`untimed` if the flush at the end of a writing job is no part of its time; none if it is.",
        |ran| (ran.workload.rw.writes() && !ran.workload.times_final_flush).then(|| "untimed".into()),
    ),
    OptionRow::only_key(Yes, &["fsync_on_close"], "as `end_fsync`", set!(fsync_on_close = flag)),
    OptionRow::option(
        "--sync",
        One("none|dsync|sync"),
        "When a write completes: dsync waits until its bytes are on the medium (O_DSYNC, or forced unit access on paths of \
         iopath), sync also for the metadata of the file (O_SYNC)",
        |settings, given| {
            settings.workload.sync = match given.text()? {
                "none" | "0" => SyncWrites::None,
                "sync" | "1" => SyncWrites::All,
                "dsync" => SyncWrites::Data,
                _ => return Err(Refused::Expected("none, dsync or sync")),
            };
            Ok(())
        },
    )
    .default("none")
    .field(Field("durability of each write"))
    .only_on(&[Place::DurableWrites], |workload| {
        let is_used = workload.sync != SyncWrites::None && workload.rw.writes();
        is_used.then(|| workload.sync.name().to_owned())
    })
    .states(
        "sync",
        Kind::Text,
        Difference::RefusedOr(NONE),
        "When a write completes, `dsync` or `sync`; none if a cache may have it.",
        |ran| {
            let sync = ran.workload.sync;
            (sync != SyncWrites::None && ran.workload.rw.writes()).then(|| sync.name().into())
        },
    )
    .key(Yes, &["sync"], "`--sync`: `none`, `dsync` or `sync`; 1 is `sync`")
    .decides(Decides::Durability),
    OptionRow::option(
        "--steady-state",
        Optional("iops|bw|lat[:DEVIATION[:SLOPE]]", "iops"),
        "End each repetition when it is steady, at --runtime at the latest: in one window, no sample deviates from the mean \
         by more than DEVIATION, and the straight line through the samples changes by at most SLOPE, for reads and writes \
         apart; default: iops:10%:10%",
        steady_state,
    )
    .requires("runtime")
    .field(Field::STEADY_STATE)
    .fact(Fact::of_run("steady_state.metric", Kind::Text, Difference::Shown))
    .key(
        Yes,
        &["steadystate", "ss"],
        "`iops`, `bw` or `lat`, or one of them with `_slope`, a colon, and a limit; see *Steady state*",
    ),
    OptionRow::option(
        "--steady-window",
        One("TIME"),
        "The window of --steady-state, of ten samples; default: 10s",
        set!(steady_window = Some(seconds)),
    )
    .requires("steady-state")
    .key(Yes, &["steadystate_duration", "ss_dur"], "`--steady-window`; 0 is off"),
    OptionRow::only_key(
        Yes,
        &["steadystate_ramp_time", "ss_ramp"],
        "the time between the start of the measurement and the first sample",
        set!(steady_ramp = seconds),
    ),
    OptionRow::only_key(
        Yes,
        &["steadystate_check_interval", "ss_interval"],
        "the time between samples; default: 1 s",
        set!(steady_interval = seconds),
    ),
];

fn steady_state(settings: &mut Settings, given: &Given) -> Result<(), Refused> {
    const EXPECTED: Refused = Refused::Expected(
        "iops, bw or lat, or one of them with _slope, a colon, and a limit: iops:10%, bw_slope:0.1%",
    );
    let text = given.text()?;
    if !given.is_in_job_file() {
        let parsed = text.parse::<SteadyState>();
        settings.workload.steady_state = Some(parsed.map_err(|error| Refused::Malformed(error.to_string()))?);
        return Ok(());
    }
    let (criterion, limit) = text.split_once(':').ok_or(EXPECTED)?;
    let (metric, is_slope) = match criterion {
        "iops" => (SteadyMetric::Iops, false),
        "iops_slope" => (SteadyMetric::Iops, true),
        "bw" => (SteadyMetric::Throughput, false),
        "bw_slope" => (SteadyMetric::Throughput, true),
        "lat" => (SteadyMetric::Latency, false),
        "lat_slope" => (SteadyMetric::Latency, true),
        _ => return Err(EXPECTED),
    };
    settings.steady = Some(SteadyKey { metric, is_slope, limit: limit.parse().map_err(|_| EXPECTED)? });
    Ok(())
}
