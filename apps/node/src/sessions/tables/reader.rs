//! What a module sees of the tables that it reads.

use super::shelf::{SharedTable, TableReader, TableRegistry, lock};
use crate::runner::Waker;
use crate::server::log::warn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use weir_sandbox::{Instance, TableVersion};
use weir_session::{Holding, MemoryReservation};
use weir_units::Bytes;

/// The tables that a module reads.
#[derive(Debug)]
pub(crate) struct Readings {
    shelf: Arc<TableRegistry>,
    memory: Arc<MemoryReservation>,
    all: Vec<Reading>,
    granted: Arc<TableGrants>,
    /// How often that had changed when it was looked at last.
    heard: u64,
    /// The module's number on the node and what it is called, once it is there.
    guest: Option<(u64, String)>,
}

/// The tables that a module may read: for the module, and for whoever changes it.
#[derive(Debug, Default)]
pub(super) struct TableGrants {
    /// How often it has changed.
    changes: AtomicU64,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// In the order of the manifest; nothing where it may not read any.
    tables: Vec<Option<Arc<SharedTable>>>,
    /// Where the module is, from when it is on the node until it is gone.
    home: Option<(u64, TableReader)>,
}

#[derive(Debug)]
struct Reading {
    /// Its place in the manifest.
    place: usize,
    /// The most bytes that the module has room for.
    bytes: u32,
    /// Nothing where it may not read any.
    table: Option<Arc<SharedTable>>,
    /// How often it had changed when it was looked at last; 0: not yet.
    seen: u64,
    /// What the module sees.
    shown: Option<Arc<TableVersion>>,
    /// The memory of that.
    holding: Holding,
    /// Why it does not see what is there.
    trouble: Option<String>,
    /// That was said once.
    is_said: bool,
}

impl Readings {
    pub(super) fn new(shelf: &Arc<TableRegistry>, memory: &Arc<MemoryReservation>) -> Self {
        let (shelf, memory) = (Arc::clone(shelf), Arc::clone(memory));
        Self { shelf, memory, all: Vec::new(), granted: Arc::default(), heard: 0, guest: None }
    }

    /// What it may read, for whoever changes that.
    pub(super) fn granted(&self) -> Arc<TableGrants> {
        Arc::clone(&self.granted)
    }

    pub(super) fn add(&mut self, place: usize, bytes: u32, table: Arc<SharedTable>) {
        let holding = Holding::new(Arc::clone(&self.memory));
        let (shown, trouble) = (None, None);
        lock(&self.granted.inner).tables.push(Some(Arc::clone(&table)));
        let table = Some(table);
        self.all.push(Reading { place, bytes, table, seen: 0, shown, holding, trouble, is_said: false });
    }

    /// What the module sees when it begins, by the places in its manifest.
    pub(crate) fn first(&mut self) -> Vec<Option<Arc<TableVersion>>> {
        let mut first = Vec::new();
        for reading in &mut self.all {
            reading.seen = reading.changes();
            reading.move_on();
            first.resize(reading.place + 1, None);
            first[reading.place].clone_from(&reading.shown);
        }
        first
    }

    /// The module is on the node now, with this number.
    pub(crate) fn move_in(&mut self, guest: u64, title: &str, waker: &Waker) {
        let reader = TableReader { title: title.to_owned(), waker: waker.clone(), trouble: None };
        let mut granted = lock(&self.granted.inner);
        for (table, reading) in granted.tables.iter().zip(&mut self.all) {
            if let Some(table) = table {
                table.enter(guest, TableReader { trouble: reading.trouble.clone(), ..reader.clone() });
            }
            reading.say(title);
        }
        granted.home = Some((guest, reader));
        drop(granted);
        self.guest = Some((guest, title.to_owned()));
    }

    /// Whether these are of the session with this memory, and not of one that had its name before.
    pub(crate) fn are_of(&self, memory: &Arc<MemoryReservation>) -> bool {
        Arc::ptr_eq(&self.memory, memory)
    }

    /// Shows the module what is there now, where that is something else than before. Between two of its calls.
    #[inline]
    pub(crate) fn refresh(&mut self, instance: &mut Instance) {
        if self.heard != self.granted.changes() || self.all.iter().any(|it| it.seen != it.changes()) {
            self.move_on(instance);
        }
    }

