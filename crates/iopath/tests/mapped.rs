//! Volumes on mapped files: every mapping in every mode, on a disk in memory, on a file with the engine of
//! `IOPATH_TEST_ENGINE`, and on a stripe.

use crate::support::{KIB, filled, keeps_order, options, scratch};
use iopath::mapped::{Boundary, FileLayout, FileMap, MAPPERS};
use iopath::testing::{Fault, Faults, MemoryConfig, MemoryDisk};
use iopath::{
    AlignedBuf, BatchOptions, ErrorKind, IoError, IoMode, Op, OpenError, Options, Request, Unaligned, Volume,
};

const BLOCK: u64 = 4096;

/// A disk, and a new file of `size_bytes` on it for each row of `MAPPERS`.
fn each(size_bytes: u64, test: impl Fn(&MemoryDisk, &FileMap)) {
    for kind in MAPPERS {
        let disk = disk(4 * size_bytes.next_multiple_of(BLOCK));
        let layout = FileLayout { block_bytes: 4096, size_bytes, capacity_bytes: disk.size_bytes() };
        test(&disk, &FileMap::fresh(kind.name, &layout).unwrap());
    }
}

fn disk(bytes: u64) -> MemoryDisk {
    let disk =
        MemoryDisk::new(&MemoryConfig { cache_bytes: 1 << 20, ..MemoryConfig::of_bytes(bytes) }).unwrap();
    // Stale bytes everywhere, so that a mistake is visible.
    let raw = Volume::memory(&disk, &Options::new().write(true)).unwrap();
    raw.write_at(&vec![0x5a; bytes as usize], 0).unwrap();
    raw.flush().unwrap();
    disk
}

