//! Reads return the bytes that were written, for requests of any shape.

use std::fs::File;
use std::sync::Arc;

use iopath_core::{Extent, Io, IoError, Op, Tag};

use super::on_each_device;
use super::rig::{BLOCK, ROWS, Rig, pattern, segment};

#[test]
fn reads_back_written_data() {
    on_each_device(4096, |rig| {
        for (number, bytes) in [4096, 8192, 65_536, 1 << 20].into_iter().enumerate() {
            let (offset, data) = (number as u64 * BLOCK, pattern(bytes, number as u8));
            assert_eq!(rig.write(offset, &data), Ok(()), "{}: {bytes} bytes", rig.name);
            assert!(rig.read(offset, bytes).as_ref() == Ok(&data), "{}: {bytes} bytes differ", rig.name);
        }
    });
}

#[test]
fn registered_and_other_memory_hold_the_same_bytes() {
    on_each_device(256, |rig| {
        let mut buffer = rig.pool.take().unwrap();
        let data = pattern(buffer.len(), 3);
        buffer.copy_from_slice(&data);
        // SAFETY: the test does not access the buffer until each request has completed.
        let memory = unsafe { buffer.segment() };
        assert_eq!(rig.run(Op::Write, 0, 65_536, &[memory]), Ok(()), "{}", rig.name);
        assert!(rig.read(0, 65_536).as_ref() == Ok(&data), "{}", rig.name);
        buffer.fill(0);
        assert_eq!(rig.run(Op::Read, 0, 65_536, &[memory]), Ok(()), "{}", rig.name);
        assert!(buffer[..] == data[..], "{}", rig.name);
    });
}

#[test]
fn scatters_and_gathers_segments_in_order() {
    on_each_device(256, |rig| {
        let data = pattern(16 * 4096, 5);
        let mut buffers: Vec<_> = (0..16).map(|_| rig.pool.take().unwrap()).collect();
        for (buffer, part) in buffers.iter_mut().zip(data.chunks(4096)) {
            buffer[..4096].copy_from_slice(part);
        }
        // The segments are not adjacent: each is the start of a larger buffer.
        let memory: Vec<_> = buffers.iter_mut().map(|buffer| segment(&mut buffer[..4096])).collect();
        assert_eq!(rig.run(Op::Write, 8192, 65_536, &memory), Ok(()), "{}", rig.name);
        assert!(rig.read(8192, 65_536).as_ref() == Ok(&data), "{}: gathered", rig.name);
        let backwards: Vec<_> = memory.iter().rev().copied().collect();
        assert_eq!(rig.run(Op::Read, 8192, 65_536, &backwards), Ok(()), "{}", rig.name);
        for (buffer, part) in buffers.iter().rev().zip(data.chunks(4096)) {
            assert!(buffer[..4096] == *part, "{}: scattered", rig.name);
        }
    });
}

#[test]
fn a_partial_last_block_reads_as_zeroes_past_the_end() {
    for row in ROWS {
        let file = row.scratch(12_288);
        let Some(mut rig) = Rig::new_on(row, file.clone()) else { continue };
        assert_eq!(rig.write(0, &pattern(12_288, 1)), Ok(()), "{}", rig.name);
        for end in [8193, 10_000, 12_287] {
            file.set_len(end).unwrap();
            let mut expected = pattern(12_288, 1);
            expected[end as usize..].fill(0);
            assert!(rig.read(0, 12_288).as_ref() == Ok(&expected), "{}: ends at {end}", rig.name);
            assert!(rig.read(8192, 4096).as_deref() == Ok(&expected[8192..]), "{}: at {end}", rig.name);
            file.set_len(12_288).unwrap();
            assert_eq!(rig.write(0, &pattern(12_288, 1)), Ok(()), "{}", rig.name);
        }
    }
}

