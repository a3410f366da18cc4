//! One thread of a trial: its ranges of the volume, their model, and helpers of operations. The operations are rows of
//! a table in `ops.rs`.

use crate::conditions::{Conditions, Mode};
use crate::history::{Event, History};
use crate::losses::{Losses, Moment};
use crate::model::{Mismatch, Model};
use crate::ops;
use crate::settings::pick;
use crate::watchdog::Progress;
use iopath::{AlignedBuf, Batch, Context, Error, ErrorKind, IoError, Op, Volume};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

/// The most bytes of one operation.
pub(crate) const OP_BYTES_MAX: usize = 256 << 10;
const SOURCE_BYTES: usize = 2 << 20;
/// The largest block of a device here.
const BLOCK_BYTES_MAX: usize = 4096;

/// Bytes to write. They are random, so that their origin can be found.
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

    /// The origin of bytes that a read found.
    fn find(&self, found: &[u8]) -> Option<usize> {
        let start = found.get(..16)?;
        self.random.windows(16).position(|window| window == start)
    }
}

/// An unexpected content or outcome.
#[derive(Debug)]
pub(crate) enum Failure {
    Bytes { what: &'static str, mismatch: Mismatch, found: Vec<u8> },
    Outcome(String),
}

/// The ranges of one thread, and their model.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) random: Xoshiro256PlusPlus,
    pub(crate) model: Model,
    pub(crate) history: History,
    /// Ranges that only this worker writes, with any boundaries.
    pub(crate) owned: Vec<Range<usize>>,
    pub(crate) source: Arc<Source>,
    pub(crate) buffer: AlignedBuf,
    pub(crate) losses: Arc<Losses>,
    /// Since this moment, no loss was accepted: a successful flush saves all writes of this worker.
    covered_since: Moment,
    progress: Progress,
    number: u64,
}

/// The volume of the workers.
#[derive(Debug, Clone)]
pub(crate) struct Opened {
    pub(crate) volume: Volume,
    /// A second volume on the same device, without page cache and faults: it reads the content of the device.
    pub(crate) medium: Option<Volume>,
    /// The context of its page cache.
    pub(crate) context: Option<Context>,
}

/// A worker at work on a volume.
pub(crate) struct Work<'a> {
    pub(crate) worker: &'a mut Worker,
    pub(crate) volume: &'a Volume,
    pub(crate) medium: Option<&'a Volume>,
    pub(crate) context: Option<&'a Context>,
    pub(crate) conditions: Conditions,
    pub(crate) batch: Option<Batch>,
}

impl Worker {
    pub(crate) fn new(
        seed: u64,
        source: &Arc<Source>,
        model: Model,
        losses: &Arc<Losses>,
        progress: &Progress,
    ) -> Self {
        Self {
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            model,
            history: History::new(),
            owned: Vec::new(),
            source: Arc::clone(source),
            buffer: AlignedBuf::new(OP_BYTES_MAX + 2 * BLOCK_BYTES_MAX).expect("memory"),
            losses: Arc::clone(losses),
            covered_since: losses.now(),
            progress: progress.clone(),
            number: 0,
        }
    }

    fn begin<'a>(&'a mut self, opened: &'a Opened, conditions: Conditions) -> Work<'a> {
        let Opened { volume, medium, context } = opened;
        let (medium, context) = (medium.as_ref(), context.as_ref());
        Work { worker: self, volume, medium, context, conditions, batch: None }
    }

    /// Runs operations until all workers together have run `left`.
    pub(crate) fn work(
        &mut self,
        opened: &Opened,
        conditions: Conditions,
        left: &AtomicI64,
    ) -> Result<(), Failure> {
        let mut work = self.begin(opened, conditions);
        let draw = ops::Draw::new(conditions, &mut work.worker.random);
        while left.fetch_sub(1, Relaxed) > 0 {
            let row = draw.next(&mut work.worker.random);
            (row.run)(&mut work)?;
            work.worker.progress.step();
        }
        Ok(())
    }

    /// Reads all of its ranges.
    pub(crate) fn check_everything(
        &mut self,
        opened: &Opened,
        conditions: Conditions,
    ) -> Result<(), Failure> {
        let mut work = self.begin(opened, conditions);
        for range in work.worker.owned.clone() {
            for offset in range.clone().step_by(OP_BYTES_MAX) {
                work.read(offset, (range.end - offset).min(OP_BYTES_MAX))?;
                work.worker.progress.step();
            }
        }
        Ok(())
    }

    /// A flush has succeeded: all writes of this worker are saved, unless a loss was accepted.
    pub(crate) fn flushed(&mut self) {
        if self.doubt_accepted_losses() {
            self.model.flushed();
        }
    }

