//! `iopath sweep`: measures a matrix of workloads and settings, and shows tables and a heat map.

use crate::args::{PERFTEST, SweepArgs};
use crate::output::{Json, note_interruption};
use crate::progress::Bar;
use crate::stderr::{note, plain};
use anyhow::{Context, bail};
use iopath_bench::options::flag_of;
use iopath_bench::{BenchError, Interruption, before_end};
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
    let Some(path) = &args.resume else {
        let matrix = args.matrix()?;
        sweep::check_replaceable(&args.output)?;
        let arguments = std::env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned()).collect();
        let mut file = SweepFile::new(arguments, args.seed, matrix.axes, matrix.values);
        file.origin = Some(Origin::of_process(SystemTime::now()));
        file.place =
            Some(sweep::current_place(args.target.as_deref()).context("cannot find the working directory")?);
        return measure(args, &matrix.cells, file, &args.output);
    };
    let file = sweep::read(path)?;
    let args = SweepArgs::of(&file.arguments)?;
    if file.complete {
        return show(&file, &args, Json::new(&args.json, &[path], None)?);
    }
    // The names in the arguments belong to the directory of the sweep, that of its file to the present one.
    let path = std::path::absolute(path).with_context(|| format!("cannot find {}", path.display()))?;
    let place = file.place.as_ref().ok_or_else(|| {
        "an earlier version began it, which did not record the directory of its target; begin a new sweep"
            .to_owned()
    });
    if let Err(problem) = place.and_then(|place| sweep::enter(place, args.target.as_deref())) {
        return Err(SweepError::NotResumable { path, problem }.into());
    }
    let matrix = args.matrix()?;
    let values = file.cells.iter().map(|cell| &cell.values);
    if matrix.axes != file.axes || !matrix.values.iter().eq(values) {
        let problem = "its cells are not those of its arguments".to_owned();
        return Err(SweepError::NotResumable { path, problem }.into());
    }
    measure(&args, &matrix.cells, file, &path)
}

fn measure(
    args: &SweepArgs,
    cells: &[Result<sweep::Planned, String>],
    mut file: SweepFile,
    path: &Path,
) -> anyhow::Result<()> {
    let targets: Vec<&Path> = args.target.as_deref().into_iter().chain([path]).collect();
    let json = Json::new(&args.json, &targets, None)?;
    let _ = RESULTS.set(path.to_owned());
    before_end(say_resume);
    // Dropped after the results are shown: then the signal ends the process, and the thread of signals calls
    // `say_resume`.
    let _interruption = Interruption::catch();
    let mut bar = Bar::new(args.no_color, args.quiet);
    let mut notes = Vec::new();
    let measured = Sweep { cells, path, names: flag_of }.run(&mut file, &mut notes, &mut bar);
    bar.finish();
    notes.iter().for_each(note);
    match measured {
        // The cells so far, of which the text says how many are missing.
        Err(SweepError::Bench(BenchError::Interrupted)) if file.counts() != [0, 0] => {
            return show(&file, args, json);
        }
        Err(error) => {
            let error = error.into();
            note_interruption(&error);
            if file.counts() != [0, 0] {
                say_resume();
            }
            return Err(error);
        }
        Ok(()) => IS_COMPLETE.store(true, Ordering::SeqCst),
    }
    show(&file, args, json)?;
    let first = file.cells.iter().find_map(|cell| cell.skipped.as_ref());
    match first {
        Some(reason) if file.counts()[0] == 0 => bail!("no cell could be measured: {}", plain(reason)),
        _ => Ok(()),
    }
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
