//! The plug: holds requests back for a moment so that the next bio can join them. Decides nothing of order.

use crate::table::Tag;

/// Requests that are not with the elevator yet, newest last.
#[derive(Debug)]
pub(crate) struct Plug {
    tags: Vec<Tag>,
    requests_max: usize,
    /// How many plugs are on: they nest.
    depth: u32,
}

impl Plug {
    pub(crate) fn new(requests_max: usize) -> Self {
        Self { tags: Vec::with_capacity(requests_max), requests_max, depth: 0 }
    }

    pub(crate) fn plug(&mut self) {
        self.depth += 1;
    }

    /// Takes one plug off; whether it was the last.
    pub(crate) fn unplug(&mut self) -> bool {
        assert!(self.depth > 0, "unplug without plug");
        self.depth -= 1;
        self.depth == 0
    }

    pub(crate) const fn is_on(&self) -> bool {
        self.depth > 0
    }

    pub(crate) fn is_full(&self) -> bool {
        self.tags.len() >= self.requests_max
    }

    pub(crate) fn push(&mut self, tag: Tag) {
        self.tags.push(tag);
    }

    pub(crate) fn tags(&self) -> &[Tag] {
        &self.tags
    }

    pub(crate) fn remove(&mut self, index: usize) {
        self.tags.remove(index);
    }

    /// The requests, to be handed to the elevator; give the emptied list back with [`Plug::restore`].
    pub(crate) fn take(&mut self) -> Vec<Tag> {
        std::mem::take(&mut self.tags)
    }

    pub(crate) fn restore(&mut self, mut tags: Vec<Tag>) {
        tags.clear();
        self.tags = tags;
    }
}
