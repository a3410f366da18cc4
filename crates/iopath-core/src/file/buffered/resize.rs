//! A change of the size of a volume in use. The caller resizes the file; this module keeps cached pages and reads in
//! flight consistent with the file.
//!
//! ```text
//!   continue_resize ─▶ page of the lower end: written back, writers wait ─▶ pages past the new end: dropped
//!                   ─▶ the end moves down ─▶ Resize: the caller resizes the file ─▶ end_resize: the end moves up
//! ```
//!
//! The *lower end* is the lower of the two ends, old and new. No read is submitted past the end of the file: the end of
//! the volume moves down before the file is truncated, and up after the file was extended.

use super::{BufferedPath, Frames};
use crate::block::bio::Op;
use crate::error::IoError;
use crate::file::cache::{DirectStep, DirectTag, Outcome};
use crate::file::page::{Page, PageRange};

/// A resize in progress. One at a time.
#[derive(Debug)]
pub struct Resize {
    size_bytes: u64,
    old_bytes: u64,
    /// The page that contains the lower end. It is written back whole and read again, with zeroes past the end.
    cut_page: Option<DirectTag>,
    /// The pages past the new end.
    past_end: Option<DirectTag>,
    /// The lower end is inside a page, which is still to be written back.
    needs_cut: bool,
    is_waiting: bool,
    /// The outcome of the wait, until the next [`BufferedPath::continue_resize`].
    outcome: Option<Outcome>,
}

/// The next action of the caller of a resize.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResizeStep {
    /// Wait until [`BufferedPath::poll_ready`] names the waiter. Pass the outcome to [`Resize::handle_outcome`].
    Wait,
    /// Set the capacity of the queue to [`Geometry::sectors`](super::Geometry::sectors), resize the file, then call
    /// [`BufferedPath::end_resize`].
    Resize,
}

impl<F: Frames> BufferedPath<F> {
    /// A move of the end of the volume to `size_bytes`. Drops dirty pages past that end.
    pub const fn begin_resize(&self, size_bytes: u64) -> Resize {
        let old_bytes = self.geometry.size_bytes;
        let kept_bytes = if size_bytes < old_bytes { size_bytes } else { old_bytes };
        let needs_cut = !kept_bytes.is_multiple_of(self.geometry.page_bytes as u64);
        let (cut_page, past_end, is_waiting, outcome) = (None, None, false, None);
        Resize { size_bytes, old_bytes, cut_page, past_end, needs_cut, is_waiting, outcome }
    }

    /// The next action of the caller.
    ///
    /// # Errors
    /// The page that contains the lower end could not be written back. The resize has ended without a change.
    ///
    /// # Panics
    /// If the resize gets the outcome of another kind of call: a bug of the caller.
    pub fn continue_resize(&mut self, resize: &mut Resize, waiter: u64) -> Result<ResizeStep, IoError> {
        if resize.is_waiting {
            let Some(outcome) = resize.outcome.take() else { return Ok(ResizeStep::Wait) };
            resize.is_waiting = false;
            match outcome {
                Outcome::Direct(tag) => resize.hold(tag),
                Outcome::Failed(error) => {
                    self.release_cut_page(resize);
                    return Err(error);
                }
                other => unreachable!("the outcome of a resize is {other:?}"),
            }
        }
        while resize.past_end.is_none() {
            let step = if resize.needs_cut {
                self.begin_direct(Op::WriteZeroes, resize.size_bytes.min(resize.old_bytes), 1, 1, waiter)
            } else {
                let end = Page(resize.size_bytes.div_ceil(u64::from(self.geometry.page_bytes)));
                self.cache.begin_truncate(end, waiter)
            };
            match step {
                DirectStep::Go(tag) => resize.hold(tag),
                DirectStep::Wait => {
                    resize.is_waiting = true;
                    return Ok(ResizeStep::Wait);
                }
            }
        }
        if resize.is_cut() {
            self.set_size(resize.size_bytes);
        }
        Ok(ResizeStep::Resize)
    }

    /// Ends a resize. `is_resized` states whether the caller has resized the file. Set the capacity of the queue again
    /// afterwards.
    ///
    /// If the file could not be truncated, the dropped dirty pages are lost: every flush fails until
    /// [`BufferedPath::accept_loss`]. Reads during the resize may have copied zeroes past the lower end, and begin
    /// again ([`BufferedRead::poll`](super::BufferedRead::poll)).
    ///
    /// # Panics
    /// If the resize still waits: a bug of the caller.
    #[expect(clippy::needless_pass_by_value, reason = "the resize ends here")]
    pub fn end_resize(&mut self, resize: Resize, is_resized: bool) {
        let is_cut = resize.is_cut();
        let Resize { size_bytes, old_bytes, cut_page, past_end, .. } = resize;
        let past_end = past_end.expect("a resize ends before it may begin");
        if !is_resized && is_cut {
            self.cache.fail_truncate(past_end, IoError::Os(IoError::Media.errno()));
            let first = Page(size_bytes / u64::from(self.geometry.page_bytes));
            self.cache.invalidate(PageRange::between(first, Page::MAX));
            self.failed_resizes += 1;
            self.set_size(old_bytes);
        } else {
            if is_resized {
                self.set_size(size_bytes);
            }
            self.cache.end_direct(past_end);
        }
        if let Some(cut_page) = cut_page {
            self.cache.end_direct(cut_page);
        }
    }

    /// Cancels a resize that waits, because all waits fail from now on: a device that no longer answers. The volume
    /// keeps its size. Pages past the lower end whose write-back had to make way are lost, and writers to the pages
    /// that the resize waited for may not continue.
    ///
    /// # Panics
    /// If the file may be resized already: a bug of the caller.
    pub fn cancel_resize(&mut self, mut resize: Resize) {
        assert!(resize.past_end.is_none(), "a resize is canceled after its wait");
        self.release_cut_page(&mut resize);
    }

    /// Moves the end of the volume to `size_bytes`, unless it is there already or higher. The file must have that
    /// length already, and the added bytes must read as zeroes. For writes that append: unlike a resize, this never
    /// waits. No resize may be in progress: it would restore the end that it has seen. Set the capacity of the queue
    /// afterwards.
    pub fn extend(&mut self, size_bytes: u64) {
        if size_bytes > self.geometry.size_bytes {
            self.set_size(size_bytes);
        }
    }

    fn release_cut_page(&mut self, resize: &mut Resize) {
        if let Some(cut_page) = resize.cut_page.take() {
            self.cache.end_direct(cut_page);
        }
    }

    fn set_size(&mut self, size_bytes: u64) {
        if self.geometry.size_bytes == size_bytes {
            return;
        }
        self.geometry.size_bytes = size_bytes;
        self.resizes += 1;
        self.readahead.set_end(self.geometry.end());
    }
}

impl Resize {
    /// Whether the volume becomes shorter.
    pub const fn is_cut(&self) -> bool {
        self.size_bytes < self.old_bytes
    }

    /// The outcome of the wait is known.
    ///
    /// # Panics
    /// If the resize does not wait: a bug of the caller.
    pub fn handle_outcome(&mut self, outcome: Outcome) {
        let earlier = self.outcome.replace(outcome);
        assert!(self.is_waiting && earlier.is_none(), "a resize gets {outcome:?} after {earlier:?}");
    }

    const fn hold(&mut self, tag: DirectTag) {
        let place = if self.needs_cut { &mut self.cut_page } else { &mut self.past_end };
        *place = Some(tag);
        self.needs_cut = false;
    }
}
