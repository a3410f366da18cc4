//! Garbage collection as a cost: how many pages a die copies for each page the host writes, and when it erases. Analytic;
//! no page is mapped.
//!
//! In the steady state of uniformly random writes, the block with the fewest valid pages has a share `p` of them with
//! `p = exp(-a (1 - p))`, where `a` is physical over valid space; each page freed costs `1 / (1 - p)` programs. That is the
//! form of X. Xiang and B. Kurkoski (2012) and P. Desnoyers (2014) for greedy collection of large blocks. Writes that
//! continue one of the last streams invalidate whole blocks and cost no copy.

use crate::flash::spec::Spec;
use crate::mechanism::Nanos;

/// Streams of writes that are recognised at a time.
const STREAMS: usize = 8;

/// Fractions of a copy.
const ONE: u64 = 1 << 16;

/// The collector's work.
#[derive(Debug)]
pub(crate) struct Collector {
    /// Copies for each unit written at random.
    copies: u64,
    unit_bytes: u64,
    copy: Nanos,
    erase: Nanos,
    units_per_block: u32,
    due_copies: u64,
    units: u32,
    ends: [u64; STREAMS],
    oldest: usize,
}

impl Collector {
    pub(crate) fn new(spec: &Spec) -> Self {
        Self {
            copies: ((spec.amplification - 1.0) * ONE as f64).round() as u64,
            unit_bytes: spec.unit_bytes,
            copy: spec.read + spec.program,
            erase: spec.erase,
            units_per_block: spec.units_per_block,
            due_copies: 0,
            units: 0,
            ends: [u64::MAX; STREAMS],
            oldest: 0,
        }
    }

    /// Whether a write continues a stream; it is the end of one from now on.
    pub(crate) fn is_sequential(&mut self, start: u64, end: u64) -> bool {
        if let Some(stream) = self.ends.iter_mut().find(|stream| **stream == start) {
            *stream = end;
            return true;
        }
        self.ends[self.oldest] = end;
        self.oldest = (self.oldest + 1) % STREAMS;
        false
    }

    /// The further work of a die after it has programmed a unit of which so many bytes were written at random.
    pub(crate) fn after_program(&mut self, random_bytes: u64) -> Nanos {
        self.due_copies += self.copies * random_bytes / self.unit_bytes;
        let copies = self.due_copies / ONE;
        self.due_copies %= ONE;
        self.units += 1 + copies as u32;
        let erases = self.units / self.units_per_block;
        self.units %= self.units_per_block;
        copies * self.copy + u64::from(erases) * self.erase
    }
}

/// Programs for each page that the host writes at random; `spare` is physical over valid space, more than 1.
pub(crate) fn write_amplification(spare: f64) -> f64 {
    // p - exp(-a (1 - p)) is negative below the root and positive between it and 1, which is no solution of interest.
    let (mut low, mut high) = (0.0, 1.0 - 1e-9);
    let mut step = 0;
    while step < 100 {
        let middle = f64::midpoint(low, high);
        if middle - exp_negative(spare * (1.0 - middle)) < 0.0 {
            low = middle;
        } else {
            high = middle;
        }
        step += 1;
    }
    1.0 / (1.0 - low)
}

/// `exp(-x)` for `x` of 0 or more. Only exact operations: the same bits on every machine.
fn exp_negative(x: f64) -> f64 {
    let mut halvings = 0;
    let mut part = x;
    while part > 0.5 {
        part *= 0.5;
        halvings += 1;
    }
    let (mut term, mut sum, mut n) = (1.0, 1.0, 1.0);
    while n < 24.0 {
        term *= -part / n;
        sum += term;
        n += 1.0;
    }
    for _ in 0..halvings {
        sum *= sum;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exponential_is_right_to_the_last_digits() {
        for x in [0.0_f64, 0.1, 0.5, 1.0, 3.3, 20.0] {
            assert!((exp_negative(x) / (-x).exp() - 1.0).abs() < 1e-12, "{x}");
        }
    }

    #[test]
    fn amplification_grows_as_the_spare_space_shrinks() {
        // Solved by hand with the series of the exponential.
        for (spare, expected) in [(1.07, 7.82), (1.28, 2.48), (2.0, 1.255)] {
            let got = write_amplification(spare);
            assert!((got / expected - 1.0_f64).abs() < 0.005, "{spare}: {got}");
        }
        assert!(write_amplification(50.0) < 1.001);
    }

    #[test]
    fn a_write_that_continues_one_of_the_last_streams_is_sequential() {
        let spec = Spec::for_tests();
        let mut collector = Collector::new(&spec);
        for stream in 0..STREAMS as u64 {
            assert!(!collector.is_sequential(stream * 1000, stream * 1000 + 8));
        }
        for stream in 0..STREAMS as u64 {
            assert!(collector.is_sequential(stream * 1000 + 8, stream * 1000 + 16));
        }
        assert!(
            !collector.is_sequential(77, 99) && !collector.is_sequential(16, 24),
            "the oldest is forgotten"
        );
    }
}
