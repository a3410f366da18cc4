//! Synthetic repetitions for tests of the statistics: the noise of storage, from a seed.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::RngCore;

use crate::random::generator;

/// A kind of noise around a throughput of 100.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Noise {
    /// Normal, with a standard deviation of 5%.
    Gaussian,
    /// Log-normal, with a deviation of 0.2 of the logarithm: a long tail.
    LogNormal,
    /// Normal with 3%; one repetition in ten stalls and reaches 80% of the throughput.
    Outliers,
    /// Normal with 3%, and a decline by 5% in the first repetitions, the same in both samples.
    Trend,
    /// Student's t distribution with 3 degrees of freedom, 3%: heavy tails on both sides.
    HeavyTails,
    /// Normal with 3%; one repetition in fifty takes 3 to 10 times as long.
    Stalls,
    /// Normal with 2% around two levels: three repetitions in ten reach 85%.
    Bimodal,
    /// Log-normal; the deviation of the second sample is 0.1, that of the first 0.02.
    Unequal,
}

/// Every kind.
pub const KINDS: [Noise; 8] = [
    Noise::Gaussian,
    Noise::LogNormal,
    Noise::Outliers,
    Noise::Trend,
    Noise::HeavyTails,
    Noise::Stalls,
    Noise::Bimodal,
    Noise::Unequal,
];

impl Noise {
    /// Whether single repetitions take several times as long as the others.
    pub fn has_stalls(self) -> bool {
        matches!(self, Self::Outliers | Self::Stalls)
    }

    /// Two samples with these numbers of repetitions. The second one is `change` times as large.
    pub fn samples(self, seed: u64, repetitions: [usize; 2], change: f64) -> Vec<Vec<f64>> {
        let mut generator = generator(seed, [self as u64, 1]);
        let mut sample = |index: usize, scale: f64| -> Vec<f64> {
            (0..repetitions[index])
                .map(|repetition| 100.0 * scale * self.factor(&mut generator, index, repetition))
                .collect()
        };
        vec![sample(0, 1.0), sample(1, change)]
    }

    fn factor(self, generator: &mut Xoshiro256PlusPlus, sample: usize, repetition: usize) -> f64 {
        let noise = normal(generator);
        match self {
            Self::Gaussian => 1.0 + 0.05 * noise,
            Self::LogNormal => (0.2 * noise).exp(),
            Self::Outliers if uniform(generator) < 0.1 => 0.8 * (1.0 + 0.03 * noise),
            Self::Outliers => 1.0 + 0.03 * noise,
            Self::Trend => (1.0 + 0.03 * noise) * (0.95 + 0.05 * (-(repetition as f64) / 3.0).exp()),
            Self::HeavyTails => {
                let squares: f64 = (0..3).map(|_| normal(generator).powi(2)).sum();
                1.0 + 0.03 * noise / (squares / 3.0).sqrt()
            }
            Self::Stalls => (1.0 + 0.03 * noise) / stall(generator),
            Self::Bimodal => (1.0 + 0.02 * noise) * if uniform(generator) < 0.3 { 0.85 } else { 1.0 },
            // A geometric mean of 1, so that the true ratio is exactly the change.
            Self::Unequal => ([0.02, 0.10][sample] * noise).exp(),
        }
        .max(0.01)
    }
}

/// The factor by which a repetition takes longer: 3 to 10 for one in fifty, and 1 for the others.
pub fn stall(generator: &mut Xoshiro256PlusPlus) -> f64 {
    let (event, length) = (uniform(generator), uniform(generator));
    if event < 0.02 { 3.0 + 7.0 * length } else { 1.0 }
}

/// A number from 0 to 1, both excluded.
pub fn uniform(generator: &mut Xoshiro256PlusPlus) -> f64 {
    ((generator.next_u64() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
}

/// A number of the standard normal distribution (Box and Muller, 1958).
pub fn normal(generator: &mut Xoshiro256PlusPlus) -> f64 {
    let radius = (-2.0 * uniform(generator).ln()).sqrt();
    radius * (std::f64::consts::TAU * uniform(generator)).cos()
}
