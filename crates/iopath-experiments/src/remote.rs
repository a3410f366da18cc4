//! The machine of `unplug` and `dip`: a reader without a page cache, a transport, and a remote target with a page
//! cache, as published in 2009. Knows no published figure.
//!
//! The table has the columns, the number of repetitions, the size and the order of block sizes of
//! `scripts/blockdev-perftest` of SCST (B. Van Assche, 2009). Unless changed, that script reads with `dd iflag=direct`,
//! and drops the page cache of the target before each test.

use std::time::Duration;

use iopath::Readahead;
use iopath_core::elevator::ElevatorSpec;
use iopath_model::{Model, ModelDevice, Staged};
use iopath_report::Rw;
use iopath_report::experiment::{Parameter, Settings};

use super::error::ExperimentError;
use iopath_bench::cache::CacheSettings;
use iopath_bench::simulated::contexts::ContextTimes;
use iopath_bench::simulated::machine::{Machine, Outcome, Top, VolumeSetup};
use iopath_bench::simulated::server::{Server, ServerSettings};
use iopath_bench::simulated::transport::{Responses, Transport};
use iopath_bench::simulated::{Span, Unplug};
use iopath_bench::workload::{BlockSize, Depth, End, Workload};

/// The largest request of the target's queue: `max_sectors_kb` of Linux, which is 512 unless set.
const REQUEST_BYTES: u64 = 512 << 10;

/// The parameters of the setup.
pub(super) const SETUP: [Parameter; 4] = [
    Parameter::choice(
        "queue",
        &["unpatched", "patched"],
        "published: whether a reader of the target unplugs after readahead",
    ),
    Parameter::count("readahead_kib", "KiB", 512, (4, 65_536), "published: 128 and 512"),
    Parameter::count("max_sectors_kib", "KiB", 512, (4, 1_024), "published: 64 and 512"),
    Parameter::count("bs_bytes", "bytes", 64 << 20, (4_096, 1 << 30), "published: 16 KiB to 64 MiB"),
];

/// The parameters of the model. Each of five is calibrated on a line of the table, in this order: see
/// [`is_calibrated`].
pub(super) const MODEL: [Parameter; 16] = [
    Parameter::count("size_mib", "MiB", 1_024, (16, 65_536), "published: 1 GiB"),
    Parameter::count(
        "threads",
        "threads",
        5,
        (1, 64),
        "Bolkhovitin, LKML, 2009: a target of SCST has 5 I/O threads",
    ),
    Parameter::number(
        "idle_ms",
        "ms",
        8.0,
        (0.0, 1_000.0),
        "CFQ of Linux 2.6.29: slice_idle of 8 ms unless set",
    ),
    Parameter::number(
        "tick_ms",
        "ms",
        4.0,
        (0.001, 10.0),
        "Linux 2.6: the clock has 250 ticks a second unless configured",
    ),
    Parameter::number("unplug_ms", "ms", 3.0, (0.0, 1_000.0), "Linux 2.6: unplug_delay of 3 ms"),
    Parameter::choice(
        "completion",
        &["unplugs", "waits"],
        "Linux 2.6.29: a completion unplugs the queue of its disk; waits: as on a software RAID, where that is not the queue of \
         the windows",
    ),
    Parameter::count("commands", "commands", 32, (1, 1_024), "open-iscsi: queue_depth of 32 unless set"),
    Parameter::count(
        "max_recv_data_segment_kib",
        "KiB",
        256,
        (1, 16_383),
        "open-iscsi, May 2009: MaxRecvDataSegmentLength of 262144 bytes unless set; a longer response has several PDUs",
    ),
    Parameter::choice(
        "data_in",
        &["streams", "waits"],
        "SCST, July 2009: a target sends all PDUs of a response at once; waits: each when the previous one is received",
    ),
    Parameter::choice(
        "status",
        &["in-data", "own"],
        "SCST, July 2009: the last PDU of the data has the status; own: a PDU of its own after several PDUs, which takes the \
         time of a command",
    ),
    Parameter::number(
        "transport_mib_per_s",
        "MiB/s",
        280.0,
        (1.0, 1e6),
        "calibrated: blocks of 64 MiB with max_sectors 64 KiB",
    ),
    Parameter::number("command_us", "us", 22.0, (0.0, 1e6), "calibrated: blocks of 16 KiB"),
    Parameter::number("copy_mb_per_s", "MB/s", 420.0, (1.0, 1e6), "calibrated: blocks of 64 KiB"),
    Parameter::number(
        "array_us",
        "us",
        430.0,
        (1.0, 1e6),
        "calibrated: blocks of 64 MiB with readahead 128 KiB",
    ),
    Parameter::number(
        "array_spread",
        "times",
        4.0,
        (1.0, 1e3),
        "calibrated: blocks of 4 MiB; from the median to the shortest latency of the array, and to that of one in 100",
    ),
    Parameter::number(
        "array_mib_per_s",
        "MiB/s",
        1_000.0,
        (1.0, 1e6),
        "assumed: above the rate of the transport",
    ),
];

