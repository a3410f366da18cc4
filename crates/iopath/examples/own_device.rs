//! A volume on storage of a program: blocks in memory, each with a checksum, so that a read of a damaged block fails.
//! Blocks that were never written take no memory: `cargo run -p iopath --example own_device`.

use iopath::source::{
    DeviceRequest, DeviceSetup, Execute, InlineDevice, IoError, Limits, Op, OpenedDevice, RealDevice, Source,
    SourceError,
};
use iopath::{AlignedBuf, BatchOptions, ErrorKind, IoMode, OpenError, Options, Request, Volume};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub(crate) const BLOCK: usize = 4096;

/// Clones are the same disk.
#[derive(Debug, Clone)]
pub(crate) struct CheckedDisk(Arc<Mutex<Disk>>);

#[derive(Debug)]
pub(crate) struct Disk {
    size_bytes: u64,
    blocks: BTreeMap<u64, Block>,
}

#[derive(Debug)]
struct Block {
    bytes: Box<[u8; BLOCK]>,
    checksum: u64,
}

fn checksum(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

impl CheckedDisk {
    pub(crate) fn new(size_bytes: u64) -> Self {
        Self(Arc::new(Mutex::new(Disk { size_bytes, blocks: BTreeMap::new() })))
    }

    fn lock(&self) -> MutexGuard<'_, Disk> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes a bit of a block that was written.
    fn damage(&self, block: u64) {
        if let Some(Block { bytes, .. }) = self.lock().blocks.get_mut(&block) {
            bytes[0] ^= 1;
        }
    }
}

impl Disk {
    fn put(&mut self, number: u64, bytes: Box<[u8; BLOCK]>) {
        let checksum = checksum(&*bytes);
        self.blocks.insert(number, Block { bytes, checksum });
    }
}

/// The device: executes each request in the thread that submits it.
impl Execute for CheckedDisk {
    fn execute(&mut self, request: &mut DeviceRequest<'_>) -> Result<(), IoError> {
        let mut disk = self.lock();
        let (first, end) =
            (request.offset() / BLOCK as u64, (request.offset() + request.bytes()) / BLOCK as u64);
        if end > disk.size_bytes.div_ceil(BLOCK as u64) {
            return Err(IoError::EndOfDevice);
        }
        for (index, number) in (first..end).enumerate() {
            match request.op() {
                Op::Read => match disk.blocks.get(&number) {
                    Some(block) if block.checksum != checksum(&*block.bytes) => return Err(IoError::Media),
                    Some(block) => request.fill(index * BLOCK, &*block.bytes),
                    None => request.fill(index * BLOCK, &[0; BLOCK]),
                },
                Op::Write => {
                    let mut bytes = Box::new([0; BLOCK]);
                    request.copy_to(index * BLOCK, &mut *bytes);
                    disk.put(number, bytes);
                }
                Op::Discard | Op::WriteZeroes => drop(disk.blocks.remove(&number)),
                Op::Flush => {}
            }
        }
        Ok(())
    }
}

impl Source for CheckedDisk {
    fn limits(&self) -> Limits {
        let blocks = self.lock().size_bytes.div_ceil(BLOCK as u64);
        Limits {
            logical_block_bytes: BLOCK as u32,
            discard_bytes_max: 1 << 30,
            write_zeroes_bytes_max: 1 << 30,
            ..Limits::with_capacity(blocks * (BLOCK as u64 / 512))
        }
    }

    fn open(&self, setup: &DeviceSetup) -> Result<OpenedDevice<dyn RealDevice + Send>, OpenError> {
        Ok(OpenedDevice::new(Box::new(InlineDevice::new(self.clone(), setup.limits.clone()))))
    }

    fn size_bytes(&self) -> u64 {
        self.lock().size_bytes
    }

    fn can_resize(&self) -> bool {
        true
    }

    /// Zeroes the rest of the last block that stays: bytes that are added later read as zeroes.
    fn resize(&self, size_bytes: u64) -> Result<(), SourceError> {
        let mut disk = self.lock();
        let kept = size_bytes.min(disk.size_bytes);
        let _removed = disk.blocks.split_off(&kept.div_ceil(BLOCK as u64));
        if let Some(Block { mut bytes, .. }) = disk.blocks.remove(&(kept / BLOCK as u64)) {
            bytes[(kept % BLOCK as u64) as usize..].fill(0);
            disk.put(kept / BLOCK as u64, bytes);
        }
        disk.size_bytes = size_bytes;
        Ok(())
    }
}

#[cfg_attr(test, allow(dead_code, reason = "the tests of the crate include this file and call `run`"))]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    run()
}

pub(crate) fn run() -> Result<(), Box<dyn std::error::Error>> {
    let disk = CheckedDisk::new(1 << 20);
    let options = Options::new().write(true).mode(IoMode::Buffered).cache_bytes(1 << 20);
    let volume = Volume::of_source(disk.clone(), &options)?;
    println!("{} bytes, engine {}", volume.size_bytes(), volume.facts().engine);

    // Buffered, any range; and direct, coherent with the page cache.
    volume.write_at(b"hello", 5000)?;
    let mut block = AlignedBuf::new(BLOCK)?;
    volume.direct().read_at(&mut block, 4096)?;
    assert_eq!(&block[904..909], b"hello");
    block.fill(3);
    volume.direct().write_at(&block, 8192)?;

    let mut batch = volume.batch(&BatchOptions::new(8, BLOCK))?;
    for number in 1..=2 {
        let buffer = batch.buffer().ok_or("a buffer for each request in flight")?;
        batch.queue(Request::read(buffer, number * BLOCK as u64).token(number))?;
    }
    while let Some(done) = batch.wait()? {
        println!("block {}: {} bytes", done.token, done.result?);
    }
    volume.flush()?;
    volume.resize(2 << 20)?;
    volume.write_at(b"the new end", (2 << 20) - 11)?;
    volume.close()?;

    // Another volume on the same disk finds the bytes, and the damage.
    disk.damage(1);
    let volume = Volume::of_source(disk, &Options::new())?;
    volume.read_exact_at(&mut block, (2 << 20) - BLOCK as u64)?;
    assert!(block.ends_with(b"the new end"));
    let error = volume.read_at(&mut block, 4096).map_err(|error| (error.kind(), error));
    let Err((ErrorKind::Io(IoError::Media), error)) = error else { return Err("no damage found".into()) };
    println!("{error}");
    Ok(())
}
