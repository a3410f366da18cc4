//! `iopath sweep`: measures a matrix of workloads and settings, and shows tables and a heat map. Also joins the results
//! of shares.

use crate::args::{JsonArgs, PERFTEST, SweepArgs};
use crate::failure::is_interruption;
use crate::output::{Json, note_interruption};
use crate::party::{Alone, Party};
use crate::progress::Bar;
use crate::shares::{of_shard, resolved};
use crate::stderr::{note, plain};
use anyhow::{Context, anyhow, bail};
use iopath_bench::options::flag_of;
use iopath_bench::{Interruption, before_end};
use iopath_lab::sweep::{self, Sweep, SweepError};
use iopath_log::for_terminal;
use iopath_report::format::{Document, View};
use iopath_report::result::Origin;
use iopath_report::sweep::SweepFile;
use iopath_report::terminal;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

/// The results file, for the message of an interruption.
static RESULTS: OnceLock<PathBuf> = OnceLock::new();

/// Whether no cell is missing.
static IS_COMPLETE: AtomicBool = AtomicBool::new(false);

pub(crate) fn run(args: &SweepArgs) -> anyhow::Result<()> {
    if args.merge_parts.is_empty() { run_with(args, &Alone) } else { merge(args) }
}

/// Measures together with other processes.
pub(crate) fn run_with(args: &SweepArgs, party: &dyn Party) -> anyhow::Result<()> {
    let Some(path) = &args.resume else {
        let arguments = std::env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned()).collect();
        let arguments = resolved(arguments, args.shard);
        let args = party.sweep(&arguments)?;
        let matrix = args.matrix()?;
        let output = of_shard(&args.output, args.shard);
        if party.speaks() {
            sweep::check_replaceable(&output)?;
        }
        let mut file = SweepFile::new(arguments, args.seed, matrix.axes, matrix.values);
        file.origin = Some(Origin::of_process(SystemTime::now()));
        file.shard = args.shard;
        file.place =
            Some(sweep::current_place(args.target.as_deref()).context("cannot find the working directory")?);
        return measure(&args, matrix.cells, file, &output, party);
    };
    let file = read(path, party)?;
    let args = party.sweep(&file.arguments)?;
    if file.complete {
        party.end(None);
        return if party.speaks() {
            show(&file, &args, Json::new(&of_json(&args), &[path], None)?)
        } else {
            Ok(())
        };
    }
    // The names in the arguments belong to the directory of the sweep, that of its file to the present one.
    let path = std::path::absolute(path).with_context(|| format!("cannot find {}", path.display()))?;
    let place = file.place.as_ref().ok_or_else(|| {
        "an earlier version began it, which did not record the directory of its target; begin a new sweep"
            .to_owned()
    });
    // The file has the identity of the target of rank 0: each host has numbers of its own.
    let target = args.target.as_deref();
    let entered = place.and_then(|place| {
        if party.speaks() { sweep::enter(place, target) } else { sweep::enter_directory(place) }
    });
    if let Err(problem) = entered {
        return Err(SweepError::NotResumable { path, problem }.into());
    }
    let matrix = args.matrix()?;
    let values = file.cells.iter().map(|cell| &cell.values);
    if matrix.axes != file.axes || !matrix.values.iter().eq(values) {
        let problem = "its cells are not those of its arguments".to_owned();
        return Err(SweepError::NotResumable { path, problem }.into());
    }
    measure(&args, matrix.cells, file, &path, party)
}

/// The file of a sweep to continue. Only rank 0 has it.
fn read(path: &Path, party: &dyn Party) -> anyhow::Result<SweepFile> {
    let Some(team) = party.team() else {
        let file = sweep::read(path)?;
        if file.hosts.is_empty() {
            return Ok(file);
        }
        let ranks: usize = file.hosts.iter().map(|host| host.ranks.len()).sum();
        let problem = format!("{ranks} ranks of MPI measured it; continue it with mpirun -n {ranks}");
        return Err(SweepError::NotResumable { path: path.to_owned(), problem }.into());
    };
    let mut bytes = Vec::new();
    if party.speaks() {
        let file = sweep::read(path)?;
        if file.hosts.is_empty() {
            let problem = "one process without MPI measured it; continue it without mpirun".to_owned();
            return Err(SweepError::NotResumable { path: path.to_owned(), problem }.into());
        }
        bytes = file.to_json().into_bytes();
    }
    let bytes = team.broadcast(bytes)?;
    SweepFile::from_json(&bytes).with_context(|| format!("cannot read the copy of {}", path.display()))
}

