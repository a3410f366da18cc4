//! One thread's part in a life: its ranges of the volume, the model of them, and operations on them. The operations
//! themselves are rows of a table in `ops.rs`.

use crate::history::{Event, History};
use crate::model::{Mismatch, Model};
use crate::ops::{OPS, Row};
use crate::settings::pick;
use iopath::{AlignedBuf, Batch, Error, Op, Volume};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::ops::Range;
use std::sync::Arc;

/// The most bytes of one operation.
pub(crate) const OP_BYTES_MAX: usize = 256 << 10;
const SOURCE_BYTES: usize = 2 << 20;
/// The largest block of a device that there is here.
const BLOCK_BYTES_MAX: usize = 4096;

/// Bytes to write: random, so that what is found tells where it came from.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) random: AlignedBuf,
    pub(crate) zeroes: AlignedBuf,
}

impl Source {
    pub(crate) fn new() -> Arc<Self> {
        let mut random = AlignedBuf::new(SOURCE_BYTES).expect("memory");
        Xoshiro256PlusPlus::seed_from_u64(0).fill(&mut random[..]);
        Arc::new(Self { random, zeroes: AlignedBuf::new(OP_BYTES_MAX).expect("memory") })
    }

    /// Where the bytes come from that stand at a place of what was found.
    fn find(&self, found: &[u8]) -> Option<usize> {
        let start = found.get(..16)?;
        self.random.windows(16).position(|window| window == start)
    }
}

/// What was not as it must be.
#[derive(Debug)]
pub(crate) enum Wrong {
    Bytes { mismatch: Mismatch, found: Vec<u8> },
    Outcome(String),
}

/// One thread's ranges and what it knows of them.
#[derive(Debug)]
pub(crate) struct Hand {
    pub(crate) random: Xoshiro256PlusPlus,
    pub(crate) model: Model,
    pub(crate) history: History,
    /// Ranges that only this hand writes, cut anywhere.
    pub(crate) owned: Vec<Range<usize>>,
    pub(crate) source: Arc<Source>,
    buffer: AlignedBuf,
    number: u64,
}

/// How things stand while operations are carried out.
#[allow(clippy::struct_excessive_bools)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Weather {
    /// I/O may fail.
    pub(crate) may_fail: bool,
    /// Flushes of the device may.
    pub(crate) flush_may_fail: bool,
    /// A flush that fails loses what it should have saved.
    pub(crate) may_lose: bool,
    /// The page cache knows of bytes that are lost: no flush succeeds until the volume is opened anew.
    pub(crate) has_lost: bool,
    /// The device has no forced write of its own: it is followed by a flush.
    pub(crate) forces_by_flush: bool,
    /// The device may not know discard and write-zeroes.
    pub(crate) may_lack: bool,
    /// The volume may change its size: nobody else uses it.
    pub(crate) may_resize: bool,
    pub(crate) mode: Mode,
}

/// What matters about how a volume was opened.
#[allow(clippy::struct_excessive_bools)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Mode {
    /// Reads that reach past the end are refused.
    pub(crate) is_raw: bool,
    /// Reads and writes of any bytes from and to any memory.
    pub(crate) takes_any: bool,
    /// There is a page cache.
    pub(crate) is_cached: bool,
}

/// A hand at work on a volume.
pub(crate) struct Work<'a> {
    pub(crate) hand: &'a mut Hand,
    pub(crate) volume: &'a Volume,
    pub(crate) weather: Weather,
    pub(crate) batch: Option<Batch>,
}

impl Hand {
    pub(crate) fn new(seed: u64, source: &Arc<Source>, model: Model) -> Self {
        Self {
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            model,
            history: History::new(),
            owned: Vec::new(),
            source: Arc::clone(source),
            buffer: AlignedBuf::new(OP_BYTES_MAX + 2 * BLOCK_BYTES_MAX).expect("memory"),
            number: 0,
        }
    }

