//! Who asked for what, and what came of it.

use super::{
    CloseReason, LedgerCell, LedgerColumn, LedgerEntry, LedgerEvent, LedgerTable, LedgerText, show_time, wire,
};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What came of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DecisionOutcome {
    /// It was permitted, and done.
    Allowed,
    /// Whoever asked may not.
    Refused,
    /// It was permitted, and could not be done.
    Failed,
}

impl DecisionOutcome {
    /// In a word.
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

/// A decision on a request. What was decided again and again in a while is one with its count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// The key of who asked; nothing where it was the operator, on the node itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<LedgerText>,
    /// By what right: the identifiers of all prefixes of the credential's chain, the operator's block first. None of the operator, and of a credential that was worth nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub credentials: Vec<LedgerText>,
    /// The identifiers that a credential says of itself which was worth nothing here: anybody can write them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<LedgerText>,
    /// What was asked for.
    pub request: LedgerText,
    /// Which session it is about, by the node's name for it, or by the one that was given where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<LedgerText>,
    /// What whoever asked calls that session, where that is another name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub called: Option<LedgerText>,
    /// What came of it.
    pub outcome: DecisionOutcome,
    /// Why, where it was not done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<LedgerText>,
    /// How often.
    #[serde(default = "wire::one", skip_serializing_if = "wire::is_one")]
    pub count: u64,
}

impl Decision {
    /// What was asked for, by the operator, and what came of it. To be filled in.
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

/// Whether a [`DecisionList`] has something to say about it: what was decided, and ends of sessions that nobody asked for. What somebody asked for stands there already.
pub fn is_decision(event: &LedgerEvent) -> bool {
    match event {
        LedgerEvent::Decision(_) | LedgerEvent::Unlisted { .. } | LedgerEvent::Revoked { .. } => true,
        LedgerEvent::SessionClosed { reason, .. } => *reason != CloseReason::Asked,
        _ => false,
    }
}

/// Decisions of a ledger as a table: a row for each entry, in their order.
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
    /// Takes an entry; those of which there is [nothing to say](is_decision) are passed over.
    pub fn add(&mut self, entry: &LedgerEntry) {
        if !is_decision(&entry.event) {
            return;
        }
        let mut row = |request: &str, outcome: &str, count: u64, more: [Option<String>; 4]| {
            let [session, key, credentials, reason] =
                more.map(|text| text.map_or(LedgerCell::None, LedgerCell::Text));
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
                let more = [text(session), text(key), credentials, text(reason)];
                row(request.as_str(), outcome.as_str(), *count, more);
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
                let more = [None, Some(root.to_string()), None, Some(reason)];
                row("(revocation)", DecisionOutcome::Allowed.as_str(), 1, more);
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

    /// As a table: always the same columns.
    pub fn table(&self) -> LedgerTable {
        LedgerTable::new(COLUMNS.to_vec(), self.rows.clone())
    }
}
