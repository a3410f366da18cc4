//! The source of space for mappers, and the quarantine that holds released space while I/O may still access it. An
//! allocator finds the space, such as `free.rs` or that of a filesystem.

use crate::debug;
use crate::sector::{Extent, Sector};
use std::collections::VecDeque;
use std::fmt;

/// Free space of a device.
pub trait Space: fmt::Debug {
    /// Allocates one piece of `unit` to `sectors` sectors, preferably at `near` or after it. Its length is a multiple
    /// of `unit`, and its start is aligned to `unit`. `None` if no unit is free.
    fn take(&mut self, sectors: u64, unit: u64, near: Sector) -> Option<Extent>;

    /// Releases space.
    fn release(&mut self, extent: Extent);
}

impl<S: Space + ?Sized> Space for Box<S> {
    fn take(&mut self, sectors: u64, unit: u64, near: Sector) -> Option<Extent> {
        (**self).take(sectors, unit, near)
    }

    fn release(&mut self, extent: Extent) {
        (**self).release(extent);
    }
}

/// An I/O in flight, for [`Quarantine`].
#[derive(Debug)]
#[must_use = "a ticket that never ends holds all released space"]
pub struct Ticket(u64);

/// Holds released space until the I/O in flight at the release has completed.
///
/// A read or write that mapped a range before a punch still accesses the old extent. If that extent belonged to another
/// file by then, the read would return bytes of that file, and the write would destroy them. Each I/O takes a ticket
/// before it maps, and ends the ticket on completion. A writer of metadata takes a ticket before it releases space, and
/// ends it when the metadata is on the medium. So after a crash no two files point to the same space.
pub struct Quarantine<S> {
    inner: S,
    /// Whether the I/O with ticket `first` + index is in flight.
    open: VecDeque<bool>,
    first: u64,
    /// Released extents, each with a ticket number: all earlier tickets must end before the extent is free.
    held: VecDeque<(u64, Extent)>,
}

impl<S: fmt::Debug> fmt::Debug for Quarantine<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Quarantine")
            .field("inner", &self.inner)
            .field("open", &self.open.len())
            .field("held", &debug::List(&self.held))
            .finish_non_exhaustive()
    }
}

impl<S: Space> Quarantine<S> {
    /// Over `inner`.
    pub const fn new(inner: S) -> Self {
        Self { inner, open: VecDeque::new(), first: 0, held: VecDeque::new() }
    }

    /// Begins an I/O. Space released from now on is held until the I/O ends.
    pub fn begin(&mut self) -> Ticket {
        self.open.push_back(true);
        Ticket(self.next() - 1)
    }

    /// Ends an I/O that has completed.
    ///
    /// # Panics
    /// If the ticket is of another quarantine: a bug of the caller.
    #[expect(clippy::needless_pass_by_value, reason = "a ticket is ended once")]
    pub fn end(&mut self, ticket: Ticket) {
        let Ticket(number) = ticket;
        let open = number.checked_sub(self.first).and_then(|index| self.open.get_mut(index as usize));
        let open = open.expect("a ticket of this quarantine, ended once");
        *open = false;
        while self.open.front() == Some(&false) {
            self.open.pop_front();
            self.first += 1;
        }
        while let Some((_, extent)) = self.held.front().filter(|(before, _)| *before <= self.first) {
            self.inner.release(*extent);
            self.held.pop_front();
        }
    }

    /// Sectors held now.
    pub fn held_sectors(&self) -> u64 {
        self.held.iter().map(|(_, extent)| extent.sectors()).sum()
    }

    /// The inner space.
    pub const fn inner(&self) -> &S {
        &self.inner
    }

    fn next(&self) -> u64 {
        self.first + self.open.len() as u64
    }
}

impl<S: Space> Space for Quarantine<S> {
    fn take(&mut self, sectors: u64, unit: u64, near: Sector) -> Option<Extent> {
        self.inner.take(sectors, unit, near)
    }

    fn release(&mut self, extent: Extent) {
        if self.open.is_empty() {
            self.inner.release(extent);
        } else {
            self.held.push_back((self.next(), extent));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default)]
    struct TestSpace(Vec<Extent>);

    impl Space for TestSpace {
        fn take(&mut self, _: u64, _: u64, _: Sector) -> Option<Extent> {
            self.0.pop()
        }

        fn release(&mut self, extent: Extent) {
            self.0.push(extent);
        }
    }

    #[test]
    fn space_is_free_when_all_earlier_io_has_completed() {
        let extent = |start| Extent::new(Sector(start), 8).unwrap();
        let mut space = Quarantine::new(TestSpace::default());
        let (a, b) = (space.begin(), space.begin());
        space.release(extent(0));
        let c = space.begin();
        space.release(extent(8));
        space.end(b);
        assert_eq!((space.inner().0.len(), space.held_sectors()), (0, 16));
        space.end(a);
        assert_eq!(space.inner().0, [extent(0)], "c began after the release");
        space.end(c);
        assert_eq!(space.inner().0, [extent(0), extent(8)]);
        space.release(extent(16));
        assert_eq!((space.inner().0.len(), space.held_sectors()), (3, 0), "no I/O is in flight");
    }
}
