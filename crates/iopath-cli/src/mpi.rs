//! The ranks of an MPI program (feature `mpi`): `mpirun -n 64 iopath run …` and `iopath sweep …`. Messages, barriers,
//! gathers and the clock are those of MPI (`mpi/ranks.rs`, `mpi/collector.rs`); the protocol of the ranks is in
//! `iopath-lab` (`hosts.rs`).

mod collector;
mod ranks;

use crate::args::{Cli, Command, HostArgs, RunArgs, SweepArgs};
use crate::failure::{self, FAILURE, USAGE};
use crate::output::one_line;
use crate::party::Party;
use crate::run::{run as run_alone, run_with};
use crate::stderr::{self, note};
use crate::sweep::{run as sweep_alone, run_with as sweep_with};
use anyhow::bail;
use clap::Parser;
use iopath_bench::host::this_machine;
use iopath_bench::own_file::{Kind, directory_of, remove_leftovers, remove_leftovers_of_others};
use iopath_bench::share::Share;
use iopath_bench::{BenchError, Interruption};
use iopath_fio::{Environment, System};
use iopath_lab::hosts::{Communicator as _, Hello, Names, Outcome, Plan, Team};
use iopath_report::result::Report;
use mpi::Threading;
use mpi::traits::Communicator as _;
use ranks::Ranks;
use std::cell::{Cell, RefCell};
use std::io;
use std::mem;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;
use std::thread;
use std::time::Duration;

/// The variables of launchers that name the rank of a process: Open MPI, `PMIx` (`srun --mpi=pmix`), PMI of MPICH.
const RANKS: [&str; 3] = ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"];

/// How long a rank stays after the warning of its launcher. Open MPI sends SIGTERM and SIGKILL a second later each, but
/// does not wait for that second if a process ends meanwhile: a rank that ends at once takes it from the others.
const LINGER: Duration = Duration::from_secs(3);

/// Whether a launcher of MPI has started this process.
pub(crate) fn is_launched() -> bool {
    RANKS.iter().any(|name| std::env::var_os(name).is_some())
}

/// Measures a workload as one of several ranks.
pub(crate) fn run(args: &RunArgs) -> anyhow::Result<ExitCode> {
    if args.preset.as_deref() == Some("list") {
        return run_alone(args).map(|()| ExitCode::SUCCESS);
    }
    let job_file = match &args.jobfile {
        // A launcher passes its standard input to rank 0 only.
        Some(file) if file.as_os_str() == "-" => {
            bail!("a job file on the standard input reaches rank 0 only; name a file that all hosts have")
        }
        Some(file) => {
            std::fs::read_to_string(file).unwrap_or_else(|error| format!("# cannot be read: {error}"))
        }
        None => String::new(),
    };
    let hello = hello(job_file, &args.options.targets()?);
    let measure = |party: &Ranked| run_with(&party.own_run(args)?, party);
    with_ranks(&hello, args.hosts.plan(), || run_alone(args), measure)
}

/// Measures the cells of a sweep as one of several ranks.
pub(crate) fn sweep(args: &SweepArgs) -> anyhow::Result<ExitCode> {
    let targets: Vec<PathBuf> = args.target.iter().cloned().collect();
    let hello = hello(String::new(), &targets);
    with_ranks(&hello, args.hosts.plan(), || sweep_alone(args), |party| sweep_with(args, party))
}

