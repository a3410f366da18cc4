//! Measures the cells of a sweep in random order, and keeps the results file up to date. Does not build the matrix.

use std::path::Path;

use iopath_report::result::RunResult;
use iopath_report::sweep::SweepFile;

use super::error::SweepError;
use super::file::write;
use super::matrix::order;
use iopath_bench::device_settings::{Change, Session, SettingsDevice, Until};
use iopath_bench::error::BenchError;
use iopath_bench::field::FieldNames;
use iopath_bench::model::is_model;
use iopath_bench::progress::{Progress, Stage};
use iopath_bench::refusal::Scope;
use iopath_bench::run::{IDLE_SAMPLE, Lab};
use iopath_bench::signals::Interruption;
use iopath_bench::target::Target;
use iopath_bench::workload::{DEFAULT_SIZE_BYTES, Workload};

/// A cell that can be measured.
#[derive(Debug, Clone)]
pub struct Planned {
    /// The workload with the values of the cell.
    pub workload: Workload,
    /// The settings of the device.
    pub settings: Vec<Change>,
}

/// The cells of a sweep in the order of its file.
#[derive(Debug)]
pub struct Sweep<'a> {
    /// The cells, or the reason why one cannot run.
    pub cells: &'a [Result<Planned, String>],
    /// The results file.
    pub path: &'a Path,
    /// The caller's names of the fields of a workload, for reasons.
    pub names: FieldNames,
}

impl Sweep<'_> {
    /// Measures all cells that the file has no result for. The file has all completed cells, also after an error.
    /// Messages for the user are added to `notes`.
    ///
    /// # Errors
    /// [`SweepError`]: the results cannot be written, a transfer failed, or the settings of the device are not
    /// restored.
    pub fn run(
        &self,
        file: &mut SweepFile,
        notes: &mut Vec<String>,
        progress: &mut dyn Progress,
    ) -> Result<(), SweepError> {
        let session = self.session(file, notes)?;
        let ran = self.cells(file, session.as_ref(), notes, progress);
        session.map_or(Ok(()), Session::end)?;
        ran?;
        file.complete = file.cells.iter().all(iopath_report::sweep::Cell::is_done);
        write(file, self.path)
    }

    /// The right to change the settings of the target's device; none if no cell has settings.
    fn session(&self, file: &mut SweepFile, notes: &mut Vec<String>) -> Result<Option<Session>, SweepError> {
        let with_settings = self.cells.iter().flatten().find(|cell| !cell.settings.is_empty());
        let Some(Planned { workload, .. }) = with_settings else { return Ok(None) };
        let target = workload.target.as_deref().unwrap_or(Path::new("."));
        let device = SettingsDevice::find(target)?;
        file.device = Some(device.name().to_owned());
        let mut session = Session::begin(device, Until::Exit)?;
        notes.extend(session.take_leftovers().iter().map(ToString::to_string));
        Ok(Some(session))
    }

    fn cells(
        &self,
        file: &mut SweepFile,
        session: Option<&Session>,
        notes: &mut Vec<String>,
        progress: &mut dyn Progress,
    ) -> Result<(), SweepError> {
        for (cell, planned) in file.cells.iter_mut().zip(self.cells) {
            if let (Err(reason), false) = (planned, cell.is_done()) {
                cell.skipped = Some(reason.clone());
            }
        }
        write(file, self.path)?;
        let mut machine = Machine::default();
        let (mut done, count) = (file.cells.iter().filter(|cell| cell.is_done()).count(), file.cells.len());
        for number in order(count, file.seed) {
            if Interruption::is_requested() {
                return Err(BenchError::Interrupted.into());
            }
            let (Ok(planned), false) = (&self.cells[number], file.cells[number].is_done()) else { continue };
            done += 1;
            let name = file.name(&file.cells[number]);
            progress.stage(&Stage::Cell { name: name.clone(), number: done as u32, count: count as u32 });
            let measured = self.measure(planned, session, file, &mut machine, progress);
            // The device may have changed while it was measured, in a failed cell as well.
            let drift = session.map_or_else(Vec::new, Session::drift);
            let cell = &mut file.cells[number];
            cell.drift = drift.iter().map(ToString::to_string).collect();
            notes.extend(cell.drift.iter().map(|drift| format!("{name}: {drift}")));
            match measured {
                Ok(run) => cell.run = Some(run),
                Err(error) if error.scope() == Scope::Campaign => return Err(error),
                Err(SweepError::Bench(error)) => cell.skipped = Some(self.reason(&error)),
                Err(error) => cell.skipped = Some(error.to_string()),
            }
            write(file, self.path)?;
        }
        Ok(())
    }

    fn measure(
        &self,
        planned: &Planned,
        session: Option<&Session>,
        file: &mut SweepFile,
        machine: &mut Machine,
        progress: &mut dyn Progress,
    ) -> Result<RunResult, SweepError> {
        let Planned { workload, settings } = planned;
        let mut quiet = OnlyAdvance(progress);
        if workload.target.as_deref().is_some_and(is_model) {
            let target = Target::prepare(workload, &mut quiet)?;
            let run = Lab::in_virtual_time().run(workload, &target, &mut quiet)?;
            file.target = file.target.take().or_else(|| target.facts());
            return Ok(run);
        }
        // Refusals that need no target come before the preparation of one.
        workload.check()?;
        let lab = machine.lab.get_or_insert_with(|| Lab::new(IDLE_SAMPLE, &mut quiet)).clone();
        self.check_host(file, &lab)?;
        let target = machine.target(self, workload, &mut quiet)?;
        if let Some(session) = session {
            session.set(settings)?;
        }
        let run = lab.run(workload, target, &mut quiet)?;
        file.target = file.target.take().or_else(|| target.facts());
        Ok(run)
    }

    /// An error in words, with the caller's names.
    fn reason(&self, error: &BenchError) -> String {
        match error {
            BenchError::Workload(error) => error.message(self.names),
            other => other.to_string(),
        }
    }

    /// A sweep that is resumed on another machine would compare two machines.
    fn check_host(&self, file: &mut SweepFile, lab: &Lab) -> Result<(), SweepError> {
        let Some(now) = lab.host() else { return Ok(()) };
        match &file.host {
            None => file.host = Some(now.clone()),
            Some(was) if (&was.cpu, &was.kernel, was.cores) != (&now.cpu, &now.kernel, now.cores) => {
                let problem = format!(
                    "it was measured on {} CPUs {} with Linux {}, and this machine has {} CPUs {} with Linux {}",
                    was.cores, was.cpu, was.kernel, now.cores, now.cpu, now.kernel
                );
                return Err(SweepError::NotResumable { path: self.path.to_owned(), problem });
            }
            Some(_) => {}
        }
        Ok(())
    }
}

