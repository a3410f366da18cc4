//! Each type with a table, a list or a text without a bound prints as a few lines for `{:?}`, also when it is full. The
//! types that the crate `iopath` exports have the same test there.

use iopath_core::buffered::{BufferedPath, Frames, Geometry};
use iopath_core::cache::{CacheConfig, Frame, PageCache};
use iopath_core::elevator::ELEVATORS;
use iopath_core::mapped::{KeptMetadata, MappedDevice, MappedFile};
use iopath_core::mapper::{
    Boundary, DirtyMetadata, FileLayout, FreeSpace, IndirectMap, PlanError, Quarantine, Space,
};
use iopath_core::readahead::{Readahead, ReadaheadConfig};
use iopath_core::sorted::SortedSet;
use iopath_core::volume::{LockKind, RangeLocks};
use iopath_core::{
    Bio, BlockDevice, Busy, Completion, Extent, Fault, FaultPlan, FaultyDevice, Instant, Io, IoError,
    LengthOnly, Limits, Op, OwnedIo, Page, Priority, QueueConfig, QueuedDevice, RequestQueue, Sector, Stream,
    Stripe, StripeConfig, Tag, TagList,
};
use std::fmt::Debug;

#[track_caller]
fn is_short(value: &impl Debug) {
    const MAX: usize = 1024;
    let name = std::any::type_name_of_val(value);
    let text = format!("{value:?}");
    assert!(!text.is_empty() && text.len() <= MAX, "{name} prints {} bytes: {text:.1024}…", text.len());
}

/// A device that completes nothing.
#[derive(Debug)]
struct Stuck(Limits);

impl BlockDevice for Stuck {
    type Memory = LengthOnly;

    fn limits(&self) -> &Limits {
        &self.0
    }

    fn submit(&mut self, io: &Io<'_, LengthOnly>, _now: Instant) -> Result<(), Busy> {
        is_short(io);
        is_short(&io.segments());
        Ok(())
    }

    fn commit(&mut self, _now: Instant) {}

    fn poll_completion(&mut self, _now: Instant) -> Option<Completion> {
        None
    }
}

fn stuck() -> Stuck {
    Stuck(Limits { depth_max: 256, ..Limits::with_capacity(1 << 20) })
}

fn extent(number: u64) -> Extent {
    Extent::new(Sector(number * 16), 8).unwrap()
}

fn read(number: u64) -> Bio<LengthOnly> {
    Bio::read(extent(number), LengthOnly::new(4096), number)
}

struct Places;

impl Frames for Places {
    type Memory = LengthOnly;

    fn memory(&self, _frame: Frame, bytes: u64) -> LengthOnly {
        LengthOnly::new(bytes)
    }
}

#[test]
fn queues_and_devices_with_many_requests_print_briefly() {
    for elevator in ELEVATORS {
        let config = QueueConfig { depth: 256, elevator: (*elevator).into(), ..QueueConfig::default() };
        let mut queue = RequestQueue::new(Limits::with_capacity(1 << 20), &config);
        (0..200).for_each(|number| queue.submit_bio(read(number), Instant::ZERO).unwrap());
        is_short(&queue);
        queue.poll_dispatch(Instant::ZERO);
        is_short(&queue);
        is_short(&(elevator.build)(4096));
        is_short(elevator);
    }
    let config = QueueConfig { depth: 256, ..QueueConfig::default() };
    let mut plan = FaultPlan::new(1);
    (0..1000).for_each(|_| plan.add(Fault::error(IoError::Media)));
    plan.keep_damage();
    is_short(&plan);
    let mut faulty = QueuedDevice::new(FaultyDevice::new(stuck(), plan), &config);
    let members = (0..64).map(|_| stuck()).collect();
    let mut stripe = QueuedDevice::new(Stripe::new(members, &StripeConfig::default()).unwrap(), &config);
    for number in 0..200 {
        faulty.submit_bio(read(number), Instant::ZERO).unwrap();
        stripe.submit_bio(read(number), Instant::ZERO).unwrap();
    }
    is_short(&faulty);
    is_short(&stripe);
    let mut tags = TagList::new(4096);
    (0..4096).for_each(|tag| tags.push_back(Tag::from_bits(tag)));
    is_short(&tags);
    let io = OwnedIo {
        tag: Tag::from_bits(0),
        op: Op::Read,
        extent: extent(0),
        fua: false,
        stream: Stream(0),
        priority: Priority::Idle,
        segments: vec![LengthOnly::new(512); 1000],
    };
    is_short(&io);
}

#[test]
fn caches_and_readahead_print_briefly() {
    let config = || CacheConfig { frames: 4096, ..CacheConfig::default() };
    let page_bytes = config().page_bytes;
    let cache = PageCache::new(config());
    is_short(&cache);
    is_short(&**cache.hot());
    let geometry = Geometry { page_bytes, block_bytes: 512, size_bytes: 1 << 30, writes_last_block: true };
    is_short(&BufferedPath::new(config(), None, geometry, Places));
    is_short(&Readahead::new(
        ReadaheadConfig { streams_max: 1024, ..ReadaheadConfig::default() },
        Page(1 << 20),
    ));
    let mut set = SortedSet::with_capacity(4096);
    (0..4096).for_each(|key| set.insert(key, 0));
    is_short(&set);
    is_short(&set.range(10..));
}

#[test]
fn files_and_locks_print_briefly() {
    let layout = FileLayout { block_bytes: 4096, size_bytes: 1 << 24, capacity_bytes: 1 << 26 };
    is_short(&DirtyMetadata { extent: extent(0), bytes: vec![0xEE; 4096].into() });
    is_short(&KeptMetadata::new(Box::new(IndirectMap::new(&layout).unwrap())));
    is_short(&MappedFile::fresh("indirect", &layout).unwrap());
    let file = MappedFile::fresh("extent", &layout).unwrap();
    let mapped =
        MappedDevice::without_bytes(Stuck(Limits::with_capacity(1 << 17)), file, Boundary::Once).unwrap();
    is_short(&mapped);
    let mut space = Quarantine::new(FreeSpace::default());
    let open: Vec<_> = (0..1000).map(|_| space.begin()).collect();
    (0..1000).for_each(|number| space.release(extent(number)));
    is_short(&space);
    drop(open);
    let mut locks = RangeLocks::default();
    for number in 0..1000 {
        assert!(locks.try_lock(LockKind::Write, &(number * 2..number * 2 + 1)));
        locks.wait(LockKind::Write, number * 2..number * 2 + 1);
    }
    is_short(&locks);
}

#[test]
fn errors_with_the_text_of_a_caller_print_briefly() {
    let long = "x".repeat(5000);
    is_short(&PlanError::UnknownBoundary(long.clone()));
    let layout = FileLayout { block_bytes: 4096, size_bytes: 1 << 24, capacity_bytes: 1 << 26 };
    is_short(&MappedFile::fresh(&long, &layout).unwrap_err());
    is_short(&long.parse::<iopath_core::elevator::ElevatorSpec>().unwrap_err());
}
