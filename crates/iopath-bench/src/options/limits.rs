//! Options that limit a job or its share: least rates, latencies to keep, and weights.

use std::num::NonZeroU64;

use serde_json::Value;

use super::Form::One;
use super::Support::{Partly, Yes};
use super::{Difference, Kind, NONE, OptionRow, Refused, set};
use crate::field::Field;
use crate::place::Place;

/// The largest weight of a job with a `flow`, as in fio.
const WEIGHT_MAX: u64 = 1000;

pub(super) const ROWS: &[OptionRow] = &[
    OptionRow::option(
        "--max-latency",
        One("TIME"),
        "End a job with its first transfer that takes longer than this, with a warning; default: none",
        |settings, given| {
            let limit = Some(given.micros()?).filter(|limit| !limit.is_zero());
            settings.workload.controls.latency_max = limit;
            Ok(())
        },
    )
    .field(Field("maximum latency"))
    .only_on(&[Place::EveryLatency], |workload| workload.controls.latency_max.map(|_| String::new()))
    .states(
        "max_latency_ns",
        Kind::Nanoseconds,
        Difference::RefusedOr(NONE),
        "The latency that ends a job; none without a limit.",
        |ran| {
            ran.workload
                .controls
                .latency_max
                .and_then(|max| u64::try_from(max.as_nanos()).ok())
                .map(Value::from)
        },
    )
    .key(
        Partly,
        &["max_latency"],
        "`--max-latency`: one time for all directions; the job ends with a warning",
    ),
    OptionRow::only_key(
        Yes,
        &["rate_min", "ratemin"],
        "the least bytes a second; a job below it ends, with a warning",
        set!(controls.rate_min = limits),
    )
    .neutral(&["0"]),
    OptionRow::only_key(
        Yes,
        &["rate_iops_min"],
        "the least transfers a second; a job below it ends, with a warning",
        set!(controls.rate_iops_min = limits),
    )
    .neutral(&["0"]),
    OptionRow::only_key(
        Yes,
        &["rate_cycle", "ratecycle"],
        "the time between two checks of the least rate, in milliseconds, 1 or more; default: 1000",
        |settings, given| {
            let cycle = Some(given.millis()?).filter(|cycle| !cycle.is_zero());
            let cycle = cycle.ok_or(Refused::Expected("milliseconds, 1 or more: 500"))?;
            settings.controls.rate_cycle = Some(cycle);
            Ok(())
        },
    ),
    OptionRow::only_key(
        Yes,
        &["latency_target"],
        "the job searches for the largest depth whose transfers keep this latency; see *Latency target*",
        set!(controls.latency_target = Some(micros)),
    ),
    OptionRow::only_key(
        Yes,
        &["latency_window"],
        "the time at each depth",
        set!(controls.latency_window = micros),
    ),
    OptionRow::only_key(
        Yes,
        &["latency_percentile"],
        "the transfers in 100 that keep the latency; default: 100",
        |settings, given| {
            const EXPECTED: Refused = Refused::Expected("0 to 100: 99.9");
            let percent: f64 = given.text()?.parse().map_err(|_| EXPECTED)?;
            if !(0.0..=100.0).contains(&percent) {
                return Err(EXPECTED);
            }
            settings.controls.latency_share = Some((percent * 10_000.0).round() as u32);
            Ok(())
        },
    ),
    OptionRow::only_key(
        Yes,
        &["latency_run"],
        "1 continues with the depth of the search",
        set!(controls.latency_run = flag),
    ),
    OptionRow::only_key(
        Yes,
        &["flow"],
        "the weight of the job; jobs with the same `flow_id` share their I/Os by weight",
        |settings, given| {
            let weight = Some(given.bytes()?).filter(|weight| *weight <= WEIGHT_MAX);
            let weight = weight.ok_or(Refused::Expected("a whole number from 0 to 1000"))?;
            settings.controls.flow = NonZeroU64::new(weight);
            Ok(())
        },
    ),
    OptionRow::only_key(
        Yes,
        &["flow_id"],
        "the number of the group of jobs with a `flow`",
        set!(controls.flow_id = bytes),
    ),
    OptionRow::only_key(
        Yes,
        &["flow_sleep"],
        "the time after which a job that is ahead of its share tries again; 50 µs at least",
        set!(controls.flow_sleep = micros),
    ),
];
