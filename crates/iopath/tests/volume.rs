//! The behaviour of a volume on a real file. The engine is that of `IOPATH_TEST_ENGINE`.

use crate::support::{KIB, filled, keeps_order, options, scratch};
use iopath::{AlignedBuf, BatchOptions, ErrorKind, IoMode, OpenError, Request, Volume};

#[test]
fn written_bytes_are_read_back_for_every_length() {
    let Some((_directory, path)) = scratch(8 << 20) else { return };
    let volume = Volume::open(&path, &options().write(true)).unwrap();
    for (seed, bytes) in [4 * KIB, 512 * KIB, 516 * KIB, 3 << 20].into_iter().enumerate() {
        let written = filled(bytes, seed as u64);
        volume.write_at(&written, 1 << 20).unwrap();
        let mut read = AlignedBuf::new(bytes).unwrap();
        assert_eq!(volume.read_at(&mut read, 1 << 20).unwrap(), bytes);
        assert!(read[..] == written[..], "{bytes} bytes");
    }
    volume.flush().unwrap();
    volume.write_durably_at(&filled(4 * KIB, 9), 0).unwrap();
    assert!(std::fs::read(&path).unwrap()[..4 * KIB] == filled(4 * KIB, 9)[..], "the file holds it");
}

#[test]
fn a_read_ends_with_the_file_and_a_write_does_not_extend_it() {
    let Some((_directory, path)) = scratch(0) else { return };
    std::fs::write(&path, vec![7; 5000]).unwrap();
    let volume = Volume::open(&path, &options().write(true)).unwrap();
    let mut buffer = filled(8 * KIB, 1);
    assert_eq!(volume.read_at(&mut buffer, 0).unwrap(), 5000);
    assert!(buffer[..5000].iter().all(|byte| *byte == 7));
    assert_eq!(volume.read_at(&mut buffer, 8 << 20).unwrap(), 0);
    let refused = volume.write_at(&buffer, 0).unwrap_err();
    assert!(refused.kind() == ErrorKind::PastEnd { size_bytes: 5000 }, "{refused}");
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 5000);
}

#[test]
fn a_raw_volume_accepts_whole_ranges_only() {
    let Some((_directory, path)) = scratch(64 << 10) else { return };
    let volume = Volume::open(&path, &options().mode(IoMode::Raw)).unwrap();
    let mut buffer = AlignedBuf::new(8 * KIB).unwrap();
    assert_eq!(volume.read_at(&mut buffer, 0).unwrap(), 8 * KIB);
    let refused = volume.read_at(&mut buffer, 60 << 10).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::PastEnd { size_bytes: 65536 });
    assert_eq!((refused.offset(), refused.bytes()), (61440, 8192));
}

#[test]
fn unaligned_io_is_refused_with_the_numbers() {
    let Some((_directory, path)) = scratch(64 << 10) else { return };
    let volume = Volume::open(&path, &options().write(true)).unwrap();
    let mut buffer = AlignedBuf::new(8 * KIB).unwrap();
    let block = volume.facts().block_bytes;
    let refused = volume.read_at(&mut buffer, 1).unwrap_err().to_string();
    assert!(refused.contains("offset 1 ") && refused.contains(&format!("multiples of {block}")), "{refused}");
    let refused = volume.write_at(&buffer[..100], 0).unwrap_err().to_string();
    assert!(refused.contains("100 bytes"), "{refused}");
    if volume.facts().memory_align_bytes > 1 {
        let refused = volume.read_at(&mut buffer[1..=4 * KIB], 0).unwrap_err();
        assert!(matches!(refused.kind(), ErrorKind::UnalignedMemory { .. }), "{refused}");
    }
}

#[test]
fn a_volume_is_read_only_unless_requested() {
    let Some((_directory, path)) = scratch(64 << 10) else { return };
    let volume = Volume::open(&path, &options()).unwrap();
    let buffer = filled(4 * KIB, 1);
    for refused in [volume.write_at(&buffer, 0), volume.flush(), volume.discard(0, 4096)] {
        assert!(refused.as_ref().is_err_and(|error| error.kind() == ErrorKind::ReadOnly), "{refused:?}");
    }
    let missing = Volume::open(path.with_extension("missing"), &options()).unwrap_err().to_string();
    assert!(missing.contains("volume.missing"), "{missing}");
    assert!(matches!(Volume::open(path.parent().unwrap(), &options()), Err(OpenError::Directory(_))));
    let unknown = Volume::open(&path, &options().elevator("lift")).unwrap_err().to_string();
    assert!(unknown.contains("lift") && unknown.contains("ascend"), "{unknown}");
    Volume::open(&path, &options().elevator("deadline:read_expire_ms=100")).unwrap();
    let wrong =
        Volume::open(&path, &options().elevator("deadline:read_expire_ms=x")).unwrap_err().to_string();
    assert!(wrong.contains("read_expire_ms=x is not a whole number"), "{wrong}");
}

#[test]
fn zeroed_and_discarded_ranges_lose_their_content() {
    let Some((_directory, path)) = scratch(1 << 20) else { return };
    let volume = Volume::open(&path, &options().write(true)).unwrap();
    volume.write_at(&filled(1 << 20, 1), 0).unwrap();
    match volume.write_zeroes(64 << 10, 128 << 10) {
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            eprintln!("skipped: the filesystem cannot zero a range");
            return;
        }
        zeroed => zeroed.unwrap(),
    }
    let mut read = AlignedBuf::new(1 << 20).unwrap();
    volume.read_at(&mut read, 0).unwrap();
    assert!(read[64 * KIB..192 * KIB].iter().all(|byte| *byte == 0));
    assert!(read[192 * KIB..] == filled(1 << 20, 1)[192 * KIB..], "more than the range was zeroed");
    volume.discard(512 << 10, 512 << 10).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 1 << 20, "a discard keeps the size");
}

