//! How volumes are opened and closed: files of the program, new files, and volumes that cannot or must not be flushed.

use crate::support::{filled, options, scratch};
use iopath::mapped::{FileLayout, FileMap};
use iopath::source::Extent;
use iopath::testing::{Fault, Faults, MemoryConfig, MemoryDisk};
use iopath::{
    AlignedBuf, BatchOptions, ErrorKind, IoError, IoMode, Op, OpenError, Options, Unaligned, Volume,
};
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;

const PAGE: usize = 4096;

#[test]
fn a_file_of_the_program_becomes_a_volume() {
    let Some((_directory, path)) = scratch(1 << 16) else { return };
    for mode in [IoMode::Direct, IoMode::Buffered] {
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let number = file.as_raw_fd();
        let volume = Volume::from_file(file, &options().write(true).mode(mode)).unwrap();
        assert_eq!(volume.descriptor().map(|descriptor| descriptor.as_raw_fd()), Some(number));
        assert_eq!((volume.size_bytes(), &volume.facts().path), (1 << 16, &path.canonicalize().unwrap()));
        let page = filled(PAGE, 1);
        volume.write_at(&page, 8192).unwrap();
        volume.close().unwrap();
        assert_eq!(std::fs::read(&path).unwrap()[8192..8192 + PAGE], page[..]);
    }
}

#[test]
fn a_file_without_the_right_to_write_is_refused() {
    let Some((directory, path)) = scratch(1 << 16) else { return };
    let read_only = File::open(&path).unwrap();
    let refused = Volume::from_file(read_only.try_clone().unwrap(), &options().write(true)).unwrap_err();
    assert!(matches!(refused, OpenError::System { .. }), "{refused}");
    assert!(refused.to_string().contains("not opened for reading and writing"), "{refused}");
    Volume::from_file(read_only, &options()).unwrap();
    let appending = OpenOptions::new().read(true).append(true).open(&path).unwrap();
    let refused = Volume::from_file(appending.try_clone().unwrap(), &options().write(true)).unwrap_err();
    assert!(refused.to_string().contains("opened for appending"), "{refused}");
    Volume::from_file(appending, &options()).unwrap();
    assert!(matches!(
        Volume::from_file(File::open(directory.path()).unwrap(), &options()).unwrap_err(),
        OpenError::Directory(_)
    ));
}

#[test]
fn a_file_without_a_path_becomes_a_volume() {
    let Some((_directory, path)) = scratch(1 << 16) else { return };
    let options = options().write(true).lock(true).unaligned(Unaligned::Bounce).extend(true);
    for (mode, is_replaced) in [(IoMode::Direct, false), (IoMode::Buffered, false), (IoMode::Buffered, true)]
    {
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        if is_replaced {
            std::fs::write(&path, b"another file").unwrap();
        }
        let own = file.try_clone().unwrap();
        let volume = Volume::from_file(file, &options.clone().mode(mode)).unwrap();
        let bytes = filled(5_000, 2);
        volume.write_at(&bytes, 70_001).unwrap();
        volume.resize(80_000).unwrap();
        volume.flush().unwrap();
        let mut found = vec![0; bytes.len()];
        volume.read_exact_at(&mut found, 70_001).unwrap();
        assert_eq!(found[..], bytes[..]);
        drop(volume);
        assert_eq!(own.metadata().unwrap().len(), 80_000);
        assert_eq!(path.exists(), is_replaced, "the volume writes to its file, not to its former path");
    }
    assert_eq!(std::fs::read(&path).unwrap(), b"another file");
}

/// Databases close and open a file again: the kernel would release the lock only after it has ended the ring.
#[test]
fn a_closed_volume_has_released_its_lock() {
    let Some((_directory, path)) = scratch(1 << 16) else { return };
    let try_lock = || {
        // A lock of the process also conflicts with a lock of an open file of the same process.
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        rustix::fs::fcntl_lock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive)
    };
    if try_lock().is_err() {
        return eprintln!("skipped: the filesystem has no locks");
    }
    let second = path.with_extension("second");
    std::fs::copy(&path, &second).unwrap();
    let layout = FileLayout { block_bytes: 4096, size_bytes: 1 << 16, capacity_bytes: 1 << 16 };
    let map = FileMap::fresh("extent", &layout).unwrap();
    for round in 0..80 {
        let mode = [IoMode::Direct, IoMode::Buffered][round % 2];
        let options = options().write(true).lock(true).mode(mode);
        let volume = match round / 2 % 4 {
            0 => Volume::open(&path, &options),
            1 => Volume::open_stripe(&[&second, &path], 4096, &options),
            2 => Volume::open_mapped(&path, &map, &options),
            _ => Volume::open_mapped_stripe(&[&path, &second], 4096, &map, &options),
        };
        let volume = volume.unwrap();
        volume.write_at(&filled(PAGE, round as u64), 0).unwrap();
        try_lock().unwrap_err();
        let clone = volume.clone();
        drop(volume);
        try_lock().unwrap_err();
        drop(clone);
        try_lock().unwrap();
    }
}

