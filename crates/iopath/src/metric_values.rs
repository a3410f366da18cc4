//! The counters of volumes and contexts as values of the crate `metrics`.

use crate::context::{Context, ContextStats};
use crate::volume::Volume;
use iopath_core::QueueStats;
use metrics::{counter, gauge};

impl Volume {
    /// Passes the counters of the volume ([`Volume::stats`], [`Volume::queue_stats`]) to the recorder of the crate
    /// `metrics`, with the label `volume`: its path. Call it when values are due, for example each 10 s. I/O records
    /// nothing by itself, and costs nothing.
    ///
    /// The counters of queues have the label `queue`, too: `cache`, `shared` or `threads`.
    ///
    /// | name | kind |
    /// |---|---|
    /// | `iopath_size_bytes` | gauge |
    /// | `iopath_cache_hits_total`, `_misses_total`, `_evicted_pages_total` | counter |
    /// | `iopath_cache_pages_read_total`, `_pages_written_total`, `_writes_failed_total` | counter |
    /// | `iopath_cache_dirty_pages`, `_failed_pages` | gauge |
    /// | `iopath_queue_bios_total`, `_requests_total`, `_merges_total`, `_splits_total`, `_held_total` | counter |
    pub fn record_metrics(&self) {
        let volume = self.facts().path.display().to_string();
        gauge!("iopath_size_bytes", "volume" => volume.clone()).set(self.size_bytes() as f64);
        if let Some(stats) = self.stats() {
            let cache = stats.cache;
            let counters = [
                ("iopath_cache_hits_total", stats.hits + cache.hits),
                ("iopath_cache_misses_total", cache.misses),
                ("iopath_cache_evicted_pages_total", cache.evicted),
                ("iopath_cache_pages_read_total", cache.pages_read),
                ("iopath_cache_pages_written_total", cache.pages_written),
                ("iopath_cache_writes_failed_total", cache.writes_failed),
            ];
            for (name, value) in counters {
                counter!(name, "volume" => volume.clone()).absolute(value);
            }
            gauge!("iopath_cache_dirty_pages", "volume" => volume.clone()).set(cache.dirty as f64);
            gauge!("iopath_cache_failed_pages", "volume" => volume.clone()).set(cache.failed as f64);
        }
        let queues = self.queue_stats();
        let each = [("cache", queues.cache), ("shared", queues.shared), ("threads", Some(queues.threads))];
        for (queue, stats) in each {
            if let Some(stats) = stats {
                record_queue(&volume, queue, &stats);
            }
        }
    }
}

fn record_queue(volume: &str, queue: &'static str, stats: &QueueStats) {
    let counters = [
        ("iopath_queue_bios_total", stats.bios),
        ("iopath_queue_requests_total", stats.dispatched),
        ("iopath_queue_merges_total", stats.back_merges() + stats.front_merges()),
        ("iopath_queue_splits_total", stats.split),
        ("iopath_queue_held_total", stats.held),
    ];
    for (name, value) in counters {
        counter!(name, "volume" => volume.to_owned(), "queue" => queue).absolute(value);
    }
}

impl Context {
    /// Passes the memory of the context ([`Context::stats`]) to the recorder of the crate `metrics`, with the label
    /// `context`: a name of the program. The gauges are `iopath_context_memory_bytes`, `_used_bytes`, `_kept_bytes` and
    /// `_volumes`; the counter is `iopath_context_reopened_total`.
    pub fn record_metrics(&self, name: &str) {
        let ContextStats { memory_bytes, used_bytes, kept_bytes, volumes, reopened, .. } = self.stats();
        let gauges = [
            ("iopath_context_memory_bytes", memory_bytes as f64),
            ("iopath_context_used_bytes", used_bytes as f64),
            ("iopath_context_kept_bytes", kept_bytes as f64),
            ("iopath_context_volumes", volumes as f64),
        ];
        for (gauge, value) in gauges {
            gauge!(gauge, "context" => name.to_owned()).set(value);
        }
        counter!("iopath_context_reopened_total", "context" => name.to_owned()).absolute(reopened);
    }
}
