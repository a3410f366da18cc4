//! The hit ratio of the page cache, compared with LRU, CLOCK and the optimum, on a trace and on synthetic workloads. It
//! counts hits and measures no time.
//!
//! `IOPATH_TRACE=FILE cargo bench -p iopath-core --bench hit_ratio` prints the table of docs/cache.md. FILE is a CSV of
//! `time_ns,op,sector,sectors,disk`; without it the rows of the trace are omitted.

mod peers;
mod workload;

use iopath_core::Instant;
use iopath_core::Page;
use iopath_core::cache::{CacheConfig, Lookup, Outcome, PageCache};
use peers::{Clock, Lru, best};
use workload::{Workload, made, traced};

/// A cache of page numbers. `access` returns whether the page was cached.
trait Cache {
    fn access(&mut self, page: u64) -> bool;
}

/// The page cache of the core, with a device that completes at once.
impl Cache for PageCache {
    fn access(&mut self, page: u64) -> bool {
        let now = Instant::ZERO;
        let (pinned, is_hit) = match self.read(Page(page), 0) {
            Lookup::Hit(pinned) => (pinned.frame, true),
            Lookup::Wait => {
                let io = self.poll_io(now).expect("a miss is read");
                self.handle_completion(io.tag, Ok(()), now);
                match self.poll_ready().expect("the page is there").outcome {
                    Outcome::Pinned(frame) => (frame, false),
                    outcome => unreachable!("a read ended as {outcome:?}"),
                }
            }
        };
        self.hot().unpin(pinned);
        is_hit
    }
}

fn ratio(cache: &mut dyn Cache, pages: &[u64]) -> f64 {
    let hits = pages.iter().filter(|page| cache.access(**page)).count();
    hits as f64 / pages.len() as f64
}

fn row(workload: &Workload, frames: u32) {
    let pages = &workload.pages;
    let mut own = PageCache::new(CacheConfig { frames, ..CacheConfig::default() });
    let ratios = [
        ratio(&mut own, pages),
        ratio(&mut Lru::new(frames as usize), pages),
        ratio(&mut Clock::new(frames as usize), pages),
        best(frames as usize, pages),
    ];
    let cells: Vec<String> = ratios.iter().map(|ratio| format!("{:.1}", ratio * 100.0)).collect();
    println!("| {} | {frames} | {} |", workload.name, cells.join(" | "));
}

fn main() {
    // `cargo test` runs benches without this argument, only to check that they run.
    let is_bench = std::env::args().any(|arg| arg == "--bench");
    let accesses = if is_bench { 1_000_000 } else { 10_000 };
    let mut workloads = made(accesses);
    if let Ok(path) = std::env::var("IOPATH_TRACE") {
        let text =
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("IOPATH_TRACE={path}: {error}"));
        workloads.insert(0, traced("oltp trace", &text));
    }
    println!("| workload | frames | iopath % | LRU % | CLOCK % | optimum % |");
    println!("|---|---|---|---|---|---|");
    for workload in &workloads {
        for frames in workload.frames {
            row(workload, frames);
        }
    }
}
