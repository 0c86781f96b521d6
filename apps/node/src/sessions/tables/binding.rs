//! The binding of the tables in a module's manifest to the node's tables, by the session's grants. The binding is made
//! when the module is loaded, and changes with the session's grants while the module runs.

use super::publisher::Publisher;
use super::reader::{ReadTables, TableGrants};
use super::registry::{SharedTable, TableError, TableOwner, TableRegistry};
use crate::control::spec::SessionSpec;
use std::sync::{Arc, Weak};
use {
    weir_admission::{Manifest, Name, TableAccess},
    weir_session::MemoryReservation,
};

/// The tables of a loaded module, to which changes of the session's grants are applied.
#[derive(Debug)]
pub(crate) struct TableBinding {
    registry: Arc<TableRegistry>,
    /// The tables in the module's manifest.
    declared: Vec<weir_admission::DeclaredTable>,
    /// The node's names of these tables when the module was loaded.
    bound: Vec<Name>,
    granted: Arc<TableGrants>,
    /// The module's publisher, as long as the module exists.
    publisher: Weak<Publisher>,
}

impl SessionSpec {
    /// Returns the node's table for a table of a manifest, or `None` without a grant.
    fn resolve_table(&self, declared: &weir_admission::DeclaredTable) -> Option<&Name> {
        let grants = match declared.access {
            TableAccess::Read { .. } => &self.read,
            TableAccess::Publish => &self.publish,
        };
        grants.iter().find(|grant| grant.local == declared.name).map(|grant| &grant.table)
    }
}

impl TableRegistry {
    /// Binds the tables of a module's manifest to the node's tables. Returns the tables that the module reads, its
    /// publisher, and the binding for later changes. Dropping the publisher withdraws the published tables. `replaced` is the
    /// publisher of an older version of the module: it goes on until the new one [takes over](TableBinding::take_over).
    pub(crate) fn bind(
        self: &Arc<Self>,
        session: &SessionSpec,
        module: &Name,
        manifest: &Manifest,
        memory: &Arc<MemoryReservation>,
        replaced: Option<u64>,
    ) -> Result<(ReadTables, Arc<Publisher>, TableBinding), TableError> {
        let mut read_tables = ReadTables::new(self, memory);
        let owner = TableOwner::Session(session.name.clone(), Arc::clone(memory));
        let mut publisher = Publisher::new(self, owner, replaced);
        let mut bound = Vec::with_capacity(manifest.tables.len());
        for (index, declared) in manifest.tables.iter().enumerate() {
            let Some(resolved) = session.resolve_table(declared) else {
                let (does, option) = match declared.access {
                    TableAccess::Read { .. } => ("reads", "--read"),
                    TableAccess::Publish => ("publishes", "--publish"),
                };
                let (session, module) = (session.name.clone(), module.clone());
                let table = declared.name.clone();
                return Err(TableError::NotGranted { module, does, table, session, option });
            };
            let table = self.table(resolved);
            match declared.access {
                TableAccess::Read { .. } => read_tables.add(index, declared.bytes, table),
                TableAccess::Publish => {
                    publisher.add(index, declared.bytes, table, memory).map_err(|wanted| {
                        let (session, module) = (session.name.clone(), module.clone());
                        let table = declared.name.clone();
                        match wanted {
                            Some(wanted) => {
                                let left = memory.state().left();
                                TableError::Memory { module, table, wanted, session, left }
                            }
                            None => TableError::PublishedByOtherModule { session, table },
                        }
                    })?
                }
            }
            bound.push(resolved.clone());
        }
        let (publisher, granted) = (Arc::new(publisher), read_tables.granted());
        let declared = manifest.tables.clone();
        let (registry, weak_publisher) = (Arc::clone(self), Arc::downgrade(&publisher));
        let binding = TableBinding { registry, declared, bound, granted, publisher: weak_publisher };
        Ok((read_tables, publisher, binding))
    }
}

impl TableBinding {
    /// Returns true if the session has granted the same tables without interruption since the module was loaded. A table
    /// whose grant was interrupted has lost its publisher.
    pub(crate) fn is_unchanged(&self, session: &SessionSpec) -> bool {
        self.declared.iter().map(|declared| session.resolve_table(declared)).eq(self.bound.iter().map(Some))
            && self.publisher.upgrade().is_some_and(|publisher| publisher.has_all())
    }

    /// Applies the session's present grants. The module sees changed tables from its next call on. Published tables
    /// without a grant are withdrawn before this function returns.
    pub(crate) fn change(&self, session: &SessionSpec) {
        self.granted.change(self.resolve(session, true).into_iter().map(|(_, table)| table).collect());
        if let Some(publisher) = self.publisher.upgrade() {
            publisher.change(self.resolve(session, false));
        }
        self.registry.forget_unused();
    }

    /// Returns the number of the module's publisher; `None` once the module is gone.
    pub(crate) fn publisher_number(&self) -> Option<u64> {
        self.publisher.upgrade().map(|publisher| publisher.number())
    }

    /// Lets the module publish those of its tables that the module of `from` publishes. Their current versions stay.
    pub(crate) fn take_over(&self, from: &Self) {
        if let (Some(publisher), Some(from)) = (self.publisher.upgrade(), from.publisher_number()) {
            publisher.take_over(from);
        }
    }

    /// Returns the node's names of the published tables.
    pub(crate) fn published(&self) -> impl Iterator<Item = &Name> {
        let publishes =
            |declared: &weir_admission::DeclaredTable| matches!(declared.access, TableAccess::Publish);
        self.declared.iter().zip(&self.bound).filter(move |(it, _)| publishes(it)).map(|(_, name)| name)
    }

    /// Returns the tables that the module reads (`reads` is true) or publishes (false), with their indices in the
    /// manifest; `None` for a table without a grant.
    fn resolve(&self, session: &SessionSpec, reads: bool) -> Vec<(usize, Option<Arc<SharedTable>>)> {
        let declared = self.declared.iter().enumerate().filter(|(_, it)| it.window().is_some() == reads);
        declared
            .map(|(index, table)| (index, session.resolve_table(table).map(|name| self.registry.table(name))))
            .collect()
    }
}
