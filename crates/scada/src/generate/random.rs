//! Random numbers that are the same for the same seed, in every version of every library.

/// SplitMix64: small, and good enough for a simulation.
#[derive(Debug, Clone)]
pub(super) struct Random {
    state: u64,
    /// The second of a pair of normal numbers.
    spare: Option<f64>,
}

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random { state: seed, spare: None }
    }

    fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 up to, and without, 1.
    pub(super) fn unit(&mut self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
        let fraction = (self.bits() >> 11) as f64;
        fraction / (1_u64 << 53) as f64
    }

    /// True with this probability.
    pub(super) fn happens(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// A normal number with mean 0 and deviation 1, by Box and Muller.
    pub(super) fn gauss(&mut self) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        // The logarithm wants a number above 0.
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        let angle = std::f64::consts::TAU * self.unit();
        self.spare = Some(radius * angle.sin());
        radius * angle.cos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_numbers_have_their_mean_and_deviation() {
        let mut random = Random::new(7);
        let numbers: Vec<f64> = (0..100_000).map(|_| random.gauss()).collect();
        let mean = numbers.iter().sum::<f64>() / 1e5;
        let variance = numbers.iter().map(|n| (n - mean).powi(2)).sum::<f64>() / 1e5;
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.02, "{mean} {variance}");
    }
}
