//! Identifiers with the time at which their credential expires.

use super::{ChainBlock, PrefixId, PrefixIdError};
use crate::grant::Second;
use std::fmt;
use std::str::FromStr;

/// The identifier of a credential, and the time at which the credential expires. A revocation needs nothing else. As text it is one token, such as
/// `weir-id:…@2027-01-01T00:00:00Z`, which `weir credential revoke` takes in place of the credential's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DatedId {
    /// The identifier.
    pub id: PrefixId,
    /// The first second in which the credential does not hold any more; `None` where that is not known.
    pub expires: Option<Second>,
}

/// A text that is no identifier with a time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DatedIdError {
    /// The identifier.
    #[error(transparent)]
    Id(#[from] PrefixIdError),
    /// The time.
    #[error(
        "`{}` is no time at which a credential expires: write one such as 2027-01-01T00:00:00Z after the `@`, or leave out both", .0.escape_debug()
    )]
    Time(String),
}

impl DatedId {
    /// Every link of a chain, root first. A link expires with the first of the blocks up to it.
    pub fn of_chain(links: &[ChainBlock]) -> impl Iterator<Item = Self> + '_ {
        links.iter().scan(None, |until: &mut Option<Second>, link| {
            *until = match (*until, link.grant.expires) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            };
            Some(Self { id: link.id, expires: *until })
        })
    }
}

impl From<PrefixId> for DatedId {
    /// The time is not known.
    fn from(id: PrefixId) -> Self {
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
            return Ok(text.parse::<PrefixId>()?.into());
        };
        let wrong = |_| DatedIdError::Time(time.chars().take(80).collect());
        Ok(Self { id: id.parse()?, expires: Some(time.parse().map_err(wrong)?) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identifier_and_its_time_are_one_token() {
        let id: PrefixId = format!("weir-id:{}", "a".repeat(32)).parse().unwrap();
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
