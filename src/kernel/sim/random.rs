//! A deterministic random generator: the same seed gives the same sequence on every machine.

/// A pseudo-random generator (splitmix64), for simulations and tests. Not for secrets.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator that starts from `seed`.
    pub const fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// The next 64 random bits.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 to `bound - 1`, or 0 if `bound` is 0. The slight bias of the remainder does
    /// not matter here.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.number() % bound }
    }

    /// An index into a list of `len` elements, or 0 if `len` is 0.
    pub fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap_or(0)
    }

    /// One element of a list.
    ///
    /// # Panics
    ///
    /// The list is empty.
    pub fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.index(list.len())]
    }

    /// True with a probability of `per_mille` in a thousand. Draws no number if that is 0, so that
    /// a fault that is switched off does not change the rest of a run.
    pub fn chance(&mut self, per_mille: u16) -> bool {
        per_mille > 0 && self.below(1000) < u64::from(per_mille)
    }

    /// Puts a list in a random order.
    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for last in (1..list.len()).rev() {
            let other = self.index(last + 1);
            list.swap(last, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_determines_the_sequence() {
        let (mut a, mut b, mut c) = (Rng::new(7), Rng::new(7), Rng::new(8));
        let first: Vec<u64> = (0..8).map(|_| a.number()).collect();
        assert_eq!(first, (0..8).map(|_| b.number()).collect::<Vec<_>>());
        assert_ne!(first, (0..8).map(|_| c.number()).collect::<Vec<_>>());
    }

    #[test]
    fn numbers_stay_within_their_bounds() {
        let mut rng = Rng::new(1);
        assert!((0..1000).all(|_| rng.below(3) < 3 && rng.index(2) < 2));
        assert_eq!((rng.below(0), rng.index(0)), (0, 0));
        assert!(!rng.chance(0) && rng.chance(1000));
        let mut list: Vec<u32> = (0..50).collect();
        rng.shuffle(&mut list);
        assert!(!list.is_sorted());
        list.sort_unstable();
        assert_eq!(list, (0..50).collect::<Vec<_>>());
    }
}