/// The modes of a volume.
fn modes() -> [(&'static str, Options); 4] {
    let options = Options::new().write(true);
    [
        ("direct", options.clone()),
        ("raw", options.clone().mode(IoMode::Raw)),
        ("bounced", options.clone().unaligned(Unaligned::Bounce)),
        ("buffered", options.mode(IoMode::Buffered).cache_bytes(64 * 4096)),
    ]
}

/// The content of a new file: zeroes, except where the file is the disk.
fn new_bytes(file: &FileMap, bytes: usize) -> Vec<u8> {
    vec![if file.is_fixed() { 0x5a } else { 0 }; bytes]
}

#[test]
fn every_mapping_in_every_mode_reads_written_bytes_and_zeroes_elsewhere() {
    each(1 << 20, |disk, file| {
        for (mode, options) in modes() {
            let name = format!("{}, {mode}", file.mapper());
            let volume = Volume::memory_mapped(disk, file, &options).unwrap();
            let mut expected = AlignedBuf::new(1 << 20).unwrap();
            volume.read_at(&mut expected, 0).unwrap();
            for (number, (offset, bytes)) in
                [(0, 4 * KIB), (900 * KIB, 124 * KIB), (33 * KIB, KIB), (48 * KIB, 200 * KIB)]
                    .into_iter()
                    .enumerate()
            {
                let data = filled(bytes, number as u64);
                volume.write_at(&data, offset as u64).unwrap();
                expected[offset..offset + bytes].copy_from_slice(&data);
            }
            volume.flush().unwrap();
            volume.write_durably_at(&filled(8 * KIB, 9), 400 << 10).unwrap();
            expected[400 * KIB..408 * KIB].copy_from_slice(&filled(8 * KIB, 9));
            volume.write_zeroes(50 << 10, 20 << 10).unwrap();
            expected[50 * KIB..70 * KIB].fill(0);
            let mut read = AlignedBuf::new(1 << 20).unwrap();
            assert_eq!(volume.read_at(&mut read, 0).unwrap(), 1 << 20, "{name}");
            assert!(read[..] == expected[..], "{name}");
            drop(volume);
            let volume = Volume::memory_mapped(disk, file, &Options::new()).unwrap();
            volume.read_at(&mut read, 0).unwrap();
            assert!(read[..] == expected[..], "{name}, opened again");
        }
    });
}

#[test]
fn a_new_file_and_punched_holes_read_as_zeroes() {
    each(256 << 10, |disk, file| {
        let volume = Volume::memory_mapped(disk, file, &Options::new().write(true)).unwrap();
        let mut read = AlignedBuf::new(256 * KIB).unwrap();
        volume.read_at(&mut read, 0).unwrap();
        assert!(read[..] == new_bytes(file, 256 * KIB), "{}", file.mapper());
        if file.is_fixed() {
            return;
        }
        volume.write_at(&filled(256 * KIB, 1), 0).unwrap();
        volume.discard(10 << 10, 100 << 10).unwrap();
        let mut expected = filled(256 * KIB, 1);
        expected[10 * KIB..110 * KIB].fill(0);
        volume.read_at(&mut read, 0).unwrap();
        assert!(read[..] == expected[..], "{}", file.mapper());
        // Other bytes are written to the freed space.
        volume.write_at(&filled(90 * KIB, 2), 16 << 10).unwrap();
        expected[16 * KIB..106 * KIB].copy_from_slice(&filled(90 * KIB, 2));
        volume.read_at(&mut read, 0).unwrap();
        assert!(read[..] == expected[..], "{}", file.mapper());
    });
}

#[test]
fn a_batch_keeps_order_where_ranges_overlap() {
    each(1 << 20, |disk, file| {
        let volume =
            Volume::memory_mapped(disk, file, &Options::new().write(true).elevator("deadline")).unwrap();
        for seed in 0..2 {
            keeps_order(&volume, seed, |_, _| ());
        }
        let buffered = Options::new().write(true).direct(false).cache_bytes(64 * 4096);
        keeps_order(&Volume::memory_mapped(disk, file, &buffered).unwrap(), 3, |_, _| ());
    });
}

#[test]
fn sizes_inside_a_block_keep_each_byte_and_grow_with_zeroes() {
    for (mode, options) in modes().into_iter().filter(|(mode, _)| ["bounced", "buffered"].contains(mode)) {
        each(10_000, |disk, file| {
            if file.is_fixed() {
                return;
            }
            let name = format!("{}, {mode}", file.mapper());
            let volume = Volume::memory_mapped(disk, file, &options).unwrap();
            let data = filled(10_000, 1);
            volume.write_at(&data, 0).unwrap();
            volume.flush().unwrap();
            volume.resize(7_001).unwrap();
            volume.resize(30_001).unwrap();
            assert_eq!((volume.size_bytes(), file.size_bytes()), (30_001, 30_001));
            let mut read = vec![1; 40_000];
            assert_eq!(volume.read_at(&mut read, 0).unwrap(), 30_001, "{name}");
            assert!(read[..7_001] == data[..7_001], "{name}");
            assert!(read[7_001..30_001].iter().all(|byte| *byte == 0), "{name}: no stale byte");
            volume.write_at(&data[..999], 29_002).unwrap();
            volume.close().unwrap();
            let volume = Volume::memory_mapped(disk, file, &options).unwrap();
            assert_eq!(volume.read_at(&mut read, 29_000).unwrap(), 1_001, "{name}");
            assert!(read[..2] == [0, 0] && read[2..1_001] == data[..999], "{name}");
        });
    }
}

#[test]
fn an_identity_mapping_keeps_its_size() {
    let disk = disk(1 << 20);
    let layout = FileLayout { block_bytes: 4096, size_bytes: 1 << 19, capacity_bytes: 1 << 20 };
    let file = FileMap::fresh("identity", &layout).unwrap();
    let volume = Volume::memory_mapped(&disk, &file, &Options::new().write(true)).unwrap();
    assert!(volume.resize(5).is_err_and(|error| error.kind() == ErrorKind::Resize { size_bytes: 5 }));
    volume.discard(0, 4096).unwrap();
}

#[test]
fn a_full_device_is_an_error_and_freed_space_can_be_written() {
    for mapper in ["extent", "indirect"] {
        let disk = disk(64 << 10);
        let layout = FileLayout { block_bytes: 4096, size_bytes: 1 << 20, capacity_bytes: 64 << 10 };
        let file = FileMap::fresh(mapper, &layout).unwrap();
        let volume = Volume::memory_mapped(&disk, &file, &Options::new().write(true)).unwrap();
        volume.write_at(&filled(40 * KIB, 1), 0).unwrap();
        let full = volume.write_at(&filled(80 * KIB, 2), 512 << 10);
        let kind = full.as_ref().unwrap_err().kind();
        assert!(kind == ErrorKind::Io(IoError::NoSpace), "{mapper}: {full:?}");
        let mut read = AlignedBuf::new(40 * KIB).unwrap();
        volume.read_at(&mut read, 0).unwrap();
        assert!(read[..] == filled(40 * KIB, 1)[..], "{mapper}");
        volume.discard(0, 1 << 20).unwrap();
        volume.write_at(&filled(40 * KIB, 3), 40 << 10).unwrap();
        volume.read_at(&mut read, 40 << 10).unwrap();
        assert!(read[..] == filled(40 * KIB, 3)[..], "{mapper}");
    }
}

#[test]
fn a_write_that_fails_shows_no_stale_byte() {
    for mapper in ["extent", "indirect"] {
        let (disk, faults) = (disk(1 << 20), Faults::new(1));
        let layout = FileLayout { block_bytes: 16 << 10, size_bytes: 256 << 10, capacity_bytes: 1 << 20 };
        let layout = FileLayout {
            block_bytes: if mapper == "indirect" { 4096 } else { layout.block_bytes },
            ..layout
        };
        let file = FileMap::fresh(mapper, &layout).unwrap();
        let options = Options::new().write(true).faults(&faults).request_bytes_max(8 << 10);
        let volume = Volume::memory_mapped(&disk, &file, &options).unwrap();
        faults.add(Fault::error(IoError::Media).on(Op::Write).one_in(3));
        let data = filled(64 * KIB, 1);
        let failed = (0..32)
            .filter(|part| volume.write_at(&data[..6 * KIB], part * (8 << 10) + 1024).is_err())
            .count();
        assert!(failed > 3, "{mapper}: {failed} of 32 failed");
        faults.clear();
        let mut read = AlignedBuf::new(256 * KIB).unwrap();
        volume.read_at(&mut read, 0).unwrap();
        for (part, read) in read.chunks(8 * KIB).enumerate() {
            for (found, written) in read[KIB..7 * KIB].chunks(512).zip(data[..6 * KIB].chunks(512)) {
                assert!(found == written || found == [0; 512], "{mapper}: part {part} has stale bytes");
            }
            assert!(read[..KIB] == [0; KIB] && read[7 * KIB..] == [0; KIB], "{mapper}: around part {part}");
        }
    }
}

#[test]
fn a_metadata_block_that_cannot_be_saved_fails_the_flush_until_it_can() {
    let (disk, faults) = (disk(4 << 20), Faults::new(1));
    let layout = FileLayout { block_bytes: 1024, size_bytes: 2 << 20, capacity_bytes: 4 << 20 };
    let file = FileMap::fresh("indirect", &layout).unwrap();
    let volume = Volume::memory_mapped(&disk, &file, &Options::new().write(true).faults(&faults)).unwrap();
    let data = filled(1 << 20, 1);
    volume.write_at(&data, 0).unwrap();
    faults.add(Fault::error(IoError::Media).on(Op::Write));
    assert!(volume.flush().is_err(), "metadata could not be written");
    assert!(volume.flush().is_err(), "and still cannot be written");
    faults.clear();
    // The mapper has dropped the block from memory; the disk has an old version.
    file.with_mapper(|mapper| mapper.forget_metadata());
    let mut read = AlignedBuf::new(1 << 20).unwrap();
    volume.read_at(&mut read, 0).unwrap();
    assert!(read[..] == data[..]);
    volume.flush().unwrap();
    file.with_mapper(|mapper| mapper.forget_metadata());
    volume.read_at(&mut read, 0).unwrap();
    assert!(read[..] == data[..], "read through indirect blocks from the disk");
}

#[test]
fn threads_fill_parts_of_the_same_blocks_concurrently() {
    for mapper in ["extent", "indirect"] {
        let Some((_directory, path)) = scratch(8 << 20) else { return };
        let layout = FileLayout { block_bytes: 4096, size_bytes: 1 << 20, capacity_bytes: 8 << 20 };
        let file = FileMap::fresh(mapper, &layout).unwrap();
        let volume = &Volume::open_mapped(&path, &file, &options().write(true)).unwrap();
        let unit = volume.facts().block_bytes as usize;
        std::thread::scope(|scope| {
            for thread in 0..4 {
                scope.spawn(move || {
                    for round in 0..64 {
                        let number = round * 4 + thread;
                        volume.write_at(&filled(unit, number as u64), (number * unit) as u64).unwrap();
                        if round % 8 == 7 {
                            volume.flush().unwrap();
                        }
                    }
                });
            }
        });
        for number in 0..256 {
            let mut read = AlignedBuf::new(unit).unwrap();
            volume.read_at(&mut read, (number * unit) as u64).unwrap();
            assert!(read[..] == filled(unit, number as u64)[..], "{mapper}: part {number}");
        }
    }
}

#[test]
fn readers_continue_while_their_blocks_are_punched_and_rewritten() {
    for mapper in ["extent", "indirect"] {
        let disk = disk(1 << 20);
        let layout = FileLayout { block_bytes: 4096, size_bytes: 512 << 10, capacity_bytes: 1 << 20 };
        let file = FileMap::fresh(mapper, &layout).unwrap();
        let volume = &Volume::memory_mapped(&disk, &file, &Options::new().write(true)).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for round in 0..200_u64 {
                    let offset = round % 8 * (64 << 10);
                    volume.discard(offset, 64 << 10).unwrap();
                    volume.write_at(&vec![(round % 8) as u8 + 1; 64 * KIB], offset).unwrap();
                }
            });
            for _ in 0..2 {
                scope.spawn(move || {
                    let mut read = AlignedBuf::new(64 * KIB).unwrap();
                    for _ in 0..100 {
                        for part in 0..8_u64 {
                            volume.read_at(&mut read, part * (64 << 10)).unwrap();
                            let is_of_the_file = |byte: &u8| *byte == 0 || u64::from(*byte) == part + 1;
                            assert!(
                                read.iter().all(is_of_the_file),
                                "{mapper}: another's bytes in part {part}"
                            );
                        }
                    }
                });
            }
        });
    }
}

