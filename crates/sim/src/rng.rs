//! The random numbers of the simulator: SplitMix64, twenty lines, the same on every machine and for
//! ever, so that a seed printed today replays next year.

/// A seeded generator.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// The generator of a seed.
    pub fn new(seed: u64) -> Rng {
        Rng { state: seed }
    }

    /// A generator of its own for part `tag` of this one's work: what that part draws does not
    /// shift what the others draw.
    pub fn fork(&self, tag: u64) -> Rng {
        let mut rng = Rng::new(self.state ^ tag.wrapping_mul(0xA24B_AED4_963E_E407));
        rng.next();
        rng
    }

    /// 64 random bits. (Not an iterator: it never ends and is called from everywhere.)
    #[expect(clippy::should_implement_trait)]
    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number in `0..n`; 0 when `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        if n == 0 { 0 } else { ((u128::from(self.next()) * u128::from(n)) >> 64) as u64 }
    }

    /// A number in `low..=high`.
    pub fn range(&mut self, low: u64, high: u64) -> u64 {
        assert!(low <= high);
        low + self.below(high - low + 1)
    }

    /// True in `percent` of 100 cases.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of `items`.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        assert!(!items.is_empty());
        &items[self.below(items.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_always_draws_the_same() {
        let mut rng = Rng::new(42);
        assert_eq!(rng.next(), 0xBDD7_3226_2FEB_6E95);
        let draws: Vec<u64> = (0..5).map(|_| rng.range(3, 9)).collect();
        let mut again = Rng::new(42);
        again.next();
        assert_eq!(draws, (0..5).map(|_| again.range(3, 9)).collect::<Vec<_>>());
        assert!(draws.iter().all(|d| (3..=9).contains(d)));
    }

    #[test]
    fn forks_differ_from_each_other() {
        let rng = Rng::new(1);
        assert_ne!(rng.fork(1).next(), rng.fork(2).next());
    }
}
