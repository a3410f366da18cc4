//! The ranks of an MPI program (feature `mpi`): `mpirun -n 64 iopath run …`. Messages, barriers, gathers and the clock
//! are those of MPI; the protocol of the ranks is in `iopath-lab` (`hosts.rs`).

use crate::args::{Cli, Command, RunArgs};
use crate::failure::{self, FAILURE, USAGE};
use crate::output::one_line;
use crate::party::Party;
use crate::run::{run as run_alone, run_with};
use crate::stderr::{self, note};
use anyhow::bail;
use clap::Parser;
use iopath_bench::host::this_machine;
use iopath_bench::own_file::{Kind, remove_leftovers};
use iopath_bench::share::Share;
use iopath_bench::{BenchError, Interruption, Peers};
use iopath_fio::{Environment, System};
use iopath_lab::hosts::{Communicator, Hello, Lane, Names, Outcome, Plan, Tag, Team};
use iopath_report::result::Report;
use mpi::Threading;
use mpi::datatype::PartitionMut;
use mpi::environment::Universe;
use mpi::point_to_point::MatchedReceiveVec as _;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{
    Communicator as _, CommunicatorCollectives as _, Destination as _, Root as _, Source as _,
};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::mem;
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::thread;
use std::time::Duration;

/// The variables of launchers that name the rank of a process: Open MPI, `PMIx` (`srun --mpi=pmix`), PMI of MPICH.
const RANKS: [&str; 3] = ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"];

/// The time between two looks at a barrier.
const POLL: Duration = Duration::from_micros(200);

/// The most bytes that all ranks together gather at once: MPI counts them with 31 bits.
const PIECES_BYTES: usize = 1 << 30;

/// Whether a launcher of MPI has started this process.
pub(crate) fn is_launched() -> bool {
    RANKS.iter().any(|name| std::env::var_os(name).is_some())
}

/// Measures as one of several ranks. A single rank measures as a process without MPI.
pub(crate) fn run(args: &RunArgs) -> anyhow::Result<ExitCode> {
    if args.preset.as_deref() == Some("list") {
        return run_alone(args).map(|()| ExitCode::SUCCESS);
    }
    // Other threads of this process make no calls of MPI.
    let Some((universe, _)) = mpi::initialize_with_threading(Threading::Funneled) else {
        bail!("MPI is initialized already");
    };
    let ranks = Ranks::of(&universe);
    let (rank, size) = (ranks.rank(), ranks.size());
    if size == 1 {
        return run_alone(args).map(|()| ExitCode::SUCCESS);
    }
    let abort = ranks.end.duplicate();
    let plan = Plan { stop: args.hosts.stop, shared: args.hosts.shared, reordered: args.hosts.reorder };
    let team = match Team::meet(Box::new(ranks), &hello(args)?, plan) {
        Ok(team) => Rc::new(team),
        Err(message) => {
            message.iter().for_each(note);
            // All ranks know it: MPI ends as usual.
            return Ok(ExitCode::from(USAGE));
        }
    };
    Interruption::request_on_continue();
    let party = Ranked {
        share: Cell::new(None),
        team,
        is_complete: Cell::new(true),
        was_interrupted: Cell::new(false),
        directories: RefCell::default(),
        failed: RefCell::default(),
    };
    let measured = party.own_arguments(args).and_then(|own| run_with(&own, &party));
    let has_failed = measured.is_err() || party.failed.borrow().is_some();
    if let Err(error) = measured
        && (rank == 0 || !party.is_complete.get())
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
fn hello(args: &RunArgs) -> anyhow::Result<Hello> {
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
    let targets = args.options.targets()?;
    let is_model = |target: &PathBuf| target.to_str().is_some_and(|name| name.starts_with("model:"));
    Ok(Hello {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        arguments: std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect(),
        job_file,
        is_virtual: targets.iter().any(is_model),
        host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        machine: this_machine(None),
    })
}

/// One rank of a measurement.
struct Ranked {
    team: Rc<Team>,
    share: Cell<Option<Share>>,
    /// Whether all ranks came to the end.
    is_complete: Cell<bool>,
    /// Whether a signal ended the measurement.
    was_interrupted: Cell<bool>,
    /// The directories of scratch files.
    directories: RefCell<Vec<PathBuf>>,
    /// The failure that ended the measurement.
    failed: RefCell<Option<String>>,
}

impl Ranked {
    /// The arguments with the names of this rank. Only rank 0 has output.
    fn own_arguments(&self, args: &RunArgs) -> anyhow::Result<RunArgs> {
        let log = args.options.log()?.map(|log| log.to_string_lossy().into_owned());
        if let Some(log) = log.filter(|log| !Names::is_own(log)) {
            bail!(
                "--log {log} is one file, and each rank writes its own; use {{rank}} in the name, such as log-{{rank}}"
            );
        }
        let is_own = |target: &PathBuf| {
            ["{rank}", "{local_rank}", "{host}"].iter().any(|name| target.to_string_lossy().contains(name))
        };
        let targets = args.options.targets()?;
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
        let names = self.team.names();
        let words: Vec<String> =
            std::env::args_os().map(|word| names.fill(&word.to_string_lossy())).collect();
        let Command::Run(mut own) = Cli::try_parse_from(words)?.command else {
            bail!("the arguments are not those of run")
        };
        let targets = own.options.targets()?;
        self.directories.replace(targets.into_iter().filter(|target| target.is_dir()).collect());
        // The terminal of a rank is that of the launcher, which may write to a file.
        own.show.no_color = true;
        if names.local_rank > 0 {
            // One address or file for each host.
            own.metrics = None;
        }
        if self.team.rank() > 0 {
            own.show.json.json = None;
            own.show.quiet = true;
        }
        Ok(*own)
    }
}

impl Party for Ranked {
    fn peers(&self) -> Option<Rc<dyn Peers>> {
        let peers: Rc<dyn Peers> = self.team.clone();
        Some(peers)
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
        let text = error.as_ref().map(message).or_else(|| own.as_ref()?.failure.clone());
        let Outcome { report, failure, is_complete } = self.team.finish(own, text);
        self.is_complete.set(is_complete);
        if Interruption::is_requested() {
            self.was_interrupted.set(true);
            // Of a rank that was killed, if it was on this host.
            self.directories.borrow().iter().for_each(|directory| remove_leftovers(directory, Kind::Scratch));
        }
        self.failed.replace(failure.clone().or_else(|| error.as_ref().map(message)));
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

/// The communicator of all ranks, once for each lane.
struct Ranks {
    work: SimpleCommunicator,
    end: SimpleCommunicator,
}

impl Ranks {
    fn of(universe: &Universe) -> Self {
        let world = universe.world();
        Self { work: world.duplicate(), end: world.duplicate() }
    }

    fn lane(&self, lane: Lane) -> &SimpleCommunicator {
        match lane {
            Lane::Work => &self.work,
            Lane::End => &self.end,
        }
    }
}

impl fmt::Debug for Ranks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} of {}", self.rank(), self.size())
    }
}

