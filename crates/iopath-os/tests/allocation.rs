//! No I/O allocates memory once a queue or a cache is warm. The allocator counts the allocations.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use iopath_core::cache::{CacheConfig, DirectStep, Lookup, Outcome, PageCache, Part, WriteStep};
use iopath_core::elevator::{ELEVATORS, ElevatorSpec};
use iopath_core::mapper::{Boundary, FileLayout};
use iopath_core::readahead::ReadaheadConfig;
use iopath_core::{
    Bio, BlockDevice, Extent, Instant, Io, LengthOnly, Limits, Op, Page, PageRange, Priority, QueueConfig,
    RequestQueue, Stream, Stripe, StripeConfig, Tag,
};
use iopath_os::{
    AlignedBuf, AnyBuf, Buffered, BufferedConfig, BufferedStats, CacheQueue, CacheRequest, FileMap, Job,
    Mapped, MemoryConfig, MemoryDisk, NoMemory, Null, RealDevice, Runner, Segment, now,
};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: passes all calls to the system's allocator, and the counter is not in memory that it manages.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const BIOS: u64 = 64;

/// Fills the queue with bios and executes them: reads, writes, flushes, and long, adjacent and overlapping bios.
fn lap(queue: &mut RequestQueue<LengthOnly>, device: &mut impl BlockDevice<Memory = LengthOnly>, lap: u64) {
    let now = Instant::ZERO;
    queue.plug();
    for token in 0..BIOS {
        let number = lap * BIOS + token;
        // Adjacent bios at some offsets.
        let place = ((number / 8).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 50) + number % 8;
        let bytes = if number.is_multiple_of(13) { 3 << 20 } else { 4096 };
        let extent = Extent::from_bytes(place * 4096, bytes).unwrap();
        let memory = LengthOnly::new(bytes);
        let bio = match number / 4 % 7 {
            0 if number.is_multiple_of(4) => Bio::flush(token),
            1..=3 => Bio::write(extent, memory, token),
            _ => Bio::read(extent, memory, token),
        };
        queue.submit_bio(bio, now).unwrap();
    }
    queue.unplug(now);
    let mut over = 0;
    while over < BIOS {
        while let Some(io) = queue.poll_dispatch(now) {
            if let Err(busy) = device.submit(&io, now) {
                queue.requeue(busy.tag, now);
            }
        }
        device.commit(now);
        while let Some(done) = device.poll_completion(now) {
            queue.handle_completion(done.tag, done.result, now);
        }
        while let Some(done) = queue.poll_completion() {
            done.result.unwrap();
            over += 1;
        }
    }
}

#[test]
fn a_warm_queue_never_allocates_with_any_elevator() {
    for kind in ELEVATORS {
        let limits = Limits { depth_max: 32, volatile_cache: true, ..Limits::with_capacity(1 << 20) };
        let config = QueueConfig {
            bios_max: BIOS as u32,
            requests_max: 28,
            depth: 40,
            elevator: ElevatorSpec::new(*kind),
            ..QueueConfig::default()
        };
        // The device accepts less than its limits state, so it is sometimes busy.
        let mut device = Null::new(Limits { depth_max: 24, ..limits.clone() });
        let mut queue = RequestQueue::new(limits, &config);
        (0..4).for_each(|number| lap(&mut queue, &mut device, number));
        let warm = ALLOCATIONS.get();
        (4..200).for_each(|number| lap(&mut queue, &mut device, number));
        assert_eq!(ALLOCATIONS.get() - warm, 0, "{} allocates", kind.name);
        let stats = queue.stats();
        assert!(stats.split > 0 && stats.held > 0 && stats.requeued > 0 && stats.slot_waits > 0, "{stats:?}");
        assert!(stats.back_merges() > 0, "{stats:?}");
    }
}

