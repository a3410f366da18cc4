//! One thread's part in a trial: its ranges of the volume, the model of them, and operations on them. The operations
//! themselves are rows of a table in `ops.rs`.

use crate::conditions::{Conditions, Mode};
use crate::history::{Event, History};
use crate::losses::{Losses, Moment};
use crate::model::{Mismatch, Model};
use crate::ops;
use crate::settings::pick;
use crate::watchdog::Progress;
use iopath::{AlignedBuf, Batch, Error, ErrorKind, IoError, Op, Volume};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

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
pub(crate) enum Failure {
    Bytes { what: &'static str, mismatch: Mismatch, found: Vec<u8> },
    Outcome(String),
}

/// One thread's ranges and what it knows of them.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) random: Xoshiro256PlusPlus,
    pub(crate) model: Model,
    pub(crate) history: History,
    /// Ranges that only this worker writes, cut anywhere.
    pub(crate) owned: Vec<Range<usize>>,
    pub(crate) source: Arc<Source>,
    pub(crate) buffer: AlignedBuf,
    pub(crate) losses: Arc<Losses>,
    /// Since when a flush that succeeds proves that all its writes are saved.
    proves_since: Moment,
    progress: Progress,
    number: u64,
}

/// The volume that workers work on.
#[derive(Debug, Clone)]
pub(crate) struct Opened {
    pub(crate) volume: Volume,
    /// A second one on the same device, without a page cache and without faults: what it reads has been written.
    pub(crate) medium: Option<Volume>,
}

