//! Scales of axes, linear and logarithmic.

/// A scale from values to pixels.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Scale {
    pub is_log: bool,
    low: f64,
    high: f64,
    /// Pixels of `low` and `high`.
    from: f64,
    to: f64,
}

impl Scale {
    /// A scale of amounts: from 0, or logarithmic if they span more than `log_over` times.
    pub(super) fn of_amounts(values: &[f64], log_over: f64, from: f64, to: f64) -> Scale {
        let positive = values.iter().copied().filter(|it| it.is_finite() && *it > 0.0);
        let (low, high) =
            positive.fold((f64::INFINITY, 0.0_f64), |(low, high), it| (low.min(it), high.max(it)));
        if high <= 0.0 {
            return Scale { is_log: false, low: 0.0, high: 1.0, from, to };
        }
        if high / low > log_over {
            let (low, high) = (nice_below(low * 0.9), high * 1.1);
            return Scale { is_log: true, low, high, from, to };
        }
        Scale { is_log: false, low: 0.0, high: high * 1.04, from, to }
    }

    /// A scale of positions: no wider than they are, logarithmic if they span more than
    /// `log_over` times.
    pub(super) fn of_positions(values: &[f64], log_over: f64, from: f64, to: f64) -> Scale {
        let finite = values.iter().copied().filter(|it| it.is_finite());
        let (low, high) = finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), it| {
            (low.min(it), high.max(it))
        });
        if low > high {
            return Scale { is_log: false, low: 0.0, high: 1.0, from, to };
        }
        if low == high {
            return Scale { is_log: false, low: low - 1.0, high: high + 1.0, from, to };
        }
        Scale { is_log: low > 0.0 && high / low > log_over, low, high, from, to }
    }

    /// Returns the pixel of a value, within the scale.
    pub(super) fn at(&self, value: f64) -> f64 {
        let of = |it: f64| if self.is_log { it.max(f64::MIN_POSITIVE).log10() } else { it };
        let part = (of(value) - of(self.low)) / (of(self.high) - of(self.low));
        let part = if part.is_finite() { part.clamp(0.0, 1.0) } else { 0.0 };
        self.from + part * (self.to - self.from)
    }

    /// Returns the values to mark.
    pub(super) fn ticks(&self) -> Vec<f64> {
        let within = |it: &f64| *it >= self.low * (1.0 - 1e-9) && *it <= self.high * (1.0 + 1e-9);
        if self.is_log {
            let [low, high] = [self.low, self.high].map(|it| it.log10());
            let decades = low.floor() as i32..=high.ceil() as i32;
            let steps: &[f64] = if high - low < 2.5 { &[1.0, 2.0, 5.0] } else { &[1.0] };
            let each =
                decades.flat_map(|power| steps.iter().map(move |it| it * 10_f64.powi(power)));
            return each.filter(within).collect();
        }
        let step = nice_above((self.high - self.low) / 6.0);
        let first = (self.low / step).ceil();
        (0..20).map(|n| (first + f64::from(n)) * step).filter(|it| *it <= self.high).collect()
    }
}

/// Returns the next of 1, 2, 5, 10, … from the value on.
fn nice_above(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0];
    steps.into_iter().map(|it| it * power).find(|it| *it >= value * 0.999).unwrap_or(value)
}

/// Returns the last of 1, 2, 5, 10, … up to the value.
fn nice_below(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    let steps = [5.0, 2.0, 1.0];
    steps.into_iter().map(|it| it * power).find(|it| *it <= value).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_is_logarithmic_where_values_are_far_apart() {
        let linear = Scale::of_amounts(&[1.0, 20.0], 30.0, 0.0, 100.0);
        assert!(!linear.is_log && linear.at(0.0) == 0.0 && linear.ticks()[0] == 0.0);
        let log = Scale::of_amounts(&[3.0, 3000.0, 0.0], 30.0, 0.0, 100.0);
        assert!(log.is_log && log.at(3.0) > 0.0 && log.at(0.0) == 0.0);
        assert_eq!(log.ticks(), [10.0, 100.0, 1000.0]);
        assert!(log.at(30.0) < log.at(300.0));
    }

    #[test]
    fn nothing_and_nonsense_have_a_scale() {
        for values in [&[][..], &[0.0], &[f64::NAN], &[f64::INFINITY], &[5.0]] {
            for scale in [
                Scale::of_amounts(values, 30.0, 10.0, 90.0),
                Scale::of_positions(values, 20.0, 10.0, 90.0),
            ] {
                for value in [0.0, 5.0, f64::NAN, f64::INFINITY, -1.0] {
                    let at = scale.at(value);
                    assert!((10.0..=90.0).contains(&at), "{at}");
                }
                assert!(scale.ticks().len() < 20);
            }
        }
    }
}