/// Measures with the other ranks. A single rank measures as a process without MPI: `alone`.
fn with_ranks(
    hello: &Hello,
    plan: Plan,
    alone: impl FnOnce() -> anyhow::Result<()>,
    measure: impl FnOnce(&Ranked) -> anyhow::Result<()>,
) -> anyhow::Result<ExitCode> {
    // Two threads of this process call MPI, one after the other.
    let Some((universe, threading)) = mpi::initialize_with_threading(Threading::Serialized) else {
        bail!("MPI is initialized already");
    };
    if universe.world().size() == 1 {
        return alone().map(|()| ExitCode::SUCCESS);
    }
    if threading < Threading::Serialized {
        bail!(
            "this MPI does not support calls of several threads (MPI_THREAD_SERIALIZED); use another build of it"
        );
    }
    let ranks = Ranks::of(&universe);
    let rank = ranks.rank();
    let abort = ranks.to_abort();
    let team = match Team::meet(Box::new(ranks), hello, plan) {
        Ok(team) => Rc::new(team),
        Err(message) => {
            message.iter().for_each(note);
            // All ranks know it: MPI ends as usual.
            return Ok(ExitCode::from(USAGE));
        }
    };
    Interruption::request_on_continue();
    // Until this rank has left MPI: a request is not forgotten when the measurement ends.
    let _interruption = Interruption::catch();
    let party = Ranked {
        share: Cell::new(None),
        team,
        has_ended: Cell::new(false),
        is_complete: Cell::new(true),
        was_interrupted: Cell::new(false),
        directories: RefCell::default(),
        failed: RefCell::default(),
    };
    let measured = measure(&party);
    if let Err(error) = &measured
        && !party.has_ended.get()
    {
        // The others may wait for this rank, which has failed before its first measurement.
        party.finish(None, Some(error));
    }
    let has_failed = measured.is_err() || party.failed.borrow().is_some();
    if let Err(error) = measured
        && (rank == 0 || !party.is_complete.get())
        && !(party.was_interrupted.get() && failure::is_interruption(&error))
    {
        note(message(&error));
    }
    // After a signal, the launcher ends the other ranks.
    if !party.was_interrupted.get() {
        if !party.is_complete.get() {
            abort.abort(i32::from(FAILURE));
        }
        // The launcher ends all ranks as soon as one of them ends without MPI: not before rank 0 has shown the results.
        party.team.close();
        // A rank may have died since: rank 0, with the results half written.
        party.note_interruption();
    }
    if Interruption::was_warned() {
        thread::sleep(LINGER);
    }
    if has_failed || party.was_interrupted.get() {
        // Barriers that ranks have given up are still open, and the end of MPI would wait for them.
        mem::forget(universe);
        return Ok(ExitCode::from(FAILURE));
    }
    Ok(ExitCode::SUCCESS)
}

fn message(error: &anyhow::Error) -> String {
    match failure::bench(error) {
        Some(BenchError::Workload(refused)) => {
            stderr::plain(&refused.message(iopath_bench::options::flag_of))
        }
        _ => one_line(error),
    }
}

/// The facts of this rank.
fn hello(job_file: String, targets: &[PathBuf]) -> Hello {
    let is_model = |target: &PathBuf| target.to_str().is_some_and(|name| name.starts_with("model:"));
    Hello {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        arguments: std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect(),
        job_file,
        is_virtual: targets.iter().any(is_model),
        host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        machine: this_machine(None),
    }
}

impl HostArgs {
    fn plan(&self) -> Plan {
        Plan { stop: self.stop, shared: self.shared, reordered: self.reorder }
    }
}

/// One rank of a measurement.
struct Ranked {
    team: Rc<Team>,
    share: Cell<Option<Share>>,
    /// Whether all ranks know how the measurement of this one has ended.
    has_ended: Cell<bool>,
    /// Whether all ranks came to the end.
    is_complete: Cell<bool>,
    /// Whether a signal ended the measurement.
    was_interrupted: Cell<bool>,
    /// The directories of scratch files, and that of the results.
    directories: RefCell<Vec<(PathBuf, Kind)>>,
    /// The failure that ended the measurement.
    failed: RefCell<Option<String>>,
}

impl Ranked {
    /// The arguments with the names of this rank. Only rank 0 has output.
    fn own_run(&self, args: &RunArgs) -> anyhow::Result<RunArgs> {
        let log = args.options.log()?.map(|log| log.to_string_lossy().into_owned());
        if let Some(log) = log.filter(|log| !Names::is_own(log)) {
            bail!(
                "--log {log} is one file, and each rank writes its own; use {{rank}} in the name, such as log-{{rank}}"
            );
        }
        self.enter(&args.options.targets()?)?;
        let words: Vec<String> =
            std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
        let Command::Run(mut own) = Cli::try_parse_from(self.filled(&words))?.command else {
            bail!("the arguments are not those of run")
        };
        self.keep_directories(&own.options.targets()?, own.show.json.json.as_deref());
        // The terminal of a rank is that of the launcher, which may write to a file.
        own.show.no_color = true;
        if self.team.names().local_rank > 0 {
            // One address or file for each host.
            own.metrics.metrics = None;
        }
        if self.team.rank() > 0 {
            own.show.json.json = None;
            own.show.quiet = true;
        }
        Ok(*own)
    }

    /// Checks the targets of all ranks, before the names of this one are filled in, and takes its share of them.
    fn enter(&self, targets: &[PathBuf]) -> anyhow::Result<()> {
        let is_own = |target: &PathBuf| {
            ["{rank}", "{local_rank}", "{host}"].iter().any(|name| target.to_string_lossy().contains(name))
        };
        if let Some(shared) = self.team.plan().shared {
            let name = shared.name();
            if let Some(target) = targets.iter().find(|target| is_own(target)) {
                bail!(
                    "--shared={name} needs one target of all ranks, and {} differs by rank; remove the placeholder, or --shared",
                    target.display()
                );
            }
            if let Some(target) = targets.iter().find(|target| target.is_dir()) {
                bail!(
                    "--shared={name} needs one target of all ranks, and in directory {} each rank has a scratch file of its own; name a file, a device or an export",
                    target.display()
                );
            }
        }
        self.share.set(Some(self.team.share().map_err(anyhow::Error::msg)?));
        Ok(())
    }