    #[cold]
    fn move_on(&mut self, instance: &mut Instance) {
        // Before it is looked at, as below.
        let heard = self.granted.changes();
        let is_granted_anew = std::mem::replace(&mut self.heard, heard) != heard;
        if is_granted_anew {
            let tables = lock(&self.granted.inner).tables.clone();
            self.all.iter_mut().zip(tables).for_each(|(reading, table)| reading.turn_to(table));
        }
        for reading in &mut self.all {
            // Before it is looked at: what comes in between is seen the next time.
            let seen = reading.changes();
            if reading.seen == seen {
                continue;
            }
            // What was said of the table that it has read before says nothing of this one.
            let is_other = is_granted_anew && reading.seen == 0;
            // What is not mapped any more is let go of after that.
            let (before, trouble) = (reading.shown.take(), reading.trouble.take());
            reading.move_on();
            match instance.show_table(reading.place, reading.shown.as_deref()) {
                Ok(_) => reading.seen = seen,
                Err(error) => {
                    reading.shown = None;
                    _ = reading.holding.set(Bytes(0));
                    reading.trouble = Some(format!("it cannot be mapped: {error}"));
                }
            }
            before.into_iter().for_each(|before| self.shelf.attic.take(before));
            let is_news = is_other || reading.trouble != trouble;
            if let Some((guest, title)) = self.guest.as_ref().filter(|_| is_news) {
                if let Some(table) = &reading.table {
                    table.note(*guest, reading.trouble.clone());
                }
                reading.say(title);
            }
        }
        if is_granted_anew {
            // Nobody else may know those that it has turned away from.
            self.shelf.tidy();
        }
    }
}

impl TableGrants {
    fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// The module may read these from its next call on. It is told, so that nothing is held that it may not see, also where no packet comes.
    pub(super) fn change(&self, tables: Vec<Option<Arc<SharedTable>>>) {
        let mut inner = lock(&self.inner);
        let Inner { tables: present, home: Some((guest, reader)) } = &mut *inner else { return };
        let is_among = |table: &Arc<SharedTable>, others: &[Option<Arc<SharedTable>>]| {
            others.iter().flatten().any(|other| Arc::ptr_eq(table, other))
        };
        let places = |tables: &[Option<Arc<SharedTable>>]| -> Vec<_> {
            tables.iter().map(|table| table.as_ref().map(Arc::as_ptr)).collect()
        };
        if places(present) == places(&tables) {
            return;
        }
        present.iter().flatten().filter(|old| !is_among(old, &tables)).for_each(|old| old.leave(*guest));
        for new in tables.iter().flatten().filter(|new| !is_among(new, &*present)) {
            new.enter(*guest, reader.clone());
        }
        *present = tables;
        self.changes.fetch_add(1, Ordering::AcqRel);
        reader.waker.wake_for_news(*guest);
    }

    /// The module is gone.
    fn leave(&self) {
        let mut inner = lock(&self.inner);
        let (tables, home) = (std::mem::take(&mut inner.tables), inner.home.take());
        if let Some((guest, _)) = home {
            tables.iter().flatten().for_each(|table| table.leave(guest));
        }
    }
}

impl Reading {
    /// How often what there is has changed; never 0.
    fn changes(&self) -> u64 {
        self.table.as_ref().map_or(1, |table| table.changes())
    }

    /// It reads this one from now on.
    fn turn_to(&mut self, table: Option<Arc<SharedTable>>) {
        if self.table.as_ref().map(Arc::as_ptr) != table.as_ref().map(Arc::as_ptr) {
            (self.table, self.seen, self.is_said) = (table, 0, false);
        }
    }

    /// Takes what is there now, where it can be shown.
    fn move_on(&mut self) {
        let (version, is_a_sessions) = self.table.as_ref().map(|table| table.look()).unwrap_or_default();
        self.trouble = None;
        self.shown = version.filter(|version| {
            let len = version.len();
            let wanted = if is_a_sessions { TableVersion::memory_of(len) } else { Bytes(0) };
            if len > self.bytes {
                let most = self.bytes;
                self.trouble = Some(format!("it has {len} bytes, and the module declares {most} at most"));
            } else if !self.holding.set(wanted) {
                self.trouble = Some(format!("it takes {wanted} of memory, and the session has less left"));
            }
            self.trouble.is_none()
        });
        if self.shown.is_none() {
            // Less than it holds is always there.
            _ = self.holding.set(Bytes(0));
        }
    }

    /// Says what is wrong, once: a publisher could have it said all the time.
    fn say(&mut self, title: &str) {
        if let (Some(trouble), Some(table), false) = (&self.trouble, &self.table, self.is_said) {
            self.is_said = true;
            warn(&format_args!("{title}: table {} is shown as empty: {trouble}", table.name()));
        }
    }
}

impl Drop for Readings {
    fn drop(&mut self) {
        self.granted.leave();
        self.all.clear();
        self.shelf.tidy();
    }
}
