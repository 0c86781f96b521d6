//! The chi-squared test of goodness of fit.

/// Returns the probability that a chi-squared variable with `degrees` degrees of freedom exceeds `statistic`: the p-value
/// of the test. The finite series are those of Abramowitz and Stegun: 26.4.4 for an odd number of degrees of freedom, and
/// 26.4.5 for an even one.
pub(crate) fn p_value(statistic: f64, degrees: u32) -> f64 {
    if degrees == 0 || statistic <= 0.0 {
        return 1.0;
    }
    if !statistic.is_finite() {
        return 0.0;
    }
    let half = statistic / 2.0;
    // The first term of the series, the sum before it, and the number by which the next term is divided.
    let (mut term, mut sum, mut divisor) = if degrees.is_multiple_of(2) {
        ((-half).exp(), 0.0, 1.0)
    } else {
        ((-half).exp() * (half / std::f64::consts::PI).sqrt() * 2.0, complementary_error(half.sqrt()), 1.5)
    };
    for _ in 0..degrees / 2 {
        sum += term;
        term *= half / divisor;
        divisor += 1.0;
    }
    sum.clamp(0.0, 1.0)
}

/// Returns the complementary error function of a number that is not negative, with an error below 1.5e-7 (Abramowitz and
/// Stegun 7.1.26).
fn complementary_error(x: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let series = [1.061_405_429, -1.453_152_027, 1.421_413_741, -0.284_496_736, 0.254_829_592];
    series.iter().fold(0.0, |sum, coefficient| (sum + coefficient) * t) * (-x * x).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p_values_are_those_of_published_tables() {
        // Upper critical values of the chi-squared distribution (NIST/SEMATECH e-Handbook, section 1.3.6.7.4).
        for (degrees, statistic, p) in [
            (1, 3.841, 0.05),
            (1, 6.635, 0.01),
            (2, 5.991, 0.05),
            (3, 7.815, 0.05),
            (3, 11.345, 0.01),
            (4, 9.488, 0.05),
            (7, 18.475, 0.01),
            (10, 18.307, 0.05),
            (25, 44.314, 0.01),
        ] {
            assert!(
                (p_value(statistic, degrees) - p).abs() < 2e-5,
                "{degrees}: {}",
                p_value(statistic, degrees)
            );
        }
        assert!((p_value(0.0, 3) - 1.0).abs() < 1e-12 && p_value(1e6, 3) < 1e-12);
    }
}
