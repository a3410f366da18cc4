//! Runs readers, the policy, and a device of a given bandwidth and delay in virtual time.

use super::{Pattern, Readahead, ReadaheadConfig, Window};
use crate::file::page::{Page, PageRange};
use crate::time::{Duration, Instant};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::{HashMap, HashSet, VecDeque};

const PAGE: u64 = 4096;
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const REQUEST: u64 = 512 * KIB;

/// A device. The delays of requests overlap; their transfers do not.
#[derive(Debug, Clone, Copy)]
struct Device {
    bytes_per_second: u64,
    delay: Duration,
}

const DEVICES: [Device; 4] = [
    Device { bytes_per_second: 200 * MIB, delay: Duration::from_micros(300) },
    Device { bytes_per_second: 2 * GIB, delay: Duration::from_micros(100) },
    Device { bytes_per_second: 2 * GIB, delay: Duration::from_millis(2) },
    Device { bytes_per_second: 6 * GIB, delay: Duration::from_micros(80) },
];

#[derive(Debug, Clone, Copy)]
struct Cached {
    ready: Instant,
    is_marked: bool,
    is_ahead: bool,
}

/// A FIFO cache of `frames` pages, a device, and the policy.
struct World {
    policy: Readahead,
    device: Device,
    frames: usize,
    cache: HashMap<Page, Cached>,
    order: VecDeque<Page>,
    pipe_free: Instant,
    /// Reads in flight: the number of bytes, and the time of completion.
    in_flight: VecDeque<(u64, Instant)>,
    now: Instant,
    pages_read: u64,
    wasted: u64,
    requests: Vec<u64>,
    /// The duration of the copy of a page, and of a call.
    copy: Duration,
    call: Duration,
}

impl World {
    fn new(device: Device, file_bytes: u64) -> Self {
        let config = ReadaheadConfig { request_bytes: REQUEST, ..ReadaheadConfig::default() };
        Self {
            policy: Readahead::new(config, Page(file_bytes / PAGE)),
            device,
            frames: (256 * MIB / PAGE) as usize,
            cache: HashMap::new(),
            order: VecDeque::new(),
            pipe_free: Instant::ZERO,
            in_flight: VecDeque::new(),
            now: Instant::ZERO,
            pages_read: 0,
            wasted: 0,
            requests: Vec::new(),
            copy: Duration::from_nanos(250),
            call: Duration::from_nanos(400),
        }
    }

    /// One call of the reader.
    fn read(&mut self, offset: u64, bytes: u64) {
        let range = PageRange::touched_by(offset, bytes, PAGE as u32);
        self.now = self.now + self.call;
        for page in range.iter() {
            let at = PageRange::between(page, range.end());
            self.retire();
            match self.cache.get(&page).copied() {
                None => {
                    let window = self.policy.on_miss(at, |page| self.cache.contains_key(&page), self.now);
                    assert_eq!(window.ranges().flat_map(PageRange::iter).find(|it| *it == page), Some(page));
                    self.issue(&window, at);
                }
                Some(cached) if cached.is_marked => {
                    let window = self.policy.on_marker(at, |page| self.cache.contains_key(&page), self.now);
                    if let Some(window) = window {
                        self.issue(&window, at);
                    }
                }
                Some(_) => {}
            }
            let cached = self.cache.get_mut(&page).expect("the window has the page that was missed");
            (cached.is_marked, cached.is_ahead) = (false, false);
            self.now = self.now.max(cached.ready) + self.copy;
        }
    }

    fn issue(&mut self, window: &Window, at: PageRange) {
        assert!(window.pages() > 0, "an empty window");
        for range in window.ranges() {
            assert!(range.end() <= self.policy.end, "{range} is past the end");
            let mut from = range.start();
            while from < range.end() {
                let missing: Vec<Page> = PageRange::between(from, range.end())
                    .iter()
                    .skip_while(|page| self.cache.contains_key(page))
                    .take_while(|page| !self.cache.contains_key(page))
                    .take((REQUEST / PAGE) as usize)
                    .collect();
                let (Some(first), Some(last)) = (missing.first(), missing.last()) else { break };
                from = *last + 1;
                self.request(PageRange::between(*first, *last + 1), window, at);
            }
        }
    }

