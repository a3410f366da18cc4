//! The device of the model: executes bios with success or failure, and loses bytes when a flush fails.

use super::frames::FrameList;
use super::{InFlight, PAGE_BYTES, World};
use iopath_core::buffered::PageBio;
use iopath_core::cache::Frame;
use iopath_core::{IoError, Op, Page, PageRange};

impl World {
    pub(super) fn submit(&mut self, bio: PageBio<FrameList>) {
        let frames: Vec<Frame> = bio.memory.iter().flat_map(FrameList::frames).collect();
        let first = bio.extent.start().0 * 512 / u64::from(PAGE_BYTES);
        let pages = if bio.op == Op::Flush {
            PageRange::EMPTY
        } else {
            PageRange::new(Page(first), frames.len() as u64)
        };
        assert_eq!(bio.extent.bytes(), frames.len() as u64 * u64::from(PAGE_BYTES), "{bio:?}");
        assert!(
            bio.op == Op::Flush || pages.end().0 <= self.device_end,
            "{bio:?} reaches past the end of the device"
        );
        let overlaps = |other: &InFlight| other.bio.op == Op::Write && !other.pages.and(pages).is_empty();
        assert!(bio.op != Op::Write || !self.in_flight.iter().any(overlaps), "{bio:?}: two writes of a page");
        if bio.op == Op::Read {
            for page in pages.iter() {
                // A truncation drops pages some time after it was called.
                let is_first = self.being_read.insert(page.0) || self.contents.is_cut(page.0 as usize * 2);
                assert!(is_first, "page {page} is read twice at once");
            }
        }
        let bytes = match bio.op {
            Op::Flush => self.device.clone(),
            _ => frames.iter().map(|frame| self.arena[frame.0 as usize]).collect(),
        };
        self.in_flight.push(InFlight { bio, pages, frames, bytes });
    }

    pub(super) fn end_io(&mut self, index: usize, is_ok: bool) {
        let InFlight { bio, pages, frames, bytes } = self.in_flight.remove(index);
        let is_past_end = bio.op != Op::Flush && pages.end().0 > self.device_end;
        assert!(bio.op != Op::Write || !is_past_end, "{bio:?} would make the volume longer");
        let is_ok = is_ok && !is_past_end;
        let mut lost = Vec::new();
        match bio.op {
            Op::Read => {
                for (page, frame) in pages.iter().zip(&frames) {
                    self.being_read.remove(&page.0);
                    self.arena[frame.0 as usize] =
                        if is_ok { self.device[page.0 as usize] } else { [u64::MAX; 2] };
                }
            }
            Op::Write if is_ok => {
                for ((page, frame), early) in pages.iter().zip(&frames).zip(bytes) {
                    let late = self.arena[frame.0 as usize];
                    self.device[page.0 as usize] = if self.semantics.writes_late { late } else { early };
                }
            }
            Op::Write => {}
            _ if is_ok && self.semantics.flushes_early => self.medium = bytes,
            _ if is_ok => self.medium.clone_from(&self.device),
            _ => lost = self.fail_flush(),
        }
        let error = if is_past_end { IoError::EndOfDevice } else { IoError::Media };
        self.path.handle_completion(bio.tag, if is_ok { Ok(()) } else { Err(error) }, self.now);
        if bio.op == Op::Flush && !is_ok {
            self.doom_forced();
            // Pages that were being read while the device lost bytes are read again.
            let Self { being_read, path, .. } = self;
            being_read.retain(|page| path.cache().is_cached(Page(*page)));
        }
        self.check_loss(lost);
    }

    /// Fails a flush. Returns the pages that the device has lost.
    pub(super) fn fail_flush(&mut self) -> Vec<usize> {
        if !self.semantics.flush_loses {
            return Vec::new();
        }
        self.lose_direct();
        let is_lost = |half: usize| {
            let (taken, left) = (self.device[half / 2][half % 2], self.medium[half / 2][half % 2]);
            taken != left && !self.contents.accepts(half, left)
        };
        let lost = (0..self.device.len()).filter(|page| is_lost(page * 2) || is_lost(page * 2 + 1));
        let lost = lost.collect();
        self.device.clone_from(&self.medium);
        lost
    }

    /// Checks that the cache writes lost pages again or reports the loss.
    pub(super) fn check_loss(&mut self, pages: Vec<usize>) {
        for page in pages {
            // If a writer overwrites lost bytes, the cache need not report the loss.
            let is_written = self.is_written(page as u64) && self.cache().loss().is_none();
            let is_gone = !self.holds(page as u64) && !is_written;
            if is_gone {
                assert!(self.cache().loss().is_some(), "page {page} is lost without a report");
                self.lost.insert(page);
                self.forget(page);
            }
        }
    }
}
