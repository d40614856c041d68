//! Two samples compared: the test of Mann and Whitney, and the ratio of the medians with an
//! interval by the bootstrap.
//!
//! Neither assumes that times are normally distributed, which they are not: noise only makes them
//! longer.

use crate::random::Random;
use crate::sample::median;

/// Samples up to this size, without equal values, are compared exactly.
const EXACT: usize = 40;
/// Resamples of the bootstrap.
const RESAMPLES: usize = 10_000;
/// Part of the resampled ratios below the interval, and above it.
const TAIL: f64 = 0.025;

/// Returns the probability, if both samples are of one distribution, that they are at least as far
/// apart in rank as these (Mann and Whitney, 1947; two-sided). Exact, or for large samples and
/// those with equal values by the normal approximation. 1 for an empty sample.
pub(crate) fn probability(a: &[f64], b: &[f64]) -> f64 {
    let (n, m) = (a.len(), b.len());
    if n == 0 || m == 0 {
        return 1.0;
    }
    let (u, ties) = count(a, b);
    let pairs = (n * m) as f64;
    let u = u.min(pairs - u);
    if ties == 0.0 && n <= EXACT && m <= EXACT {
        return (2.0 * exact(n, m, u as usize)).min(1.0);
    }
    let all = (n + m) as f64;
    let variance = pairs / 12.0 * (all + 1.0 - ties / (all * (all - 1.0)));
    if variance <= 0.0 {
        return 1.0;
    }
    // Half a pair towards the middle, as the ranks are whole numbers.
    let z = ((pairs / 2.0 - u - 0.5) / variance.sqrt()).max(0.0);
    (2.0 * above(z)).min(1.0)
}

/// Returns in how many pairs the value of `a` is the larger one, equal ones counted half; and the
/// sum of t³ − t over the groups of t equal values.
fn count(a: &[f64], b: &[f64]) -> (f64, f64) {
    let larger = |x: f64, y: f64| if x > y { 1.0 } else { f64::from(u8::from(x == y)) / 2.0 };
    let u = a.iter().map(|x| b.iter().map(|y| larger(*x, *y)).sum::<f64>()).sum();
    let mut all: Vec<f64> = a.iter().chain(b).copied().collect();
    all.sort_by(f64::total_cmp);
    let groups = all.chunk_by(|x, y| x == y).map(|group| group.len() as f64);
    (u, groups.map(|t| t * t * t - t).sum())
}

/// Returns the probability of at most `u` pairs, if all orders of the values are equally likely.
fn exact(n: usize, m: usize, u: usize) -> f64 {
    // ways[i][k]: orders of i values of the one sample and j of the other with k pairs; the largest
    // value is of the first sample, and above all j, or of the second one.
    let most = n * m;
    let mut ways = vec![vec![0.0; most + 1]; n + 1];
    ways.iter_mut().for_each(|row| row[0] = 1.0);
    for j in 1..=m {
        for i in 1..=n {
            for k in (j..=i * j).rev() {
                // Not updated yet for this j: the row of i; updated: that of i - 1.
                ways[i][k] += ways[i - 1][k - j];
            }
        }
    }
    let total: f64 = ways[n].iter().sum();
    ways[n].iter().take(u + 1).sum::<f64>() / total
}

/// Returns the part of the standard normal distribution above `z`, which is not negative
/// (Abramowitz and Stegun, 7.1.26; absolute error below 2e-7).
fn above(z: f64) -> f64 {
    let x = z / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let terms = [1.061_405_429, -1.453_152_027, 1.421_413_741, -0.284_496_736, 0.254_829_592];
    let sum = terms.iter().fold(0.0, |sum, term| (sum + term) * t);
    sum * (-x * x).exp() / 2.0
}

