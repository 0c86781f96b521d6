//! Values of options that can also say that there is no limit, or the same one as before.

use std::str::FromStr;
use weir_trust::grant::{NodePattern, Nodes};

/// A limit, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitArg<T> {
    /// Written `unlimited`.
    Unlimited,
    /// At most this much.
    Of(T),
}

impl<T> LimitArg<T> {
    /// The limit, as a grant states it.
    pub fn limit(self) -> Option<T> {
        match self {
            Self::Unlimited => None,
            Self::Of(most) => Some(most),
        }
    }
}

impl<T: FromStr> FromStr for LimitArg<T> {
    type Err = T::Err;

    fn from_str(text: &str) -> Result<Self, T::Err> {
        if text == "unlimited" { Ok(Self::Unlimited) } else { text.parse().map(Self::Of) }
    }
}

/// A value, or the one of the credential that is passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Same<T> {
    /// Written `same`.
    Same,
    /// This one.
    Other(T),
}

impl<T> Same<T> {
    /// The value that a block states: none where it leaves the credential's own.
    pub fn stated(self) -> Option<T> {
        match self {
            Self::Same => None,
            Self::Other(value) => Some(value),
        }
    }
}

impl<T: FromStr> FromStr for Same<T> {
    type Err = T::Err;

    fn from_str(text: &str) -> Result<Self, T::Err> {
        if text == "same" { Ok(Self::Same) } else { text.parse().map(Self::Other) }
    }
}

/// Nodes that an operator names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum At {
    /// Written `*`: all nodes that trust the operator's key.
    Everywhere,
    /// The nodes that match this pattern.
    Nodes(NodePattern),
}

impl At {
    /// The set that a grant states: none where all nodes are meant.
    pub fn all(of: &[Self]) -> Option<Nodes> {
        let pattern = |at: &Self| match at {
            Self::Everywhere => None,
            Self::Nodes(pattern) => Some(pattern.clone()),
        };
        of.iter().map(pattern).collect()
    }
}

impl FromStr for At {
    type Err = <NodePattern as FromStr>::Err;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "*" { Ok(Self::Everywhere) } else { text.parse().map(Self::Nodes) }
    }
}
