//! Reasons to refuse a workload before it runs. Each reason names the invalid fields. Failures of the machine and of
//! transfers are in `error.rs`.

use std::error::Error;
use std::fmt;
use std::path::PathBuf;

use iopath_report::size::format_size;

use crate::field::{Field, FieldNames, one_of};
use crate::place::Place;

/// The part of a campaign that a failure ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// One workload. The others may run.
    Workload,
    /// All workloads: each would fail, or measure something else than was asked for.
    Campaign,
}

/// A workload that cannot be measured. The message is one line with the fields to change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkloadError {
    /// A number is out of its range.
    OutOfRange {
        /// The field.
        field: Field,
        /// Its value.
        value: u64,
        /// The values it accepts.
        range: String,
    },
    /// The ranks of a run cannot share a target in this way.
    Share {
        /// The layout.
        layout: &'static str,
        /// The reason and the remedy.
        problem: &'static str,
    },
    /// The path needs a target, and the workload has none.
    NoTarget {
        /// The path's name.
        path: &'static str,
    },
    /// An option does not hold on the path or target, or with another option.
    NotHere {
        /// The path's name.
        path: &'static str,
        /// Where the option holds.
        place: Place,
        /// The option.
        field: Field,
        /// Its value.
        value: String,
    },
    /// The device depth is a limit of the queue that all jobs share, and with elevator `none` each job has its own.
    NoSharedQueue,
    /// The path accesses storage of this machine only, and the target is a model.
    NoModel {
        /// The path's name.
        path: &'static str,
        /// The target.
        target: PathBuf,
        /// The names of the paths that run on a model.
        known: Vec<&'static str>,
    },
    /// The path accesses storage of this machine only, and the target is an export of a server.
    NotRemote {
        /// The path's name.
        path: &'static str,
        /// The target.
        target: PathBuf,
        /// The names of the paths that run on an export.
        known: Vec<&'static str>,
    },
    /// A workload that writes, on an export that the server does not let clients write.
    ReadOnlyExport {
        /// The target.
        target: PathBuf,
    },
    /// Think times and rates on storage of this machine, with several transfers in flight or sampled latencies.
    PaceUnsupported {
        /// The field.
        field: Field,
    },
    /// The name of a stripe is malformed, or its members cannot be striped.
    Stripe {
        /// The target as given.
        target: PathBuf,
        /// The reason.
        reason: &'static str,
    },
    /// A path of the kernel on a stripe of iopath.
    NoStripe {
        /// The path.
        path: &'static str,
        /// The paths that access stripes.
        known: Vec<&'static str>,
    },
    /// A share of a target without a size of its own.
    NoSize {
        /// The target.
        target: PathBuf,
    },
    /// Several targets, and only some of them are models.
    SeveralTargets,
    /// Several sizes, gaps or runs of the pattern `rewrite`.
    ShapeOfRewrite,
    /// A workload that cannot be verified.
    NotVerified {
        /// The reason.
        reason: &'static str,
    },
    /// A criterion of a steady state that cannot be met or measured.
    NotSteady {
        /// The reason.
        reason: &'static str,
    },
    /// Virtual time ends before the run.
    EndOfTime {
        /// The time of all repetitions, in seconds.
        seconds: u64,
        /// The longest possible time, in seconds.
        seconds_max: u64,
    },
    /// Only reads can borrow, and the pattern has none.
    NothingToBorrow {
        /// The pattern.
        pattern: &'static str,
    },
    /// The range of a warm workload does not fit in the cache.
    CacheTooSmall {
        /// The bytes to access, in whole pages.
        needed: u64,
        /// The cache's size in bytes.
        cache: u64,
    },
    /// The target is smaller than the range to access.
    TooSmall {
        /// The target.
        target: PathBuf,
        /// Its size in bytes.
        has: u64,
        /// The range in bytes.
        wanted: u64,
    },
    /// The whole chunks of a stripe are smaller than the range to access.
    StripeTooSmall {
        /// The stripe.
        target: PathBuf,
        /// Its usable size in bytes.
        has: u64,
        /// The bytes of a chunk.
        chunk: u64,
        /// The size of the smallest member in bytes.
        least: u64,
        /// The range in bytes.
        wanted: u64,
    },
    /// Writing would destroy a user's data.
    Overwrite {
        /// The target.
        target: PathBuf,
    },
    /// The filesystem has no room for a scratch file.
    NoSpace {
        /// The directory.
        directory: PathBuf,
        /// The size of the scratch file in bytes.
        needed: u64,
        /// The bytes that stay free for others.
        margin: u64,
        /// The bytes that are free.
        free: u64,
    },
    /// The process may not create a scratch file of this size.
    FileLimit {
        /// The directory.
        directory: PathBuf,
        /// The size of the scratch file in bytes.
        needed: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The tables of queues and page cache do not fit in memory, in virtual time.
    Tables {
        /// Their size in bytes.
        needed: u64,
        /// The memory that is available, in bytes.
        available: u64,
    },
    /// The buffers do not fit in memory.
    Buffers {
        /// The size of the buffers in bytes.
        needed: u64,
        /// The memory that is available, in bytes.
        available: u64,
    },
}

