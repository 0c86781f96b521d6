//! The most severe findings of modules, where repeated ones are one group.

use crate::{FindingRow, UtcOffset, shown_time};
use std::cmp::Reverse;
use std::fmt::Write as _;
use weir_abi::finding::Severity;
use weir_units::{Escape as _, Timestamp};

/// Bytes that are kept of the text of a finding.
const TEXT_BYTES_MAX: usize = 600;
/// Bytes of the longest filter that is kept.
const FILTER_BYTES_MAX: usize = 1_000;
/// Bytes of the longest name of a stream.
const NAME_BYTES_MAX: usize = 64;

/// Findings of one module, severity and filter: they are about the same packets. The texts are the module's, so they are
/// not trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FindingGroup {
    /// The index of the module.
    pub module: usize,
    /// The severity.
    pub severity: Severity,
    /// The time of the first finding.
    pub first: Timestamp,
    /// The time of the last finding.
    pub last: Timestamp,
    /// The number of findings.
    pub count: u64,
    /// The text of the first finding. A text that was cut ends with `…`.
    pub text: String,
    /// The filter; `None` for one that is too long to be kept, empty for none.
    pub filter: Option<String>,
    /// The name of the stream whose rows show it; empty for none.
    pub evidence: String,
}

/// The most severe groups of findings; of equally severe ones, those that began first.
#[derive(Clone, Debug, Default)]
pub struct FindingGroups {
    groups: Vec<FindingGroup>,
    groups_max: usize,
    /// The number of findings of each of [`Severity::ALL`].
    counts: [u64; Severity::ALL.len()],
}

impl FindingGroups {
    /// Creates a list of at most `groups_max` groups.
    pub fn new(groups_max: usize) -> Self {
        Self { groups_max, ..Self::default() }
    }

    /// Counts a finding of the module with this index, and keeps it if it is among the most severe.
    pub fn add(&mut self, module: usize, finding: &FindingRow<'_>) {
        let FindingRow { severity, time, text, filter, evidence } = *finding;
        let known = Severity::ALL.iter().position(|known| *known == severity);
        if let Some(count) = known.and_then(|rank| self.counts.get_mut(rank)) {
            *count = count.saturating_add(1);
        }
        let kept_filter = (filter.len() <= FILTER_BYTES_MAX).then(|| String::from_utf8_lossy(filter));
        let text = cut(text, TEXT_BYTES_MAX);
        // A finding without a filter is like those with the same text.
        let is_same = |group: &&mut FindingGroup| {
            group.module == module
                && group.severity == severity
                && group.filter.as_deref() == kept_filter.as_deref()
                && (kept_filter.as_ref().is_some_and(|filter| !filter.is_empty()) || group.text == text)
        };
        if let Some(group) = self.groups.iter_mut().find(is_same) {
            group.count = group.count.saturating_add(1);
            group.last = group.last.max(time);
            return;
        }
        let rank = (Reverse(severity), time, module);
        let place =
            self.groups.partition_point(|group| (Reverse(group.severity), group.first, group.module) <= rank);
        if place < self.groups_max {
            let group = FindingGroup {
                module,
                severity,
                first: time,
                last: time,
                count: 1,
                text,
                filter: kept_filter.map(|filter| filter.into_owned()),
                evidence: cut(evidence, NAME_BYTES_MAX),
            };
            self.groups.insert(place, group);
            self.groups.truncate(self.groups_max);
        }
    }

    /// The groups: by severity, then by time.
    pub fn groups(&self) -> &[FindingGroup] {
        &self.groups
    }

    /// The numbers of findings by severity, without those of which there are none.
    pub fn counts(&self) -> impl Iterator<Item = (Severity, u64)> {
        Severity::ALL.iter().copied().zip(self.counts).filter(|(_, count)| *count > 0)
    }

