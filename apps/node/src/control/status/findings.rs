//! Findings in a session's status.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Findings of a session's modules: their number, and the latest of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FindingsStatus {
    /// Number of findings since the session was created, by severity: `informational`, `low`, `medium`, `high` or
    /// `critical`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counts: BTreeMap<String, u64>,
    /// The latest findings, newest first. The list is empty for a requester who may not read the session's records.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latest: Vec<FindingStatus>,
}

/// A finding. Its texts come from a module, and are shortened if they are long.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FindingStatus {
    /// Name of the module in the session.
    pub module: String,
    /// Time that the module states, in ns since 1970.
    pub time_ns: u64,
    /// Severity that the module states: 1 informational, 2 low, 3 medium, 4 high, 5 critical.
    pub severity: u8,
    /// Text for people.
    pub text: String,
    /// A pcap-filter expression that selects the packets concerned; empty for none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub filter: String,
    /// Name of the stream whose rows show the finding; empty for none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub evidence: String,
}
