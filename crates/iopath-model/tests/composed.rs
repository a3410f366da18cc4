//! Stripes of models and mapped files on them, in the event loop of virtual time.

use std::ops::ControlFlow;

use iopath_core::mapped::{LengthOnlyHost, MappedDevice, MappedFile};
use iopath_core::mapper::{Boundary, ExtentMap, FileLayout, FreeSpace};
use iopath_core::{
    Bio, BlockDevice, Extent, Instant, LengthOnly, QueueConfig, QueuedDevice, Sector, Stripe, StripeConfig,
};
use iopath_model::event_loop::{self, End, Process};
use iopath_model::{Model, ModelDevice, VirtualClock};

const MIB: u64 = 1 << 20;
const READ: u64 = MIB;

/// Reads a device from its start to `end`, 16 requests at once.
struct Reader<D: BlockDevice> {
    device: QueuedDevice<D>,
    next: u64,
    end: u64,
    completed: Vec<(Instant, u64)>,
}

impl<D: BlockDevice<Memory = LengthOnly>> Reader<D> {
    fn new(device: D, end: u64) -> Self {
        let config = QueueConfig { bios_max: 16, ..QueueConfig::default() };
        Self { device: QueuedDevice::new(device, &config), next: 0, end, completed: Vec::new() }
    }
}

impl<D: BlockDevice<Memory = LengthOnly>> Process for Reader<D> {
    fn advance(&mut self, now: Instant) {
        self.device.collect(now);
        while let Some(done) = self.device.poll_completion() {
            assert_eq!(done.result, Ok(()));
            self.completed.push((now, done.token));
        }
        while self.next < self.end && self.device.queue().bios_in() < 16 {
            let extent = Extent::from_bytes(self.next, READ).unwrap();
            self.device.submit_bio(Bio::read(extent, LengthOnly::new(READ), self.next), now).unwrap();
            self.next += READ;
        }
        self.device.unplug(now);
        self.device.dispatch(now);
        self.device.commit(now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.device.poll_timeout()
    }

    fn is_done(&self) -> bool {
        self.next >= self.end && self.device.queue().bios_in() == 0
    }
}

/// The completions of a read of the first `end` bytes of a device.
fn read<D: BlockDevice<Memory = LengthOnly>>(device: D, end: u64) -> Vec<(Instant, u64)> {
    let (mut reader, mut clock) = (Reader::new(device, end), VirtualClock::default());
    let ended = event_loop::run(&mut reader, &mut clock, &mut |_, _| ControlFlow::Continue(()));
    assert_eq!(ended, Ok(End::Done));
    reader.completed
}

fn stripe(members: u64) -> Stripe<ModelDevice<LengthOnly>> {
    let model = Model::preset("fc15k-2002").unwrap();
    let members = (0..members).map(|seed| ModelDevice::new(&model, seed)).collect();
    Stripe::new(members, &StripeConfig { chunk_sectors: 256, ..StripeConfig::default() }).unwrap()
}

/// A file of `size` bytes in two extents, of which the second lies before the first.
fn file_on<D: BlockDevice<Memory = LengthOnly>>(
    device: D,
    size: u64,
) -> MappedDevice<D, LengthOnlyHost<LengthOnly>> {
    let layout = FileLayout { block_bytes: 4096, size_bytes: size, capacity_bytes: 4 * size };
    let mut map = ExtentMap::new(&layout).unwrap();
    assert!(map.add(0, Extent::from_bytes(2 * size, size / 2).unwrap(), true));
    assert!(map.add(size / 2, Extent::from_bytes(size, size / 2).unwrap(), true));
    let free = FreeSpace::new(Extent::new(Sector(0), 0).unwrap());
    let file = MappedFile::new(Box::new(map), Box::new(free));
    MappedDevice::without_bytes(device, file, Boundary::Once).unwrap()
}

fn seconds(completed: &[(Instant, u64)]) -> f64 {
    completed.last().map_or(0.0, |(end, _)| end.as_nanos() as f64 / 1e9)
}

#[test]
fn four_disks_read_four_times_as_fast_as_one() {
    let [one, four] = [1, 4].map(|members| seconds(&read(stripe(members), 256 * MIB)));
    let ratio = one / four;
    assert!((3.0..4.2).contains(&ratio), "{one} s and {four} s: {ratio}");
}

#[test]
fn a_mapped_file_is_as_fast_as_the_disks_beneath() {
    let (bare, mapped) = (read(stripe(4), 256 * MIB), read(file_on(stripe(4), 256 * MIB), 256 * MIB));
    assert_eq!((bare.len(), mapped.len()), (256, 256));
    let ratio = seconds(&mapped) / seconds(&bare);
    assert!((0.9..1.2).contains(&ratio), "one seek more: {ratio}");
}

#[test]
fn every_completion_comes_again_at_the_same_time() {
    let read = || read(file_on(stripe(3), 64 * MIB), 64 * MIB);
    assert_eq!(read(), read());
}