/// The lines of the table on which a constant is calibrated: readahead and `max_sectors` in KiB, and the block size.
/// All are lines of the queue without the patch.
const CALIBRATED: [(u64, u64, u64); 5] = [
    (512, 64, 64 << 20),
    (512, 512, 16 << 10),
    (512, 512, 64 << 10),
    (128, 512, 64 << 20),
    (512, 512, 4 << 20),
];

/// Whether a constant is calibrated on the line of the table with this setting.
pub(super) fn is_calibrated(setup: Setup) -> bool {
    !setup.is_patched && CALIBRATED.contains(&(setup.readahead_kib, setup.max_sectors_kib, setup.block_bytes))
}

/// The values of the model's parameters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Constants {
    pub(super) size_mib: u64,
    pub(super) threads: u32,
    pub(super) idle_ms: f64,
    pub(super) tick_ms: f64,
    pub(super) unplug_ms: f64,
    pub(super) completion_unplugs: bool,
    pub(super) commands: u32,
    pub(super) max_recv_data_segment_kib: u64,
    pub(super) data_in_waits: bool,
    pub(super) status_is_own: bool,
    pub(super) transport_mib_per_s: f64,
    pub(super) copy_mb_per_s: f64,
    pub(super) command_us: f64,
    pub(super) array_mib_per_s: f64,
    pub(super) array_us: f64,
    pub(super) array_spread: f64,
}

impl Constants {
    pub(super) fn of(settings: &Settings) -> Self {
        Self {
            size_mib: settings.count("size_mib"),
            threads: settings.count("threads") as u32,
            idle_ms: settings.number("idle_ms"),
            tick_ms: settings.number("tick_ms"),
            unplug_ms: settings.number("unplug_ms"),
            completion_unplugs: settings.choice("completion") == "unplugs",
            commands: settings.count("commands") as u32,
            max_recv_data_segment_kib: settings.count("max_recv_data_segment_kib"),
            data_in_waits: settings.choice("data_in") == "waits",
            status_is_own: settings.choice("status") == "own",
            transport_mib_per_s: settings.number("transport_mib_per_s"),
            copy_mb_per_s: settings.number("copy_mb_per_s"),
            command_us: settings.number("command_us"),
            array_mib_per_s: settings.number("array_mib_per_s"),
            array_us: settings.number("array_us"),
            array_spread: settings.number("array_spread"),
        }
    }
}

/// A setting of the published table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Setup {
    pub(super) is_patched: bool,
    pub(super) readahead_kib: u64,
    pub(super) max_sectors_kib: u64,
    pub(super) block_bytes: u64,
}

impl Setup {
    pub(super) fn of(settings: &Settings) -> Self {
        Self {
            is_patched: settings.choice("queue") == "patched",
            readahead_kib: settings.count("readahead_kib"),
            max_sectors_kib: settings.count("max_sectors_kib"),
            block_bytes: settings.count("bs_bytes"),
        }
    }
}

/// The top half of the reading machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reader {
    /// No page cache: the commands of a call are in flight together, and between two calls no command is in flight.
    Direct,
    /// A page cache with this readahead.
    Buffered(Readahead),
}

