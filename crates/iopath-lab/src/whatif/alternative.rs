//! The alternatives of a study: the lists of values on a command line, and their product. Does not replay.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use iopath::Readahead;
use iopath_core::elevator::ElevatorSpec;
use iopath_core::{Op, Priority};
use iopath_report::size::{format_size, parse_size};

use super::error::WhatIfError;
use iopath_bench::cache::{CacheSettings, readahead_text};

/// The maximum number of alternatives of an input.
const ALTERNATIVES_MAX: usize = 4096;

/// The values of each setting. An empty list leaves the setting as it was recorded, or at its default.
#[derive(Debug, Clone, Default)]
pub struct Axes {
    /// Models.
    pub targets: Vec<PathBuf>,
    /// Elevators.
    pub elevators: Vec<ElevatorSpec>,
    /// Largest requests at the device, in bytes.
    pub max_sectors_bytes: Vec<u64>,
    /// Requests in flight at the device.
    pub depths: Vec<u32>,
    /// Whether requests merge.
    pub merges: Vec<bool>,
    /// Priorities.
    pub priorities: Vec<Priorities>,
    /// Readahead of the page cache, for file accesses.
    pub readaheads: Vec<Readahead>,
    /// Memory of the page cache in bytes, for file accesses.
    pub caches_bytes: Vec<u64>,
}

/// One combination of values.
#[derive(Debug, Clone)]
pub(crate) struct Alternative {
    /// The index of the model.
    pub(crate) target: usize,
    pub(crate) elevator: ElevatorSpec,
    /// None for the limit of the model.
    pub(crate) max_request_bytes: Option<u64>,
    /// None for the limit of the model.
    pub(crate) depth: Option<u32>,
    pub(crate) is_merged: bool,
    pub(crate) priorities: Priorities,
    /// The page cache of file accesses.
    pub(crate) cache: CacheSettings,
}

impl Axes {
    /// The combinations. A setting without a list has the value of `base`.
    ///
    /// # Errors
    /// [`WhatIfError::TooMany`].
    pub(crate) fn product(&self, base: &Alternative) -> Result<Vec<Alternative>, WhatIfError> {
        let lengths = [
            self.targets.len(),
            self.elevators.len(),
            self.max_sectors_bytes.len(),
            self.depths.len(),
            self.merges.len(),
            self.priorities.len(),
            self.readaheads.len(),
            self.caches_bytes.len(),
        ];
        let count = lengths.iter().fold(1_usize, |product, length| product.saturating_mul((*length).max(1)));
        if count > ALTERNATIVES_MAX {
            return Err(WhatIfError::TooMany { alternatives: count, max: ALTERNATIVES_MAX });
        }
        let mut all = vec![base.clone()];
        let targets: Vec<usize> = (0..self.targets.len()).collect();
        vary(&mut all, &targets, |one, value| one.target = value);
        vary(&mut all, &self.elevators, |one, value| one.elevator = value);
        vary(&mut all, &self.max_sectors_bytes, |one, value| one.max_request_bytes = Some(value));
        vary(&mut all, &self.depths, |one, value| one.depth = Some(value));
        vary(&mut all, &self.merges, |one, value| one.is_merged = value);
        vary(&mut all, &self.priorities, |one, value| one.priorities = value);
        vary(&mut all, &self.readaheads, |one, value| one.cache.readahead = Some(value));
        vary(&mut all, &self.caches_bytes, |one, value| one.cache.cache_bytes = Some(value));
        Ok(all)
    }

    /// Whether a list is of the page cache.
    pub(crate) fn has_cache(&self) -> bool {
        !(self.readaheads.is_empty() && self.caches_bytes.is_empty())
    }
}

/// Replaces each alternative by one for each value. Without a value, changes nothing.
fn vary<T: Clone>(all: &mut Vec<Alternative>, values: &[T], set: impl Fn(&mut Alternative, T)) {
    if values.is_empty() {
        return;
    }
    let varied = all.iter().flat_map(|one| {
        values.iter().map(|value| {
            let mut one = one.clone();
            set(&mut one, value.clone());
            one
        })
    });
    *all = varied.collect();
}