    /// Carries out `ops` operations.
    pub(crate) fn work(&mut self, volume: &Volume, weather: Weather, ops: u64) -> Result<(), Wrong> {
        let mut work = Work { hand: self, volume, weather, batch: None };
        (0..ops).try_for_each(|_| (Row::draw(&mut work.hand.random, weather).run)(&mut work))
    }

    /// Reads all of its ranges.
    pub(crate) fn look_at_everything(&mut self, volume: &Volume, weather: Weather) -> Result<(), Wrong> {
        let mut work = Work { hand: self, volume, weather, batch: None };
        for range in work.hand.owned.clone() {
            for offset in range.clone().step_by(OP_BYTES_MAX) {
                work.read(offset, (range.end - offset).min(OP_BYTES_MAX))?;
            }
        }
        Ok(())
    }

    /// The power has failed.
    pub(crate) fn crashed(&mut self) {
        self.model.may_have_lost();
        self.number += 1;
        let number = self.number;
        self.history.add(Event {
            number,
            what: "power failure",
            offset: 0,
            bytes: 0,
            source: None,
            is_ok: true,
        });
    }

    /// What to say about it.
    pub(crate) fn explain(&self, wrong: &Wrong) -> String {
        let Wrong::Bytes { mismatch, found } = wrong else {
            let Wrong::Outcome(what) = wrong else { unreachable!() };
            return format!("{what}\n{}", self.history.of_byte(usize::MAX));
        };
        let Mismatch { offset, expected, found: byte, doubts } = mismatch;
        let origin = match self.source.find(found) {
            Some(at) => format!("it was written from source {at}"),
            None if found.iter().all(|byte| *byte == 0) => "there are zeroes".to_owned(),
            None => "nobody wrote it".to_owned(),
        };
        format!(
            "byte {offset} is {byte:#04x} and must be {expected:#04x} or one of {doubts} others; {origin}\n{}",
            self.history.of_byte(*offset)
        )
    }
}

