//! The version of a file, as statx(2) shows it: whether the bytes of a file can have changed since an earlier look.
//! Opens nothing, and reads no byte.
//!
//! Every change of the bytes sets ctime, which no program can set. This proves something only if
//!
//! - the filesystem is local, has a time of birth, and sets ctime also when a mapped page becomes writable again after
//!   its write-back, which a direct read begins ([`FILESYSTEMS`]);
//! - a direct read of this file is one: some filesystems read some files through the page cache instead; and
//! - ctime was old enough at the first look ([`Look::is_proof`]). Two changes within the granularity of the clock have
//!   the same ctime, unless the kernel notes that the first was looked at (multigrain timestamps, Linux 6.13). And a
//!   write sets ctime when it begins, not when its bytes arrive.

use std::fs::File;
use std::sync::OnceLock;
use std::time::Duration;

use rustix::fs::{AtFlags, FileType, Statx, StatxFlags, StatxTimestamp, fstatfs, statx};
use rustix::time::{ClockId, Timespec, clock_getres, clock_gettime};

use super::{FileId, mount_id};

/// The magic numbers of the filesystems that are known to do so: ext4, XFS, btrfs.
const FILESYSTEMS: &[u64] = &[0xEF53, 0x5846_5342, 0x9123_683E];

const WANTED: StatxFlags =
    StatxFlags::BASIC_STATS.union(StatxFlags::BTIME).union(StatxFlags::MNT_ID).union(StatxFlags::DIOALIGN);

/// Attributes of files whose direct reads may find other bytes than the mappings of programs: compressed, encrypted,
/// with verification of reads, on memory (`STATX_ATTR_COMPRESSED`, `_ENCRYPTED`, `_VERITY`, `_DAX`).
const ATTRIBUTES_REFUSED: u64 = 0x4 | 0x800 | 0x0010_0000 | 0x0020_0000;

/// Without a lock, a write of another program may be in progress. It is assumed to end within this time.
const WRITE_MAX: Duration = Duration::from_secs(2);

/// The version of a regular file. Two looks at an unchanged file find equal versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileVersion {
    id: FileId,
    mount: u64,
    born: Time,
    size_bytes: u64,
    modified: Time,
    changed: Time,
}

/// Seconds and nanoseconds.
type Time = (i64, u32);

/// A look at the version of a file.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    /// The version.
    pub version: FileVersion,
    /// The time from ctime to the last tick of the clock before the look. Zero if ctime is later.
    quiet: Duration,
    clock: Clock,
}

/// The clock of timestamps.
#[derive(Debug, Clone, Copy)]
struct Clock {
    /// The time between two ticks.
    tick: Duration,
    /// A change after a look has a later ctime than the file had at the look.
    is_multigrain: bool,
}

impl FileVersion {
    /// Looks at an open file. `None` if its version proves nothing: it is no regular file with direct I/O, its
    /// filesystem is not known to set ctime with every change, or statx(2) does not report all that is needed.
    pub fn look(file: &File) -> Option<Look> {
        let filesystem = fstatfs(file).ok()?.f_type as u64;
        if FILESYSTEMS.contains(&filesystem) { Self::look_again(file) } else { None }
    }

    /// Looks at an open file at which there was an earlier look.
    pub fn look_again(file: &File) -> Option<Look> {
        let clock = clock();
        // Before the look: a later change cannot have an earlier time.
        let now = clock_gettime(ClockId::RealtimeCoarse);
        let version = Self::of(&statx(file, "", AtFlags::EMPTY_PATH, WANTED).ok()?)?;
        Some(Look { version, quiet: since(version.changed, now), clock })
    }

    fn of(stat: &Statx) -> Option<Self> {
        let needed = StatxFlags::TYPE
            | StatxFlags::INO
            | StatxFlags::SIZE
            | StatxFlags::MTIME
            | StatxFlags::CTIME
            | StatxFlags::BTIME
            | StatxFlags::DIOALIGN;
        let is_complete = stat.stx_mask & needed.bits() == needed.bits();
        let is_regular = FileType::from_raw_mode(stat.stx_mode.into()) == FileType::RegularFile;
        let is_refused = stat.stx_attributes.bits() & ATTRIBUTES_REFUSED != 0;
        let is_direct = stat.stx_dio_offset_align != 0 && !is_refused;
        (is_complete && is_regular && is_direct).then_some(Self {
            id: FileId::from(stat),
            mount: mount_id(stat)?,
            born: time(stat.stx_btime),
            size_bytes: stat.stx_size,
            modified: time(stat.stx_mtime),
            changed: time(stat.stx_ctime),
        })
    }

    /// The identity of the file.
    pub const fn id(&self) -> FileId {
        self.id
    }

    /// The length of the file.
    pub const fn size_bytes(&self) -> u64 {
        self.size_bytes
    }
}