#[test]
fn a_warm_stripe_never_allocates() {
    let limits = |depth| Limits { depth_max: depth, volatile_cache: true, ..Limits::with_capacity(1 << 20) };
    let members = (2..5).map(|depth| Null::<LengthOnly>::new(limits(depth))).collect();
    let config = StripeConfig { chunk_sectors: 16, ..StripeConfig::default() };
    let mut stripe = Stripe::new(members, &config).unwrap();
    let config = QueueConfig { bios_max: BIOS as u32, ..QueueConfig::default() };
    // The device accepts less than its limits state, so it is sometimes busy.
    let limits = Limits { depth_max: 40, ..stripe.limits().clone() };
    let mut queue = RequestQueue::new(limits, &config);
    (0..4).for_each(|number| lap(&mut queue, &mut stripe, number));
    let warm = ALLOCATIONS.get();
    (4..200).for_each(|number| lap(&mut queue, &mut stripe, number));
    assert_eq!(ALLOCATIONS.get() - warm, 0, "the stripe allocates");
    assert!(stripe.queue_stats().all(|stats| stats.back_merges() > 0), "nothing merged on a member");
    assert!(queue.stats().requeued > 0, "the stripe was never busy");
}

/// Executes reads, writes and flushes of a mapped file, eight at a time.
fn mapped_lap(device: &mut impl RealDevice, memory: Segment, lap: u64) {
    for number in lap * 64..(lap + 1) * 64 {
        let op = [Op::Read, Op::Write, Op::Flush, Op::Write][(number / 3 % 4) as usize];
        // Some cross an extent boundary.
        let place = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 57;
        let extent = Extent::from_bytes(place * 4096, 8192).unwrap();
        let (extent, memory) = if op == Op::Flush { (Extent::EMPTY, None) } else { (extent, Some(memory)) };
        device
            .submit(&Io::new(Tag::from_bits(number as u32 % 64), op, extent, memory.as_slice()), now())
            .unwrap();
        if number % 8 == 7 {
            device.commit_and_wait(8, None).unwrap();
            while device.poll_completion(now()).is_some_and(|done| done.result.is_ok()) {}
            assert_eq!(device.in_flight(), 0);
        }
    }
}

#[test]
fn a_warm_mapped_file_never_allocates_memory_if_it_needs_no_new_blocks() {
    let disk = MemoryDisk::new(&MemoryConfig::of_bytes(4 << 20)).unwrap();
    for mapper in ["identity", "extent", "indirect"] {
        let layout = FileLayout { block_bytes: 4096, size_bytes: 1 << 20, capacity_bytes: 4 << 20 };
        let file = FileMap::fresh(mapper, &layout).unwrap();
        let mut device = Mapped::new(disk.open(), &file, Boundary::Once).unwrap();
        let mut memory = AlignedBuf::new(8192).unwrap();
        // SAFETY: the memory outlives the requests, which all complete within a lap. Meanwhile the test does not access
        // it.
        let memory = unsafe { Segment::new(std::ptr::NonNull::from(&mut *memory).cast(), memory.len()) };
        for number in 0..128_u64 {
            // In an irregular order, so that the file has many extents.
            let extent = Extent::from_bytes(number * 37 % 128 * 8192, 8192).unwrap();
            device.submit(&Io::new(Tag::from_bits(0), Op::Write, extent, &[memory]), now()).unwrap();
            device.commit_and_wait(1, None).unwrap();
            device.poll_completion(now()).unwrap().result.unwrap();
        }
        (0..4).for_each(|lap| mapped_lap(&mut device, memory, lap));
        let warm = ALLOCATIONS.get();
        (4..40).for_each(|lap| mapped_lap(&mut device, memory, lap));
        assert_eq!(ALLOCATIONS.get() - warm, 0, "{mapper} allocates");
    }
}

