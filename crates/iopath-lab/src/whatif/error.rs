//! Errors of `iopath whatif`. The messages are complete: one line with the object, the value and the remedy.

use std::io;
use std::path::PathBuf;

use iopath_log::LogError;
use iopath_model::ModelError;
use iopath_report::shard::ShardError;
use iopath_report::size::format_size;
use thiserror::Error;

use crate::fit::FitError;
use iopath_bench::error::BenchError;
use iopath_bench::with_bench_error;

/// An input, alternative or part that cannot be used.
#[derive(Debug, Error)]
pub enum WhatIfError {
    /// The input cannot be opened.
    #[error("cannot open {}: {source}; name a request log of iopath, or a CSV file", path.display())]
    Open {
        /// The input.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The input is a directory or a device.
    #[error("{} is not a regular file; name a request log of iopath, or a CSV file", path.display())]
    NoTrace {
        /// The input.
        path: PathBuf,
    },
    /// A line of a CSV file has a wrong value.
    #[error("{} line {line}, column {column}: `{value}`: {problem}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// The name of the column.
        column: String,
        /// The value.
        value: String,
        /// The problem and the remedy.
        problem: String,
    },
    /// A file is not CSV.
    #[error("{} line {line} is not CSV: {problem}; name a request log of iopath, or a CSV file with a head", path.display())]
    NotCsv {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// The problem.
        problem: String,
    },
    /// A CSV file lacks a column.
    #[error("{} has no column {column}: name the columns in the first line: time_ns,op,sector,sectors", path.display())]
    NoColumn {
        /// The file.
        path: PathBuf,
        /// The column.
        column: &'static str,
    },
    /// A CSV file has the ranges of requests and of accesses.
    #[error("{} has the columns sector and offset: requests have sector and sectors, accesses above a page cache offset and bytes; \
             remove one pair", path.display())]
    BothRanges {
        /// The file.
        path: PathBuf,
    },
    /// The input has no requests.
    #[error("{} has no requests; record some first", path.display())]
    Empty {
        /// The input.
        path: PathBuf,
    },
    /// The input has too many streams or requests.
    #[error("{} has more than {streams_max} streams, or 4 billion requests; cut it into several files", path.display())]
    TooLarge {
        /// The input.
        path: PathBuf,
        /// The maximum number of streams.
        streams_max: usize,
    },
    /// The input does not fit in memory.
    #[error(
        "{} has more requests than fit in memory: {requests} are read, and {} are available; use a shorter trace, or a machine with \
         more memory",
        path.display(), format_size(*available_bytes)
    )]
    Memory {
        /// The input.
        path: PathBuf,
        /// The requests that were read.
        requests: u64,
        /// The memory that is available.
        available_bytes: u64,
    },
    /// A trace without a model.
    #[error("{} does not name its device; name a model with --target model:NAME or --target model:FILE.toml", path.display())]
    NoTarget {
        /// The input.
        path: PathBuf,
    },
    /// A target that is no model.
    #[error("{} is no model; a replay needs one: --target model:NAME, or fit one with iopath fit {} -o my.toml and use \
             --target model:my.toml", target.display(), target.display())]
    NotAModel {
        /// The target.
        target: PathBuf,
    },
    /// The trace has no completions.
    #[error("{} has no completions, so dependencies are unknown: omit --closed, or add a column latency_ns", path.display())]
    NoCompletions {
        /// The input.
        path: PathBuf,
    },
    /// The trace has sectors beyond the model.
    #[error(
        "{} has requests up to sector {end} ({}), and {model} has {capacity} sectors ({}); use a larger model, or --wrap to map \
         higher sectors to the start of the model",
        path.display(), format_size(end.saturating_mul(512)), format_size(capacity.saturating_mul(512))
    )]
    Beyond {
        /// The input.
        path: PathBuf,
        /// The end of the highest request.
        end: u64,
        /// The model.
        model: String,
        /// Its capacity in sectors.
        capacity: u64,
    },
    /// A request is larger than the model.
    #[error("{} has a request of {sectors} sectors, and {model} has {capacity} sectors; use a larger model", path.display())]
    LargerThanModel {
        /// The input.
        path: PathBuf,
        /// The sectors of the largest request.
        sectors: u64,
        /// The model.
        model: String,
        /// Its capacity in sectors.
        capacity: u64,
    },
    /// The requests are not aligned to the blocks of the model.
    #[error("{} has requests that are not whole blocks of {block_bytes} bytes, the block of {model}; use a model with blocks of 512 bytes", path.display())]
    Unaligned {
        /// The input.
        path: PathBuf,
        /// The model.
        model: String,
        /// Its block in bytes.
        block_bytes: u32,
    },
    /// Readahead needs the accesses above the cache.
    #[error("{} has no file accesses, so another readahead or cache cannot be replayed: it only has the requests below the \
             cache; record it with iopath record --accesses or iopath run --log FILE --log-accesses, or use a CSV file with the columns time_ns,op,offset,bytes", path.display())]
    NoAccesses {
        /// The input.
        path: PathBuf,
    },
    /// Too many alternatives.
    #[error("the lists have {alternatives} combinations; the maximum is {max}: use shorter lists")]
    TooMany {
        /// The number of combinations.
        alternatives: usize,
        /// The maximum.
        max: usize,
    },
    /// A request failed in the replay.
    #[error("{}: the model failed a request of {sectors} sectors at sector {sector}: {error}", path.display())]
    Failed {
        /// The input.
        path: PathBuf,
        /// The first sector.
        sector: u64,
        /// The number of sectors.
        sectors: u64,
        /// The error.
        error: String,
    },
    /// The queue refused a request.
    #[error("{}: {problem}", path.display())]
    Refused {
        /// The input.
        path: PathBuf,
        /// The refusal.
        problem: String,
    },
    /// A shard that does not exist.
    #[error(transparent)]
    Shard(#[from] ShardError),
    /// A part cannot be read.
    #[error("cannot read part {}: {source}", path.display())]
    Part {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A part that does not belong to the others.
    #[error("{}: {problem}", path.display())]
    NotAPart {
        /// The file.
        path: PathBuf,
        /// The problem and the remedy.
        problem: String,
    },
    /// The parts do not have all cells.
    #[error("the parts lack {missing} of {all} cells, the first is cell {first}; add the missing parts")]
    Missing {
        /// The number of missing cells.
        missing: u64,
        /// The number of cells.
        all: u64,
        /// The first missing cell.
        first: u64,
    },
    /// A model of a log cannot be fitted.
    #[error(transparent)]
    Fit(#[from] FitError),
    /// An input cannot be opened, or a model is wrong.
    #[error(transparent)]
    Bench(#[from] BenchError),
}

with_bench_error!(WhatIfError: LogError, ModelError);

impl WhatIfError {
    /// Whether the arguments are wrong on every machine.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::TooMany { .. } | Self::Shard(_) | Self::NoTarget { .. } | Self::NotAModel { .. } => true,
            Self::Fit(error) => error.is_usage(),
            Self::Bench(error) => error.is_usage(),
            _ => false,
        }
    }
}
