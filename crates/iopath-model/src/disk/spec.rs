//! The parameters of a rotating disk, and their checks.

use iopath_core::Limits;

use crate::disk::geometry::{Geometry, Zone};
use crate::disk::position::Mechanics;
use crate::disk::seek::{SeekCurve, SeekPoints};
use crate::document::Section;
use crate::error::ModelError;
use crate::mechanism::{Nanos, SECOND};
use crate::parameter::{Parameter, Unit};

/// The parameters of kind `disk`.
pub(crate) const PARAMETERS: &[Parameter] = &[
    Parameter::new("rotation_rpm", Unit::Rpm, (60.0, 100_000.0), "the speed of rotation"),
    Parameter::new("heads", Unit::Count, (1.0, 64.0), "heads; a cylinder has one track for each head"),
    Parameter::new("seek_track_ms", Unit::Milliseconds, (0.0, 1000.0), "a seek to the next cylinder"),
    Parameter::new(
        "seek_average_ms",
        Unit::Milliseconds,
        (0.0, 1000.0),
        "the mean of all seeks before reads",
    ),
    Parameter::new("seek_full_ms", Unit::Milliseconds, (0.0, 1000.0), "a seek over all cylinders"),
    Parameter::new("write_settle_ms", Unit::Milliseconds, (0.0, 100.0), "added to a seek before a write")
        .or(0.0),
    Parameter::new(
        "head_switch_ms",
        Unit::Milliseconds,
        (0.0, 100.0),
        "the time to switch to the next track of a cylinder, and the skew for it",
    ),
    Parameter::new(
        "cylinder_switch_ms",
        Unit::Milliseconds,
        (0.0, 100.0),
        "the time to switch to the next cylinder, and the skew for it",
    ),
    Parameter::new(
        "command_overhead_us",
        Unit::Microseconds,
        (0.0, 100_000.0),
        "the time of the controller for a command that needs the arm",
    ),
    Parameter::new(
        "buffered_overhead_us",
        Unit::Microseconds,
        (0.0, 100_000.0),
        "the time of the controller for a command that the buffer serves",
    ),
    Parameter::new("interface_mb_per_s", Unit::MbPerS, (0.1, 100_000.0), "the rate between buffer and host"),
    Parameter::new("buffer_kib", Unit::Kib, (0.0, 1e7), "memory for sectors that were read"),
    Parameter::new("buffer_segments", Unit::Count, (1.0, 256.0), "streams that the buffer holds"),
    Parameter::new("readahead_kib", Unit::Kib, (0.0, 1e6), "the maximum readahead after the last read"),
    Parameter::new(
        "write_cache_kib",
        Unit::Kib,
        (0.0, 1e7),
        "memory for cached writes; 0: a write completes on the medium",
    ),
    Parameter::new(
        "write_cache_runs",
        Unit::Count,
        (1.0, 4096.0),
        "separate runs of sectors that the cache holds",
    )
    .or(64.0),
    Parameter::new("destage_kib", Unit::Kib, (4.0, 65536.0), "the largest transfer from the write cache")
        .or(1024.0),
    Parameter::new(
        "destage_delay_ms",
        Unit::Milliseconds,
        (0.0, 10_000.0),
        "idle time before cached writes are written",
    )
    .or(10.0),
    Parameter::new(
        "queue_depth",
        Unit::Count,
        (1.0, 256.0),
        "commands that the disk queues and reorders; 1: no queue",
    ),
    Parameter::new(
        "queue_age_max_ms",
        Unit::Milliseconds,
        (1.0, 100_000.0),
        "a command that has waited longer is served next",
    )
    .or(500.0),
    Parameter::new("request_max_kib", Unit::Kib, (4.0, 65536.0), "the largest command"),
];

/// The parameters of `[[zone]]`, the outermost first.
pub(crate) const ZONE: &[Parameter] = &[
    Parameter::new("cylinders", Unit::Count, (1.0, 10_000_000.0), "cylinders of the zone"),
    Parameter::new("sectors_per_track", Unit::Count, (2.0, 100_000.0), "sectors of 512 bytes on each track"),
];

