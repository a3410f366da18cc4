//! The values that a read of each half of a page may return, derived from the calls alone, independent of cache and
//! device.

use std::ops::Range;

/// A half by its number: page 3 is halves 6 and 7.
pub(super) type HalfNumber = usize;

#[derive(Debug, Clone, Default)]
struct Half {
    /// `None`: unknown until a read.
    may: Option<Vec<u64>>,
    /// Truncations in flight: until they have completed, any value is valid.
    cuts: u32,
}

/// A direct write at the device.
#[derive(Debug)]
struct DirectWrite {
    number: u64,
    halves: Range<HalfNumber>,
    /// Direct writes that were in flight at the same time.
    concurrent: Vec<u64>,
}

#[derive(Debug)]
pub(super) struct Contents {
    halves: Vec<Half>,
    in_flight: Vec<DirectWrite>,
}

impl Contents {
    pub(super) fn new(halves: usize) -> Self {
        Self { halves: vec![Half { may: Some(vec![0]), cuts: 0 }; halves], in_flight: Vec::new() }
    }

    /// The oldest value that a half may have, if known.
    pub(super) fn oldest(&self, half: HalfNumber) -> Option<u64> {
        let Half { may, cuts } = &self.halves[half];
        may.as_ref().filter(|_| *cuts == 0)?.iter().copied().min()
    }

    pub(super) fn oldest_of_all(&self) -> Vec<Option<u64>> {
        (0..self.halves.len()).map(|half| self.oldest(half)).collect()
    }

    pub(super) fn accepts(&self, half: HalfNumber, value: u64) -> bool {
        let Half { may, cuts } = &self.halves[half];
        *cuts > 0 || may.as_ref().is_none_or(|may| may.contains(&value))
    }

    /// A read returns `value`. The next read must return the same unless there is a write.
    pub(super) fn observe(&mut self, half: HalfNumber, value: u64) {
        assert!(self.accepts(half, value), "half {half} reads {value}, expected: {:?}", self.halves[half]);
        if self.halves[half].may.is_none() && self.is_quiet(half) {
            self.halves[half].may = Some(vec![value]);
        }
    }

    /// A buffered write put `number` there.
    pub(super) fn write(&mut self, half: HalfNumber, number: u64) {
        self.halves[half].may = Some(vec![number]);
    }

    pub(super) fn forget(&mut self, halves: Range<HalfNumber>) {
        self.halves[halves].iter_mut().for_each(|half| half.may = None);
    }

    /// A truncation begins that drops these halves.
    pub(super) fn begin_cut(&mut self, halves: Range<HalfNumber>) {
        self.halves[halves].iter_mut().for_each(|half| half.cuts += 1);
    }

    /// Whether a truncation is in flight that drops a half.
    pub(super) fn is_cut(&self, half: HalfNumber) -> bool {
        self.halves[half].cuts > 0
    }

    /// Ends a truncation: the dropped values are no longer valid, and the new values are unknown.
    pub(super) fn end_cut(&mut self, halves: Range<HalfNumber>) {
        for half in &mut self.halves[halves] {
            half.cuts -= 1;
            half.may = None;
        }
    }

    /// Begins a direct write: from now on a read may return its value.
    pub(super) fn begin_direct(&mut self, number: u64, halves: Range<HalfNumber>) {
        let mut concurrent = Vec::new();
        for other in self.in_flight.iter_mut().filter(|other| meet(&other.halves, &halves)) {
            other.concurrent.push(number);
            concurrent.push(other.number);
        }
        for half in &mut self.halves[halves.clone()] {
            half.may.iter_mut().for_each(|may| may.push(number));
        }
        self.in_flight.push(DirectWrite { number, halves, concurrent });
    }

    /// A direct write has completed. If it succeeded, only its value and those of concurrent ones are valid.
    pub(super) fn end_direct(&mut self, number: u64, is_ok: bool) {
        let place = self.in_flight.iter().position(|write| write.number == number);
        let DirectWrite { halves, concurrent, .. } = self.in_flight.remove(place.expect("it is in flight"));
        for half in self.halves[halves].iter_mut().filter(|_| is_ok) {
            let new = std::iter::once(number).chain(concurrent.iter().copied()).collect::<Vec<_>>();
            match &mut half.may {
                Some(may) => may.retain(|value| new.contains(value)),
                None => half.may = Some(new),
            }
        }
    }

    /// The device has `value` in a half after a direct write.
    pub(super) fn determine(&mut self, half: HalfNumber, value: u64) {
        assert!(self.accepts(half, value), "half {half} holds {value}, expected: {:?}", self.halves[half]);
        if self.is_quiet(half) {
            self.halves[half].may = Some(vec![value]);
        }
    }

    fn is_quiet(&self, half: HalfNumber) -> bool {
        self.halves[half].cuts == 0 && !self.in_flight.iter().any(|write| write.halves.contains(&half))
    }
}

fn meet(a: &Range<HalfNumber>, b: &Range<HalfNumber>) -> bool {
    a.start < b.end && b.start < a.end
}
