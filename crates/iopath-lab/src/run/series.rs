//! The repetitions of one workload on open paths, measured one by one. Does not summarise them: see `run.rs`.

use std::sync::{Arc, OnceLock};

use iopath_log::LogWriter;
use iopath_report::Rw;

use crate::conditions::Repeated;
use crate::engine::{Measured, all_verified, measure, read_back};
use crate::error::LabError;
use crate::host::memory_available_bytes;
use crate::path::{IoPath, OpenSpec};
use crate::progress::{Progress, Stage};
use crate::storage::Resident;
use crate::target::Target;
use crate::verify::Verified;
use crate::verify::record::Record;
use crate::workload::{DeviceDepth, End, Jobs, Workload};

/// The open path of each target.
pub(crate) struct Opened {
    paths: Vec<Box<dyn IoPath>>,
}

/// The repetitions of one workload so far. The caller may measure other workloads in between.
pub(crate) struct Series<'a> {
    pub(super) workload: Workload,
    pub(super) target: &'a Target,
    pub(super) measured: Vec<Repeated>,
    /// Whether the counters of the system show this workload alone.
    pub(super) has_counters: bool,
    /// Whether a failure has ended the series after a complete repetition.
    pub(super) has_failed: bool,
    /// The I/O engine of the open path, on a path with a queue.
    pub(super) engine: OnceLock<&'static str>,
}

impl<'a> Series<'a> {
    /// Checks that the workload suits the target.
    pub(crate) fn new(workload: &Workload, target: &'a Target) -> Result<Self, LabError> {
        workload.check()?;
        let workload = target.with_pages(workload)?;
        for one in target.each() {
            workload.check_size(one.size_bytes())?;
        }
        target.check_path(&workload)?;
        target.check_alignment(&workload)?;
        let sizes = target.models().iter().map(|model| workload.size_bytes.unwrap_or(model.size_bytes()));
        workload.check_warm(sizes.max().unwrap_or(target.size_bytes()))?;
        if target.model().is_some() {
            workload.check_memory_on_model(memory_available_bytes())?;
        } else {
            workload.check_on_storage()?;
            workload.check_memory(memory_available_bytes())?;
        }
        Ok(Self {
            workload,
            target,
            measured: Vec::new(),
            has_counters: true,
            has_failed: false,
            engine: OnceLock::new(),
        })
    }

    /// One of several workloads that run at the same time, or one that is alone. The caller has checked it.
    pub(crate) fn of_part(workload: &Workload, target: &'a Target, is_alone: bool) -> Self {
        Self {
            workload: workload.clone(),
            target,
            measured: Vec::new(),
            has_counters: is_alone,
            has_failed: false,
            engine: OnceLock::new(),
        }
    }

    /// Adds a repetition that the caller has measured.
    pub(crate) fn push(&mut self, repeated: Repeated) {
        self.measured.push(repeated);
    }

