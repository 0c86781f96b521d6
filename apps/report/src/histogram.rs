//! A histogram of durations with logarithmic bins.

use crate::series::float;

/// Bins per power of ten.
const PER_DECADE: f64 = 48.0;
/// Bins for 1 ns to 2^63 ns.
const BINS: usize = 48 * 19;

/// Counts of durations in bins 4.9 % wide.
#[derive(Debug)]
pub(crate) struct LogHistogram {
    bins: Vec<u64>,
    /// Number of durations in the bins.
    pub(crate) count: u64,
    /// Number of durations that were not positive, and are in no bin.
    pub(crate) not_positive: u64,
}

impl Default for LogHistogram {
    fn default() -> Self {
        Self { bins: vec![0; BINS], count: 0, not_positive: 0 }
    }
}

impl LogHistogram {
    /// Counts a duration in ns.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a positive number below BINS"
    )]
    pub(crate) fn add(&mut self, ns: i64) {
        let Some(ns) = u64::try_from(ns).ok().filter(|ns| *ns > 0) else {
            self.not_positive += 1;
            return;
        };
        // The small offset keeps exact powers of ten in the bin that begins with them, despite rounding.
        let bin = (float(ns).log10() * PER_DECADE + 1e-9) as usize;
        if let Some(count) = self.bins.get_mut(bin.min(BINS - 1)) {
            *count += 1;
            self.count += 1;
        }
    }

    /// Returns the quantile of this share in ns, accurate to its bin: the middle of the first bin up to whose end at least this
    /// share of the durations lies.
    pub(crate) fn quantile(&self, share: f64) -> Option<f64> {
        let wanted = float(self.count) * share;
        let mut below = 0u64;
        self.bins.iter().enumerate().find_map(|(index, count)| {
            below += count;
            (*count > 0 && float(below) >= wanted).then(|| duration_at(index as f64 + 0.5))
        })
    }

    /// Returns the index of the first non-empty bin, and the index after the last.
    fn non_empty_range(&self) -> Option<(usize, usize)> {
        let first = self.bins.iter().position(|count| *count > 0)?;
        let last = self.bins.iter().rposition(|count| *count > 0)?;
        Some((first, last + 1))
    }

    /// Returns about `wanted` bars for a plot: start and end in ns, and count.
    pub(crate) fn bars(&self, wanted: usize) -> Vec<(f64, f64, u64)> {
        let Some((first, end)) = self.non_empty_range() else { return Vec::new() };
        // Divisors of the bins per decade, so that bars begin at powers of ten.
        let group_size = [1, 2, 3, 4, 6, 8, 12]
            .into_iter()
            .find(|size| (end - first).div_ceil(*size) <= wanted)
            .unwrap_or(24);
        let first = first / group_size * group_size;
        let bins = self.bins.get(first..end).unwrap_or_default();
        bins.chunks(group_size)
            .enumerate()
            .map(|(index, chunk)| {
                let begin = (first + index * group_size) as f64;
                (duration_at(begin), duration_at(begin + group_size as f64), chunk.iter().sum())
            })
            .collect()
    }

    /// Returns points of the cumulative distribution: the duration in ns, and the share at or below it.
    pub(crate) fn cumulative(&self) -> Vec<(f64, f64)> {
        let Some((first, end)) = self.non_empty_range() else { return Vec::new() };
        let mut below = 0u64;
        let mut points = vec![(duration_at(first as f64), 0.0)];
        for (index, count) in self.bins.iter().enumerate().take(end).skip(first) {
            below += count;
            points.push((duration_at(index as f64 + 1.0), float(below) / float(self.count.max(1))));
        }
        points
    }
}

/// Returns the duration in ns at a position on the logarithmic scale of bins. A whole number is the start of the bin with
/// this index; the bin's middle is 0.5 further.
fn duration_at(index: f64) -> f64 {
    10f64.powf(index / PER_DECADE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_accurate_to_one_bin() {
        let mut histogram = LogHistogram::default();
        for ns in 1..=1_000_000 {
            histogram.add(ns);
        }
        for share in [0.01, 0.5, 0.9, 0.99] {
            let ratio = histogram.quantile(share).unwrap() / (share * 1e6);
            assert!((0.95..1.05).contains(&ratio), "{share}: {ratio}");
        }
        assert_eq!(histogram.bars(40).iter().map(|bar| bar.2).sum::<u64>(), 1_000_000);
        assert_eq!(histogram.cumulative().last().unwrap().1, 1.0);
    }

    #[test]
    fn durations_of_any_size_are_counted() {
        let mut histogram = LogHistogram::default();
        for ns in [i64::MIN, -1, 0, 1, 1_000, i64::MAX] {
            histogram.add(ns);
        }
        assert_eq!((histogram.count, histogram.not_positive), (3, 3));
        assert_eq!(histogram.bars(30).iter().map(|bar| bar.2).sum::<u64>(), 3);
        assert!(histogram.bars(1000).iter().any(|bar| (bar.0 - 1_000.0).abs() < 1e-6 && bar.2 == 1));
        assert!(LogHistogram::default().quantile(0.5).is_none());
    }
}
