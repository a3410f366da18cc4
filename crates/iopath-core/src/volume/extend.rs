//! Moves of the end of a volume by writes that append. Under a page cache, there are two ways:
//!
//! - Few small appends before each flush ([`Appends`]): each is written past the cache, by a plain write of the kernel
//!   that extends the file, and kept in the cache. The file ends with the volume, and a flush has no page to write.
//! - Otherwise a resize of the file for each append would be slow, and so would be a copy of all bytes in the kernel.
//!   So the file grows in steps, its end is beyond the end of the volume, and a flush or close truncates it.
//!
//! ```text
//!   file    ├──────────────────────────────────────────┤ a multiple of the step, until a flush
//!   volume  ├───────────────────────────┤ its size, as reads see it
//!
//!   Length ──▶ SetLength ──▶ MoveEnd ──▶ Done
//!      │           └─ refused ──▶ Resize ──▶ Done
//!      ├─ another handle has extended the file ──▶ MoveEnd
//!      └─ no step ──▶ Resize
//! ```
//!
//! Waits for nothing and moves no end itself: the driver executes each step, while no other thread moves the end.

use crate::sector::{Extent, SECTOR_BYTES};

/// The ends of a volume and of its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    /// The size of the volume.
    pub size_bytes: u64,
    /// The length to which the volume has extended its file beyond the size. Otherwise at most the size.
    pub file_bytes: u64,
}

/// What a flush or close does with the rest of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trim {
    /// The file ends with the volume.
    Nothing,
    /// Another handle or process has changed the length of the file: it stays, and is no longer that of the volume.
    Forget,
    /// Truncate the file to the size of the volume.
    Truncate,
}

impl Ends {
    /// Whether a flush or close looks at the length of the file.
    #[inline]
    pub const fn needs_trim(self) -> bool {
        self.file_bytes > self.size_bytes
    }

    /// What a flush or close does, if the file has this length. `None` if the length is unknown.
    pub fn trim(self, length: Option<u64>) -> Trim {
        match length {
            _ if !self.needs_trim() => Trim::Nothing,
            Some(length) if length == self.file_bytes => Trim::Truncate,
            _ => Trim::Forget,
        }
    }

    /// The length of the file, if another handle or process has made it longer than this volume has. Past the maximum,
    /// the system refuses each write.
    pub fn grown_length(self, length: Option<u64>, length_max: impl FnOnce() -> u64) -> Option<u64> {
        let known = self.size_bytes.max(self.file_bytes);
        length.filter(|&length| length > known && length <= length_max())
    }
}

/// The appends since the last flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Appends {
    /// Their bytes.
    pub bytes: u64,
}

impl Appends {
    /// The largest append that is written past the cache. A larger one amortizes the resize of the file.
    pub const BYTES_MAX: u64 = 64 << 10;

    /// Whether a further write of `bytes` bytes is written past the cache: a small one, unless the writes since the
    /// last flush exceed a step.
    pub(super) const fn has_room(self, bytes: u64, step_bytes: u64) -> bool {
        bytes <= Self::BYTES_MAX && self.bytes.saturating_add(bytes) <= step_bytes
    }

    /// Whether the file has a part of a write that the system has refused, past the end of the volume at `size_bytes`:
    /// no later hole may contain its bytes. The system has written `written` bytes from `offset` on, and the file has
    /// this length. A longer file was extended by another handle or process.
    pub fn has_refused_part(size_bytes: u64, offset: u64, written: u64, length: Option<u64>) -> bool {
        let end = offset.saturating_add(written);
        written > 0 && end > size_bytes && length == Some(end)
    }

    /// Whether a write of `bytes` bytes at `offset` is written past the cache: a small append directly at the end of
    /// file and volume, unless the appends since the last flush exceed a step.
    pub const fn passes_cache(self, ends: Ends, offset: u64, bytes: u64, step_bytes: u64) -> bool {
        offset == ends.size_bytes && !ends.needs_trim() && self.has_room(bytes, step_bytes)
    }
}

/// A move of the end in progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extension {
    to_bytes: u64,
    ends: Ends,
    step_bytes: Option<u64>,
    step: ExtendStep,
}