/// The machine and the target of all cells.
#[derive(Default)]
struct Machine {
    lab: Option<Lab>,
    /// For the paths that need a target.
    target: Option<Target>,
    /// The reason why no cell may write to the target.
    no_writes: Option<String>,
    /// For the paths without a target.
    none: Option<Target>,
}

impl Machine {
    /// The target of a workload. One target, such as one scratch file, serves all cells. A cell that writes decides
    /// about the permission to write, so it prepares the target if there is one.
    fn target(
        &mut self,
        sweep: &Sweep,
        workload: &Workload,
        progress: &mut dyn Progress,
    ) -> Result<&Target, SweepError> {
        if !workload.path.capabilities.needs_target {
            let bytes = workload.size_bytes.unwrap_or(DEFAULT_SIZE_BYTES);
            return Ok(self.none.get_or_insert_with(|| Target::none(bytes)));
        }
        if let (Some(reason), true) = (&self.no_writes, workload.rw.writes()) {
            return Err(SweepError::NoWrites(reason.clone()));
        }
        if self.target.is_none() {
            self.target = Some(self.prepare(sweep, workload, progress)?);
        }
        Ok(self.target.as_ref().expect("it was prepared above"))
    }

    fn prepare(
        &mut self,
        sweep: &Sweep,
        workload: &Workload,
        progress: &mut dyn Progress,
    ) -> Result<Target, BenchError> {
        let planned = sweep.cells.iter().flatten().map(|planned| &planned.workload);
        let writers = planned.filter(|one| one.rw.writes() && one.path.capabilities.needs_target);
        let mut reason = None;
        for writer in writers {
            match Target::prepare(writer, progress) {
                Ok(target) => return Ok(target),
                Err(error) => reason = reason.or(Some(error)),
            }
        }
        self.no_writes = reason.as_ref().map(|reason| sweep.reason(reason));
        match reason {
            Some(reason) if workload.rw.writes() => Err(reason),
            _ => Target::prepare(workload, progress),
        }
    }
}

/// Forwards the progress within a stage, but no stages: a cell is one.
struct OnlyAdvance<'a>(&'a mut dyn Progress);

impl Progress for OnlyAdvance<'_> {
    fn stage(&mut self, stage: &Stage) {
        // The preparation of a large scratch file takes minutes.
        if matches!(stage, Stage::Scratch { .. }) {
            self.0.stage(stage);
        }
    }

    fn advance(&mut self, done: f64) {
        self.0.advance(done);
    }
}