/// Returns the ratio of the medians of `b` and `a`, and the interval in which it is with 95 % of
/// the resamples (Efron, 1979). The same for the same samples.
pub(crate) fn ratio(a: &[f64], b: &[f64]) -> (f64, [f64; 2]) {
    let of = |a: &[f64], b: &[f64]| median(b) / median(a);
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let mut resample = |from: &[f64]| -> Vec<f64> {
        (0..from.len()).map(|_| from[random.below(from.len() as u64) as usize]).collect()
    };
    let mut ratios: Vec<f64> = (0..RESAMPLES)
        .map(|_| of(&resample(a), &resample(b)))
        .filter(|it| it.is_finite())
        .collect();
    ratios.sort_by(f64::total_cmp);
    let at = |part: f64| {
        let last = ratios.len().saturating_sub(1);
        ratios.get((part * last as f64).round() as usize).copied().unwrap_or(f64::NAN)
    };
    (of(a, b), [at(TAIL), at(1.0 - TAIL)])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64, within: f64) {
        assert!((a - b).abs() < within, "{a} is not {b}");
    }

    /// Of all orders of two samples, as many are this far apart as the test says.
    #[test]
    fn exact_probabilities_are_those_of_all_orders() {
        for (n, m) in [(1_usize, 1_usize), (2, 3), (4, 4), (5, 5), (3, 6)] {
            let all: Vec<f64> = (0..n + m).map(|value| value as f64).collect();
            let splits: Vec<[Vec<f64>; 2]> = (0_u32..1 << (n + m))
                .filter(|set| set.count_ones() as usize == n)
                .map(|set| {
                    let of = |one: bool| {
                        all.iter()
                            .copied()
                            .filter(|it| (set >> *it as u32 & 1 == 1) == one)
                            .collect()
                    };
                    [of(true), of(false)]
                })
                .collect();
            let extreme = |[a, b]: &[Vec<f64>; 2]| {
                let (u, _) = count(a, b);
                u.min((n * m) as f64 - u)
            };
            for split in &splits {
                let as_far = splits.iter().filter(|it| extreme(it) <= extreme(split)).count();
                let expected = as_far as f64 / splits.len() as f64;
                close(probability(&split[0], &split[1]), expected, 1e-9);
            }
        }
    }

    #[test]
    fn probabilities_of_tables() {
        // Two samples of five that do not overlap: 2 of 252 orders.
        let (low, high) = ([1.0, 2.0, 3.0, 4.0, 5.0], [6.0, 7.0, 8.0, 9.0, 10.0]);
        close(probability(&low, &high), 2.0 / 252.0, 1e-12);
        close(probability(&low, &low), 1.0, 1e-6);
        assert_eq!(probability(&[], &low), 1.0);
        assert_eq!(probability(&[3.0; 5], &[3.0; 5]), 1.0);
        close(above(1.959_964), 0.025, 1e-6);
        close(above(0.0), 0.5, 1e-6);
        // The approximation agrees with the exact value where both can be had.
        let a: Vec<f64> = (0..30).map(|n| f64::from(n * 2)).collect();
        let b: Vec<f64> = (0..30).map(|n| f64::from(n * 2) + 17.0).collect();
        let mut tied = b.clone();
        tied[29] = tied[28];
        close(probability(&a, &b), probability(&a, &tied), 0.003);
    }

    #[test]
    fn an_interval_has_the_ratio_in_it() {
        let a: Vec<f64> = (0..9).map(|n| 100.0 + f64::from(n * 7 % 9)).collect();
        let b: Vec<f64> = a.iter().map(|value| value * 1.25).collect();
        let (middle, [low, high]) = ratio(&a, &b);
        close(middle, 1.25, 1e-9);
        assert!(low < 1.25 && high > 1.25 && low > 1.1 && high < 1.4, "{low} {high}");
        assert_eq!(ratio(&a, &b), ratio(&a, &b));
        let (same, [low, high]) = ratio(&[2.0], &[2.0]);
        assert_eq!((same, low, high), (1.0, 1.0, 1.0));
    }
}
