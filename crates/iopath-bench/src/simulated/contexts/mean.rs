//! The weighted means of CFQ (`cfq_update_io_thinktime`, `cfq_update_io_seektime`): a new value has an eighth of the
//! weight. In whole numbers, as in the kernel.

/// A mean. It is known from the third value on.
#[derive(Debug, Default)]
pub(super) struct Mean {
    samples: u64,
    total: u64,
}

impl Mean {
    pub(super) const fn add(&mut self, value: u64) {
        self.samples = (7 * self.samples + 256) / 8;
        self.total = (7 * self.total + 256 * value) / 8;
    }

    /// The mean, if it is known: `sample_valid` of the kernel.
    pub(super) const fn value(&self) -> Option<u64> {
        if self.samples > 80 { Some((self.total + self.samples / 2) / self.samples) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_is_known_from_three_values_on_and_follows_new_values() {
        let mut mean = Mean::default();
        for value in [6, 6] {
            mean.add(value);
            assert_eq!(mean.value(), None);
        }
        mean.add(6);
        assert_eq!(mean.value(), Some(6));
        for _ in 0..20 {
            mean.add(0);
        }
        assert_eq!(mean.value(), Some(0));
    }
}
