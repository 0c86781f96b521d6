//! Identifiers of credentials with their expiry time.

use super::{ChainBlock, DelegationId, DelegationIdError};
use crate::grant::UnixSecond;
use std::fmt;
use std::str::FromStr;

/// The identifier of a credential, and the time at which the credential expires. A revocation states both. The text of
/// this value is one word such as `weir-id:…@2027-01-01T00:00:00Z`, which `weir credential revoke` takes in place of
/// the credential's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DatedId {
    /// The identifier.
    pub id: DelegationId,
    /// The first second in which the credential is no longer valid; `None` if it is not known.
    pub expires: Option<UnixSecond>,
}

/// The error for a text that is not an identifier with a time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DatedIdError {
    /// The identifier is not legal.
    #[error(transparent)]
    Id(#[from] DelegationIdError),
    /// The time is not legal; holds its text.
    #[error(
        "`{}` is no time at which a credential expires: write a time such as 2027-01-01T00:00:00Z after the `@`, or leave out the `@` and the time", .0.escape_debug()
    )]
    Time(String),
}

impl DatedId {
    /// Returns the identifier and expiry time of every block of a chain, root first. A block expires no later than the
    /// blocks before it.
    pub fn of_chain(blocks: &[ChainBlock]) -> impl Iterator<Item = Self> + '_ {
        blocks.iter().scan(None, |until: &mut Option<UnixSecond>, block| {
            *until = match (*until, block.grant.expires) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            };
            Some(Self { id: block.id, expires: *until })
        })
    }
}

impl From<DelegationId> for DatedId {
    /// Makes an identifier whose expiry time is not known.
    fn from(id: DelegationId) -> Self {
        Self { id, expires: None }
    }
}

impl fmt::Display for DatedId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.expires {
            Some(expires) => write!(f, "{}@{expires}", self.id),
            None => self.id.fmt(f),
        }
    }
}

impl FromStr for DatedId {
    type Err = DatedIdError;

    fn from_str(text: &str) -> Result<Self, DatedIdError> {
        let Some((id, time)) = text.trim().split_once('@') else {
            return Ok(text.parse::<DelegationId>()?.into());
        };
        let wrong = |_| DatedIdError::Time(time.chars().take(80).collect());
        Ok(Self { id: id.parse()?, expires: Some(time.parse().map_err(wrong)?) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identifier_and_its_time_are_one_word() {
        let id: DelegationId = format!("weir-id:{}", "a".repeat(32)).parse().unwrap();
        let expires = "2027-01-01".parse().ok();
        for (dated, text) in [
            (DatedId { id, expires }, format!("{id}@2027-01-01T00:00:00Z")),
            (DatedId { id, expires: None }, id.to_string()),
        ] {
            assert_eq!((dated.to_string(), text.parse()), (text, Ok(dated)));
        }
        assert_eq!(format!("{id}@2027-01-01").parse(), Ok(DatedId { id, expires }));
        for wrong in [
            "",
            "@",
            "weir-id:a@2027-01-01",
            &format!("{id}@"),
            &format!("{id}@soon"),
            &format!("{id}@2027-01-01@"),
        ] {
            assert!(wrong.parse::<DatedId>().is_err(), "{wrong}");
        }
    }
}