#[test]
fn a_new_file_must_not_exist_and_gets_the_permissions_of_the_options() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("new");
    let new = options().create_new(1 << 16).file_mode(0o600);
    match Volume::open(&path, &new) {
        Ok(volume) => assert_eq!(volume.size_bytes(), 1 << 16),
        Err(OpenError::Direct(error)) => return eprintln!("skipped: {error}"),
        Err(error) => panic!("{error}"),
    }
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let refused = Volume::open(&path, &new).unwrap_err();
    assert_eq!(std::io::Error::from(refused).kind(), std::io::ErrorKind::AlreadyExists);
    Volume::open(&path, &options().create(1 << 17)).unwrap();
}

fn failing() -> (MemoryDisk, Faults, Volume) {
    let disk = MemoryDisk::new(&MemoryConfig::of_bytes(1 << 16)).unwrap();
    let faults = Faults::new(1);
    let buffered = Options::new().write(true).mode(IoMode::Buffered).cache_bytes(1 << 17).faults(&faults);
    let volume = Volume::memory(&disk, &buffered).unwrap();
    (disk, faults, volume)
}

fn first_byte(disk: &MemoryDisk) -> u8 {
    let mut page = AlignedBuf::new(PAGE).unwrap();
    Volume::memory(disk, &Options::new()).unwrap().read_exact_at(&mut page, 0).unwrap();
    page[0]
}

#[test]
fn a_volume_whose_flush_fails_is_returned_and_closes_when_it_succeeds() {
    let (disk, faults, volume) = failing();
    volume.write_at(&[7; PAGE], 0).unwrap();
    faults.add(Fault::error(IoError::NoSpace).on(Op::Write));
    let not_closed = volume.try_close().unwrap_err();
    assert_eq!(not_closed.error.kind(), ErrorKind::Io(IoError::NoSpace));
    faults.stop();
    not_closed.volume.try_close().unwrap();
    assert_eq!(first_byte(&disk), 7);
}

#[test]
fn an_abandoned_volume_writes_nothing_back() {
    let (disk, faults, volume) = failing();
    volume.write_at(&[1; PAGE], 0).unwrap();
    volume.flush().unwrap();
    // No write-back before the end: the failed flush is that of a commit, and nothing of it reaches the medium.
    let page = Extent::from_bytes(0, PAGE as u64).unwrap();
    faults.add(Fault::error(IoError::NoSpace).on(Op::Write).within(page));
    volume.write_at(&[2; PAGE], 0).unwrap();
    volume.flush().unwrap_err();
    let batch = volume.batch(&BatchOptions::new(1, PAGE)).unwrap();
    let volume = volume.abandon().unwrap_err();
    drop(batch);
    volume.abandon().unwrap();
    faults.stop();
    assert_eq!(first_byte(&disk), 1);
}

#[test]
fn a_warm_thread_and_a_descriptor_of_each_source() {
    let disk = MemoryDisk::new(&MemoryConfig::of_bytes(1 << 16)).unwrap();
    for options in [Options::new(), Options::new().mode(IoMode::Buffered).cache_bytes(1 << 17)] {
        let volume = Volume::memory(&disk, &options).unwrap();
        assert!(volume.descriptor().is_none());
        std::thread::scope(|scope| scope.spawn(|| volume.warm()).join().unwrap()).unwrap();
        volume.read_exact_at(&mut AlignedBuf::new(PAGE).unwrap(), 0).unwrap();
    }
}

#[test]
fn the_directory_entry_of_a_file_becomes_durable_where_it_is_now() {
    let Some((directory, path)) = scratch(1 << 16) else { return };
    let volume = Volume::open(&path, &options().write(true)).unwrap();
    volume.sync_directory().unwrap();
    let moved = directory.path().join("moved");
    std::fs::create_dir(&moved).unwrap();
    std::fs::rename(&path, moved.join("volume")).unwrap();
    volume.sync_directory().unwrap();
    std::fs::remove_file(moved.join("volume")).unwrap();
    // Another file of that name is not the file of the volume.
    for has_another in [false, true] {
        if has_another {
            std::fs::write(moved.join("volume"), b"another file").unwrap();
        }
        let refused = volume.sync_directory().unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Directory, "{refused}");
    }
}

#[test]
fn each_member_of_a_stripe_has_a_directory_entry_and_memory_has_none() {
    let Some((_directory, path)) = scratch(1 << 16) else { return };
    let second = path.with_extension("second");
    std::fs::copy(&path, &second).unwrap();
    let stripe = Volume::open_stripe(&[&path, &second], 4096, &options()).unwrap();
    stripe.sync_directory().unwrap();
    std::fs::remove_file(&second).unwrap();
    assert_eq!(stripe.sync_directory().unwrap_err().kind(), ErrorKind::Directory);
    let disk = MemoryDisk::new(&MemoryConfig::of_bytes(1 << 16)).unwrap();
    let refused = Volume::memory(&disk, &Options::new()).unwrap().sync_directory().unwrap_err();
    assert_eq!((refused.kind(), refused.errno()), (ErrorKind::Directory, 95));
    assert!(refused.to_string().contains("only a regular file"), "{refused}");
}
