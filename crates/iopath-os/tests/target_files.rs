//! Properties of real files in a temporary directory: filesystem, extents, cached pages, alignment of direct I/O.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt, symlink};
use std::path::Path;

use iopath_os::target::extents::{ExtentError, ExtentFlags, extents, first_unwritten};
use iopath_os::target::{Backing, DioAlignment, DioError, Kind, Target, TargetError, drop_cached, residency};
use tempfile::{NamedTempFile, tempdir};

/// The directory of the build: `/tmp` is often in memory.
const ON_DISK: &str = env!("CARGO_TARGET_TMPDIR");

fn file_on_disk(bytes: usize) -> NamedTempFile {
    let mut file = NamedTempFile::new_in(ON_DISK).expect("temporary file");
    // Not zeroes, which a filesystem may store as a hole.
    let noise: Vec<u8> = (0..bytes).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    file.write_all(&noise).expect("room for the file");
    file.as_file().sync_all().expect("the disk takes it");
    file
}

fn is_on_disk(path: &Path) -> bool {
    Target::inspect(path).is_ok_and(|target| target.backing.disk().is_some())
}

#[test]
fn a_link_leads_to_the_file_with_its_size_and_filesystem() {
    let dir = tempdir().expect("temporary directory");
    let file = dir.path().join("data");
    fs::write(&file, vec![1; 12_345]).expect("room for the file");
    let link = dir.path().join("link");
    symlink(&file, &link).expect("links work here");
    let target = Target::inspect(&link).expect("it is there");
    assert_eq!(target.path, file.canonicalize().expect("it is there"));
    assert_eq!((target.kind, target.size_bytes, target.device), (Kind::RegularFile, 12_345, None));
    let filesystem = target.filesystem.expect("procfs is mounted where tests run");
    assert!(target.path.starts_with(&filesystem.mount_point), "{filesystem:?}");
    assert!(filesystem.available_bytes.is_some());
    match target.backing {
        Backing::Disk(disk) => assert!(disk.size_bytes > 0 && !disk.name.contains('/'), "{disk:?}"),
        Backing::None { reason } => assert!(!reason.is_empty()),
        backing => panic!("{backing:?} is neither"),
    }
    let dir = Target::inspect(dir.path()).expect("it is there");
    assert_eq!((dir.kind, dir.size_bytes, dir.allocated_bytes), (Kind::Directory, 0, None));
}

#[test]
fn a_filesystem_in_memory_has_no_disk() {
    let Ok(target) = Target::inspect("/dev/shm") else { return eprintln!("skipped: no /dev/shm") };
    if target.filesystem.as_ref().is_none_or(|fs| fs.name != "tmpfs") {
        return eprintln!("skipped: /dev/shm is not a tmpfs of its own");
    }
    assert_eq!(target.backing, Backing::None { reason: "tmpfs lies in memory".to_owned() });
}

#[test]
fn a_file_without_blocks_is_refused_with_its_kind() {
    let missing = Target::inspect("/nowhere/at all").expect_err("not there");
    assert!(missing.to_string().contains("/nowhere/at all"), "{missing}");
    assert!(matches!(missing, TargetError::Stat { .. }));
    let null = Target::inspect("/dev/null").expect_err("no blocks");
    assert!(null.to_string().contains("/dev/null is a character device"), "{null}");
}

#[test]
fn direct_reads_succeed_as_discovered() {
    let file = file_on_disk(1 << 17);
    let alignment = match DioAlignment::discover(file.path()) {
        Ok(alignment) => alignment,
        Err(DioError::Refused { filesystem, .. }) => {
            return eprintln!("skipped: {filesystem} refuses O_DIRECT");
        }
        Err(error) => panic!("{error}"),
    };
    assert!(alignment.memory_bytes.is_power_of_two() && alignment.offset_bytes.is_power_of_two());
    let direct =
        OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(file.path()).expect("as discovered");
    let step = alignment.offset_bytes as usize;
    let mut memory = vec![0; 1 << 18];
    let start = memory.as_ptr().align_offset(alignment.memory_bytes as usize);
    let buffer = &mut memory[start..start + step];
    assert!(alignment.permits(buffer.as_ptr().addr(), step as u64, step));
    assert_eq!(direct.read_at(buffer, step as u64).expect("aligned"), step);
    let mut expected = vec![0; step];
    file.as_file().read_exact_at(&mut expected, step as u64).expect("buffered reads work");
    assert_eq!(buffer, expected);
}

