//! The command line of fio: its options become the sections of a job file, and the rest says what to show. Does not
//! know the keys: `keys.rs` has them. Does not run the jobs.
//!
//! Options before the first `--name` are defaults of all jobs, also of those of the first job file. Each `--name`
//! begins a job. An option has one or two dashes, and its value follows `=` or a space.

use std::fmt::Write;
use std::path::PathBuf;

use thiserror::Error;

use super::environment::Environment;
use super::error::{At, JobFileError};
use super::keys::{self, keys};
use super::syntax::{RawOption, Section};
use super::{JobFile, sections_of_file, select_sections};

/// A command line that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CommandLineError {
    /// No key and no option of the program has this name.
    #[error(
        "argument {number}: unknown option --{name}; `iopath fio --cmdhelp` lists all keys, --help the other options"
    )]
    Unknown {
        /// The argument, from 1.
        number: u32,
        /// The name.
        name: String,
    },
    /// The value of an option is missing.
    #[error("argument {number}: --{name} needs a value: --{name}=VALUE")]
    NoValue {
        /// The argument, from 1.
        number: u32,
        /// The name.
        name: String,
    },
    /// The value of an option is not valid.
    #[error("argument {number}: `--{name}={value}` is not valid; use {expected}")]
    Value {
        /// The argument, from 1.
        number: u32,
        /// The name.
        name: &'static str,
        /// The value.
        value: String,
        /// The values it accepts.
        expected: &'static str,
    },
    /// An option of fio that iopath does not have.
    #[error("argument {number}: --{name} is not supported: {reason}; remove it")]
    Unsupported {
        /// The argument, from 1.
        number: u32,
        /// The name.
        name: &'static str,
        /// The reason.
        reason: &'static str,
    },
    /// Neither a job nor a job file.
    #[error("no job; add --name=NAME with the options of a job, or the name of a job file")]
    NoJob,
}

/// What a command line asks for.
#[derive(Debug)]
pub enum Request {
    /// To measure jobs, or to show them.
    Jobs(Box<CommandLine>),
    /// The help of the program.
    Help,
    /// The version.
    Version,
    /// The help of a key; of all keys without a name.
    Keys(Option<String>),
    /// The engines.
    Engines,
}

/// A format of results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputFormat {
    /// The text of fio.
    Normal,
    /// One line for each job, with semicolons.
    Terse,
    /// JSON.
    Json,
    /// JSON with the classes of latencies.
    JsonPlus,
}

/// Jobs with the way to show them.
#[expect(clippy::struct_excessive_bools, reason = "options of a command line, independent of each other")]
#[derive(Debug)]
pub struct CommandLine {
    sections: Vec<Section>,
    files: Vec<String>,
    /// The jobs to measure; empty for all.
    pub selected: Vec<String>,
    /// The formats of the results; empty for the text of iopath.
    pub formats: Vec<OutputFormat>,
    /// The version of the terse format.
    pub terse_version: u8,
    /// The file of the results; stdout without one.
    pub output: Option<PathBuf>,
    /// Whether progress is shown; none for a terminal only.
    pub has_progress: Option<bool>,
    /// Whether jobs that write are refused.
    pub is_readonly: bool,
    /// Whether the jobs are only parsed.
    pub parses_only: bool,
    /// Whether the jobs are only shown, as a command line.
    pub shows_command: bool,
    /// Whether keys that iopath does not support are ignored.
    pub is_lenient: bool,
    /// Whether a file or device may be written that iopath did not create.
    pub may_overwrite: bool,
    /// Whether a warning about the jobs is an error.
    pub warnings_are_fatal: bool,
    /// Options without an effect here, in words.
    pub notes: Vec<String>,
}

/// The value of an option of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Takes {
    Nothing,
    /// After `=` or a space.
    Value,
    /// After `=`, or nothing.
    Optional,
}

/// The effect of an option of the program, besides keys.
type Set = fn(&mut CommandLine, &str) -> Result<(), Rejected>;

