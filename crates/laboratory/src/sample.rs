//! Samples: the rounds of one measurement.

/// Returns the value below which a part of the values lies, interpolated; not a number without
/// values.
pub(crate) fn quantile(values: &[f64], part: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = part * sorted.len().saturating_sub(1) as f64;
    let value = |at: f64| sorted.get(at as usize).copied().unwrap_or(f64::NAN);
    let (below, above) = (value(at.floor()), value(at.ceil()));
    below + (above - below) * at.fract()
}

/// Returns the middle of the values.
pub(crate) fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// A median with its spread.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Spread {
    pub low: f64,
    pub median: f64,
    pub high: f64,
    /// How many values there are.
    pub rounds: usize,
}

impl Spread {
    /// From the smallest value to the largest; `None` without values.
    pub(crate) fn of(values: &[f64]) -> Option<Spread> {
        let [low, median, high] = [0.0, 0.5, 1.0].map(|part| quantile(values, part));
        (!values.is_empty()).then_some(Spread { low, median, high, rounds: values.len() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_between_the_values() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(quantile(&[10.0, 20.0], 0.25), 12.5);
        assert!(median(&[]).is_nan());
        let spread = Spread::of(&[5.0, 7.0, 6.0]).expect("values");
        assert_eq!((spread.low, spread.median, spread.high, spread.rounds), (5.0, 6.0, 7.0, 3));
        assert_eq!(Spread::of(&[]), None);
    }
}