    /// Words with the names of this rank.
    fn filled(&self, words: &[String]) -> Vec<String> {
        let names = self.team.names();
        words.iter().map(|word| names.fill(word)).collect()
    }

    fn keep_directories(&self, targets: &[PathBuf], results: Option<&Path>) {
        let targets = targets.iter().filter(|target| target.is_dir());
        let targets = targets.map(|target| (target.clone(), Kind::Scratch));
        // Elsewhere, the process of rank 0 is unknown, and its new file looks like that of a dead process.
        let results = results.filter(|_| self.team.is_on_host_of_rank_0());
        let results = results.map(|file| (directory_of(file).to_owned(), Kind::New));
        self.directories.replace(targets.chain(results).collect());
    }

    /// After a signal, removes the files of ranks of this host that were killed.
    fn note_interruption(&self) {
        if Interruption::is_requested() {
            self.was_interrupted.set(true);
            for (directory, kind) in &*self.directories.borrow() {
                remove_leftovers(directory, *kind);
            }
            remove_leftovers_of_others();
        }
    }

    /// Ends the measurement on all ranks.
    fn finish(&self, own: Option<Report>, error: Option<&anyhow::Error>) -> Outcome {
        let text = error.map(message).or_else(|| own.as_ref()?.failure.clone());
        let outcome = self.team.finish(own, text);
        self.has_ended.set(true);
        self.is_complete.set(outcome.is_complete);
        self.note_interruption();
        self.failed.replace(outcome.failure.clone().or_else(|| error.map(message)));
        outcome
    }
}

impl Party for Ranked {
    fn team(&self) -> Option<Rc<Team>> {
        Some(self.team.clone())
    }

    fn share(&self) -> Option<Share> {
        self.share.get()
    }

    fn environment(&self) -> Box<dyn Environment> {
        Box::new(Filled(self.team.names()))
    }

    fn speaks(&self) -> bool {
        self.team.rank() == 0
    }

    fn join(&self, report: anyhow::Result<Report>) -> anyhow::Result<Option<Report>> {
        let (own, error) = match report {
            Ok(report) => (Some(report), None),
            Err(error) => (None, Some(error)),
        };
        let Outcome { report, failure, .. } = self.finish(own, error.as_ref());
        match (report, failure, error) {
            (Some(report), ..) => Ok(Some(report)),
            (None, Some(failure), _) => Err(anyhow::anyhow!(failure)),
            // The rank that has failed, or rank 0, states the failure.
            (None, None, Some(_)) if self.team.rank() > 0 => Ok(None),
            (None, None, Some(error)) => Err(error),
            (None, None, None) if self.team.rank() == 0 => Err(BenchError::Interrupted.into()),
            (None, None, None) => Ok(None),
        }
    }

    fn sweep(&self, arguments: &[String]) -> anyhow::Result<SweepArgs> {
        let args = SweepArgs::of(arguments)?;
        self.team.set_plan(args.hosts.plan());
        if let Some(set) = args.set.first() {
            bail!(
                "--set {set} changes settings of a device, and the ranks of a host would change them for each other; set \
                 them with iopath tune on each host"
            );
        }
        let targets: Vec<PathBuf> = args.target.iter().cloned().collect();
        self.enter(&targets)?;
        let mut own = SweepArgs::of(&self.filled(arguments))?;
        let target = own.target.clone().unwrap_or_else(|| Path::new(".").to_owned());
        self.keep_directories(&[target], Some(&own.output));
        own.no_color = true;
        if self.team.rank() > 0 {
            own.json.json = None;
            own.quiet = true;
        }
        Ok(own)
    }

    fn end(&self, error: Option<&anyhow::Error>) -> Option<String> {
        self.finish(None, error).failure
    }
}

/// The files of this machine, with the names of a rank in place of the placeholders.
struct Filled(Names);

impl Environment for Filled {
    fn read(&self, file: &str, from: &str) -> io::Result<(String, Vec<u8>)> {
        let (name, bytes) = System.read(file, from)?;
        Ok(match String::from_utf8(bytes) {
            Ok(text) => (name, self.0.fill(&text).into_bytes()),
            Err(other) => (name, other.into_bytes()),
        })
    }

    fn variable(&self, name: &str) -> Option<String> {
        System.variable(name)
    }

    fn keyword(&self, name: &str) -> Option<u64> {
        System.keyword(name)
    }
}