impl Communicator for Ranks {
    fn rank(&self) -> u32 {
        self.end.rank() as u32
    }

    fn size(&self) -> u32 {
        self.end.size() as u32
    }

    fn seconds(&self) -> f64 {
        mpi::time()
    }

    fn barrier(&self, lane: Lane, give_up: &mut dyn FnMut() -> bool) -> bool {
        let mut request = self.lane(lane).immediate_barrier();
        loop {
            match request.test() {
                Ok(_) => return true,
                Err(open) => request = open,
            }
            if give_up() {
                // Its drop is a panic. MPI keeps it, and the program ends without it.
                mem::forget(request);
                return false;
            }
            thread::sleep(POLL);
        }
    }

    fn start_together(&self, lane: Lane) {
        self.lane(lane).barrier();
    }

    fn gather(&self, lane: Lane, bytes: &[u8]) -> Vec<Vec<u8>> {
        let (ranks, size) = (self.lane(lane), self.size() as usize);
        let mut lengths = vec![0u64; size];
        ranks.all_gather_into(&(bytes.len() as u64), &mut lengths[..]);
        let piece_max = PIECES_BYTES / size;
        let longest = lengths.iter().max().map_or(0, |length| *length as usize);
        let piece = |length: usize, start: usize| length.saturating_sub(start).min(piece_max);
        let root = ranks.process_at_rank(0);
        let is_root = ranks.rank() == 0;
        let mut all = vec![Vec::new(); if is_root { size } else { 0 }];
        for start in (0..longest).step_by(piece_max) {
            let from = start.min(bytes.len());
            let own = &bytes[from..from + piece(bytes.len(), start)];
            if !is_root {
                root.gather_varcount_into(own);
                continue;
            }
            let counts: Vec<i32> = lengths
                .iter()
                .map(|length| i32::try_from(piece(*length as usize, start)).unwrap_or(i32::MAX))
                .collect();
            let starts: Vec<i32> =
                counts.iter().scan(0, |next, count| Some(mem::replace(next, *next + count))).collect();
            let mut pieces = vec![0u8; counts.iter().map(|count| *count as usize).sum()];
            root.gather_varcount_into_root(
                own,
                &mut PartitionMut::new(&mut pieces[..], &counts[..], &starts[..]),
            );
            for ((one, count), start) in all.iter_mut().zip(&counts).zip(&starts) {
                one.extend_from_slice(&pieces[*start as usize..(start + count) as usize]);
            }
        }
        all
    }

    fn broadcast(&self, lane: Lane, mut bytes: Vec<u8>) -> Vec<u8> {
        let root = self.lane(lane).process_at_rank(0);
        let mut length = bytes.len() as u64;
        root.broadcast_into(&mut length);
        bytes.resize(length as usize, 0);
        root.broadcast_into(&mut bytes[..]);
        bytes
    }

    fn send(&self, to: u32, tag: Tag, bytes: &[u8]) {
        self.end.process_at_rank(to.cast_signed()).send_with_tag(bytes, tag as i32);
    }

    fn poll(&self, tag: Tag) -> Option<(u32, Vec<u8>)> {
        let message = self.end.any_process().immediate_matched_probe_with_tag(tag as i32)?;
        let (bytes, status) = message.matched_receive_vec();
        Some((status.source_rank() as u32, bytes))
    }

    fn receive(&self, from: u32, tag: Tag) -> Vec<u8> {
        self.end.process_at_rank(from.cast_signed()).receive_vec_with_tag(tag as i32).0
    }
}
