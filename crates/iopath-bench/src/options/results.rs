//! Options of the measurement: repetitions, latencies and the request log.

use super::Form::{Flag, One};
use super::{Difference, Fact, Given, Kind, OptionRow, Refused, Settings, command_line};
use crate::field::Field;
use crate::place::Place;
use crate::workload::{LatencySampling, LogSettings, Repetitions};

pub(super) const ROWS: &[OptionRow] = &[
    OptionRow::option(
        "--repeat",
        One("N"),
        "Number of repetitions; default: 3, and 1 of a job file",
        |settings, given| {
            settings.workload.repetitions = Repetitions::new(given.positive()?)?;
            Ok(())
        },
    )
    .field(Field::REPETITIONS)
    .states(
        "repetitions",
        Kind::Whole,
        Difference::Ignored,
        "The number of repetitions that were to be measured.",
        |ran| Some(ran.workload.repetitions.get().into()),
    )
    .always()
    .of_job_file(),
    OptionRow::option(
        "--latency-every",
        One("N"),
        "Measure the latency of one transfer in N only. Use it for cached data on synchronous paths, where a transfer takes \
         less time than reading the clock (compare fio's `gtod_reduce`)",
        |settings, given| {
            settings.workload.latency_sampling = LatencySampling::new(given.positive()?)?;
            Ok(())
        },
    )
    .default("1")
    .field(Field::LATENCY_SAMPLING)
    .fact(Fact::of_run("latency_every", Kind::Whole, Difference::Shown))
    .only_on(
        &[Place::Synchronous, Place::Storage("virtual time measures every latency at no cost")],
        |workload| {
            let every = workload.latency_sampling;
            (every > LatencySampling::ALL).then(|| every.to_string())
        },
    ),
    OptionRow::option(
        "--log",
        One("FILE"),
        "Write the request log of iopath's own paths to a file, for `iopath log`",
        log,
    )
    .field(Field::LOG)
    // The log of accesses alone needs no queue.
    .only_on(&[Place::Queue, Place::OneWorkload], |workload| {
        let log = workload.log.as_ref().filter(|log| !log.accesses)?;
        Some(log.file.display().to_string())
    })
    .of_job_file()
    .file(),
    OptionRow::option("--log-limit", One("SIZE"), "Maximum size of the request log", |settings, given| {
        let bytes = given.typed(command_line::size)?;
        if let Some(log) = &mut settings.workload.log {
            log.limit_bytes = Some(bytes);
        }
        Ok(())
    })
    .requires("log")
    .of_job_file(),
    OptionRow::option(
        "--log-accesses",
        Flag,
        "Also log the accesses of the jobs, above the path and its page cache, for whatif with another readahead or cache. \
         Also on kernel paths, whose log has no requests",
        |settings, _| {
            if let Some(log) = &mut settings.workload.log {
                log.accesses = true;
            }
            Ok(())
        },
    )
    .requires("log")
    .field(Field("log of accesses"))
    .only_on(&[Place::EveryLatency, Place::OneWorkload], |workload| {
        workload.logs_accesses().then(String::new)
    })
    .of_job_file(),
];

/// A log is written to a file only: stdout is for results.
fn log(settings: &mut Settings, given: &Given) -> Result<(), Refused> {
    let file = given.file()?;
    if file.as_os_str() == "-" {
        return Err(Refused::Malformed("the log is not written to stdout; name a file".to_owned()));
    }
    settings.workload.log = Some(LogSettings { file, limit_bytes: None, accesses: false });
    Ok(())
}