impl Work<'_> {
    /// Remembers an operation, whose outcome this is.
    pub(crate) fn note(
        &mut self,
        what: &'static str,
        (offset, bytes): (usize, usize),
        source: Option<usize>,
        is_ok: bool,
    ) {
        self.hand.number += 1;
        let number = self.hand.number;
        self.hand.history.add(Event { number, what, offset, bytes, source, is_ok });
    }

    pub(crate) fn block(&self) -> usize {
        self.volume.facts().block_bytes as usize
    }

    /// Whole blocks of its own that a write may cover: mostly few, now and then many.
    pub(crate) fn range(&mut self) -> Option<(usize, usize)> {
        let block = self.block();
        let random = &mut self.hand.random;
        let Range { start, end } = pick(random, &self.hand.owned).clone();
        let start = start.next_multiple_of(block);
        let blocks = end.saturating_sub(start) / block;
        if blocks == 0 {
            return None;
        }
        let first = random.random_range(0..blocks);
        let most = (blocks - first).min(OP_BYTES_MAX / block);
        let few = if random.random_range(0..128) == 0 { most } else { *pick(random, &[1, 1, 2, 4, 8, 16]) };
        let blocks = random.random_range(1..=few.min(most));
        Some((start + first * block, blocks * block))
    }

    /// Any bytes of its own where the volume takes any, else whole blocks.
    pub(crate) fn bytes(&mut self) -> Option<(usize, usize)> {
        if !self.weather.mode.takes_any || self.hand.random.random_range(0..3) == 0 {
            return self.range();
        }
        let random = &mut self.hand.random;
        let Range { start, end } = pick(random, &self.hand.owned).clone();
        if start == end {
            return None;
        }
        let offset = random.random_range(start..end);
        let most = (end - offset).min(*pick(random, &[16, 600, 5_000, 5_000, 20_000]));
        Some((offset, random.random_range(1..=most)))
    }

    /// Bytes of the source to write, at a place that the device can write from.
    pub(crate) fn from(&mut self, bytes: usize) -> usize {
        let align = self.volume.facts().memory_align_bytes as usize;
        let align = if self.weather.mode.takes_any { 1 } else { align };
        self.hand.random.random_range(0..=(SOURCE_BYTES - bytes) / align) * align
    }

    /// A flush, or what includes one, has failed.
    pub(crate) fn flush_failed(&mut self) {
        if self.weather.may_lose && self.weather.may_fail {
            self.hand.model.may_have_lost();
        }
    }

    /// As [`Work::outcome`], of what includes a flush of the page cache.
    pub(crate) fn outcome_of_flush(&self, result: &Result<(), Error>) -> Result<bool, Wrong> {
        match result {
            Err(Error::Io { op: Op::Flush | Op::Write, .. }) if self.weather.has_lost => Ok(false),
            _ => self.outcome(result),
        }
    }

    /// Whether an operation is over well. That it failed is wrong unless it may.
    pub(crate) fn outcome(&self, result: &Result<(), Error>) -> Result<bool, Wrong> {
        match result {
            Ok(()) => Ok(true),
            Err(Error::Io { .. } | Error::Unwritable { .. }) if self.weather.may_fail => Ok(false),
            Err(Error::Unsupported { .. }) if self.weather.may_lack => Ok(false),
            Err(error) => Err(Wrong::Outcome(format!("it should not fail: {error}"))),
        }
    }

    /// Reads a range, whose end may lie beyond that of the volume, and compares.
    pub(crate) fn read(&mut self, offset: usize, bytes: usize) -> Result<(), Wrong> {
        let Mode { takes_any, .. } = self.weather.mode;
        if takes_any {
            let shift = self.hand.random.random_range(0..512);
            return self.read_by("read", (offset, bytes), shift..shift + bytes, |volume, buffer| {
                volume.read_at(buffer, offset as u64)
            });
        }
        // From where the block begins; what is another hand's there is not looked at.
        let lead = offset % self.block();
        let whole = (lead + bytes).next_multiple_of(self.block());
        self.read_by("read", (offset, bytes), 0..whole, |volume, buffer| {
            let count = volume.read_at(buffer, (offset - lead) as u64)?;
            buffer.copy_within(lead.., 0);
            Ok(count - lead)
        })
    }

    /// Reads a range in some way into that part of the buffer, and compares.
    pub(crate) fn read_by(
        &mut self,
        what: &'static str,
        (offset, bytes): (usize, usize),
        into: Range<usize>,
        read: impl FnOnce(&Volume, &mut [u8]) -> Result<usize, Error>,
    ) -> Result<(), Wrong> {
        let there = self.hand.model.size().saturating_sub(offset).min(bytes);
        let buffer = &mut self.hand.buffer[into.clone()];
        for sector in buffer.chunks_mut(512) {
            // What is not read must not pass for what was read before.
            let marked = sector.len().min(8);
            sector[..marked].fill(0xa5);
        }
        let result = read(self.volume, buffer);
        let count = *result.as_ref().unwrap_or(&there);
        let is_ok = self.outcome(&result.map(drop))?;
        self.note(what, (offset, bytes), None, is_ok);
        if count < there {
            return Err(Wrong::Outcome(format!(
                "a {what} of {bytes} from {offset} gave {count} of {there} bytes"
            )));
        }
        if is_ok {
            check(&mut self.hand.model, offset, &self.hand.buffer[into][..there])?;
        }
        Ok(())
    }
}

pub(crate) fn check(model: &mut Model, offset: usize, found: &[u8]) -> Result<(), Wrong> {
    model.check(offset, found).map_err(|mismatch| {
        let from = (mismatch.offset - offset).min(found.len().saturating_sub(16));
        Wrong::Bytes { mismatch, found: found[from..].to_vec() }
    })
}

impl Row {
    /// One of the table, by weight.
    fn draw(random: &mut Xoshiro256PlusPlus, weather: Weather) -> &'static Self {
        loop {
            let mut left = random.random_range(0..OPS.iter().map(|row| row.weight).sum());
            let drawn = OPS.iter().find(|row| {
                let is_it = left < row.weight;
                left = left.wrapping_sub(row.weight);
                is_it
            });
            if let Some(row) = drawn.filter(|row| (row.fits)(&weather)) {
                return row;
            }
        }
    }
}