/// The next action of the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExtendStep {
    /// Find out the length of the file, then call [`Extension::handle_length`].
    Length,
    /// Set the length of the file, then call [`Extension::handle_set_length`].
    SetLength {
        /// The length: a multiple of the step.
        bytes: u64,
        /// The sector with the present end of the file, if it ends inside a step. The kernel zeroes the rest of the
        /// last page: no I/O may be in flight, and none of the page cache in this sector.
        last: Option<Extent>,
    },
    /// Move the end of the volume: the file is long enough. Then call [`Extension::handle_done`].
    MoveEnd,
    /// Resize the volume and its file, then call [`Extension::handle_done`].
    Resize,
    /// The volume has the size.
    Done,
}

impl Extension {
    /// A move of the end to `to_bytes`, unless the volume is that long. With `step_bytes`, the file is extended to a
    /// multiple of it.
    pub const fn new(ends: Ends, to_bytes: u64, step_bytes: Option<u64>) -> Self {
        let step = if to_bytes <= ends.size_bytes {
            ExtendStep::Done
        } else if step_bytes.is_some() && to_bytes <= ends.file_bytes {
            ExtendStep::MoveEnd
        } else {
            ExtendStep::Length
        };
        Self { to_bytes, ends, step_bytes, step }
    }

    /// The next action.
    pub const fn poll(&self) -> ExtendStep {
        self.step
    }

    /// The file has this length; `None` if it is not known, or if there is no file. The system refuses writes past
    /// `length_max` bytes, even in a file that is longer.
    pub fn handle_length(&mut self, length: Option<u64>, length_max: u64) {
        if self.to_bytes <= length_max && length.is_some_and(|length| length >= self.to_bytes) {
            // Another handle or process has extended it: its length is not changed.
            self.step = ExtendStep::MoveEnd;
            return;
        }
        let next = |step| self.to_bytes.checked_next_multiple_of(step);
        self.step = match self.step_bytes.and_then(next).filter(|bytes| *bytes <= length_max) {
            Some(bytes) => ExtendStep::SetLength { bytes, last: self.last_sector() },
            None => ExtendStep::Resize,
        };
    }

    /// The file has the length of [`ExtendStep::SetLength`], or the system has refused it.
    pub const fn handle_set_length(&mut self, is_set: bool) {
        self.step = if is_set { ExtendStep::MoveEnd } else { ExtendStep::Resize };
    }

    /// The end of the volume has moved.
    pub const fn handle_done(&mut self) {
        self.step = ExtendStep::Done;
    }

