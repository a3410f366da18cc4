//! The table of options: each setting of a workload once, with its names on the command line and in job files, its
//! help, and its effect on [`Settings`]. Command lines, job files, lists of values, messages and comparisons read
//! this table.
//!
//! A new option is a row in a topic of `options/`, the place of its effect, and a value in `options/tests.rs`. `fact`
//! states its value in results and what comparisons do with it, `only_on` the places outside of which it is refused.
//! Keys of fio without an effect, or without an equivalent, are no options: `iopath-fio` has them in `keys.rs`.
//!
//! `IOPATH_BLESS=1 cargo test -p iopath-bench -p iopath-fio the_documentation_has` writes the tables of the
//! documentation, and `IOPATH_BLESS=1 cargo test -p iopath-lab schema` the schemas.

mod access;
mod cache;
pub mod command_line;
mod contents;
mod control_keys;
mod expression;
mod fact;
mod files;
mod given;
mod jobs;
mod limits;
mod output;
mod pace;
mod range;
mod results;
mod series;
mod settings;
mod thread;
mod transfers;
mod valid;
pub mod value;
mod verify;

use std::ffi::OsStr;

pub use access::ENGINES;
pub use control_keys::{ControlKeys, ExitWhat, LogName, PriorityOfSize, class_of};
pub(crate) use fact::workload_facts;
pub use fact::{Difference, Fact, Kind, NONE, Ran, schema_of_facts};
pub use given::{Given, Notation, Refused};
pub use settings::{ContentKeys, FileOrder, IoEngine, Settings, SteadyKey, ZoneKeys};
pub use valid::Values;
pub use value::{Amount, KbBase};

use crate::field::Field;
use crate::place::{Medium, Place};
use crate::refusal::WorkloadError;
use crate::workload::{LatencySampling, Workload};

/// How far iopath implements a key of fio.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Support {
    /// As fio does.
    Yes,
    /// Some values only, or with a difference that the table states.
    Partly,
    /// Accepted: the key selects what iopath does anyway, or does not concern a measurement here.
    NoEffect,
    /// Refused; ignored with a warning if the caller is lenient.
    No,
}

impl Support {
    /// All values.
    pub const ALL: [Self; 4] = [Self::Yes, Self::Partly, Self::NoEffect, Self::No];

    /// The word of the table.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::Partly => "partly",
            Self::NoEffect => "no effect",
            Self::No => "no",
        }
    }
}

/// The quantity that a key decides, if no measurement may go without it. A lenient caller does not ignore such a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decides {
    /// When written bytes are on the medium.
    Durability,
    /// Reads, writes or trims.
    Direction,
    /// The bytes that are accessed, their order, and the way to them.
    Range,
    /// The content of writes, and whether it is verified.
    Contents,
}

impl Decides {
    /// The quantity in a sentence.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Durability => "the durability of writes",
            Self::Direction => "the direction of transfers",
            Self::Range => "the bytes that are accessed",
            Self::Contents => "the content of writes",
        }
    }
}

/// The name of an option in job files and on command lines of fio.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// The name, and its aliases after it.
    pub names: &'static [&'static str],
    /// How far iopath implements it.
    pub support: Support,
    /// Its equivalent here, or the reason that there is none.
    pub mapping: &'static str,
    /// Values that change nothing: fio's default, and those that switch the function off. They are never refused.
    pub neutral: &'static [&'static str],
    /// The values that fio takes, of a key without an option.
    pub values: Values,
    /// Whether it may stand alone on a command line. Its value then follows `=`, never a space.
    pub is_switch: bool,
    /// The quantity that it decides, if a lenient caller does not ignore it.
    pub decides: Option<Decides>,
}