/// A worker at work on a volume.
pub(crate) struct Work<'a> {
    pub(crate) worker: &'a mut Worker,
    pub(crate) volume: &'a Volume,
    pub(crate) medium: Option<&'a Volume>,
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
            proves_since: losses.now(),
            progress: progress.clone(),
            number: 0,
        }
    }

    fn begin<'a>(&'a mut self, opened: &'a Opened, conditions: Conditions) -> Work<'a> {
        let Opened { volume, medium } = opened;
        Work { worker: self, volume, medium: medium.as_ref(), conditions, batch: None }
    }

    /// Carries out operations until all workers together have done the `left` ones.
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

    /// A flush has succeeded: what this worker has written is saved, unless a loss of it was accepted.
    pub(crate) fn flushed(&mut self) {
        if self.doubt_accepted_losses() {
            self.model.flushed();
        }
    }

    /// Whether a flush that has just succeeded covers all its writes. If another worker has accepted a loss, the bytes
    /// may be any of those written since the last flush that did.
    pub(crate) fn doubt_accepted_losses(&mut self) -> bool {
        let covers = self.losses.none_since(self.proves_since);
        if !covers {
            self.proves_since = self.losses.now();
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

    /// What to say about a failure.
    pub(crate) fn explain(&self, failure: &Failure) -> String {
        let (what, mismatch, found) = match failure {
            Failure::Bytes { what, mismatch, found } => (what, mismatch, found),
            Failure::Outcome(what) => return format!("{what}\n{}", self.history.of_byte(usize::MAX)),
        };
        let Mismatch { offset, expected, found: byte, doubts } = mismatch;
        let origin = match self.source.find(found) {
            Some(at) => format!("it was written from source {at}"),
            None if found.iter().all(|byte| *byte == 0) => "there are zeroes".to_owned(),
            None => "nobody wrote it".to_owned(),
        };
        format!(
            "{what}: byte {offset} is {byte:#04x} and must be {expected:#04x} or one of {doubts} others; {origin}\n{}",
            self.history.of_byte(*offset)
        )
    }
}

impl Work<'_> {
    /// Remembers an operation, whose outcome this is.
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

    /// One of its ranges. Beside others the last more often: the end of the volume, whose page all share, lies there.
    fn owned(&mut self) -> Range<usize> {
        let Worker { random, owned, .. } = &mut *self.worker;
        let is_last = self.conditions.is_shared && random.random_range(0..4) == 0;
        let range = if is_last { owned.last() } else { None };
        range.unwrap_or_else(|| pick(random, owned)).clone()
    }

    /// Whole blocks of its own that a write may cover: mostly few, now and then many.
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

    /// Any bytes of its own where the volume takes any and the model can follow (`model.rs`), else whole blocks.
    pub(crate) fn bytes(&mut self) -> Option<(usize, usize)> {
        let whole_blocks = !self.conditions.mode.takes_any || self.conditions.loses_meanwhile();
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

    /// Where in the source to take that many bytes from, so that the device can write from there.
    pub(crate) fn from(&mut self, bytes: usize) -> usize {
        let align = self.volume.facts().memory_align_bytes as usize;
        let align = if self.conditions.mode.takes_any { 1 } else { align };
        self.worker.random.random_range(0..=(SOURCE_BYTES - bytes) / align) * align
    }

    /// A flush, or what includes one, has failed. Beside others the loss is accepted, often: flushes go on to succeed.
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

    /// As [`Work::outcome`], of what includes a flush of the page cache.
    pub(crate) fn outcome_of_flush(&self, result: &Result<(), Error>) -> Result<bool, Failure> {
        let is_of_flush = |error: &Error| {
            matches!(error.kind(), ErrorKind::Io(_)) && matches!(error.op(), Some(Op::Flush | Op::Write))
        };
        if self.conditions.has_lost && result.as_ref().is_err_and(is_of_flush) {
            return Ok(false);
        }
        self.outcome(result)
    }

    /// Whether an operation has succeeded. An error is a failure unless conditions allow it; that a range which is
    /// there lies past the end is never allowed.
    pub(crate) fn outcome(&self, result: &Result<(), Error>) -> Result<bool, Failure> {
        let Err(error) = result else { return Ok(true) };
        match error.kind() {
            ErrorKind::Io(source) | ErrorKind::Unwritable { source, .. }
                if self.conditions.may_fail && source != IoError::EndOfDevice =>
            {
                Ok(false)
            }
            ErrorKind::Unsupported if self.conditions.may_lack => Ok(false),
            _ => Err(Failure::Outcome(format!("it should not fail: {error}"))),
        }
    }

    /// Compares what a read has found in this worker's ranges.
    pub(crate) fn check(&mut self, what: &'static str, offset: usize, found: &[u8]) -> Result<(), Failure> {
        check(&mut self.worker.model, self.conditions, what, offset, found)
    }

    /// The same of what was read while a flush may have failed.
    pub(crate) fn check_beside_loss(
        &self,
        what: &'static str,
        offset: usize,
        found: &[u8],
    ) -> Result<(), Failure> {
        compare(what, offset, found, |found| self.worker.model.check_beside_loss(offset, found))
    }

    /// Compares what the medium has, which is in the buffer: a flush has promised it, so no loss excuses it.
    pub(crate) fn check_saved(&mut self, offset: usize, bytes: usize) -> Result<(), Failure> {
        let Worker { model, buffer, .. } = &mut *self.worker;
        compare("on the medium after a flush", offset, &buffer[..bytes], |found| model.check(offset, found))
    }

    /// Reads a range, whose end may lie beyond that of the volume, and compares.
    pub(crate) fn read(&mut self, offset: usize, bytes: usize) -> Result<(), Failure> {
        let Mode { takes_any, .. } = self.conditions.mode;
        if takes_any {
            let shift = self.worker.random.random_range(0..512);
            return self.read_by("read", (offset, bytes), shift..shift + bytes, |volume, buffer| {
                volume.read_at(buffer, offset as u64)
            });
        }
        // From where the block begins; bytes of another worker there are not compared.
        let lead = offset % self.block();
        let whole = (lead + bytes).next_multiple_of(self.block());
        self.read_by("read", (offset, bytes), 0..whole, |volume, buffer| {
            let count = volume.read_at(buffer, (offset - lead) as u64)?;
            buffer.copy_within(lead.., 0);
            Ok(count.saturating_sub(lead))
        })
    }

    /// Reads a range in some way into that part of the buffer, and compares.
    pub(crate) fn read_by(
        &mut self,
        what: &'static str,
        (offset, bytes): (usize, usize),
        into: Range<usize>,
        read: impl FnOnce(&Volume, &mut [u8]) -> Result<usize, Error>,
    ) -> Result<(), Failure> {
        let there = self.worker.model.size().saturating_sub(offset).min(bytes);
        let buffer = &mut self.worker.buffer[into.clone()];
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
            return Err(Failure::Outcome(format!(
                "a {what} of {bytes} from {offset} gave {count} of {there} bytes"
            )));
        }
        if is_ok {
            let Worker { model, buffer, .. } = &mut *self.worker;
            check(model, self.conditions, what, offset, &buffer[into][..there])?;
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
