//! Tables that change together, with their versions and their publishers: all of them, or none.

use super::{SharedTable, TableClaims, TableError, TableFile, TableOwner, TableRegistry, lock};
use crate::control::spec::SessionSpec;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weir_sandbox::TableVersion;
use {weir_admission::Name, weir_session::MemoryReservation};

/// A table that is pledged to its next publisher.
#[derive(Debug)]
struct Pledge {
    table: Arc<SharedTable>,
    owner: TableOwner,
    /// The version that an operator's table shows after the change.
    version: Option<Arc<TableVersion>>,
}

/// A prepared change of tables. Until it [takes effect](Self::commit) the tables stay as they are, and no other party becomes their publisher. If it is dropped, they stay so.
#[derive(Debug)]
pub(crate) struct Arranged {
    shelf: Arc<TableRegistry>,
    pledges: Vec<Pledge>,
    /// The operator's tables that the new configuration does not have.
    removed: Vec<Name>,
    sheets: Vec<TableFile>,
    notes: Vec<String>,
}

/// The tables of a configuration after a change.
#[derive(Debug)]
pub(crate) struct Committed {
    /// The tables, without their bytes.
    pub(crate) sheets: Vec<TableFile>,
    /// All that has changed, for people.
    pub(crate) notes: Vec<String>,
}

impl TableRegistry {
    /// Prepares a change of the operator's tables from `old` to `new`, and of the tables that sessions publish. Each session in `come` is known by its memory. Sessions with the memory in `gone`
    /// publish nothing after the change. A table that both configurations have, with the same bytes, stays as it is.
    ///
    /// # Errors
    ///
    /// Another party publishes one of them, or there is no memory for a version. The place is that of the session that was to publish it, if it was one. Nothing has changed.
    pub(crate) fn arrange(
        self: &Arc<Self>,
        old: &[TableFile],
        mut new: Vec<TableFile>,
        come: &[(&SessionSpec, &Arc<MemoryReservation>)],
        gone: &[Arc<MemoryReservation>],
    ) -> Result<Arranged, (Option<usize>, TableError)> {
        let removed = old.iter().filter(|sheet| !new.iter().any(|other| other.name == sheet.name));
        let removed: Vec<Name> = removed.map(|sheet| sheet.name.clone()).collect();
        let (pledges, sheets, notes) = (Vec::new(), Vec::new(), Vec::new());
        let mut arranged = Arranged { shelf: Arc::clone(self), pledges, removed, sheets, notes };
        let is_new = |sheet: &&mut TableFile| {
            !old.iter().any(|other| other.name == sheet.name && other.digest == sheet.digest)
        };
        for sheet in new.iter_mut().filter(is_new) {
            let table = self.table(&sheet.name);
            arranged.pledge(&table, TableOwner::Operator, gone).map_err(|error| (None, error))?;
            let made = SharedTable::make(&mut lock(&table.made), &std::mem::take(&mut sheet.bytes));
            let system = |source| TableError::System { table: sheet.name.clone(), source };
            let version = made.map_err(|source| (None, system(source)))?;
            if let Some(pledge) = arranged.pledges.last_mut() {
                pledge.version = Some(version);
            }
            arranged.notes.push(format!("table {} has a new version", sheet.name));
        }
        for (place, (spec, memory)) in come.iter().enumerate() {
            for grant in &spec.publish {
                let owner = TableOwner::Session(spec.name.clone(), Arc::clone(memory));
                let table = self.table(&grant.table);
                arranged.pledge(&table, owner, gone).map_err(|error| (Some(place), error))?;
            }
        }
        new.iter_mut().for_each(|sheet| sheet.bytes = Vec::new());
        arranged.sheets = new;
        Ok(arranged)
    }
}

impl Arranged {
    /// Keeps a table for its next publisher, if it is free now, or will be after the change.
    fn pledge(
        &mut self,
        table: &Arc<SharedTable>,
        owner: TableOwner,
        gone: &[Arc<MemoryReservation>],
    ) -> Result<(), TableError> {
        let mut inner = lock(&table.inner);
        let gives_up = |there: &TableOwner| match there {
            TableOwner::Operator => self.removed.contains(&table.name),
            TableOwner::Session(_, memory) => gone.iter().any(|gone| Arc::ptr_eq(gone, memory)),
        };
        let present = inner.owner.as_ref().filter(|there| **there != owner && !gives_up(there));
        let in_the_way = present.or(inner.next.as_ref().filter(|next| **next != owner));
        if let Some(there) = in_the_way {
            return Err(TableError::Owned { table: table.name.clone(), owner: there.clone() });
        }
        inner.next = Some(owner.clone());
        drop(inner);
        self.pledges.push(Pledge { table: Arc::clone(table), owner, version: None });
        Ok(())
    }

    /// Makes the change. Each session of `claims` gets the tables that it publishes.
    pub(crate) fn commit<'a>(mut self, claims: impl Iterator<Item = &'a mut TableClaims>) -> Committed {
        for name in std::mem::take(&mut self.removed) {
            let table = lock(&self.shelf.tables).get(&name).cloned();
            // The table may have been removed by hand.
            let is_operators =
                |table: &Arc<SharedTable>| lock(&table.inner).owner == Some(TableOwner::Operator);
            if let Some(table) = table.filter(is_operators) {
                table.disown(&TableOwner::Operator);
                self.notes.push(format!("table {name} is gone"));
            }
        }
        let mut owned = Vec::new();
        for Pledge { table, owner, version } in std::mem::take(&mut self.pledges) {
            table.hand_over(&owner, version);
            owned.push((owner, table));
        }
        for claims in claims {
            let theirs = owned.iter().filter(|(owner, _)| *owner == claims.owner);
            claims.tables.extend(theirs.map(|(_, table)| Arc::clone(table)));
        }
        self.shelf.tidy();
        Committed { sheets: std::mem::take(&mut self.sheets), notes: std::mem::take(&mut self.notes) }
    }
}

impl Drop for Arranged {
    fn drop(&mut self) {
        for Pledge { table, .. } in self.pledges.drain(..) {
            lock(&table.inner).next = None;
        }
        self.shelf.tidy();
    }
}

impl SharedTable {
    /// Gives the table to its next publisher, with the version that it shows.
    fn hand_over(&self, owner: &TableOwner, version: Option<Arc<TableVersion>>) {
        let before = {
            let mut inner = lock(&self.inner);
            inner.next = None;
            inner.owner = Some(owner.clone());
            inner.press = None;
            self.changes.fetch_add(1, Ordering::AcqRel);
            std::mem::replace(&mut inner.shown, version)
        };
        drop(before);
        self.wake();
    }
}

impl TableClaims {
    /// The claims of a session that publishes nothing yet.
    pub(crate) fn none(shelf: &Arc<TableRegistry>, session: &Name, memory: &Arc<MemoryReservation>) -> Self {
        let owner = TableOwner::Session(session.clone(), Arc::clone(memory));
        Self { shelf: Arc::clone(shelf), owner, tables: Vec::new() }
    }
}
