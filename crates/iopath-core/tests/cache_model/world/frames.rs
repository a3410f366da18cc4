//! Memory of the model: numbers of frames. A bio has the numbers of its frames, and no bytes.

use iopath_core::Memory;
use iopath_core::buffered::Frames;
use iopath_core::cache::Frame;

use super::PAGE_BYTES;

/// The maximum number of frames of an I/O in the tests.
const FRAMES_MAX: usize = 8;

/// The frames of a bio, in the order of their pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameList {
    frames: [u32; FRAMES_MAX],
    count: usize,
    joins_all: bool,
}

/// The rule for joining frames into one bio: all frames of an I/O, or only adjacent frames.
#[derive(Debug)]
pub(crate) struct ModelFrames {
    pub(crate) joins_all: bool,
}

impl Frames for ModelFrames {
    type Memory = FrameList;

    fn memory(&self, frame: Frame, bytes: u64) -> FrameList {
        assert_eq!(bytes, u64::from(PAGE_BYTES), "the volume has whole pages");
        let mut frames = [0; FRAMES_MAX];
        frames[0] = frame.0;
        FrameList { frames, count: 1, joins_all: self.joins_all }
    }
}

impl FrameList {
    pub(crate) fn frames(&self) -> impl Iterator<Item = Frame> {
        self.frames.into_iter().take(self.count).map(Frame)
    }
}

impl Memory for FrameList {
    fn bytes(&self) -> u64 {
        self.count as u64 * u64::from(PAGE_BYTES)
    }

    fn slice(self, offset: u64, bytes: u64) -> Self {
        unreachable!("{bytes} bytes from {offset} on of {self:?}: the model has no queue that cuts bios")
    }

    fn join(mut self, next: Self) -> Option<Self> {
        let is_next = next.frames[0] == self.frames[self.count - 1] + 1;
        (self.joins_all || is_next).then(|| {
            self.frames[self.count..self.count + next.count].copy_from_slice(&next.frames[..next.count]);
            self.count += next.count;
            self
        })
    }
}
