//! Records that combine several steps of one I/O at the same time: how steps are added to a record, and how they are
//! separated again. The decision to combine steps is in `collect.rs`.

use super::{Event, FLAG_LAST, FLAG_REQUEST, Record, event_bits, low};
use crate::block::merge::NoMerge;

/// In an `Insert`, and in a `Dispatch` with [`FLAG_BOTH`]: the record includes the `Get` of the request and the `Queue`
/// of its bio, `other`. Shares its bit with [`FLAG_LAST`], which only a `Complete` has.
const FLAG_FIRST: u64 = FLAG_LAST;
/// In a `Get`: the record includes the `Queue` of its bio. In a `Dispatch`: the record includes the `Insert`, with the
/// reason.
const FLAG_BOTH: u64 = 1 << 63;

/// The bits that identify the event and its subject.
const IDENTITY: u64 = FLAG_BOTH | FLAG_REQUEST | EVENT | low(24);
const EVENT: u64 = 31 << 48;
const OTHER: u64 = low(24) << 24;
const REASON: u64 = 15 << 56;

const GET: u8 = Event::Get.code();
const PLUG: u8 = Event::Plug.code();
const UNPLUG: u8 = Event::Unplug.code();
const INSERT: u8 = Event::Insert.code();
const DISPATCH: u8 = Event::Dispatch.code();

impl Record {
    /// The `Get` combined with the `Queue` of its bio.
    #[inline]
    pub(in crate::block::log) const fn and_queue(self) -> Self {
        self.with(FLAG_BOTH)
    }

    /// Adds an `Insert` to this record, if this is the `Get` of request `tag` combined with a `Queue`. Returns whether
    /// it did.
    #[inline]
    pub(in crate::block::log) fn became_insert(&mut self, tag: u32, reason: NoMerge) -> bool {
        let is_match = self.is(event_bits(Event::Get) | FLAG_BOTH | FLAG_REQUEST | u64::from(tag));
        if is_match {
            let changed = event_bits(Event::Get) ^ event_bits(Event::Insert) ^ FLAG_BOTH ^ FLAG_FIRST;
            self.0[2] ^= changed | u64::from(reason.code()) << 56;
        }
        is_match
    }

    /// Adds a `Dispatch` to this record, if this is the `Insert` of request `tag`. Returns whether it did.
    #[inline]
    pub(in crate::block::log) fn became_dispatch(&mut self, tag: u32) -> bool {
        let is_match = self.is(event_bits(Event::Insert) | FLAG_REQUEST | u64::from(tag));
        if is_match {
            self.0[2] ^= event_bits(Event::Insert) ^ event_bits(Event::Dispatch) ^ FLAG_BOTH;
        }
        is_match
    }

    const fn is(self, identity: u64) -> bool {
        self.0[2] & IDENTITY == identity
    }

    /// Whether a step that follows this record may be added to a record that precedes it.
    pub(in crate::block::log) const fn may_be_skipped(self) -> bool {
        matches!(self.event_code(), PLUG | UNPLUG)
    }

    /// The steps of the record, in order: one, or several at the same time.
    ///
    /// With [`Record::is_both`], a `Get` includes the `Queue` of its bio, and a `Dispatch` includes the `Insert`. With
    /// [`Record::is_first`], an `Insert` or `Dispatch` includes the `Get` and the `Queue` of its bio.
    #[inline]
    pub fn parts(self) -> impl Iterator<Item = Self> {
        let (is_both, is_first, is_get) = (self.is_both(), self.is_first(), self.event_code() == GET);
        let is_inserted = is_both && !is_get;
        let mut of_others = if is_both { FLAG_BOTH } else { 0 };
        of_others |= if is_first { FLAG_FIRST | OTHER } else { 0 } | if is_inserted { REASON } else { 0 };
        let last = self.without(of_others);
        let common = last.without(IDENTITY | OTHER | REASON);
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
        let Self([time, sector, flags]) = self;
        Self([time, sector, flags & !bits])
    }

    const fn with(self, bits: u64) -> Self {
        let Self([time, sector, flags]) = self;
        Self([time, sector, flags | bits])
    }

    /// Whether a `Get` includes the `Queue` of its bio, or a `Dispatch` the `Insert`.
    #[inline]
    pub const fn is_both(self) -> bool {
        let has_two = matches!(self.event_code(), GET | DISPATCH);
        self.0[2] & FLAG_BOTH != 0 && has_two
    }

    /// Whether an `Insert`, or a `Dispatch` that includes one, also includes the `Get` and the `Queue` of its bio.
    #[inline]
    pub const fn is_first(self) -> bool {
        let has_more =
            self.event_code() == INSERT || self.event_code() == DISPATCH && self.0[2] & FLAG_BOTH != 0;
        self.0[2] & FLAG_FIRST != 0 && has_more
    }
}
