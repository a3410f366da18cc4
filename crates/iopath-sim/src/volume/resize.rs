//! Changes of the size of a volume while I/O is in flight: truncation and growth of mapped files, and growth of the
//! others, as by writes that append. One truncation or growth of a mapped file at a time, by an engine of its own, as
//! the volumes of the crate `iopath` do it.

use iopath_core::buffered::ResizeStep;
use iopath_core::{BlockDevice, Instant, IoError, Tag};

use super::Volume;
use super::call::{Kind, Stage};
use crate::device::Device;

impl Volume {
    /// Begins to move the end of the volume to this byte, limited to the size of the plan.
    pub(super) fn begin_resize(&mut self, size_bytes: u64, now: Instant) {
        let size_bytes = size_bytes.min(self.plan.bytes);
        if self.control.is_none() || self.is_resizing() || size_bytes == self.size_bytes {
            return;
        }
        let (low, high) = (size_bytes.min(self.size_bytes), size_bytes.max(self.size_bytes));
        self.contents.add_end(low);
        let kind = Kind::Resize { size_bytes, resize: None, keeps_length: false };
        self.add(kind, low, high - low, "resize", now);
    }

    /// Begins a resize for a call that has locked the end.
    pub(super) fn begin_child_resize(
        &mut self,
        parent: usize,
        size_bytes: u64,
        keeps_length: bool,
        now: Instant,
    ) {
        let (low, high) = (size_bytes.min(self.size_bytes), size_bytes.max(self.size_bytes));
        self.contents.add_end(low);
        let kind = Kind::Resize { size_bytes, resize: None, keeps_length };
        self.begin_child(parent, kind, low, high - low, "resize", now);
    }

    /// Moves the end up, at most to the size of the plan: the disks have more bytes, all zeroes.
    pub(super) fn extend(&mut self, size_bytes: u64, now: Instant) {
        let size_bytes = size_bytes.min(self.plan.base_bytes() + self.plan.bytes);
        if size_bytes <= self.size_bytes {
            return;
        }
        self.with_moved_range(size_bytes, |volume| {
            volume.log(now, 0, "extend", volume.size_bytes, size_bytes - volume.size_bytes);
            volume.size_bytes = size_bytes;
            if let Some(path) = &mut volume.path {
                path.extend(size_bytes);
            }
            volume.set_capacity(size_bytes);
        });
    }

    /// Whether an I/O that ends at this byte may be past the end of the volume now.
    pub(super) fn is_past_end(&self, end: u64) -> bool {
        end > self.size_bytes || self.is_resizing()
    }

    /// Whether a call that began at this event overlaps with a resize.
    pub(super) fn has_resized_since(&self, start: u64) -> bool {
        self.resized_at > start || self.is_resizing()
    }

    pub(super) fn is_resizing(&self) -> bool {
        self.calls.iter().flatten().any(|call| matches!(call.kind, Kind::Resize { .. }))
    }

    /// A resize is ready, or continues after a wait: the page cache goes first.
    pub(super) fn continue_resize(&mut self, index: usize, now: Instant) {
        let Kind::Resize { size_bytes, .. } = self.call(index).kind else { unreachable!("a resize") };
        if size_bytes < self.size_bytes && !self.call(index).is_begun {
            // The bytes past the new end may be any until the truncation has ended.
            self.begin_model_write(index);
        }
        let Some(path) = &mut self.path else { return self.resize_file(index, now) };
        let call = self.calls[index].as_mut().expect("in progress");
        let Kind::Resize { resize, .. } = &mut call.kind else { unreachable!("a resize") };
        let resize = resize.get_or_insert_with(|| path.begin_resize(size_bytes));
        match path.continue_resize(resize, index as u64) {
            Ok(ResizeStep::Wait) => call.stage = Stage::Waiting,
            Ok(ResizeStep::Resize) => self.resize_file(index, now),
            Err(error) => self.end(index, Err(error), now),
        }
    }

    fn resize_file(&mut self, index: usize, now: Instant) {
        let is_plain = self.is_plain_file();
        let call = self.call(index);
        let Kind::Resize { size_bytes, .. } = call.kind else { unreachable!("a resize") };
        if is_plain {
            call.stage = Stage::Alone;
            if let Some(path) = &self.path {
                // No page is read past the end of the file.
                let sectors = path.geometry().sectors();
                self.queues[0].device.queue_mut().set_capacity(sectors);
            }
            return;
        }
        call.stage = Stage::AtControl;
        // No I/O is submitted past the end of the file.
        self.set_capacity(size_bytes.min(self.size_bytes));
        let control = self.control.as_mut().expect("a resize has an engine");
        control.resize(Tag::from_bits(index as u32), size_bytes, now);
    }

    /// Resizes a plain file while no direct I/O is in flight.
    pub(super) fn resize_plain(&mut self, index: usize, now: Instant) {
        let call = self.call(index);
        let Kind::Resize { size_bytes, keeps_length, .. } = call.kind else { unreachable!("a resize") };
        call.stage = Stage::AtControl;
        let result = if keeps_length { Ok(()) } else { self.set_file_length(size_bytes, false) };
        self.end_resize(index, result, now);
    }

    pub(super) fn set_capacity(&mut self, size_bytes: u64) {
        let sectors = size_bytes.div_ceil(512);
        for queue in &mut self.queues {
            queue.device.queue_mut().set_capacity(sectors);
            if let Device::Mapped(mapped) = queue.device.device_mut() {
                mapped.set_capacity(sectors);
            }
        }
    }

    /// Advances the engine that resizes. Returns whether a resize has ended.
    pub(super) fn advance_control(&mut self, now: Instant) -> bool {
        let Some(control) = &mut self.control else { return false };
        let done = control.poll_completion(now);
        control.commit(now);
        let Some(done) = done else { return false };
        self.end_resize(done.tag.to_bits() as usize, done.result, now);
        true
    }

    fn end_resize(&mut self, index: usize, result: Result<(), IoError>, now: Instant) {
        let call = self.calls[index].as_mut().expect("in progress");
        assert!(matches!(call.stage, Stage::AtControl), "rule 8: resize {index} completes twice");
        let Kind::Resize { size_bytes, resize, .. } = &mut call.kind else { unreachable!("a resize") };
        let size_bytes = *size_bytes;
        let resize = resize.take();
        if result.is_ok() && self.end.is_some() {
            self.move_end(size_bytes);
        } else if result.is_ok() {
            self.size_bytes = size_bytes;
        }
        if let (Some(path), Some(resize)) = (&mut self.path, resize) {
            path.end_resize(resize, result.is_ok());
            assert_eq!(path.geometry().size_bytes, self.size_bytes, "the cache and the file have one size");
        }
        self.set_capacity(self.size_bytes);
        self.resized_at = self.tick();
        self.end(index, result, now);
    }
}
