//! Findings of a session's modules as lines, for `weir session show` and `weir top`.

use weir_abi::finding::Severity;
use weir_node::control::protocol::{FindingStatus, FindingsStatus};
use weir_rows::{FindingRow, utc};
use weir_units::Timestamp;

/// Returns the numbers of findings, most severe first: `findings: 2 high, 1 low`. `None` without findings.
pub fn counts(findings: &FindingsStatus) -> Option<String> {
    let count = |severity: &Severity| {
        let count = findings.counts.get(severity.name()).filter(|count| **count > 0)?;
        Some(format!("{count} {}", severity.name()))
    };
    let counts: Vec<String> = Severity::ALL.iter().rev().filter_map(count).collect();
    (!counts.is_empty()).then(|| format!("findings: {}", counts.join(", ")))
}

/// Returns a line for each of the latest findings, newest first, with its severity. The texts are escaped.
pub fn latest(findings: &FindingsStatus) -> impl Iterator<Item = (Severity, String)> {
    let line = |finding: &FindingStatus| {
        let severity = Severity::from_number(finding.severity.into());
        let row = FindingRow {
            time: Timestamp(finding.time_ns),
            severity,
            text: finding.text.as_bytes(),
            filter: finding.filter.as_bytes(),
            evidence: finding.evidence.as_bytes(),
        };
        (severity, row.line(&finding.module, utc))
    };
    findings.latest.iter().map(line)
}