/// The checked parameters.
#[derive(Debug, Clone)]
pub(crate) struct Spec {
    pub(crate) mechanics: Mechanics,
    pub(crate) overhead: Nanos,
    pub(crate) buffered_overhead: Nanos,
    /// The time of a sector on the interface, in 2^-16 ns.
    pub(crate) sector_interface: u64,
    pub(crate) segments: u32,
    pub(crate) segment_sectors: u64,
    pub(crate) readahead_sectors: u64,
    pub(crate) cache_sectors: u64,
    pub(crate) cache_runs: u32,
    pub(crate) destage_sectors: u64,
    pub(crate) destage_delay: Nanos,
    pub(crate) queue_depth: u32,
    pub(crate) queue_age_max: Nanos,
}

impl Spec {
    pub(crate) fn read(section: &Section<'_>, others: &[&str]) -> Result<(Self, Limits), ModelError> {
        let values = section.read(PARAMETERS, others)?;
        let zones = zones(section)?;
        let heads = values.amount("heads") as u32;
        let period = (60.0 * SECOND as f64 / values.number("rotation_rpm")).round() as Nanos;
        for name in ["head_switch_ms", "cylinder_switch_ms"] {
            if values.amount(name) > period {
                let turn = period as f64 / 1e6;
                return Err(section.conflict(name, format!("a switch takes at most a turn, {turn:.3} ms")));
            }
        }
        let geometry = Geometry::new(
            &zones,
            heads,
            period,
            values.amount("head_switch_ms"),
            values.amount("cylinder_switch_ms"),
        );
        let points = SeekPoints {
            track: values.amount("seek_track_ms"),
            average: values.amount("seek_average_ms"),
            full: values.amount("seek_full_ms"),
        };
        let seeks = SeekCurve::new(geometry.cylinders(), points).ok_or_else(|| {
            let message = "no rising curve has this mean between `seek_track_ms` and `seek_full_ms`";
            section.conflict("seek_average_ms", message)
        })?;
        let segments = values.amount("buffer_segments") as u32;
        let segment_sectors = (values.amount("buffer_kib") >> 9) / u64::from(segments);
        let readahead_sectors = values.amount("readahead_kib") >> 9;
        if readahead_sectors > segment_sectors {
            let message = format!("this must fit into a segment of the buffer, {} KiB", segment_sectors / 2);
            return Err(section.conflict("readahead_kib", message));
        }
        let limits = Limits {
            request_bytes_max: values.amount("request_max_kib") >> 9 << 9,
            depth_max: values.amount("queue_depth") as u32,
            volatile_cache: values.amount("write_cache_kib") > 0,
            fua: true,
            ..Limits::with_capacity(geometry.sectors())
        };
        let sector_interface = 512.0 * SECOND as f64 * 65536.0 / values.number("interface_mb_per_s");
        let mechanics = Mechanics {
            geometry,
            seeks,
            head_switch: values.amount("head_switch_ms"),
            cylinder_switch: values.amount("cylinder_switch_ms"),
            write_settle: values.amount("write_settle_ms"),
        };
        let spec = Self {
            mechanics,
            overhead: values.amount("command_overhead_us"),
            buffered_overhead: values.amount("buffered_overhead_us"),
            sector_interface: sector_interface.round() as u64,
            segments,
            segment_sectors,
            readahead_sectors,
            cache_sectors: values.amount("write_cache_kib") >> 9,
            cache_runs: values.amount("write_cache_runs") as u32,
            destage_sectors: values.amount("destage_kib") >> 9,
            destage_delay: values.amount("destage_delay_ms"),
            queue_depth: limits.depth_max,
            queue_age_max: values.amount("queue_age_max_ms"),
        };
        Ok((spec, limits))
    }
}

fn zones(section: &Section<'_>) -> Result<Vec<Zone>, ModelError> {
    let mut zones = Vec::new();
    let mut cylinders = 0;
    for table in section.tables("zone")? {
        let values = table.read(ZONE, &[])?;
        let zone = Zone {
            cylinders: values.amount("cylinders") as u32,
            sectors_per_track: values.amount("sectors_per_track") as u32,
        };
        cylinders += u64::from(zone.cylinders);
        if cylinders > 20_000_000 {
            return Err(table.conflict("cylinders", "all zones together have at most 20000000"));
        }
        zones.push(zone);
    }
    if cylinders < 2 {
        return Err(
            section.conflict("zone", "a disk has `[[zone]]` tables with at least 2 cylinders together")
        );
    }
    Ok(zones)
}
