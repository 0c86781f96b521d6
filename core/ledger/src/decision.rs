//! Decisions on requests: the requester, the request and the outcome.

use super::{
    CloseReason, LedgerCell, LedgerColumn, LedgerEntry, LedgerEvent, LedgerTable, LedgerText, show_time, wire,
};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DecisionOutcome {
    /// The request was permitted, and carried out.
    Allowed,
    /// The requester lacks the right.
    Refused,
    /// The request was permitted, but failed.
    Failed,
}

impl DecisionOutcome {
    /// Returns the outcome in one word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Refused => "refused",
            Self::Failed => "failed",
        }
    }
}

impl fmt::Display for DecisionOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A decision on a request. Equal decisions within a short time share one entry with a count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// The requester's key; `None` for the operator on the node itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<LedgerText>,
    /// The identifiers of the blocks of the requester's credential, the operator's block first. Empty for the operator,
    /// and for a credential that was not valid.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub credentials: Vec<LedgerText>,
    /// The identifiers of the blocks of a credential that is not valid on this node. The requester only claims them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<LedgerText>,
    /// The request.
    pub request: LedgerText,
    /// The node's name for the session; or the name in the request, if no session has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<LedgerText>,
    /// The requester's own name for the session, if it differs from the node's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub called: Option<LedgerText>,
    /// The outcome.
    pub outcome: DecisionOutcome,
    /// The reason, unless the request was carried out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<LedgerText>,
    /// The number of equal requests that share the entry.
    #[serde(default = "wire::one", skip_serializing_if = "wire::is_one")]
    pub count: u64,
}

impl Decision {
    /// Makes a decision on a request of the operator. All fields but `request` and `outcome` are empty, and the count
    /// is 1.
    pub fn new(request: &str, outcome: DecisionOutcome) -> Self {
        Self {
            key: None,
            credentials: Vec::new(),
            claims: Vec::new(),
            request: LedgerText::new(request),
            session: None,
            called: None,
            outcome,
            reason: None,
            count: 1,
        }
    }
}

/// Returns true if a [`DecisionList`] has a row for the event: for decisions, and for the end of a session without a
/// request. A session that ended by request has a decision for the request.
pub fn is_decision(event: &LedgerEvent) -> bool {
    match event {
        LedgerEvent::Decision(_) | LedgerEvent::Unlisted { .. } | LedgerEvent::Revoked { .. } => true,
        LedgerEvent::SessionClosed { reason, .. } => *reason != CloseReason::Requested,
        _ => false,
    }
}

/// The decisions of a ledger as a table, in the order of the ledger.
#[derive(Clone, Debug, Default)]
pub struct DecisionList {
    rows: Vec<Vec<LedgerCell>>,
}

const COLUMNS: [LedgerColumn; 9] = [
    LedgerColumn { key: "begin", title: "from", unit: "" },
    LedgerColumn { key: "end", title: "to", unit: "" },
    LedgerColumn { key: "request", title: "request", unit: "" },
    LedgerColumn { key: "session", title: "session", unit: "" },
    LedgerColumn { key: "outcome", title: "outcome", unit: "" },
    LedgerColumn { key: "count", title: "times", unit: "" },
    LedgerColumn { key: "key", title: "who", unit: "" },
    LedgerColumn { key: "credentials", title: "by what right", unit: "" },
    LedgerColumn { key: "reason", title: "why", unit: "" },
];

impl DecisionList {
    /// Adds an entry. Entries that are [no decision](is_decision) are skipped.
    pub fn add(&mut self, entry: &LedgerEntry) {
        if !is_decision(&entry.event) {
            return;
        }
        let mut row = |request: &str, outcome: &str, count: u64, texts: [Option<String>; 4]| {
            let [session, key, credentials, reason] =
                texts.map(|text| text.map_or(LedgerCell::None, LedgerCell::Text));
            self.rows.push(vec![
                LedgerCell::Text(show_time(entry.begin)),
                LedgerCell::Text(show_time(entry.end)),
                LedgerCell::Text(request.to_owned()),
                session,
                LedgerCell::Text(outcome.to_owned()),
                LedgerCell::Count(count),
                key,
                credentials,
                reason,
            ]);
        };
        match &entry.event {
            LedgerEvent::Decision(decision) => {
                let Decision { key, credentials, claims, request, session, outcome, reason, count, .. } =
                    &**decision;
                let joined =
                    |ids: &[LedgerText]| ids.iter().map(LedgerText::as_str).collect::<Vec<_>>().join(" ");
                let credentials = match (credentials.as_slice(), claims.as_slice()) {
                    ([], []) => None,
                    ([], claims) => Some(format!("(claimed) {}", joined(claims))),
                    (credentials, _) => Some(joined(credentials)),
                };
                let text = |text: &Option<LedgerText>| text.as_ref().map(LedgerText::to_string);
                let texts = [text(session), text(key), credentials, text(reason)];
                row(request.as_str(), outcome.as_str(), *count, texts);
            }
            LedgerEvent::Unlisted { allowed, refused, handshakes } => {
                for (what, outcome, count) in [
                    ("(not listed singly)", DecisionOutcome::Allowed, *allowed),
                    ("(not listed singly)", DecisionOutcome::Refused, *refused),
                    ("(handshake)", DecisionOutcome::Failed, *handshakes),
                ] {
                    if count > 0 {
                        row(what, outcome.as_str(), count, [const { None }; 4]);
                    }
                }
            }
            LedgerEvent::Revoked { root, list, ids } => {
                let reason = format!("list {list} of this root, {ids} taken back");
                let texts = [None, Some(root.to_string()), None, Some(reason)];
                row("(revocation)", DecisionOutcome::Allowed.as_str(), 1, texts);
            }
            LedgerEvent::SessionClosed { session, reason } => {
                row(
                    "(end)",
                    "closed",
                    1,
                    [Some(session.name.to_string()), None, None, Some(reason.to_string())],
                );
            }
            _ => {}
        }
    }

    /// Returns the table, always with the same columns.
    pub fn table(&self) -> LedgerTable {
        LedgerTable::new(COLUMNS.to_vec(), self.rows.clone())
    }
}
