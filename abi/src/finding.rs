//! Findings: the records by which a module reports what a person should look at.
//!
//! A stream with the name [`STREAM`] has the fields of [`FIELDS`]; a manifest declares no other ones. So every tool that
//! shows findings knows their fields.

use crate::row::FieldType;

/// The name of a stream of findings.
pub const STREAM: &str = "findings";

/// A field of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FindingField {
    /// The name.
    pub name: &'static str,
    /// The type.
    pub ty: FieldType,
    /// The name of the semantic, as in a manifest; empty without one.
    pub semantic: &'static str,
    /// The meaning, in one line.
    pub summary: &'static str,
}

/// The fields of a finding, in the order of the row.
pub const FIELDS: &[FindingField] = &[
    FindingField { name: "time", ty: FieldType::Timestamp, semantic: "time", summary: "time of the finding" },
    FindingField {
        name: "severity",
        ty: FieldType::U8,
        semantic: "event.severity",
        summary: "1 informational, 2 low, 3 medium, 4 high, 5 critical",
    },
    FindingField {
        name: "text",
        ty: FieldType::String,
        semantic: "message",
        summary: "the finding in one sentence",
    },
    FindingField {
        name: "filter",
        ty: FieldType::String,
        semantic: "",
        summary: "pcap filter that selects the packets of the finding",
    },
    FindingField {
        name: "evidence",
        ty: FieldType::String,
        semantic: "",
        summary: "stream of the module whose rows show the finding",
    },
];

/// The severity of a finding: `severity_id` of the Open Cybersecurity Schema Framework (OCSF).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// A fact worth knowing; no action is needed.
    Informational = 1,
    /// An action is a matter of choice.
    Low = 2,
    /// An action is needed, but not at once.
    Medium = 3,
    /// An action is needed at once.
    High = 4,
    /// An action is needed at once, and much is affected.
    Critical = 5,
}

impl Severity {
    /// All severities, the lowest first.
    pub const ALL: &'static [Severity] =
        &[Self::Informational, Self::Low, Self::Medium, Self::High, Self::Critical];

    /// Returns the severity with this number. A module can write any number: those above 5 are critical, and 0 is
    /// informational.
    pub const fn from_number(number: u64) -> Self {
        match number {
            0 | 1 => Self::Informational,
            2 => Self::Low,
            3 => Self::Medium,
            4 => Self::High,
            _ => Self::Critical,
        }
    }

    /// Returns the word for people and for labels of metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Informational => "informational",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Critical => "critical",
        }
    }
}
