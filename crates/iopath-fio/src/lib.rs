//! Job files and command lines of fio: parses them and runs them. This file makes jobs of sections; `syntax.rs` has the
//! lines of a file, `command_line.rs` the arguments, `keys.rs` the keys of both. docs/jobfiles.md lists the keys.
//! `run.rs` runs the jobs.

mod command_line;
mod controls;
#[cfg(test)]
#[path = "../../iopath-bench/tests/support/docs_table.rs"]
mod docs_table;
mod environment;
mod error;
mod group;
mod job;
mod kept;
mod keys;
mod members;
mod names;
mod place;
mod places;
mod range;
mod results;
mod run;
mod schedulers;
mod several;
mod stated;
mod syntax;
mod verified;

use std::collections::{HashMap, HashSet};

pub use command_line::{CommandLine, CommandLineError, OutputFormat, Request};
pub use environment::{Environment, System};
pub use error::{At, JobFileError, Unsupported};
pub use job::Job;
use keys::Found;
pub use keys::{Key, keys};
pub use run::RunSettings;
pub use stated::{Stated, StatedRate};
use syntax::{RawOption, Section};

use iopath_bench::options::{Given, KbBase, Refused, Support};

/// The jobs of a file, in its order.
#[derive(Debug, Clone)]
pub struct JobFile {
    /// The name of the file.
    pub name: String,
    /// The jobs, one at least.
    pub jobs: Vec<Job>,
    /// Keys that a section gives twice, and, if lenient, keys that were ignored. Each with its line.
    pub warnings: Vec<String>,
}

impl JobFile {
    /// Reads and parses a file. If `lenient`, keys and values without an equivalent are ignored with a warning.
    ///
    /// # Errors
    /// [`JobFileError`] with the line.
    pub fn read(name: &str, environment: &dyn Environment, lenient: bool) -> Result<Self, JobFileError> {
        let read = environment.read(name, "");
        let (_, bytes) = read.map_err(|source| JobFileError::Read { file: name.to_owned(), source })?;
        Self::parse(name, &bytes, environment, lenient)
    }

    /// Parses the bytes of a file.
    ///
    /// # Errors
    /// [`JobFileError`] with the line.
    pub fn parse(
        name: &str,
        bytes: &[u8],
        environment: &dyn Environment,
        lenient: bool,
    ) -> Result<Self, JobFileError> {
        Self::of_sections(name, &sections_of_file(name, bytes, environment)?, lenient)
    }

    /// The jobs of sections, in their order. The keys of defaults are parsed once, for the next job.
    fn of_sections(name: &str, sections: &[Section], lenient: bool) -> Result<Self, JobFileError> {
        let mut file = Self { name: name.to_owned(), jobs: Vec::new(), warnings: Vec::new() };
        let mut warned = HashSet::new();
        let mut defaults = Defaults::default();
        let mut is_first_of_file = false;
        for section in sections {
            if section.begins_file {
                defaults = Defaults::default();
                is_first_of_file = true;
            }
            file.warnings.extend(repeated(section));
            // The unit applies to all values of the section, wherever it stands.
            let base = kb_base(defaults.kb_base, &section.options);
            if section.is_defaults {
                defaults.add(section, base);
                continue;
            }
            let mut ignored = defaults.parse(lenient)?;
            let mut job = defaults.job.clone();
            job.begin(section.name.clone(), section.at.clone());
            let own = section.options.iter().map(|option| (option, base));
            ignored.extend(set_options(&mut job, own, lenient)?);
            job.stonewall |= std::mem::take(&mut is_first_of_file);
            file.jobs.push(job);
            for (at, what) in ignored {
                // A key of [global] is ignored in each job, and reported once.
                if warned.insert(at.clone()) {
                    file.warnings.push(format!("{at}: ignored: {what}"));
                }
            }
        }
        if file.jobs.is_empty() {
            return Err(JobFileError::NoJob { file: name.to_owned() });
        }
        for (number, job) in file.jobs.iter().enumerate() {
            let is_known = |name: &String| file.jobs[..number].iter().any(|other| other.name == *name);
            if let Some(name) = job.wait_for.as_ref().filter(|name| !is_known(name)) {
                return Err(
                    job.problem(format!("wait_for={name} names no job before it; use the name of one"))
                );
            }
        }
        Ok(file)
    }