    fn request(&mut self, pages: PageRange, window: &Window, at: PageRange) {
        let bytes = pages.pages() * PAGE;
        self.policy.on_issued(bytes, self.now);
        let nanos = bytes * 1_000_000_000 / self.device.bytes_per_second;
        let ready = self.pipe_free.max(self.now + self.device.delay) + Duration::from_nanos(nanos);
        self.pipe_free = ready;
        self.in_flight.push_back((bytes, ready));
        self.requests.push(bytes);
        self.pages_read += pages.pages();
        for page in pages.iter() {
            let is_marked = window.is_marked(page);
            self.cache.insert(page, Cached { ready, is_marked, is_ahead: !at.contains(page) });
            self.order.push_back(page);
        }
        while self.order.len() > self.frames {
            let page = self.order.pop_front().unwrap();
            let evicted = self.cache.remove(&page).unwrap();
            if evicted.is_ahead {
                self.wasted += 1;
                self.policy.on_evicted_unused(page);
            }
        }
    }

    /// Handles all completions up to now.
    fn retire(&mut self) {
        while let Some((bytes, ready)) =
            self.in_flight.front().copied().filter(|(_, ready)| *ready <= self.now)
        {
            self.in_flight.pop_front();
            self.policy.on_completed(bytes, bytes, ready);
        }
    }

    fn unused(&self) -> u64 {
        self.wasted + self.cache.values().filter(|cached| cached.is_ahead).count() as u64
    }

    /// Throughput since `start`, as a share of the device's bandwidth.
    fn efficiency(&self, bytes: u64, start: Instant) -> f64 {
        let seconds = (self.now - start).as_secs_f64();
        bytes as f64 / seconds / self.device.bytes_per_second as f64
    }
}

fn sequential(device: Device, file_bytes: u64, block: u64) -> f64 {
    let mut world = World::new(device, file_bytes);
    for offset in (0..file_bytes).step_by(block as usize) {
        world.read(offset, block.min(file_bytes - offset));
    }
    assert_eq!(world.pages_read, file_bytes / PAGE, "each page is read once");
    world.efficiency(file_bytes, Instant::ZERO)
}

#[test]
fn a_sequential_reader_gets_the_bandwidth_of_the_device() {
    for device in DEVICES {
        let file = device.bytes_per_second.clamp(GIB, 2 * GIB);
        let efficiency = sequential(device, file, 16 * KIB);
        eprintln!("{device:?}: {efficiency:.3} of its bandwidth");
        // A page in 250 ns is 15 GiB/s: the reader is never the bottleneck.
        assert!(efficiency >= 0.95, "{device:?}: {efficiency:.3}");
    }
}

#[test]
fn the_block_size_causes_no_dip() {
    for device in DEVICES {
        let blocks = (2..=16).map(|shift| KIB << shift);
        let rates: Vec<f64> = blocks.map(|block| sequential(device, GIB, block)).collect();
        let (least, most) =
            rates.iter().fold((f64::MAX, 0.0_f64), |(a, b), rate| (a.min(*rate), b.max(*rate)));
        eprintln!("{device:?}: slowest to fastest {:.3}", least / most);
        assert!(least / most >= 0.9, "{device:?}: {rates:.3?}");
    }
}

#[test]
fn readahead_for_a_slow_reader_is_bounded() {
    let mut world = World::new(DEVICES[2], GIB);
    // A tenth of the device's bandwidth.
    world.copy = Duration::from_micros(20);
    for offset in (0..GIB / 2).step_by(16 << 10) {
        world.read(offset, 16 * KIB);
    }
    assert!(world.policy.distance_bytes() <= 4 * MIB, "{}", world.policy.distance_bytes());
    let reader = GIB / 2 / PAGE;
    assert!(world.pages_read - reader <= 8 * MIB / PAGE);
}

