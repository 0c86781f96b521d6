//! The table grants of a session's specification: named tables of the node that the session's modules may read or
//! publish. They are no grants of a credential.

use crate::control::spec::{SessionSpec, SpecError, distinct};
use std::fmt;
use std::str::FromStr;
use weir_admission::{Name, NameError};

/// A named table of the node, with the name that the session's modules use for it: `NAME`, or `LOCAL=NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableGrant {
    /// Name of the table in the manifests of the session's modules.
    pub local: Name,
    /// Name of the table on the node.
    pub table: Name,
}

impl fmt::Display for TableGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.local == self.table {
            write!(f, "{}", self.table)
        } else {
            write!(f, "{}={}", self.local, self.table)
        }
    }
}

impl FromStr for TableGrant {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let (local, table) = text.split_once('=').unwrap_or((text, text));
        Ok(Self { local: Name::new(local)?, table: Name::new(table)? })
    }
}

impl SessionSpec {
    /// Checks that no two readable tables and no two published tables have one local name, and that no table is
    /// published under two local names.
    pub(crate) fn check_tables(&self) -> Result<(), SpecError> {
        distinct(&self.name, "readable table", self.read.iter().map(|grant| &grant.local))?;
        // An *own table* is a published table by its local name.
        distinct(&self.name, "own table", self.publish.iter().map(|grant| &grant.local))?;
        distinct(&self.name, "published table", self.publish.iter().map(|grant| &grant.table))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_and_published_table_names_are_unique() {
        let check = |tables: &str| {
            let spec: SessionSpec = toml::from_str(&format!("name = \"a\"\n{tables}")).unwrap();
            spec.check(&[], &[]).map_err(|error| error.to_string())
        };
        assert_eq!(check("read = [\"a\", \"b=a\"]\npublish = [\"a\", \"b\"]"), Ok(()));
        for (tables, says) in [
            ("read = [\"a\", \"a=b\"]", "session `a` has two readable tables called `a`"),
            ("publish = [\"a\", \"a=b\"]", "session `a` has two own tables called `a`"),
            ("publish = [\"a=c\", \"b=c\"]", "session `a` has two published tables called `c`"),
        ] {
            assert_eq!(check(tables).unwrap_err(), says);
        }
    }

    #[test]
    fn a_grant_reads_as_it_was_written() {
        for text in ["prefixes", "local=prefixes", "a-b=c_d"] {
            assert_eq!(text.parse::<TableGrant>().unwrap().to_string(), text);
        }
        assert_eq!("a=a".parse::<TableGrant>().unwrap().to_string(), "a");
        for text in ["", "=", "a=", "=a", "a=b=c", "A", "a b"] {
            assert!(text.parse::<TableGrant>().unwrap_err().to_string().contains("is not a name"), "{text}");
        }
    }
}
