//! Options of iopath's own paths: page cache, elevator and engine.

use iopath::Engine;
use iopath::elevator::ELEVATORS;
use iopath_core::elevator::ElevatorSpec;
use serde_json::Value;

use super::Form::{Flag, One};
use super::Support::Yes;
use super::{Difference, Fact, Kind, NONE, OptionRow, Refused, command_line, set};
use crate::cache::parse_readahead;
use crate::field::Field;
use crate::place::Place;
use crate::workload::DeviceDepth;

pub(super) const ROWS: &[OptionRow] = &[
    OptionRow::option(
        "--warm",
        Flag,
        "Read SIZE once before the measurement and keep the caches filled; default: each repetition starts with empty caches",
        set!(workload.warm = flag),
    )
    .field(Field::WARM)
    .fact(Fact::of_run("warm", Kind::Flag, Difference::Refused))
    .key(Yes, &["pre_read"], "`--warm`"),
    OptionRow::option(
        "--cache",
        One("SIZE"),
        "Memory of the page cache of iopath-buffered; default: 256m",
        set!(workload.cache.cache_bytes = Some(bytes)),
    )
    .field(Field::CACHE_SIZE)
    .fact(Fact::of_run("cache.cache_bytes", Kind::Bytes, Difference::Shown))
    .only_on(&[Place::Cache], |workload| workload.cache.cache_bytes.map(|_| String::new()))
    .of_job_file(),
    OptionRow::option(
        "--page",
        One("SIZE"),
        "Page size of the page cache of iopath-buffered, 4k to 64k; default: 4k",
        |settings, given| {
            settings.workload.cache.page_bytes = Some(given.typed(command_line::page_bytes)?);
            Ok(())
        },
    )
    .field(Field::PAGE_SIZE)
    .fact(Fact::of_run("cache.page_bytes", Kind::Bytes, Difference::Shown))
    .only_on(&[Place::Cache], |workload| workload.cache.page_bytes.map(|_| String::new()))
    .of_job_file(),
    OptionRow::option(
        "--readahead",
        One("auto|off|SIZE|linux:SIZE"),
        "Readahead of the page cache of iopath-buffered: auto, off, a maximum size, or the windows of the Linux kernel with \
         a maximum size (linux:128k); a size of 0 is off; default: auto",
        |settings, given| {
            settings.workload.cache.readahead = Some(given.typed(parse_readahead)?);
            Ok(())
        },
    )
    .field(Field("readahead"))
    .fact(Fact::of_run("cache.readahead", Kind::Text, Difference::Shown))
    .only_on(&[Place::Cache], |workload| workload.cache.readahead.map(|_| String::new()))
    .of_job_file(),
    OptionRow::option(
        "--borrow",
        Flag,
        "Borrow pages of the page cache of iopath-buffered instead of copying them",
        set!(workload.cache.borrow = flag),
    )
    .field(Field::BORROW)
    .fact(Fact::of_run("cache.borrow", Kind::Flag, Difference::Shown))
    .only_on(&[Place::Cache], |workload| workload.cache.borrow.then(String::new))
    .of_job_file(),
    OptionRow {
        more_help: Some(elevators),
        ..OptionRow::option(
            "--elevator",
            One("NAME[:SETTING=N,...]"),
            "The I/O scheduler (elevator) of iopath's own paths, with settings: deadline:read_expire_ms=100",
            |settings, given| {
                let spec = given.text()?.parse::<ElevatorSpec>();
                settings.workload.elevator =
                    Some(spec.map_err(|error| Refused::Malformed(error.to_string()))?);
                Ok(())
            },
        )
    }
    .field(Field::ELEVATOR)
    .states(
        "elevator",
        Kind::Text,
        Difference::Shown,
        "The I/O scheduler (elevator) of iopath with its settings; none on paths without a queue of iopath.",
        |ran| {
            let elevator = ran.workload.elevator.as_ref();
            let has_queue = ran.workload.path.capabilities.queue;
            has_queue.then(|| elevator.map_or_else(|| NONE.to_owned(), ToString::to_string).into())
        },
    )
    .or_null()
    .only_on(&[Place::Queue], |workload| workload.elevator.as_ref().map(ToString::to_string))
    .of_job_file(),
    OptionRow::option(
        "--device-depth",
        One("N"),
        "Maximum number of requests in flight at the device, for all jobs together. Needs path iopath-buffered, or an \
         elevator other than none to order the waiting requests. Default: the queue depth of the disk, or 32",
        |settings, given| {
            settings.workload.device_depth = Some(DeviceDepth::new(given.positive()?)?);
            Ok(())
        },
    )
    .field(Field::DEVICE_DEPTH)
    .states(
        "device_depth",
        Kind::Whole,
        Difference::Shown,
        "The maximum number of requests in flight at the device; none for the device's own.",
        |ran| ran.workload.device_depth.map(|depth| depth.get().into()),
    )
    .or_null()
    .only_on(&[Place::Queue], |workload| workload.device_depth.map(|depth| depth.to_string()))
    .of_job_file(),
    OptionRow::option("--engine", One("ENGINE"), "The I/O engine of iopath's own paths", |settings, given| {
        let engine = given.text()?.parse::<Engine>();
        settings.workload.engine = Some(engine.map_err(|error| Refused::Malformed(error.to_string()))?);
        Ok(())
    })
    .names(|| Engine::KNOWN.iter().map(|known| (known.0, "")).collect())
    .field(Field("engine"))
    .states(
        "engine",
        Kind::Text,
        Difference::Shown,
        "The I/O engine that transferred the bytes; none on paths without a queue of iopath, and in virtual time.",
        |ran| ran.engine.map(Value::from),
    )
    .or_null()
    .only_on(&[Place::Queue, Place::Local("models and exports of servers have no I/O engine")], |workload| {
        workload.engine.map(|engine| engine.name().to_owned())
    })
    .of_job_file(),
];

/// The elevators, a line each.
fn elevators() -> String {
    ELEVATORS.iter().flat_map(|row| ["\n- ", row.name, ": ", row.about]).collect()
}
