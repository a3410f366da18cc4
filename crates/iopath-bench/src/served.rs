//! Decides whether storage or memory served a cold measurement: compares the bytes that the workload has to transfer
//! with the bytes that the storage transferred. Does not read the counters: see `storage.rs`.

use std::ops::Add;

use iopath_report::result::ServedBy;
use iopath_report::size::format_size;

use crate::conditions::{Conditions, Repeated};
use crate::storage::StorageBytes;
use crate::workload::Distribution;

/// If storage transferred less than this share of the needed bytes, memory served the rest.
const SHARE_MIN: f64 = 0.90;

/// Below this number of bytes, the share is not significant: a few missing blocks change it.
const BYTES_MIN: f64 = (1u64 << 20) as f64;

/// If counters that include other programs show more than this multiple of the needed bytes, other programs used the
/// storage.
const OTHERS_MIN: f64 = 2.0;

/// The share of a target in the page cache that does not matter.
const RESIDENT_SHARE_MAX: f64 = 0.01;

/// The medium that served a measurement, and the reasons for that verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Served {
    pub(crate) by: ServedBy,
    /// Sentences that say why memory served the measurement, or why this is not known. Empty if storage served all.
    pub(crate) reasons: Vec<String>,
}

/// The verdict on a cold measurement. None for a warm measurement, because memory should serve it. Also none without a
/// target, and in virtual time.
pub(crate) fn served(conditions: &Conditions, repeats: &[Repeated]) -> Option<Served> {
    judge(conditions, repeats, conditions.target.storage().counts_others())
}

/// `counts_others`: the counters include transfers of other programs.
fn judge(conditions: &Conditions, repeats: &[Repeated], counts_others: bool) -> Option<Served> {
    if conditions.workload.warm || !conditions.path().needs_target || conditions.target.model().is_some() {
        return None;
    }
    let Some(sums) = Sums::of(conditions, repeats) else { return Some(uncounted(conditions, repeats)) };
    let Sums { needed, covered, .. } = sums;
    let mut reasons = Vec::new();
    if needed.read >= BYTES_MIN && covered.read < needed.read * SHARE_MIN {
        reasons.push(format!(
            "storage read {} of the {} that a cold run needs: memory (a cache, a hole, compression) served the rest",
            format_size(covered.read as u64),
            format_size(needed.read as u64)
        ));
    }
    if needed.written >= BYTES_MIN && covered.written < needed.written * SHARE_MIN {
        reasons.push(format!(
            "storage wrote {} of the {} that were written: memory (a cache, compression) absorbed the rest",
            format_size(covered.written as u64),
            format_size(needed.written as u64)
        ));
    }
    reasons.extend(read_again(conditions, repeats));
    reasons.extend(rewritten(conditions, repeats));
    if !reasons.is_empty() {
        return Some(Served { by: ServedBy::Memory, reasons });
    }
    if conditions.target.storage().is_memory() {
        return Some(Served { by: ServedBy::Memory, reasons: vec!["the target lies in memory".to_owned()] });
    }
    if needed.read < BYTES_MIN && needed.written < BYTES_MIN {
        return Some(uncounted(conditions, repeats));
    }
    let others = sums.of_others().filter(|_| counts_others);
    let by = if others.is_some() { ServedBy::Unknown } else { ServedBy::Storage };
    Some(Served { by, reasons: others.into_iter().collect() })
}

/// The verdict if no counter shows the transfers of the storage: judges by the pages that stayed in the page cache.
fn uncounted(conditions: &Conditions, repeats: &[Repeated]) -> Served {
    let reads_pages = conditions.workload.rw.reads() && !conditions.path().direct && !conditions.path().cache;
    let resident = repeats.iter().filter_map(|repeat| repeat.resident);
    let bytes =
        resident.map(|found| if reads_pages { found.all() } else { found.bytes_beneath }).max().unwrap_or(0);
    let share = bytes as f64 / conditions.target.all_bytes() as f64;
    let mut reasons = Vec::new();
    if conditions.workload.rw.reads() && share > RESIDENT_SHARE_MAX {
        reasons.push(format!(
            "not cold: {} ({:.1}%) of the target stayed in the page cache",
            format_size(bytes),
            share * 100.0
        ));
    }
    reasons.extend(read_again(conditions, repeats));
    reasons.extend(rewritten(conditions, repeats));
    let by = if reasons.is_empty() { ServedBy::Unknown } else { ServedBy::Memory };
    Served { by, reasons }
}