impl WorkloadError {
    /// Whether the workload is invalid on every machine and target.
    pub fn is_usage(&self) -> bool {
        !matches!(
            self,
            Self::TooSmall { .. }
                | Self::StripeTooSmall { .. }
                | Self::Overwrite { .. }
                | Self::NoSpace { .. }
                | Self::FileLimit { .. }
                | Self::Tables { .. }
                | Self::Buffers { .. }
        )
    }

    /// The part of a campaign that the refusal ends: a missing target and a full disk end it, because each workload
    /// needs them. Workloads that only read need no permission to overwrite.
    pub fn scope(&self) -> Scope {
        match self {
            Self::NoTarget { .. } | Self::NoSpace { .. } | Self::FileLimit { .. } => Scope::Campaign,
            _ => Scope::Workload,
        }
    }

    /// The message, with the caller's names of the fields.
    #[expect(clippy::too_many_lines, reason = "one text for each variant")]
    pub fn message(&self, names: FieldNames) -> String {
        let name = |field: Field| names(field).unwrap_or_else(|| field.name());
        match self {
            Self::OutOfRange { field, value, range } => {
                format!("{} {value} is not valid; use {range}", name(*field))
            }
            Self::NoTarget { path } => format!(
                "path {path} needs a {}: a directory (for a temporary scratch file), a file or a block device",
                name(Field::TARGET)
            ),
            Self::NotHere { path, place, field, value } => {
                place.refusal(path, name(*field), value, name(Field::LATENCY_SAMPLING))
            }
            Self::NoSharedQueue => format!(
                "{} limits the queue that all jobs share, and with elevator none each job has a queue of its own; omit it, \
                 or use another {}",
                name(Field::DEVICE_DEPTH),
                name(Field::ELEVATOR)
            ),
            Self::NotRemote { path, target, known } => format!(
                "{path} needs a file or device of this machine, and {} is an export of a server; use {} {}",
                target.display(),
                name(Field::PATH),
                known.join(" or ")
            ),
            Self::ReadOnlyExport { target } => format!(
                "{} is read-only: the server permits no writes; use a workload that reads, or start the server with writes",
                target.display()
            ),
            Self::NoModel { path, target, known } => format!(
                "path {path} accesses storage of this machine only, and {} is a model; use path {}",
                target.display(),
                known.join(" or ")
            ),
            Self::PaceUnsupported { field } => format!(
                "{} on storage of this machine needs a depth of 1, or a target without an elevator, and measures every latency; \
                 use {} 1 with more {}, and omit {}",
                name(*field),
                name(Field::DEPTH),
                name(Field::JOBS),
                name(Field::LATENCY_SAMPLING)
            ),
            Self::Stripe { target, reason } => {
                format!("{} {} is not valid: {reason}", name(Field::TARGET), target.display())
            }
            Self::NoStripe { path, known } => format!(
                "path {path} does not access stripes, or blocks that are not in one chunk; use path {}",
                known.join(" or ")
            ),
            Self::NoSize { target } => format!(
                "{} in percent needs a file, a device or a model, and {} has no size of its own; use bytes",
                name(Field::SIZE),
                target.display()
            ),
            Self::SeveralTargets => format!(
                "several targets at the same time are all models (model:NAME or model:FILE.toml), or all on this machine: \
                 virtual time has no real devices; name one kind of {}",
                name(Field::TARGET)
            ),
            Self::ShapeOfRewrite => {
                "pattern rewrite has one block size, without gaps and runs; use another pattern".to_owned()
            }
            Self::NotVerified { reason } => format!("{} is not possible: {reason}", name(Field::VERIFY)),
            Self::NotSteady { reason } => format!("{} is not valid: {reason}", name(Field::STEADY_STATE)),
            Self::EndOfTime { seconds, seconds_max } => format!(
                "{seconds} s of virtual time, for all repetitions together, are out of range: {seconds_max} s at most; \
                 use a shorter {} or fewer {}",
                name(Field::END),
                name(Field::REPETITIONS)
            ),
            Self::NothingToBorrow { pattern } => format!(
                "{} applies to reads, and pattern `{pattern}` has none; omit it, or use a pattern that reads",
                name(Field::BORROW)
            ),
            Self::CacheTooSmall { needed, cache } => format!(
                "{} measures hits, and the {} to access do not fit in the cache of {}; use a larger {} or a smaller {}",
                name(Field::WARM),
                format_size(*needed),
                format_size(*cache),
                name(Field::CACHE_SIZE),
                name(Field::SIZE)
            ),
            Self::TooSmall { target, has, wanted } => format!(
                "{} holds {}, less than the {} to access (at least one block per job); name a larger target{}",
                target.display(),
                format_size(*has),
                format_size(*wanted),
                or_smaller(&[Field::SIZE, Field::BLOCK_SIZE, Field::JOBS], names)
            ),
            Self::StripeTooSmall { target, has, chunk, least, wanted } => format!(
                "{} holds {}, the whole chunks of {} in the smallest member ({}) on each member, less than the {} to \
                 access (at least one block per job); name larger members or a smaller chunk{}",
                target.display(),
                format_size(*has),
                format_size(*chunk),
                format_size(*least),
                format_size(*wanted),
                or_smaller(&[Field::SIZE, Field::BLOCK_SIZE, Field::JOBS], names)
            ),
            Self::Overwrite { target } => format!(
                "writing to {} destroys its contents; name a directory to use a scratch file, or set {}",
                target.display(),
                name(Field::OVERWRITE)
            ),
            Self::NoSpace { directory, needed, margin, free } => format!(
                "a scratch file in {} needs {} and a reserve of {}, but only {} are free; free some space or name \
                 another directory{}",
                directory.display(),
                format_size(*needed),
                format_size(*margin),
                format_size(*free),
                or_smaller(&[Field::SIZE], names)
            ),
            Self::FileLimit { directory, needed, limit } => format!(
                "a scratch file in {} needs {}, and the limit of file sizes is {} (ulimit -f); raise the limit{}",
                directory.display(),
                format_size(*needed),
                format_size(*limit),
                or_smaller(&[Field::SIZE], names)
            ),
            Self::Tables { needed, available } => format!(
                "the tables of queues and page cache need {} and exceed the available memory of {}{}",
                format_size(*needed),
                format_size(*available),
                or_smaller(&[Field::DEPTH, Field::JOBS, Field::CACHE_SIZE], names)
                    .replacen(", or use", "; use", 1)
            ),
            Self::Share { layout, problem } => format!("--shared={layout}: {problem}"),
            Self::Buffers { needed, available } => format!(
                "buffers of {} (jobs × depth × block size, and the cache of iopath-buffered) exceed the available \
                 memory of {}{}",
                format_size(*needed),
                format_size(*available),
                or_smaller(&[Field::BLOCK_SIZE, Field::DEPTH, Field::JOBS, Field::CACHE_SIZE], names)
                    .replacen(", or use", "; use", 1)
            ),
        }
    }
}

