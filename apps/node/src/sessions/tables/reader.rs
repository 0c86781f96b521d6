//! The tables that a module reads: the module sees a new version from its next call on.

use super::registry::{SharedTable, TableReader, TableRegistry};
use crate::core_thread::runner::Waker;
use crate::core_thread::session_part::TableUpdates;
use crate::log::warn;
use crate::sync::{OrderedMutex, rank};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_sandbox::{Instance, TableVersion};
use weir_session::{HeldMemory, MemoryReservation};
use weir_units::Bytes;

/// The tables that a module reads, with the versions that the module sees. Belongs to the module's task.
#[derive(Debug)]
pub(crate) struct ReadTables {
    registry: Arc<TableRegistry>,
    memory: Arc<MemoryReservation>,
    all: Vec<ReadTable>,
    granted: Arc<TableGrants>,
    /// Value of `TableGrants::changes` at the last update.
    grant_changes: u64,
    /// Number and title of the module, once it is on the node.
    module: Option<(u64, String)>,
}

/// The tables that a module may read. Requests change them, and the module's task reads them.
#[derive(Debug, Default)]
pub(super) struct TableGrants {
    /// Count of changes of the grants.
    changes: AtomicU64,
    inner: OrderedMutex<GrantedTables, { rank::TABLE_GRANTS }>,
}

/// The readable tables, and the module that reads them.
#[derive(Debug, Default)]
struct GrantedTables {
    /// The tables in the order of the manifest; `None` for a table without a grant.
    tables: Vec<Option<Arc<SharedTable>>>,
    /// Number and reader of the module, while it is on the node.
    reader: Option<(u64, TableReader)>,
}

/// A table that a module reads, with the version that the module sees.
#[derive(Debug)]
struct ReadTable {
    /// Index in the manifest.
    index: usize,
    /// Maximum size that the manifest declares, in bytes.
    bytes_max: u32,
    /// The table; `None` without a grant.
    table: Option<Arc<SharedTable>>,
    /// Value of `SharedTable::changes` at the last update; 0 before the first update.
    changes_seen: u64,
    /// Version that the module sees.
    version: Option<Arc<TableVersion>>,
    /// Memory of the session that is charged for this version.
    held_memory: HeldMemory,
    /// Reason why the module sees an empty table.
    problem: Option<String>,
    /// True once the problem has been logged.
    is_logged: bool,
}

impl ReadTables {
    pub(super) fn new(registry: &Arc<TableRegistry>, memory: &Arc<MemoryReservation>) -> Self {
        let (registry, memory) = (Arc::clone(registry), Arc::clone(memory));
        Self { registry, memory, all: Vec::new(), granted: Arc::default(), grant_changes: 0, module: None }
    }

    /// Returns the grants, through which requests change the readable tables.
    pub(super) fn granted(&self) -> Arc<TableGrants> {
        Arc::clone(&self.granted)
    }

    pub(super) fn add(&mut self, index: usize, bytes_max: u32, table: Arc<SharedTable>) {
        let held_memory = HeldMemory::new(Arc::clone(&self.memory));
        let (version, problem) = (None, None);
        self.granted.inner.lock().tables.push(Some(Arc::clone(&table)));
        let table = Some(table);
        self.all.push(ReadTable {
            index,
            bytes_max,
            table,
            changes_seen: 0,
            version,
            held_memory,
            problem,
            is_logged: false,
        });
    }

    /// Returns the versions that the module sees at its start, by index in the manifest.
    pub(crate) fn initial_versions(&mut self) -> Vec<Option<Arc<TableVersion>>> {
        let mut first = Vec::new();
        for read_table in &mut self.all {
            read_table.changes_seen = read_table.changes();
            read_table.update();
            first.resize(read_table.index + 1, None);
            first[read_table.index].clone_from(&read_table.version);
        }
        first
    }

    /// Registers the module as a reader, once it is on the node.
    pub(crate) fn register(&mut self, module: u64, title: &str, waker: &Waker) {
        let reader = TableReader { title: title.to_owned(), waker: waker.clone(), problem: None };
        let mut granted = self.granted.inner.lock();
        for (table, read_table) in granted.tables.iter().zip(&mut self.all) {
            if let Some(table) = table {
                table.add_reader(
                    module,
                    TableReader { problem: read_table.problem.clone(), ..reader.clone() },
                );
            }
            read_table.log_problem(title);
        }
        granted.reader = Some((module, reader));
        drop(granted);
        self.module = Some((module, title.to_owned()));
    }

    /// Returns true if the tables belong to the session with this memory. An earlier session of the same name had
    /// other memory.
    pub(crate) fn are_of_session(&self, memory: &Arc<MemoryReservation>) -> bool {
        Arc::ptr_eq(&self.memory, memory)
    }

