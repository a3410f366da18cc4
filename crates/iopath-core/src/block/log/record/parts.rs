//! Records that stand for several steps of one I/O that came at the same time: how they become that, and what they
//! stand for. When steps come together: `collect.rs`.

use super::{Event, FLAG_LAST, FLAG_REQUEST, Record, event_bits, low};
use crate::block::merge::NoMerge;

/// Of an `Insert`, and of a `Dispatch` that is both: it got its slot at this moment, for the bio `other`, which was
/// queued at this moment. The same bit, since neither ends anything.
const FLAG_FIRST: u64 = FLAG_LAST;
/// Of a `Get`: its bio was queued at this moment. Of a `Dispatch`: it was inserted at this moment, for the reason.
const FLAG_BOTH: u64 = 1 << 63;

/// What tells one request's or bio's record of an event from others.
const WHOSE: u64 = FLAG_BOTH | FLAG_REQUEST | EVENT | low(24);
const EVENT: u64 = 31 << 48;
const OTHER: u64 = low(24) << 24;
const REASON: u64 = 15 << 56;

const GET: u8 = Event::Get.code();
const PLUG: u8 = Event::Plug.code();
const UNPLUG: u8 = Event::Unplug.code();
const INSERT: u8 = Event::Insert.code();
const DISPATCH: u8 = Event::Dispatch.code();

impl Record {
    /// The same `Get`, of a bio that was queued just now: it says both.
    #[inline]
    pub(in crate::block::log) const fn and_queue(self) -> Self {
        self.with(FLAG_BOTH)
    }

    /// If this is the record of that request's `Get` for a bio that was queued just now, it says from now on that it
    /// was inserted, too, and why it joined none.
    #[inline]
    pub(in crate::block::log) fn became_insert(&mut self, tag: u32, reason: NoMerge) -> bool {
        let is_it = self.is(event_bits(Event::Get) | FLAG_BOTH | FLAG_REQUEST | u64::from(tag));
        if is_it {
            let changed = event_bits(Event::Get) ^ event_bits(Event::Insert) ^ FLAG_BOTH ^ FLAG_FIRST;
            self.0[2] ^= changed | u64::from(reason.code()) << 56;
        }
        is_it
    }

    /// If this is the record of that request inserted just now, it says from now on that it was dispatched, too.
    #[inline]
    pub(in crate::block::log) fn became_dispatch(&mut self, tag: u32) -> bool {
        let is_it = self.is(event_bits(Event::Insert) | FLAG_REQUEST | u64::from(tag));
        if is_it {
            self.0[2] ^= event_bits(Event::Insert) ^ event_bits(Event::Dispatch) ^ FLAG_BOTH;
        }
        is_it
    }

    const fn is(self, whose: u64) -> bool {
        self.0[2] & WHOSE == whose
    }

    /// Whether a request's way may be told in a record before this one although it went on after.
    pub(in crate::block::log) const fn may_be_passed(self) -> bool {
        matches!(self.event_code(), PLUG | UNPLUG)
    }

    /// The steps that it stands for, in order: one, or some that came at the same time.
    ///
    /// A `Get` that is both is of a bio that was queued at that moment, a `Dispatch` that is both of a request that was
    /// inserted at that moment. An `Insert` or `Dispatch` that is first is of a request that got its slot at that
    /// moment, for a bio that was queued at that moment.
    #[inline]
    pub fn parts(self) -> impl Iterator<Item = Self> {
        let (is_both, is_first, is_get) = (self.is_both(), self.is_first(), self.event_code() == GET);
        let is_inserted = is_both && !is_get;
        let mut of_others = if is_both { FLAG_BOTH } else { 0 };
        of_others |= if is_first { FLAG_FIRST | OTHER } else { 0 } | if is_inserted { REASON } else { 0 };
        let last = self.without(of_others);
        let common = last.without(WHOSE | OTHER | REASON);
        let (request, bio) = (u64::from(self.tag()) | FLAG_REQUEST, u64::from(self.other()));
        let queue = common.with(event_bits(Event::Queue) | bio);
        let get = common.with(event_bits(Event::Get) | request | bio << 24);
        let insert = common.with(event_bits(Event::Insert) | request | self.0[2] & REASON);
        let parts = [
            (is_first || is_both && is_get).then_some(queue),
            is_first.then_some(get),
            is_inserted.then_some(insert),
            Some(last),
        ];
        parts.into_iter().flatten()
    }

    const fn without(self, bits: u64) -> Self {
        let Self([time, place, what]) = self;
        Self([time, place, what & !bits])
    }

    const fn with(self, bits: u64) -> Self {
        let Self([time, place, what]) = self;
        Self([time, place, what | bits])
    }

    /// Whether it stands for what came just before, too: a `Get` for the `Queue` of its bio, a `Dispatch` for the
    /// `Insert`.
    #[inline]
    pub const fn is_both(self) -> bool {
        let has_two = matches!(self.event_code(), GET | DISPATCH);
        self.0[2] & FLAG_BOTH != 0 && has_two
    }

    /// Whether an `Insert`, or a `Dispatch` that stands for one, stands for the `Get` and its bio's `Queue`, too.
    #[inline]
    pub const fn is_first(self) -> bool {
        let has_more =
            self.event_code() == INSERT || self.event_code() == DISPATCH && self.0[2] & FLAG_BOTH != 0;
        self.0[2] & FLAG_FIRST != 0 && has_more
    }
}
