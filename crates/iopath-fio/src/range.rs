//! The bytes that a clone of a job accesses: range, amount and blocks. Percentages need the size of the file.

use super::error::JobFileError;
use super::job::Job;
use iopath_bench::options::Amount;
use iopath_bench::workload::End;

/// The range of a clone, in bytes from the start of its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) start_bytes: u64,
    /// A whole number of blocks after the start.
    pub(super) end_bytes: u64,
    /// When the job ends.
    pub(super) end: End,
}

impl Range {
    /// The range of clone number `clone` in a file of `file_bytes`; unknown for a file that is made for the job.
    pub(super) fn of(job: &Job, clone: u64, file_bytes: Option<u64>) -> Result<Self, JobFileError> {
        let (block_bytes, min_bytes) = (job.block_bytes(), job.min_bytes());
        let of_file = |percent: u32| {
            let file_bytes = file_bytes.ok_or_else(|| {
                job.problem("a percentage needs a file that exists; use bytes, or add filesize")
            })?;
            Ok::<u64, JobFileError>((u128::from(file_bytes) * u128::from(percent) / 100) as u64)
        };
        let align_bytes = if job.offset_align_bytes == 0 { min_bytes } else { job.offset_align_bytes };
        let offset = |amount| match amount {
            Amount::Bytes(bytes) => Ok(bytes),
            Amount::Percent(percent) => {
                let bytes = of_file(percent)?;
                bytes.checked_next_multiple_of(align_bytes).ok_or_else(|| too_large(job))
            }
        };
        let (first, increment) = (offset(job.offset)?, offset(job.offset_increment)?);
        let start_bytes = increment.checked_mul(clone).and_then(|bytes| bytes.checked_add(first));
        let start_bytes = start_bytes.ok_or_else(|| too_large(job))?;
        let size = match job.size {
            Some(Amount::Bytes(bytes)) => Some(bytes),
            Some(Amount::Percent(percent)) => Some(of_file(percent)?),
            None => None,
        };
        // A job with `filesize` accesses the whole file, and `size` is the amount.
        let range_bytes = match (size, job.file_bytes, file_bytes) {
            (Some(size), None, _) => size,
            (_, Some(whole), _) | (None, None, Some(whole)) => whole.saturating_sub(start_bytes),
            (None, None, None) => {
                return Err(job.problem("size is missing; add size, or name a file or device that exists"));
            }
        };
        // Smaller transfers fill the end of the range.
        let whole_bytes = range_bytes - range_bytes % min_bytes;
        if range_bytes < block_bytes {
            return Err(job.problem(format!(
                "the range of {range_bytes} bytes from offset {start_bytes} holds no block of {block_bytes} bytes; \
                 use a larger size or smaller blocks"
            )));
        }
        let end_bytes = start_bytes.checked_add(whole_bytes).ok_or_else(|| too_large(job))?;
        let default = if job.file_bytes.is_some() { size } else { None };
        let once = match job.io_size {
            Some(Amount::Bytes(bytes)) => bytes,
            Some(Amount::Percent(percent)) => of_file(percent)?,
            None => default.unwrap_or(whole_bytes),
        };
        let bytes = once.checked_mul(job.loops).ok_or_else(|| too_large(job))?;
        Ok(Self { start_bytes, end_bytes, end: end(job, bytes, block_bytes)? })
    }
}

/// When a job that transfers `bytes` ends.
fn end(job: &Job, bytes: u64, block_bytes: u64) -> Result<End, JobFileError> {
    let limit = job.ios.map(|ios| ios.saturating_mul(block_bytes));
    match (job.runtime, job.time_based) {
        (None, true) => Err(job.problem("time_based needs a runtime; add runtime")),
        (Some(time), true) => Ok(End::new(Some(time), limit)),
        (time, false) => Ok(End::new(time, Some(limit.map_or(bytes, |limit| limit.min(bytes))))),
    }
}

