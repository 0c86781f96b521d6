//! Changes of several tables at once, when the configuration is reloaded: of their owners, versions and publishers.
//! All tables change, or none.

use super::{SharedTable, TableClaims, TableError, TableFile, TableOwner, TableRegistry};
use crate::control::spec::SessionSpec;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weir_sandbox::TableVersion;
use {weir_admission::Name, weir_session::MemoryReservation};

/// A table that is reserved for its next owner.
#[derive(Debug)]
struct ReservedTable {
    table: Arc<SharedTable>,
    owner: TableOwner,
    /// The version of an operator's table after the change.
    version: Option<Arc<TableVersion>>,
}

/// A prepared change of tables. Until [`commit`](Self::commit) the tables keep their versions, and no other party can
/// become the owner of a reserved table. Dropping this value without a commit discards the change.
#[derive(Debug)]
pub(crate) struct PreparedTables {
    registry: Arc<TableRegistry>,
    reserved_tables: Vec<ReservedTable>,
    /// The operator's tables that the new configuration lacks.
    removed: Vec<Name>,
    files: Vec<TableFile>,
    notes: Vec<String>,
}

/// The result of a change of tables.
#[derive(Debug)]
pub(crate) struct Committed {
    /// The operator's tables, without their bytes.
    pub(crate) files: Vec<TableFile>,
    /// Notes about all changes for the operator.
    pub(crate) notes: Vec<String>,
}

impl TableRegistry {
    /// Prepares a change of the operator's tables from `old` to `new`, and of the tables that sessions publish. The
    /// sessions in `added` own the tables that they may publish after the change. The sessions in `removed`, given by
    /// their memory, own no tables after the change. A table with the same bytes in both configurations keeps its
    /// version.
    ///
    /// # Errors
    ///
    /// Another party owns a table, or there is no memory for a version. The error has the index in `added` of the
    /// session that needs the table; `None` for a table of the operator. Nothing has changed.
    pub(crate) fn prepare_change(
        self: &Arc<Self>,
        old: &[TableFile],
        mut new: Vec<TableFile>,
        added: &[(&SessionSpec, &Arc<MemoryReservation>)],
        removed: &[Arc<MemoryReservation>],
    ) -> Result<PreparedTables, (Option<usize>, TableError)> {
        let removed_files = old.iter().filter(|file| !new.iter().any(|other| other.name == file.name));
        let removed_names: Vec<Name> = removed_files.map(|file| file.name.clone()).collect();
        let (reserved_tables, files, notes) = (Vec::new(), Vec::new(), Vec::new());
        let mut prepared = PreparedTables {
            registry: Arc::clone(self),
            reserved_tables,
            removed: removed_names,
            files,
            notes,
        };
        let is_new = |file: &&mut TableFile| {
            !old.iter().any(|other| other.name == file.name && other.digest == file.digest)
        };
        for file in new.iter_mut().filter(is_new) {
            let table = self.table(&file.name);
            prepared.reserve(&table, TableOwner::Operator, removed).map_err(|error| (None, error))?;
            let made = SharedTable::make(&mut table.last_number.lock(), &std::mem::take(&mut file.bytes));
            let system = |source| TableError::System { table: file.name.clone(), source };
            let version = made.map_err(|source| (None, system(source)))?;
            if let Some(reserved) = prepared.reserved_tables.last_mut() {
                reserved.version = Some(version);
            }
            prepared.notes.push(format!("table {} has a new version", file.name));
        }
        for (index, (spec, memory)) in added.iter().enumerate() {
            for grant in &spec.publish {
                let owner = TableOwner::Session(spec.name.clone(), Arc::clone(memory));
                let table = self.table(&grant.table);
                prepared.reserve(&table, owner, removed).map_err(|error| (Some(index), error))?;
            }
        }
        new.iter_mut().for_each(|file| file.bytes = Vec::new());
        prepared.files = new;
        Ok(prepared)
    }
}

impl PreparedTables {
    /// Reserves a table for its next owner, if the table has no other owner now, or its owner gives it up with the
    /// change.
    fn reserve(
        &mut self,
        table: &Arc<SharedTable>,
        owner: TableOwner,
        removed: &[Arc<MemoryReservation>],
    ) -> Result<(), TableError> {
        let mut inner = table.inner.lock();
        let gives_up = |owner: &TableOwner| match owner {
            TableOwner::Operator => self.removed.contains(&table.name),
            TableOwner::Session(_, memory) => removed.iter().any(|other| Arc::ptr_eq(other, memory)),
        };
        let present = inner.owner.as_ref().filter(|present| **present != owner && !gives_up(present));
        let other_owner = present.or(inner.next_owner.as_ref().filter(|next| **next != owner));
        if let Some(other_owner) = other_owner {
            return Err(TableError::Owned { table: table.name.clone(), owner: other_owner.clone() });
        }
        inner.next_owner = Some(owner.clone());
        drop(inner);
        self.reserved_tables.push(ReservedTable { table: Arc::clone(table), owner, version: None });
        Ok(())
    }

    /// Makes the change. Each session gets its tables in its entry of `claims`.
    pub(crate) fn commit<'a>(mut self, claims: impl Iterator<Item = &'a mut TableClaims>) -> Committed {
        for name in std::mem::take(&mut self.removed) {
            let table = self.registry.tables.lock().get(&name).cloned();
            // The operator may have removed the table meanwhile.
            let is_operators =
                |table: &Arc<SharedTable>| table.inner.lock().owner == Some(TableOwner::Operator);
            if let Some(table) = table.filter(is_operators) {
                table.release(&TableOwner::Operator);
                self.notes.push(format!("table {name} was removed"));
            }
        }
        let mut owned = Vec::new();
        for ReservedTable { table, owner, version } in std::mem::take(&mut self.reserved_tables) {
            table.hand_over(&owner, version);
            owned.push((owner, table));
        }
        for claims in claims {
            let own_tables = owned.iter().filter(|(owner, _)| *owner == claims.owner);
            claims.tables.extend(own_tables.map(|(_, table)| Arc::clone(table)));
        }
        self.registry.forget_unused();
        Committed { files: std::mem::take(&mut self.files), notes: std::mem::take(&mut self.notes) }
    }
}

impl Drop for PreparedTables {
    fn drop(&mut self) {
        for ReservedTable { table, .. } in self.reserved_tables.drain(..) {
            table.inner.lock().next_owner = None;
        }
        self.registry.forget_unused();
    }
}

impl SharedTable {
    /// Gives the table to its next owner, and replaces its version.
    fn hand_over(&self, owner: &TableOwner, version: Option<Arc<TableVersion>>) {
        let before = {
            let mut inner = self.inner.lock();
            inner.next_owner = None;
            inner.owner = Some(owner.clone());
            inner.publisher = None;
            self.changes.fetch_add(1, Ordering::AcqRel);
            std::mem::replace(&mut inner.version, version)
        };
        drop(before);
        self.wake();
    }
}

impl TableClaims {
    /// Returns the claims of a session that publishes nothing yet.
    pub(crate) fn none(
        registry: &Arc<TableRegistry>,
        session: &Name,
        memory: &Arc<MemoryReservation>,
    ) -> Self {
        let owner = TableOwner::Session(session.clone(), Arc::clone(memory));
        Self { registry: Arc::clone(registry), owner, tables: Vec::new() }
    }
}
