//! What makes a measurement doubtful, in words: a cache that answered, a busy machine, repeats that disagree. Looks at
//! figures only, and changes none.

use iopath_os::target::Residency;

use crate::engine::Measured;
use crate::path::PathRow;
use crate::place::Place;
use crate::result::Repeat;
use crate::size::format_size;
use crate::stats::Summary;
use crate::workload::Workload;

/// Repeats that lie further apart than this (standard deviation over mean) are named.
const SPREAD_MAX: f64 = 0.10;

/// A machine that is busier than this with other things, for each CPU, is named.
const IDLE_BUSY_MAX: f64 = 0.05;

/// A device that read less than this share of what it had to has been helped by a cache.
const READ_SHARE_MIN: f64 = 0.90;

/// Below this a share of a few missing blocks means nothing, in bytes.
const READ_BYTES_MIN: f64 = (1u64 << 20) as f64;

/// What a measurement was made under.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Circumstances<'a> {
    pub(crate) workload: &'a Workload,
    pub(crate) row: &'a PathRow,
    pub(crate) place: &'a Place,
    /// Transfers in flight that there really were.
    pub(crate) depth: u32,
    pub(crate) idle_busy_rate: Option<f64>,
    pub(crate) cores: u32,
}

/// All that there is to say against a measurement.
pub(crate) fn warnings(
    under: &Circumstances,
    measured: &[(Measured, Option<Residency>)],
    repeats: &[Repeat],
) -> Vec<String> {
    let mut warnings: Vec<String> =
        measured.first().map_or_else(Vec::new, |(measured, _)| measured.warnings.clone());
    warnings.extend(depth(under));
    warnings.extend(not_cold(measured));
    warnings.extend(cache_answered(under, measured));
    warnings.extend(unwritten(under));
    warnings.extend(busy(under));
    warnings.extend(apart(repeats));
    warnings
}

fn depth(under: &Circumstances) -> Option<String> {
    let wanted = under.workload.io_depth;
    (under.depth < wanted).then(|| {
        format!(
            "path {} waits for each transfer: depth 1 was measured, not {wanted}; more jobs keep more in flight",
            under.row.name
        )
    })
}

/// Pages that could not be dropped before a cold repeat.
fn not_cold(measured: &[(Measured, Option<Residency>)]) -> Option<String> {
    let worst =
        measured.iter().filter_map(|(_, residency)| residency.as_ref()).max_by_key(|left| left.resident)?;
    (!worst.is_cold()).then(|| {
        format!(
            "not cold: {} ({:.1}%) of the target stayed in the page cache (mapped or in use by others)",
            format_size(worst.resident * worst.page_bytes),
            worst.resident_share() * 100.0
        )
    })
}

/// A cold read for which the disk read less than it had to.
fn cache_answered(under: &Circumstances, measured: &[(Measured, Option<Residency>)]) -> Option<String> {
    if under.workload.warm {
        return None;
    }
    let (mut wanted, mut read) = (0.0, 0.0);
    for (measured, _) in measured {
        wanted += least_device_bytes(under, measured.read_bytes);
        read += measured.device?.read_bytes as f64;
    }
    (wanted >= READ_BYTES_MIN && read < wanted * READ_SHARE_MIN).then(|| {
        format!(
            "the disk read {} of the {} that a cold run needs: a cache answered the rest",
            format_size(read as u64),
            format_size(wanted as u64)
        )
    })
}

/// What a disk has to read at least when nothing is cached before: everything on a direct path, every block once
/// through the page cache.
fn least_device_bytes(under: &Circumstances, read_bytes: u64) -> f64 {
    let (read, size) = (read_bytes as f64, under.place.size_bytes() as f64);
    if under.row.direct {
        read
    } else if under.workload.rw.is_random() {
        // n draws of N blocks find N(1 - (1 - 1/N)^n) different ones, about N(1 - e^(-n/N)).
        size * -(-read / size).exp_m1()
    } else {
        read.min(size)
    }
}

fn unwritten(under: &Circumstances) -> Option<String> {
    let offset = under.place.unwritten().filter(|_| under.workload.rw.reads())?;
    Some(format!(
        "the filesystem shows no written extent at offset {offset} of the scratch file: reads may not reach the disk"
    ))
}

fn busy(under: &Circumstances) -> Option<String> {
    let rate = under.idle_busy_rate?;
    (rate > IDLE_BUSY_MAX * f64::from(under.cores)).then(|| {
        format!("the machine was busy before the run: other programs used {rate:.2} of {} CPUs", under.cores)
    })
}

fn apart(repeats: &[Repeat]) -> Option<String> {
    let rates: Vec<f64> = repeats.iter().map(|repeat| repeat.bytes_per_second).collect();
    let spread = Summary::of(&rates)?.spread()?;
    (spread > SPREAD_MAX).then(|| {
        format!(
            "repeats lie {:.0}% apart (standard deviation over mean): measure longer or more often",
            spread * 100.0
        )
    })
}