    /// Keeps the jobs of these names only; all, without a name.
    ///
    /// # Errors
    /// [`JobFileError::NoSection`]: no job has one of the names.
    pub fn select(&mut self, names: &[String]) -> Result<(), JobFileError> {
        check_known(&self.name, names, self.jobs.iter().map(|job| &job.name))?;
        // A group that begins with a job that is left out begins with the next one.
        let mut begins = false;
        let jobs = std::mem::take(&mut self.jobs).into_iter().filter_map(|mut job| {
            begins |= job.stonewall;
            (names.is_empty() || names.contains(&job.name)).then(|| {
                job.stonewall = std::mem::take(&mut begins);
                job
            })
        });
        self.jobs = jobs.collect();
        Ok(())
    }

    /// The jobs that run at the same time: a group ends before the next one starts.
    pub fn groups(&self) -> Vec<&[Job]> {
        let begins = |job: &Job| job.stonewall || job.wait_for.is_some();
        let mut groups = Vec::new();
        let mut first = 0;
        for number in 1..=self.jobs.len() {
            if self.jobs.get(number).is_none_or(begins) {
                groups.push(&self.jobs[first..number]);
                first = number;
            }
        }
        groups
    }
}

/// The sections of a job file.
fn sections_of_file(
    name: &str,
    bytes: &[u8],
    environment: &dyn Environment,
) -> Result<Vec<Section>, JobFileError> {
    if bytes.contains(&0) {
        return Err(JobFileError::Binary { file: name.to_owned() });
    }
    syntax::sections(name, bytes, environment)
}

/// A warning for each key that a section gives again, also by another of its names. The keys of fio replace the value;
/// `filename` adds to it.
fn repeated(section: &Section) -> Vec<String> {
    let mut first: HashMap<&str, &At> = HashMap::new();
    let mut warnings = Vec::new();
    for RawOption { at, key, value } in &section.options {
        let name = first_name(key).unwrap_or(key.as_str());
        let Some(before) = first.insert(name, at) else { continue };
        if name == "filename" {
            continue;
        }
        let value = value.as_deref().map_or_else(String::new, |value| format!("={value}"));
        warnings.push(format!(
            "{at}: `{key}{value}` replaces the value at {before}; remove one of the two lines"
        ));
    }
    warnings
}

/// The first name of a known key.
fn first_name(key: &str) -> Option<&'static str> {
    keys::find(key).and_then(|found| found.name())
}

/// Fails if one of these names is not among those of the file.
fn check_known<'a>(
    file: &str,
    names: &[String],
    known: impl Iterator<Item = &'a String> + Clone,
) -> Result<(), JobFileError> {
    let Some(section) = names.iter().find(|name| known.clone().all(|known| known != *name)) else {
        return Ok(());
    };
    let (file, section) = (file.to_owned(), section.clone());
    Err(JobFileError::NoSection { file, section, known: known.cloned().collect() })
}

/// Keeps the sections of jobs with these names, and those of defaults; all, without a name.
fn select_sections(sections: &mut Vec<Section>, names: &[String], file: &str) -> Result<(), JobFileError> {
    let jobs = sections.iter().filter(|section| !section.is_defaults);
    check_known(file, names, jobs.map(|section| &section.name))?;
    let mut begins_file = false;
    sections.retain_mut(|section| {
        begins_file |= section.begins_file;
        let is_kept = names.is_empty() || section.is_defaults || names.contains(&section.name);
        if is_kept {
            section.begins_file = std::mem::take(&mut begins_file);
        }
        is_kept
    });
    Ok(())
}

/// The defaults of a file so far.
struct Defaults<'a> {
    /// A job with the values that are parsed.
    job: Job,
    /// The options that are not parsed yet: without a job after them, they do not count.
    rest: Vec<(&'a RawOption, KbBase)>,
    kb_base: KbBase,
}

impl Default for Defaults<'_> {
    fn default() -> Self {
        let job = Job::new(String::new(), At { file: "".into(), line: 0 });
        Self { job, rest: Vec::new(), kb_base: KbBase::default() }
    }
}