impl Key {
    /// A key without neutral values.
    pub const fn new(names: &'static [&'static str], support: Support, mapping: &'static str) -> Self {
        Self { names, support, mapping, neutral: &[], values: Values::Text, is_switch: false, decides: None }
    }

    /// The same key with values that change nothing.
    #[must_use]
    pub const fn neutral(self, neutral: &'static [&'static str]) -> Self {
        Self { neutral, ..self }
    }

    /// The same key, for which fio takes these values.
    #[must_use]
    pub const fn takes(self, values: Values) -> Self {
        Self { values, ..self }
    }

    /// The same key, which may stand alone on a command line.
    #[must_use]
    pub const fn switch(self) -> Self {
        Self { is_switch: true, ..self }
    }

    /// The same key, which a lenient caller does not ignore.
    #[must_use]
    pub const fn decides(self, what: Decides) -> Self {
        Self { decides: Some(what), ..self }
    }

    /// Whether a value of a job file changes nothing, so that it is not refused.
    pub fn is_neutral(&self, given: &Given) -> bool {
        let Some(text) = given.text_of_key() else { return false };
        let number = given.number(text);
        let is_same = |known: &&str| *known == text || (number.is_some() && given.number(known) == number);
        self.neutral.iter().any(is_same)
    }
}

/// The values of an option on the command line. The texts are the names of values in the help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// None: the option is given or not.
    Flag,
    /// One.
    One(&'static str),
    /// A list with commas, whose values are measured side by side. A sweep has it as an axis, with the second name.
    List(&'static str, &'static str),
    /// One for each time that the option is given.
    Repeated(&'static str),
    /// One for reads and writes, or one for each after a comma.
    Pair(&'static str),
    /// One, or the default at the end.
    Optional(&'static str, &'static str),
}

/// A name of a value, and its meaning; empty if the name says it.
pub type Named = (&'static str, &'static str);

/// An option.
#[derive(Debug, Clone, Copy)]
pub struct OptionRow {
    /// The option on the command line, such as `--bs`; none if only job files have it.
    pub flag: Option<&'static str>,
    /// Its values there.
    pub form: Form,
    /// All its values by name; none if they are numbers or other text.
    pub names: Option<fn() -> Vec<Named>>,
    /// The default as the help shows it; none if it is stated in words, or is off.
    pub default: Option<&'static str>,
    /// One sentence for the help, without a full stop.
    pub help: &'static str,
    /// Further lines of the long help.
    pub more_help: Option<fn() -> String>,
    /// The option that must be given with it.
    pub requires: Option<&'static str>,
    /// The options that must not be given with it.
    pub conflicts: &'static [&'static str],
    /// Whether it changes all jobs of a job file. Job files set all other options themselves.
    pub is_of_job_file: bool,
    /// Whether its value may begin with a minus.
    pub is_signed: bool,
    /// Whether its value is the name of a file.
    pub is_file: bool,
    /// The name in job files; none if they lack it.
    pub key: Option<Key>,
    /// The field of a workload that errors name; none if no error does.
    pub field: Option<Field>,
    /// Its value in results; none if it has no value of its own there.
    pub fact: Option<Fact>,
    /// Where it holds; empty for everywhere.
    pub places: &'static [Place],
    /// Its value as text, if a workload has another one than the default; for options with places.
    used: fn(&Workload) -> Option<String>,
    set: fn(&mut Settings, &Given) -> Result<(), Refused>,
}

/// Options of one topic.
#[derive(Debug)]
pub struct Topic {
    /// The heading in the help.
    pub title: &'static str,
    /// The options, in the order of the help. Values are set in this order, so an option can refine one before it.
    pub rows: &'static [OptionRow],
}

/// All options.
pub static OPTIONS: &[Topic] = &[
    Topic { title: "Path and target", rows: access::ROWS },
    Topic { title: "Transfers", rows: transfers::ROWS },
    Topic { title: "Range", rows: range::ROWS },
    Topic { title: "Time and rate", rows: pace::ROWS },
    Topic { title: "Latency target and shares", rows: limits::ROWS },
    Topic { title: "Content", rows: contents::ROWS },
    Topic { title: "Verification", rows: verify::ROWS },
    Topic { title: "Paths of iopath", rows: cache::ROWS },
    Topic { title: "Repetitions and log", rows: results::ROWS },
    Topic { title: "Files", rows: files::ROWS },
    Topic { title: "Jobs of a file", rows: jobs::ROWS },
    Topic { title: "Thread", rows: thread::ROWS },
    Topic { title: "Series over time", rows: series::ROWS },
    Topic { title: "Formats of fio", rows: output::ROWS },
];

/// All options, in the order of the table.
pub fn options() -> impl Iterator<Item = &'static OptionRow> {
    OPTIONS.iter().flat_map(|topic| topic.rows)
}

