//! Faults of a trial, and their effects on the models. The device injects them (`iopath::testing::Faults`).

use super::{Outcome, Trial, outcome};
use crate::settings::pick;
use crate::worker::Worker;
use iopath::source::Extent;
use iopath::testing::Fault;
use iopath::{IoError, Op};
use rand::Rng;

/// Operations of each worker while no write succeeds. Few: a writer without a page waits for a second.
const REFUSED_OPS: u64 = 24;

/// Operations of all workers while flushes often fail.
const FAILING_OPS: u64 = 3000;

impl Trial {
    /// Replaces the faults, or removes them.
    pub(super) fn change_faults(&mut self) -> Outcome {
        self.stop_faults()?;
        let Some(faults) = self.faults.clone() else { return Ok(()) };
        faults.shuffle(self.random.random());
        if self.random.random() {
            faults.add(Fault::short().one_in(self.random.random_range(1..20)));
        }
        for _ in 0..self.random.random_range(0..3) {
            self.add_error();
        }
        Ok(())
    }

    fn add_error(&mut self) {
        let random = &mut self.random;
        let error = *pick(random, &[IoError::Media, IoError::NoSpace, IoError::Os(12)]);
        let mut fault = Fault::error(error).one_in(random.random_range(2..100));
        // With forced unit access, a fault of a write is also one of a flush.
        let forces_at_once = !self.conditions.forces_by_flush;
        let mut hits_flushes = true;
        match random.random_range(0..4) {
            0 | 1 => {
                let ops =
                    [Op::Read, Op::Write, Op::Write, Op::Flush, Op::Flush, Op::Discard, Op::WriteZeroes];
                let op = *pick(random, &ops);
                hits_flushes = op == Op::Flush || (op == Op::Write && forces_at_once);
                fault = fault.on(op);
            }
            2 => {
                let sector = random.random_range(0..64) * 512;
                fault = fault.within(Extent::from_bytes(sector, 4096).expect("sectors"));
                hits_flushes = forces_at_once;
            }
            _ => {}
        }
        self.add(fault, hits_flushes);
    }

    fn add(&mut self, fault: Fault, hits_flushes: bool) {
        let flush_may_fail = hits_flushes || self.backend.writes_in_flushes();
        let conditions = &mut self.conditions;
        // Without a page cache, only the caller of a failed flush learns of a loss.
        let only_caller_learns = conditions.is_shared && conditions.may_lose && !conditions.mode.is_cached;
        if flush_may_fail && only_caller_learns {
            return;
        }
        conditions.may_fail = true;
        conditions.flush_may_fail |= flush_may_fail;
        let faults = self.faults.as_ref().expect("a trial with faults");
        faults.add(fault);
    }

    /// The device fails every write for a while: the page cache fills up, and each writer gets an error.
    pub(super) fn refuse_writes(&mut self) -> Outcome {
        if self.faults.is_none() || !self.conditions.mode.is_cached {
            return Ok(());
        }
        self.stop_faults()?;
        let forces_at_once = !self.conditions.forces_by_flush;
        self.add(Fault::error(IoError::Media).on(Op::Write), forces_at_once);
        self.work(REFUSED_OPS * self.workers.len() as u64)?;
        self.stop_faults()
    }

    /// Flushes of the device often fail and lose writes, while workers do direct writes and flush.
    pub(super) fn fail_flushes(&mut self) -> Outcome {
        if self.faults.is_none() || !self.conditions.may_lose || !self.conditions.mode.is_cached {
            return Ok(());
        }
        self.stop_faults()?;
        let one_in = *pick(&mut self.random, &[3, 10]);
        self.add(Fault::error(IoError::Media).on(Op::Flush).one_in(one_in), true);
        self.work(FAILING_OPS)?;
        self.stop_faults()
    }

    /// Removes all faults and writes dirty pages back. Pages that could not be written stayed dirty, so if flushes
    /// still fail, the reason is a failed flush of the device.
    pub(super) fn stop_faults(&mut self) -> Outcome {
        let others_may_have_lost = self.conditions.loses_meanwhile();
        let had_faults = std::mem::take(&mut self.conditions.may_fail);
        let flush_may_have_failed = std::mem::take(&mut self.conditions.flush_may_fail);
        if let Some(faults) = &self.faults {
            faults.clear();
            self.totals.faults = faults.injected();
        }
        let cached = self.opened.clone().filter(|_| had_faults && self.conditions.mode.is_cached);
        let Some(opened) = cached else { return Ok(()) };
        // The first flush may still fail: write-back began before the faults were removed.
        let first = opened.volume.flush();
        for worker in self.workers.iter_mut().filter(|_| others_may_have_lost) {
            worker.doubt_accepted_losses();
            if first.is_err() {
                worker.model.may_have_lost();
            }
        }
        // Reading all bytes and flushing them makes the content certain, even after failures.
        if self.random.random() {
            self.read_everything()?;
        }
        let second = opened.volume.flush();
        let may_have_lost = flush_may_have_failed || self.conditions.has_lost;
        match second {
            Ok(()) if self.conditions.has_lost => {
                Err((0, outcome("a flush succeeds although a loss was not accepted")))
            }
            Ok(()) => {
                self.workers.iter_mut().for_each(Worker::flushed);
                Ok(())
            }
            Err(error) if first.is_ok() || !may_have_lost => {
                Err((0, outcome(&format!("a flush fails without faults: {error}"))))
            }
            Err(_) => {
                self.conditions.has_lost = true;
                let losers = self.workers.iter_mut().filter(|_| self.conditions.may_lose);
                losers.for_each(|worker| worker.model.may_have_lost());
                Ok(())
            }
        }
    }
}
