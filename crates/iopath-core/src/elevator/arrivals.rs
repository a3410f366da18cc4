//! Who came when, counted in requests: tells when a request has been passed as often as it may be. Knows no
//! sectors and no time.

use crate::list::{Links, List};
use crate::table::Tag;

/// Numbers requests as they come and counts those that have gone.
///
/// When `gone` reaches a request's number and n more, n later requests or more have gone before it: a
/// request that goes when that is reached has been passed n times, and as often as there still are older
/// requests.
#[derive(Debug)]
pub(super) struct Arrivals {
    pub(super) links: Links<Tag>,
    /// The request's number, by tag.
    number: Box<[u64]>,
    came: u64,
    gone: u64,
}

impl Arrivals {
    pub(super) fn new(requests_max: usize) -> Self {
        Self { links: Links::new(requests_max), number: vec![0; requests_max].into(), came: 0, gone: 0 }
    }

    /// A request has come.
    pub(super) fn push(&mut self, list: &mut List<Tag>, tag: Tag) {
        self.number[tag.index()] = self.came;
        self.came += 1;
        list.push_back(&mut self.links, tag);
    }

    /// A request has gone.
    pub(super) fn remove(&mut self, list: &mut List<Tag>, tag: Tag) {
        self.gone += 1;
        list.remove(&mut self.links, tag);
    }

    /// Something has come and gone at once, and so has passed all that are here.
    pub(super) fn pass(&mut self) {
        self.came += 1;
        self.gone += 1;
    }

    /// The oldest request of `list`, and when, counted in requests gone, its allowance is used up.
    pub(super) fn oldest(&self, list: &List<Tag>, allowance: u64) -> Option<(u64, Tag)> {
        let tag = list.front(&self.links)?;
        Some((self.number[tag.index()] + allowance, tag))
    }

    /// Whether that many requests have gone.
    pub(super) const fn is_due(&self, due: u64) -> bool {
        due <= self.gone
    }
}
