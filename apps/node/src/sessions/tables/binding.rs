//! What a module does with the tables of a node, as far as its session may: found out when it is loaded, and changed while it is.

use super::publisher::Publisher;
use super::reader::{Readings, TableGrants};
use super::shelf::{SharedTable, TableError, TableOwner, TableRegistry};
use crate::control::spec::SessionSpec;
use std::sync::{Arc, Weak};
use {
    weir_admission::{Manifest, Name, TableAccess},
    weir_session::MemoryReservation,
};

/// The tables of a module, for whoever changes what its session may do with them.
#[derive(Debug)]
pub(crate) struct TableBinding {
    shelf: Arc<TableRegistry>,
    /// As its manifest declares them.
    declared: Vec<weir_admission::DeclaredTable>,
    /// What they were on the node when this was made.
    bound: Vec<Name>,
    granted: Arc<TableGrants>,
    /// Gone with the module.
    publisher: Weak<Publisher>,
}

impl SessionSpec {
    /// Which of the node's tables its modules mean by a table of their manifest; nothing where they may not do that with any.
    fn meant(&self, declared: &weir_admission::DeclaredTable) -> Option<&Name> {
        let grants = match declared.access {
            TableAccess::Read { .. } => &self.read,
            TableAccess::Publish => &self.publish,
        };
        grants.iter().find(|grant| grant.local == declared.name).map(|grant| &grant.table)
    }
}

impl TableRegistry {
    /// What a module of a session reads and publishes, as it was granted. What it publishes is gone with its publisher.
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
            let Some(meant) = session.meant(declared) else {
                let (does, option) = match declared.access {
                    TableAccess::Read { .. } => ("reads", "--read"),
                    TableAccess::Publish => ("publishes", "--publish"),
                };
                let (session, module) = (session.name.clone(), module.clone());
                let table = declared.name.clone();
                return Err(TableError::NotGranted { module, does, table, session, option });
            };
            let table = self.table(meant);
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
            bound.push(meant.clone());
        }
        let (publisher, granted) = (Arc::new(publisher), readings.granted());
        let declared = manifest.tables.clone();
        let (shelf, theirs) = (Arc::clone(self), Arc::downgrade(&publisher));
        Ok((readings, publisher, TableBinding { shelf, declared, bound, granted, publisher: theirs }))
    }
}

impl TableBinding {
    /// Whether the session still grants what it did when this was made, and did so all the time: what it publishes would be nobody's otherwise.
    pub(crate) fn holds(&self, session: &SessionSpec) -> bool {
        self.declared.iter().map(|declared| session.meant(declared)).eq(self.bound.iter().map(Some))
            && self.publisher.upgrade().is_some_and(|publisher| publisher.has_all())
    }

    /// The session grants this from now on. What the module reads otherwise it sees from its next call on, and what it may read no longer is empty then;
    /// what it may publish no longer shows nothing any more when this returns.
    pub(crate) fn change(&self, session: &SessionSpec) {
        self.granted.change(self.meant(session, true).into_iter().map(|(_, table)| table).collect());
        if let Some(publisher) = self.publisher.upgrade() {
            publisher.change(self.meant(session, false));
        }
        self.shelf.tidy();
    }

    /// The node's tables that it published when this was made.
    pub(crate) fn published(&self) -> impl Iterator<Item = &Name> {
        let publishes =
            |declared: &weir_admission::DeclaredTable| matches!(declared.access, TableAccess::Publish);
        self.declared.iter().zip(&self.bound).filter(move |(it, _)| publishes(it)).map(|(_, name)| name)
    }

    /// The tables that it reads, or else those that it publishes, with their places in the manifest; nothing where it may not do that with any.
    fn meant(&self, session: &SessionSpec, reads: bool) -> Vec<(usize, Option<Arc<SharedTable>>)> {
        let declared = self.declared.iter().enumerate().filter(|(_, it)| it.window().is_some() == reads);
        declared.map(|(place, it)| (place, session.meant(it).map(|name| self.shelf.table(name)))).collect()
    }
}