/// Executes buffered and direct I/O on the same pages until no operation waits. Returns the number of operations that
/// waited.
fn cache_lap(cache: &mut PageCache, lap: u64) -> u64 {
    let now = Instant::ZERO;
    let mut waits = 0;
    for page in (0..8).map(|step| Page((lap * 8 + step) % 96)) {
        if let WriteStep::Into(frame) = cache.begin_write(page, Part::Whole, 0) {
            cache.end_write(frame, now);
        }
        if let Lookup::Hit(pinned) = cache.read(page + 3, 0) {
            cache.hot().unpin(pinned.frame);
        }
    }
    for step in 0..4 {
        let op = if step % 2 == 0 { Op::Write } else { Op::Read };
        let range = PageRange::new(Page((lap * 8 + step) % 96), 6);
        match cache.begin_direct(op, range, 0) {
            DirectStep::Go(tag) => cache.end_direct(tag),
            DirectStep::Wait => waits += 1,
        }
        waits += u64::from(cache.begin_write(range.start(), Part::Some, 0) == WriteStep::Wait);
    }
    loop {
        while let Some(io) = cache.poll_io(now) {
            cache.handle_completion(io.tag, Ok(()), now);
        }
        let Some(ready) = cache.poll_ready() else { return waits };
        match ready.outcome {
            Outcome::Pinned(frame) => drop(cache.hot().unpin(frame)),
            Outcome::Writable(frame) => drop(cache.end_write(frame, now)),
            Outcome::Direct(tag) => cache.end_direct(tag),
            Outcome::Retry | Outcome::Done => {}
            Outcome::Failed(error) | Outcome::Unwritable { source: error, .. } => panic!("{error}"),
        }
    }
}

#[test]
fn a_warm_cache_never_allocates_for_direct_io_beside_it() {
    let mut cache = PageCache::new(CacheConfig { frames: 64, ..CacheConfig::default() });
    (0..20).for_each(|number| assert!(cache_lap(&mut cache, number) > 0));
    let warm = ALLOCATIONS.get();
    let waits: u64 = (20..1000).map(|number| cache_lap(&mut cache, number)).sum();
    assert_eq!(ALLOCATIONS.get() - warm, 0, "the cache allocates");
    assert!(waits > 1000, "only {waits} waited");
}

/// Hits, borrowed hits, misses with and without readahead, whole and partial writes, write-back by the share of dirty
/// pages, and a flush. The file has four times as many pages as the cache.
fn buffered_lap(buffered: &Buffered, bytes: &mut [u8], lap: u64) {
    const PAGES: u64 = 256;
    for number in lap * 64..(lap + 1) * 64 {
        let page = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56;
        let offset = match number / 8 % 4 {
            // A stream, for readahead.
            0 | 1 => number % PAGES * 4096,
            _ => page * 4096,
        };
        match number / 3 % 4 {
            0 => buffered.write_at(&bytes[..4096], offset).unwrap(),
            1 => buffered.write_at(&bytes[..100], offset + 50).unwrap(),
            2 => assert_eq!(buffered.borrow(offset, 4096).unwrap().len(), 4096),
            _ => assert_eq!(buffered.read_at(bytes, offset).unwrap() % 4096, 0),
        }
        // Cached now.
        assert_eq!(buffered.read_at(&mut bytes[..512], offset + 512).unwrap(), 512);
    }
    if lap.is_multiple_of(3) {
        buffered.flush().unwrap();
    }
}

#[test]
fn a_warm_buffered_path_never_allocates() {
    let disk = MemoryDisk::new(&MemoryConfig::of_bytes(1 << 20)).unwrap();
    let config = BufferedConfig {
        cache: CacheConfig { frames: 64, ..CacheConfig::default() },
        readahead: Some(ReadaheadConfig { budget_bytes: 64 << 10, ..ReadaheadConfig::default() }),
        ..BufferedConfig::of_bytes(1 << 20)
    };
    let opened: Result<_, NoMemory> = Buffered::new(config, |_| {
        let device: Box<dyn RealDevice + Send> = Box::new(disk.open());
        Ok(Runner::new(device, &QueueConfig::default()))
    });
    let buffered = opened.unwrap();
    let mut bytes = vec![7; 4 * 4096];
    (0..40).for_each(|lap| buffered_lap(&buffered, &mut bytes, lap));
    let (warm, before) = (ALLOCATIONS.get(), buffered.stats());
    (40..400).for_each(|lap| buffered_lap(&buffered, &mut bytes, lap));
    assert_eq!(ALLOCATIONS.get() - warm, 0, "the buffered path allocates");
    let BufferedStats { hits, cache, .. } = buffered.stats();
    assert!(hits - before.hits > 10_000, "{hits} hits");
    assert!(cache.pages_read - before.cache.pages_read > 1000, "{cache:?}");
    assert!(cache.pages_written - before.cache.pages_written > 1000, "{cache:?}");
}