impl Alternative {
    /// The first target with this elevator and depth; all other settings have their defaults.
    pub(crate) fn first(elevator: ElevatorSpec, depth: Option<u32>) -> Self {
        Self {
            target: 0,
            elevator,
            max_request_bytes: None,
            depth,
            is_merged: true,
            priorities: Priorities::default(),
            cache: CacheSettings::default(),
        }
    }

    /// The readahead in words; none for the default.
    pub(crate) fn readahead(&self) -> Option<String> {
        self.cache.readahead.map(readahead_text)
    }

    /// The values in words. The name of the model is that of the caller.
    pub(crate) fn words(&self, target: &str) -> Words {
        [
            target.to_owned(),
            self.elevator.to_string(),
            self.max_request_bytes.map_or_else(String::new, |bytes| format!("max {}", format_size(bytes))),
            self.depth.map_or_else(String::new, |depth| format!("depth {depth}")),
            (if self.is_merged { "" } else { "unmerged" }).to_owned(),
            self.priorities.to_string(),
            self.readahead().map_or_else(String::new, |readahead| format!("readahead {readahead}")),
            self.cache.cache_bytes.map_or_else(String::new, |bytes| format!("cache {}", format_size(bytes))),
        ]
    }
}

/// The values of an alternative in words.
type Words = [String; 8];

/// The names of alternatives: the values that differ between them, or the elevator if none differs.
pub(crate) fn names(words: &[Words]) -> Vec<String> {
    let differs: Vec<usize> =
        (0..words[0].len()).filter(|axis| words.iter().any(|one| one[*axis] != words[0][*axis])).collect();
    let name = |one: &Words| {
        let shown = differs.iter().map(|axis| one[*axis].as_str()).filter(|word| !word.is_empty());
        let name = shown.collect::<Vec<_>>().join(", ");
        if differs.is_empty() {
            one[1].clone()
        } else if name.is_empty() {
            "default".to_owned()
        } else {
            name
        }
    };
    words.iter().map(name).collect()
}

/// The requests that a priority applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Selector {
    Stream(u32),
    Reads,
    Writes,
}

/// Priorities of streams or operations. The last match applies; a request without a match has best effort.
///
/// The text form is `same`, or a list such as `0=rt+writes=idle`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Priorities(Vec<(Selector, Priority)>);

/// The names of priorities.
const CLASSES: [(&str, Priority); 3] =
    [("rt", Priority::RealTime), ("be", Priority::BestEffort), ("idle", Priority::Idle)];

/// The name of no change.
const SAME: &str = "same";

impl Priorities {
    #[inline]
    pub(crate) fn of(&self, stream: u32, op: Op) -> Priority {
        if self.0.is_empty() {
            return Priority::BestEffort;
        }
        let applies = |selector: Selector| match selector {
            Selector::Stream(number) => number == stream,
            Selector::Reads => op == Op::Read,
            Selector::Writes => op != Op::Read,
        };
        let last = self.0.iter().rev().find(|(selector, _)| applies(*selector));
        last.map_or(Priority::BestEffort, |(_, priority)| *priority)
    }
}

impl FromStr for Priorities {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == SAME {
            return Ok(Self::default());
        }
        let bad = || {
            format!(
                "`{text}` is no priority; write {SAME}, or STREAM, reads or writes with rt, be or idle: 0=rt+writes=idle"
            )
        };
        let one = |part: &str| {
            let (selector, class) = part.split_once('=').ok_or_else(bad)?;
            let selector = match selector {
                "reads" => Selector::Reads,
                "writes" => Selector::Writes,
                number => Selector::Stream(number.parse().map_err(|_| bad())?),
            };
            let class = CLASSES.iter().find(|(name, _)| *name == class).ok_or_else(bad)?;
            Ok((selector, class.1))
        };
        text.split('+').map(one).collect::<Result<_, _>>().map(Self)
    }
}