#[test]
fn a_mapped_file_can_lie_on_files_and_stripes() {
    let Some((directory, _)) = scratch(4096) else { return };
    let paths: Vec<_> = (0..3).map(|member| directory.path().join(format!("member-{member}"))).collect();
    for mapper in ["extent", "indirect"] {
        let layout = FileLayout { block_bytes: 4096, size_bytes: 4 << 20, capacity_bytes: 8 << 20 };
        let file = FileMap::fresh(mapper, &layout).unwrap();
        let made = options().create(12 << 20).boundary(Boundary::EveryBlock);
        let volume = Volume::open_mapped_stripe(&paths, 64 << 10, &file, &made).unwrap();
        let data = filled(3 << 20, 1);
        volume.write_at(&data, 4096).unwrap();
        volume.flush().unwrap();
        file.with_mapper(|mapper| mapper.forget_metadata());
        let mut batch = volume.batch(&BatchOptions::new(8, 64 * KIB)).unwrap();
        for part in 0..48 {
            while batch.in_flight() == 8 {
                same(&batch.wait().unwrap().unwrap(), &data);
            }
            let buffer = batch.buffer().unwrap();
            batch.queue(Request::read(buffer, 4096 + (part << 16)).bytes(64 * KIB).token(part)).unwrap();
        }
        while let Some(done) = batch.wait().unwrap() {
            same(&done, &data);
        }
    }
}

