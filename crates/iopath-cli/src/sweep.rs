//! `iopath sweep`: measures a matrix of workloads and settings, and shows tables and a heat map.

use crate::args::{PERFTEST, SweepArgs};
use crate::output::Json;
use crate::progress::Bar;
use crate::stderr::{note, plain};
use anyhow::bail;
use iopath_lab::format::View;
use iopath_lab::result::Origin;
use iopath_lab::sweep::{Sweep, SweepFile};
use iopath_lab::{LabError, SweepError, before_end, table};
use iopath_log::for_terminal;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::SystemTime;

/// The results file, for the message of an interruption.
static RESULTS: OnceLock<PathBuf> = OnceLock::new();

pub(crate) fn run(args: &SweepArgs) -> anyhow::Result<()> {
    let Some(path) = &args.resume else {
        let matrix = args.matrix()?;
        SweepFile::check_replaceable(&args.output).map_err(LabError::from)?;
        let arguments = std::env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned()).collect();
        let mut file = SweepFile::new(arguments, args.seed, matrix.axes, matrix.values);
        file.origin = Some(Origin::of_process(SystemTime::now()));
        return measure(args, &matrix.cells, file, &args.output);
    };
    let file = SweepFile::read(path).map_err(LabError::from)?;
    let args = SweepArgs::of(&file.arguments)?;
    if file.complete {
        return show(&file, &args, Json::new(&args.json, &[path], None)?);
    }
    let matrix = args.matrix()?;
    let values = file.cells.iter().map(|cell| &cell.values);
    if matrix.axes != file.axes || !matrix.values.iter().eq(values) {
        let problem = "its cells are not those of its arguments".to_owned();
        return Err(LabError::from(SweepError::NotResumable { path: path.clone(), problem }).into());
    }
    measure(&args, &matrix.cells, file, path)
}

fn measure(
    args: &SweepArgs,
    cells: &[Result<iopath_lab::sweep::Planned, String>],
    mut file: SweepFile,
    path: &Path,
) -> anyhow::Result<()> {
    let targets: Vec<&Path> = args.target.as_deref().into_iter().chain([path]).collect();
    let json = Json::new(&args.json, &targets, None)?;
    let _ = RESULTS.set(path.to_owned());
    before_end(say_resume);
    let mut bar = Bar::new(!args.no_color && table::is_fancy(&io::stderr()));
    let mut notes = Vec::new();
    let measured = Sweep { cells, path, names: crate::args::run_flag }.run(&mut file, &mut notes, &mut bar);
    bar.finish();
    notes.iter().for_each(note);
    if let Err(error) = measured {
        if file.counts() != [0, 0] {
            say_resume();
        }
        return Err(error.into());
    }
    show(&file, args, json)?;
    let first = file.cells.iter().find_map(|cell| cell.skipped.as_ref());
    match first {
        Some(reason) if file.counts()[0] == 0 => bail!("no cell could be measured: {}", plain(reason)),
        _ => Ok(()),
    }
}

fn show(file: &SweepFile, args: &SweepArgs, json: Json) -> anyhow::Result<()> {
    let view = View { width: table::terminal_width(), is_fancy: false };
    let text = match args.format.format {
        Some(format) if format.name == PERFTEST => file.perftest(),
        Some(format) => (format.render)(file, view),
        None => file.text(view.width),
    };
    // The copy has the origin of this command.
    let text = for_terminal(text.trim_end(), false);
    json.show(|| SweepFile { origin: None, ..file.clone() }.to_json(), &text)
}

/// Names the command that continues the sweep.
fn say_resume() {
    if let Some(path) = RESULTS.get() {
        note(format_args!(
            "the completed cells are kept; continue with: iopath sweep --resume {}",
            path.display()
        ));
    }
}
