//! Counts the states that runs reach, so that a state which no run reaches is visible.

use std::collections::BTreeMap;
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
    /// mapper: a task waits for another engine
    is_blocked,
}

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
        text
    }
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
}