    /// The number of all findings.
    pub fn total(&self) -> u64 {
        self.counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// The number of findings that are in none of the groups.
    pub fn others(&self) -> u64 {
        self.total().saturating_sub(self.groups.iter().fold(0, |sum, group| sum.saturating_add(group.count)))
    }
}

impl FindingGroup {
    /// Returns the group as one line, as [`FindingRow::line`] does for a finding, with the number of further ones.
    pub fn line(&self, label: &str, offset: UtcOffset) -> String {
        let text = self.text.as_bytes();
        let filter = self.filter.as_deref().unwrap_or_default().as_bytes();
        let evidence = self.evidence.as_bytes();
        let row = FindingRow { time: self.first, severity: self.severity, text, filter, evidence };
        let mut line = row.line(label, offset);
        if let Some(further) = self.further(offset, 6) {
            // Writing to a string cannot fail.
            let _ = write!(line, "  {}", further.escaped());
        }
        line
    }

    /// Returns the number of findings after the first one, and the time of the last, as text; `None` for a single finding.
    pub fn further(&self, offset: UtcOffset, decimals: usize) -> Option<String> {
        let further = self.count.checked_sub(1).filter(|further| *further > 0)?;
        let last = shown_time(self.last, offset, decimals);
        Some(format!("(and {} more with this filter, the last at {last})", crate::text::with_commas(further)))
    }
}

/// The first bytes of a text, with U+FFFD for bytes that are not UTF-8. A cut inside a character leaves no U+FFFD at the end.
fn cut(text: &[u8], bytes_max: usize) -> String {
    let begin = text.get(..bytes_max).unwrap_or(text);
    let is_cut = begin.len() < text.len();
    let end = match std::str::from_utf8(begin) {
        Err(error) if error.error_len().is_none() && is_cut => error.valid_up_to(),
        _ => begin.len(),
    };
    let mut shown = String::from_utf8_lossy(begin.get(..end).unwrap_or(begin)).into_owned();
    if is_cut {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row<'a>(time: u64, severity: Severity, text: &'a str, filter: &'a str) -> FindingRow<'a> {
        let (text, filter) = (text.as_bytes(), filter.as_bytes());
        FindingRow { time: Timestamp(time), severity, text, filter, evidence: b"rows" }
    }

    #[test]
    fn findings_about_the_same_packets_are_one_group() {
        let mut groups = FindingGroups::new(10);
        groups.add(0, &row(5, Severity::Low, "one", "tcp"));
        groups.add(0, &row(9, Severity::Low, "two", "tcp"));
        for (module, severity, filter) in
            [(1, Severity::Low, "tcp"), (0, Severity::High, "tcp"), (0, Severity::Low, "udp")]
        {
            groups.add(module, &row(7, severity, "one", filter));
        }
        // Without a filter, the text counts.
        ["a", "a", "b"].into_iter().for_each(|text| groups.add(0, &row(8, Severity::Low, text, "")));
        let shown: Vec<(usize, Severity, u64, &str, u64)> = groups
            .groups()
            .iter()
            .map(|group| (group.module, group.severity, group.first.0, group.text.as_str(), group.count))
            .collect();
        assert_eq!(
            shown,
            [
                (0, Severity::High, 7, "one", 1),
                (0, Severity::Low, 5, "one", 2),
                (0, Severity::Low, 7, "one", 1),
                (1, Severity::Low, 7, "one", 1),
                (0, Severity::Low, 8, "a", 2),
                (0, Severity::Low, 8, "b", 1),
            ]
        );
        assert_eq!((groups.total(), groups.others()), (8, 0));
        assert_eq!(
            groups.groups()[1].line("m", crate::utc),
            "1970-01-01 00:00:00.000000  LOW       m: one  [filter: tcp]  (and 1 more with this filter, the last at 1970-01-01 00:00:00.000000)"
        );
    }

    #[test]
    fn groups_are_few_and_the_most_severe_stay() {
        let mut groups = FindingGroups::new(3);
        for n in 0..1_000u64 {
            groups.add(0, &row(n, Severity::Low, "low", &format!("port {n}")));
        }
        groups.add(0, &row(2_000, Severity::Critical, &"é".repeat(1_000), &"x".repeat(5_000)));
        let firsts: Vec<u64> = groups.groups().iter().map(|group| group.first.0).collect();
        assert_eq!(firsts, [2_000, 0, 1]);
        assert_eq!((groups.total(), groups.others()), (1_001, 998));
        let critical = &groups.groups()[0];
        assert_eq!((critical.text.len(), critical.filter.as_ref()), (600 + "…".len(), None));
    }
}