/// Bytes in each direction, in fractions.
#[derive(Debug, Clone, Copy, Default)]
struct Bytes {
    read: f64,
    written: f64,
}

/// The bytes of all repeats.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    /// The minimum that the storage has to transfer, if no cache holds any of the bytes at the start.
    needed: Bytes,
    /// The bytes that the storage transferred.
    transferred: Bytes,
    /// The transferred bytes that the repeats needed. Extra transfers in one repeat, perhaps of other programs, do not
    /// compensate missing transfers in another.
    covered: Bytes,
}

impl Sums {
    /// None where no counter shows the transfers.
    fn of(conditions: &Conditions, repeats: &[Repeated]) -> Option<Self> {
        repeats.iter().try_fold(Self::default(), |sum, Repeated { measured, .. }| {
            let StorageBytes { read, written } = measured.storage?;
            let transferred = Bytes { read: read as f64, written: written as f64 };
            let needed = Bytes {
                read: least_bytes(conditions, measured.read_bytes),
                written: least_bytes(conditions, measured.written_bytes),
            };
            let covered = Bytes {
                read: transferred.read.min(needed.read),
                written: transferred.written.min(needed.written),
            };
            Some(Self {
                needed: sum.needed + needed,
                transferred: sum.transferred + transferred,
                covered: sum.covered + covered,
            })
        })
    }

    /// A sentence if the storage transferred many more bytes than the run needed.
    fn of_others(&self) -> Option<String> {
        let Self { needed, transferred, .. } = self;
        let directions =
            [("read", needed.read, transferred.read), ("wrote", needed.written, transferred.written)];
        let most = directions
            .into_iter()
            .find(|(_, needed, transferred)| *needed >= BYTES_MIN && *transferred > needed * OTHERS_MIN);
        most.map(|(verb, needed, transferred)| {
            format!(
                "storage {verb} {} where the run needs {}: other programs used it, so memory may have served the run",
                format_size(transferred as u64),
                format_size(needed as u64)
            )
        })
    }
}

impl Add for Bytes {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { read: self.read + other.read, written: self.written + other.written }
    }
}

/// The minimum of bytes that the storage has to transfer for `bytes` of a run: all of them on a direct path, each block
/// once through a page cache. With another distribution than the uniform one, the number of different blocks is not
/// known.
fn least_bytes(conditions: &Conditions, bytes: u64) -> f64 {
    let (bytes, size) = (bytes as f64, conditions.target.all_bytes() as f64);
    if conditions.path().direct {
        bytes
    } else if conditions.workload.rw.is_random() && conditions.workload.distribution != Distribution::Uniform
    {
        0.0
    } else if conditions.workload.rw.is_random() {
        // n draws of N blocks find N(1 - (1 - 1/N)^n) different ones, about N(1 - e^(-n/N)).
        size * -(-bytes / size).exp_m1()
    } else {
        bytes.min(size)
    }
}

/// A reason if a cold run reads more bytes than the target has, through a cache that can serve all passes after the
/// first. None if the storage read the bytes again.
fn read_again(conditions: &Conditions, repeats: &[Repeated]) -> Option<String> {
    let most = most_again(conditions, repeats, |bytes| bytes.read, |measured| measured.measured.read_bytes)?;
    Some(format!(
        "the run read {} from a target of {}: memory may have served all passes after the first; use a larger target, \
         a shorter --runtime, or --warm to measure hits",
        format_size(most),
        format_size(conditions.target.all_bytes())
    ))
}

/// A reason if a run writes more bytes than the target has, through a cache that replaces bytes before storage writes
/// them.
fn rewritten(conditions: &Conditions, repeats: &[Repeated]) -> Option<String> {
    let most =
        most_again(conditions, repeats, |bytes| bytes.written, |measured| measured.measured.written_bytes)?;
    Some(format!(
        "the run wrote {} to a target of {}: later writes replaced cached bytes before storage wrote them; use a larger \
         target or a shorter --runtime",
        format_size(most),
        format_size(conditions.target.all_bytes())
    ))
}

