//! `--table NAME=FILE`: the content of named tables that modules read.

use crate::cmd::run::RunError;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use weir_admission::{Admitted, Name, NameError, TableAccess};
use weir_node::sessions::tables::{TableFileError, read_file};
use weir_sandbox::{InstanceContext, TableVersion};
use weir_units::Escape as _;

/// Errors of `--table`; all of them are usage errors.
#[derive(Debug, thiserror::Error)]
pub enum TableArgError {
    /// The option has no `=`.
    #[error("`--table {}`: NAME=FILE is wanted, such as prefixes=prefixes.bin", .0.escape_debug())]
    Part(String),
    /// The name is not valid.
    #[error("`--table {}`: {error}", option.escape_debug())]
    Name {
        /// The option's value.
        option: String,
        /// The fault of the name.
        error: NameError,
    },
    /// A table is named twice.
    #[error("`--table {0}=...` is there twice")]
    Twice(Name),
    /// No module reads the table.
    #[error("`--table {table}=...`: no module of this run reads such a table; {}", describe_known(known))]
    Unread {
        /// The table's name.
        table: Name,
        /// The tables that the modules read, separated by commas.
        known: String,
    },
    /// The table is longer than a module declares.
    #[error("`--table {table}=...`: it has {len} bytes, and module {module} declares {most} at most")]
    TooLong {
        /// The table's name.
        table: Name,
        /// Its length in bytes.
        len: u32,
        /// The module.
        module: Name,
        /// The maximum length that the module declares.
        most: u32,
    },
    /// The file cannot be read or is not a table.
    #[error(transparent)]
    File(#[from] TableFileError),
    /// The memory for the table cannot be allocated.
    #[error("there is no memory for table {table}: {source}")]
    System {
        /// The table's name.
        table: Name,
        /// The system's error.
        source: std::io::Error,
    },
}

fn describe_known(known: &str) -> String {
    if known.is_empty() { "they read none".to_owned() } else { format!("they read {known}") }
}

/// The tables of a run.
#[derive(Debug, Default)]
pub struct Tables(Vec<(Name, Arc<TableVersion>)>);

impl Tables {
    /// Parses the options and reads the files.
    pub fn read(options: &[String]) -> Result<Self, TableArgError> {
        let mut tables = Self::default();
        for text in options {
            let (name, file) = text.split_once('=').ok_or_else(|| TableArgError::Part(text.clone()))?;
            let name =
                Name::new(name).map_err(|error| TableArgError::Name { option: text.clone(), error })?;
            tables.add(name, file.as_ref())?;
        }
        Ok(tables)
    }

    /// Reads the file of a table.
    pub fn add(&mut self, name: Name, file: &Path) -> Result<(), TableArgError> {
        if self.0.iter().any(|(known, _)| *known == name) {
            return Err(TableArgError::Twice(name));
        }
        let version = TableVersion::new(1, &read_file(file)?)
            .map_err(|source| TableArgError::System { table: name.clone(), source })?;
        self.0.push((name, Arc::new(version)));
        Ok(())
    }

    /// Checks that at least one module reads each table, and that the table is not longer than its readers declare.
    pub fn check<'a>(
        &self,
        modules: impl Iterator<Item = &'a Admitted> + Clone,
    ) -> Result<(), TableArgError> {
        let tables_read = || {
            let all = modules
                .clone()
                .flat_map(|module| module.manifest().tables.iter().map(move |it| (module, it)));
            all.filter(|(_, table)| table.access != TableAccess::Publish)
        };
        for (name, version) in &self.0 {
            let mut readers = tables_read().filter(|(_, table)| table.name == *name).peekable();
            if readers.peek().is_none() {
                let mut known: Vec<&str> = tables_read().map(|(_, table)| table.name.as_str()).collect();
                known.sort_unstable();
                known.dedup();
                return Err(TableArgError::Unread { table: name.clone(), known: known.join(", ") });
            }
            if let Some((module, table)) = readers.find(|(_, table)| version.len() > table.bytes) {
                let (len, most) = (version.len(), table.bytes);
                let module = module.manifest().name.clone();
                return Err(TableArgError::TooLong { table: name.clone(), len, module, most });
            }
        }
        Ok(())
    }

    /// Prints a warning for each table of a module that is empty or has no readers.
    pub fn warn(&self, module: &str, admitted: &Admitted) {
        for table in &admitted.manifest().tables {
            let is_there = self.0.iter().any(|(name, _)| *name == table.name);
            let text = match table.access {
                TableAccess::Publish => {
                    "it publishes table `NAME`, which has no readers: a run has no sessions"
                }
                TableAccess::Read { .. } if is_there => continue,
                TableAccess::Read { .. } => {
                    "it reads table `NAME`, which is empty; --table NAME=FILE fills it"
                }
            };
            let text = text.replace("NAME", table.name.as_str());
            let _ = writeln!(std::io::stderr(), "weir: warning: {}: {text}", module.escaped());
        }
    }

    /// Returns the context of a module's instances, with its tables.
    pub fn instance_context(&self, admitted: &Admitted) -> InstanceContext {
        let version_of = |name: &Name| {
            self.0.iter().find(|(known, _)| known == name).map(|(_, version)| Arc::clone(version))
        };
        let tables = admitted.manifest().tables.iter().map(|table| version_of(&table.name)).collect();
        InstanceContext { tables, ..InstanceContext::default() }
    }
}

impl From<TableArgError> for RunError {
    fn from(error: TableArgError) -> Self {
        Self::Table(error)
    }
}
