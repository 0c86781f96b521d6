//! Blocks of state: parts of a module's memory that a newer version of the module takes over, when it replaces this one.

use crate::Name;
use crate::manifest::{ManifestError, check_count, check_unique, display_text, name};
use serde::Deserialize;
use weir_abi::limit;
use weir_units::Bytes;

/// A block of state. Two versions of a module share a block if name, version and size are the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredState {
    /// The block's name.
    pub name: Name,
    /// The version of the block's layout.
    pub version: u32,
    /// The block's size in bytes.
    pub bytes: u32,
    /// The contents, in one line.
    pub summary: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawState {
    name: String,
    version: u32,
    bytes: RawBytes,
    #[serde(default)]
    summary: String,
}

/// A size: a number of bytes, or a text with a unit.
#[derive(Deserialize)]
#[serde(untagged)]
enum RawBytes {
    Number(u64),
    Text(String),
}

impl DeclaredState {
    /// Returns for each block of the newer version of a module its index in the older version; `None` unless both declare the same
    /// blocks, and at least one.
    pub fn places(newer: &[DeclaredState], older: &[DeclaredState]) -> Option<Vec<usize>> {
        let is_same = |one: &DeclaredState, other: &DeclaredState| {
            (one.name.identifier(), one.version, one.bytes)
                == (other.name.identifier(), other.version, other.bytes)
        };
        // Names are unique, so as many blocks as in the older version are all of its blocks.
        let is_shared = !newer.is_empty() && newer.len() == older.len();
        let place = |state| older.iter().position(|it| is_same(it, state));
        newer.iter().map(place).collect::<Option<_>>().filter(|_| is_shared)
    }
}

/// Reads the blocks of a manifest.
pub(crate) fn states(raw: Vec<RawState>) -> Result<Vec<DeclaredState>, ManifestError> {
    check_count("state", raw.len(), limit::STATES as usize)?;
    let states = raw.into_iter().map(state).collect::<Result<Vec<_>, _>>()?;
    check_unique("state", states.iter().map(|state| &state.name))?;
    Ok(states)
}

fn state(raw: RawState) -> Result<DeclaredState, ManifestError> {
    let name = name("state.name", &raw.name)?;
    let maximum = Bytes(limit::STATE_BYTES.into());
    let given = match &raw.bytes {
        RawBytes::Number(number) => Some(Bytes(*number)),
        RawBytes::Text(text) => text.parse().ok(),
    };
    let bytes = given.filter(|bytes| *bytes <= maximum).and_then(|bytes| u32::try_from(bytes.0).ok());
    let wanted =
        || format!("the size of the object in memory, from 1 B to {maximum}, such as 4096 or \"64 KiB\"");
    Ok(DeclaredState {
        bytes: bytes
            .filter(|bytes| *bytes > 0)
            .ok_or_else(|| ManifestError::Amount { at: "state.bytes", wanted: wanted() })?,
        version: raw.version,
        summary: display_text(&format!("state `{name}`, summary"), raw.summary)?,
        name,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Manifest;

    fn parse(states: &str) -> Result<Vec<DeclaredState>, String> {
        let head = "name = 'm'\nversion = '1'\nabi = 2\nlicense = 'MIT'\nsummary = 's'\n";
        let manifest = Manifest::parse(format!("{head}{states}").as_bytes());
        manifest.map(|manifest| manifest.states).map_err(|error| error.to_string())
    }

    #[test]
    fn blocks_are_shared_by_name_version_and_size_in_any_order() {
        let hosts = "[[state]]\nname = 'hosts'\nversion = 1\nbytes = 4096\n";
        let counts = "[[state]]\nname = 'counts'\nversion = 3\nbytes = '1 KiB'\nsummary = 'sums'\n";
        let both = parse(&format!("{hosts}{counts}")).unwrap();
        let places = |other: &str| DeclaredState::places(&both, &parse(other).unwrap());
        assert_eq!(places(&format!("{counts}{hosts}")), Some(vec![1, 0]));
        assert_eq!(places(&format!("{hosts}{counts}")), Some(vec![0, 1]));
        let third = hosts.replace("hosts", "third");
        assert_eq!(
            (places(hosts), places(""), places(&format!("{hosts}{counts}{third}"))),
            (None, None, None)
        );
        for (from, to) in [("4096", "4097"), ("version = 1", "version = 2"), ("hosts", "host")] {
            assert_eq!(places(&format!("{counts}{hosts}").replace(from, to)), None, "{to}");
        }
        assert_eq!(DeclaredState::places(&[], &[]), None);
    }

    #[test]
    fn an_illegal_block_is_refused() {
        let block = |bytes: &str| format!("[[state]]\nname = 'a'\nversion = 1\nbytes = {bytes}\n");
        for bytes in ["0", "'0 B'", "'1 GiB'", "'many'", "18446744073709551615"] {
            assert!(parse(&block(bytes)).is_err(), "{bytes}");
        }
        assert!(parse(&block("-1")).unwrap_err().contains("line"));
        assert_eq!(parse(&block("7").repeat(2)).unwrap_err(), "state: `a` is declared twice");
        let many: String = (0..9).map(|n| block("7").replace("'a'", &format!("'a{n}'"))).collect();
        assert_eq!(parse(&many).unwrap_err(), "9 entries in state; 8 is the most");
    }
}
