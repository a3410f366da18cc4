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
mod keys;
mod members;
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

use iopath_bench::options::{Given, KbBase, Refused};

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

    /// The jobs of sections, in their order.
    fn of_sections(name: &str, sections: &[Section], lenient: bool) -> Result<Self, JobFileError> {
        let mut defaults: Vec<(&RawOption, KbBase)> = Vec::new();
        let mut file = Self { name: name.to_owned(), jobs: Vec::new(), warnings: Vec::new() };
        let mut warned = HashSet::new();
        let mut is_first_of_file = false;
        for section in sections {
            if section.begins_file {
                defaults.clear();
                is_first_of_file = true;
            }
            file.warnings.extend(repeated(section));
            // The unit applies to all values of the section, wherever it stands.
            let inherited = kb_base(KbBase::default(), defaults.iter().map(|(option, _)| *option));
            let base = kb_base(inherited, &section.options);
            let own = section.options.iter().map(|option| (option, base));
            if section.is_defaults {
                // The name of a job is that of its section.
                defaults.extend(own.filter(|(option, _)| option.key != "name"));
                continue;
            }
            let options = defaults.iter().copied().chain(own);
            let (mut job, ignored) = job(section, options, lenient)?;
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
        Ok(file)
    }

    /// Keeps the jobs of these names only; all, without a name.
    ///
    /// # Errors
    /// [`JobFileError::NoSection`]: no job has one of the names.
    pub fn select(&mut self, sections: &[String]) -> Result<(), JobFileError> {
        let names = || self.jobs.iter().map(|job| job.name.clone());
        if let Some(section) = sections.iter().find(|section| names().all(|name| name != **section)) {
            let (file, known) = (self.name.clone(), names().collect());
            return Err(JobFileError::NoSection { file, section: section.clone(), known });
        }
        self.jobs.retain(|job| sections.is_empty() || sections.contains(&job.name));
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

/// A job from the options of its section and the defaults, each with the base of its sizes, and the keys that were
/// ignored.
fn job<'a>(
    section: &Section,
    options: impl Iterator<Item = (&'a RawOption, KbBase)>,
    lenient: bool,
) -> Result<(Job, Vec<(At, Unsupported)>), JobFileError> {
    let mut job = Job::new(section.name.clone(), section.at.clone());
    let mut ignored = Vec::new();
    for (RawOption { at, key, value }, base) in options {
        let applied = apply(&mut job, key, &Given::in_job_file(value.as_deref(), base));
        let text = value.clone().unwrap_or_else(|| "1".to_owned());
        let name = first_name(key).unwrap_or_default();
        job.out_of_range.remove(name);
        let (key, value) = (key.clone(), value.clone().unwrap_or_default());
        let decides = keys::find(&key).and_then(|found| found.key()?.decides);
        let what = match applied {
            Ok(()) => {
                job.given.push([key, text]);
                continue;
            }
            Err(Rejected::Unknown) => Unsupported::Unknown { key },
            Err(Rejected::Key(reason)) => Unsupported::Key { key, reason, decides },
            Err(Rejected::Value(Refused::Value(reason))) => {
                Unsupported::Value { key, value, reason, decides }
            }
            Err(Rejected::Value(Refused::Expected(expected))) => {
                return Err(JobFileError::Value { at: at.clone(), key, value, expected });
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
    Ok((job, ignored))
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
fn apply(job: &mut Job, key: &str, given: &Given) -> Result<(), Rejected> {
    match keys::find(key) {
        Some(Found::Option(row)) => row.set(job, given).map_err(Rejected::Value),
        Some(Found::Unused(key)) => {
            keys::refusal(key, given).map_or(Ok(()), |reason| Err(Rejected::Key(reason)))
        }
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