fn same(done: &iopath::Completion, data: &[u8]) {
    let buffer = done.buffer.as_ref().unwrap();
    let start = done.token as usize * 64 * KIB;
    assert!(buffer[..64 * KIB] == data[start..start + 64 * KIB], "part {}", done.token);
}

#[test]
fn a_map_that_does_not_fit_is_refused_by_name() {
    let disk =
        MemoryDisk::new(&MemoryConfig { block_bytes: 4096, ..MemoryConfig::of_bytes(1 << 20) }).unwrap();
    let open = |block_bytes, sectors: u64| {
        let layout = FileLayout { block_bytes, size_bytes: 1 << 16, capacity_bytes: 512 * sectors };
        let file = FileMap::fresh("extent", &layout).unwrap();
        Volume::memory_mapped(&disk, &file, &Options::new()).map(drop)
    };
    assert!(open(4096, 2048).is_ok());
    let error = open(512, 2048).unwrap_err();
    assert!(
        matches!(error, OpenError::Mapped(_)) && error.to_string().contains("blocks of 512 bytes"),
        "{error}"
    );
    let error = open(4096, 4096).unwrap_err();
    assert!(error.to_string().contains("up to sector 4096, but the device has 2048"), "{error}");
    let layout = FileLayout { block_bytes: 4096, size_bytes: 1 << 16, capacity_bytes: 1 << 20 };
    let error = FileMap::fresh("b-tree", &layout).unwrap_err();
    assert!(error.to_string().contains("identity, extent, indirect"), "{error}");
}
