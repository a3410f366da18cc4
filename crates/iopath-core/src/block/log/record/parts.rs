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
/// In a `Get` or `Insert`: the request was alone in the plug, and the record includes the `Plug`, and the `Unplug` of
/// one request, after the `Get`. No other `Get` or `Insert` has both bits.
const ALONE: u64 = FLAG_BOTH | FLAG_FIRST;
/// The code of a `Dispatch` that includes all steps of a request that was alone in the plug. It has both bits of
/// [`ALONE`]. No step has this code.
const DISPATCH_ALONE: u8 = 20;

/// The bits that identify the event and its subject.
const IDENTITY: u64 = FLAG_BOTH | SUBJECT;
/// The bits that identify the event without its flags, and its subject.
const SUBJECT: u64 = FLAG_REQUEST | EVENT | low(24);
const EVENT: u64 = 31 << 48;
const OTHER: u64 = low(24) << 24;
const REASON: u64 = 15 << 56;

const GET: u8 = Event::Get.code();
const PLUG: u8 = Event::Plug.code();
const UNPLUG: u8 = Event::Unplug.code();
const INSERT: u8 = Event::Insert.code();
const DISPATCH: u8 = Event::Dispatch.code();

const fn code_bits(code: u8) -> u64 {
    (code as u64) << 48
}

impl Record {
    /// The `Get` combined with the `Queue` of its bio.
    #[inline]
    pub(in crate::block::log) const fn and_queue(self) -> Self {
        self.with(FLAG_BOTH)
    }

    /// Adds an `Insert` without a reason to the `Dispatch` of a request.
    pub(in crate::block::log) const fn and_insert(self) -> Self {
        self.with(FLAG_BOTH)
    }

    /// Adds the `Queue` of the bio `other`, the `Get` and an `Insert` without a reason to the `Dispatch` of a request.
    #[must_use]
    pub const fn and_all_before(self) -> Self {
        self.with(FLAG_BOTH | FLAG_FIRST)
    }

    /// Adds an `Insert` to this record, if this is the `Get` of request `tag` combined with a `Queue`. Returns whether
    /// it did.
    #[inline]
    pub(in crate::block::log) fn became_insert(&mut self, tag: u32, reason: NoMerge) -> bool {
        let is_match = self.is(event_bits(Event::Get) | FLAG_BOTH | FLAG_REQUEST | u64::from(tag));
        if is_match {
            let flags = if self.0[2] & ALONE == ALONE { 0 } else { FLAG_BOTH ^ FLAG_FIRST };
            let changed = event_bits(Event::Get) ^ event_bits(Event::Insert) ^ flags;
            self.0[2] ^= changed | u64::from(reason.code()) << 56;
        }
        is_match
    }

    /// Adds a `Plug` of request `tag`, and the `Unplug` of this one request, to this record, if this is the `Get` of
    /// the request combined with a `Queue`.
    #[inline]
    pub(in crate::block::log) const fn became_alone(&mut self) {
        self.0[2] |= ALONE;
    }

    /// Whether this is the `Get` of request `tag` combined with a `Queue`, and nothing else.
    #[inline]
    pub(in crate::block::log) const fn is_got(self, tag: u32) -> bool {
        self.is(event_bits(Event::Get) | FLAG_BOTH | FLAG_REQUEST | tag as u64) && self.0[2] & ALONE != ALONE
    }

    /// The `Plug` of the request of this record, at the time of this record.
    pub(in crate::block::log) const fn plug(self) -> Self {
        self.without(ALONE | EVENT | OTHER | REASON).with(event_bits(Event::Plug))
    }

    /// Adds a `Dispatch` to this record, if this is the `Insert` of request `tag`. Returns whether it did.
    #[inline]
    pub(in crate::block::log) fn became_dispatch(&mut self, tag: u32) -> bool {
        let is_match = self.0[2] & SUBJECT == event_bits(Event::Insert) | FLAG_REQUEST | u64::from(tag);
        if is_match {
            let is_alone = self.0[2] & ALONE == ALONE;
            let code = if is_alone { DISPATCH_ALONE } else { DISPATCH };
            let flags = if is_alone { 0 } else { FLAG_BOTH };
            self.0[2] ^= event_bits(Event::Insert) ^ code_bits(code) ^ flags;
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

    /// Whether the request of a `Get`, `Insert` or `Dispatch` was alone in the plug: the record includes its `Plug`,
    /// and the `Unplug` of one request.
    #[inline]
    pub const fn is_alone(self) -> bool {
        self.0[2] & ALONE == ALONE && matches!(self.event_code(), GET | INSERT | DISPATCH_ALONE)
    }

    /// The record without its `Plug` and `Unplug`, if it includes them.
    #[inline]
    #[must_use]
    pub const fn without_plug(self) -> Self {
        if !self.is_alone() {
            return self;
        }
        match self.event_code() {
            GET => self.without(FLAG_FIRST),
            INSERT => self.without(FLAG_BOTH),
            _ => self.without(EVENT).with(event_bits(Event::Dispatch)),
        }
    }

    /// The steps of the record, in order: one, or several at the same time.
    ///
    /// With [`Record::is_both`], a `Get` includes the `Queue` of its bio, and a `Dispatch` includes the `Insert`. With
    /// [`Record::is_first`], an `Insert` or `Dispatch` includes the `Get` and the `Queue` of its bio. With
    /// [`Record::is_alone`], `Plug` and `Unplug` follow the `Get`.
    #[inline]
    pub fn parts(self) -> impl Iterator<Item = Self> {
        let is_alone = self.is_alone();
        self.without_plug().parts_without_plug(is_alone)
    }

    /// The steps of this record, and those of a plug that held only its request if `is_alone`.
    fn parts_without_plug(self, is_alone: bool) -> impl Iterator<Item = Self> {
        let is_both = self.is_both();
        let is_first = self.is_first();
        let is_get = self.event_code() == GET;
        let is_inserted = is_both && !is_get;
        let mut of_others = if is_both { FLAG_BOTH } else { 0 };
        of_others |= if is_first { FLAG_FIRST | OTHER } else { 0 } | if is_inserted { REASON } else { 0 };
        let last = self.without(of_others);
        let common = last.without(IDENTITY | OTHER | REASON);
        let request = u64::from(self.tag()) | FLAG_REQUEST;
        let bio = u64::from(self.other());
        let queue = common.with(event_bits(Event::Queue) | bio);
        let get = common.with(event_bits(Event::Get) | request | bio << 24);
        let insert = common.with(event_bits(Event::Insert) | request | self.0[2] & REASON);
        // A `Get` that is the last step precedes its plug.
        let [before, after] = if is_get { [Some(last), None] } else { [None, Some(last)] };
        let parts = [
            (is_first || is_both && is_get).then_some(queue),
            is_first.then_some(get).or(before),
            is_alone.then_some(self.plug()),
            is_alone.then_some(self.unplug_of_one()),
            is_inserted.then_some(insert),
            after,
        ];
        parts.into_iter().flatten()
    }

    /// The `Unplug` of one request, at the time of this record.
    const fn unplug_of_one(self) -> Self {
        let Self([time, ..]) = self;
        Self([time & low(Self::TIME_BITS), 0, event_bits(Event::Unplug) | Self::NO_TAG as u64 | 1 << 24])
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
