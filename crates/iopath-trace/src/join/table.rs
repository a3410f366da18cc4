//! Entries with a number that is free again after their end, at most a fixed number at a time.

/// A table of entries.
#[derive(Debug)]
pub(super) struct Table<T> {
    entries: Vec<Option<T>>,
    free: Vec<u32>,
    max: usize,
}

impl<T> Table<T> {
    pub(super) const fn new(max: usize) -> Self {
        Self { entries: Vec::new(), free: Vec::new(), max }
    }

    /// Whether it has no room for a further entry.
    #[inline]
    pub(super) const fn is_full(&self) -> bool {
        self.free.is_empty() && self.entries.len() >= self.max
    }

    /// Adds an entry, and returns its number. The table must have room.
    #[inline]
    pub(super) fn insert(&mut self, entry: T) -> u32 {
        if let Some(number) = self.free.pop() {
            self.entries[number as usize] = Some(entry);
            return number;
        }
        debug_assert!(self.entries.len() < self.max, "a table has {} entries", self.max);
        self.entries.push(Some(entry));
        self.entries.len() as u32 - 1
    }

    #[inline]
    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.entries.get_mut(number as usize)?.as_mut()
    }

    #[inline]
    pub(super) fn remove(&mut self, number: u32) {
        if let Some(entry) = self.entries.get_mut(number as usize)
            && entry.take().is_some()
        {
            self.free.push(number);
        }
    }
}
