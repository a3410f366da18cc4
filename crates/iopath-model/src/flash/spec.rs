//! The parameters of a solid-state disk, and their checks.

use iopath_core::Limits;

use crate::document::Section;
use crate::error::ModelError;
use crate::flash::amplification;
use crate::mechanism::{Nanos, SECOND};
use crate::parameter::{Parameter, Unit};

/// The parameters of kind `flash`.
pub(crate) const PARAMETERS: &[Parameter] = &[
    Parameter::new("capacity_gib", Unit::Gib, (0.01, 1e6), "the size of the disk"),
    Parameter::new("spare_percent", Unit::Percent, (0.1, 1000.0), "additional flash, as a share of the size"),
    Parameter::new("fill_percent", Unit::Percent, (1.0, 100.0), "the share of the size that holds data")
        .or(100.0),
    Parameter::new("channels", Unit::Count, (1.0, 64.0), "channels between controller and dies"),
    Parameter::new("dies_per_channel", Unit::Count, (1.0, 256.0), "dies on each channel"),
    Parameter::new("planes", Unit::Count, (1.0, 16.0), "planes of a die, programmed together"),
    Parameter::new("page_kib", Unit::Kib, (0.5, 1024.0), "a page of a plane"),
    Parameter::new("pages_per_block", Unit::Count, (1.0, 100_000.0), "pages of a block, erased together"),
    Parameter::new("read_us", Unit::Microseconds, (0.01, 1e6), "the time in which a die reads a page"),
    Parameter::new(
        "program_us",
        Unit::Microseconds,
        (0.01, 1e6),
        "the time in which a die programs a page on each plane",
    ),
    Parameter::new(
        "erase_ms",
        Unit::Milliseconds,
        (0.0, 10_000.0),
        "the time in which a die erases a block on each plane",
    ),
    Parameter::new("channel_mb_per_s", Unit::MbPerS, (1.0, 1e5), "the rate of a channel"),
    Parameter::new("interface_mb_per_s", Unit::MbPerS, (1.0, 1e6), "the rate between disk and host"),
    Parameter::new(
        "command_ns",
        Unit::Nanoseconds,
        (0.0, 1e9),
        "the time of the controller for a command; it serves one command at a time",
    ),
    Parameter::new(
        "read_latency_us",
        Unit::Microseconds,
        (0.0, 1e6),
        "added to each read; reads overlap in it",
    ),
    Parameter::new(
        "write_latency_us",
        Unit::Microseconds,
        (0.0, 1e6),
        "added to each write; writes overlap in it",
    ),
    Parameter::new(
        "write_buffer_kib",
        Unit::Kib,
        (4.0, 1e8),
        "memory for writes that are not yet programmed",
    ),
    Parameter::new(
        "buffer_is_volatile",
        Unit::Count,
        (0.0, 1.0),
        "1: a flush waits for the dies; 0: capacitors protect the buffer",
    ),
    Parameter::new("request_max_kib", Unit::Kib, (4.0, 65536.0), "the largest request"),
    Parameter::new("depth_max", Unit::Count, (1.0, 65536.0), "requests in flight"),
];

/// The checked parameters.
#[derive(Debug, Clone)]
pub(crate) struct Spec {
    pub(crate) channels: u32,
    pub(crate) dies: u32,
    pub(crate) page_bytes: u64,
    /// The bytes that a die programs at once.
    pub(crate) unit_bytes: u64,
    pub(crate) units_per_block: u32,
    pub(crate) read: Nanos,
    pub(crate) program: Nanos,
    pub(crate) erase: Nanos,
    /// The time of a byte, in 2^-16 ns.
    channel_byte: u64,
    interface_byte: u64,
    pub(crate) command: Nanos,
    pub(crate) read_latency: Nanos,
    pub(crate) write_latency: Nanos,
    pub(crate) buffer_bytes: u64,
    pub(crate) is_volatile: bool,
    /// Programs for each page that is written at random.
    pub(crate) amplification: f64,
}

impl Spec {
    pub(crate) fn read(section: &Section<'_>, others: &[&str]) -> Result<(Self, Limits), ModelError> {
        let values = section.read(PARAMETERS, others)?;
        let byte = |name: &str| (SECOND as f64 * 65536.0 / values.number(name)).round() as u64;
        let page_bytes = values.amount("page_kib");
        if page_bytes % 512 != 0 {
            return Err(section.conflict("page_kib", "a page is whole sectors of 512 bytes"));
        }
        let channels = values.amount("channels") as u32;
        let unit_bytes = page_bytes * values.amount("planes");
        let buffer_bytes = values.amount("write_buffer_kib");
        if buffer_bytes < unit_bytes {
            let message = format!("the buffer holds at least a page of each plane, {} KiB", unit_bytes >> 10);
            return Err(section.conflict("write_buffer_kib", message));
        }
        let spare = (1.0 + values.number("spare_percent") / 100.0) * 100.0 / values.number("fill_percent");
        let spec = Self {
            channels,
            dies: channels * values.amount("dies_per_channel") as u32,
            page_bytes,
            unit_bytes,
            units_per_block: values.amount("pages_per_block") as u32,
            read: values.amount("read_us"),
            program: values.amount("program_us"),
            erase: values.amount("erase_ms"),
            channel_byte: byte("channel_mb_per_s"),
            interface_byte: byte("interface_mb_per_s"),
            command: values.amount("command_ns"),
            read_latency: values.amount("read_latency_us"),
            write_latency: values.amount("write_latency_us"),
            buffer_bytes,
            is_volatile: values.amount("buffer_is_volatile") == 1,
            amplification: amplification::write_amplification(spare),
        };
        let limits = Limits {
            request_bytes_max: values.amount("request_max_kib") >> 9 << 9,
            depth_max: values.amount("depth_max") as u32,
            volatile_cache: spec.is_volatile,
            ..Limits::with_capacity(values.amount("capacity_gib") >> 9)
        };
        Ok((spec, limits))
    }

    pub(crate) const fn channel_time(&self, bytes: u64) -> Nanos {
        (bytes * self.channel_byte) >> 16
    }

    pub(crate) const fn interface_time(&self, bytes: u64) -> Nanos {
        (bytes * self.interface_byte) >> 16
    }

    #[cfg(test)]
    pub(crate) fn for_tests() -> Self {
        Self {
            channels: 1,
            dies: 1,
            page_bytes: 4096,
            unit_bytes: 4096,
            units_per_block: 64,
            read: 50_000,
            program: 500_000,
            erase: 5_000_000,
            channel_byte: 65536,
            interface_byte: 65536,
            command: 1000,
            read_latency: 0,
            write_latency: 0,
            buffer_bytes: 65536,
            is_volatile: true,
            amplification: 2.0,
        }
    }
}