#[test]
fn a_file_without_permission_to_read_is_not_reported_as_unaligned() {
    let error = DioAlignment::discover("/nowhere/at all").expect_err("not there");
    assert!(matches!(error, DioError::Open { .. }), "{error}");
    if let Err(error) = DioAlignment::discover("/proc/self/status") {
        assert!(matches!(error, DioError::Refused { ref filesystem, .. } if filesystem == "proc"), "{error}");
    }
}

#[test]
fn extents_cover_written_data_and_show_holes_and_reserved_space() {
    let file = file_on_disk(1 << 20);
    let found = match extents(file.as_file()) {
        Err(ExtentError::Unsupported { source }) => return eprintln!("skipped: no FIEMAP here: {source}"),
        found => found.expect("FIEMAP works here"),
    };
    assert_eq!(first_unwritten(&found, 1 << 20), None, "{found:?}");
    assert!(found.last().is_some_and(|extent| extent.flags.intersects(ExtentFlags::LAST)));

    file.as_file().set_len(4 << 20).expect("sparse files work here");
    let found = extents(file.as_file()).expect("as before");
    assert_eq!(first_unwritten(&found, 4 << 20), Some(1 << 20), "a hole");

    if let Err(error) =
        rustix::fs::fallocate(file.as_file(), rustix::fs::FallocateFlags::empty(), 1 << 20, 3 << 20)
    {
        return eprintln!("skipped: no fallocate here: {error}");
    }
    let found = extents(file.as_file()).expect("as before");
    assert!(found.iter().any(|extent| extent.flags.intersects(ExtentFlags::UNWRITTEN)), "{found:?}");
    assert_eq!(first_unwritten(&found, 4 << 20), Some(1 << 20), "reserved, never written");
}

#[test]
fn all_extents_of_a_file_with_many_are_found() {
    let file = NamedTempFile::new_in(ON_DISK).expect("temporary file");
    let (count, stride) = (700_u64, 64 << 10);
    for at in 0..count {
        file.as_file().write_all_at(&[1; 4096], at * stride).expect("room for the file");
    }
    let found = match extents(file.as_file()) {
        Err(ExtentError::Unsupported { source }) => return eprintln!("skipped: no FIEMAP here: {source}"),
        found => found.expect("FIEMAP works here"),
    };
    let starts: Vec<u64> = found.iter().map(|extent| extent.logical).collect();
    assert_eq!(starts, (0..count).map(|at| at * stride).collect::<Vec<_>>());
}

#[test]
fn cached_pages_are_counted_and_dropped() {
    let bytes = 1 << 20;
    let file = file_on_disk(bytes);
    if !is_on_disk(file.path()) {
        return eprintln!("skipped: these files lie in memory, or on no disk that sysfs names");
    }
    let file = file.as_file();
    let cold = drop_cached(file, 0..u64::MAX).expect("it is ours");
    assert!(cold.is_cold(), "{cold:?}");
    assert_eq!(cold.pages * cold.page_bytes, bytes as u64);

    let mut content = Vec::new();
    File::open(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(file)))
        .and_then(|mut again| again.read_to_end(&mut content))
        .expect("it is ours");
    let warm = residency(file, 0..u64::MAX).expect("it is ours");
    assert_eq!((warm.resident, warm.dirty.unwrap_or(0)), (warm.pages, 0));

    file.write_all_at(&[9; 5000], 0).expect("it is ours");
    let dirty = residency(file, 0..5000).expect("it is ours");
    assert_eq!(dirty.resident, 5000_u64.div_ceil(dirty.page_bytes));
    assert!(dirty.dirty.is_none_or(|pages| pages > 0), "{dirty:?}");
    assert!(drop_cached(file, 0..u64::MAX).expect("it is ours").is_cold(), "written back, then dropped");
    assert_eq!(residency(file, 77..77).expect("it is ours").pages, 0);
    assert_eq!(residency(file, u64::MAX - 1..u64::MAX).expect("it is ours").pages, 0, "past the end");
}
