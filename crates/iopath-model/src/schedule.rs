//! Items in the order of time: completions, and events of a model. Holds no clock.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};

/// Nanoseconds since the start of the run.
type Nanos = u64;

/// Items in the order of their times; items with the same time stay in the order of insertion.
///
/// Most items are inserted in the order of time, because a mechanism serves one request after another. Such items are
/// in a list and cost no search. An item that is earlier than the end of the list is in a heap.
#[derive(Debug)]
pub(crate) struct Schedule<T> {
    list: VecDeque<Item<T>>,
    heap: BinaryHeap<Reverse<Item<T>>>,
    inserted: u64,
    /// Whether most items are inserted in the order of time. Otherwise, all are in the heap.
    ascends: bool,
}

#[derive(Debug, Clone, Copy)]
struct Item<T> {
    at: Nanos,
    number: u64,
    value: T,
}

impl<T> Schedule<T> {
    /// A schedule that allocates no memory up to `capacity` items.
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        Self {
            list: VecDeque::with_capacity(capacity),
            heap: BinaryHeap::with_capacity(capacity),
            inserted: 0,
            ascends: true,
        }
    }

    /// A schedule for items that are inserted in any order of time.
    pub(crate) fn in_any_order(capacity: usize) -> Self {
        Self { ascends: false, ..Self::with_capacity(capacity) }
    }

    /// Inserts an item.
    #[inline]
    pub(crate) fn push(&mut self, value: T, at: Nanos) {
        let item = Item { at, number: self.inserted, value };
        self.inserted += 1;
        if self.ascends && self.list.back().is_none_or(|last| last.at <= at) {
            self.list.push_back(item);
        } else {
            self.heap.push(Reverse(item));
        }
    }

    /// The time of the first item.
    #[inline]
    pub(crate) fn next(&self) -> Option<Nanos> {
        match (self.list.front(), self.heap.peek()) {
            (Some(first), None) => Some(first.at),
            (Some(first), Some(Reverse(other))) => Some(first.at.min(other.at)),
            (None, other) => other.map(|Reverse(other)| other.at),
        }
    }

    /// Removes the first item, if its time is `now` or earlier. Returns it with its time.
    #[inline]
    pub(crate) fn pop(&mut self, now: Nanos) -> Option<(Nanos, T)> {
        if let Some(Reverse(other)) = self.heap.peek()
            && self.list.front().is_none_or(|first| other < first)
        {
            return if other.at <= now {
                self.heap.pop().map(|Reverse(item)| item.into_pair())
            } else {
                None
            };
        }
        if self.list.front()?.at > now {
            return None;
        }
        self.list.pop_front().map(Item::into_pair)
    }
}

impl<T> Default for Schedule<T> {
    fn default() -> Self {
        Self::with_capacity(0)
    }
}

impl<T> Item<T> {
    fn into_pair(self) -> (Nanos, T) {
        (self.at, self.value)
    }
}

impl<T> PartialEq for Item<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for Item<T> {}

impl<T> PartialOrd for Item<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Item<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Pushes and pops in any order, against a sorted list.
        #[test]
        fn items_leave_in_the_order_of_time_then_of_insertion(
            steps in proptest::collection::vec(proptest::option::of(0_u64..20), 0..200),
            ascends: bool,
        ) {
            let mut schedule = Schedule::default();
            let mut sorted = Vec::new();
            schedule.ascends = ascends;
            for (number, step) in steps.into_iter().enumerate() {
                if let Some(at) = step {
                    schedule.push(number, at);
                    sorted.push((at, number));
                    sorted.sort_unstable();
                } else {
                    let first = sorted.first().copied();
                    prop_assert_eq!(schedule.next(), first.map(|(at, _)| at));
                    if let Some(before) = first.and_then(|(at, _)| at.checked_sub(1)) {
                        prop_assert_eq!(schedule.pop(before), None);
                    }
                    prop_assert_eq!(schedule.pop(first.map_or(0, |(at, _)| at)), first);
                    sorted.drain(..usize::from(first.is_some()));
                }
            }
        }
    }
}