/// Joins the results of all shares.
fn merge(args: &SweepArgs) -> anyhow::Result<()> {
    sweep::check_replaceable(&args.output)?;
    let mut targets: Vec<&Path> = args.merge_parts.iter().map(PathBuf::as_path).collect();
    targets.push(&args.output);
    let json = Json::new(&args.json, &targets, None)?;
    let (file, notes) = sweep::merge(&args.merge_parts)?;
    notes.iter().for_each(note);
    sweep::write(&file, &args.output)?;
    show(&file, args, json)
}

fn measure(
    args: &SweepArgs,
    mut cells: Vec<Result<sweep::Planned, String>>,
    mut file: SweepFile,
    path: &Path,
    party: &dyn Party,
) -> anyhow::Result<()> {
    let targets: Vec<&Path> = args.target.as_deref().into_iter().chain([path]).collect();
    let own_json = of_json(args);
    let json = Json::new(&own_json, &targets, None)?;
    for planned in cells.iter_mut().flatten() {
        planned.workload.share = party.share();
    }
    if party.speaks() {
        let _ = RESULTS.set(path.to_owned());
    }
    before_end(say_resume);
    // Dropped after the results are shown: then the signal ends the process, and the thread of signals calls
    // `say_resume`.
    let _interruption = Interruption::catch();
    let mut bar = Bar::new(args.no_color, args.quiet);
    let mut notes = Vec::new();
    let sweep = Sweep { cells: &cells, path, names: flag_of, team: party.team() };
    let measured = sweep.run(&mut file, &mut notes, &mut bar).map_err(anyhow::Error::from);
    bar.finish();
    let failure = party.end(measured.as_ref().err());
    if !party.speaks() {
        // Rank 0 has the results, and names the rank that has failed.
        return failure.map_or(Ok(()), |failure| Err(anyhow!(failure)));
    }
    notes.iter().for_each(note);
    match (measured, failure) {
        // The cells so far, of which the text says how many are missing.
        (Err(error), _) if is_interruption(&error) && file.counts() != [0, 0] => {
            return show(&file, args, json);
        }
        (Err(error), failure) => {
            note_interruption(&error);
            if file.counts() != [0, 0] {
                say_resume();
            }
            return Err(failure.map_or(error, |failure| anyhow!(failure)));
        }
        (Ok(()), Some(failure)) => return Err(anyhow!(failure)),
        (Ok(()), None) => IS_COMPLETE.store(true, Ordering::SeqCst),
    }
    show(&file, args, json)?;
    let first = file.cells.iter().find_map(|cell| cell.skipped.as_ref());
    match first {
        Some(reason) if file.counts()[0] == 0 => bail!("no cell could be measured: {}", plain(reason)),
        _ => Ok(()),
    }
}

/// The destination of the results of this share.
fn of_json(args: &SweepArgs) -> JsonArgs {
    let json = args.json.json.as_deref().map(|file| of_shard(file, args.shard));
    JsonArgs { json, force: args.json.force }
}

fn show(file: &SweepFile, args: &SweepArgs, json: Json) -> anyhow::Result<()> {
    let view = View::plain(Some(terminal::terminal_width()));
    let text = match args.format.format {
        Some(format) if format.name == PERFTEST => file.perftest(),
        Some(format) => (format.render)(file, view),
        None => file.text(view),
    };
    // The copy has the origin of this command.
    let text = for_terminal(text.trim_end(), false);
    json.show(|| SweepFile { origin: None, ..file.clone() }.to_json(), &text)
}

/// Names the command that continues the sweep, if cells are missing.
fn say_resume() {
    if let Some(path) = RESULTS.get().filter(|_| !IS_COMPLETE.load(Ordering::SeqCst)) {
        note(format_args!(
            "the completed cells are kept; continue with: iopath sweep --resume {}",
            path.display()
        ));
    }
}