    /// The sector of the end of the file, if that is not the end of a step.
    fn last_sector(&self) -> Option<Extent> {
        let old_bytes = self.ends.file_bytes.max(self.ends.size_bytes);
        if self.step_bytes.is_some_and(|step| old_bytes.is_multiple_of(step)) {
            return None;
        }
        Some(Extent::from_bytes(old_bytes / SECTOR_BYTES * SECTOR_BYTES, SECTOR_BYTES).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: u64 = 8;

    /// Extends a volume, whose file has this length. Returns the size of the volume and the length of the file, and
    /// whether the file was resized.
    fn extend(
        mut ends: Ends,
        mut length: u64,
        to: u64,
        has_step: bool,
        max: u64,
        is_refused: bool,
    ) -> (Ends, u64, bool) {
        let before = length;
        let mut extension = Extension::new(ends, to, has_step.then_some(STEP));
        let mut is_resized = false;
        loop {
            match extension.poll() {
                ExtendStep::Length => extension.handle_length(Some(length), max),
                ExtendStep::SetLength { bytes, last } => {
                    assert!(has_step && bytes > before, "the file of another handle is cut");
                    assert!(bytes % STEP == 0 && bytes >= to && bytes < to + STEP && bytes <= max);
                    let end = ends.size_bytes.max(ends.file_bytes);
                    assert_eq!(
                        last.is_none(),
                        end.is_multiple_of(STEP),
                        "the end of the file is inside a page"
                    );
                    if !is_refused {
                        (length, ends.file_bytes) = (bytes, bytes);
                    }
                    extension.handle_set_length(!is_refused);
                }
                ExtendStep::MoveEnd => {
                    assert!(length >= to, "the volume would be longer than its file");
                    ends.size_bytes = to;
                    extension.handle_done();
                }
                ExtendStep::Resize => {
                    assert!(length < to || to > max, "the file of another handle is cut");
                    is_resized = true;
                    if to <= max {
                        (length, ends) = (to, Ends { size_bytes: to, file_bytes: to });
                    }
                    extension.handle_done();
                }
                ExtendStep::Done => return (ends, length, is_resized),
            }
        }
    }

    #[test]
    fn every_small_extension_makes_the_volume_as_long_as_its_writes_and_cuts_no_file() {
        for (size, to) in (0..20_u64).flat_map(|size| (0..24).map(move |to| (size, to))) {
            // The length to which this volume has extended the file, and another one.
            for file_bytes in [0, size, (size + 1).next_multiple_of(STEP)] {
                for (length, max) in
                    (size.max(file_bytes)..40).flat_map(|length| [(length, 64), (length, 20)])
                {
                    for has_step in [false, true] {
                        for is_refused in [false, true] {
                            let ends = Ends { size_bytes: size, file_bytes };
                            let done = extend(ends, length, to, has_step, max, is_refused);
                            let (after, new_length, is_resized) = done;
                            if to <= size {
                                assert_eq!((after, new_length), (ends, length));
                            } else if to <= max || has_step && to <= file_bytes {
                                assert_eq!(after.size_bytes, to);
                                assert!(new_length >= to && new_length >= length);
                            } else {
                                assert!(is_resized && after == ends, "the system refuses it");
                            }
                            let grows = length < to && to > size;
                            let is_short = grows || to > max && to > size;
                            assert!(!is_resized || is_short, "{ends:?} of {length} to {to}");
                            let step_end = to.next_multiple_of(STEP);
                            if has_step && grows && !is_refused && step_end <= max {
                                assert_eq!((new_length, is_resized), (step_end, false));
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn small_appends_pass_the_cache_until_they_fill_a_step() {
        const STEP: u64 = 1 << 20;
        let ends = Ends { size_bytes: 100, file_bytes: 100 };
        let passes = |appended, ends, offset, bytes| {
            Appends { bytes: appended }.passes_cache(ends, offset, bytes, STEP)
        };
        assert!(passes(0, ends, 100, 1) && passes(0, ends, 100, Appends::BYTES_MAX));
        assert!(passes(STEP - 1, ends, 100, 1) && !passes(STEP, ends, 100, 1));
        assert!(!passes(0, ends, 100, Appends::BYTES_MAX + 1));
        assert!(!passes(0, ends, 99, 2), "it overwrites a byte");
        assert!(!passes(0, ends, 101, 1), "it leaves a gap");
        assert!(!passes(0, Ends { file_bytes: 128, ..ends }, 100, 1), "the file has grown by a step");
        assert!(passes(0, Ends { file_bytes: 0, ..ends }, 100, 1), "the file was never extended");
        assert!(!passes(u64::MAX, ends, 100, 1));
    }

    #[test]
    fn a_flush_cuts_only_what_the_volume_has_added_itself() {
        let ends = Ends { size_bytes: 100, file_bytes: 128 };
        assert!(ends.needs_trim());
        assert_eq!(ends.trim(Some(128)), Trim::Truncate);
        for other in [None, Some(0), Some(100), Some(127), Some(129)] {
            assert_eq!(ends.trim(other), Trim::Forget, "another handle has changed it");
        }
        for file_bytes in [0, 99, 100] {
            let ends = Ends { file_bytes, ..ends };
            assert!(!ends.needs_trim());
            assert_eq!(ends.trim(Some(file_bytes)), Trim::Nothing);
        }
    }

    #[test]
    fn a_refused_append_leaves_a_part_past_the_end() {
        let has_part = |offset, written, length| Appends::has_refused_part(100, offset, written, length);
        assert!(has_part(100, 1, Some(101)) && has_part(90, 20, Some(110)));
        assert!(!has_part(100, 0, Some(100)) && !has_part(90, 10, Some(100)), "it ends with the volume");
        for length in [None, Some(99), Some(101), Some(200)] {
            assert!(!has_part(100, 50, length), "another handle has changed it");
        }
    }

    #[test]
    fn a_volume_follows_only_growth_by_others() {
        let ends = Ends { size_bytes: 100, file_bytes: 128 };
        let grown = |length| ends.grown_length(length, || 1000);
        assert_eq!([grown(None), grown(Some(128)), grown(Some(129))], [None, None, Some(129)]);
        assert_eq!([grown(Some(1000)), grown(Some(1001)), grown(Some(50))], [Some(1000), None, None]);
        assert_eq!(Ends { file_bytes: 0, ..ends }.grown_length(Some(101), || 1000), Some(101));
    }

    #[test]
    fn no_length_of_a_step_is_past_the_highest_offset() {
        let ends = Ends { size_bytes: 1, file_bytes: 1 };
        let mut extension = Extension::new(ends, u64::MAX - 1, Some(STEP));
        extension.handle_length(Some(1), u64::MAX);
        assert_eq!(extension.poll(), ExtendStep::Resize);
    }
}
