//! Each value of this crate prints as a few lines for `{:?}`, so that a log of a program with a volume in it stays
//! readable.

use iopath::{
    AlignedBuf, AnyBuf, AsyncVolume, BatchOptions, BufferPool, Extent, ExtentMap, Faults, FileLayout,
    FileMap, FreeSpace, IndirectMap, IoMode, MAPPERS, MemoryConfig, MemoryDisk, Options, Request, Space,
    Unaligned, Volume,
};
use std::fmt::Debug;

const BYTES: u64 = 64 << 20;

/// Prints a value in both forms.
#[track_caller]
fn is_short(value: &impl Debug) {
    const MAX: usize = 1024;
    let name = std::any::type_name_of_val(value);
    let text = format!("{value:?}");
    assert!(!text.is_empty() && text.len() <= MAX, "{name} prints {} bytes: {}…", text.len(), &text[..MAX]);
}

fn disk() -> MemoryDisk {
    MemoryDisk::new(&MemoryConfig { cache_bytes: 1 << 20, ..MemoryConfig::of_bytes(BYTES) }).unwrap()
}

#[test]
fn every_handle_of_a_volume_prints_briefly() {
    let disk = disk();
    is_short(&disk);
    is_short(&AlignedBuf::new(1 << 20).unwrap());
    let direct = Options::new().write(true);
    for options in [
        direct.clone(),
        direct.clone().unaligned(Unaligned::Bounce),
        direct.clone().elevator("deadline"),
        direct.mode(IoMode::Buffered).cache_bytes(BYTES),
    ] {
        is_short(&options);
        let volume = Volume::memory(&disk, &options).unwrap();
        volume.write_at(&[1; 4096], 4096).unwrap();
        is_short(&volume);
        is_short(volume.facts());
        is_short(&volume.cursor());
        is_short(&volume.direct());
        let batch_options = BatchOptions::new(256, 65536);
        is_short(&batch_options);
        let mut batch = volume.batch(&batch_options).unwrap();
        let request = Request::read(batch.buffer().unwrap(), 0);
        is_short(&request);
        batch.queue(request).unwrap();
        is_short(&batch);
        is_short(&batch.wait().unwrap().unwrap());
        is_short(&volume.local_batch(&batch_options).unwrap());
        if let Ok(page) = volume.borrow(4096, 4096) {
            is_short(&page);
        }
        if let Some(bytes) = batch.borrow(4096, 4096) {
            is_short(&bytes);
        }
    }
}

#[test]
fn buffers_and_futures_print_briefly() {
    let pool = BufferPool::new(4, 1 << 20).unwrap();
    is_short(&pool);
    is_short(&pool.take().unwrap());
    is_short(&AnyBuf::new(vec![1; 1 << 20]));
    let volume = Volume::memory(&disk(), &Options::new()).unwrap();
    let mut batch = volume.batch_of::<Vec<u8>>(&BatchOptions::new(2, 0)).unwrap();
    let request = Request::read_into(vec![1; 1 << 20], 0);
    is_short(&request);
    batch.queue(request).unwrap();
    is_short(&batch);
    is_short(&batch.wait().unwrap().unwrap());
    is_short(&batch.queue(Request::write_from(vec![1; 1 << 20], 0)).unwrap_err());
    let (futures, driver) = AsyncVolume::with_driver(&volume, &BatchOptions::new(2, 0)).unwrap();
    is_short(&futures);
    is_short(&driver);
    is_short(&futures.read_at(vec![1; 1 << 20], 0));
    is_short(&futures.flush());
}

#[test]
fn maps_and_faults_with_many_entries_print_briefly() {
    let layout = FileLayout { block_bytes: 4096, size_bytes: BYTES, capacity_bytes: 2 * BYTES };
    let mut extents = ExtentMap::new(&layout).unwrap();
    for block in 0..1000 {
        let extent = Extent::from_bytes(block * 8192, 4096).unwrap();
        assert!(extents.add(block * 4096, extent, true));
    }
    is_short(&extents);
    is_short(&IndirectMap::new(&layout).unwrap());
    let mut free = FreeSpace::default();
    (0..1000).for_each(|block| free.release(Extent::from_bytes(block * 8192, 4096).unwrap()));
    is_short(&free);
    for mapper in MAPPERS {
        is_short(&FileMap::fresh(mapper.name, &layout).unwrap());
    }
    let faults = Faults::new(1);
    is_short(&faults);
    let volume = Volume::memory(&disk(), &Options::new().faults(&faults)).unwrap();
    is_short(&volume);
}
