//! State of the bios or requests in flight, by number, within a bound on memory. `join.rs` defines that state.

/// The memory of all queues together. A queue of a million requests and two million bios fits.
const BYTES_MAX: usize = 128 << 20;

/// An unknown time.
pub(super) const UNKNOWN: u64 = u64::MAX;

/// Memory that slots may still allocate.
#[derive(Debug)]
pub(super) struct Budget {
    bytes_left: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self { bytes_left: BYTES_MAX }
    }
}

/// One state for each number; the default for numbers not set since [`Slots::forget`].
#[derive(Debug, Default)]
pub(super) struct Slots<T> {
    states: Vec<(u32, T)>,
    epoch: u32,
}

impl<T: Copy + Default> Slots<T> {
    #[inline]
    pub(super) fn get(&self, number: u32) -> T {
        match self.states.get(number as usize) {
            Some((epoch, state)) if *epoch == self.epoch => *state,
            _ => T::default(),
        }
    }

    /// The states that were set since the last [`Slots::forget`].
    pub(super) fn states(&self) -> impl Iterator<Item = &T> {
        self.states.iter().filter(|(epoch, _)| *epoch == self.epoch).map(|(_, state)| state)
    }

    /// Stores a state, if the budget allows it.
    #[inline]
    pub(super) fn set(&mut self, number: u32, state: T, budget: &mut Budget) {
        let index = number as usize;
        if index >= self.states.len() && !self.grow(index, budget) {
            return;
        }
        self.states[index] = (self.epoch, state);
    }

    /// The state of that number; the default if it was not set. `None` if the budget has no memory for it.
    #[inline]
    pub(super) fn entry(&mut self, number: u32, budget: &mut Budget) -> Option<&mut T> {
        let index = number as usize;
        if index >= self.states.len() && !self.grow(index, budget) {
            return None;
        }
        let (epoch, state) = &mut self.states[index];
        if *epoch != self.epoch {
            (*epoch, *state) = (self.epoch, T::default());
        }
        Some(state)
    }

    /// A stored state.
    #[inline]
    pub(super) fn find(&mut self, number: u32) -> Option<&mut T> {
        let (epoch, state) = self.states.get_mut(number as usize)?;
        (*epoch == self.epoch).then_some(state)
    }

    /// Changes a stored state.
    #[inline]
    pub(super) fn update(&mut self, number: u32, change: impl FnOnce(&mut T)) {
        if let Some(state) = self.find(number) {
            change(state);
        }
    }

    /// Forgets all states, in O(1).
    pub(super) fn forget(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
    }

    #[cold]
    fn grow(&mut self, index: usize, budget: &mut Budget) -> bool {
        let len = (index + 1).next_power_of_two().max(64);
        let more = len - self.states.len();
        let bytes = more * size_of::<(u32, T)>();
        if bytes > budget.bytes_left {
            return false;
        }
        budget.bytes_left -= bytes;
        // Exact, since the doubling of the vector would exceed the budget.
        self.states.reserve_exact(more);
        self.states.resize(len, (self.epoch.wrapping_sub(1), T::default()));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forgotten_state_is_the_default_until_set_again() {
        let mut slots = Slots::<u64>::default();
        let mut budget = Budget::default();
        slots.set(5, 7, &mut budget);
        slots.update(5, |state| *state += 1);
        assert_eq!((slots.get(5), slots.get(4), slots.get(1000)), (8, 0, 0));
        slots.forget();
        slots.update(5, |state| *state += 1);
        assert_eq!(slots.get(5), 0);
    }

    #[test]
    fn numbers_beyond_the_budget_take_no_memory() {
        let mut slots = Slots::<u64>::default();
        let mut budget = Budget { bytes_left: 100 * 16 };
        slots.set(200, 1, &mut budget);
        assert_eq!((slots.get(200), slots.states.capacity()), (0, 0));
        slots.set(10, 1, &mut budget);
        assert_eq!((slots.get(10), budget.bytes_left), (1, 36 * 16));
    }
}
