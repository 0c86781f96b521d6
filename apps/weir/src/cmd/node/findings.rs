//! Findings of a session's modules as lines, for `weir session show` and `weir top`.

use weir_node::control::protocol::{FindingStatus, FindingsStatus};
use weir_rows::{FindingRow, SEVERITY_WORDS, utc};
use weir_units::Timestamp;

/// Returns true for a severity that is highlighted: high or critical.
pub fn is_severe(severity: u8) -> bool {
    matches!(severity, 4 | 5)
}

/// Returns the numbers of findings, most severe first: `findings: 2 high, 1 low`. `None` without findings.
pub fn counts(findings: &FindingsStatus) -> Option<String> {
    let (other, known) = SEVERITY_WORDS.split_last()?;
    let count =
        |word: &&str| Some(format!("{} {word}", findings.counts.get(*word).filter(|count| **count > 0)?));
    let counts: Vec<String> = known.iter().rev().chain([other]).filter_map(count).collect();
    (!counts.is_empty()).then(|| format!("findings: {}", counts.join(", ")))
}

/// Returns a line for each of the latest findings, newest first, with its severity. The texts are escaped.
pub fn latest(findings: &FindingsStatus) -> impl Iterator<Item = (u8, String)> {
    let line = |finding: &FindingStatus| {
        let row = FindingRow {
            time: Timestamp(finding.time_ns),
            severity: finding.severity,
            text: finding.text.as_bytes(),
            filter: finding.filter.as_bytes(),
            evidence: finding.evidence.as_bytes(),
        };
        (finding.severity, row.line(&finding.module, utc))
    };
    findings.latest.iter().map(line)
}
