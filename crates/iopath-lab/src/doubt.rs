//! What makes a measurement doubtful, in words: a cache that answered, a busy machine, repeats that disagree. Looks at
//! figures only, and changes none.

use iopath_os::target::Residency;

use crate::engine::Measured;
use crate::path::Capabilities;
use crate::result::{CacheUse, Host, Repeat};
use crate::size::format_size;
use crate::stats::Summary;
use crate::target::Target;
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
    pub(crate) target: &'a Target,
    pub(crate) host: &'a Host,
}

impl Circumstances<'_> {
    fn path(&self) -> Capabilities {
        self.workload.path.capabilities
    }
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
    warnings.extend(not_cold(under, measured));
    warnings.extend(cache_answered(under, measured));
    warnings.extend(went_round(under, measured));
    warnings.extend(not_warm(under, measured));
    warnings.extend(unwritten(under));
    warnings.extend(compressed(under));
    warnings.extend(busy(under));
    warnings.extend(apart(repeats));
    warnings
}

fn depth(under: &Circumstances) -> Option<String> {
    let wanted = under.workload.depth.get();
    (under.workload.depth_in_flight() < wanted).then(|| {
        format!(
            "path {} waits for each transfer: depth 1 was measured, not {wanted}; more jobs keep more in flight",
            under.workload.path.name
        )
    })
}

/// Pages that could not be dropped before a cold repeat, on a path that would read them.
fn not_cold(under: &Circumstances, measured: &[(Measured, Option<Residency>)]) -> Option<String> {
    let worst =
        measured.iter().filter_map(|(_, residency)| residency.as_ref()).max_by_key(|left| left.resident)?;
    (!worst.is_cold() && !under.path().direct && !under.path().cache).then(|| {
        format!(
            "not cold: {} ({:.1}%) of the target stayed in the page cache, as far as this user may see",
            format_size(worst.resident * worst.page_bytes),
            worst.resident_share() * 100.0
        )
    })
}

