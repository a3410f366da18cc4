//! Constructs the page caches of these tests, over a device in memory.

use std::time::Duration;

use iopath_core::QueueConfig;
use iopath_core::cache::CacheConfig;
use iopath_os::{Buffered, BufferedConfig, NoMemory, RealDevice, Runner};

pub(crate) type Device = dyn RealDevice + Send;

/// The configuration for a volume of `size_bytes` bytes: 64 frames, no readahead, and no write-back by age.
pub(crate) fn config(size_bytes: u64) -> BufferedConfig {
    BufferedConfig {
        cache: CacheConfig { frames: 64, expire: Duration::from_secs(1000), ..CacheConfig::default() },
        ..BufferedConfig::of_bytes(size_bytes)
    }
}

/// A cache over `device`. `prepare` can change the runner first.
pub(crate) fn open(
    config: BufferedConfig,
    device: impl RealDevice + Send + 'static,
    prepare: impl FnOnce(&mut Runner<Device>),
) -> Buffered {
    let opened: Result<_, NoMemory> = Buffered::new(config, |_| {
        let device: Box<Device> = Box::new(device);
        let mut runner = Runner::new(device, &QueueConfig::default());
        prepare(&mut runner);
        Ok(runner)
    });
    opened.unwrap()
}