impl fmt::Display for Priorities {
    /// Empty without priorities.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (selector, priority)) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("+")?;
            }
            match selector {
                Selector::Stream(number) => write!(f, "{number}")?,
                Selector::Reads => f.write_str("reads")?,
                Selector::Writes => f.write_str("writes")?,
            }
            let class = CLASSES.iter().find(|(_, of)| of == priority).map_or("be", |(name, _)| name);
            write!(f, "={class}")?;
        }
        Ok(())
    }
}

/// Parses a list of elevators. A part with `=` and without `:` is a further setting of the elevator before it:
/// `none,deadline:read_expire_ms=100,fifo_batch=8,fair`.
///
/// # Errors
/// The first elevator that does not exist or has a wrong setting.
pub fn parse_elevators(text: &str) -> Result<Vec<ElevatorSpec>, String> {
    let mut parts: Vec<String> = Vec::new();
    for part in text.split(',') {
        match parts.last_mut() {
            Some(last) if part.contains('=') && !part.contains(':') => {
                last.push(',');
                last.push_str(part);
            }
            _ => parts.push(part.to_owned()),
        }
    }
    parts.iter().map(|part| part.parse::<ElevatorSpec>().map_err(|error| error.to_string())).collect()
}

/// Parses the largest size of a request: a multiple of 512 bytes.
///
/// # Errors
/// The text is no such size.
pub fn parse_max_sectors(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text).map_err(|error| error.to_string())?;
    if bytes == 0 || !bytes.is_multiple_of(512) {
        return Err(format!("`{text}` is not a multiple of 512 bytes; write 64k, for example"));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_elevators_keep_the_settings_of_each() {
        let parsed = parse_elevators("none,deadline:read_expire_ms=100,fifo_batch=8,fair").unwrap();
        let texts: Vec<String> = parsed.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["none", "deadline:read_expire_ms=100,fifo_batch=8", "fair"]);
        assert!(parse_elevators("none,lift").unwrap_err().contains("lift"));
    }

    #[test]
    fn the_last_matching_priority_applies() {
        let priorities: Priorities = "3=rt+writes=idle".parse().unwrap();
        assert_eq!(priorities.to_string(), "3=rt+writes=idle");
        assert_eq!(priorities.of(3, Op::Read), Priority::RealTime);
        assert_eq!(priorities.of(3, Op::Write), Priority::Idle);
        assert_eq!(priorities.of(4, Op::Read), Priority::BestEffort);
        assert_eq!("same".parse::<Priorities>().unwrap(), Priorities::default());
        for bad in ["", "3", "3=fast", "all=rt", "3=rt,4=be"] {
            assert!(bad.parse::<Priorities>().unwrap_err().contains("0=rt+writes=idle"), "{bad}");
        }
    }

    fn base() -> Alternative {
        Alternative::first(ElevatorSpec::default(), None)
    }

    #[test]
    fn the_product_has_each_combination_and_names_say_what_differs() {
        let axes = Axes {
            elevators: parse_elevators("none,deadline").unwrap(),
            depths: vec![1, 8],
            ..Axes::default()
        };
        let all = axes.product(&base()).unwrap();
        let words: Vec<_> = all.iter().map(|one| one.words("model:cloud")).collect();
        assert_eq!(
            names(&words),
            ["none, depth 1", "none, depth 8", "deadline, depth 1", "deadline, depth 8"]
        );
        let merges = Axes { merges: vec![true, false], ..Axes::default() };
        let all = merges.product(&base()).unwrap();
        let words: Vec<_> = all.iter().map(|one| one.words("model:cloud")).collect();
        assert_eq!(names(&words), ["default", "unmerged"]);
        assert_eq!(names(&words[..1]), ["none"]);
        let many = Axes { depths: (0..9999).collect(), ..Axes::default() };
        assert!(many.product(&base()).unwrap_err().to_string().contains("9999"));
    }

    #[test]
    fn a_largest_request_is_whole_sectors() {
        assert_eq!(parse_max_sectors("64k"), Ok(65_536));
        assert!(parse_max_sectors("0").is_err() && parse_max_sectors("1000").is_err());
    }
}