/// The most bytes that one repetition moved in several passes over the target while storage transferred fewer.
fn most_again(
    conditions: &Conditions,
    repeats: &[Repeated],
    transferred: fn(StorageBytes) -> u64,
    moved: fn(&Repeated) -> u64,
) -> Option<u64> {
    let has_cache = conditions.path().is_cached();
    let again = repeats.iter().filter(|repeat| {
        let bytes = moved(repeat);
        let by_storage = repeat.measured.storage.map_or(0, transferred);
        bytes > conditions.target.all_bytes() && (by_storage as f64) < bytes as f64 * SHARE_MIN
    });
    again.map(moved).max().filter(|_| has_cache && !conditions.workload.warm)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conditions::fixtures::{MIB, host, repeated};
    use crate::paths::find_path;
    use crate::storage::Resident;
    use crate::target::Target;
    use crate::workload::Workload;
    use iopath_report::Rw;

    /// The verdict on a workload over 100 MiB.
    fn verdict(workload: &Workload, repeats: &[Repeated]) -> Option<Served> {
        let (target, host) = (Target::none(100 * MIB), host(0.0));
        let conditions = Conditions { workload, target: &target, host: Some(&host) };
        served(&conditions, repeats)
    }

    fn workload(path: &str, rw: Rw) -> Workload {
        Workload { path: find_path(path).unwrap(), rw, ..Workload::default() }
    }

    fn by_storage() -> Served {
        Served { by: ServedBy::Storage, reasons: Vec::new() }
    }

    fn reason(served: Option<Served>) -> String {
        let served = served.unwrap();
        assert_eq!((served.by, served.reasons.len()), (ServedBy::Memory, 1), "{served:?}");
        served.reasons[0].clone()
    }

    /// A repetition that reads `bytes`, of which storage transfers `by_storage`.
    fn read(bytes: u64, by_storage: u64) -> Repeated {
        repeated([bytes, 0], Some([by_storage, 0]))
    }

    fn written(bytes: u64, by_storage: u64) -> Repeated {
        repeated([0, bytes], Some([0, by_storage]))
    }

    #[test]
    fn reads_that_storage_did_not_transfer_were_served_by_memory() {
        let helped = [read(100 * MIB, 100 * MIB), read(100 * MIB, 10 * MIB)];
        assert_eq!(
            reason(verdict(&Workload::default(), &helped)),
            "storage read 110 MiB of the 200 MiB that a cold run needs: memory (a cache, a hole, compression) served the rest"
        );
        assert_eq!(verdict(&Workload { warm: true, ..Workload::default() }, &helped), None);
        assert_eq!(verdict(&workload("null", Rw::Read), &helped), None);
        assert_eq!(verdict(&Workload::default(), &helped[..1]), Some(by_storage()));
    }

    #[test]
    fn random_blocks_drawn_twice_need_one_transfer_through_the_page_cache() {
        // 100 MiB of random reads in 100 MiB access 1 - 1/e of them.
        let random = [read(100 * MIB, 63 * MIB)];
        assert_eq!(verdict(&workload("kernel-buffered", Rw::RandRead), &random), Some(by_storage()));
        reason(verdict(&workload("kernel-direct", Rw::RandRead), &random));
    }

    #[test]
    fn several_passes_over_a_cached_target_are_noticed() {
        let (twice, once) = (|| read(200 * MIB, 100 * MIB), || read(100 * MIB, 100 * MIB));
        for path in ["kernel-buffered", "kernel-mmap", "iopath-buffered"] {
            for rw in [Rw::Read, Rw::RandRead] {
                assert_eq!(
                    reason(verdict(&workload(path, rw), &[once(), twice()])),
                    "the run read 200 MiB from a target of 100 MiB: memory may have served all passes after the first; \
                     use a larger target, a shorter --runtime, or --warm to measure hits",
                    "{path}"
                );
            }
            assert_eq!(verdict(&workload(path, Rw::Read), &[read(200 * MIB, 200 * MIB)]), Some(by_storage()));
            assert_eq!(verdict(&workload(path, Rw::Read), &[once()]), Some(by_storage()), "{path}: once");
        }
        let direct = reason(verdict(&workload("kernel-direct", Rw::Read), &[twice()]));
        assert!(direct.starts_with("storage read 100 MiB"), "{direct}");
    }

    #[test]
    fn rewrites_that_a_cache_absorbs_are_noticed() {
        for path in ["kernel-mmap", "kernel-buffered", "iopath-buffered"] {
            let said = reason(verdict(&workload(path, Rw::Write), &[written(3000 * MIB, 150 * MIB)]));
            assert!(
                said.starts_with("the run wrote 2.93 GiB to a target of 100 MiB: later writes replaced"),
                "{said}"
            );
            assert_eq!(
                verdict(&workload(path, Rw::Write), &[written(300 * MIB, 300 * MIB)]),
                Some(by_storage())
            );
            assert_eq!(
                verdict(&workload(path, Rw::Write), &[written(100 * MIB, 100 * MIB)]),
                Some(by_storage())
            );
        }
        let said = reason(verdict(&workload("kernel-direct", Rw::Write), &[written(200 * MIB, 0)]));
        assert!(said.starts_with("storage wrote 0 bytes of the 200 MiB"), "{said}");
    }

    #[test]
    fn pages_that_stayed_decide_only_where_no_counter_shows_transfers() {
        let with = |storage, resident| Repeated {
            resident: Some(Resident { bytes: resident, bytes_beneath: 0 }),
            ..repeated([100 * MIB, 0], storage)
        };
        let buffered = workload("kernel-buffered", Rw::Read);
        assert_eq!(
            reason(verdict(&buffered, &[with(None, 25 * MIB)])),
            "not cold: 25 MiB (25.0%) of the target stayed in the page cache"
        );
        assert_eq!(verdict(&buffered, &[with(Some([100 * MIB, 0]), 25 * MIB)]), Some(by_storage()));
        let unknown = Some(Served { by: ServedBy::Unknown, reasons: Vec::new() });
        assert_eq!(verdict(&buffered, &[with(None, 0)]), unknown);
        assert_eq!(verdict(&workload("kernel-direct", Rw::Read), &[with(None, 25 * MIB)]), unknown);
        assert_eq!(verdict(&workload("kernel-direct", Rw::Write), &[with(None, 0)]), unknown);
    }

    #[test]
    fn transfers_of_one_repeat_do_not_make_up_for_another() {
        // Another program read 100 MiB during the first repeat.
        let disturbed = [read(100 * MIB, 110 * MIB), read(100 * MIB, 10 * MIB)];
        let said = reason(verdict(&Workload::default(), &disturbed));
        assert!(said.starts_with("storage read 110 MiB of the 200 MiB"), "{said}");
    }

    #[test]
    fn counters_that_include_other_programs_prove_only_missing_transfers() {
        let judge = |repeats: &[Repeated]| {
            let (target, host, workload) = (Target::none(100 * MIB), host(0.0), Workload::default());
            judge(&Conditions { workload: &workload, target: &target, host: Some(&host) }, repeats, true)
        };
        assert_eq!(judge(&[read(100 * MIB, 105 * MIB)]), Some(by_storage()));
        reason(judge(&[read(100 * MIB, 80 * MIB)]));
        let Some(Served { by: ServedBy::Unknown, reasons }) = judge(&[read(100 * MIB, 300 * MIB)]) else {
            panic!("another program transferred most of it");
        };
        assert!(reasons[0].contains("storage read 300 MiB where the run needs 100 MiB"), "{reasons:?}");
        assert_eq!(verdict(&Workload::default(), &[read(100 * MIB, 300 * MIB)]), Some(by_storage()));
    }

    #[test]
    fn a_few_blocks_prove_nothing() {
        let small = [read(64 << 10, 0)];
        let unknown = Some(Served { by: ServedBy::Unknown, reasons: Vec::new() });
        assert_eq!(verdict(&workload("kernel-direct", Rw::Read), &small), unknown);
    }
}
