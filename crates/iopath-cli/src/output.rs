//! Output: text or JSON on stdout, JSON in a file, errors on one line.

use crate::args::{JsonArgs, ShowArgs};
use crate::destination::{self, Destination, is_stdout};
use crate::failure::is_interruption;
use crate::progress::Bar;
use crate::stderr::{note, plain};
use anyhow::Context;
use clap::error::ErrorKind;
use iopath_bench::own_file::{replace_named, with_limit};
use iopath_bench::paths::PATHS;
use iopath_log::{escape_json, for_terminal};
use iopath_report::format::{Document, Format, View};
use iopath_report::result::Origin;
use iopath_report::terminal;
use std::error::Error;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::time::SystemTime;

/// The destination of results.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Json<'a> {
    args: &'a JsonArgs,
    started: SystemTime,
}

impl<'a> Json<'a> {
    /// Fails, before any measurement, if the results or the log cannot be written, or would replace a target, each
    /// other or a file of the user.
    pub(crate) fn new(args: &'a JsonArgs, targets: &[&Path], log: Option<&Path>) -> anyhow::Result<Self> {
        Self::beside(args, targets, log.map(|path| Destination::log(path, args.force)))
    }

    /// Checks what [`Json::new`] checks, and another file that the command writes.
    fn beside(args: &'a JsonArgs, targets: &[&Path], other: Option<Destination<'_>>) -> anyhow::Result<Self> {
        let wanted: Vec<Destination> = Destination::results(args).into_iter().chain(other).collect();
        destination::check(&wanted, targets)?;
        Ok(Self { args, started: SystemTime::now() })
    }

    /// Whether JSON replaces the text on stdout.
    pub(crate) fn is_alone(self) -> bool {
        self.args.json.as_deref().is_some_and(is_stdout)
    }

    /// Writes the text to stdout and the JSON, with its origin, to its file; or the JSON alone to stdout.
    pub(crate) fn show(self, json: impl FnOnce() -> String, text: &str) -> anyhow::Result<()> {
        let json = || escape_json(&Origin::of_process(self.started).stamp(&json()));
        if self.is_alone() {
            return print(&format!("{}\n", json().trim_end()));
        }
        // The file does not need stdout: a reader that has closed the pipe loses the text alone.
        let printed = print(&format!("{text}\n"));
        if let (Some(path), Some(results)) = (&self.args.json, Destination::results(self.args)) {
            replace_named(path, json().as_bytes()).with_context(|| results.cannot_write())?;
        }
        printed
    }
}

/// How a command shows its results.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output<'a> {
    json: Json<'a>,
    format: Option<&'static Format>,
    is_plain: bool,
    is_quiet: bool,
}

impl<'a> Output<'a> {
    /// Fails as [`Json::new`] does.
    pub(crate) fn new(args: &'a ShowArgs, targets: &[&Path], log: Option<&Path>) -> anyhow::Result<Self> {
        Ok(Self::of(args, Json::new(&args.json, targets, log)?))
    }

    /// The output of a command without colours and progress bars. Fails as [`Json::new`] does.
    pub(crate) fn plain(args: &'a JsonArgs, targets: &[&Path]) -> anyhow::Result<Self> {
        Ok(Self { json: Json::new(args, targets, None)?, format: None, is_plain: true, is_quiet: true })
    }

    /// The output of a command that writes a model file. Fails as [`Json::new`] does.
    pub(crate) fn with_model(args: &'a ShowArgs, target: &Path, model: &Path) -> anyhow::Result<Self> {
        let model = Destination::model(model, args.json.force);
        Ok(Self::of(args, Json::beside(&args.json, &[target], Some(model))?))
    }

    /// The output of a command that also writes lines of JSON to a file. Fails as [`Json::new`] does.
    pub(crate) fn with_lines(
        args: &'a ShowArgs,
        targets: &[&Path],
        lines: Option<&Path>,
    ) -> anyhow::Result<Self> {
        let lines = lines.map(|lines| Destination::lines(lines, args.json.force));
        Ok(Self::of(args, Json::beside(&args.json, targets, lines)?))
    }

    fn of(args: &ShowArgs, json: Json<'a>) -> Self {
        Self { json, format: None, is_plain: args.no_color, is_quiet: args.quiet }
    }

    /// The progress of the command on stderr.
    pub(crate) fn bar(&self) -> Bar {
        Bar::new(self.is_plain, self.is_quiet)
    }

    /// Whether stdout may have colours.
    pub(crate) fn has_fancy_stdout(&self) -> bool {
        !self.is_plain && terminal::is_fancy(&io::stdout())
    }

