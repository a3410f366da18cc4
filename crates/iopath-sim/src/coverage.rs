//! Counts the states that runs reach, so that a state which no run reaches is visible.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::ops::AddAssign;

/// A number of bits, in this order.
macro_rules! states {
    ($($(#[doc = $doc:literal])+ $name:ident),+ $(,)?) => {
        /// The state of a volume between two events.
        #[allow(clippy::struct_excessive_bools, reason = "each is a bit of the state")]
        #[derive(Debug, Clone, Copy, Default)]
        pub(crate) struct State { $($(#[doc = $doc])+ pub(crate) $name: bool,)+ }

        impl State {
            const NAMES: &'static [&'static str] = &[$(concat!($($doc),+),)+];

            fn bits(self) -> u32 {
                [$(self.$name,)+].iter().rev().fold(0, |bits, bit| bits << 1 | u32::from(*bit))
            }

            fn from_bits(bits: u32) -> Self {
                let mut rest = bits;
                let mut next = || {
                    let bit = rest & 1 > 0;
                    rest >>= 1;
                    bit
                };
                Self { $($name: next(),)+ }
            }
        }
    };
}

states! {
    /// page cache
    has_cache,
    /// mapped file
    is_mapped,
    /// queue: bios wait or are merged
    is_queued,
    /// queue: requests in flight
    is_in_flight,
    /// queue: full
    is_full,
    /// plug: holds the bios of a batch
    is_plugged,
    /// queue: has held an overlapping bio
    has_held,
    /// cache: dirty pages
    is_dirty,
    /// cache: pages being written
    is_writing,
    /// cache: failed pages
    has_failed,
    /// cache: bytes lost
    has_loss,
    /// cache: a page is borrowed or held by a writer
    has_guard,
    /// gate: direct I/O waits for pages
    waits_for_gate,
    /// gate: a call waits for a frame
    waits_for_frame,
    /// lock: a call waits for its range
    waits_for_lock,
    /// past the queue: a call appends to the file
    is_appending,
    /// past the queue: a call executes a write or flush of the cache
    has_own,
    /// new file: bytes are not flushed
    is_new_unflushed,
    /// new file: bytes lost
    is_new_lost,
    /// mapper: the file is being resized
    is_resizing,
    /// mapper: a task waits for another engine
    is_blocked,
}

/// A part of the path, and its levels: each level holds if its condition does and no later one. The first holds
/// otherwise.
struct Part {
    name: &'static str,
    levels: &'static [Level],
}

/// A name and a condition.
type Level = (&'static str, fn(State) -> bool);

/// The parts whose levels the report combines.
const PARTS: [Part; 5] = [
    Part {
        name: "queue",
        levels: &[
            ("idle", |_| true),
            ("in flight", |state| state.is_in_flight),
            ("queued", |state| state.is_queued),
            ("full", |state| state.is_full),
        ],
    },
    Part { name: "plug", levels: &[("off", |_| true), ("batch", |state| state.is_plugged)] },
    Part {
        name: "gate",
        levels: &[
            ("open", |_| true),
            ("waits for a frame", |state| state.waits_for_frame),
            ("waits for pages", |state| state.waits_for_gate),
        ],
    },
    Part {
        name: "cache",
        levels: &[
            ("none", |_| true),
            ("clean", |state| state.has_cache),
            ("dirty", |state| state.is_dirty),
            ("writing", |state| state.is_writing),
            ("failed", |state| state.has_failed),
            ("lost", |state| state.has_loss),
        ],
    },
    Part {
        name: "mapper",
        levels: &[
            ("none", |_| true),
            ("mapped", |state| state.is_mapped),
            ("claims wait", |state| state.is_blocked),
        ],
    },
];

impl Part {
    fn level(&self, state: State) -> usize {
        self.levels.iter().rposition(|(_, holds)| holds(state)).expect("the first always holds")
    }
}

/// A level of each part.
type Combination = [usize; PARTS.len()];

/// Whether a combination can exist: the gate belongs to a page cache.
fn is_possible(combination: &Combination) -> bool {
    let [_, _, gate, cache, _] = *combination;
    gate == 0 || cache > 0
}

fn combinations() -> impl Iterator<Item = Combination> {
    let all: usize = PARTS.iter().map(|part| part.levels.len()).product();
    let combination = |mut number: usize| {
        std::array::from_fn(|part| {
            let levels = PARTS[part].levels.len();
            let level = number % levels;
            number /= levels;
            level
        })
    };
    (0..all).map(combination).filter(is_possible)
}

/// A level of some parts; any of the others.
type Pattern = [Option<usize>; PARTS.len()];

/// The maximum number of lines for combinations that no run reached.
const MISSING_MAX: usize = 40;

/// The states of all runs.
#[derive(Debug, Clone, Default)]
pub struct Coverage {
    reached: BTreeMap<u32, u64>,
}

impl Coverage {
    pub(crate) fn add(&mut self, state: State) {
        *self.reached.entry(state.bits()).or_default() += 1;
    }

    /// The number of different states.
    pub fn states(&self) -> usize {
        self.reached.len()
    }

    fn has(&self, bits: u32) -> bool {
        self.reached.keys().any(|state| state & bits == bits)
    }

    /// A table: each condition, how often it held, and the conditions that never held together with it.
    pub fn report(&self) -> String {
        let all: u64 = self.reached.values().sum::<u64>().max(1);
        let names = State::NAMES;
        let mut text = format!("{} different states in {all} samples\n", self.states());
        for (index, name) in names.iter().enumerate() {
            let bit = 1 << index;
            let count: u64 =
                self.reached.iter().filter(|(state, _)| *state & bit > 0).map(|(_, count)| count).sum();
            let missing: Vec<_> = (0..names.len())
                .filter(|other| *other != index && count > 0 && !self.has(bit | 1 << other))
                .map(|other| names[other].trim())
                .collect();
            let never = match (count, missing.as_slice()) {
                (0, _) => "never reached".to_owned(),
                (_, []) => String::new(),
                (_, missing) => format!("never with: {}", missing.join("; ")),
            };
            let percent = count as f64 * 100.0 / all as f64;
            let line = format!("{:<44} {percent:6.2}%  {never}", name.trim());
            writeln!(text, "{}", line.trim_end()).expect("a string");
        }
        text.push_str(&self.report_of_combinations());
        text
    }

    /// The number of combinations of levels that runs have reached, and those that none has.
    fn report_of_combinations(&self) -> String {
        let of = |bits: &u32| PARTS.each_ref().map(|part| part.level(State::from_bits(*bits)));
        let reached: BTreeSet<Combination> = self.reached.keys().map(of).collect();
        let all = combinations().count();
        let missing = missing(&reached);
        let count = combinations().filter(|combination| reached.contains(combination)).count();
        let mut text = PARTS.map(|part| part.name).join(" × ");
        writeln!(text, ": {count} of {all} combinations").expect("a string");
        for pattern in missing.iter().take(MISSING_MAX) {
            let levels = PARTS.iter().zip(pattern).filter_map(|(part, level)| {
                let (name, _) = part.levels[(*level)?];
                Some(format!("{} {name}", part.name))
            });
            writeln!(text, "never reached: {}", levels.collect::<Vec<_>>().join(", ")).expect("a string");
        }
        if missing.len() > MISSING_MAX {
            writeln!(text, "never reached: {} other groups", missing.len() - MISSING_MAX).expect("a string");
        }
        text
    }
}

/// The combinations that were not reached, in groups as large as possible.
fn missing(reached: &BTreeSet<Combination>) -> Vec<Pattern> {
    let is_in = |pattern: &Pattern, combination: &Combination| {
        pattern.iter().zip(combination).all(|(level, other)| level.is_none_or(|level| level == *other))
    };
    let is_missing = |pattern: &Pattern| !reached.iter().any(|combination| is_in(pattern, combination));
    let mut patterns: Vec<Pattern> = Vec::new();
    for combination in combinations().filter(|combination| !reached.contains(combination)) {
        if patterns.iter().any(|pattern| is_in(pattern, &combination)) {
            continue;
        }
        let mut pattern = combination.map(Some);
        for part in 0..PARTS.len() {
            let level = pattern[part].take();
            if !is_missing(&pattern) {
                pattern[part] = level;
            }
        }
        patterns.push(pattern);
    }
    patterns
}

impl AddAssign<&Self> for Coverage {
    fn add_assign(&mut self, other: &Self) {
        for (state, count) in &other.reached {
            *self.reached.entry(*state).or_default() += count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_that_no_run_reaches_is_named() {
        let mut coverage = Coverage::default();
        coverage.add(State { has_cache: true, is_dirty: true, ..State::default() });
        coverage.add(State { has_cache: true, ..State::default() });
        let report = coverage.report();
        assert!(report.contains("2 different states in 2 samples"), "{report}");
        let line = |name: &str| report.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
        assert!(line("mapped file").contains("never reached"), "{report}");
        assert!(line("page cache").contains("100.00%"), "{report}");
        assert!(line("cache: dirty pages").contains("never with: mapped file"), "{report}");
    }

    #[test]
    fn combinations_that_no_run_reaches_are_counted_and_named() {
        let mut coverage = Coverage::default();
        let all = combinations().count();
        assert_eq!(all, 4 * 2 * 3 * (1 + 3 * 5));
        let state = State { has_cache: true, is_dirty: true, waits_for_gate: true, ..State::default() };
        assert_eq!(State::from_bits(state.bits()).bits(), state.bits());
        coverage.add(state);
        let report = coverage.report();
        assert!(report.contains(&format!("cache × mapper: 1 of {all} combinations")), "{report}");
        // All of the others, in groups.
        let groups =
            ["queue in flight", "queue queued", "queue full", "plug batch", "mapper mapped", "cache clean"];
        for group in groups {
            assert!(report.contains(&format!("never reached: {group}\n")), "{report}");
        }
        assert!(!report.contains("never reached: gate waits for pages\n"), "{report}");
    }
}
