//! Reads and writes of a small volume: all page boundaries, all positions of the end, all outcomes of each wait. The
//! bytes are checked.

use iopath_core::buffered::{
    Advice, BufferedPath, BufferedRead, BufferedWrite, Frames, Geometry, PageBio, ReadNext, ReadStep, Step,
    TakeStep,
};
use iopath_core::cache::{CacheConfig, Frame, Outcome};
use iopath_core::{Instant, IoError, Memory, Op};

const PAGE: usize = 1024;
const BLOCK: usize = 512;
const PAGES: usize = 3;
const FRAMES: usize = 16;
const NOW: Instant = Instant::ZERO;

/// Calls wait at most once for each page, except after a retry.
const WAITS: u32 = 3;

/// The effect of the device on a page for which a call waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Page,
    Error,
    /// The page is dropped while it is being read.
    Dropped,
    /// The volume becomes longer by a page.
    Grows,
}

const ANSWERS: [Answer; 4] = [Answer::Page, Answer::Error, Answer::Dropped, Answer::Grows];

/// A whole page, or its first bytes.
#[derive(Debug, Clone, Copy)]
struct Place {
    frame: usize,
    bytes: u64,
}

impl Memory for Place {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn slice(self, _offset: u64, bytes: u64) -> Self {
        Self { bytes, ..self }
    }

    fn join(self, _next: Self) -> Option<Self> {
        None
    }
}

#[derive(Debug)]
struct Places;

impl Frames for Places {
    type Memory = Place;

    fn memory(&self, frame: Frame, bytes: u64) -> Place {
        Place { frame: frame.0 as usize, bytes }
    }
}

struct Volume {
    path: BufferedPath<Places>,
    memory: Vec<[u8; PAGE]>,
    device: Vec<u8>,
    answers: Vec<Answer>,
    has_failed: bool,
}

/// The bytes of a new volume.
fn old_byte(at: usize) -> u8 {
    (at % 101) as u8 + 1
}

fn new_byte(at: usize) -> u8 {
    (at % 101) as u8 + 129
}

impl Volume {
    fn new(size: usize, answers: &[Answer]) -> Self {
        let cache = CacheConfig {
            frames: FRAMES as u32,
            page_bytes: PAGE as u32,
            background_percent: 90,
            limit_percent: 90,
            ..CacheConfig::default()
        };
        let geometry = Geometry {
            page_bytes: PAGE as u32,
            block_bytes: BLOCK as u32,
            size_bytes: size as u64,
            writes_last_block: true,
        };
        let mut device: Vec<u8> = (0..size).map(old_byte).collect();
        device.resize((PAGES + WAITS as usize + 1) * PAGE, 0);
        Self {
            path: BufferedPath::new(cache, None, geometry, Places),
            memory: vec![[0xEE; PAGE]; FRAMES],
            device,
            answers: answers.to_vec(),
            has_failed: false,
        }
    }

    fn size(&self) -> usize {
        self.path.geometry().size_bytes as usize
    }

    /// Waits for a page.
    fn wait(&mut self) -> Outcome {
        let answer = self.answers.pop().unwrap_or(Answer::Page);
        while let Some(step) = self.path.poll_step(NOW) {
            match step {
                Step::Zero { frame, from } => self.memory[frame.0 as usize][from..].fill(0),
                Step::Submit(PageBio { tag, op, extent, memory }) => {
                    assert_eq!(op, Op::Read, "no page is old");
                    let Place { frame, bytes } = memory.expect("a read has memory");
                    let first = extent.offset() as usize;
                    let bytes = bytes as usize;
                    self.memory[frame][..bytes].copy_from_slice(&self.device[first..first + bytes]);
                    match answer {
                        Answer::Dropped => self.path.advise(0, u64::MAX, Advice::DontNeed),
                        Answer::Grows => self.path.extend((self.size() + PAGE) as u64),
                        Answer::Page | Answer::Error => {}
                    }
                    self.has_failed |= answer == Answer::Error;
                    let result = if answer == Answer::Error { Err(IoError::Media) } else { Ok(()) };
                    self.path.handle_completion(tag, result, NOW);
                }
                Step::WriteTail { .. } => unreachable!("the device writes whole blocks"),
            }
        }
        let ready = self.path.poll_ready().expect("the page was read");
        assert_eq!((ready.waiter, self.path.poll_ready()), (7, None));
        ready.outcome
    }

