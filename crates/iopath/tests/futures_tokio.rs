//! Futures driven by a task of tokio, and the cursor for code that uses tokio's traits.

use crate::futures::{each, write_and_read};
use crate::support::filled;
use iopath::testing::{Fault, Faults, MemoryConfig, MemoryDisk};
use iopath::{
    AlignedBuf, AsyncVolume, BatchOptions, BufferPool, ErrorKind, IoMode, Op, OpenError, Options, Volume,
};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncSeekExt, SeekFrom};
use tokio::runtime::{Builder, Runtime};

fn runtimes() -> [Runtime; 2] {
    [Builder::new_multi_thread().worker_threads(3), &mut Builder::new_current_thread()]
        .map(|builder| builder.enable_all().build().unwrap())
}

#[test]
fn tasks_of_tokio_agree_with_an_array_on_every_volume() {
    for runtime in runtimes() {
        each(|_, volume| {
            runtime.block_on(async {
                let volume = AsyncVolume::on_tokio(volume, &BatchOptions::new(5, 0)).unwrap();
                let tasks: Vec<_> =
                    (0..16).map(|task| tokio::spawn(write_and_read(volume.clone(), task))).collect();
                for task in tasks {
                    task.await.unwrap();
                }
            });
        });
    }
}

#[test]
fn a_timeout_of_tokio_drops_a_future_and_not_its_buffer() {
    let faults = Faults::new(1);
    let disk = MemoryDisk::new(&MemoryConfig::of_bytes(1 << 16)).unwrap();
    let volume = Volume::memory(&disk, &Options::new().write(true).faults(&faults)).unwrap();
    let pool = BufferPool::new(1, 4096).unwrap();
    for runtime in runtimes() {
        faults.add(Fault::stuck().on(Op::Read));
        runtime.block_on(async {
            let volume = AsyncVolume::on_tokio(&volume, &BatchOptions::new(4, 0)).unwrap();
            let read = volume.read_at(pool.take().unwrap(), 0);
            tokio::time::timeout(Duration::from_millis(20), read).await.unwrap_err();
            assert!(pool.take().is_none());
            faults.stop();
            let returned = async {
                while pool.take().is_none() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(60), returned).await.unwrap();
        });
    }
}

#[test]
fn without_a_runtime_there_is_an_error_and_after_its_end_futures_fail() {
    let disk = MemoryDisk::new(&MemoryConfig::of_bytes(1 << 16)).unwrap();
    let volume = Volume::memory(&disk, &Options::new()).unwrap();
    let refused = AsyncVolume::on_tokio(&volume, &BatchOptions::new(4, 0)).unwrap_err();
    assert!(matches!(refused, OpenError::System { .. }), "{refused}");
    for runtime in runtimes() {
        let futures =
            runtime.block_on(async { AsyncVolume::on_tokio(&volume, &BatchOptions::new(4, 0)).unwrap() });
        drop(runtime);
        let (result, buffer) = smol::block_on(futures.read_at(vec![0; 512], 0));
        assert_eq!((result.unwrap_err().kind(), buffer.len()), (ErrorKind::Cancelled, 512));
    }
}

#[test]
fn a_cursor_reads_and_seeks_as_a_file_does() {
    let content = filled(300_544, 1);
    for mode in [IoMode::Direct, IoMode::Raw, IoMode::Buffered] {
        let disk = MemoryDisk::new(&MemoryConfig::of_bytes(content.len() as u64)).unwrap();
        let options = Options::new().write(true).mode(mode).cache_bytes(1 << 20);
        let volume = Volume::memory(&disk, &options).unwrap();
        volume.write_at(&content, 0).unwrap();
        for runtime in runtimes() {
            runtime.block_on(async {
                let volume = AsyncVolume::on_tokio(&volume, &BatchOptions::new(4, 0)).unwrap();
                let mut cursor = volume.cursor();
                let mut all = Vec::new();
                assert_eq!(cursor.read_to_end(&mut all).await.unwrap(), content.len(), "{mode:?}");
                assert!(all == content[..], "{mode:?}");
                assert_eq!(cursor.read(&mut [0; 10]).await.unwrap(), 0, "the end");
                for at in [0, 131_071, 131_072, 299_000, 77] {
                    assert_eq!(cursor.seek(SeekFrom::Start(at)).await.unwrap(), at);
                    let mut bytes = [0; 1000];
                    cursor.read_exact(&mut bytes).await.unwrap();
                    assert_eq!(bytes, content[at as usize..][..1000], "{mode:?}, {at}");
                    assert_eq!(cursor.position(), at + 1000);
                }
                assert_eq!(cursor.seek(SeekFrom::End(-3)).await.unwrap(), content.len() as u64 - 3);
                assert_eq!(cursor.read(&mut [0; 10]).await.unwrap(), 3);
                assert_eq!(cursor.seek(SeekFrom::Current(1000)).await.unwrap(), content.len() as u64 + 1000);
                assert_eq!(cursor.read(&mut [0; 10]).await.unwrap(), 0);
                cursor.seek(SeekFrom::Current(-1_000_000)).await.unwrap_err();
                // A seek discards the chunk, so the cursor sees a later write.
                let (written, _) = volume.write_at(AlignedBuf::new(4096).unwrap(), 0).await;
                written.unwrap();
                cursor.rewind().await.unwrap();
                let mut bytes = [1; 100];
                cursor.read_exact(&mut bytes).await.unwrap();
                assert_eq!(bytes, [0; 100]);
                volume.volume().write_at(&content, 0).unwrap();
            });
        }
    }
}

#[test]
fn a_volume_that_becomes_shorter_ends_a_read_of_a_cursor() {
    let disk = MemoryDisk::new(&MemoryConfig::of_bytes(1 << 16)).unwrap();
    let volume = Volume::memory(&disk, &Options::new().write(true)).unwrap();
    let (volume, mut driver) = AsyncVolume::with_driver(&volume, &BatchOptions::new(4, 0)).unwrap();
    smol::block_on(async {
        let (mut cursor, mut bytes) = (volume.cursor(), [0; 10]);
        let mut read = Box::pin(cursor.read(&mut bytes));
        assert!(smol::future::poll_once(&mut read).await.is_none());
        volume.volume().resize(0).unwrap();
        driver.turn();
        assert_eq!(read.await.unwrap(), 0);
    });
}
