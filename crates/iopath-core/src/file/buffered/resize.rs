//! A change of the size of a volume in use. The caller resizes the file; this module keeps cached pages and reads in
//! flight consistent with the file.
//!
//! ```text
//!   begin_resize ─▶ page of the lower end: written back, writers wait ─▶ pages past the new end: dropped
//!                ─▶ the end moves down ─▶ Resize: the caller resizes the file ─▶ end_resize: the end moves up
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
}

/// The next action of the caller of a resize.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResizeStep {
    /// Wait until [`BufferedPath::poll_ready`] names the waiter, then pass its outcome to
    /// [`BufferedPath::handle_resize_outcome`].
    Wait,
    /// Set the capacity of the queue to [`Geometry::sectors`](super::Geometry::sectors), resize the file, then call
    /// [`BufferedPath::end_resize`].
    Resize,
}

impl<F: Frames> BufferedPath<F> {
    /// Begins to move the end of the volume to `size_bytes`. Drops dirty pages past that end.
    pub fn begin_resize(&mut self, size_bytes: u64, waiter: u64) -> (Resize, ResizeStep) {
        let old_bytes = self.geometry.size_bytes;
        let mut resize = Resize { size_bytes, old_bytes, cut_page: None, past_end: None };
        let kept_bytes = size_bytes.min(old_bytes);
        if !kept_bytes.is_multiple_of(u64::from(self.geometry.page_bytes)) {
            match self.begin_direct(Op::WriteZeroes, kept_bytes, 1, 1, waiter) {
                DirectStep::Go(tag) => resize.cut_page = Some(tag),
                DirectStep::Wait => return (resize, ResizeStep::Wait),
            }
        }
        let step = self.drop_past_end(&mut resize, waiter);
        (resize, step)
    }

    /// Continues after [`ResizeStep::Wait`], with the outcome of the wait.
    ///
    /// # Errors
    /// The page that contains the lower end could not be written back. The resize has ended without a change.
    ///
    /// # Panics
    /// If it is the outcome of another kind of call: a bug of the caller.
    pub fn handle_resize_outcome(
        &mut self,
        resize: &mut Resize,
        outcome: Outcome,
        waiter: u64,
    ) -> Result<ResizeStep, IoError> {
        let is_for_cut_page = resize.cut_page.is_none() && !self.is_page_end(resize.kept_bytes());
        match outcome {
            Outcome::Direct(tag) if is_for_cut_page => {
                resize.cut_page = Some(tag);
                Ok(self.drop_past_end(resize, waiter))
            }
            Outcome::Direct(tag) => Ok(self.go(resize, tag)),
            Outcome::Failed(error) => Err(error),
            other => unreachable!("the outcome of a resize is {other:?}"),
        }
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
        let Resize { size_bytes, old_bytes, cut_page, past_end } = resize;
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

    /// Cancels a resize that waits, because its caller no longer exists. Nothing has changed, and writers to the page
    /// of the lower end may continue.
    ///
    /// # Panics
    /// If the file may be resized already: a bug of the caller.
    #[expect(clippy::needless_pass_by_value, reason = "the resize ends here")]
    pub fn cancel_resize(&mut self, resize: Resize) {
        assert!(resize.past_end.is_none(), "a resize is canceled after its wait");
        if let Some(cut_page) = resize.cut_page {
            self.cache.end_direct(cut_page);
        }
    }

    /// Moves the end of the volume to `size_bytes`, unless it is there already or higher. The file must have that
    /// length already, and the added bytes must read as zeroes. For writes that append: unlike a resize, this never
    /// waits. Set the capacity of the queue afterwards.
    pub fn extend(&mut self, size_bytes: u64) {
        if size_bytes > self.geometry.size_bytes {
            self.set_size(size_bytes);
        }
    }

    fn drop_past_end(&mut self, resize: &mut Resize, waiter: u64) -> ResizeStep {
        let end = Page(resize.size_bytes.div_ceil(u64::from(self.geometry.page_bytes)));
        match self.cache.begin_truncate(end, waiter) {
            DirectStep::Go(tag) => self.go(resize, tag),
            DirectStep::Wait => ResizeStep::Wait,
        }
    }

    fn go(&mut self, resize: &mut Resize, tag: DirectTag) -> ResizeStep {
        resize.past_end = Some(tag);
        if resize.is_cut() {
            self.set_size(resize.size_bytes);
        }
        ResizeStep::Resize
    }

    const fn is_page_end(&self, bytes: u64) -> bool {
        bytes.is_multiple_of(self.geometry.page_bytes as u64)
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

    const fn kept_bytes(&self) -> u64 {
        if self.is_cut() { self.size_bytes } else { self.old_bytes }
    }
}
