//! Counts over time in a bounded number of bins.

use weir_units::Timestamp;

/// Maximum number of bins.
const BINS_MAX: usize = 1024;
/// Initial width of a bin, in ns.
const WIDTH_MIN: u64 = 100_000;

/// Sums of `K` quantities in bins of equal width. The width doubles whenever the time span exceeds the maximum number of bins.
#[derive(Debug)]
pub(crate) struct BinnedSeries<const K: usize> {
    /// Start of the first bin, in ns.
    start: u64,
    /// Width of a bin, in ns.
    width: u64,
    /// The earliest time added, in ns.
    first: u64,
    /// The latest time added, in ns.
    last: u64,
    bins: Vec<[u64; K]>,
}

impl<const K: usize> Default for BinnedSeries<K> {
    fn default() -> Self {
        Self { start: 0, width: WIDTH_MIN, first: 0, last: 0, bins: Vec::new() }
    }
}

impl<const K: usize> BinnedSeries<K> {
    /// Adds quantities at a time. Time may go backwards.
    pub(crate) fn add(&mut self, ts: Timestamp, amounts: [u64; K]) {
        let ts = ts.0;
        if self.bins.is_empty() {
            (self.start, self.first, self.last) = (ts, ts, ts);
            self.bins.push([0; K]);
        }
        if ts < self.start {
            self.extend_to_earlier(ts);
        }
        (self.first, self.last) = (self.first.min(ts), self.last.max(ts));
        let mut index = (ts - self.start) / self.width;
        while index >= BINS_MAX as u64 {
            self.double_width();
            index /= 2;
        }
        let index = usize::try_from(index).unwrap_or(BINS_MAX - 1);
        if index >= self.bins.len() {
            self.bins.resize(index + 1, [0; K]);
        }
        if let Some(bin) = self.bins.get_mut(index) {
            for (sum, amount) in bin.iter_mut().zip(amounts) {
                *sum = sum.saturating_add(amount);
            }
        }
    }

    /// Adds bins before the first one, so that they include `ts`. Doubles the width if there would be too many.
    fn extend_to_earlier(&mut self, ts: u64) {
        loop {
            let more = (self.start - ts).div_ceil(self.width);
            match usize::try_from(more) {
                Ok(more) if self.bins.len() + more <= BINS_MAX => {
                    self.bins.splice(0..0, std::iter::repeat_n([0; K], more));
                    // The first bin cannot begin before 1970, so the bins can shift by less than one width. A plot does
                    // not show that.
                    self.start = self.start.saturating_sub(self.width.saturating_mul(more as u64));
                    return;
                }
                // Two bins of 292 years cover all times, so this arm only guarantees that the loop ends.
                _ if self.width > u64::MAX / 2 => return self.start = ts,
                _ => self.double_width(),
            }
        }
    }

    /// Doubles the width of the bins.
    fn double_width(&mut self) {
        self.bins = merge_bins(&self.bins, 2);
        self.width = self.width.saturating_mul(2);
    }

    /// The earliest and latest time, in ns.
    pub(crate) fn span(&self) -> Option<(u64, u64)> {
        (!self.bins.is_empty()).then_some((self.first, self.last))
    }

    /// Returns the rates of quantity `k`, in at most `most` bins.
    pub(crate) fn rates(&self, k: usize, most: usize) -> Vec<BinRate> {
        let group_size = self.bins.len().div_ceil(most.max(1)).max(1);
        let width = self.width.saturating_mul(group_size as u64);
        let seconds = |ns: u64| float(ns) / 1e9;
        let mut rates: Vec<BinRate> = Vec::new();
        for (index, sums) in merge_bins(&self.bins, group_size).iter().enumerate() {
            let begin = self.start.saturating_add(width.saturating_mul(index as u64));
            let end = begin.saturating_add(width);
            // The capture covers only parts of the first and the last bin. If it covers less than half of the last bin,
            // the amount of that bin is left out. The bin before it is extended to the end, with an unchanged rate.
            let inside = end.min(self.last).saturating_sub(begin.max(self.first));
            let to = seconds(end.min(self.last).saturating_sub(self.first));
            if inside < width / 2
                && let Some(before) = rates.last_mut()
            {
                before.to = to;
                continue;
            }
            let from = seconds(begin.saturating_sub(self.first));
            let sum = float(sums.get(k).copied().unwrap_or(0));
            rates.push(BinRate { from, to, per_second: sum / seconds(inside.max(width / 2)).max(1e-9) });
        }
        rates
    }
}

/// The rate in a bin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct BinRate {
    /// Start of the bin, in seconds since the earliest time.
    pub(crate) from: f64,
    /// End of the bin, in seconds since the earliest time.
    pub(crate) to: f64,
    /// Amount per second.
    pub(crate) per_second: f64,
}

/// Adds up each group of `group_size` consecutive bins; the last group may be smaller.
fn merge_bins<const K: usize>(bins: &[[u64; K]], group_size: usize) -> Vec<[u64; K]> {
    bins.chunks(group_size)
        .map(|chunk| std::array::from_fn(|k| chunk.iter().fold(0u64, |sum, bin| sum.saturating_add(bin[k]))))
        .collect()
}

/// Converts a count to a coordinate. Above 2^53 it is inexact, which a plot does not show.
#[expect(clippy::cast_precision_loss, reason = "for a plot")]
pub(crate) fn float(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn total(series: &BinnedSeries<1>) -> u64 {
        series.bins.iter().map(|bin| bin[0]).sum()
    }

    #[test]
    fn the_number_of_bins_is_bounded_and_sums_are_exact() {
        let mut series = BinnedSeries::<1>::default();
        for n in 0..1_000_000u64 {
            series.add(Timestamp(1_700_000_000_000_000_000 + n * 3_600_000_000), [2]);
        }
        assert!(series.bins.len() <= BINS_MAX && series.bins.len() > BINS_MAX / 2 - 1);
        assert_eq!(total(&series), 2_000_000);
        let rates = series.rates(0, 200);
        assert!(rates.len() <= 200 && rates.iter().all(|r| (r.per_second / (2.0 / 3.6) - 1.0).abs() < 0.01));
    }

    #[test]
    fn times_in_any_order_and_range_are_counted() {
        let mut series = BinnedSeries::<1>::default();
        for ts in [1_000_000_000, 999_000_000, 5, 0, u64::MAX, 7, u64::MAX / 2, 1] {
            series.add(Timestamp(ts), [1]);
        }
        assert_eq!((total(&series), series.span()), (8, Some((0, u64::MAX))));
        assert!(series.bins.len() <= BINS_MAX);
        assert!(series.rates(0, 300).iter().all(|rate| rate.per_second.is_finite()));
    }
}
