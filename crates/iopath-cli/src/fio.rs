//! `iopath fio`, and a program of the name `fio`: the command line of fio. `iopath_fio::CommandLine` reads it; this
//! file shows the results in the formats of fio, or as text of iopath.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::error::ErrorKind;
use iopath_bench::Interruption;
use iopath_bench::field::Field;
use iopath_bench::options::{ENGINES, key_of};
use iopath_bench::own_file::replace_named_marked;
use iopath_bench::{Repetitions, Workload, model_file};
use iopath_fio::{CommandLine, JobFile, OutputFormat, Request, RunSettings, System, keys};
use iopath_log::for_terminal;
use iopath_report::format::{Document, View, fio};
use iopath_report::result::{Report, VerifyResult};
use iopath_report::terminal::{terminal_width, wrap};

use crate::destination::{self, Destination};
use crate::output::{self, note_interruption, print};
use crate::progress::Bar;
use crate::stderr::note;

/// As fio: each failure has one code, also that of wrong arguments.
const FAILURE: u8 = 1;

/// The version of fio whose keys and formats this command has, as programs that call fio expect it.
const VERSION: &str = "fio-3.33";

const HELP: &str = "\
iopath fio [OPTIONS] [--name=NAME KEYS…]… [JOBFILE…]

The command line of fio. Options before the first --name are defaults of all jobs. `-` is the standard input.

  --cmdhelp[=KEY]       list all keys, or show one
  --enghelp             list the engines
  --section=NAME        run this job of the job files only; may be repeated
  --readonly            refuse jobs that write, and create no file
  --parse-only          check the jobs, and run nothing
  --showcmd             show the jobs as a command line
  --output=FILE         write the results to FILE
  --output-format=F,…   normal, terse, json, json+; default: the text of iopath
  --minimal             terse; --terse-version=2|3|4|5, --append-terse
  --eta=WHEN            never hides the progress
  --version             show the version
  --lenient             ignore keys that iopath does not support, with a warning for each
  --allow-overwrite     allow writing to a file or device that iopath did not create. Destroys its content

A file that does not exist is created, and stays. An existing file or device that iopath did not create is only read.
";

/// The arguments of the program, if it was called by the name `fio`.
pub(crate) fn of_program_name() -> Option<Vec<OsString>> {
    let mut arguments = std::env::args_os();
    let program = arguments.next()?;
    (Path::new(&program).file_name() == Some(OsStr::new("fio"))).then(|| arguments.collect())
}

/// Runs a command line of fio.
pub(crate) fn run(arguments: &[OsString]) -> ExitCode {
    match run_request(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if output::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let refused = crate::failure::bench(&error);
            note(match refused {
                Some(iopath_bench::BenchError::Workload(refused)) => refused.message(name_of),
                _ => output::one_line(&error),
            });
            ExitCode::from(FAILURE)
        }
    }
}

/// The name of a field here.
fn name_of(field: Field) -> Option<&'static str> {
    if field == Field::OVERWRITE { Some("--allow-overwrite") } else { key_of(field) }
}

fn run_request(arguments: &[OsString]) -> anyhow::Result<()> {
    let text = |argument: &OsString| {
        argument.clone().into_string().map_err(|argument| {
            let message = format!("the argument {} is not UTF-8", Path::new(&argument).display());
            clap::Error::raw(ErrorKind::InvalidUtf8, message)
        })
    };
    let arguments = arguments.iter().map(text).collect::<Result<Vec<_>, _>>()?;
    match CommandLine::parse(&arguments)? {
        Request::Help => print(HELP),
        Request::Version => print(&format!("{VERSION}\n")),
        Request::Keys(key) => print(&keys_text(key.as_deref())),
        Request::Engines => print(&engines_text()),
        Request::Jobs(line) => run_jobs(&line),
    }
}

/// Whether the results are JSON alone, which then also has the warnings: programs take lines on stderr for errors.
fn is_json(line: &CommandLine) -> bool {
    let is_json = |format: &OutputFormat| matches!(format, OutputFormat::Json | OutputFormat::JsonPlus);
    !line.formats.is_empty() && line.formats.iter().all(is_json)
}

fn run_jobs(line: &CommandLine) -> anyhow::Result<()> {
    if line.shows_command {
        return print(&format!("{}\n", line.command(&System)?));
    }
    let jobs = line.jobs(&System)?;
    let notes: Vec<String> = line.notes.iter().chain(&jobs.warnings).cloned().collect();
    if !is_json(line) {
        notes.iter().for_each(note);
    }
    anyhow::ensure!(
        !line.warnings_are_fatal || jobs.warnings.is_empty(),
        "--warnings-fatal: the jobs have warnings"
    );
    if line.parses_only {
        return Ok(());
    }
    let settings = settings(line);
    check_output(line, &jobs, &settings)?;
    // Dropped after the results are written: then the signal ends the process.
    let _interruption = Interruption::catch();
    let has_progress = line.has_progress.unwrap_or_else(|| std::io::stderr().is_terminal());
    let mut bar = Bar::new(false, !has_progress);
    let report = jobs.run(&settings, &mut bar);
    bar.finish();
    let mut report = report.map_err(anyhow::Error::from).inspect_err(note_interruption)?;
    if is_json(line) {
        let warnings = match report.runs.first_mut() {
            Some(first) => &mut first.warnings,
            None => &mut report.warnings,
        };
        warnings.splice(0..0, notes);
    }
    show(line, &report)
}