/// The reason why an option of the program is not applied.
enum Rejected {
    Expected(&'static str),
    Unsupported(&'static str),
}

/// An option of the program.
struct ProgramOption {
    name: &'static str,
    /// Its letter after one dash.
    short: Option<&'static str>,
    takes: Takes,
    set: Set,
}

const fn option(name: &'static str, takes: Takes, set: Set) -> ProgramOption {
    ProgramOption { name, short: None, takes, set }
}

impl ProgramOption {
    const fn short(self, letter: &'static str) -> Self {
        Self { short: Some(letter), ..self }
    }
}

/// An option that changes nothing here.
macro_rules! note {
    ($name:literal, $takes:ident, $reason:literal) => {
        option($name, Takes::$takes, |line, _| {
            line.notes.push(concat!("--", $name, " has no effect: ", $reason).to_owned());
            Ok(())
        })
    };
}

/// An option that iopath does not have.
macro_rules! unsupported {
    ($name:literal, $takes:ident, $reason:literal) => {
        option($name, Takes::$takes, |_, _| Err(Rejected::Unsupported($reason)))
    };
}

/// Switches a field on.
macro_rules! switch {
    ($name:literal, $field:ident) => {
        option($name, Takes::Nothing, |line, _| {
            line.$field = true;
            Ok(())
        })
    };
}

/// The options of the program. `--help`, `--version`, `--cmdhelp` and `--enghelp` are requests of their own.
static PROGRAM: &[ProgramOption] = &[
    option("output", Takes::Value, |line, value| {
        line.output = Some(value.into());
        Ok(())
    })
    .short("o"),
    option("output-format", Takes::Value, |line, value| {
        let formats: Vec<OutputFormat> = value.split(',').map(format).collect::<Result<_, _>>()?;
        line.formats = documents(&formats);
        Ok(())
    })
    .short("F"),
    option("minimal", Takes::Nothing, |line, _| {
        line.formats = vec![OutputFormat::Terse];
        Ok(())
    })
    .short("m"),
    option("append-terse", Takes::Optional, |line, _| {
        if line.formats.is_empty() {
            line.formats.push(OutputFormat::Normal);
        }
        line.formats.push(OutputFormat::Terse);
        line.formats = documents(&line.formats);
        Ok(())
    })
    .short("f"),
    option("terse-version", Takes::Value, |line, value| {
        let version = value.parse().ok().filter(|version| (2..=5).contains(version));
        line.terse_version = version.ok_or(Rejected::Expected("2, 3, 4 or 5"))?;
        Ok(())
    })
    .short("V"),
    option("section", Takes::Value, |line, value| {
        line.selected.push(value.to_owned());
        Ok(())
    })
    .short("x"),
    option("eta", Takes::Value, |line, value| match value {
        "auto" => {
            line.has_progress = None;
            Ok(())
        }
        "always" | "never" => {
            line.has_progress = Some(value == "always");
            Ok(())
        }
        _ => Err(Rejected::Expected("always, auto or never")),
    })
    .short("e"),
    option("eta-newline", Takes::Value, |_, _| Ok(())).short("E"),
    option("eta-interval", Takes::Value, |_, _| Ok(())).short("O"),
    switch!("readonly", is_readonly).short("r"),
    switch!("parse-only", parses_only).short("P"),
    switch!("showcmd", shows_command).short("s"),
    switch!("warnings-fatal", warnings_are_fatal).short("w"),
    switch!("lenient", is_lenient),
    switch!("allow-overwrite", may_overwrite),
    option("idle-prof", Takes::Value, |line, value| match value {
        "system" | "percpu" => {
            line.notes
                .push("--idle-prof has no effect: the results have the CPU time of each job".to_owned());
            Ok(())
        }
        "calibrate" => Err(Rejected::Unsupported("nothing is calibrated")),
        _ => Err(Rejected::Expected("system or percpu")),
    })
    .short("I"),
    note!("status-interval", Value, "results are shown at the end").short("L"),
    note!("debug", Value, "messages of the source of fio").short("d"),
    note!("alloc-size", Value, "memory grows as needed"),
    note!("max-jobs", Value, "the number of threads has no limit of its own").short("j"),
    unsupported!("bandwidth-log", Nothing, "use write_bw_log of each job"),
    unsupported!("latency-log", Value, "use write_lat_log of each job"),
    unsupported!("merge-blktrace-only", Nothing, "no replay of I/O logs"),
    unsupported!("inflate-log", Value, "no compressed logs"),
    unsupported!("server", Optional, "no server of fio; start iopath on the other machine"),
    unsupported!("daemonize", Value, "no server of fio"),
    unsupported!("client", Optional, "no client of fio; start iopath on the other machine"),
    unsupported!("remote-config", Value, "no client of fio"),
    unsupported!("trigger-file", Value, "no triggers"),
    unsupported!("trigger-timeout", Value, "no triggers"),
    unsupported!("trigger", Value, "no triggers"),
    unsupported!("trigger-remote", Value, "no triggers"),
    unsupported!("aux-path", Value, "files lie in the directory that their keys name"),
    unsupported!("cpuclock-test", Nothing, "the clock is that of the system"),
    unsupported!("crctest", Optional, "`iopath experiment` measures no checksums"),
    unsupported!("memcpytest", Optional, "`iopath experiment` measures no copies"),
];

fn format(name: &str) -> Result<OutputFormat, Rejected> {
    match name.trim() {
        "normal" => Ok(OutputFormat::Normal),
        "terse" | "minimal" => Ok(OutputFormat::Terse),
        "json" => Ok(OutputFormat::Json),
        "json+" => Ok(OutputFormat::JsonPlus),
        _ => Err(Rejected::Expected("normal, terse, json or json+, or several with commas")),
    }
}

/// Each format once, as in fio: JSON with the classes of latencies is also JSON without them.
fn documents(formats: &[OutputFormat]) -> Vec<OutputFormat> {
    let has_classes = formats.contains(&OutputFormat::JsonPlus);
    let mut documents = Vec::new();
    for format in formats {
        let format =
            if *format == OutputFormat::Json && has_classes { OutputFormat::JsonPlus } else { *format };
        if !documents.contains(&format) {
            documents.push(format);
        }
    }
    documents
}

/// The options that are requests of their own, with their letters.
const REQUESTS: [[&str; 2]; 4] = [["help", "h"], ["version", "v"], ["cmdhelp", "c"], ["enghelp", "i"]];

/// The name of an option, and the value in the same argument. As in fio, a unique part of a name stands for it, and a
/// letter after one dash may have its value behind it.
fn split_option(text: &str, is_letter: bool) -> (String, Option<&str>) {
    let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
    // Some versions of fio take a dash for the underscore of a key.
    let dashed = name.replace('-', "_");
    let is_program =
        |name: &str| PROGRAM.iter().any(|option| option.name == name || option.short == Some(name));
    if is_program(name) || REQUESTS.iter().flatten().any(|known| *known == name) || keys::find(name).is_some()
    {
        return (name.to_owned(), value);
    }
    if keys::find(&dashed).is_some() {
        return (dashed, value);
    }
    let names = PROGRAM.iter().map(|option| option.name).chain(REQUESTS.map(|[name, _]| name));
    let mut longer = names.chain(keys().flat_map(|key| key.names.iter().copied()));
    let mut longer = longer.by_ref().filter(|known| known.starts_with(name) || known.starts_with(&dashed));
    if let (Some(known), None) = (longer.next(), longer.next()) {
        return (known.to_owned(), value);
    }
    let letter = text.split_at_checked(1).filter(|_| is_letter);
    let lettered = letter.and_then(|(letter, value)| {
        let option = PROGRAM.iter().find(|option| option.short == Some(letter))?;
        (option.takes == Takes::Value).then_some((option.name.to_owned(), Some(value)))
    });
    lettered.unwrap_or((name.to_owned(), value))
}

impl CommandLine {
    /// Reads the arguments after the name of the program.
    ///
    /// # Errors
    /// [`CommandLineError`]: an option is unknown, has no value or a wrong one, or there is no job.
    pub fn parse(arguments: &[String]) -> Result<Request, CommandLineError> {
        let mut line = Self {
            sections: Vec::new(),
            files: Vec::new(),
            selected: Vec::new(),
            formats: Vec::new(),
            terse_version: 3,
            output: None,
            has_progress: None,
            is_readonly: false,
            parses_only: false,
            shows_command: false,
            is_lenient: false,
            may_overwrite: false,
            warnings_are_fatal: false,
            notes: Vec::new(),
        };
        let mut rest = arguments.iter().zip(1..);
        let mut has_options = true;
        while let Some((argument, number)) = rest.next() {
            let name = argument.strip_prefix("--").or(argument.strip_prefix('-'));
            let Some(text) = name.filter(|_| has_options && argument != "-") else {
                line.files.push(argument.clone());
                continue;
            };
            if text.is_empty() {
                has_options = false;
                continue;
            }
            let (name, value) = split_option(text, !argument.starts_with("--"));
            let next = || rest.next().map(|(value, _)| value.as_str());
            match &*name {
                "help" | "h" => return Ok(Request::Help),
                "version" | "v" => return Ok(Request::Version),
                "cmdhelp" | "c" => {
                    return Ok(Request::Keys(value.filter(|name| *name != "all").map(str::to_owned)));
                }
                "enghelp" | "i" => return Ok(Request::Engines),
                name => line.set(number, name, value, next)?,
            }
        }
        if line.files.is_empty() && line.sections.iter().all(|section| section.is_defaults) {
            return Err(CommandLineError::NoJob);
        }
        Ok(Request::Jobs(Box::new(line)))
    }

    /// Applies an option; `next` takes the next argument as its value.
    fn set<'a>(
        &mut self,
        number: u32,
        name: &str,
        value: Option<&'a str>,
        next: impl FnOnce() -> Option<&'a str>,
    ) -> Result<(), CommandLineError> {
        let program = PROGRAM.iter().find(|option| option.name == name || option.short == Some(name));
        let is_switch = || Some(keys::find(name)?.key()?.is_switch);
        let takes = match program {
            Some(option) => option.takes,
            None if is_switch().ok_or_else(|| unknown(number, name))? => Takes::Optional,
            None => Takes::Value,
        };
        let value = match (takes, value) {
            (Takes::Value, None) => next(),
            (_, value) => value,
        };
        if takes == Takes::Value && value.is_none_or(str::is_empty) {
            return Err(CommandLineError::NoValue { number, name: name.to_owned() });
        }
        let Some(ProgramOption { name, set, .. }) = program else {
            self.add_key(number, name, value);
            return Ok(());
        };
        let value = value.unwrap_or_default();
        set(self, value).map_err(|rejected| match rejected {
            Rejected::Expected(expected) => {
                CommandLineError::Value { number, name, value: value.to_owned(), expected }
            }
            Rejected::Unsupported(reason) => CommandLineError::Unsupported { number, name, reason },
        })
    }

    /// Adds a key to the present section. A name begins a section.
    fn add_key(&mut self, number: u32, key: &str, value: Option<&str>) {
        let at = At { file: "".into(), line: number };
        if key == "name" || self.sections.is_empty() {
            let name = if key == "name" { value.unwrap_or_default() } else { Section::DEFAULTS };
            self.sections.push(Section {
                at: at.clone(),
                name: name.to_owned(),
                options: Vec::new(),
                begins_file: false,
                is_defaults: key != "name" || name.starts_with(Section::DEFAULTS),
            });
        }
        if let Some(section) = self.sections.last_mut().filter(|_| key != "name") {
            section.options.push(RawOption { at, key: key.to_owned(), value: value.map(str::to_owned) });
        }
    }

    /// The jobs of the options and of the files. The options before the first name are defaults of the first file, too;
    /// the jobs of each further file wait for those before.
    ///
    /// # Errors
    /// [`JobFileError`] with the argument or the line.
    pub fn jobs(&self, environment: &dyn Environment) -> Result<JobFile, JobFileError> {
        const NAME: &str = "the command line";
        let mut sections = self.all_sections(environment)?;
        select_sections(&mut sections, &self.selected, NAME)?;
        let file = JobFile::of_sections(NAME, &sections, self.is_lenient)?;
        match file.jobs.iter().find(|job| self.is_readonly && job.workload.rw.writes()) {
            Some(job) => {
                Err(job.problem("it writes or trims, and --readonly refuses that; remove one of them"))
            }
            None => Ok(file),
        }
    }

    fn all_sections(&self, environment: &dyn Environment) -> Result<Vec<Section>, JobFileError> {
        let mut sections = self.sections.clone();
        for (number, file) in self.files.iter().enumerate() {
            let read = environment.read(file, "");
            let (name, bytes) = read.map_err(|source| JobFileError::Read { file: file.clone(), source })?;
            let mut of_file = sections_of_file(&name, &bytes, environment)?;
            if let Some(first) = of_file.first_mut() {
                first.begins_file = number > 0;
            }
            sections.extend(of_file);
        }
        Ok(sections)
    }

    /// The jobs as a command line of fio.
    ///
    /// # Errors
    /// [`JobFileError`]: a file cannot be read.
    pub fn command(&self, environment: &dyn Environment) -> Result<String, JobFileError> {
        let mut command = "fio".to_owned();
        for section in self.all_sections(environment)? {
            if !section.is_defaults {
                let _ = write!(command, " --name={}", quoted(&section.name));
            }
            for RawOption { key, value, .. } in &section.options {
                let _ = write!(command, " --{key}");
                if let Some(value) = value {
                    let _ = write!(command, "={}", quoted(value));
                }
            }
        }
        Ok(command)
    }
}

fn unknown(number: u32, name: &str) -> CommandLineError {
    CommandLineError::Unknown { number, name: name.to_owned() }
}

/// A word for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "-_=+.,:/%@".contains(char);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests;