/// The option of a key of fio.
pub fn of_key(key: &str) -> Option<&'static OptionRow> {
    options().find(|row| row.key.is_some_and(|known| known.names.contains(&key)))
}

/// The option of a flag, without its dashes.
pub fn of_name(name: &str) -> Option<&'static OptionRow> {
    options().find(|row| row.name() == Some(name))
}

/// The flag for a field of a workload.
pub fn flag_of(field: Field) -> Option<&'static str> {
    options().find(|row| row.field == Some(field))?.flag
}

/// The key for a field of a workload, or the option of `iopath run` that job files lack. Messages use these names.
pub fn key_of(field: Field) -> Option<&'static str> {
    let row = options().find(|row| row.field == Some(field))?;
    row.key.map(|key| key.names[0]).or(row.flag.filter(|_| row.is_of_job_file))
}

/// Checks that each option that a workload uses holds on its path and target.
///
/// # Errors
/// [`WorkloadError::NotHere`].
pub(crate) fn check_places(workload: &Workload, medium: Medium) -> Result<(), WorkloadError> {
    options().try_for_each(|row| row.check_places(workload, medium))
}

/// Checks that a workload that runs beside others uses no option of one workload.
///
/// # Errors
/// [`WorkloadError::NotHere`].
pub fn check_one_of_several(workload: &Workload) -> Result<(), WorkloadError> {
    let mut rows = options().filter(|row| row.places.contains(&Place::OneWorkload));
    rows.try_for_each(|row| row.refuse_outside(Place::OneWorkload, workload))
}

impl OptionRow {
    /// An option of the command line.
    const fn option(
        flag: &'static str,
        form: Form,
        help: &'static str,
        set: fn(&mut Settings, &Given) -> Result<(), Refused>,
    ) -> Self {
        Self {
            flag: Some(flag),
            form,
            names: None,
            default: None,
            help,
            more_help: None,
            requires: None,
            conflicts: &[],
            is_of_job_file: false,
            is_signed: false,
            is_file: false,
            key: None,
            field: None,
            fact: None,
            places: &[],
            used: |_| None,
            set,
        }
    }

