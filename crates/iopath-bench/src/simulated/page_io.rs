//! The page I/O of a buffered path in virtual time: moves bios from the page cache to the queue, and completions back.
//! The callers of the cache are the jobs of `buffered.rs` and the threads of `server.rs`.

use iopath_core::buffered::{BufferedPath, PageBio, Step};
use iopath_core::cache::IoTag;
use iopath_core::{Bio, BlockDevice, Instant, Priority, QueuedDevice, Stream};
use iopath_model::event_loop::earlier;

use super::span::{FrameSpans, Span};
use super::unplug::Unplugger;

/// A page cache, and the queue and device below it.
#[derive(Debug)]
pub(super) struct PageIo<D: BlockDevice> {
    pub(super) path: BufferedPath<FrameSpans>,
    pub(super) queue: QueuedDevice<D>,
    pub(super) unplugger: Unplugger,
    /// Whether a completion starts plugged requests.
    pub(super) completion_unplugs: bool,
}

impl<D: BlockDevice<Memory = Span>> PageIo<D> {
    /// Executes the steps of the state machine, and passes completions to it, until no work is due. New bios belong to
    /// `stream`. `is_ready` returns whether the device waits for a request of that stream, which removes the plug.
    /// Returns the number of bios that the queue accepted.
    pub(super) fn pump(&mut self, stream: Stream, is_ready: impl Fn(&D) -> bool, now: Instant) -> u32 {
        let mut bios = 0;
        loop {
            while let Some(step) = self.path.poll_step(now) {
                match step {
                    Step::Submit(bio) => {
                        if is_ready(self.queue.device()) {
                            self.unplugger.handle_ready_device();
                        }
                        bios += u32::from(self.submit(bio, stream, now));
                    }
                    Step::Zero { .. } => {}
                    Step::WriteTail { tag, .. } => self.path.handle_completion(tag, Ok(()), now),
                }
            }
            self.unplugger.unplug(&mut self.queue, now);
            self.queue.collect(now);
            self.queue.dispatch(now);
            self.queue.commit(now);
            let mut has_completed = false;
            while let Some(done) = self.queue.poll_completion() {
                has_completed = true;
                if self.completion_unplugs {
                    self.unplugger.handle_ready_device();
                }
                self.path.handle_completion(IoTag(done.token as u32), done.result, now);
            }
            if !has_completed {
                return bios;
            }
        }
    }

    /// Whether the queue accepted the bio.
    fn submit(&mut self, bio: PageBio<Span>, stream: Stream, now: Instant) -> bool {
        let PageBio { tag, op, extent, memory } = bio;
        let (priority, token) = (Priority::default(), u64::from(tag.0));
        let queued = Bio { op, extent, memory, fua: false, stream, priority, token };
        match self.queue.submit_bio(queued, now) {
            Ok(()) => true,
            Err(why) => {
                self.path.handle_refused(bio, &why, now);
                false
            }
        }
    }

    /// A caller that has run may have started readahead windows.
    pub(super) fn handle_windows(&mut self) {
        self.unplugger.handle_windows(self.path.readahead().stats().windows);
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let io = earlier(self.path.poll_timeout(), self.queue.poll_timeout());
        earlier(io, self.unplugger.poll_timeout())
    }
}