impl Look {
    /// Whether any later change of the bytes changes the version. `is_locked`: no other program writes to the file at
    /// the time of the look.
    pub fn is_proof(&self, is_locked: bool) -> bool {
        if is_locked {
            self.clock.is_multigrain || self.quiet >= self.clock.tick
        } else {
            self.quiet >= WRITE_MAX
        }
    }
}

fn clock() -> Clock {
    static CLOCK: OnceLock<Clock> = OnceLock::new();
    *CLOCK.get_or_init(|| {
        let is_multigrain = std::fs::read_to_string("/proc/sys/kernel/osrelease")
            .is_ok_and(|release| is_since(&release, (6, 13)));
        Clock { tick: duration(clock_getres(ClockId::RealtimeCoarse)), is_multigrain }
    })
}

/// Whether the release of a kernel is at least this one.
fn is_since(release: &str, least: (u32, u32)) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().ok());
    let mut next = || numbers.next().flatten().unwrap_or(0);
    (next(), next()) >= least
}

const fn time(stamp: StatxTimestamp) -> Time {
    (stamp.tv_sec, stamp.tv_nsec)
}

fn duration(time: Timespec) -> Duration {
    Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
}

/// The time from `then` to `now`; zero if `then` is later.
fn since(then: Time, now: Timespec) -> Duration {
    let nanos = |seconds: i64, nanos: i64| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
    let passed = nanos(now.tv_sec, now.tv_nsec) - nanos(then.0, then.1.into());
    Duration::from_nanos(u64::try_from(passed.max(0)).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    fn look(quiet_ms: u64, is_multigrain: bool) -> Look {
        let time = (0, 0);
        let id = FileId { device: super::super::DeviceNumber { major: 1, minor: 1 }, inode: 1 };
        let version = FileVersion { id, mount: 0, born: time, size_bytes: 0, modified: time, changed: time };
        let clock = Clock { tick: Duration::from_millis(4), is_multigrain };
        Look { version, quiet: Duration::from_millis(quiet_ms), clock }
    }

    #[test]
    fn a_recent_change_proves_nothing() {
        for is_multigrain in [false, true] {
            for (quiet_ms, is_proof) in [(0, false), (1999, false), (2000, true), (u64::MAX, true)] {
                assert_eq!(look(quiet_ms, is_multigrain).is_proof(false), is_proof, "{quiet_ms} ms");
            }
        }
        // With a lock, only the granularity counts.
        assert!(look(0, true).is_proof(true));
        assert!(!look(3, false).is_proof(true) && look(4, false).is_proof(true));
    }

    #[test]
    fn a_time_in_the_future_is_recent() {
        let now = Timespec { tv_sec: 100, tv_nsec: 5 };
        assert_eq!(since((100, 6), now), Duration::ZERO);
        assert_eq!(since((i64::MAX, 0), now), Duration::ZERO);
        assert_eq!(since((99, 999_999_999), now), Duration::from_nanos(6));
        assert_eq!(since((i64::MIN, 0), now), Duration::from_nanos(u64::MAX));
    }

    #[test]
    fn releases_of_kernels_are_compared_by_number() {
        for (release, is_newer) in [
            ("6.13.0", true),
            ("6.13-rc1", true),
            ("7.0", true),
            ("10.1.2-generic", true),
            ("6.12.99-fc", false),
            ("5.15.0-91-generic", false),
            ("", false),
            ("x", false),
        ] {
            assert_eq!(is_since(release, (6, 13)), is_newer, "{release}");
        }
    }

    #[test]
    fn each_change_of_a_file_changes_its_version() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, [1; 100]).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let Some(mut last) = FileVersion::look(&file) else {
            return eprintln!("skipped: the filesystem of {} proves nothing", directory.path().display());
        };
        assert_eq!(FileVersion::look(&File::open(&path).unwrap()).unwrap().version, last.version);
        assert_eq!((last.version.size_bytes(), last.version.id()), (100, FileId::of(&path).unwrap()));
        let restore = || file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        restore();
        for change in [
            &(|| file.write_all_at(&[2], 50).unwrap()) as &dyn Fn(),
            &|| file.set_len(99).unwrap(),
            &restore,
            &|| file.set_len(200).unwrap(),
        ] {
            if !last.clock.is_multigrain {
                std::thread::sleep(last.clock.tick * 2);
            }
            last = FileVersion::look(&file).unwrap();
            change();
            assert_ne!(FileVersion::look(&file).unwrap().version, last.version);
        }
        let other = directory.path().join("other");
        std::fs::write(&other, [1; 200]).unwrap();
        std::fs::rename(&other, &path).unwrap();
        let last = FileVersion::look(&file).unwrap();
        assert_ne!(FileVersion::look(&File::open(&path).unwrap()).unwrap().version, last.version);
    }
}
