//! What a module sees of the tables that it reads.

use super::shelf::{Reader, Shelf, Table};
use crate::log::say;
use crate::runner::Waker;
use std::sync::Arc;
use weir_sandbox::{Instance, TableVersion};
use weir_session::{Holding, MemoryReservation};
use weir_units::Bytes;

/// The tables that a module reads.
#[derive(Debug)]
pub(crate) struct Readings {
    shelf: Arc<Shelf>,
    memory: Arc<MemoryReservation>,
    all: Vec<Reading>,
    /// The module's number on the node and what it is called, once it is there.
    guest: Option<(u64, String)>,
}

#[derive(Debug)]
struct Reading {
    /// Its place in the manifest.
    place: usize,
    /// The most bytes that the module has room for.
    bytes: u32,
    table: Arc<Table>,
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
    pub(super) fn new(shelf: &Arc<Shelf>, memory: &Arc<MemoryReservation>) -> Self {
        Self { shelf: Arc::clone(shelf), memory: Arc::clone(memory), all: Vec::new(), guest: None }
    }

    pub(super) fn add(&mut self, place: usize, bytes: u32, table: Arc<Table>) {
        let holding = Holding::new(Arc::clone(&self.memory));
        let (shown, trouble) = (None, None);
        self.all.push(Reading { place, bytes, table, seen: 0, shown, holding, trouble, is_said: false });
    }

    /// What the module sees when it begins, by the places in its manifest.
    pub(crate) fn first(&mut self) -> Vec<Option<Arc<TableVersion>>> {
        let mut first = Vec::new();
        for reading in &mut self.all {
            reading.seen = reading.table.changes();
            reading.move_on();
            first.resize(reading.place + 1, None);
            first[reading.place].clone_from(&reading.shown);
        }
        first
    }

    /// The module is on the node now, with this number.
    pub(crate) fn move_in(&mut self, guest: u64, title: &str, waker: &Waker) {
        for reading in &mut self.all {
            let reader =
                Reader { title: title.to_owned(), waker: waker.clone(), trouble: reading.trouble.clone() };
            reading.table.enter(guest, reader);
            reading.say(title);
        }
        self.guest = Some((guest, title.to_owned()));
    }

    /// Whether these are of the session with this memory, and not of one that had its name before.
    pub(crate) fn are_of(&self, memory: &Arc<MemoryReservation>) -> bool {
        Arc::ptr_eq(&self.memory, memory)
    }

    /// Shows the module what is there now, where that is something else than before. Between two of its calls.
    #[inline]
    pub(crate) fn refresh(&mut self, instance: &mut Instance) {
        if self.all.iter().any(|reading| reading.seen != reading.table.changes()) {
            self.move_on(instance);
        }
    }

    #[cold]
    fn move_on(&mut self, instance: &mut Instance) {
        for reading in &mut self.all {
            // Before it is looked at: what comes in between is seen the next time.
            let seen = reading.table.changes();
            if reading.seen == seen {
                continue;
            }
            // What is not mapped any more is let go of after that.
            let before = reading.shown.take();
            reading.move_on();
            match instance.show_table(reading.place, reading.shown.as_deref()) {
                Ok(_) => reading.seen = seen,
                Err(error) => {
                    reading.shown = None;
                    reading.trouble = Some(format!("it cannot be mapped: {error}"));
                }
            }
            drop(before);
            if let Some((guest, title)) = &self.guest {
                reading.table.note(*guest, reading.trouble.clone());
                reading.say(title);
            }
        }
    }
}

impl Reading {
    /// Takes what is there now, where it can be shown.
    fn move_on(&mut self) {
        let (version, is_a_sessions) = self.table.look();
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
        if let Some(trouble) = self.trouble.as_ref().filter(|_| !self.is_said) {
            self.is_said = true;
            say(&format!("{title}: table {} is shown as empty: {trouble}", self.table.name()));
        }
    }
}

impl Drop for Readings {
    fn drop(&mut self) {
        let guest = self.guest.as_ref().map(|(guest, _)| *guest);
        for reading in self.all.drain(..) {
            if let Some(guest) = guest {
                reading.table.leave(guest);
            }
        }
        self.shelf.tidy();
    }
}