    /// Whether a flush that has just succeeded covers all writes of this worker. If another worker has accepted a loss,
    /// each sector may have any version since the last flush that covered all writes.
    pub(crate) fn doubt_accepted_losses(&mut self) -> bool {
        let covers = self.losses.none_since(self.covered_since);
        if !covers {
            self.covered_since = self.losses.now();
            self.model.may_have_lost();
        }
        covers
    }

    /// The power has failed.
    pub(crate) fn crashed(&mut self) {
        self.model.may_have_lost();
        self.note("power failure", (0, 0), None, true);
    }

    fn note(
        &mut self,
        what: &'static str,
        (offset, bytes): (usize, usize),
        source: Option<usize>,
        is_ok: bool,
    ) {
        self.number += 1;
        self.history.add(Event { number: self.number, what, offset, bytes, source, is_ok });
    }

    /// Describes a failure.
    pub(crate) fn explain(&self, failure: &Failure) -> String {
        let (what, mismatch, found) = match failure {
            Failure::Bytes { what, mismatch, found } => (what, mismatch, found),
            Failure::Outcome(what) => return format!("{what}\n{}", self.history.of_byte(usize::MAX)),
        };
        let Mismatch { offset, expected, found: byte, doubts } = mismatch;
        let origin = match self.source.find(found) {
            Some(at) => format!("it was written from source {at}"),
            None if found.iter().all(|byte| *byte == 0) => "it is zero".to_owned(),
            None => "it was never written".to_owned(),
        };
        format!(
            "{what}: byte {offset} is {byte:#04x} and must be {expected:#04x} or one of {doubts} others; {origin}\n{}",
            self.history.of_byte(*offset)
        )
    }
}

