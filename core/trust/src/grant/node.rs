//! Names of nodes, and sets of names as patterns.

use super::list;
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// The longest name of a node, in bytes (RFC 1035, section 2.3.4).
const NAME_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;

/// A node's name, as its operator chose it. It looks like a host name: lower-case letters, digits and `-` in parts that
/// dots separate. Names are compared, and never resolved.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeName(String);

/// A pattern of node names: one node, or all nodes below a domain.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodePattern {
    /// The node with this name.
    Exactly(NodeName),
    /// All nodes whose names end in a dot and this name; written `*.` and the name.
    Below(NodeName),
}

/// The error for a text that does not name a node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{}` names no node: write a name such as edge-1.example.org, of lower-case letters, digits and `-`{}", .text.escape_debug(),
    if *.may_be_pattern { ", or `*.example.org` for all nodes below example.org" } else { "" }
)]
pub struct NodeNameError {
    /// The beginning of the given text.
    text: String,
    /// True if a pattern was allowed.
    may_be_pattern: bool,
}

impl NodeName {
    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn is_below(&self, domain: &Self) -> bool {
        self.0.strip_suffix(&domain.0).is_some_and(|rest| rest.ends_with('.'))
    }
}

impl FromStr for NodeName {
    type Err = NodeNameError;

    fn from_str(text: &str) -> Result<Self, NodeNameError> {
        let is_label = |label: &str| {
            let legal = label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
            legal
                && (1..=LABEL_BYTES_MAX).contains(&label.len())
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        if text.len() <= NAME_BYTES_MAX && text.split('.').all(is_label) {
            Ok(Self(text.to_owned()))
        } else {
            Err(NodeNameError { text: text.chars().take(80).collect(), may_be_pattern: false })
        }
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl NodePattern {
    /// Returns true if the pattern covers the node with this name.
    pub fn matches(&self, node: &NodeName) -> bool {
        match self {
            Self::Exactly(name) => name == node,
            Self::Below(domain) => node.is_below(domain),
        }
    }

    /// Returns true if `other` covers every node that this pattern covers.
    pub fn is_at_most(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Exactly(name), _) => other.matches(name),
            (Self::Below(domain), Self::Below(wider)) => domain == wider || domain.is_below(wider),
            (Self::Below(_), Self::Exactly(_)) => false,
        }
    }
}

impl FromStr for NodePattern {
    type Err = NodeNameError;

    fn from_str(text: &str) -> Result<Self, NodeNameError> {
        let pattern = match text.strip_prefix("*.") {
            Some(domain) => domain.parse().map(Self::Below),
            None => text.parse().map(Self::Exactly),
        };
        pattern.map_err(|_| NodeNameError { text: text.chars().take(80).collect(), may_be_pattern: true })
    }
}

impl fmt::Display for NodePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exactly(name) => write!(f, "{name}"),
            Self::Below(domain) => write!(f, "*.{domain}"),
        }
    }
}

/// A set of nodes, as patterns. A pattern that another pattern covers is left out, so that equal sets have equal
/// patterns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nodes(BTreeSet<NodePattern>);

impl Nodes {
    /// Returns true if the set contains the node with this name.
    pub fn contains(&self, node: &NodeName) -> bool {
        self.0.iter().any(|pattern| pattern.matches(node))
    }

    /// Returns the nodes in both sets.
    #[must_use]
    pub fn meet(&self, other: &Self) -> Self {
        // Two patterns have no node in common, or one of them covers all nodes of the other.
        let common = |a: &NodePattern, b: &NodePattern| {
            if a.is_at_most(b) {
                Some(a.clone())
            } else if b.is_at_most(a) {
                Some(b.clone())
            } else {
                None
            }
        };
        self.0.iter().flat_map(|a| other.0.iter().filter_map(move |b| common(a, b))).collect()
    }

    /// Returns true if `other` contains all nodes of this set.
    pub fn is_at_most(&self, other: &Self) -> bool {
        self.meet(other) == *self
    }

    /// Returns the patterns.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &NodePattern> {
        self.0.iter()
    }
}

impl fmt::Display for Nodes {
    /// Writes the patterns as text for people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&list(self.iter()))
    }
}

impl FromIterator<NodePattern> for Nodes {
    fn from_iter<T: IntoIterator<Item = NodePattern>>(patterns: T) -> Self {
        let all: BTreeSet<NodePattern> = patterns.into_iter().collect();
        let is_needed =
            |pattern: &&NodePattern| !all.iter().any(|other| other != *pattern && pattern.is_at_most(other));
        Self(all.iter().filter(is_needed).cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(patterns: &[&str]) -> Nodes {
        patterns.iter().map(|pattern| pattern.parse::<NodePattern>().unwrap()).collect()
    }

    #[test]
    fn names_are_compared_part_by_part() {
        let below = "*.example.org".parse::<NodePattern>().unwrap();
        for (name, is_meant) in [
            ("a.example.org", true),
            ("b.a.example.org", true),
            ("example.org", false),
            ("notexample.org", false),
            ("a.example.org.evil.net", false),
        ] {
            assert_eq!(below.matches(&name.parse().unwrap()), is_meant, "{name}");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        let long = format!("{}.org", "a".repeat(64));
        for text in [
            "",
            ".",
            "a..b",
            "a.",
            "*",
            "*.*.a",
            "A",
            "a b",
            "a_b",
            "-a",
            "a-",
            "é",
            "a/b",
            &long,
            &"a.".repeat(200),
        ] {
            assert!(text.parse::<NodePattern>().is_err(), "{text}");
        }
        assert!("*.a".parse::<NodeName>().is_err());
        assert_eq!(
            "A".parse::<NodePattern>().unwrap_err().to_string(),
            "`A` names no node: write a name such as edge-1.example.org, of lower-case letters, digits and `-`, or `*.example.org` for all nodes below example.org"
        );
    }

    #[test]
    fn the_nodes_in_both_sets() {
        let a = nodes(&["*.a.org", "x.b.org", "c.org"]);
        let b = nodes(&["*.x.a.org", "*.b.org", "d.org", "y.a.org"]);
        assert_eq!(a.meet(&b), nodes(&["*.x.a.org", "x.b.org", "y.a.org"]));
        assert_eq!(nodes(&["*.a.org", "x.a.org", "*.y.a.org"]), nodes(&["*.a.org"]));
        assert_eq!(nodes(&["c.org"]).meet(&nodes(&["d.org"])), Nodes::default());
    }
}
