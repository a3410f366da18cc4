//! The fields of a workload, as errors name them. Holds no values: those are in `workload.rs`.
//!
//! An error holds a [`Field`]. The caller maps it to a name that its users know: the program to a flag, a library to
//! the name of the field. The rows of `options.rs` have the fields.

use std::fmt;

/// A field of a workload that an error can name: its name in plain words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Field(pub(crate) &'static str);

/// The caller's name of a field, such as a flag. None if the caller has no such setting: messages then omit the field.
pub type FieldNames = fn(Field) -> Option<&'static str>;

/// The fields that errors of relations between options name.
impl Field {
    /// The path that is measured.
    pub const PATH: Self = Self("path");
    /// The file, directory or device.
    pub const TARGET: Self = Self("target");
    /// Direction and order of the transfers.
    pub const PATTERN: Self = Self("pattern");
    /// The size of each transfer.
    pub const BLOCK_SIZE: Self = Self("block size");
    /// Transfers in flight per job.
    pub const DEPTH: Self = Self("depth");
    /// Threads.
    pub const JOBS: Self = Self("number of jobs");
    /// The bytes that are accessed.
    pub const SIZE: Self = Self("size");
    /// When a repetition ends.
    pub const END: Self = Self("end condition");
    /// The time between a transfer and the next one in its place.
    pub const THINK: Self = Self("think time");
    /// Transfers a second.
    pub const RATE_IOPS: Self = Self("rate of transfers");
    /// Bytes a second.
    pub const RATE: Self = Self("rate of bytes");
    /// Whether data is verified.
    pub const VERIFY: Self = Self("verification");
    /// When a repetition is steady.
    pub const STEADY_STATE: Self = Self("steady state");
    /// The number of measurements.
    pub const REPETITIONS: Self = Self("number of repetitions");
    /// Whether caches stay filled.
    pub const WARM: Self = Self("warm start");
    /// The share of transfers whose latency is measured.
    pub const LATENCY_SAMPLING: Self = Self("latency sampling");
    /// The share of reads in a mixed pattern.
    pub const READ_SHARE: Self = Self("share of reads");
    /// The memory of iopath's page cache.
    pub const CACHE_SIZE: Self = Self("cache size");
    /// The page size of that cache.
    pub const PAGE_SIZE: Self = Self("page size");
    /// Whether reads borrow cached bytes.
    pub const BORROW: Self = Self("borrowing");
    /// The I/O scheduler.
    pub const ELEVATOR: Self = Self("elevator");
    /// Requests in flight at the device.
    pub const DEVICE_DEPTH: Self = Self("device depth");
    /// The request log.
    pub const LOG: Self = Self("log");
    /// The permission to write to a user's file.
    pub const OVERWRITE: Self = Self("overwrite permission");

    /// The name in plain words.
    pub fn name(self) -> &'static str {
        self.0
    }

    /// [`Field::name`] as [`FieldNames`]: every field has one.
    pub fn plain_name(self) -> Option<&'static str> {
        Some(self.0)
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
        let fields = [Field::SIZE, Field::BLOCK_SIZE, Field::JOBS];
        assert_eq!(one_of(&fields, Field::plain_name).unwrap(), "size, block size or number of jobs");
        let only_size: FieldNames = |field| (field == Field::SIZE).then_some("--size");
        assert_eq!(one_of(&fields, only_size).unwrap(), "--size");
        assert_eq!(one_of(&fields, |_| None), None);
    }
}
