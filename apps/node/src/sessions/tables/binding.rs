//! The tables of a module. Their names are resolved when the module is loaded, and the tables can change while it runs.

use super::publisher::Publisher;
use super::reader::{Readings, TableGrants};
use super::registry::{SharedTable, TableError, TableOwner, TableRegistry};
use crate::control::spec::SessionSpec;
use std::sync::{Arc, Weak};
use {
    weir_admission::{Manifest, Name, TableAccess},
    weir_session::MemoryReservation,
};

/// Tables of a module, for changes of its session's grants.
#[derive(Debug)]
pub(crate) struct TableBinding {
    registry: Arc<TableRegistry>,
    /// Tables of the manifest.
    declared: Vec<weir_admission::DeclaredTable>,
    /// Names that these tables had on the node when the module was loaded.
    bound: Vec<Name>,
    granted: Arc<TableGrants>,
    /// The module's publisher, which ends with the module.
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
    /// Resolves the tables that a module reads and publishes. Published tables end with the publisher.
    pub(crate) fn bind(
        self: &Arc<Self>,
        session: &SessionSpec,
        module: &Name,
        manifest: &Manifest,
        memory: &Arc<MemoryReservation>,
    ) -> Result<(Readings, Arc<Publisher>, TableBinding), TableError> {
        let mut readings = Readings::new(self, memory);
        let mut publisher =
            Publisher::new(self, TableOwner::Session(session.name.clone(), Arc::clone(memory)));
        let mut bound = Vec::with_capacity(manifest.tables.len());
        for (place, declared) in manifest.tables.iter().enumerate() {
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
                TableAccess::Read { .. } => readings.add(place, declared.bytes, table),
                TableAccess::Publish => {
                    publisher.add(place, declared.bytes, table, memory).map_err(|wanted| {
                        let (session, module) = (session.name.clone(), module.clone());
                        let table = declared.name.clone();
                        match wanted {
                            Some(wanted) => {
                                let left = memory.state().left();
                                TableError::Memory { module, table, wanted, session, left }
                            }
                            None => TableError::Publishes { session, table },
                        }
                    })?
                }
            }
            bound.push(resolved.clone());
        }
        let (publisher, granted) = (Arc::new(publisher), readings.granted());
        let declared = manifest.tables.clone();
        let (registry, weak_publisher) = (Arc::clone(self), Arc::downgrade(&publisher));
        let binding = TableBinding { registry, declared, bound, granted, publisher: weak_publisher };
        Ok((readings, publisher, binding))
    }
}

impl TableBinding {
    /// Returns true if the session grants the same tables as at the time of loading, without an interruption. A table
    /// that was lost meanwhile has no publisher.
    pub(crate) fn holds(&self, session: &SessionSpec) -> bool {
        self.declared.iter().map(|declared| session.resolve_table(declared)).eq(self.bound.iter().map(Some))
            && self.publisher.upgrade().is_some_and(|publisher| publisher.has_all())
    }

    /// Applies the session's present grants. The module sees changed tables from its next call on. A published table
    /// without a grant is withdrawn before this returns.
    pub(crate) fn change(&self, session: &SessionSpec) {
        self.granted.change(self.resolve(session, true).into_iter().map(|(_, table)| table).collect());
        if let Some(publisher) = self.publisher.upgrade() {
            publisher.change(self.resolve(session, false));
        }
        self.registry.forget_unused();
    }

    /// Returns the node's names of the published tables.
    pub(crate) fn published(&self) -> impl Iterator<Item = &Name> {
        let publishes =
            |declared: &weir_admission::DeclaredTable| matches!(declared.access, TableAccess::Publish);
        self.declared.iter().zip(&self.bound).filter(move |(it, _)| publishes(it)).map(|(_, name)| name)
    }

    /// Returns the tables that the module reads (`reads`) or publishes, with their indices in the manifest. `None` stands
    /// for a table without a grant.
    fn resolve(&self, session: &SessionSpec, reads: bool) -> Vec<(usize, Option<Arc<SharedTable>>)> {
        let declared = self.declared.iter().enumerate().filter(|(_, it)| it.window().is_some() == reads);
        declared
            .map(|(place, it)| (place, session.resolve_table(it).map(|name| self.registry.table(name))))
            .collect()
    }
}
