//! A mapped file on modelled disks without bytes: only lengths and times.

use iopath_core::mapped::{MappedDevice, MappedFile};
use iopath_core::mapper::{Boundary, ExtentMap, FileLayout, FreeSpace};
use iopath_core::{
    Bio, BlockDevice, Busy, Completion, Duration, Extent, Instant, Io, LengthOnly, Limits, QueueConfig,
    QueuedDevice, Sector, Stripe, StripeConfig, Tag,
};
use std::collections::VecDeque;

/// A disk that takes 1 us for each sector, and nothing for a seek.
#[derive(Debug)]
struct Disk {
    limits: Limits,
    free_at: Instant,
    in_flight: VecDeque<(Instant, Tag)>,
}

impl BlockDevice for Disk {
    type Memory = LengthOnly;

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn submit(&mut self, io: &Io<'_, LengthOnly>, now: Instant) -> Result<(), Busy> {
        self.free_at = self.free_at.max(now) + Duration::from_micros(io.extent.sectors());
        self.in_flight.push_back((self.free_at, io.tag));
        Ok(())
    }

    fn commit(&mut self, _now: Instant) {}

    fn poll_completion(&mut self, now: Instant) -> Option<Completion> {
        let (due, tag) = *self.in_flight.front()?;
        (due <= now).then(|| self.in_flight.pop_front())?;
        Some(Completion { tag, result: Ok(()) })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.in_flight.front().map(|(due, _)| *due)
    }
}

/// Reads 8 MiB of a file in requests of 256 KiB, 16 in flight. Returns the time on a stripe of `members` disks.
fn read_time(members: usize) -> Duration {
    const SIZE: u64 = 8 << 20;
    let layout = FileLayout { block_bytes: 4096, size_bytes: SIZE, capacity_bytes: 64 << 20 };
    let mut map = ExtentMap::new(&layout).unwrap();
    // Two extents in reverse order on the device.
    assert!(map.add(0, Extent::from_bytes(32 << 20, SIZE / 2).unwrap(), true));
    assert!(map.add(SIZE / 2, Extent::from_bytes(16 << 20, SIZE / 2).unwrap(), true));
    let free = FreeSpace::new(Extent::new(Sector(0), 0).unwrap());
    let file = MappedFile::new(Box::new(map), Box::new(free));
    let limits = Limits::with_capacity((64 << 20) / 512);
    let disk = || Disk { limits: limits.clone(), free_at: Instant::ZERO, in_flight: VecDeque::new() };
    let config = StripeConfig { chunk_sectors: 128, ..StripeConfig::default() };
    let stripe = Stripe::new((0..members).map(|_| disk()).collect(), &config).unwrap();
    let mapped = MappedDevice::without_bytes(stripe, file, Boundary::Once).unwrap();
    let mut device = QueuedDevice::new(mapped, &QueueConfig { bios_max: 16, ..QueueConfig::default() });
    let (mut now, mut offset) = (Instant::ZERO, 0);
    while offset < SIZE || device.queue().bios_in() > 0 {
        while offset < SIZE && device.queue().bios_in() < 16 {
            let extent = Extent::from_bytes(offset, 256 << 10).unwrap();
            device.submit_bio(Bio::read(extent, LengthOnly::new(256 << 10), 0), now).unwrap();
            offset += 256 << 10;
        }
        device.unplug(now);
        device.dispatch(now);
        device.commit(now);
        now = now.max(device.poll_timeout().expect("requests in flight have a time"));
        device.collect(now);
        while let Some(done) = device.poll_completion() {
            assert_eq!(done.result, Ok(()));
        }
    }
    now.saturating_since(Instant::ZERO)
}

#[test]
fn a_modelled_stripe_of_four_reads_a_mapped_file_in_a_quarter_of_the_time() {
    let sectors = (8 << 20) / 512;
    assert_eq!(read_time(1), Duration::from_micros(sectors));
    let four = read_time(4);
    let ideal = Duration::from_micros(sectors / 4);
    assert!(ideal <= four && four <= ideal * 11 / 10, "{four:?}, ideal {ideal:?}");
}