/// The size of the file that a job needs: for a path without a target.
pub(super) fn file_bytes_of(job: &Job) -> Result<u64, JobFileError> {
    let end = |clone| Range::of(job, clone, job.file_bytes).map(|range| range.end_bytes);
    Ok(end(job.clones().saturating_sub(1))?.max(job.file_bytes.unwrap_or(0)))
}

fn too_large(job: &Job) -> JobFileError {
    job.problem("the range ends beyond 2^64 bytes; use a smaller size or offset")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{JobFile, System};

    fn job(keys: &str) -> Job {
        JobFile::parse("f", format!("[j]\n{keys}").as_bytes(), &System, false).unwrap().jobs.remove(0)
    }

    fn range(keys: &str, clone: u64, file_bytes: Option<u64>) -> (u64, u64, End) {
        let range = Range::of(&job(keys), clone, file_bytes).unwrap();
        (range.start_bytes / 4096, range.end_bytes / 4096, range.end)
    }

    fn refused(keys: &str, file_bytes: Option<u64>) -> String {
        Range::of(&job(keys), 0, file_bytes).unwrap_err().to_string()
    }

    const FILE: Option<u64> = Some(100 * 4096);

    #[test]
    fn a_range_begins_at_its_offset_and_holds_whole_blocks() {
        assert_eq!(range("size=40k", 0, FILE), (0, 10, End::Bytes(10 * 4096)));
        assert_eq!(range("", 0, FILE), (0, 100, End::Bytes(100 * 4096)));
        assert_eq!(range("offset=8k", 0, FILE), (2, 100, End::Bytes(98 * 4096)));
        assert_eq!(range("offset=8k\nsize=9000", 0, None), (2, 4, End::Bytes(2 * 4096)));
    }

    #[test]
    fn percentages_are_of_the_file() {
        assert_eq!(range("size=20%", 0, FILE), (0, 20, End::Bytes(20 * 4096)));
        assert_eq!(range("offset=50%\nsize=10%", 0, FILE), (50, 60, End::Bytes(10 * 4096)));
        assert_eq!(range("offset=33%\noffset_align=32k\nsize=4k", 0, FILE), (40, 41, End::Bytes(4096)));
        assert!(refused("size=20%", None).contains("job `j`: a percentage needs a file that exists"));
    }

    #[test]
    fn each_clone_has_its_increment() {
        for clone in 0..3 {
            let (start, end, _) = range("size=16k\noffset=4k\noffset_increment=32k\nnumjobs=3", clone, None);
            assert_eq!((start, end), (1 + 8 * clone, 5 + 8 * clone));
        }
    }

    #[test]
    fn amount_and_time_end_a_job() {
        let second = Duration::from_secs(1);
        assert_eq!(range("size=40k\nloops=3", 0, None).2, End::Bytes(30 * 4096));
        assert_eq!(range("size=40k\nio_size=8k", 0, None).2, End::Bytes(2 * 4096));
        assert_eq!(range("size=40k\nnumber_ios=4", 0, None).2, End::Bytes(4 * 4096));
        assert_eq!(range("size=40k\nruntime=1", 0, None).2, End::TimeOrBytes(second, 10 * 4096));
        assert_eq!(range("size=40k\nruntime=1\ntime_based", 0, None).2, End::Time(second));
        assert_eq!(
            range("size=40k\nruntime=1\ntime_based\nnumber_ios=1", 0, None).2,
            End::TimeOrBytes(second, 4096)
        );
        assert!(refused("size=40k\ntime_based", None).contains("time_based needs a runtime"));
    }

    #[test]
    fn with_filesize_the_size_is_the_amount() {
        assert_eq!(range("filesize=80k\nsize=8k", 0, None), (0, 20, End::Bytes(2 * 4096)));
        assert_eq!(range("filesize=80k", 0, None), (0, 20, End::Bytes(20 * 4096)));
    }

    #[test]
    fn a_range_that_holds_nothing_is_refused() {
        assert!(refused("", None).contains("size is missing"));
        assert!(refused("size=1k", None).contains("holds no block of 4096 bytes"));
        assert!(refused("size=2p\noffset=16383p", None).contains("2^64"));
    }
}