    /// Selects the format of stdout. Fails if `--json -` needs stdout for JSON.
    pub(crate) fn in_format(self, format: Option<&'static Format>) -> Result<Self, clap::Error> {
        let other = format.filter(|format| self.json.is_alone() && !format.is_json());
        if let Some(Format { name, .. }) = other {
            let message =
                format!("--json - and --format {name} both write to stdout; name a file for --json");
            return Err(clap::Error::raw(ErrorKind::ArgumentConflict, message));
        }
        Ok(Self { format, ..self })
    }

    /// Shows results on stdout in the selected format, and writes the JSON to its file.
    pub(crate) fn present(&self, document: &dyn Document) -> anyhow::Result<()> {
        self.present_as(document, || document.text(self.view()))
    }

    /// Shows results as [`Output::present`] does, with another text than that of the document.
    pub(crate) fn present_as(
        &self,
        document: &dyn Document,
        text: impl FnOnce() -> String,
    ) -> anyhow::Result<()> {
        let json = || document.json();
        match self.format.filter(|format| !format.is_text()) {
            Some(format) if format.is_json() => {
                let text = Origin::of_process(self.json.started).stamp(&document.json());
                self.json.show(json, escape_json(text.trim_end()).as_str())
            }
            Some(format) => {
                let text = (format.render)(document, self.view());
                // A program reads the exact values.
                let text = if io::stdout().is_terminal() { for_terminal(&text, false) } else { text.into() };
                self.json.show(json, text.trim_end())
            }
            None if self.json.is_alone() => self.json.show(json, ""),
            None => self.json.show(json, for_terminal(&text(), self.has_fancy_stdout()).trim_end()),
        }
    }

    /// The output device of a text on stdout.
    pub(crate) fn view(&self) -> View {
        View { width: Some(terminal::terminal_width()), is_fancy: self.has_fancy_stdout() }
    }

    /// Whether JSON replaces the text on stdout.
    pub(crate) fn is_alone(&self) -> bool {
        self.json.is_alone()
    }

    /// Whether stdout has the usual text.
    pub(crate) fn is_text(&self) -> bool {
        self.format.is_none() && !self.json.is_alone()
    }
}

/// Writes to stdout. Fails if stdout is full or closed.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    written.map_err(with_limit).context("cannot write to stdout")
}

/// Prints an error that is the consequence of a signal: the process ends by that signal, without a message of its own.
pub(crate) fn note_interruption(error: &anyhow::Error) {
    if is_interruption(error) {
        note(error);
    }
}

/// The error and its causes on one line, without repetition.
pub(crate) fn one_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain() {
        let text = cause.to_string();
        if !line.contains(&text) {
            line = if line.is_empty() { text } else { format!("{line}: {text}") };
        }
    }
    plain(&line)
}

/// The message for a negative value, which clap takes for an option.
pub(crate) fn negative_value(error: &clap::Error, arguments: &[String]) -> Option<String> {
    let is_negative = |text: &str| {
        text.strip_prefix('-').is_some_and(|rest| rest.starts_with(|char: char| char.is_ascii_digit()))
    };
    let pair = arguments.windows(2).find(|pair| pair[0].starts_with("--") && is_negative(&pair[1]))?;
    (error.kind() == ErrorKind::UnknownArgument).then(|| {
        let [option, value] = [&pair[0], &pair[1]].map(|text| plain(text));
        format!("invalid value '{value}' for {option}: no option has negative values; see --help")
    })
}

/// Joins the lines of an error of clap into one.
pub(crate) fn usage_line(error: &clap::Error) -> String {
    let line = joined(&error.to_string());
    let is_missing = error.kind() == ErrorKind::MissingRequiredArgument;
    if !is_missing || !line.contains("not provided: --path") {
        return line;
    }
    let paths: Vec<&str> = PATHS.iter().map(|path| path.name).collect();
    format!("{line}; paths: {}", paths.join(", "))
}

fn joined(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    // An option that does not exist is rarely meant as a file.
    let lines =
        lines.filter(|line| !line.starts_with("For more information") && !line.starts_with("tip: to pass"));
    let mut joined = String::new();
    for line in lines {
        let is_continued = joined.ends_with(':') || line.starts_with('[');
        if !joined.is_empty() {
            joined.push_str(if is_continued { " " } else { "; " });
        }
        joined.push_str(line);
    }
    format!("{}; see --help", joined.trim_start_matches("error: "))
}

/// Whether the reader of stdout has closed the pipe. That is not a failure.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let is_broken = |cause: &(dyn Error + 'static)| {
        cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    };
    error.chain().any(is_broken)
}
