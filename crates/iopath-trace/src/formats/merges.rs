//! blktrace has one action for the merge of a bio and for the merge of a request into the one before it. A bio is
//! merged by the task that has just queued it.

use iopath_log::NumberMap;
use iopath_log::kernel::{DeviceNumber, KernelEvent, What};

/// The maximum number of tasks that are remembered.
const TASKS_MAX: usize = 1 << 16;

/// The starts of the bio, or of the pieces of the bio, that each task has queued last.
#[derive(Debug, Default)]
pub(super) struct Merges {
    queued: NumberMap<u32, (DeviceNumber, u64, u64)>,
}

impl Merges {
    /// Changes a merge to that of a request if its task has not queued a bio with that start.
    pub(super) fn follow(&mut self, event: &mut KernelEvent) {
        match event.what {
            What::Queue(io) => self.note(event.tid, (io.device, io.sector, io.sector)),
            What::Split { device, sector, new_sector } => self.note(event.tid, (device, sector, new_sector)),
            What::BackMerge(io) => {
                let is_bio = self.queued.get(&event.tid).is_some_and(|(device, first, second)| {
                    *device == io.device && (*first == io.sector || *second == io.sector)
                });
                if !is_bio {
                    event.what = What::MergeRequest(io);
                }
            }
            _ => {}
        }
    }

    fn note(&mut self, task: u32, queued: (DeviceNumber, u64, u64)) {
        if self.queued.len() >= TASKS_MAX && !self.queued.contains_key(&task) {
            self.queued.clear();
        }
        self.queued.insert(task, queued);
    }
}