/// Reads the published size in calls of the block size.
pub(super) fn read(
    constants: &Constants,
    setup: Setup,
    reader: Reader,
    log: bool,
) -> Result<Outcome, ExperimentError> {
    let size_bytes = constants.size_mib << 20;
    let transport = Transport::new(constants.transport_mib_per_s * f64::from(1 << 20), responses(constants));
    // The direct path of the reading machine splits a call there.
    let command_bytes = setup.max_sectors_kib << 10;
    let server = Server::new(array(constants)?, &server(constants, setup));
    let unplug = kernel(constants, setup.is_patched);
    let top = match reader {
        Reader::Direct => Top::Direct { bio_bytes_max: Some(command_bytes as u32), serial: false },
        Reader::Buffered(readahead) => {
            let cache = CacheSettings { readahead: Some(readahead), ..CacheSettings::default() };
            let unplug = if matches!(readahead, Readahead::Linux(_)) { unplug } else { Unplug::AtOnce };
            Top::Buffered { cache, unplug }
        }
    };
    let workload = Workload {
        rw: Rw::Read,
        block_size: BlockSize::new(setup.block_bytes.min(size_bytes))?,
        depth: Depth::new(1u64)?,
        size_bytes: Some(size_bytes),
        end: End::Pass,
        ..Workload::default()
    };
    let volume = VolumeSetup {
        device: Box::new(Staged::new(server, transport)),
        elevator: ElevatorSpec::default(),
        device_depth: Some(constants.commands),
        requests_max: None,
        top,
        workloads: vec![workload],
    };
    Ok(Machine { host: None, volumes: vec![volume] }.run(1, log)?)
}

/// The throughput of [`read`] with calls that do not overlap, in MiB/s.
pub(super) fn throughput(
    constants: &Constants,
    setup: Setup,
    reader: Reader,
) -> Result<f64, ExperimentError> {
    Ok(read(constants, setup, reader, false)?.bytes_per_second() / f64::from(1 << 20))
}

fn responses(constants: &Constants) -> Responses {
    Responses {
        pdu_bytes_max: constants.max_recv_data_segment_kib << 10,
        waits: constants.data_in_waits,
        status: milliseconds(if constants.status_is_own { constants.command_us / 1e3 } else { 0.0 }),
    }
}

fn kernel(constants: &Constants, after_readahead: bool) -> Unplug {
    Unplug::WaitOrTimer { delay: milliseconds(constants.unplug_ms), after_readahead }
}

fn server(constants: &Constants, setup: Setup) -> ServerSettings {
    ServerSettings {
        threads: constants.threads,
        cache_bytes: 256 << 20,
        readahead_bytes: setup.readahead_kib << 10,
        request_bytes_max: REQUEST_BYTES,
        unplug: kernel(constants, setup.is_patched),
        completion_unplugs: constants.completion_unplugs,
        contexts: ContextTimes {
            idle: milliseconds(constants.idle_ms),
            slice: Duration::from_millis(100),
            tick: milliseconds(constants.tick_ms),
        },
        command: milliseconds(constants.command_us / 1e3),
        page: Duration::from_secs_f64(4096.0 / (constants.copy_mb_per_s * 1e6)),
        command_bytes_max: setup.max_sectors_kib << 10,
        commands_max: constants.commands,
    }
}

fn milliseconds(value: f64) -> Duration {
    Duration::from_secs_f64(value / 1e3)
}

/// An array with a distribution of latencies and a rate. Its disks are not modelled: the source does not name them.
fn array(constants: &Constants) -> Result<ModelDevice<Span>, ExperimentError> {
    let (rate, latency, spread) = (constants.array_mib_per_s, constants.array_us, constants.array_spread);
    let (least, most) = (latency / spread, latency * spread);
    let text = format!(
        "kind = \"cloud\"\nabout = \"an array\"\ncapacity_gib = 64\nlatency_min_us = {least}\n\
         latency_p50_us = {latency}\nlatency_p99_us = {most}\nlatency_max_us = {most}\n\
         sustained_iops = 1e6\nburst_iops = 1e6\ncredits = 0\nio_unit_kib = 1024\n\
         sustained_mib_per_s = {rate}\nburst_mib_per_s = {rate}\ncredits_mib = 0\n\
         request_max_kib = 1024\ndepth_max = 64\n"
    );
    Ok(ModelDevice::new(&Model::parse("array", &text)?, 1))
}

/// A block size as text, in the largest unit that divides it.
pub(super) fn size(bytes: u64) -> String {
    if bytes.is_multiple_of(1 << 20) {
        format!("{} MiB", bytes >> 20)
    } else {
        format!("{} KiB", bytes >> 10)
    }
}