    #[cold]
    fn update(&mut self, instance: &mut Instance) {
        // Read before the tables, so that a later change is seen at the next update.
        let grant_changes = self.granted.changes();
        let have_grants_changed = std::mem::replace(&mut self.grant_changes, grant_changes) != grant_changes;
        if have_grants_changed {
            let tables = self.granted.inner.lock().tables.clone();
            self.all.iter_mut().zip(tables).for_each(|(read_table, table)| read_table.set_table(table));
        }
        for read_table in &mut self.all {
            // Read before the version, so that a later change is seen at the next update.
            let changes = read_table.changes();
            if read_table.changes_seen == changes {
                continue;
            }
            // After a change of the grant, the problem is reported for the new table even if it has not changed.
            let is_other_table = have_grants_changed && read_table.changes_seen == 0;
            // The old version must not be released before it has been unmapped.
            let (before, problem) = (read_table.version.take(), read_table.problem.take());
            read_table.update();
            match instance.map_table(read_table.index, read_table.version.as_deref()) {
                Ok(_) => read_table.changes_seen = changes,
                Err(error) => {
                    read_table.version = None;
                    _ = read_table.held_memory.set(Bytes(0));
                    read_table.problem = Some(format!("it cannot be mapped: {error}"));
                }
            }
            before.into_iter().for_each(|before| self.registry.reclaimer.release(before));
            let is_to_report = is_other_table || read_table.problem != problem;
            if let Some((module, title)) = self.module.as_ref().filter(|_| is_to_report) {
                if let Some(table) = &read_table.table {
                    table.set_problem(*module, read_table.problem.clone());
                }
                read_table.log_problem(title);
            }
        }
        if have_grants_changed {
            // A table whose grant has ended may have neither an owner nor other readers.
            self.registry.forget_unused();
        }
    }
}

impl TableUpdates for ReadTables {
    fn refresh(&mut self, instance: &mut Instance) {
        if self.grant_changes != self.granted.changes()
            || self.all.iter().any(|it| it.changes_seen != it.changes())
        {
            self.update(instance);
        }
    }
}

impl TableGrants {
    fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Replaces the readable tables. Wakes the module, so that an idle module also gives up a table whose grant has
    /// ended.
    pub(super) fn change(&self, tables: Vec<Option<Arc<SharedTable>>>) {
        let mut inner = self.inner.lock();
        let GrantedTables { tables: present, reader: Some((module, reader)) } = &mut *inner else { return };
        let is_among = |table: &Arc<SharedTable>, others: &[Option<Arc<SharedTable>>]| {
            others.iter().flatten().any(|other| Arc::ptr_eq(table, other))
        };
        let identities = |tables: &[Option<Arc<SharedTable>>]| -> Vec<_> {
            tables.iter().map(|table| table.as_ref().map(Arc::as_ptr)).collect()
        };
        if identities(present) == identities(&tables) {
            return;
        }
        present
            .iter()
            .flatten()
            .filter(|old| !is_among(old, &tables))
            .for_each(|old| old.remove_reader(*module));
        for new in tables.iter().flatten().filter(|new| !is_among(new, &*present)) {
            new.add_reader(*module, reader.clone());
        }
        *present = tables;
        self.changes.fetch_add(1, Ordering::AcqRel);
        reader.waker.wake_for_event(*module);
    }

    /// Unregisters the module.
    fn unregister(&self) {
        let mut inner = self.inner.lock();
        let (tables, reader) = (std::mem::take(&mut inner.tables), inner.reader.take());
        if let Some((module, _)) = reader {
            tables.iter().flatten().for_each(|table| table.remove_reader(module));
        }
    }
}

impl ReadTable {
    /// Returns the count of the table's changes, which is at least 1; 1 without a table.
    fn changes(&self) -> u64 {
        self.table.as_ref().map_or(1, |table| table.changes())
    }

    /// Replaces the table.
    fn set_table(&mut self, table: Option<Arc<SharedTable>>) {
        if self.table.as_ref().map(Arc::as_ptr) != table.as_ref().map(Arc::as_ptr) {
            (self.table, self.changes_seen, self.is_logged) = (table, 0, false);
        }
    }

    /// Takes the table's current version, or none if the version exceeds the declared size or the session's memory.
    fn update(&mut self) {
        let (version, is_charged) = self.table.as_ref().map(|table| table.current()).unwrap_or_default();
        self.problem = None;
        self.version = version.filter(|version| {
            let len = version.len();
            let wanted = if is_charged { TableVersion::memory_of(len) } else { Bytes(0) };
            if len > self.bytes_max {
                let most = self.bytes_max;
                self.problem = Some(format!("it has {len} bytes, and the module declares {most} at most"));
            } else if !self.held_memory.set(wanted) {
                self.problem = Some(format!("it takes {wanted} of memory, and the session has less left"));
            }
            self.problem.is_none()
        });
        if self.version.is_none() {
            // Giving up memory is never refused.
            _ = self.held_memory.set(Bytes(0));
        }
    }

    /// Logs the table's first problem. Later ones are not logged, because a publisher can cause them at any rate.
    fn log_problem(&mut self, title: &str) {
        if let (Some(problem), Some(table), false) = (&self.problem, &self.table, self.is_logged) {
            self.is_logged = true;
            warn(&format_args!("{title}: table {} is shown as empty: {problem}", table.name()));
        }
    }
}

impl Drop for ReadTables {
    fn drop(&mut self) {
        self.granted.unregister();
        self.all.clear();
        self.registry.forget_unused();
    }
}