#[test]
fn sixty_four_interleaved_streams_are_distinguished() {
    let streams = 64;
    let each = 16 * MIB;
    let apart = GIB;
    for device in DEVICES {
        let mut world = World::new(device, streams * apart);
        // Each stream waits for its first misses: a few times 64 delays.
        let warm_up = 2 * MIB;
        let mut start = Instant::ZERO;
        for offset in (0..each).step_by(16 << 10) {
            if offset == warm_up {
                start = world.now;
            }
            for stream in 0..streams {
                world.read(stream * apart + offset, 16 * KIB);
            }
        }
        let efficiency = world.efficiency(streams * (each - warm_up), start);
        eprintln!("{device:?}: {efficiency:.3} of its bandwidth");
        assert!(efficiency >= 0.9, "{device:?}: {efficiency:.3}");
        assert_eq!(world.policy.stats().streams, streams);
        let beyond = world.unused();
        assert!(beyond * PAGE <= streams * 2 * REQUEST, "{beyond} pages read beyond where readers stopped");
    }
}

#[test]
fn streams_are_found_among_random_reads() {
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let mut world = World::new(DEVICES[2], 16 * GIB);
    let mut misses = 0;
    for block in 0..4096_u64 {
        for stream in 0..16 {
            let before = world.cache.contains_key(&Page(stream * 100_000 + block));
            misses += u64::from(!before);
            world.read((stream * 100_000 + block) * PAGE, PAGE);
            world.read(rng.random_range(2_000_000..4_000_000) * PAGE, PAGE);
        }
    }
    assert!(misses < 16 * 4096 / 100, "{misses} of {} reads of streams missed", 16 * 4096);
}

#[test]
fn a_backward_reader_gets_the_bandwidth_of_the_device() {
    for device in DEVICES {
        let mut world = World::new(device, GIB);
        for block in (0..GIB / (16 * KIB)).rev() {
            world.read(block * 16 * KIB, 16 * KIB);
        }
        assert_eq!(world.pages_read, GIB / PAGE);
        let efficiency = world.efficiency(GIB, Instant::ZERO);
        assert!(efficiency >= 0.9, "{device:?}: {efficiency:.3}");
    }
}

#[test]
fn a_strided_reader_does_not_wait_and_reads_no_gap() {
    for stride in [100_i64, -100] {
        let (piece, count) = (4_u64, 4000_u64);
        let mut world = World::new(DEVICES[1], 2 * GIB);
        let start = if stride > 0 { 0 } else { count * 100 };
        let mut waits = 0;
        for index in 0..count {
            let page = start.wrapping_add_signed(stride * index.cast_signed());
            waits += u64::from(!world.cache.contains_key(&Page(page)));
            world.read(page * PAGE, piece * PAGE);
        }
        assert!(waits <= 5, "{waits} misses");
        assert!(world.unused() <= 68 * piece, "{} pages in the gaps were read", world.unused());
    }
}

#[test]
fn random_reads_waste_less_than_one_percent() {
    for file_pages in [1 << 14, 1 << 17, 1 << 20, 1 << 24] {
        for seed in 0..4 {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let mut world = World::new(DEVICES[1], file_pages * PAGE);
            world.frames = 1 << 13;
            let reads = 50_000;
            for _ in 0..reads {
                world.read(rng.random_range(0..file_pages) * PAGE, PAGE);
            }
            let share = world.unused() as f64 / world.pages_read as f64;
            assert!(share < 0.01, "seed {seed}, {file_pages} pages: {:.2}% wasted", share * 100.0);
        }
    }
}

#[test]
fn a_large_random_read_is_split_at_the_best_request_and_reads_no_more() {
    let mut world = World::new(DEVICES[1], 64 * GIB);
    for index in 0..100 {
        world.read(index * 1237 % 4096 * 16 * MIB + 4 * MIB, 4 * MIB);
    }
    assert_eq!(world.unused(), 0);
    let small = world.requests.iter().filter(|bytes| **bytes < REQUEST).count();
    assert_eq!(small, 0, "requests of {:?}", world.requests.iter().collect::<HashSet<_>>());
}