/// A further remedy for the end of a message; empty if the caller has none of the fields.
fn or_smaller(fields: &[Field], names: FieldNames) -> String {
    one_of(fields, names).map_or_else(String::new, |fields| format!(", or use a smaller {fields}"))
}

impl fmt::Display for WorkloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message(Field::plain_name))
    }
}

impl Error for WorkloadError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_uses_the_names_of_its_caller() {
        let error = WorkloadError::OutOfRange { field: Field::DEPTH, value: 0, range: "1 to 8".to_owned() };
        assert_eq!(error.to_string(), "depth 0 is not valid; use 1 to 8");
        let flags: FieldNames = |field| (field == Field::DEPTH).then_some("--iodepth");
        assert_eq!(error.message(flags), "--iodepth 0 is not valid; use 1 to 8");
    }

    #[test]
    fn a_message_names_no_setting_that_the_caller_lacks() {
        let error = WorkloadError::NoSpace { directory: "d".into(), needed: 8, margin: 1, free: 2 };
        assert!(error.to_string().ends_with("another directory, or use a smaller size"), "{error}");
        assert!(error.message(|_| None).ends_with("name another directory"), "{}", error.message(|_| None));
        let error = WorkloadError::Buffers { needed: 8, available: 2 };
        assert!(error.message(|_| None).ends_with("memory of 2 bytes"), "{}", error.message(|_| None));
        let flags: FieldNames = |field| (field == Field::BLOCK_SIZE).then_some("--bs");
        assert!(error.message(flags).ends_with("memory of 2 bytes; use a smaller --bs"), "{error}");
    }
}