    fn read(&mut self, offset: usize, bytes: usize) -> Result<Vec<u8>, IoError> {
        let mut read = BufferedRead::new(offset as u64, bytes, &self.path);
        let mut buffer = vec![0; bytes];
        loop {
            let piece = match read.poll(&self.path) {
                ReadNext::Copy(piece) => piece,
                ReadNext::Again => unreachable!("no resize fails"),
                ReadNext::Done(bytes) => {
                    buffer.truncate(bytes);
                    return Ok(buffer);
                }
            };
            let pinned = match self.path.read(&mut read, 7, NOW) {
                ReadStep::Pinned(frame) => Some(frame),
                ReadStep::End => unreachable!("the volume does not shrink"),
                ReadStep::Wait { .. } => self.wait().pinned()?,
            };
            if let Some(frame) = pinned {
                let page = &self.memory[frame.0 as usize];
                buffer[piece.start..piece.end].copy_from_slice(&page[piece.from..piece.from + piece.bytes()]);
                self.path.cache().hot().unpin(frame);
                read.handle_copied(&piece);
            }
        }
    }

    fn write(&mut self, offset: usize, bytes: usize) -> Result<(), IoError> {
        let mut write = BufferedWrite::new(offset as u64, bytes)?;
        loop {
            match self.path.take_pages(&mut write, 7)? {
                TakeStep::Fill => {
                    // The outcome may be known before or after the pages are filled.
                    if write.is_waiting() && offset.is_multiple_of(2) {
                        let outcome = self.wait();
                        write.handle_outcome(outcome);
                    }
                    for piece in write.pieces() {
                        assert_eq!(piece.copy_from, None, "no page is pinned");
                        let page = &mut self.memory[piece.frame.0 as usize];
                        let target = &mut page[piece.to..piece.to + piece.end - piece.start];
                        let first = offset + piece.start;
                        target.iter_mut().enumerate().for_each(|(at, byte)| *byte = new_byte(first + at));
                        if piece.is_rest_zero {
                            page[piece.to + piece.end - piece.start..].fill(0);
                        }
                    }
                    self.path.release_pages(&mut write, NOW);
                }
                TakeStep::Wait => {
                    let outcome = self.wait();
                    write.handle_outcome(outcome);
                }
                TakeStep::Done { pause } => {
                    assert_eq!(pause, None, "few pages are dirty");
                    return Ok(());
                }
            }
        }
    }
}

/// Calls `check` for each volume, range and list of answers.
fn for_each(mut check: impl FnMut(Volume, usize, usize)) {
    let mut points: Vec<usize> = (0..=PAGES * PAGE).step_by(BLOCK).collect();
    points.extend((0..PAGES).flat_map(|page| [page * PAGE + 1, (page + 1) * PAGE - 1]));
    points.sort_unstable();
    let lists = ANSWERS.len().pow(WAITS);
    for &size in &points {
        for &offset in &points {
            for end in points.iter().copied().filter(|end| *end >= offset) {
                for list in 0..lists {
                    let answer = |wait| ANSWERS[list / ANSWERS.len().pow(wait) % ANSWERS.len()];
                    let answers: Vec<Answer> = (0..WAITS).map(answer).collect();
                    check(Volume::new(size, &answers), offset, end - offset);
                }
            }
        }
    }
}

#[test]
fn a_read_returns_the_bytes_before_the_end_or_the_first_error() {
    for_each(|mut volume, offset, bytes| {
        let size = volume.size();
        let read = volume.read(offset, bytes);
        if volume.has_failed {
            return assert_eq!(read, Err(IoError::Media));
        }
        // The end when the read began.
        let end = (offset + bytes).min(size);
        assert_eq!(read, Ok((offset..end).map(old_byte).collect()), "{bytes} bytes at {offset} of {size}");
    });
}

#[test]
fn a_write_changes_its_bytes_and_after_an_error_a_first_part_of_them() {
    for_each(|mut volume, offset, bytes| {
        let first_size = volume.size();
        let written = volume.write(offset, bytes);
        let size = volume.size();
        let end = offset + bytes;
        match written {
            Ok(()) => assert!(!volume.has_failed && (bytes == 0 || end <= size)),
            Err(IoError::Media) => assert!(volume.has_failed),
            Err(error) => assert!(error == IoError::EndOfDevice && end > first_size, "{error}"),
        }
        volume.answers.clear();
        // Bytes past the old end are zeroes.
        volume.path.extend((size + PAGE) as u64);
        let found = volume.read(0, size + PAGE).expect("the device is sound");
        let before = |at: usize| if at < first_size { old_byte(at) } else { 0 };
        // The first byte of the range that is not new.
        let part = found.iter().enumerate().skip(offset).find(|(at, byte)| **byte != new_byte(*at));
        let part = part.map_or(end, |(at, _)| at).min(end);
        assert!(part >= end.min(size) || written.is_err() || bytes == 0);
        for (at, byte) in found.iter().enumerate() {
            let expected = if at >= offset && at < part { new_byte(at) } else { before(at) };
            assert_eq!(*byte, expected, "byte {at} after a write of {bytes} at {offset} of {first_size}");
        }
    });
}
