//! Texts that say which packets.

use std::fmt;
use std::str::FromStr;

/// The longest filter, in bytes.
pub const FILTER_BYTES_MAX: usize = 4096;

/// Which packets, in the language of pcap-filter(7). Whether it is an expression is found out by whoever compiles it, apart from everything else; here it is
/// a text that shows as itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GrantFilter(String);

/// A text that is no filter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrantFilterError {
    /// Too long.
    #[error("a filter has at most {FILTER_BYTES_MAX} bytes; this one has {0}")]
    Long(usize),
    /// Empty.
    #[error("a filter that selects every packet is not written as an empty one: leave it out")]
    Empty,
    /// Not printable ASCII.
    #[error("`{}` cannot be in a filter: it is one line of printable ASCII characters", .0.escape_debug())]
    Character(char),
}

impl GrantFilter {
    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for GrantFilter {
    type Err = GrantFilterError;

    fn from_str(text: &str) -> Result<Self, GrantFilterError> {
        if text.len() > FILTER_BYTES_MAX {
            return Err(GrantFilterError::Long(text.len()));
        }
        if let Some(character) = text.chars().find(|c| !c.is_ascii_graphic() && *c != ' ') {
            return Err(GrantFilterError::Character(character));
        }
        if text.trim().is_empty() {
            return Err(GrantFilterError::Empty);
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for GrantFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_one_line_that_shows_as_itself() {
        assert_eq!("tcp port 80 or (udp)".parse::<GrantFilter>().unwrap().as_str(), "tcp port 80 or (udp)");
        // An attempt to break out of brackets that nobody writes around it: it is a text like any other.
        assert!(") or (".parse::<GrantFilter>().is_ok());
        assert_eq!("".parse::<GrantFilter>(), Err(GrantFilterError::Empty));
        assert_eq!("  ".parse::<GrantFilter>(), Err(GrantFilterError::Empty));
        assert_eq!("tcp\nudp".parse::<GrantFilter>(), Err(GrantFilterError::Character('\n')));
        assert_eq!("tcp\u{202e}".parse::<GrantFilter>(), Err(GrantFilterError::Character('\u{202e}')));
        assert_eq!("a".repeat(5000).parse::<GrantFilter>(), Err(GrantFilterError::Long(5000)));
    }
}
