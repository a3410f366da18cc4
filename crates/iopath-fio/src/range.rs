//! The bytes that a clone of a job accesses: range, amount and blocks. Percentages need the size of the file.

use super::error::JobFileError;
use super::job::Job;
use iopath_bench::options::Amount;
use iopath_bench::workload::End;
use iopath_report::Rw;

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
        Self::within(job, clone, file_bytes, false)
    }

    /// As [`Range::of`]. `clamps`: a larger range ends with the file, which is a device.
    pub(super) fn within(
        job: &Job,
        clone: u64,
        file_bytes: Option<u64>,
        clamps: bool,
    ) -> Result<Self, JobFileError> {
        let (block_bytes, min_bytes) = (job.block_bytes(), job.min_bytes());
        let of_file = |percent: u32| {
            let file_bytes = job.file_bytes.or(file_bytes).ok_or_else(|| {
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
        // As in fio: a share of the size is of the whole file, and ends with it.
        let whole = job.file_bytes.or(file_bytes);
        let rest = whole.map(|whole| whole.saturating_sub(start_bytes));
        let range_bytes = match (job.size, rest) {
            (Some(Amount::Percent(percent)), Some(rest)) if percent < 100 => of_file(percent)?.min(rest),
            (Some(Amount::Bytes(size)), _) if job.file_bytes.is_none() => size,
            (_, Some(rest)) => rest,
            (Some(Amount::Percent(percent)), None) => of_file(percent)?,
            (Some(Amount::Bytes(_)) | None, None) => {
                return Err(job.problem("size is missing; add size, or name a file or device that exists"));
            }
        };
        // A file that exists may be smaller.
        let range_bytes =
            if clamps { rest.map_or(range_bytes, |rest| range_bytes.min(rest)) } else { range_bytes };
        // Smaller transfers fill the end of the range.
        let whole_bytes = range_bytes - range_bytes % min_bytes;
        if range_bytes < block_bytes {
            return Err(job.problem(format!(
                "the range of {range_bytes} bytes from offset {start_bytes} holds no block of {block_bytes} bytes; \
                 use a larger size or smaller blocks"
            )));
        }
        let end_bytes = start_bytes.checked_add(whole_bytes).ok_or_else(|| too_large(job))?;
        let share = |percent: u32| (u128::from(whole_bytes) * u128::from(percent) / 100) as u64;
        // The size is the amount of a pass, up to the range: a job with `filesize` accesses the whole file.
        let pass = match job.size {
            Some(Amount::Bytes(size)) => size.min(whole_bytes),
            Some(Amount::Percent(_)) | None => whole_bytes,
        };
        let once = match job.io_size {
            Some(Amount::Bytes(bytes)) => bytes,
            Some(Amount::Percent(percent)) => pass.min(share(percent)),
            None => pass,
        };
        let bytes = once.checked_mul(job.loops).ok_or_else(|| too_large(job))?;
        Ok(Self { start_bytes, end_bytes, end: end(job, bytes, block_bytes)? })
    }
}

/// When a job that transfers `bytes` ends.
fn end(job: &Job, bytes: u64, block_bytes: u64) -> Result<End, JobFileError> {
    // As in fio, a block that is trimmed and then written counts once.
    let transfers = if matches!(job.workload.rw, Rw::TrimWrite | Rw::RandTrimWrite) { 2 } else { 1 };
    let bytes = bytes.checked_mul(transfers).ok_or_else(|| too_large(job))?;
    let limit = job.ios.map(|ios| ios.saturating_mul(block_bytes));
    match (job.runtime, job.time_based) {
        (Some(time), true) => Ok(End::new(Some(time), limit)),
        // As in fio, `time_based` without a time is no condition.
        (time, _) => Ok(End::new(time, Some(limit.map_or(bytes, |limit| limit.min(bytes))))),
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
        assert_eq!(range("size=40k\ntime_based", 0, None).2, End::Bytes(10 * 4096), "no time, no condition");
    }

    #[test]
    fn with_filesize_the_size_is_the_amount() {
        assert_eq!(range("filesize=80k\nsize=8k", 0, None), (0, 20, End::Bytes(2 * 4096)));
        assert_eq!(range("filesize=80k", 0, None), (0, 20, End::Bytes(20 * 4096)));
    }

    #[test]
    fn amounts_are_those_of_fio() {
        let mib = |keys: &str, file_mib: Option<u64>| {
            let range = Range::of(&job(keys), 0, file_mib.map(|mib| mib << 20)).unwrap();
            let End::Bytes(bytes) = range.end else { panic!("{keys}: {:?}", range.end) };
            bytes as f64 / f64::from(1 << 20)
        };
        // Each measured with fio 3.33.
        for (keys, file_mib, expected) in [
            ("size=50%\nio_size=50%", Some(10), 2.5),
            ("offset=50%\nio_size=100%", Some(10), 5.0),
            ("offset=50%\nsize=60%", Some(10), 5.0),
            ("size=1m\nio_size=50%", None, 0.5),
            ("size=1m\nio_size=0", None, 1.0),
            ("filesize=64k\nsize=128k", None, 1.0 / 16.0),
            ("rw=trimwrite\nsize=1m", None, 2.0),
            ("rw=randtrimwrite\nsize=1m", None, 2.0),
            ("rw=randtrim\nsize=1m", None, 1.0),
        ] {
            let found = mib(keys, file_mib);
            assert!((found - expected).abs() < 1e-9, "{keys}: {found} MiB");
        }
        let clamped = Range::within(&job("size=4m"), 0, Some(1 << 20), true).unwrap();
        assert_eq!((clamped.end_bytes, clamped.end), (1 << 20, End::Bytes(1 << 20)));
    }

    #[test]
    fn a_range_that_holds_nothing_is_refused() {
        assert!(refused("", None).contains("size is missing"));
        assert!(refused("size=1k", None).contains("holds no block of 4096 bytes"));
        assert!(refused("size=2p\noffset=16383p", None).contains("2^64"));
    }
}