    /// An option that only job files have.
    const fn only_key(
        support: Support,
        names: &'static [&'static str],
        mapping: &'static str,
        set: fn(&mut Settings, &Given) -> Result<(), Refused>,
    ) -> Self {
        let row = Self { flag: None, ..Self::option("", Form::Flag, "", set) };
        row.key(support, names, mapping)
    }

    /// Its name in job files.
    const fn key(self, support: Support, names: &'static [&'static str], mapping: &'static str) -> Self {
        Self { key: Some(Key::new(names, support, mapping)), ..self }
    }

    /// Its name in job files, which has values that change nothing.
    const fn neutral(self, neutral: &'static [&'static str]) -> Self {
        let Some(key) = self.key else { panic!("only a key has neutral values") };
        Self { key: Some(key.neutral(neutral)), ..self }
    }

    /// Its name in job files, which may stand alone on a command line of fio.
    const fn switch(self) -> Self {
        let Some(key) = self.key else { panic!("only a key stands on a command line of fio") };
        Self { key: Some(key.switch()), ..self }
    }

    /// Its name in job files, which a lenient caller does not ignore.
    const fn decides(self, what: Decides) -> Self {
        let Some(key) = self.key else { panic!("only a key can be ignored") };
        Self { key: Some(key.decides(what)), ..self }
    }

    const fn field(self, field: Field) -> Self {
        Self { field: Some(field), ..self }
    }

    const fn fact(self, fact: Fact) -> Self {
        Self { fact: Some(fact), ..self }
    }

    /// Where it holds, and its value as text if a workload uses it.
    const fn only_on(self, places: &'static [Place], used: fn(&Workload) -> Option<String>) -> Self {
        Self { places, used, ..self }
    }

    const fn default(self, shown: &'static str) -> Self {
        Self { default: Some(shown), ..self }
    }

    const fn names(self, names: fn() -> Vec<Named>) -> Self {
        Self { names: Some(names), ..self }
    }

    const fn requires(self, name: &'static str) -> Self {
        Self { requires: Some(name), ..self }
    }

    const fn conflicts(self, names: &'static [&'static str]) -> Self {
        Self { conflicts: names, ..self }
    }

    const fn of_job_file(self) -> Self {
        Self { is_of_job_file: true, ..self }
    }

    const fn signed(self) -> Self {
        Self { is_signed: true, ..self }
    }

    const fn file(self) -> Self {
        Self { is_file: true, ..self }
    }

    /// The flag without its dashes.
    pub fn name(&self) -> Option<&'static str> {
        self.flag?.strip_prefix("--")
    }

    /// Whether a list of its values is measured side by side.
    pub fn is_list(&self) -> bool {
        matches!(self.form, Form::List(..))
    }

    /// Sets a value in the notation of a command line or of a job file.
    ///
    /// # Errors
    /// [`Refused`]: the value is malformed, out of range, or has no equivalent.
    pub fn set(&self, settings: &mut Settings, given: &Given) -> Result<(), Refused> {
        let is_neutral = || given.is_in_job_file() && self.key.is_some_and(|key| key.is_neutral(given));
        match (self.set)(settings, given) {
            Err(Refused::Value(_) | Refused::Expected(_) | Refused::Malformed(_)) if is_neutral() => Ok(()),
            set => set,
        }
    }

    /// Checks that the option holds on the path and target of a workload that uses it.
    ///
    /// # Errors
    /// [`WorkloadError::NotHere`].
    fn check_places(&self, workload: &Workload, medium: Medium) -> Result<(), WorkloadError> {
        let capabilities = workload.path.capabilities;
        let holds = |place: Place| match place {
            Place::EveryLatency => workload.latency_sampling == LatencySampling::ALL,
            place => capabilities.include(place, medium),
        };
        let mut others = self.places.iter().filter(|place| !holds(**place));
        others.try_for_each(|place| self.refuse_outside(*place, workload))
    }

    /// Refuses the option outside of this place, if the workload uses it.
    fn refuse_outside(&self, place: Place, workload: &Workload) -> Result<(), WorkloadError> {
        match (self.used)(workload).zip(self.field) {
            Some((value, field)) => {
                Err(WorkloadError::NotHere { path: workload.path.name, place, field, value })
            }
            None => Ok(()),
        }
    }

    /// Checks the form of a value of the command line. The range of a number is checked when it is set.
    ///
    /// # Errors
    /// The reason, with the valid values.
    pub fn check(&self, value: &OsStr) -> Result<(), String> {
        match self.set(&mut Settings::default(), &Given::on_command_line(value)) {
            Ok(()) | Err(Refused::Workload(_)) => Ok(()),
            Err(refused) => Err(refused.to_string()),
        }
    }
}

/// A list of values with this name.
macro_rules! list {
    ($value:literal) => {
        $crate::options::Form::List($value, concat!($value, ",..."))
    };
}
use list;

/// A setter: evaluates the value and assigns it to a field.
macro_rules! set {
    ($($field:ident).+ = $value:ident) => {
        |settings, given| {
            settings.$($field).+ = given.$value()?;
            Ok(())
        }
    };
    ($($field:ident).+ = Some($value:ident)) => {
        |settings, given| {
            settings.$($field).+ = Some(given.$value()?);
            Ok(())
        }
    };
}
use set;

#[cfg(test)]
mod tests;