#[test]
fn a_file_truncated_inside_any_other_block_is_an_error() {
    for row in ROWS {
        let file = row.scratch(32_768);
        let Some(mut rig) = Rig::new_on(row, file.clone()) else { continue };
        assert_eq!(rig.write(0, &pattern(32_768, 1)), Ok(()), "{}", rig.name);
        file.set_len(5000).unwrap();
        assert_eq!(rig.read(0, 8192), Err(IoError::EndOfDevice), "{}", rig.name);
        assert_eq!(rig.read(0, 4096), Ok(pattern(4096, 1)), "{}: the rest of the file", rig.name);
    }
}

#[test]
fn zeroes_past_the_end_reach_the_right_segments() {
    for row in ROWS {
        let file = row.scratch(8192);
        let Some(mut rig) = Rig::new_on(row, file.clone()) else { continue };
        assert_eq!(rig.write(0, &pattern(8192, 1)), Ok(()), "{}", rig.name);
        file.set_len(4096 + 700).unwrap();
        let mut expected = pattern(8192, 1);
        expected[4096 + 700..].fill(0);
        let mut buffers: Vec<_> = (0..8).map(|_| rig.pool.take().unwrap()).collect();
        for buffer in &mut buffers {
            buffer.fill(0xee);
        }
        let memory: Vec<_> = buffers.iter_mut().map(|buffer| segment(&mut buffer[..1024])).collect();
        assert_eq!(rig.run(Op::Read, 0, 8192, &memory), Ok(()), "{}", rig.name);
        for (buffer, part) in buffers.iter().zip(expected.chunks(1024)) {
            assert!(buffer[..1024] == *part, "{}", rig.name);
            assert!(buffer[1024..].iter().all(|&byte| byte == 0xee), "{}: beyond the segment", rig.name);
        }
    }
}

#[test]
fn discards_and_zeroes_only_the_range() {
    on_each_device(256, |rig| {
        let before = pattern(65_536, 7);
        for op in [Op::WriteZeroes, Op::Discard] {
            if rig.device.limits().sectors_max(op) == 0 {
                eprintln!("skipped {op} on {}: the filesystem has no holes", rig.name);
                continue;
            }
            assert_eq!(rig.write(0, &before), Ok(()), "{}", rig.name);
            assert_eq!(rig.run(op, 8192, 16_384, &[]), Ok(()), "{}: {op}", rig.name);
            let mut expected = before.clone();
            expected[8192..24_576].fill(0);
            assert!(rig.read(0, 65_536).as_ref() == Ok(&expected), "{}: {op}", rig.name);
        }
        if let Some(file) = &rig.file {
            assert_eq!(file.metadata().unwrap().len(), 256 * 512, "{}: the size changed", rig.name);
        }
    });
}

#[test]
fn zeroes_by_a_hole_if_a_range_cannot_be_zeroed() {
    for row in ROWS {
        // A file in memory: the kernel's tmpfs supports holes, but not FALLOC_FL_ZERO_RANGE.
        let file = rustix::fs::memfd_create("zeroes", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let file = Arc::new(File::from(file));
        file.set_len(65_536).unwrap();
        let Some(mut rig) = Rig::new_on(row, file) else { continue };
        let mut expected = pattern(65_536, 9);
        assert_eq!(rig.write(0, &expected), Ok(()), "{}", rig.name);
        assert_eq!(rig.run(Op::WriteZeroes, 4096, 8192, &[]), Ok(()), "{}", rig.name);
        expected[4096..12_288].fill(0);
        assert!(rig.read(0, 65_536).as_ref() == Ok(&expected), "{}", rig.name);
    }
}

#[test]
fn flushes_and_writes_through() {
    on_each_device(64, |rig| {
        let mut data = iopath_os::AlignedBuf::new(4096).unwrap();
        data.fill(1);
        let memory = [segment(&mut data)];
        let mut io = Io::new(Tag::from_bits(1), Op::Write, Extent::from_bytes(4096, 4096).unwrap(), &memory);
        io.fua = rig.device.limits().fua;
        assert_eq!(rig.run_io(&io), Ok(()), "{}", rig.name);
        assert_eq!(rig.run(Op::Flush, 0, 0, &[]), Ok(()), "{}", rig.name);
        assert_eq!(rig.read(4096, 4096), Ok(vec![1; 4096]), "{}", rig.name);
    });
}
