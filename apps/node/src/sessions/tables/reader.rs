//! The tables that a module reads.

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

/// The tables that a module reads, with the versions that it sees.
#[derive(Debug)]
pub(crate) struct Readings {
    registry: Arc<TableRegistry>,
    memory: Arc<MemoryReservation>,
    all: Vec<Reading>,
    granted: Arc<TableGrants>,
    /// Count of grant changes at the last update.
    grant_changes: u64,
    /// Number and title of the module, once it is on the node.
    module: Option<(u64, String)>,
}

/// The tables that a module may read, shared by its task and by requests.
#[derive(Debug, Default)]
pub(super) struct TableGrants {
    /// Count of changes.
    changes: AtomicU64,
    inner: OrderedMutex<Inner, { rank::TABLE_GRANTS }>,
}

/// The readable tables, and the module that reads them.
#[derive(Debug, Default)]
struct Inner {
    /// The tables in the order of the manifest; `None` for a table without a grant.
    tables: Vec<Option<Arc<SharedTable>>>,
    /// Number and reader of the module, while it is on the node.
    reader: Option<(u64, TableReader)>,
}

/// A table that a module reads, with the version that the module sees.
#[derive(Debug)]
struct Reading {
    /// Index in the manifest.
    place: usize,
    /// The declared size, in bytes.
    bytes: u32,
    /// The table; `None` without a grant.
    table: Option<Arc<SharedTable>>,
    /// Count of the table's changes at the last update; 0 before the first update.
    seen: u64,
    /// Version that the module sees.
    shown: Option<Arc<TableVersion>>,
    /// Memory that the session pays for that version.
    holding: HeldMemory,
    /// Reason why the module sees an empty table.
    trouble: Option<String>,
    /// True once the trouble has been logged.
    is_logged: bool,
}

impl Readings {
    pub(super) fn new(registry: &Arc<TableRegistry>, memory: &Arc<MemoryReservation>) -> Self {
        let (registry, memory) = (Arc::clone(registry), Arc::clone(memory));
        Self { registry, memory, all: Vec::new(), granted: Arc::default(), grant_changes: 0, module: None }
    }

    /// Returns the grants, for changes of them.
    pub(super) fn granted(&self) -> Arc<TableGrants> {
        Arc::clone(&self.granted)
    }

    pub(super) fn add(&mut self, place: usize, bytes: u32, table: Arc<SharedTable>) {
        let holding = HeldMemory::new(Arc::clone(&self.memory));
        let (shown, trouble) = (None, None);
        self.granted.inner.lock().tables.push(Some(Arc::clone(&table)));
        let table = Some(table);
        self.all.push(Reading { place, bytes, table, seen: 0, shown, holding, trouble, is_logged: false });
    }

    /// Returns the versions that the module sees at its start, by index in the manifest.
    pub(crate) fn initial_versions(&mut self) -> Vec<Option<Arc<TableVersion>>> {
        let mut first = Vec::new();
        for reading in &mut self.all {
            reading.seen = reading.changes();
            reading.update();
            first.resize(reading.place + 1, None);
            first[reading.place].clone_from(&reading.shown);
        }
        first
    }

    /// Registers the module as a reader, once it is on the node.
    pub(crate) fn register(&mut self, module: u64, title: &str, waker: &Waker) {
        let reader = TableReader { title: title.to_owned(), waker: waker.clone(), trouble: None };
        let mut granted = self.granted.inner.lock();
        for (table, reading) in granted.tables.iter().zip(&mut self.all) {
            if let Some(table) = table {
                table.add_reader(module, TableReader { trouble: reading.trouble.clone(), ..reader.clone() });
            }
            reading.log_trouble(title);
        }
        granted.reader = Some((module, reader));
        drop(granted);
        self.module = Some((module, title.to_owned()));
    }

    /// Returns true if the tables belong to the session with this memory, and not to an earlier one of the same name.
    pub(crate) fn belong_to(&self, memory: &Arc<MemoryReservation>) -> bool {
        Arc::ptr_eq(&self.memory, memory)
    }

