//! Findings of a session's modules: counts by severity, and the latest few of them for the session's status.
//!
//! A module decides how many findings it emits and what they contain. So the list of the latest findings is bounded in
//! number and in bytes, and a finding causes no log line.

use crate::control::status::{FindingStatus, FindingsStatus};
use crate::sync::LeafMutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use weir_abi::finding::Severity;
use weir_admission::Name;
use weir_rows::FindingRow;

/// Number of findings of a session that its status shows.
const LATEST_MAX: usize = 8;
/// Maximum length of the text and of the filter of a finding in the status, in bytes.
const TEXT_BYTES_MAX: usize = 256;
/// Maximum length of the name of the stream that shows a finding, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// Numbers of findings by severity. They never decrease.
#[derive(Debug, Default)]
pub(crate) struct FindingCounters([AtomicU64; Severity::ALL.len()]);

impl FindingCounters {
    /// Counts a finding of this severity.
    pub(crate) fn count(&self, severity: Severity) {
        let counters = self.0.iter().zip(Severity::ALL).filter(|(_, counted)| **counted == severity);
        counters.for_each(|(counter, _)| _ = counter.fetch_add(1, Ordering::Relaxed));
    }

    /// Returns the numbers by the word for the severity, with zeros.
    pub(crate) fn by_severity(&self) -> BTreeMap<String, u64> {
        let counts = self.0.iter().map(|counter| counter.load(Ordering::Relaxed));
        Severity::ALL
            .iter()
            .zip(counts)
            .map(|(severity, count)| (severity.name().to_owned(), count))
            .collect()
    }
}

/// The findings of a session's modules, also of modules that have ended.
#[derive(Debug, Default)]
pub(crate) struct SessionFindings {
    counters: FindingCounters,
    /// The latest findings, newest first.
    latest: LeafMutex<VecDeque<FindingStatus>>,
}

impl SessionFindings {
    /// Adds a finding of a module.
    pub(crate) fn add(&self, module: &Name, finding: &FindingRow<'_>) {
        self.counters.count(finding.severity);
        let status = FindingStatus {
            module: module.to_string(),
            time_ns: finding.time.0,
            severity: finding.severity as u8,
            text: shortened(finding.text, TEXT_BYTES_MAX),
            filter: shortened(finding.filter, TEXT_BYTES_MAX),
            evidence: shortened(finding.evidence, NAME_BYTES_MAX),
        };
        self.latest.with(|latest| {
            latest.truncate(LATEST_MAX - 1);
            latest.push_front(status);
        });
    }

    /// Returns the numbers that are not zero, and the latest findings.
    pub(crate) fn status(&self) -> FindingsStatus {
        let counts = self.counters.by_severity().into_iter().filter(|(_, count)| *count > 0).collect();
        FindingsStatus { counts, latest: self.latest.with(|latest| latest.iter().cloned().collect()) }
    }
}

/// Returns at most `bytes_max` bytes of a text, with U+FFFD for bytes that are not UTF-8, and with an ellipsis for the
/// missing rest.
fn shortened(text: &[u8], bytes_max: usize) -> String {
    const ELLIPSIS: char = '…';
    let begin = String::from_utf8_lossy(text.get(..bytes_max).unwrap_or(text));
    if text.len() <= bytes_max && begin.len() <= bytes_max {
        return begin.into_owned();
    }
    let end = begin.floor_char_boundary(bytes_max - ELLIPSIS.len_utf8());
    let mut shortened = begin.get(..end).unwrap_or_default().to_owned();
    shortened.push(ELLIPSIS);
    shortened
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_units::Timestamp;

    fn add(findings: &SessionFindings, time: u64, severity: u64, text: &[u8]) {
        let severity = Severity::from_number(severity);
        let finding = FindingRow { time: Timestamp(time), severity, text, filter: text, evidence: text };
        findings.add(&Name::new("m").unwrap(), &finding);
    }

    #[test]
    fn a_flood_of_findings_is_counted_and_keeps_a_few_short_texts() {
        let findings = SessionFindings::default();
        assert_eq!(findings.status(), FindingsStatus::default());
        // Each byte that is not UTF-8 would become three bytes.
        for (number, byte) in (0..10_000u64).zip([b'x', 0xff].into_iter().cycle()) {
            add(&findings, number, number % 256, &[byte; 4096]);
        }
        let status = findings.status();
        assert_eq!(status.counts.values().sum::<u64>(), 10_000);
        assert_eq!((status.counts["low"], status.counts["informational"]), (40, 80));
        let times: Vec<u64> = status.latest.iter().map(|finding| finding.time_ns).collect();
        assert_eq!(times, (9_992..10_000).rev().collect::<Vec<_>>());
        for finding in &status.latest {
            assert!(finding.text.len() <= TEXT_BYTES_MAX && finding.text.ends_with('…'), "{finding:?}");
            assert!(finding.filter.len() <= TEXT_BYTES_MAX && finding.evidence.len() <= NAME_BYTES_MAX);
        }
    }

    #[test]
    fn a_short_text_is_kept_whole() {
        let findings = SessionFindings::default();
        add(&findings, 1, 4, "scan of 10.0.0.0/8 – 12 ports".as_bytes());
        assert_eq!(findings.status().latest[0].text, "scan of 10.0.0.0/8 – 12 ports");
        assert_eq!(shortened("é".repeat(200).as_bytes(), 256).len(), 255);
        assert_eq!(shortened(&[b'x'; 256], 256), "x".repeat(256));
    }
}
