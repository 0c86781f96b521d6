//! `--table NAME=FILE`: what modules see of the named tables that they read.

use crate::cmd::run::RunError;
use std::io::Write;
use std::sync::Arc;
use weir_admission::{Admitted, Name, NameError, TableAccess};
use weir_node::sessions::tables::{TableFileError, read_file};
use weir_sandbox::{InstanceContext, TableVersion};
use weir_units::Shown as _;

/// Why tables cannot be shown. To blame is whoever named them.
#[derive(Debug, thiserror::Error)]
pub enum TableArgError {
    /// Not what the option takes.
    #[error("`--table {}`: NAME=FILE is wanted, such as prefixes=prefixes.bin", .0.escape_debug())]
    Part(String),
    /// No name.
    #[error("`--table {}`: {error}", given.escape_debug())]
    Name {
        /// As it was given.
        given: String,
        /// What is wrong with it.
        error: NameError,
    },
    /// Named twice.
    #[error("`--table {0}=...` is there twice")]
    Twice(Name),
    /// Nobody reads it.
    #[error("`--table {table}=...`: no module of this run reads such a table; {}", there(known))]
    Unread {
        /// As it was named.
        table: Name,
        /// What they read.
        known: String,
    },
    /// A module has no room for it.
    #[error("`--table {table}=...`: it has {len} bytes, and module {module} declares {most} at most")]
    TooLong {
        /// As it was named.
        table: Name,
        /// How long it is.
        len: u32,
        /// Whose it is to be.
        module: Name,
        /// What that has room for.
        most: u32,
    },
    /// The file is none.
    #[error(transparent)]
    File(#[from] TableFileError),
    /// There is no memory for it.
    #[error("there is no memory for table {table}: {source}")]
    System {
        /// Which.
        table: Name,
        /// What the system said.
        source: std::io::Error,
    },
}

fn there(known: &str) -> String {
    if known.is_empty() { "they read none".to_owned() } else { format!("they read {known}") }
}

/// The tables of a run.
#[derive(Debug, Default)]
pub struct Tables(Vec<(Name, Arc<TableVersion>)>);

impl Tables {
    /// Reads their files.
    pub fn read(options: &[String]) -> Result<Self, TableArgError> {
        let mut tables: Vec<(Name, Arc<TableVersion>)> = Vec::new();
        for text in options {
            let (name, file) = text.split_once('=').ok_or_else(|| TableArgError::Part(text.clone()))?;
            let name = Name::new(name).map_err(|error| TableArgError::Name { given: text.clone(), error })?;
            if tables.iter().any(|(known, _)| *known == name) {
                return Err(TableArgError::Twice(name));
            }
            let version = TableVersion::new(1, &read_file(file.as_ref())?)
                .map_err(|source| TableArgError::System { table: name.clone(), source })?;
            tables.push((name, Arc::new(version)));
        }
        Ok(Self(tables))
    }

    /// Whether these modules can be shown all of them.
    pub fn check<'a>(
        &self,
        modules: impl Iterator<Item = &'a Admitted> + Clone,
    ) -> Result<(), TableArgError> {
        let read = || {
            let all = modules
                .clone()
                .flat_map(|module| module.manifest().tables.iter().map(move |it| (module, it)));
            all.filter(|(_, table)| table.access != TableAccess::Publish)
        };
        for (name, version) in &self.0 {
            let mut readers = read().filter(|(_, table)| table.name == *name).peekable();
            if readers.peek().is_none() {
                let mut known: Vec<&str> = read().map(|(_, table)| table.name.as_str()).collect();
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

    /// Says what a module has to do without.
    pub fn warn(&self, module: &str, admitted: &Admitted) {
        for table in &admitted.manifest().tables {
            let is_there = self.0.iter().any(|(name, _)| *name == table.name);
            let what = match table.access {
                TableAccess::Publish => {
                    "nobody reads what it publishes as table `NAME`: a run has no sessions"
                }
                TableAccess::Read { .. } if is_there => continue,
                TableAccess::Read { .. } => {
                    "it reads table `NAME`, which is empty; --table NAME=FILE shows it one"
                }
            };
            let what = what.replace("NAME", table.name.as_str());
            let _ = writeln!(std::io::stderr(), "weir: warning: {}: {what}", module.shown());
        }
    }

    /// What a module has.
    pub fn means(&self, admitted: &Admitted) -> InstanceContext {
        let of = |name: &Name| {
            self.0.iter().find(|(known, _)| known == name).map(|(_, version)| Arc::clone(version))
        };
        let tables = admitted.manifest().tables.iter().map(|table| of(&table.name)).collect();
        InstanceContext { tables, ..InstanceContext::default() }
    }
}

impl From<TableArgError> for RunError {
    fn from(error: TableArgError) -> Self {
        Self::Table(error)
    }
}
