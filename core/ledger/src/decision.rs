//! Who asked for what, and what came of it.

use super::{Cell, Closed, Column, Entry, Event, Table, Text, show_time, wire};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What came of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It was permitted, and done.
    Allowed,
    /// Whoever asked may not.
    Refused,
    /// It was permitted, and could not be done.
    Failed,
}

impl Outcome {
    /// In a word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Refused => "refused",
            Self::Failed => "failed",
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A decision on a request. What was decided again and again in a while is one with its count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// The key of who asked; nothing where it was the operator, on the node itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Text>,
    /// By what right: the identifiers of all prefixes of the credential's chain, the operator's block first. None of the operator, and of a credential that was worth nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub credentials: Vec<Text>,
    /// The identifiers that a credential says of itself which was worth nothing here: anybody can write them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<Text>,
    /// What was asked for.
    pub request: Text,
    /// Which session it is about, by the node's name for it, or by the one that was given where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<Text>,
    /// What whoever asked calls that session, where that is another name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub called: Option<Text>,
    /// What came of it.
    pub outcome: Outcome,
    /// Why, where it was not done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Text>,
    /// How often.
    #[serde(default = "wire::one", skip_serializing_if = "wire::is_one")]
    pub count: u64,
}

impl Decision {
    /// What was asked for, by the operator, and what came of it. To be filled in.
    pub fn new(request: &str, outcome: Outcome) -> Self {
        Self {
            key: None,
            credentials: Vec::new(),
            claims: Vec::new(),
            request: Text::new(request),
            session: None,
            called: None,
            outcome,
            reason: None,
            count: 1,
        }
    }
}

/// Whether a [`DecisionList`] has something to say about it: what was decided, and ends of sessions that nobody asked for. What somebody asked for stands there already.
pub fn is_decision(event: &Event) -> bool {
    match event {
        Event::Decision(_) | Event::Unlisted { .. } | Event::Revoked { .. } => true,
        Event::SessionClosed { reason, .. } => *reason != Closed::Asked,
        _ => false,
    }
}

/// Decisions of a ledger as a table: a row for each entry, in their order.
#[derive(Clone, Debug, Default)]
pub struct DecisionList {
    rows: Vec<Vec<Cell>>,
}

const COLUMNS: [Column; 9] = [
    Column { key: "begin", title: "from", unit: "" },
    Column { key: "end", title: "to", unit: "" },
    Column { key: "request", title: "request", unit: "" },
    Column { key: "session", title: "session", unit: "" },
    Column { key: "outcome", title: "outcome", unit: "" },
    Column { key: "count", title: "times", unit: "" },
    Column { key: "key", title: "who", unit: "" },
    Column { key: "credentials", title: "by what right", unit: "" },
    Column { key: "reason", title: "why", unit: "" },
];

impl DecisionList {
    /// Takes an entry; those of which there is [nothing to say](is_decision) are passed over.
    pub fn add(&mut self, entry: &Entry) {
        if !is_decision(&entry.event) {
            return;
        }
        let mut row = |request: &str, outcome: &str, count: u64, more: [Option<String>; 4]| {
            let [session, key, credentials, reason] = more.map(|text| text.map_or(Cell::None, Cell::Text));
            self.rows.push(vec![
                Cell::Text(show_time(entry.begin)),
                Cell::Text(show_time(entry.end)),
                Cell::Text(request.to_owned()),
                session,
                Cell::Text(outcome.to_owned()),
                Cell::Count(count),
                key,
                credentials,
                reason,
            ]);
        };
        match &entry.event {
            Event::Decision(decision) => {
                let Decision { key, credentials, claims, request, session, outcome, reason, count, .. } =
                    &**decision;
                let joined = |ids: &[Text]| ids.iter().map(Text::as_str).collect::<Vec<_>>().join(" ");
                let credentials = match (credentials.as_slice(), claims.as_slice()) {
                    ([], []) => None,
                    ([], claims) => Some(format!("(claimed) {}", joined(claims))),
                    (credentials, _) => Some(joined(credentials)),
                };
                let text = |text: &Option<Text>| text.as_ref().map(Text::to_string);
                let more = [text(session), text(key), credentials, text(reason)];
                row(request.as_str(), outcome.as_str(), *count, more);
            }
            Event::Unlisted { allowed, refused, handshakes } => {
                for (what, outcome, count) in [
                    ("(not listed singly)", Outcome::Allowed, *allowed),
                    ("(not listed singly)", Outcome::Refused, *refused),
                    ("(handshake)", Outcome::Failed, *handshakes),
                ] {
                    if count > 0 {
                        row(what, outcome.as_str(), count, [const { None }; 4]);
                    }
                }
            }
            Event::Revoked { root, list, ids } => {
                let reason = format!("list {list} of this root, {ids} taken back");
                let more = [None, Some(root.to_string()), None, Some(reason)];
                row("(revocation)", Outcome::Allowed.as_str(), 1, more);
            }
            Event::SessionClosed { session, reason } => {
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
    pub fn table(&self) -> Table {
        Table::new(COLUMNS.to_vec(), self.rows.clone())
    }
}
