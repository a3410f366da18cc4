//! The fields of a workload, as errors name them. Holds no values: those are in `workload.rs`.
//!
//! An error holds a [`Field`]. The caller maps it to a name that its users know: the program to a flag, a library to
//! [`Field::name`].

use std::fmt;

/// A field of a workload that an error can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Field {
    /// The path that is measured.
    Path,
    /// The file, directory or device.
    Target,
    /// Direction and order of the transfers.
    Pattern,
    /// The size of each transfer.
    BlockSize,
    /// Transfers in flight per job.
    Depth,
    /// Threads.
    Jobs,
    /// The bytes that are accessed.
    Size,
    /// When a repetition ends.
    End,
    /// The time between a transfer and the next one in its place.
    Think,
    /// Transfers a second.
    RateIops,
    /// Bytes a second.
    Rate,
    /// The writes between two flushes.
    FlushEvery,
    /// Whether data is verified.
    Verify,
    /// When a repetition is steady.
    SteadyState,
    /// The number of measurements.
    Repetitions,
    /// Whether caches stay filled.
    Warm,
    /// The share of transfers whose latency is measured.
    LatencySampling,
    /// The share of reads in a mixed pattern.
    ReadShare,
    /// The memory of iopath's page cache.
    CacheSize,
    /// The page size of that cache.
    PageSize,
    /// The readahead of that cache.
    Readahead,
    /// Whether reads borrow cached bytes.
    Borrow,
    /// The I/O scheduler.
    Elevator,
    /// Requests in flight at the device.
    DeviceDepth,
    /// The I/O engine.
    Engine,
    /// The request log.
    Log,
    /// The CPUs in front of a modelled target.
    Host,
    /// The permission to write to a user's file.
    Overwrite,
}

/// The caller's name of a field, such as a flag. None if the caller has no such setting: messages then omit the field.
pub type FieldNames = fn(Field) -> Option<&'static str>;

impl Field {
    /// All fields.
    pub const ALL: [Self; 28] = [
        Self::Path,
        Self::Target,
        Self::Pattern,
        Self::BlockSize,
        Self::Depth,
        Self::Jobs,
        Self::Size,
        Self::End,
        Self::Think,
        Self::RateIops,
        Self::Rate,
        Self::FlushEvery,
        Self::Verify,
        Self::SteadyState,
        Self::Repetitions,
        Self::Warm,
        Self::LatencySampling,
        Self::ReadShare,
        Self::CacheSize,
        Self::PageSize,
        Self::Readahead,
        Self::Borrow,
        Self::Elevator,
        Self::DeviceDepth,
        Self::Engine,
        Self::Log,
        Self::Host,
        Self::Overwrite,
    ];

    /// The name in plain words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Path => "path",
            Self::Target => "target",
            Self::Pattern => "pattern",
            Self::BlockSize => "block size",
            Self::Depth => "depth",
            Self::Jobs => "number of jobs",
            Self::Size => "size",
            Self::End => "end condition",
            Self::Think => "think time",
            Self::RateIops => "rate of transfers",
            Self::Rate => "rate of bytes",
            Self::FlushEvery => "number of writes between flushes",
            Self::Verify => "verification",
            Self::SteadyState => "steady state",
            Self::Repetitions => "number of repetitions",
            Self::Warm => "warm start",
            Self::LatencySampling => "latency sampling",
            Self::ReadShare => "share of reads",
            Self::CacheSize => "cache size",
            Self::PageSize => "page size",
            Self::Readahead => "readahead",
            Self::Borrow => "borrowing",
            Self::Elevator => "elevator",
            Self::DeviceDepth => "device depth",
            Self::Engine => "engine",
            Self::Log => "log",
            Self::Host => "modelled host",
            Self::Overwrite => "overwrite permission",
        }
    }

    /// [`Field::name`] as [`FieldNames`]: every field has one.
    pub fn plain_name(self) -> Option<&'static str> {
        Some(self.name())
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A list of the caller's names of some fields: `--bs, --iodepth or --cache`. None if the caller has none of them.
pub(crate) fn one_of(fields: &[Field], names: FieldNames) -> Option<String> {
    let known: Vec<&str> = fields.iter().filter_map(|&field| names(field)).collect();
    let (last, rest) = known.split_last()?;
    Some(if rest.is_empty() { (*last).to_owned() } else { format!("{} or {last}", rest.join(", ")) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_fields_leaves_out_those_that_the_caller_lacks() {
        let fields = [Field::Size, Field::BlockSize, Field::Jobs];
        assert_eq!(one_of(&fields, Field::plain_name).unwrap(), "size, block size or number of jobs");
        let only_size: FieldNames = |field| (field == Field::Size).then_some("--size");
        assert_eq!(one_of(&fields, only_size).unwrap(), "--size");
        assert_eq!(one_of(&fields, |_| None), None);
    }

    #[test]
    fn names_are_unique() {
        for field in Field::ALL {
            assert_eq!(Field::ALL.iter().filter(|other| other.name() == field.name()).count(), 1, "{field}");
        }
    }
}