    /// The target.
    pub(crate) fn target(&self) -> &'a Target {
        self.target
    }

    /// Opens the path on each target. An open path serves any number of repetitions.
    pub(crate) fn open(&self, log: Option<&Arc<LogWriter>>) -> Result<Opened, LabError> {
        let Self { workload, target, .. } = self;
        let open = |target: &Target| {
            let path = (workload.path.open)(&OpenSpec {
                target: target.file(),
                remote: target.remote(),
                depth: workload.depth_in_flight(),
                writes: workload.rw.writes(),
                size_bytes: target.size_bytes(),
                elevator: workload.elevator.as_ref(),
                device_depth: workload.device_depth.map(DeviceDepth::get),
                engine: workload.engine.unwrap_or_default(),
                cache: &workload.cache,
                log,
            })?;
            if let Some(engine) = path.engine() {
                let _ = self.engine.set(engine);
            }
            Ok(path)
        };
        Ok(Opened { paths: target.each().map(open).collect::<Result<_, LabError>>()? })
    }

    /// Reads the range of a warm workload, unmeasured, on one target after another.
    pub(crate) fn warm_up(&self, opened: &Opened, progress: &mut dyn Progress) -> Result<(), LabError> {
        progress.stage(&Stage::WarmUp);
        for (path, target) in opened.paths.iter().zip(self.target.each()) {
            let warm_up = warm_up(&self.workload, target);
            measure(&[&**path], &warm_up, &[target], 0, &[], None, progress)?.complete()?;
        }
        Ok(())
    }

    /// Reads the range of another workload on the same target, unmeasured.
    pub(crate) fn warm_up_of(
        &self,
        path: &dyn IoPath,
        workload: &Workload,
        progress: &mut dyn Progress,
    ) -> Result<(), LabError> {
        progress.stage(&Stage::WarmUp);
        let warm_up = warm_up(workload, self.target);
        measure(&[path], &warm_up, &[self.target], 0, &[], None, progress)?.complete().map(drop)
    }

    /// Whether caches stay filled between repetitions.
    pub(crate) fn is_warm(&self) -> bool {
        self.workload.warm
    }

    /// Measures one more repetition, cold unless the workload is warm.
    pub(crate) fn measure(&mut self, opened: &Opened, progress: &mut dyn Progress) -> Result<(), LabError> {
        self.measure_logged(opened, None, progress)
    }

    /// As [`Series::measure`], with the accesses in a log.
    pub(crate) fn measure_logged(
        &mut self,
        opened: &Opened,
        accesses: Option<&LogWriter>,
        progress: &mut dyn Progress,
    ) -> Result<(), LabError> {
        let Self { workload, target, .. } = &*self;
        let number = self.measured.len() as u32 + 1;
        let resident = if workload.warm {
            None
        } else {
            opened.paths.iter().try_for_each(|path| path.drop_cache())?;
            drop_cached(target, progress)?
        };
        progress.stage(&Stage::Repeat { number, count: workload.repetitions.get() });
        // A repetition of a warm workload has the same transfers as its warm-up.
        let repetition = if workload.warm { 0 } else { number };
        let paths: Vec<&dyn IoPath> = opened.paths.iter().map(|path| &**path).collect();
        let targets: Vec<&Target> = target.each().collect();
        // Other workloads may write to the range in between, so each repetition has records of its own.
        let record =
            |target: &&Target| workload.verify.map(|_| Record::of(workload, target.size_bytes())).transpose();
        let records: Vec<Record> =
            targets.iter().filter_map(|target| record(target).transpose()).collect::<Result<_, _>>()?;
        let mut measured = measure(&paths, workload, &targets, repetition, &records, accesses, progress)?;
        if measured.is_cut_off {
            return self.add(Repeated { measured, resident });
        }
        for ((path, target), record) in paths.iter().zip(&targets).zip(&records) {
            let read_back =
                read_back_after(*path, workload, target, record, measured.verified.as_ref(), progress)?;
            measured.verified = all_verified([measured.verified.as_ref(), read_back.as_ref()]);
        }
        self.add(Repeated { measured, resident })
    }

    /// Adds a repetition. The part of one that a signal has cut off is a result only if there is no other.
    ///
    /// # Errors
    /// [`LabError::Interrupted`]: a signal has cut it off.
    pub(super) fn add(&mut self, repeated: Repeated) -> Result<(), LabError> {
        let Measured { is_cut_off, ios, .. } = repeated.measured;
        if !is_cut_off || (self.is_empty() && ios > 0) {
            self.measured.push(repeated);
        }
        if is_cut_off { Err(LabError::Interrupted) } else { Ok(()) }
    }

    /// The repetitions measured so far.
    pub(crate) fn runs(&self) -> impl Iterator<Item = &Measured> {
        self.measured.iter().map(|repeated| &repeated.measured)
    }

    /// An interruption is no error once anything is measured: the repetitions so far are the result.
    pub(crate) fn unless_interrupted(&self, result: Result<(), LabError>) -> Result<(), LabError> {
        result.or_else(|error| match error {
            LabError::Interrupted if !self.is_empty() => Ok(()),
            other => Err(other),
        })
    }

    /// The failure after which the repetitions so far remain the result; none after an interruption.
    ///
    /// # Errors
    /// [`LabError`]: no repetition is complete.
    pub(crate) fn until_failure(
        &mut self,
        result: Result<(), LabError>,
    ) -> Result<Option<LabError>, LabError> {
        match self.unless_interrupted(result) {
            Err(error) if !self.is_empty() => {
                self.has_failed = true;
                Ok(Some(error))
            }
            ended => ended.map(|()| None),
        }
    }

    /// Marks the repetitions so far as those before a failure of this or another series.
    pub(crate) fn end_by_failure(&mut self) {
        self.has_failed = true;
    }

    /// Removes the part of a repetition that a signal has ended.
    pub(crate) fn drop_cut_off(&mut self) {
        self.measured.retain(|repeated| !repeated.measured.is_cut_off);
    }

    /// Whether nothing was measured yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.measured.is_empty()
    }
}

/// Reads the written blocks of a repetition back, with empty caches unless the workload is warm. None if the workload
/// does not ask for it.
pub(crate) fn read_back_after(
    path: &dyn IoPath,
    workload: &Workload,
    target: &Target,
    record: &Record,
    verified: Option<&Verified>,
    progress: &mut dyn Progress,
) -> Result<Option<Verified>, LabError> {
    let Some(settings) = workload.verify.filter(|settings| settings.after && record.has_written()) else {
        return Ok(None);
    };
    if settings.fatal && verified.is_some_and(|verified| verified.faults() > 0) {
        return Ok(None);
    }
    if !workload.warm {
        path.drop_cache()?;
        drop_cached(target, progress)?;
    }
    progress.stage(&Stage::Verify);
    read_back(path, workload, target, record).map(Some)
}

/// The unmeasured run before a warm measurement. It reads the range once into the page cache. On a path without a page
/// cache, or if the range exceeds memory, it runs the workload itself, to fill the caches of the device.
pub(crate) fn warm_up(workload: &Workload, target: &Target) -> Workload {
    let is_in_memory = memory_available_bytes().is_none_or(|available| target.size_bytes() < available);
    if !workload.path.capabilities.is_cached() || !is_in_memory {
        return workload.clone();
    }
    Workload { rw: Rw::Read, jobs: Jobs::constant(1), end: End::Pass, ..workload.clone() }
}

fn drop_cached(target: &Target, progress: &mut dyn Progress) -> Result<Option<Resident>, LabError> {
    if target.file().is_some() {
        progress.stage(&Stage::DropCache);
    }
    target.drop_cached()
}