impl<'a> Defaults<'a> {
    fn add(&mut self, section: &'a Section, base: KbBase) {
        self.kb_base = base;
        // The name of a job is that of its section.
        let options = section.options.iter().filter(|option| option.key != "name");
        self.rest.extend(options.map(|option| (option, base)));
    }

    fn parse(&mut self, lenient: bool) -> Result<Vec<(At, Unsupported)>, JobFileError> {
        let ignored = set_options(&mut self.job, self.rest.drain(..), lenient)?;
        self.job.inherit();
        Ok(ignored)
    }
}

/// Sets options of a job, each with the base of its sizes. Returns the keys that were ignored.
fn set_options<'a>(
    job: &mut Job,
    options: impl Iterator<Item = (&'a RawOption, KbBase)>,
    lenient: bool,
) -> Result<Vec<(At, Unsupported)>, JobFileError> {
    let mut ignored = Vec::new();
    for (RawOption { at, key, value }, base) in options {
        let found = keys::find(key);
        let applied = apply(job, found.as_ref(), &Given::in_job_file(value.as_deref(), base));
        let text = value.clone().unwrap_or_else(|| "1".to_owned());
        let row = found.and_then(|found| found.key());
        let name = row.map_or("", |row| row.names[0]);
        job.out_of_range.remove(name);
        let (key, value) = (key.clone(), value.clone().unwrap_or_default());
        let decides = row.and_then(|row| row.decides);
        let what = match applied {
            Ok(()) => {
                job.given.push([name.to_owned(), text]);
                continue;
            }
            Err(Rejected::Unknown) => Unsupported::Unknown { key },
            Err(Rejected::Key(reason)) => Unsupported::Key { key, reason, decides },
            Err(Rejected::Value(Refused::Value(reason))) => {
                Unsupported::Value { key, value, reason, decides }
            }
            Err(Rejected::Value(Refused::Expected(expected))) => {
                return Err(JobFileError::Value {
                    at: at.clone(),
                    key,
                    value,
                    expected: expected.to_owned(),
                });
            }
            Err(Rejected::Value(Refused::Invalid(values))) => {
                return Err(JobFileError::Value { at: at.clone(), key, value, expected: values.to_string() });
            }
            Err(Rejected::Value(Refused::Malformed(problem))) => {
                return Err(JobFileError::Syntax { at: at.clone(), problem });
            }
            Err(Rejected::Value(Refused::Workload(error))) => {
                job.out_of_range.insert(name, error);
                continue;
            }
        };
        // Without such a key, the job would measure something else.
        if !lenient || decides.is_some() {
            return Err(JobFileError::Unsupported { at: at.clone(), what });
        }
        ignored.push((at.clone(), what));
    }
    Ok(ignored)
}

/// The reason why a key is not applied.
enum Rejected {
    /// No such key.
    Unknown,
    /// The key has no option, for this reason.
    Key(&'static str),
    /// Its option does not accept the value.
    Value(Refused),
}

/// Sets the option of a key in a job.
fn apply(job: &mut Job, found: Option<&Found>, given: &Given) -> Result<(), Rejected> {
    match found {
        Some(Found::Option(row)) => row.set(job, given).map_err(Rejected::Value),
        Some(Found::Unused(key)) if key.is_neutral(given) => Ok(()),
        Some(Found::Unused(key)) if key.support == Support::No => Err(Rejected::Key(key.mapping)),
        Some(Found::Unused(key)) if !given.is_among(key.values) => {
            Err(Rejected::Value(Refused::Invalid(key.values)))
        }
        Some(Found::Unused(_)) => Ok(()),
        None => Err(Rejected::Unknown),
    }
}

/// The base of the sizes of a section with these options, whose defaults have the base `inherited`.
fn kb_base<'a>(inherited: KbBase, options: impl IntoIterator<Item = &'a RawOption>) -> KbBase {
    let last = options.into_iter().filter(|option| option.key == "kb_base").last();
    last.map_or(inherited, |option| base_of(option.value.as_deref()))
}

/// The base of a value of `kb_base`.
fn base_of(value: Option<&str>) -> KbBase {
    if value == Some("1000") { KbBase::Decimal } else { KbBase::Binary }
}

#[cfg(test)]
mod tests;
