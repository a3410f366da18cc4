//! A volume that changes its size while it is in use. The caller resizes the file; this keeps cached pages and reads in
//! flight consistent with it.
//!
//! ```text
//!   begin_resize ─▶ page of the nearer end: written back, writers wait ─▶ pages behind the new end: dropped
//!                ─▶ a nearer end is set ─▶ Resize: the caller resizes the file ─▶ end_resize: a farther end is set
//! ```
//!
//! No read is submitted beyond the end of the file: a nearer end is set before the file is cut, a farther one after it
//! has grown.

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
    /// The page that is cut inside. It goes to the device whole and is read from there again, with zeroes at its end.
    cut_page: Option<DirectTag>,
    /// The pages behind the new end.
    behind: Option<DirectTag>,
}

/// What the caller of a resize does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResizeStep {
    /// [`BufferedPath::poll_ready`] names the waiter; its outcome goes to [`BufferedPath::handle_resize_outcome`].
    Wait,
    /// Set the capacity of the queue to [`Geometry::sectors`](super::Geometry::sectors) and resize the file, then
    /// [`BufferedPath::end_resize`].
    Resize,
}

impl<F: Frames> BufferedPath<F> {
    /// The volume is to end at `size_bytes`. Dirty pages behind that are dropped.
    pub fn begin_resize(&mut self, size_bytes: u64, waiter: u64) -> (Resize, ResizeStep) {
        let old_bytes = self.geometry.size_bytes;
        let mut resize = Resize { size_bytes, old_bytes, cut_page: None, behind: None };
        let kept_bytes = size_bytes.min(old_bytes);
        if !kept_bytes.is_multiple_of(u64::from(self.geometry.page_bytes)) {
            match self.begin_direct(Op::WriteZeroes, kept_bytes, 1, 1, waiter) {
                DirectStep::Go(tag) => resize.cut_page = Some(tag),
                DirectStep::Wait => return (resize, ResizeStep::Wait),
            }
        }
        let step = self.drop_behind(&mut resize, waiter);
        (resize, step)
    }

    /// The outcome of the wait after [`ResizeStep::Wait`].
    ///
    /// # Errors
    /// The page that is cut inside could not be written back. The resize has ended, and nothing has changed.
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
                Ok(self.drop_behind(resize, waiter))
            }
            Outcome::Direct(tag) => Ok(self.go(resize, tag)),
            Outcome::Failed(error) => Err(error),
            other => unreachable!("the outcome of a resize is {other:?}"),
        }
    }

    /// The caller has resized the file, or could not. Afterwards the caller sets the capacity of the queue again.
    ///
    /// If the file could not be cut, the dirty pages that were dropped for it are lost: every flush fails until
    /// [`BufferedPath::accept_loss`]. Reads that were made meanwhile may have seen zeroes behind the nearer end: they must
    /// be repeated.
    ///
    /// # Panics
    /// If it still waits: a bug of the caller.
    #[expect(clippy::needless_pass_by_value, reason = "the resize ends here")]
    pub fn end_resize(&mut self, resize: Resize, is_resized: bool) {
        let is_cut = resize.is_cut();
        let Resize { size_bytes, old_bytes, cut_page, behind } = resize;
        let behind = behind.expect("a resize ends before it may begin");
        if !is_resized && is_cut {
            self.cache.fail_truncate(behind, IoError::Os(IoError::Media.errno()));
            let first = Page(size_bytes / u64::from(self.geometry.page_bytes));
            self.cache.invalidate(PageRange::between(first, Page::MAX));
            self.set_size(old_bytes);
        } else {
            if is_resized {
                self.set_size(size_bytes);
            }
            self.cache.end_direct(behind);
        }
        if let Some(cut_page) = cut_page {
            self.cache.end_direct(cut_page);
        }
    }

    /// The volume ends at `size_bytes` from now on, if it ended before: the file is that long already, and the added bytes
    /// read as zeroes. Waits for nothing, unlike a resize: for writes that append. The caller sets the capacity of the queue
    /// afterwards.
    pub fn extend(&mut self, size_bytes: u64) {
        if size_bytes > self.geometry.size_bytes {
            self.set_size(size_bytes);
        }
    }

    fn drop_behind(&mut self, resize: &mut Resize, waiter: u64) -> ResizeStep {
        let end = Page(resize.size_bytes.div_ceil(u64::from(self.geometry.page_bytes)));
        match self.cache.begin_truncate(end, waiter) {
            DirectStep::Go(tag) => self.go(resize, tag),
            DirectStep::Wait => ResizeStep::Wait,
        }
    }

    fn go(&mut self, resize: &mut Resize, tag: DirectTag) -> ResizeStep {
        resize.behind = Some(tag);
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
    /// Whether the volume is to become shorter.
    pub const fn is_cut(&self) -> bool {
        self.size_bytes < self.old_bytes
    }

    const fn kept_bytes(&self) -> u64 {
        if self.is_cut() { self.size_bytes } else { self.old_bytes }
    }
}
