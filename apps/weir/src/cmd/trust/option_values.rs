//! Option values that can also be `unlimited`, `same` or `*`.

use std::str::FromStr;
use weir_trust::grant::{NodePattern, Nodes};

/// A limit or `unlimited`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitArg<T> {
    /// No limit; written `unlimited`.
    Unlimited,
    /// This limit.
    AtMost(T),
}

impl<T> LimitArg<T> {
    /// Returns the limit as in a grant: `None` for no limit.
    pub fn limit(self) -> Option<T> {
        match self {
            Self::Unlimited => None,
            Self::AtMost(limit) => Some(limit),
        }
    }
}

impl<T: FromStr> FromStr for LimitArg<T> {
    type Err = T::Err;

    fn from_str(text: &str) -> Result<Self, T::Err> {
        if text == "unlimited" { Ok(Self::Unlimited) } else { text.parse().map(Self::AtMost) }
    }
}

/// A value for a delegation, or `same` for the value of the credential that is delegated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InheritArg<T> {
    /// The value of the credential that is delegated; written `same`.
    Inherit,
    /// This value.
    Value(T),
}

impl<T> InheritArg<T> {
    /// Returns the value for the new block of the credential; `None` for the inherited value.
    pub fn value(self) -> Option<T> {
        match self {
            Self::Inherit => None,
            Self::Value(value) => Some(value),
        }
    }
}

impl<T: FromStr> FromStr for InheritArg<T> {
    type Err = T::Err;

    fn from_str(text: &str) -> Result<Self, T::Err> {
        if text == "same" { Ok(Self::Inherit) } else { text.parse().map(Self::Value) }
    }
}

/// The nodes that a grant is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeScope {
    /// All nodes that trust the operator's key; written `*`.
    Everywhere,
    /// The nodes that match this pattern.
    Nodes(NodePattern),
}

impl NodeScope {
    /// Combines scopes to the node patterns of a grant; `None` for all nodes.
    pub fn combine(scopes: &[Self]) -> Option<Nodes> {
        let pattern = |scope: &Self| match scope {
            Self::Everywhere => None,
            Self::Nodes(pattern) => Some(pattern.clone()),
        };
        scopes.iter().map(pattern).collect()
    }
}

impl FromStr for NodeScope {
    type Err = <NodePattern as FromStr>::Err;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "*" { Ok(Self::Everywhere) } else { text.parse().map(Self::Nodes) }
    }
}