#[test]
fn threads_read_and_write_concurrently() {
    let Some((_directory, path)) = scratch(4 << 20) else { return };
    let volume = &Volume::open(&path, &options().write(true)).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8_u64 {
            scope.spawn(move || {
                for round in 0..20 {
                    let written = filled(64 * KIB, thread * 100 + round);
                    volume.write_at(&written, thread * 512 * 1024).unwrap();
                    let mut read = AlignedBuf::new(64 * KIB).unwrap();
                    volume.read_at(&mut read, thread * 512 * 1024).unwrap();
                    assert!(read[..] == written[..], "thread {thread}, round {round}");
                }
            });
        }
    });
}

#[test]
fn a_batch_keeps_order_where_ranges_overlap() {
    let Some((_directory, path)) = scratch(1 << 20) else { return };
    for elevator in iopath::elevator::ELEVATORS {
        let volume = Volume::open(&path, &options().write(true).elevator(elevator.name)).unwrap();
        keeps_order(&volume, 7, |_, _| ());
    }
}

#[test]
fn a_full_batch_returns_the_buffer() {
    let Some((_directory, path)) = scratch(64 << 10) else { return };
    let volume = Volume::open(&path, &options()).unwrap();
    let mut batch = volume.batch(&BatchOptions::new(1, 4 * KIB)).unwrap();
    let buffer = batch.buffer().unwrap();
    batch.queue(Request::read(buffer, 0).bytes(4 * KIB).token(1)).unwrap();
    let other = volume.batch(&BatchOptions::new(1, 4 * KIB)).unwrap();
    let refused = batch.queue(Request::read(other.buffer().unwrap(), 0).bytes(4 * KIB).token(2)).unwrap_err();
    assert!(refused.error.kind() == ErrorKind::BatchFull { depth: 1 }, "{refused}");
    assert!(refused.buffer.is_some());
    assert_eq!(batch.wait().unwrap().unwrap().token, 1);
    assert!(batch.wait().unwrap().is_none());
}

#[test]
fn dropping_a_batch_waits_for_io_in_flight() {
    let Some((_directory, path)) = scratch(1 << 20) else { return };
    let volume = Volume::open(&path, &options()).unwrap();
    for _ in 0..20 {
        let mut batch = volume.batch(&BatchOptions::new(32, 16 * KIB)).unwrap();
        for token in 0..32 {
            let buffer = batch.buffer().unwrap();
            batch.queue(Request::read(buffer, token * 16384).bytes(16 * KIB).token(token)).unwrap();
        }
        batch.submit();
    }
}

#[test]
fn adjacent_requests_of_a_batch_are_one_request_and_one_system_call() {
    let Some((_directory, path)) = scratch(1 << 20) else { return };
    let volume = Volume::open(&path, &options()).unwrap();
    let mut batch = volume.batch(&BatchOptions::new(16, 4 * KIB)).unwrap();
    for token in 0..16 {
        let buffer = batch.buffer().unwrap();
        batch.queue(Request::read(buffer, token * 4096).bytes(4 * KIB).token(token)).unwrap();
    }
    while batch.wait().unwrap().is_some() {}
    assert_eq!((batch.stats().dispatched, batch.stats().back_merges()), (1, 15));
    if batch.engine() == "uring" {
        assert_eq!(batch.syscalls(), 1);
    }
}

#[test]
fn submitted_requests_continue_while_the_batch_is_only_polled() {
    let Some((_directory, path)) = scratch(1 << 20) else { return };
    let volume = Volume::open(&path, &options().depth(2)).unwrap();
    let mut batch = volume.batch(&BatchOptions::new(16, 4 * KIB)).unwrap();
    for token in 0..16 {
        let buffer = batch.buffer().unwrap();
        // No neighbours: eight times as many requests as the device accepts at once.
        batch.queue(Request::read(buffer, token * 16384).bytes(4 * KIB).token(token)).unwrap();
    }
    batch.submit();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while batch.in_flight() > 0 {
        assert!(std::time::Instant::now() < deadline, "{} never complete", batch.in_flight());
        if let Some(done) = batch.poll() {
            assert_eq!(done.result.unwrap(), 4 * KIB);
        }
    }
}

#[test]
fn a_request_longer_than_its_buffer_is_refused() {
    let Some((_directory, path)) = scratch(64 << 10) else { return };
    let volume = Volume::open(&path, &options()).unwrap();
    let mut batch = volume.batch(&BatchOptions::new(1, 4 * KIB)).unwrap();
    let refused =
        batch.queue(Request::read(batch.buffer().unwrap(), 0).bytes(64 * KIB).token(1)).unwrap_err();
    let buffer_bytes = refused.buffer.as_ref().unwrap().len() as u64;
    assert_eq!(refused.error.kind(), ErrorKind::BufferTooSmall { buffer_bytes });
    assert_eq!(refused.error.bytes(), 65536);
}

#[test]
fn a_depth_beyond_the_device_is_clamped() {
    let Some((_directory, path)) = scratch(64 << 10) else { return };
    let volume = Volume::open(&path, &options().depth(u32::MAX)).unwrap();
    assert_eq!(volume.read_at(&mut AlignedBuf::new(4 * KIB).unwrap(), 0).unwrap(), 4 * KIB);
}
