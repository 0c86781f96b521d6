//! Named tables that a module declares in its manifest, to read them or to publish them.

use crate::Name;
use crate::manifest::{ManifestError, display_text, name};
use serde::Deserialize;
use weir_abi::{TABLES_BASE, TABLES_MAX, limit, table};
use weir_units::Bytes;

/// A named table that a manifest declares. An operator or a session publishes its bytes, one version after the other,
/// and modules read them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredTable {
    /// The table's name in the module. The operator maps it to a table of the node.
    pub name: Name,
    /// The contents, in one line.
    pub summary: String,
    /// The module's use of the table.
    pub access: TableAccess,
    /// The maximum size, in bytes.
    pub bytes: u32,
}

/// A module's use of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableAccess {
    /// The module reads the table, in a window of its address space.
    Read {
        /// The guest address at which the window begins.
        window: u32,
    },
    /// The module publishes the table for modules of any session.
    Publish,
}

impl DeclaredTable {
    /// Returns the guest address of the window; `None` for a table that the module publishes.
    pub fn window(&self) -> Option<u32> {
        match self.access {
            TableAccess::Read { window } => Some(window),
            TableAccess::Publish => None,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawTable {
    name: String,
    #[serde(default)]
    summary: String,
    access: RawAccess,
    bytes: String,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum RawAccess {
    Read,
    Publish,
}

/// Checks the tables of a manifest, and places their windows in the order of declaration, one after the other.
pub(crate) fn tables(raw: Vec<RawTable>) -> Result<Vec<DeclaredTable>, ManifestError> {
    let mut next_window = TABLES_BASE;
    let mut tables = Vec::with_capacity(raw.len());
    for raw in raw {
        let table_name = name("table.name", &raw.name)?;
        let at = format!("table `{table_name}`");
        let maximum = match raw.access {
            RawAccess::Read => limit::TABLE_BYTES,
            RawAccess::Publish => limit::PUBLISHED_BYTES,
        };
        let given = raw.bytes.parse::<Bytes>().ok().and_then(|bytes| u32::try_from(bytes.0).ok());
        let Some(bytes) = given.filter(|bytes| (1..=maximum).contains(bytes)) else {
            let maximum = Bytes(maximum.into());
            return Err(ManifestError::Table {
                at,
                wanted: format!("an amount up to {maximum} such as \"64 KiB\""),
            });
        };
        let access = match raw.access {
            RawAccess::Publish => TableAccess::Publish,
            RawAccess::Read => {
                let window = next_window;
                next_window = next_window.saturating_add(table::window(bytes));
                if next_window - TABLES_BASE > TABLES_MAX {
                    let maximum = Bytes(TABLES_MAX.into());
                    let wanted = format!(
                        "less: the windows of all tables take {maximum} at most, each with its header"
                    );
                    return Err(ManifestError::Table { at, wanted });
                }
                TableAccess::Read { window }
            }
        };
        let summary = display_text(&format!("{at}, summary"), raw.summary)?;
        tables.push(DeclaredTable { name: table_name, summary, access, bytes });
    }
    Ok(tables)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Manifest;

    fn parse(tables: &str) -> Result<Vec<DeclaredTable>, String> {
        let head = "name = 'm'\nversion = '1'\nabi = 2\nlicense = 'MIT'\nsummary = 's'\n";
        let manifest = Manifest::parse(format!("{head}{tables}").as_bytes());
        manifest.map(|manifest| manifest.tables).map_err(|error| error.to_string())
    }

    fn declared(name: &str, access: &str, bytes: &str) -> String {
        format!("[[table]]\nname = '{name}'\naccess = '{access}'\nbytes = '{bytes}'\n")
    }

    #[test]
    fn windows_follow_each_other_with_room_for_their_headers() {
        let text = declared("a", "read", "1 B")
            + &declared("b", "publish", "1 MiB")
            + &declared("c", "read", "64 KiB")
            + &declared("d", "read", "65472 B")
            + &declared("e", "read", "64 MiB");
        let tables = parse(&text).unwrap();
        let windows: Vec<_> = tables.iter().map(|table| table.window().map(|at| at - TABLES_BASE)).collect();
        let step = table::WINDOW_STEP;
        assert_eq!(windows, [Some(0), None, Some(step), Some(3 * step), Some(4 * step)]);
        assert_eq!(
            tables.iter().map(|table| table.bytes).collect::<Vec<_>>(),
            [1, 1 << 20, 1 << 16, 65_472, 64 << 20]
        );
    }

    #[test]
    fn an_error_names_the_table() {
        let seven: String = (0..7).map(|n| declared(&format!("t{n}"), "read", "64 MiB")).collect();
        for (text, says) in [
            (declared("A", "read", "1 B"), "table.name: `A` is not a name"),
            (declared("a", "write", "1 B"), "unknown variant `write`, expected `read` or `publish`"),
            (declared("a", "read", "64 MiB 1 B"), "table `a`, bytes: must be an amount up to 64 MiB such as"),
            (declared("a", "read", "0 B"), "table `a`, bytes: must be an amount up to 64 MiB such as"),
            (declared("a", "read", "65 MiB"), "table `a`, bytes: must be an amount up to 64 MiB such as"),
            (
                declared("a", "publish", "1048577 B"),
                "table `a`, bytes: must be an amount up to 1 MiB such as",
            ),
            (
                seven + &declared("last", "read", "64 MiB"),
                "table `last`, bytes: must be less: the windows of all tables take 512 MiB",
            ),
            ("[[table]]\nname = 'a'\naccess = 'read'\n".to_owned(), "missing field `bytes`"),
        ] {
            let error = parse(&text).unwrap_err();
            assert!(error.contains(says), "{error}\n  should say: {says}");
        }
    }
}