    #[cold]
    fn update(&mut self, instance: &mut Instance) {
        // Read before the tables, so that a later change is seen at the next update.
        let grant_changes = self.granted.changes();
        let have_grants_changed = std::mem::replace(&mut self.grant_changes, grant_changes) != grant_changes;
        if have_grants_changed {
            let tables = self.granted.inner.lock().tables.clone();
            self.all.iter_mut().zip(tables).for_each(|(reading, table)| reading.set_table(table));
        }
        for reading in &mut self.all {
            // Read before the version, so that a later change is seen at the next update.
            let seen = reading.changes();
            if reading.seen == seen {
                continue;
            }
            // A trouble of the earlier table has been reported for that table only.
            let is_other_table = have_grants_changed && reading.seen == 0;
            // The old version is released after it has been unmapped.
            let (before, trouble) = (reading.shown.take(), reading.trouble.take());
            reading.update();
            match instance.show_table(reading.place, reading.shown.as_deref()) {
                Ok(_) => reading.seen = seen,
                Err(error) => {
                    reading.shown = None;
                    _ = reading.holding.set(Bytes(0));
                    reading.trouble = Some(format!("it cannot be mapped: {error}"));
                }
            }
            before.into_iter().for_each(|before| self.registry.reclaimer.take(before));
            let is_to_report = is_other_table || reading.trouble != trouble;
            if let Some((module, title)) = self.module.as_ref().filter(|_| is_to_report) {
                if let Some(table) = &reading.table {
                    table.set_trouble(*module, reading.trouble.clone());
                }
                reading.log_trouble(title);
            }
        }
        if have_grants_changed {
            // A table whose grant has ended may have no other readers.
            self.registry.forget_unused();
        }
    }
}

impl TableUpdates for Readings {
    fn refresh(&mut self, instance: &mut Instance) {
        if self.grant_changes != self.granted.changes() || self.all.iter().any(|it| it.seen != it.changes()) {
            self.update(instance);
        }
    }
}

impl TableGrants {
    fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Replaces the readable tables. The module is woken, so that even a module without packets gives up a table whose
    /// grant has ended.
    pub(super) fn change(&self, tables: Vec<Option<Arc<SharedTable>>>) {
        let mut inner = self.inner.lock();
        let Inner { tables: present, reader: Some((module, reader)) } = &mut *inner else { return };
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

impl Reading {
    /// Returns the count of the table's changes, or 1 without a table; never 0.
    fn changes(&self) -> u64 {
        self.table.as_ref().map_or(1, |table| table.changes())
    }

    /// Replaces the table.
    fn set_table(&mut self, table: Option<Arc<SharedTable>>) {
        if self.table.as_ref().map(Arc::as_ptr) != table.as_ref().map(Arc::as_ptr) {
            (self.table, self.seen, self.is_logged) = (table, 0, false);
        }
    }

    /// Takes the current version, if the module can see it.
    fn update(&mut self) {
        let (version, is_charged) = self.table.as_ref().map(|table| table.current()).unwrap_or_default();
        self.trouble = None;
        self.shown = version.filter(|version| {
            let len = version.len();
            let wanted = if is_charged { TableVersion::memory_of(len) } else { Bytes(0) };
            if len > self.bytes {
                let most = self.bytes;
                self.trouble = Some(format!("it has {len} bytes, and the module declares {most} at most"));
            } else if !self.holding.set(wanted) {
                self.trouble = Some(format!("it takes {wanted} of memory, and the session has less left"));
            }
            self.trouble.is_none()
        });
        if self.shown.is_none() {
            // Giving up memory is never refused.
            _ = self.holding.set(Bytes(0));
        }
    }

    /// Logs the trouble once, since a publisher could cause it at any rate.
    fn log_trouble(&mut self, title: &str) {
        if let (Some(trouble), Some(table), false) = (&self.trouble, &self.table, self.is_logged) {
            self.is_logged = true;
            warn(&format_args!("{title}: table {} is shown as empty: {trouble}", table.name()));
        }
    }
}

impl Drop for Readings {
    fn drop(&mut self) {
        self.granted.unregister();
        self.all.clear();
        self.registry.forget_unused();
    }
}