fn settings(line: &CommandLine) -> RunSettings {
    let base = Workload {
        overwrite: line.may_overwrite,
        repetitions: Repetitions::constant(1),
        ..Workload::default()
    };
    RunSettings { keeps_files: true, is_readonly: line.is_readonly, base, ..RunSettings::default() }
}

/// Fails, before any measurement, if the results cannot be written, or would replace a target or a file of the user.
fn check_output(line: &CommandLine, jobs: &JobFile, settings: &RunSettings) -> anyhow::Result<()> {
    let Some(output) = &line.output else { return Ok(()) };
    let named: Vec<PathBuf> = settings.named_files(jobs);
    let targets: Vec<&Path> = named.iter().map(|file| model_file(file).unwrap_or(file)).collect();
    destination::check(&[Destination::of_fio(output, line.may_overwrite)], &targets)
}

/// Shows the results, in each format that is asked for.
fn show(line: &CommandLine, report: &Report) -> anyhow::Result<()> {
    if !is_json(line) {
        report.warnings.iter().for_each(note);
    }
    for run in report.runs.iter().filter(|_| !is_json(line)) {
        for warning in &run.warnings {
            match &report.runs[..] {
                [_] => note(warning),
                _ => note(format_args!("{}: {warning}", run.name())),
            }
        }
    }
    let shown = if line.formats.is_empty() && report.runs.is_empty() {
        Ok(())
    } else {
        write(line, &text(line, report))
    };
    // A failure of the run counts more than one of stdout.
    if let Some(failure) = &report.failure {
        anyhow::bail!("{failure}; the results have the complete repetitions");
    }
    let verified = report.runs.iter().filter_map(|run| run.verify.as_ref());
    match verified.map(VerifyResult::faults).sum() {
        0 => shown,
        faults => anyhow::bail!("verify found {faults} faults"),
    }
}

fn text(line: &CommandLine, report: &Report) -> String {
    if line.formats.is_empty() {
        let is_fancy = line.output.is_none() && iopath_report::terminal::is_fancy(&std::io::stdout());
        let width = line.output.is_none().then(terminal_width);
        return report.text(View { width, is_fancy }).trim_end().to_owned() + "\n";
    }
    let mut text = String::new();
    for format in &line.formats {
        text.push_str(&match format {
            OutputFormat::Normal => fio::normal(report),
            OutputFormat::Terse => fio::terse(report, line.terse_version),
            OutputFormat::Json => fio::json(report, fio::Bins::No),
            OutputFormat::JsonPlus => fio::json(report, fio::Bins::Yes),
        });
    }
    text
}

fn write(line: &CommandLine, text: &str) -> anyhow::Result<()> {
    let Some(output) = &line.output else { return print(&for_terminal(text, line.formats.is_empty())) };
    let destination = Destination::of_fio(output, line.may_overwrite);
    // Another program can have written the file since the check before the run. The results remain.
    destination.check_before_write().inspect_err(|_| drop(print(text)))?;
    let written = replace_named_marked(output, text.as_bytes());
    written.with_context(|| destination.cannot_write())
}

/// The keys with their equivalents here.
fn keys_text(name: Option<&str>) -> String {
    let width = usize::from(terminal_width());
    let mut text = String::new();
    let mut all: Vec<_> = keys().collect();
    all.sort_by_key(|key| key.names[0]);
    for key in all.iter().filter(|key| name.is_none_or(|name| key.names.contains(&name))) {
        let line = format!("{}: {}", key.support.name(), key.mapping);
        text.push_str(&wrap(&line, &format!("{:<32}", key.names.join(", ")), &" ".repeat(32), width));
    }
    if text.is_empty() {
        let _ = writeln!(text, "no key {}; --cmdhelp lists all keys", name.unwrap_or_default());
    }
    text
}

/// The engines with their paths.
fn engines_text() -> String {
    let mut text =
        "Engines of fio, with the path of iopath that runs them (direct=1; direct=0):\n".to_owned();
    for (name, engine) in ENGINES {
        let [direct, buffered] =
            [true, false].map(|is_direct| engine.path(is_direct).map_or("none", |row| row.name));
        let paths = if direct == buffered { direct.to_owned() } else { format!("{direct}; {buffered}") };
        let _ = writeln!(text, "  {name:<12} {paths}");
    }
    text + "A path of iopath is an engine, too: `iopath help run` lists them.\n"
}
