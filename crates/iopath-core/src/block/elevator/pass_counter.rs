//! Counts how often requests were passed by later ones. Independent of sectors and time.

/// Numbers requests in the order of arrival and counts departures.
///
/// When n + k requests have departed and request n is still queued, at least k of them arrived after request n. So
/// request n has been passed k times, plus once for each older request that is still queued.
#[derive(Debug, Default)]
pub(super) struct PassCounter {
    arrived: u64,
    departed: u64,
}

impl PassCounter {
    /// Counts an arrival; returns its number.
    pub(super) fn arrive(&mut self) -> u64 {
        let number = self.arrived;
        self.arrived += 1;
        number
    }

    /// Counts a departure.
    pub(super) fn depart(&mut self) {
        self.departed += 1;
    }

    /// Counts a merge: an arrival that passes all queued requests.
    pub(super) fn pass(&mut self) {
        self.arrived += 1;
        self.departed += 1;
    }

    /// The number of departures at which request `number` has no allowance left; `None` if fewer requests have
    /// departed.
    pub(super) fn due(&self, number: u64, allowance: u64) -> Option<u64> {
        let due = number + allowance;
        (due <= self.departed).then_some(due)
    }
}
