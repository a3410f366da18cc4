//! Measures the cells of a sweep in random order, and keeps the results file up to date. Does not build the matrix.

use std::path::Path;

use iopath_report::result::{RunResult, TargetFacts};
use iopath_report::sweep::SweepFile;

use super::error::SweepError;
use super::file::write;
use crate::campaign::target::SharedTarget;
use crate::campaign::{OnlyAdvance, order};
use iopath_bench::device_settings::{Change, Session, SettingsDevice, Until};
use iopath_bench::error::BenchError;
use iopath_bench::field::FieldNames;
use iopath_bench::model::is_model;
use iopath_bench::progress::{Progress, Stage};
use iopath_bench::refusal::Scope;
use iopath_bench::run::{IDLE_SAMPLE, Lab};
use iopath_bench::signals::Interruption;
use iopath_bench::target::Target;
use iopath_bench::workload::Workload;

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
        for planned in self.cells.iter().flatten() {
            planned.workload.required_target()?;
        }
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
        let machine = self.machine(file, progress)?;
        write(file, self.path)?;
        let (mut done, count) = (file.cells.iter().filter(|cell| cell.is_done()).count(), file.cells.len());
        for number in order(file.seed, 0, count) {
            if Interruption::is_requested() {
                return Err(BenchError::Interrupted.into());
            }
            let (Ok(planned), false) = (&self.cells[number], file.cells[number].is_done()) else { continue };
            done += 1;
            let name = file.name(&file.cells[number]);
            progress.stage(&Stage::Cell { name: name.clone(), number: done as u32, count: count as u32 });
            let measured = measure(planned, session, machine.as_ref(), progress);
            // The device may have changed while it was measured, in a failed cell as well.
            let drift = session.map_or_else(Vec::new, Session::drift);
            let cell = &mut file.cells[number];
            cell.drift = drift.iter().map(ToString::to_string).collect();
            notes.extend(cell.drift.iter().map(|drift| format!("{name}: {drift}")));
            match measured {
                Ok((run, facts)) => {
                    cell.run = Some(run);
                    file.target = file.target.take().or(facts);
                }
                Err(error) if error.scope() == Scope::Campaign => return Err(error),
                Err(SweepError::Bench(error)) => cell.skipped = Some(error.message(self.names)),
                Err(error) => cell.skipped = Some(error.to_string()),
            }
            write(file, self.path)?;
        }
        Ok(())
    }

    /// The machine and the target of the cells on storage that have no result; none without such a cell. Skips cells
    /// that the target refuses.
    fn machine(
        &self,
        file: &mut SweepFile,
        progress: &mut dyn Progress,
    ) -> Result<Option<Machine>, SweepError> {
        let cells = self.cells.iter().zip(&file.cells).enumerate();
        let left = cells.filter_map(|(number, (planned, cell))| match planned {
            Ok(Planned { workload, .. }) if !cell.is_done() && !is_on_model(workload) => {
                Some((number, workload))
            }
            _ => None,
        });
        let workloads: Vec<(usize, &Workload)> = left.collect();
        if workloads.is_empty() {
            return Ok(None);
        }
        let lab = Lab::new(IDLE_SAMPLE, progress);
        self.check_host(file, &lab)?;
        let skip =
            |number: usize, error: BenchError| file.cells[number].skipped = Some(error.message(self.names));
        let shared = SharedTarget::prepare(&workloads, progress, skip)?;
        Ok(Some(Machine { lab, shared }))
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

/// Measures a cell. Returns the facts about its target, too.
fn measure(
    planned: &Planned,
    session: Option<&Session>,
    machine: Option<&Machine>,
    progress: &mut dyn Progress,
) -> Result<(RunResult, Option<TargetFacts>), SweepError> {
    let Planned { workload, settings } = planned;
    let quiet = &mut OnlyAdvance(progress);
    if is_on_model(workload) {
        let target = Target::prepare(workload, quiet)?;
        let run = Lab::in_virtual_time().run(workload, &target, quiet)?;
        return Ok((run, target.facts()));
    }
    let Machine { lab, shared } = machine.expect("a cell on storage has a machine");
    let target = shared.of(workload);
    if let Some(session) = session {
        session.set(settings)?;
    }
    Ok((lab.run(workload, target, quiet)?, target.facts()))
}

fn is_on_model(workload: &Workload) -> bool {
    workload.target.as_deref().is_some_and(is_model)
}

/// The machine and the target of the cells on storage.
struct Machine {
    lab: Lab,
    shared: SharedTarget,
}