#[test]
fn windows_consist_of_best_requests() {
    let mut world = World::new(DEVICES[2], GIB);
    for offset in (0..GIB).step_by(16 << 10) {
        world.read(offset, 16 * KIB);
    }
    let whole = world.requests.iter().filter(|bytes| **bytes == REQUEST).count() as u64;
    assert!(whole >= GIB / REQUEST - 4, "{whole} whole requests of {}", world.requests.len());
}

#[test]
fn thrashing_shrinks_the_windows_until_they_fit() {
    // 64 readers and memory for less than 64 windows of two requests.
    let streams = 64;
    let each = 4 * MIB;
    let mut world = World::new(DEVICES[2], streams * each);
    world.frames = (8 * MIB / PAGE) as usize;
    let mut wasted_in_first_half = 0;
    for offset in (0..each).step_by(16 << 10) {
        if offset == each / 2 {
            wasted_in_first_half = world.wasted;
        }
        for stream in 0..streams {
            world.read(stream * each + offset, 16 * KIB);
        }
    }
    assert!(world.policy.stats().shrinks >= streams, "{:?}", world.policy.stats());
    let later = world.wasted - wasted_in_first_half;
    let read = streams * each / PAGE;
    assert!(later * 10 < read / 2, "{later} pages of {} wasted after windows had shrunk", read / 2);
}

#[test]
fn one_or_many_evictions_halve_the_window_once() {
    let mut world = World::new(DEVICES[2], GIB);
    for offset in (0..64 * MIB).step_by(16 << 10) {
        world.read(offset, 16 * KIB);
    }
    let ahead = |world: &World| world.cache.iter().filter(|(_, page)| page.is_ahead).count() as u64;
    let before = ahead(&world);
    for page in 0..100 {
        world.policy.on_evicted_unused(Page(64 * MIB / PAGE + 10 + page));
    }
    assert_eq!(world.policy.stats().shrinks, 1);
    for offset in (64 * MIB..80 * MIB).step_by(16 << 10) {
        world.read(offset, 16 * KIB);
    }
    assert!(ahead(&world) <= before / 2 + REQUEST / PAGE, "{} ahead after {before}", ahead(&world));
}

#[test]
fn cached_pages_before_a_miss_restore_a_replaced_stream() {
    let mut world = World::new(DEVICES[1], GIB);
    world.issue(&Window::run(PageRange::new(Page(5000), 50), 0), PageRange::new(Page(5000), 50));
    world.read(5050 * PAGE, PAGE);
    assert_eq!(world.policy.stats().by_context, 1);
    assert!(world.cache.contains_key(&Page(5051)));
}

#[test]
fn a_marker_of_a_replaced_stream_is_adopted() {
    let mut world = World::new(DEVICES[1], GIB);
    let pages = PageRange::new(Page(5000), 50);
    world.issue(&Window::run(pages, 0).marked(Page(5010), 1 << 20), pages);
    world.read(5010 * PAGE, PAGE);
    assert!(world.cache.contains_key(&Page(5050)), "the page after the cached pages is read");
}

#[test]
fn advice_is_followed() {
    let mut world = World::new(DEVICES[1], GIB);
    world.policy.set_pattern(Pattern::Sequential);
    world.read(5000 * PAGE, PAGE);
    assert!(world.pages_read >= 2 * REQUEST / PAGE - 128, "{} pages", world.pages_read);
    world.policy.set_pattern(Pattern::Random);
    let before = world.pages_read;
    for page in 20_000..20_100 {
        world.read(page * PAGE, PAGE);
    }
    assert_eq!(world.pages_read - before, 100);
}

#[test]
fn no_window_passes_the_end() {
    for pages in [1, 2, 5, 127, 129, 1000] {
        let bytes = pages * PAGE;
        assert!(sequential(DEVICES[1], bytes, 16 * KIB) > 0.0);
    }
}
