//! Packet filters as texts.

use std::fmt;
use std::str::FromStr;

/// The longest filter, in bytes.
pub const FILTER_BYTES_MAX: usize = 4096;

/// A filter in the language of pcap-filter(7), as one line of printable ASCII. The node checks the syntax when it
/// compiles the filter. It compiles each filter alone and joins the programs, not the texts; so a text such as `) or (`
/// cannot change the meaning of another filter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GrantFilter(String);

/// The reason why a text is not a filter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrantFilterError {
    /// A text longer than [`FILTER_BYTES_MAX`].
    #[error("a filter has at most {FILTER_BYTES_MAX} bytes; this one has {0}")]
    Long(usize),
    /// An empty text. A grant for every packet has no filter instead.
    #[error("a filter cannot be empty: to select every packet, leave it out")]
    Empty,
    /// A character that is not printable ASCII.
    #[error("`{}` cannot be in a filter: it is one line of printable ASCII characters", .0.escape_debug())]
    Character(char),
}

impl GrantFilter {
    /// Returns the filter's text.
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
    fn a_filter_is_one_line_of_printable_ascii() {
        assert_eq!("tcp port 80 or (udp)".parse::<GrantFilter>().unwrap().as_str(), "tcp port 80 or (udp)");
        // Brackets that do not match are no danger, because filters are never joined as texts.
        assert!(") or (".parse::<GrantFilter>().is_ok());
        assert_eq!("".parse::<GrantFilter>(), Err(GrantFilterError::Empty));
        assert_eq!("  ".parse::<GrantFilter>(), Err(GrantFilterError::Empty));
        assert_eq!("tcp\nudp".parse::<GrantFilter>(), Err(GrantFilterError::Character('\n')));
        assert_eq!("tcp\u{202e}".parse::<GrantFilter>(), Err(GrantFilterError::Character('\u{202e}')));
        assert_eq!("a".repeat(5000).parse::<GrantFilter>(), Err(GrantFilterError::Long(5000)));
    }
}