/// Buffers of the program pass through a queue and back.
#[test]
fn a_warm_runner_never_allocates_for_buffers_of_any_type() {
    let disk = MemoryDisk::new(&MemoryConfig::of_bytes(1 << 20)).unwrap();
    let mut runner: Runner<_, AnyBuf> = Runner::for_buffers(Box::new(disk.open()), &QueueConfig::default());
    let mut buffers: Vec<AnyBuf> = (0..16)
        .map(|number| match number % 2 {
            0 => AnyBuf::new(AlignedBuf::new(4096).unwrap()),
            _ => AnyBuf::new(vec![0_u8; 4096]),
        })
        .collect();
    let mut lap = |number: u64| {
        while let Some(buffer) = buffers.pop() {
            let place = (number * 16 + buffers.len() as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 57;
            let job = Job {
                op: if buffers.len().is_multiple_of(3) { Op::Write } else { Op::Read },
                extent: Extent::from_bytes(place * 4096, 4096).unwrap(),
                buffer: Some(buffer),
                fua: false,
                stream: Stream(0),
                priority: Priority::default(),
                token: number,
            };
            runner.queue(job).unwrap();
        }
        runner.drain().unwrap();
        while let Some(done) = runner.poll_completion() {
            done.result.unwrap();
            buffers.extend(done.buffer);
        }
        assert_eq!(buffers.len(), 16);
    };
    (0..4).for_each(&mut lap);
    let warm = ALLOCATIONS.get();
    (4..200).for_each(&mut lap);
    assert_eq!(ALLOCATIONS.get() - warm, 0, "the runner allocates");
}

#[test]
fn a_warm_queue_of_the_cache_never_allocates_for_buffers_of_any_type() {
    let disk = MemoryDisk::new(&MemoryConfig::of_bytes(1 << 20)).unwrap();
    let config = BufferedConfig {
        cache: CacheConfig { frames: 64, ..CacheConfig::default() },
        ..BufferedConfig::of_bytes(1 << 20)
    };
    let opened: Result<_, NoMemory> = Buffered::new(config, |_| {
        let device: Box<dyn RealDevice + Send> = Box::new(disk.open());
        Ok(Runner::new(device, &QueueConfig::default()))
    });
    let buffered = opened.unwrap();
    let mut queue: CacheQueue<AnyBuf> = buffered.request_queue(16, 8);
    let mut buffers: Vec<AnyBuf> = (0..16).map(|_| AnyBuf::new(vec![0_u8; 4096])).collect();
    let mut lap = |number: u64| {
        while let Some(buffer) = buffers.pop() {
            let place = (number * 16 + buffers.len() as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56;
            let request = CacheRequest {
                op: if buffers.len().is_multiple_of(3) { Op::Write } else { Op::Read },
                offset: place * 4000,
                bytes: 4096,
                buffer: Some(buffer),
                is_durable: false,
                unit_bytes: 1,
                token: number,
            };
            assert!(queue.queue(request).is_ok());
        }
        while queue.in_flight() > 0 {
            queue.wait(16).unwrap();
            while let Some(done) = queue.next_completed() {
                assert_eq!(done.result.unwrap(), 4096);
                buffers.extend(done.buffer);
            }
        }
    };
    (0..400).for_each(&mut lap);
    let warm = ALLOCATIONS.get();
    (400..1000).for_each(&mut lap);
    assert_eq!(ALLOCATIONS.get() - warm, 0, "the queue allocates");
}
