//! Parts of the aggregates: a service, a span of time, counted names, and a coarse histogram of durations.

use crate::series::float;
use crate::top::TopKeys;
use std::net::Ipv6Addr;

/// Names that are kept of a service or address.
const NAMES_MAX: usize = 4;
/// Bytes that are kept of a name.
const NAME_BYTES_MAX: usize = 100;
/// Bins per power of ten.
const PER_DECADE: f64 = 12.0;
/// Bins from 1 µs to 1000 s.
const BINS: usize = 12 * 9;

/// A port of a server, and the protocol above IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct ServiceKey {
    pub(super) address: Ipv6Addr,
    pub(super) port: u16,
    pub(super) protocol: u8,
}

/// Values by service.
pub(super) type ByService<V> = TopKeys<ServiceKey, V>;

/// The earliest and the latest time of events, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct EventSpan {
    pub(super) first: u64,
    pub(super) last: u64,
}

impl EventSpan {
    /// Extends the span to a time. The span of no events has the times 0.
    pub(super) fn add(&mut self, time: u64) {
        self.first = if self.last == 0 { time } else { self.first.min(time) };
        self.last = self.last.max(time);
    }

    /// Extends the span to another one.
    pub(super) fn join(&mut self, other: Self) {
        if other.last > 0 {
            self.add(other.first);
            self.add(other.last);
        }
    }
}

/// The first distinct names, each with its uses.
#[derive(Clone, Debug, Default)]
pub(super) struct NameCounts {
    kept: Vec<(Box<[u8]>, u64)>,
    /// True if further names were used.
    has_others: bool,
}

impl NameCounts {
    /// Counts a use of a name, which is cut to 100 bytes. An empty name does not count.
    pub(super) fn add(&mut self, name: &[u8]) {
        let name = name.get(..NAME_BYTES_MAX).unwrap_or(name);
        if name.is_empty() {
            return;
        }
        let has_room = self.kept.len() < NAMES_MAX;
        match self.kept.iter_mut().find(|(kept, _)| kept.eq_ignore_ascii_case(name)) {
            Some((_, uses)) => *uses += 1,
            None if has_room => self.kept.push((name.to_ascii_lowercase().into(), 1)),
            None => self.has_others = true,
        }
    }

    /// Adds the names of another one.
    pub(super) fn join(&mut self, other: &Self) {
        for (name, uses) in &other.kept {
            let has_room = self.kept.len() < NAMES_MAX;
            match self.kept.iter_mut().find(|(kept, _)| kept == name) {
                Some((_, sum)) => *sum += uses,
                None if has_room => self.kept.push((name.clone(), *uses)),
                None => self.has_others = true,
            }
        }
        self.has_others |= other.has_others;
    }

    /// Returns the name with most uses as text; of equal ones the first.
    pub(super) fn main(&self) -> Option<String> {
        let most = self.kept.iter().map(|(_, uses)| *uses).max()?;
        let (name, _) = self.kept.iter().find(|(_, uses)| *uses == most)?;
        Some(String::from_utf8_lossy(name).into_owned())
    }

    /// Returns the number of other names that are kept, and true if there are more.
    pub(super) fn others(&self) -> (usize, bool) {
        (self.kept.len().saturating_sub(1), self.has_others)
    }
}

/// Durations in bins 21 % wide. The bins exist from the first duration on.
#[derive(Clone, Debug, Default)]
pub(super) struct AnswerTimes {
    bins: Vec<u32>,
    pub(super) count: u64,
    /// The longest duration in ns.
    pub(super) longest: u64,
}

impl AnswerTimes {
    /// Counts a duration in ns.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to the bins")]
    pub(super) fn add(&mut self, ns: u64) {
        self.bins.resize(BINS, 0);
        let bin =
            ((float(ns.max(1)).log10() - 3.0) * PER_DECADE + 1e-9).clamp(0.0, (BINS - 1) as f64) as usize;
        if let Some(count) = self.bins.get_mut(bin) {
            *count = count.saturating_add(1);
        }
        self.count += 1;
        self.longest = self.longest.max(ns);
    }

    /// Returns the quantile of this share in ns, to about 10 %; 0 without durations.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most 1000 s")]
    pub(super) fn quantile(&self, share: f64) -> u64 {
        let wanted = float(self.count) * share;
        let mut below = 0u64;
        for (index, count) in self.bins.iter().enumerate() {
            below += u64::from(*count);
            if *count > 0 && float(below) >= wanted {
                let middle = 10f64.powf(3.0 + (index as f64 + 0.5) / PER_DECADE);
                return (middle as u64).min(self.longest);
            }
        }
        self.longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_accurate_to_a_tenth_at_any_scale() {
        for scale in [1_000u64, 1_000_000, 1_000_000_000] {
            let mut times = AnswerTimes::default();
            for n in 1..=1_000 {
                times.add(n * scale / 10);
            }
            for share in [0.5, 0.9] {
                let ratio = float(times.quantile(share)) / (share * 100.0 * float(scale));
                assert!((0.88..1.12).contains(&ratio), "{scale} {share}: {ratio}");
            }
        }
        let mut times = AnswerTimes::default();
        assert_eq!(times.quantile(0.5), 0);
        [0, u64::MAX].into_iter().for_each(|ns| times.add(ns));
        assert_eq!((times.count, times.longest), (2, u64::MAX));
        assert!(times.quantile(0.9) > 900_000_000_000);
    }

    #[test]
    fn names_are_few_short_and_counted_without_regard_to_case() {
        let mut names = NameCounts::default();
        names.add(b"");
        assert_eq!(names.main(), None);
        for name in [&b"a.example"[..], b"B.example", b"b.EXAMPLE", &[b'x'; 5_000], b"c", b"d", b"e"] {
            names.add(name);
        }
        assert_eq!(names.main().as_deref(), Some("b.example"));
        assert_eq!(names.others(), (3, true));
        assert!(names.kept.iter().all(|(name, _)| name.len() <= NAME_BYTES_MAX));
    }

    #[test]
    fn a_span_grows_in_both_directions() {
        let mut span = EventSpan::default();
        [5, 3, 9].into_iter().for_each(|time| span.add(time));
        span.join(EventSpan::default());
        assert_eq!(span, EventSpan { first: 3, last: 9 });
    }
}
