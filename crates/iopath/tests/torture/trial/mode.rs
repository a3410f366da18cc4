//! Random options of a volume. The storage is in `backend.rs`.

use crate::conditions::Mode;
use crate::settings::pick;
use iopath::elevator::ELEVATORS;
use iopath::{Context, IoMode, Options, Readahead, Unaligned};
use rand::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;

/// The smallest page cache.
const PAGES_MIN: u64 = 16;
/// Each worker borrows at most two pages, and needs some to write.
const PAGES_FOR_WORKER: u64 = 4;

/// Random options with their properties and the context of the cache, for a volume with or without a partial last
/// block, and a number of workers.
pub(super) fn random(
    is_whole: bool,
    workers: usize,
    random: &mut Xoshiro256PlusPlus,
) -> (Options, Mode, Option<Context>) {
    let options = queue(random);
    let direct = Mode::default();
    let any = Mode { accepts_unaligned: true, ..direct };
    let page_bytes = *pick(random, &[4096, 4096, 16 << 10, 64 << 10]);
    let readahead = *pick(random, &[Readahead::Auto, Readahead::Off, Readahead::Bytes(64 << 10)]);
    let fewest = PAGES_MIN.max(PAGES_FOR_WORKER * workers as u64);
    // A single worker would mostly wait for write-back.
    let is_smallest = workers > 1 && random.random();
    let pages = if is_smallest { fewest } else { random.random_range(fewest..fewest + 32) };
    let cached = |options: Options| {
        let options = options.page_bytes(page_bytes).cache_bytes(u64::from(page_bytes) * pages);
        (options.readahead(readahead), Mode { is_cached: true, ..any })
    };
    // Several workers interact in a page cache more than elsewhere.
    let kinds = if workers == 1 { 8 } else { 16 };
    let extends = random.random();
    let (options, mode) = match random.random_range(0..kinds) {
        0 | 1 if is_whole => (options.mode(IoMode::Raw), Mode { is_raw: true, ..direct }),
        0..3 => (options, direct),
        3 => (options.unaligned(Unaligned::Bounce), any),
        4 => cached(options.unaligned(Unaligned::Buffered)),
        _ => cached(options.mode(IoMode::Buffered)),
    };
    let options = options.extend(extends);
    let mode = Mode { extends: extends && !mode.is_raw, ..mode };
    if !mode.is_cached || random.random() {
        return (options, mode, None);
    }
    let context = Context::new(u64::from(page_bytes) * random.random_range(PAGES_MIN..2 * pages));
    context.keep_closed(random.random_range(0..3));
    // With a lock, the pages of a closed volume are kept also after its writes.
    let options = options.lock(random.random_range(0..4) > 0);
    (options.context(&context), Mode { is_in_context: true, ..mode }, Some(context))
}

fn queue(random: &mut Xoshiro256PlusPlus) -> Options {
    let elevator = pick(random, ELEVATORS).name;
    let options = Options::new().write(true).elevator(elevator).depth(*pick(random, &[1, 2, 8, 32]));
    match *pick(random, &[None, None, Some(4096), Some(64 << 10)]) {
        Some(bytes) => options.request_bytes_max(bytes),
        None => options,
    }
}
