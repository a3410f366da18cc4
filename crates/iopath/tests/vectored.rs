//! Vectored reads and writes: the same bytes as one call, on each kind of volume; one request where that is possible.

use crate::support::{filled, options, scratch};
use iopath::log::{LogSink, RecordBatch};
use iopath::testing::{MemoryConfig, MemoryDisk};
use iopath::{AlignedBuf, ErrorKind, IoMode, Options, Unaligned, Volume, log};
use std::io::{IoSlice, IoSliceMut};
use std::sync::{Arc, Mutex};

const BYTES: usize = 1 << 16;

fn each(mut check: impl FnMut(&str, &Volume)) {
    let direct = options().write(true).cache_bytes(1 << 17);
    let kinds = [
        ("direct", direct.clone()),
        ("raw", direct.clone().mode(IoMode::Raw)),
        ("shared queue", direct.clone().elevator("deadline")),
        ("bounced", direct.clone().unaligned(Unaligned::Bounce)),
        ("buffered", direct.clone().mode(IoMode::Buffered)),
        ("beside a page cache", direct.unaligned(Unaligned::Buffered)),
    ];
    for (name, options) in kinds {
        let disk = MemoryDisk::new(&MemoryConfig::of_bytes(BYTES as u64)).unwrap();
        check(&format!("{name}, memory"), &Volume::memory(&disk, &options).unwrap());
        if let Some((_directory, path)) = scratch(BYTES as u64) {
            check(&format!("{name}, file"), &Volume::open(&path, &options).unwrap());
        }
    }
}

fn read(volume: &Volume, lengths: &[usize], offset: u64) -> (iopath::Result<usize>, Vec<u8>) {
    let mut memory: Vec<AlignedBuf> = lengths.iter().map(|bytes| AlignedBuf::new(*bytes).unwrap()).collect();
    let mut parts: Vec<IoSliceMut<'_>> = memory.iter_mut().map(|part| IoSliceMut::new(part)).collect();
    let result = volume.read_vectored_at(&mut parts, offset);
    (result, memory.iter().flat_map(|part| part.iter().copied()).collect())
}

#[test]
fn several_buffers_have_the_bytes_of_one() {
    each(|name, volume| {
        let source = filled(BYTES, 3);
        let lengths = [4096, 0, 8192, 512 * 3 + 2560, 4096];
        let mut at = 0;
        let parts = lengths.map(|bytes| {
            at += bytes;
            &source[at - bytes..at]
        });
        volume.write_vectored_at(&parts.map(IoSlice::new), 8192).unwrap();
        let mut whole = AlignedBuf::new(at).unwrap();
        volume.read_exact_at(&mut whole, 8192).unwrap();
        assert!(whole[..] == source[..at], "{name}");
        let (result, bytes) = read(volume, &[8192, 4096, at - 12288], 8192);
        assert_eq!(result.unwrap(), at, "{name}");
        assert!(bytes == source[..at], "{name}");
        // More buffers than are in flight together.
        let (result, bytes) = read(volume, &[4096; 16], 0);
        assert_eq!((result.unwrap(), &bytes[8192..8192 + at]), (BYTES, &source[..at]), "{name}");
        let (result, _) = read(volume, &[], 0);
        assert_eq!(result.unwrap(), 0, "{name}");
    });
}

#[test]
fn many_small_buffers_are_more_than_the_queue_holds() {
    each(|name, volume| {
        let block = volume.facts().block_bytes as usize;
        let source = filled(BYTES, 4);
        let parts: Vec<IoSlice<'_>> = source.chunks(block).map(IoSlice::new).collect();
        volume.write_vectored_at(&parts, 0).unwrap();
        let (result, bytes) = read(volume, &vec![block; BYTES / block], 0);
        assert_eq!(result.unwrap(), BYTES, "{name}");
        assert!(bytes == source[..], "{name}");
    });
}

#[test]
fn a_read_ends_at_the_end_of_the_volume() {
    each(|name, volume| {
        let is_raw = name.starts_with("raw");
        let (result, _) = read(volume, &[4096, 4096, 4096], BYTES as u64 - 8192);
        match result {
            Ok(bytes) => assert!(bytes == 8192 && !is_raw, "{name}: {bytes}"),
            Err(error) => {
                assert!(is_raw && matches!(error.kind(), ErrorKind::PastEnd { .. }), "{name}: {error}");
            }
        }
        let page = [0; 4096];
        let parts = [IoSlice::new(&page[..]), IoSlice::new(&page[..])];
        volume.write_vectored_at(&parts, BYTES as u64 - 4096).unwrap_err();
    });
}

#[test]
fn unaligned_buffers_are_refused_or_copied() {
    each(|name, volume| {
        let (result, _) = read(volume, &[100, 412], 0);
        match result {
            Ok(bytes) => assert_eq!(bytes, 512, "{name}"),
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::Unaligned { .. }), "{name}: {error}");
                assert_eq!((error.offset(), error.bytes()), (0, 100), "{name}: {error}");
                let strict = ["direct", "raw", "shared"].iter().any(|kind| name.starts_with(kind));
                assert!(strict, "{name}: {error}");
                return;
            }
        }
        let parts = [IoSlice::new(b"abc"), IoSlice::new(b"de")];
        volume.write_vectored_at(&parts, 700).unwrap();
        let mut bytes = [0; 7];
        volume.read_exact_at(&mut bytes, 699).unwrap();
        assert_eq!(&bytes, b"\0abcde\0", "{name}");
    });
}

/// The steps of requests.
#[derive(Debug, Default, Clone)]
struct Steps(Arc<Mutex<Vec<log::Event>>>);

impl LogSink for Steps {
    fn take(&mut self, batch: &mut RecordBatch) -> Result<(), log::NoRoom> {
        let mut steps = self.0.lock().unwrap();
        let records = std::mem::take(batch);
        let parts = records.records().iter().flat_map(|record| record.parts());
        steps.extend(parts.filter_map(log::Record::event));
        Ok(())
    }

    fn publish(&mut self, batch: &mut RecordBatch) -> Result<(), log::NoRoom> {
        self.take(batch)
    }
}

#[test]
fn adjacent_buffers_are_one_request_of_the_device() {
    let disk = MemoryDisk::new(&MemoryConfig::of_bytes(BYTES as u64)).unwrap();
    let volume = Volume::memory(&disk, &Options::new().write(true).elevator("deadline")).unwrap();
    let steps = Steps::default();
    volume.start_log(Box::new(steps.clone())).unwrap();
    let (result, _) = read(&volume, &[4096; 4], 0);
    assert_eq!(result.unwrap(), 16384);
    let steps = steps.0.lock().unwrap();
    let dispatched = steps.iter().filter(|event| **event == log::Event::Dispatch).count();
    assert_eq!(dispatched, 1, "{steps:?}");
}
