//! Measures the cells of a sweep in random order, and keeps the results file up to date. Does not build the matrix.

use std::path::Path;
use std::rc::Rc;

use iopath_report::result::{HostFacts, Report, RunResult, TargetFacts};
use iopath_report::sweep::SweepFile;

use super::error::SweepError;
use super::file::write;
use crate::campaign::target::SharedTarget;
use crate::campaign::{OnlyAdvance, order};
use crate::hosts::Team;
use iopath_bench::device_settings::{Change, Session, SettingsDevice, Until};
use iopath_bench::error::BenchError;
use iopath_bench::field::FieldNames;
use iopath_bench::model::is_model;
use iopath_bench::peers::Peers;
use iopath_bench::progress::{Progress, Stage};
use iopath_bench::refusal::Scope;
use iopath_bench::run::{IDLE_SAMPLE, Lab, checked};
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
    /// The ranks that measure the same cells; none for a process alone. Only rank 0 writes the results file.
    pub team: Option<Rc<Team>>,
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
        file.complete = own_order(file).iter().all(|number| file.cells[*number].is_done());
        self.write(file)
    }

    /// Replaces the results file.
    fn write(&self, file: &SweepFile) -> Result<(), SweepError> {
        if self.team.as_ref().is_some_and(|team| team.rank() > 0) { Ok(()) } else { write(file, self.path) }
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
        let order = own_order(file);
        for number in &order {
            let cell = &mut file.cells[*number];
            if let (Err(reason), false) = (&self.cells[*number], cell.is_done()) {
                cell.skipped = Some(reason.clone());
            }
        }
        self.check_hosts(file)?;
        self.write(file)?;
        let machine = self.machine(file, &order, progress)?;
        self.write(file)?;
        let (mut done, count) =
            (order.iter().filter(|number| file.cells[**number].is_done()).count(), order.len());
        for number in order {
            if Interruption::is_requested() {
                return Err(BenchError::Interrupted.into());
            }
            let (Ok(planned), false) = (&self.cells[number], file.cells[number].is_done()) else { continue };
            done += 1;
            let name = file.name(&file.cells[number]);
            progress.stage(&Stage::Cell { name: name.clone(), number: done as u32, count: count as u32 });
            let measured = self.measure(planned, session, machine.as_ref(), progress);
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
            self.write(file)?;
        }
        Ok(())
    }

    /// Measures a cell, on all ranks. Returns the facts about its target, too.
    fn measure(
        &self,
        planned: &Planned,
        session: Option<&Session>,
        machine: Option<&Machine>,
        progress: &mut dyn Progress,
    ) -> Result<(RunResult, Option<TargetFacts>), SweepError> {
        let measured = measure(planned, session, machine, progress);
        let Some(team) = &self.team else { return measured };
        let measured = match measured {
            Ok((run, facts)) => Ok(Report::new(None, facts, vec![run])),
            Err(SweepError::Bench(error)) => Err(error),
            Err(error) => return Err(error),
        };
        let mut joined = team.join(measured)?;
        Ok((joined.runs.remove(0), joined.target))
    }

    /// The machine and the target of the cells on storage that have no result; none without such a cell. Skips cells
    /// that the target refuses.
    fn machine(
        &self,
        file: &mut SweepFile,
        order: &[usize],
        progress: &mut dyn Progress,
    ) -> Result<Option<Machine>, SweepError> {
        let cells = self.cells.iter().zip(&file.cells).enumerate();
        let left = cells.filter_map(|(number, (planned, cell))| match planned {
            Ok(Planned { workload, .. })
                if !cell.is_done() && order.contains(&number) && !is_on_model(workload) =>
            {
                Some((number, workload))
            }
            _ => None,
        });
        let workloads: Vec<(usize, &Workload)> = left.collect();
        if workloads.is_empty() {
            return Ok(None);
        }
        let peers = self.team.clone().map(|team| -> Rc<dyn Peers> { team });
        let lab = Lab::new(IDLE_SAMPLE, progress).with_peers(peers);
        self.check_host(file, &lab)?;
        let mut refused = Vec::new();
        let skip = |number: usize, error: BenchError| refused.push((number, error.message(self.names)));
        let shared = SharedTarget::prepare(&workloads, progress, skip)?;
        if let Some(team) = &self.team {
            // All checks come before the I/O of any rank, also before the warm-up of the others.
            for (number, workload) in &workloads {
                if refused.iter().any(|(known, _)| known == number) {
                    continue;
                }
                match checked(workload, shared.of(workload)) {
                    Err(error) if error.scope() == Scope::Workload => {
                        refused.push((*number, error.message(self.names)));
                    }
                    other => drop(other?),
                }
            }
            refused = team.agree(&refused)?;
        }
        for (number, reason) in refused {
            file.cells[number].skipped = Some(reason);
        }
        Ok(Some(Machine { lab, shared }))
    }

    /// A sweep that other ranks or hosts continue would compare two clusters.
    fn check_hosts(&self, file: &mut SweepFile) -> Result<(), SweepError> {
        let Some(team) = self.team.as_ref().filter(|team| team.rank() == 0) else { return Ok(()) };
        let now = team.host_facts();
        if file.hosts.is_empty() {
            file.hosts = now;
            return Ok(());
        }
        let machines = |hosts: &[HostFacts]| -> Vec<_> {
            let of = |host: &HostFacts| {
                (host.name.clone(), host.ranks.clone(), host.machine.cpu.clone(), host.machine.kernel.clone())
            };
            hosts.iter().map(of).collect()
        };
        if machines(&file.hosts) == machines(&now) {
            return Ok(());
        }
        let names = |hosts: &[HostFacts]| {
            let name = |host: &HostFacts| format!("{} ({} ranks)", host.name, host.ranks.len());
            hosts.iter().map(name).collect::<Vec<_>>().join(", ")
        };
        let problem = format!(
            "it was measured on {}, and now there are {}; start the same ranks on the same hosts",
            names(&file.hosts),
            names(&now)
        );
        Err(SweepError::NotResumable { path: self.path.to_owned(), problem })
    }

    /// A sweep that is resumed on another machine would compare two machines.
    fn check_host(&self, file: &mut SweepFile, lab: &Lab) -> Result<(), SweepError> {
        let is_other = self.team.as_ref().is_some_and(|team| team.rank() > 0);
        let Some(now) = lab.host().filter(|_| !is_other) else { return Ok(()) };
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

/// The cells of this process in the order of measurement. A share has each of its cells at random: no value of a list
/// is measured by one share, and so by one machine, alone.
fn own_order(file: &SweepFile) -> Vec<usize> {
    let order = order(file.seed, 0, file.cells.len());
    let is_own = |position: u64| file.shard.is_none_or(|shard| shard.has(position));
    (0..).zip(order).filter_map(|(position, number)| is_own(position).then_some(number)).collect()
}

/// Measures a cell on this process.
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