/// Hits that were none.
fn not_warm(under: &Circumstances, measured: &[(Measured, Option<Residency>)]) -> Option<String> {
    let used: CacheUse = measured.iter().map(|(measured, _)| measured.cache).sum::<Option<_>>()?;
    let (missed, all) = (used.misses + used.joins, used.hits + used.misses + used.joins);
    (under.workload.warm && missed > 0).then(|| {
        format!("not warm: {missed} of {all} pages were not in the cache; a larger --cache would hold them")
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

/// A cold read of more than there is, through a cache that had it by then. Not where the disk read it all again.
fn went_round(under: &Circumstances, measured: &[(Measured, Option<Residency>)]) -> Option<String> {
    let Circumstances { target, workload, .. } = *under;
    let has_cache = under.path().is_cached();
    let most = measured
        .iter()
        .map(|(measured, _)| measured)
        .filter(|measured| {
            let disk_read = measured.device.map_or(0.0, |device| device.read_bytes as f64);
            measured.read_bytes > target.size_bytes()
                && disk_read < measured.read_bytes as f64 * READ_SHARE_MIN
        })
        .max_by_key(|measured| measured.read_bytes)?;
    (has_cache && !workload.warm).then(|| {
        format!(
            "{} were read of {}: all but the first reads may have come from the cache; use a larger target, a shorter \
             --runtime, or --warm to mean it",
            format_size(most.read_bytes),
            format_size(target.size_bytes())
        )
    })
}

/// What a disk has to read at least when nothing is cached before: everything on a direct path, every block once
/// through the page cache.
fn least_device_bytes(under: &Circumstances, read_bytes: u64) -> f64 {
    let (read, size) = (read_bytes as f64, under.target.size_bytes() as f64);
    if under.path().direct {
        read
    } else if under.workload.rw.is_random() {
        // n draws of N blocks find N(1 - (1 - 1/N)^n) different ones, about N(1 - e^(-n/N)).
        size * -(-read / size).exp_m1()
    } else {
        read.min(size)
    }
}

fn unwritten(under: &Circumstances) -> Option<String> {
    let offset = under.target.unwritten().filter(|_| under.workload.rw.reads())?;
    Some(format!(
        "the file has a hole or an unwritten extent at offset {offset}: reads there do not reach the disk"
    ))
}

/// Bytes of somebody else's file may be compressible; a scratch file's are not.
fn compressed(under: &Circumstances) -> Option<String> {
    let filesystem = under.target.info()?.filesystem.as_ref().filter(|_| !under.target.is_scratch())?;
    filesystem
        .compresses()
        .then(|| format!("{} compresses: the disk moves fewer bytes than are counted here", filesystem.name))
}

fn busy(under: &Circumstances) -> Option<String> {
    let (busy, cores) = (under.host.idle_busy_cpus?, under.host.cores);
    (busy > IDLE_BUSY_MAX * f64::from(cores)).then(|| {
        format!("the machine was busy before the run: other programs used {busy:.2} of {cores} CPUs")
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::DiskCounters;
    use crate::job::latencies;
    use crate::paths::find_path;
    use crate::result::{Cpu, Latency};
    use crate::workload::Rw;

    const MIB: u64 = 1 << 20;

    fn host(idle_busy_cpus: f64) -> Host {
        let (kernel, cpu) = ("6.1".to_owned(), "cpu".to_owned());
        Host { kernel, cpu, cores: 2, memory_bytes: 1, idle_busy_cpus: Some(idle_busy_cpus) }
    }

    fn measured(read_bytes: u64, disk_read_bytes: u64) -> (Measured, Option<Residency>) {
        let device = DiskCounters { read_bytes: disk_read_bytes, ..DiskCounters::default() };
        let measured = Measured {
            read_bytes,
            written_bytes: 0,
            ios: 1,
            seconds: 1.0,
            first_ended_seconds: 1.0,
            latency_ns: latencies(),
            user_seconds: 0.0,
            system_seconds: 0.0,
            machine_busy_seconds: None,
            device: Some(device),
            cache: None,
            warnings: Vec::new(),
        };
        (measured, Some(Residency { page_bytes: 4096, pages: 100, resident: 0, dirty: None }))
    }

    fn repeat(bytes_per_second: f64) -> Repeat {
        let cpu = Cpu {
            user_seconds: 0.0,
            system_seconds: 0.0,
            machine_seconds: 0.0,
            seconds_per_gib: 0.0,
            microseconds_per_io: 0.0,
        };
        let latency_ns = Latency { min: 0, mean: 0.0, p50: 0, p90: 0, p99: 0, p999: 0, max: 0 };
        Repeat {
            bytes: 1,
            ios: 1,
            seconds: 1.0,
            first_ended_seconds: 1.0,
            bytes_per_second,
            iops: 1.0,
            latency_ns,
            cpu,
            device: None,
            cache: None,
            cached_before_bytes: None,
        }
    }

    /// The warnings of a workload over 100 MiB.
    fn said(
        workload: &Workload,
        idle: f64,
        measured: &[(Measured, Option<Residency>)],
        rates: [f64; 2],
    ) -> Vec<String> {
        let (target, host) = (Target::none(100 * MIB), host(idle));
        let under = Circumstances { workload, target: &target, host: &host };
        warnings(&under, measured, &rates.map(repeat))
    }

    #[test]
    fn nothing_is_said_of_a_good_measurement() {
        let good = [measured(100 * MIB, 100 * MIB), measured(100 * MIB, 99 * MIB)];
        assert_eq!(said(&Workload::default(), 0.05, &good, [100.0, 105.0]), Vec::<String>::new());
    }

    #[test]
    fn a_cache_that_answers_is_noticed() {
        let helped = [measured(100 * MIB, 100 * MIB), measured(100 * MIB, 10 * MIB)];
        let said_of = |workload: &Workload| said(workload, 0.0, &helped, [1.0, 1.0]);
        assert_eq!(
            said_of(&Workload::default()),
            ["the disk read 110 MiB of the 200 MiB that a cold run needs: a cache answered the rest"]
        );
        assert_eq!(said_of(&Workload { warm: true, ..Workload::default() }), Vec::<String>::new());
    }

    #[test]
    fn blocks_drawn_twice_need_not_be_read_again_through_the_page_cache() {
        let workload =
            |path: &str, rw| Workload { path: find_path(path).unwrap(), rw, ..Workload::default() };
        // 100 MiB of random reads in 100 MiB touch 1 - 1/e of them.
        let random = [measured(100 * MIB, 63 * MIB)];
        assert_eq!(
            said(&workload("kernel-buffered", Rw::RandRead), 0.0, &random, [1.0, 1.0]),
            Vec::<String>::new()
        );
        assert_eq!(said(&workload("kernel-direct", Rw::RandRead), 0.0, &random, [1.0, 1.0]).len(), 1);
    }

    #[test]
    fn a_cold_run_that_goes_round_a_cached_target_is_noticed() {
        let (twice, once) = (|| measured(200 * MIB, 100 * MIB), || measured(100 * MIB, 100 * MIB));
        let said_of = |path: &str, rw, warm, measured: &[_]| {
            let workload = Workload { path: find_path(path).unwrap(), rw, warm, ..Workload::default() };
            said(&workload, 0.0, measured, [1.0, 1.0])
        };
        for path in ["kernel-buffered", "kernel-mmap", "iopath-buffered"] {
            for rw in [Rw::Read, Rw::RandRead] {
                assert_eq!(
                    said_of(path, rw, false, &[once(), twice()]),
                    [
                        "200 MiB were read of 100 MiB: all but the first reads may have come from the cache; use a larger \
                         target, a shorter --runtime, or --warm to mean it"
                    ],
                    "{path}"
                );
            }
            let again = [measured(200 * MIB, 200 * MIB)];
            assert_eq!(
                said_of(path, Rw::Read, false, &again),
                Vec::<String>::new(),
                "{path}: the disk read all"
            );
            assert_eq!(said_of(path, Rw::Read, false, &[once()]), Vec::<String>::new(), "{path}: once");
            assert_eq!(said_of(path, Rw::Read, true, &[twice()]), Vec::<String>::new(), "{path}: warm");
        }
        let direct = said_of("kernel-direct", Rw::Read, false, &[twice()]);
        assert!(direct.len() == 1 && direct[0].starts_with("the disk read 100 MiB"), "{direct:?}");
    }

    #[test]
    fn pages_that_stayed_a_busy_machine_and_a_wide_spread_are_named() {
        let mut warm = measured(MIB, MIB);
        warm.1 = Some(Residency { page_bytes: 4096, pages: 100, resident: 25, dirty: None });
        let said = said(&Workload::default(), 0.5, &[warm], [100.0, 150.0]);
        assert_eq!(
            said,
            [
                "not cold: 100 KiB (25.0%) of the target stayed in the page cache, as far as this user may see",
                "the machine was busy before the run: other programs used 0.50 of 2 CPUs",
                "repeats lie 28% apart (standard deviation over mean): measure longer or more often",
            ]
        );
    }
}
