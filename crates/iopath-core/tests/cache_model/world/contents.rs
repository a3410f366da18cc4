//! What a read of each half of a page may give, told from the calls alone. Knows neither the cache nor the device.

use std::ops::Range;

/// A half by its number: page 3 is halves 6 and 7.
pub(super) type HalfNumber = usize;

#[derive(Debug, Clone, Default)]
struct Half {
    /// `None`: nobody knows, until somebody looks.
    may: Option<Vec<u64>>,
    /// Truncations in flight: until they have completed anything goes.
    cuts: u32,
}

/// A direct write at the device.
#[derive(Debug)]
struct DirectWrite {
    number: u64,
    halves: Range<HalfNumber>,
    /// Those that were at the device together with it.
    beside: Vec<u64>,
}

#[derive(Debug)]
pub(super) struct Contents {
    halves: Vec<Half>,
    at_device: Vec<DirectWrite>,
}

impl Contents {
    pub(super) fn new(halves: usize) -> Self {
        Self { halves: vec![Half { may: Some(vec![0]), cuts: 0 }; halves], at_device: Vec::new() }
    }

    /// The oldest that a half may hold, if that is known.
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

    /// A read gives `value`. Whoever looks next must see the same, if nobody writes.
    pub(super) fn look(&mut self, half: HalfNumber, value: u64) {
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

    /// A truncation begins that gives these halves up.
    pub(super) fn begin_cut(&mut self, halves: Range<HalfNumber>) {
        self.halves[halves].iter_mut().for_each(|half| half.cuts += 1);
    }

    /// Whether a truncation is in flight that gives a half up.
    pub(super) fn is_cut(&self, half: HalfNumber) -> bool {
        self.halves[half].cuts > 0
    }

    /// What was given up is not there any more; what is, is not known yet.
    pub(super) fn end_cut(&mut self, halves: Range<HalfNumber>) {
        for half in &mut self.halves[halves] {
            half.cuts -= 1;
            half.may = None;
        }
    }

    /// A direct write is at the device: from now on a read may give it.
    pub(super) fn begin_direct(&mut self, number: u64, halves: Range<HalfNumber>) {
        let mut beside = Vec::new();
        for other in self.at_device.iter_mut().filter(|other| meet(&other.halves, &halves)) {
            other.beside.push(number);
            beside.push(other.number);
        }
        for half in &mut self.halves[halves.clone()] {
            half.may.iter_mut().for_each(|may| may.push(number));
        }
        self.at_device.push(DirectWrite { number, halves, beside });
    }

    /// A direct write has completed. If it went well, only it and those beside it can be there.
    pub(super) fn end_direct(&mut self, number: u64, is_ok: bool) {
        let place = self.at_device.iter().position(|write| write.number == number);
        let DirectWrite { halves, beside, .. } = self.at_device.remove(place.expect("it is at the device"));
        for half in self.halves[halves].iter_mut().filter(|_| is_ok) {
            let new = std::iter::once(number).chain(beside.iter().copied()).collect::<Vec<_>>();
            match &mut half.may {
                Some(may) => may.retain(|value| new.contains(value)),
                None => half.may = Some(new),
            }
        }
    }

    /// Nothing is on its way to a half: `value` is what it holds.
    pub(super) fn settle(&mut self, half: HalfNumber, value: u64) {
        assert!(self.accepts(half, value), "half {half} holds {value}, expected: {:?}", self.halves[half]);
        if self.is_quiet(half) {
            self.halves[half].may = Some(vec![value]);
        }
    }

    fn is_quiet(&self, half: HalfNumber) -> bool {
        self.halves[half].cuts == 0 && !self.at_device.iter().any(|write| write.halves.contains(&half))
    }
}

fn meet(a: &Range<HalfNumber>, b: &Range<HalfNumber>) -> bool {
    a.start < b.end && b.start < a.end
}
