//! Job files of fio: parses them and runs them. This file has the parser of a whole file; `syntax.rs` has its
//! lines, `keys.rs` its keys. docs/jobfiles.md lists the keys. `run.rs` runs the jobs.

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
mod stated;
mod syntax;
mod verified;

use std::collections::{HashMap, HashSet};

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
        if bytes.contains(&0) {
            return Err(JobFileError::Binary { file: name.to_owned() });
        }
        let sections = syntax::sections(name, bytes, environment)?;
        let mut defaults: Vec<&RawOption> = Vec::new();
        let mut file = Self { name: name.to_owned(), jobs: Vec::new(), warnings: Vec::new() };
        let mut warned = HashSet::new();
        for section in &sections {
            file.warnings.extend(repeated(section));
            if section.is_global() {
                defaults.extend(&section.options);
                continue;
            }
            let (job, ignored) = job(section, &defaults, lenient)?;
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

/// A job from its section and the defaults, and the keys that were ignored.
fn job(
    section: &Section,
    defaults: &[&RawOption],
    lenient: bool,
) -> Result<(Job, Vec<(At, Unsupported)>), JobFileError> {
    let options = || defaults.iter().copied().chain(&section.options);
    // The unit applies to all values of the job, wherever it stands.
    let base = kb_base(options().map(|option| (option.key.as_str(), option.value.as_deref())));
    let mut job = Job::new(section.name.clone(), section.at.clone());
    let mut ignored = Vec::new();
    for RawOption { at, key, value } in options() {
        let applied = apply(&mut job, key, &Given::in_job_file(value.as_deref(), base));
        let text = value.clone().unwrap_or_else(|| "1".to_owned());
        let name = first_name(key).unwrap_or_default();
        job.out_of_range.remove(name);
        let (key, value) = (key.clone(), value.clone().unwrap_or_default());
        let what = match applied {
            Ok(()) => {
                job.given.push([key, text]);
                continue;
            }
            Err(Rejected::Unsupported(what)) => what,
            Err(Rejected::Value(Refused::Value(reason))) => Unsupported::Value { key, value, reason },
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
        if !lenient {
            return Err(JobFileError::Unsupported { at: at.clone(), what });
        }
        ignored.push((at.clone(), what));
    }
    Ok((job, ignored))
}

/// The reason why a key is not applied.
enum Rejected {
    /// The key has no option.
    Unsupported(Unsupported),
    /// Its option does not accept the value.
    Value(Refused),
}

/// Sets the option of a key in a job.
fn apply(job: &mut Job, key: &str, given: &Given) -> Result<(), Rejected> {
    match keys::find(key) {
        Some(Found::Option(row)) => row.set(job, given).map_err(Rejected::Value),
        Some(Found::Unused(unused)) => match unused.refusal(given) {
            None => Ok(()),
            Some(reason) => Err(Rejected::Unsupported(Unsupported::Key { key: key.to_owned(), reason })),
        },
        None => Err(Rejected::Unsupported(Unsupported::Unknown { key: key.to_owned() })),
    }
}

/// The base of the sizes of these options.
fn kb_base<'a>(options: impl Iterator<Item = (&'a str, Option<&'a str>)>) -> KbBase {
    match options.filter(|(key, _)| *key == "kb_base").last() {
        Some((_, Some("1000"))) => KbBase::Decimal,
        _ => KbBase::Binary,
    }
}

#[cfg(test)]
mod tests;