impl Work<'_> {
    /// Records an operation and its outcome.
    pub(crate) fn note(
        &mut self,
        what: &'static str,
        range: (usize, usize),
        source: Option<usize>,
        is_ok: bool,
    ) {
        self.worker.note(what, range, source, is_ok);
    }

    pub(crate) fn block(&self) -> usize {
        self.volume.facts().block_bytes as usize
    }

    /// One of the ranges. With several workers, the last range is drawn more often: all workers share the page at the
    /// end.
    fn owned(&mut self) -> Range<usize> {
        let Worker { random, owned, .. } = &mut *self.worker;
        let is_last = self.conditions.is_shared && random.random_range(0..4) == 0;
        let range = if is_last { owned.last() } else { None };
        range.unwrap_or_else(|| pick(random, owned)).clone()
    }

    /// A range of whole blocks of this worker: mostly few, sometimes many.
    pub(crate) fn range(&mut self) -> Option<(usize, usize)> {
        let block = self.block();
        let Range { start, end } = self.owned();
        let random = &mut self.worker.random;
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

    /// A range of bytes of this worker, if the volume accepts unaligned ranges and the model supports them
    /// (`model.rs`); else whole blocks.
    pub(crate) fn bytes(&mut self) -> Option<(usize, usize)> {
        let whole_blocks = !self.conditions.mode.accepts_unaligned || self.conditions.loses_meanwhile();
        if whole_blocks || self.worker.random.random_range(0..3) == 0 {
            return self.range();
        }
        let Range { start, end } = self.owned();
        if start == end {
            return None;
        }
        let random = &mut self.worker.random;
        let offset = random.random_range(start..end);
        let most = (end - offset).min(*pick(random, &[16, 600, 5_000, 5_000, 20_000]));
        Some((offset, random.random_range(1..=most)))
    }

    /// An offset in the source of that many bytes, aligned for the device.
    pub(crate) fn from(&mut self, bytes: usize) -> usize {
        let align = self.volume.facts().memory_align_bytes as usize;
        let align = if self.conditions.mode.accepts_unaligned { 1 } else { align };
        self.worker.random.random_range(0..=(SOURCE_BYTES - bytes) / align) * align
    }

    /// A flush, or an operation with a flush, has failed. With several workers, a worker often accepts the loss, so
    /// that later flushes succeed.
    pub(crate) fn flush_failed(&mut self) {
        let Conditions { may_fail, may_lose, has_lost, mode, .. } = self.conditions;
        if may_lose && may_fail {
            self.worker.model.may_have_lost();
        }
        let may_accept = self.conditions.loses_meanwhile() && mode.is_cached && !has_lost;
        if may_accept && self.worker.random.random_range(0..4) > 0 {
            self.worker.losses.accept(self.volume);
        }
    }

    /// Does the same as [`Work::outcome`], of an operation with a flush of the page cache.
    pub(crate) fn outcome_of_flush(&self, result: &Result<(), Error>) -> Result<bool, Failure> {
        let is_of_flush = |error: &Error| {
            matches!(error.kind(), ErrorKind::Io(_)) && matches!(error.op(), Some(Op::Flush | Op::Write))
        };
        if self.conditions.has_lost && result.as_ref().is_err_and(is_of_flush) {
            return Ok(false);
        }
        self.outcome(result)
    }

    /// Whether an operation has succeeded. An error is a failure unless the conditions allow it. They never allow an
    /// error that reports a range inside the volume as past the end.
    pub(crate) fn outcome(&self, result: &Result<(), Error>) -> Result<bool, Failure> {
        let Err(error) = result else { return Ok(true) };
        match error.kind() {
            ErrorKind::Io(source) | ErrorKind::Unwritable { source, .. }
                if self.conditions.may_fail && source != IoError::EndOfDevice =>
            {
                Ok(false)
            }
            ErrorKind::Unsupported if self.conditions.may_be_unsupported => Ok(false),
            _ => Err(Failure::Outcome(format!("unexpected error: {error}"))),
        }
    }

    /// Compares the bytes of a read in the ranges of this worker.
    pub(crate) fn check(&mut self, what: &'static str, offset: usize, found: &[u8]) -> Result<(), Failure> {
        check(&mut self.worker.model, self.conditions, what, offset, found)
    }

    /// Compares bytes that were read while a flush may have failed.
    pub(crate) fn check_beside_loss(
        &self,
        what: &'static str,
        offset: usize,
        found: &[u8],
    ) -> Result<(), Failure> {
        compare(what, offset, found, |found| self.worker.model.check_beside_loss(offset, found))
    }

    /// Compares bytes of the medium, which are in the buffer. A flush has succeeded, so a loss cannot explain a
    /// difference.
    pub(crate) fn check_saved(&mut self, offset: usize, bytes: usize) -> Result<(), Failure> {
        let Worker { model, buffer, .. } = &mut *self.worker;
        compare("on the medium after a flush", offset, &buffer[..bytes], |found| model.check(offset, found))
    }

    /// Reads a range, which may reach past the end of the volume, and compares.
    pub(crate) fn read(&mut self, offset: usize, bytes: usize) -> Result<(), Failure> {
        let Mode { accepts_unaligned, .. } = self.conditions.mode;
        if accepts_unaligned {
            let shift = self.worker.random.random_range(0..512);
            return self.read_by("read", (offset, bytes), shift..shift + bytes, |volume, buffer| {
                volume.read_at(buffer, offset as u64)
            });
        }
        // From the start of the block. Bytes of other workers are not compared.
        let lead = offset % self.block();
        let whole = (lead + bytes).next_multiple_of(self.block());
        self.read_by("read", (offset, bytes), 0..whole, |volume, buffer| {
            let count = volume.read_at(buffer, (offset - lead) as u64)?;
            buffer.copy_within(lead.., 0);
            Ok(count.saturating_sub(lead))
        })
    }

    /// Reads a range by `read` into that part of the buffer, and compares.
    pub(crate) fn read_by(
        &mut self,
        what: &'static str,
        (offset, bytes): (usize, usize),
        into: Range<usize>,
        read: impl FnOnce(&Volume, &mut [u8]) -> Result<usize, Error>,
    ) -> Result<(), Failure> {
        let available = self.worker.model.size().saturating_sub(offset).min(bytes);
        let buffer = &mut self.worker.buffer[into.clone()];
        for sector in buffer.chunks_mut(512) {
            // Marks the buffer, so that bytes of an earlier read are not accepted.
            let marked = sector.len().min(8);
            sector[..marked].fill(0xa5);
        }
        let result = read(self.volume, buffer);
        let count = *result.as_ref().unwrap_or(&available);
        let is_ok = self.outcome(&result.map(drop))?;
        self.note(what, (offset, bytes), None, is_ok);
        if count < available {
            return Err(Failure::Outcome(format!(
                "a {what} of {bytes} from {offset} returned {count} of {available} bytes"
            )));
        }
        if is_ok {
            let Worker { model, buffer, .. } = &mut *self.worker;
            check(model, self.conditions, what, offset, &buffer[into][..available])?;
        }
        Ok(())
    }
}

fn check(
    model: &mut Model,
    conditions: Conditions,
    what: &'static str,
    offset: usize,
    found: &[u8],
) -> Result<(), Failure> {
    compare(what, offset, found, |found| {
        if conditions.loses_meanwhile() {
            model.check_beside_loss(offset, found)
        } else {
            model.check(offset, found)
        }
    })
}

fn compare(
    what: &'static str,
    offset: usize,
    found: &[u8],
    judge: impl FnOnce(&[u8]) -> Result<(), Mismatch>,
) -> Result<(), Failure> {
    judge(found).map_err(|mismatch| {
        let from = (mismatch.offset - offset).min(found.len().saturating_sub(16));
        Failure::Bytes { what, mismatch, found: found[from..].to_vec() }
    })
}
