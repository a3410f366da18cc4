//! Memory that other processes share: the device transfers it, and no volume that copies in this process accepts it.

use crate::support::scratch;
use iopath::buffers::{SharedBuf, SharedMemory};
use iopath::testing::{MemoryConfig, MemoryDisk};
use iopath::{BatchOptions, ErrorKind, IoMode, OpenError, Options, Request, Unaligned, Volume};
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::sync::Arc;

fn shared(bytes: u64) -> Arc<SharedMemory> {
    let file = File::from(memfd_create("shared", MemfdFlags::CLOEXEC).unwrap());
    file.set_len(bytes).unwrap();
    Arc::new(SharedMemory::map(&file, 0, bytes).unwrap())
}

#[test]
fn the_device_transfers_memory_of_other_processes() {
    let Some((_folder, path)) = scratch(1 << 20) else { return };
    let memory = shared(1 << 20);
    for unaligned in [Unaligned::Refuse, Unaligned::Bounce] {
        let volume = Volume::open(&path, &Options::new().write(true).unaligned(unaligned)).unwrap();
        let mut batch = volume.local_batch_of::<SharedBuf>(&BatchOptions::new(8, 0)).unwrap();
        let bytes: Vec<u8> = (0..16_384).map(|byte| (byte / 13) as u8).collect();
        memory.write(65_536, &bytes).unwrap();
        // Two parts, in the opposite order of their places in memory.
        batch.queue(Request::write_from(memory.buffer(65_536 + 8192, 8192).unwrap(), 0)).unwrap();
        batch.queue(Request::write_from(memory.buffer(65_536, 8192).unwrap(), 8192)).unwrap();
        while let Some(done) = batch.wait().unwrap() {
            assert_eq!(done.result.unwrap(), 8192);
        }
        batch.queue(Request::read_into(memory.buffer(0, 16_384).unwrap(), 0)).unwrap();
        assert_eq!(batch.wait().unwrap().unwrap().result.unwrap(), 16_384);
        let mut read = vec![0; 16_384];
        memory.read(0, &mut read).unwrap();
        assert!(read[..8192] == bytes[8192..] && read[8192..] == bytes[..8192], "{unaligned:?}");
        assert_eq!(batch.bounced(), 0);
        let refused = batch.queue(Request::read_into(memory.buffer(0, 100).unwrap(), 0)).unwrap_err();
        assert!(matches!(refused.error.kind(), ErrorKind::Unaligned { .. }), "{refused}");
    }
}

#[test]
fn volumes_that_copy_refuse_it() {
    let Some((_folder, path)) = scratch(1 << 20) else { return };
    let disk = MemoryDisk::new(&MemoryConfig::of_bytes(1 << 20)).unwrap();
    let buffered = Options::new().mode(IoMode::Buffered).cache_bytes(1 << 20);
    for volume in [Volume::memory(&disk, &Options::new()).unwrap(), Volume::open(&path, &buffered).unwrap()] {
        for is_buffered in [None, Some(false)] {
            let options = BatchOptions::new(1, 0);
            let options = is_buffered.map_or(options.clone(), |is_buffered| options.buffered(is_buffered));
            let error = volume.batch_of::<SharedBuf>(&options).unwrap_err();
            assert!(matches!(error, OpenError::SharedMemory(_)), "{error}");
        }
    }
}
