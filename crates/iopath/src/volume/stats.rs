//! The counters of the queues of a volume. Those of the page cache: `volume/buffered.rs`.

use super::Volume;
use iopath_core::QueueStats;
use iopath_os::{Buffered, ThreadQueue};
use std::fmt;

/// The counters of all queues of a volume: [`Volume::queue_stats`].
#[derive(Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VolumeQueueStats {
    /// The queue between the page cache and the device; `None` if there is no page cache, or it is not open yet.
    pub cache: Option<QueueStats>,
    /// The queue that all threads and batches share with an elevator other than `none`; `None` if none has used it.
    pub shared: Option<QueueStats>,
    /// The queues of threads with blocking direct I/O, together.
    pub threads: QueueStats,
    /// The number of these queues.
    pub thread_queues: usize,
}

/// The queues together: each alone has 18 counters.
impl fmt::Debug for VolumeQueueStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VolumeQueueStats")
            .field("total", &self.total())
            .field("thread_queues", &self.thread_queues)
            .finish_non_exhaustive()
    }
}

impl VolumeQueueStats {
    /// The sum of all queues.
    pub fn total(&self) -> QueueStats {
        let mut total = self.threads;
        self.cache.into_iter().chain(self.shared).for_each(|queue| total += queue);
        total
    }
}

impl Volume {
    /// The counters of each queue of the volume, since it was opened. A batch with a queue of its own has its own
    /// counters ([`Batch::stats`](crate::Batch::stats)). After [`Volume::set_elevator`] between `none` and another
    /// elevator, the counters of queues that are not used any longer are gone.
    ///
    /// Waits for blocking direct I/O in flight, of one thread after another: at a device that does not respond, as long
    /// as that I/O. Costs no I/O anything, except that a thread whose counters are being copied waits.
    ///
    /// ```
    /// use iopath::{Options, Volume};
    /// use iopath::testing::{MemoryConfig, MemoryDisk};
    ///
    /// let disk = MemoryDisk::new(&MemoryConfig::of_bytes(1 << 20))?;
    /// let volume = Volume::memory(&disk, &Options::new())?;
    /// volume.read_exact_at(&mut [0; 4096], 0)?;
    /// assert_eq!(volume.queue_stats().total().bios, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn queue_stats(&self) -> VolumeQueueStats {
        let (mut threads, mut thread_queues) = (QueueStats::default(), 0);
        self.shared.shards.for_each(|queue| {
            // A client of the shared queue has no counters of its own.
            if let ThreadQueue::Own(runner) = queue.as_is() {
                threads += *runner.stats();
                thread_queues += 1;
            }
        });
        VolumeQueueStats {
            cache: self.cache_if_any().map(Buffered::queue_stats),
            shared: self.tuning().shared_queue().if_open().map(iopath_os::SharedQueue::stats),
            threads,
            thread_queues,
        }
    }
}
