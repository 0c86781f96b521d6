//! All tables of a node: what each one shows, who publishes it and who reads it.

use crate::protocol::TableShot;
use crate::runner::Waker;
use crate::spec::SessionSpec;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use weir_sandbox::TableVersion;
use weir_session::Name;
use weir_session::ledger::Digest;
use weir_units::Bytes;

/// Why something cannot be done with a table. Nothing has changed.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// Somebody else publishes it.
    #[error("table `{table}` is published by {owner}; nobody else can do that as long as it is")]
    Owned {
        /// Which.
        table: Name,
        /// By whom.
        owner: Owner,
    },
    /// There is none.
    #[error("there is no table `{0}`")]
    Absent(Name),
    /// A module that its session may not let read or publish.
    #[error(
        "module `{module}` {does} table `{table}`, and session `{session}` may not: `weir session change {session} {option} {table}` grants it, or \
         `{option} {table}=NAME` where it has another name on the node"
    )]
    NotGranted {
        /// Which module.
        module: Name,
        /// What it wants to do.
        does: &'static str,
        /// As its manifest names it.
        table: Name,
        /// Which session.
        session: Name,
        /// What would grant it.
        option: &'static str,
    },
    /// Another module of the session does so already.
    #[error("session `{session}` has another module that publishes table `{table}`")]
    Publishes {
        /// Which session.
        session: Name,
        /// Which table.
        table: Name,
    },
    /// There is no memory for what a module publishes.
    #[error(
        "module `{module}` publishes table `{table}`, which takes {wanted} of memory, twice what it declares, and session `{session}` has {left} left; more \
         can be reserved with `weir session change`"
    )]
    Memory {
        /// Which module.
        module: Name,
        /// Which table.
        table: Name,
        /// What it takes.
        wanted: Bytes,
        /// Which session.
        session: Name,
        /// What it has.
        left: Bytes,
    },
    /// The system has no memory for it.
    #[error("there is no memory for table `{table}`: {source}")]
    System {
        /// Which.
        table: Name,
        /// What the system said.
        source: io::Error,
    },
}

/// Who publishes a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Whoever runs the node.
    Operator,
    /// A session's module.
    Session(Name),
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Operator => f.write_str("the operator"),
            Self::Session(name) => write!(f, "session {name}"),
        }
    }
}

/// A module that reads a table.
#[derive(Clone, Debug)]
pub(super) struct Reader {
    /// Which, for people.
    pub(super) title: String,
    /// Who tells it that there is something new.
    pub(super) waker: Waker,
    /// Why it does not see what is there.
    pub(super) trouble: Option<String>,
}

/// One table.
#[derive(Debug)]
pub(crate) struct Table {
    name: Name,
    /// How often what it shows has changed: who reads looks here first.
    changes: AtomicU64,
    inner: Mutex<Inner>,
    /// The number of the version that was made last. Held while one is made, so that they come in the order of their numbers.
    made: Mutex<u64>,
}

#[derive(Debug, Default)]
struct Inner {
    owner: Option<Owner>,
    /// The number of the publisher by which a module of its owner does.
    press: Option<u64>,
    shown: Option<Arc<TableVersion>>,
    readers: BTreeMap<u64, Reader>,
}

/// All tables of a node.
#[derive(Debug, Default)]
pub(crate) struct Shelf {
    tables: Mutex<BTreeMap<Name, Arc<Table>>>,
    /// How many publishers there have been.
    publishers: AtomicU64,
}

/// A table of the configuration.
#[derive(Clone, Debug)]
pub(crate) struct Sheet {
    name: Name,
    /// Of its bytes.
    pub(crate) digest: Digest,
    /// As long as they have not been shown.
    bytes: Vec<u8>,
}

impl Sheet {
    pub(crate) fn new(name: Name, bytes: Vec<u8>) -> Self {
        Self { name, digest: Digest::of(&bytes), bytes }
    }
}

/// What became of the tables of a configuration.
#[derive(Debug)]
pub(crate) struct Configured {
    /// They, without their bytes.
    pub(crate) sheets: Vec<Sheet>,
    /// What takes it back.
    pub(crate) before: Vec<Before>,
    /// What has changed, for people.
    pub(crate) notes: Vec<String>,
}

/// What a table of the operator was, so that it can be so again.
#[derive(Debug)]
pub(crate) struct Before {
    name: Name,
    shown: Option<Arc<TableVersion>>,
}

/// The tables that a session may publish: nobody else may, as long as this exists.
#[derive(Debug)]
pub(crate) struct Claims {
    shelf: Arc<Shelf>,
    owner: Owner,
    tables: Vec<Arc<Table>>,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Table {
    pub(super) fn name(&self) -> &Name {
        &self.name
    }

    /// How often what it shows has changed.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// What it shows, and whether that is a session's.
    pub(super) fn look(&self) -> (Option<Arc<TableVersion>>, bool) {
        let inner = lock(&self.inner);
        (inner.shown.clone(), matches!(inner.owner, Some(Owner::Session(_))))
    }

    /// Shows the next version, if it is this one who publishes it; of a session, by this press. Says whether it is.
    pub(super) fn publish(&self, by: &Owner, press: Option<u64>, bytes: &[u8]) -> io::Result<bool> {
        // Who does not publish it keeps nobody waiting who does.
        if !lock(&self.inner).is_of(by, press) {
            return Ok(false);
        }
        let mut made = lock(&self.made);
        let version = Arc::new(TableVersion::new(*made + 1, bytes)?);
        *made += 1;
        Ok(self.show(by, press, Some(version)))
    }

    fn show(&self, by: &Owner, press: Option<u64>, version: Option<Arc<TableVersion>>) -> bool {
        let before = {
            let mut inner = lock(&self.inner);
            if !inner.is_of(by, press) {
                return false;
            }
            self.changes.fetch_add(1, Ordering::AcqRel);
            std::mem::replace(&mut inner.shown, version)
        };
        // Its memory may be freed now, which takes a while.
        drop(before);
        true
    }

    /// Shows nothing any more, where this says that what is shown ends. Who reads is told, so that nothing is held that nobody sees.
    fn end(&self, ends: impl FnOnce(&mut Inner) -> bool) {
        let before = {
            let mut inner = lock(&self.inner);
            if !ends(&mut inner) {
                return;
            }
            self.changes.fetch_add(1, Ordering::AcqRel);
            inner.shown.take()
        };
        drop(before);
        self.wake();
    }

    /// Has those who read it move on, also where no packet comes for them.
    fn wake(&self) {
        lock(&self.inner).readers.iter().for_each(|(guest, reader)| reader.waker.wake_for_news(*guest));
    }

    /// From now on this one publishes it, who may do so already.
    fn own(&self, owner: Owner) -> Result<(), TableError> {
        let mut inner = lock(&self.inner);
        match &inner.owner {
            Some(there) if *there != owner => {
                Err(TableError::Owned { table: self.name.clone(), owner: there.clone() })
            }
            _ => {
                inner.owner = Some(owner);
                Ok(())
            }
        }
    }

    /// From now on nobody publishes it, and it shows nothing.
    fn disown(&self, by: &Owner) {
        self.end(|inner| {
            let is_theirs = inner.owner.as_ref() == Some(by);
            if is_theirs {
                (inner.owner, inner.press) = (None, None);
            }
            is_theirs
        });
    }

    /// A module publishes it from now on, by this press. Says whether it does, and none does by another one.
    pub(super) fn press(&self, press: u64) -> bool {
        let mut inner = lock(&self.inner);
        let is_free = inner.press.is_none_or(|there| there == press);
        if is_free {
            inner.press = Some(press);
        }
        is_free
    }

    /// The same in any case: whoever does by another press is not on the node yet, and will see that it has lost it.
    pub(super) fn take_press(&self, press: u64) {
        self.end(|inner| inner.press.replace(press).is_some_and(|before| before != press));
    }

    /// No module publishes it any more, if one did by this press, and it shows nothing.
    pub(super) fn end_press(&self, press: u64) {
        self.end(|inner| {
            let is_theirs = inner.press == Some(press);
            if is_theirs {
                inner.press = None;
            }
            is_theirs
        });
    }

    pub(super) fn enter(&self, guest: u64, reader: Reader) {
        lock(&self.inner).readers.insert(guest, reader);
    }

    pub(super) fn leave(&self, guest: u64) {
        lock(&self.inner).readers.remove(&guest);
    }

    pub(super) fn note(&self, guest: u64, trouble: Option<String>) {
        if let Some(reader) = lock(&self.inner).readers.get_mut(&guest) {
            reader.trouble = trouble;
        }
    }

    fn is_used(&self) -> bool {
        lock(&self.inner).owner.is_some()
    }

    fn shot(&self) -> Option<TableShot> {
        let inner = lock(&self.inner);
        if inner.owner.is_none() && inner.readers.is_empty() {
            return None;
        }
        let troubles = inner.readers.values().filter_map(|reader| {
            reader.trouble.as_ref().map(|trouble| format!("{}: {trouble}", reader.title))
        });
        Some(TableShot {
            name: self.name.to_string(),
            publisher: inner.owner.as_ref().map(ToString::to_string),
            version: inner.shown.as_ref().map_or(0, |shown| shown.number()),
            bytes: inner.shown.as_ref().map(|shown| shown.len().into()),
            readers: inner.readers.values().map(|reader| reader.title.clone()).collect(),
            troubles: troubles.collect(),
        })
    }
}

impl Inner {
    /// Whether this one publishes it; of a session, by this press.
    fn is_of(&self, by: &Owner, press: Option<u64>) -> bool {
        self.owner.as_ref() == Some(by) && press.is_none_or(|press| self.press == Some(press))
    }
}

impl Shelf {
    /// A number that no publisher had before.
    pub(super) fn next_publisher(&self) -> u64 {
        self.publishers.fetch_add(1, Ordering::Relaxed)
    }

    /// The table of this name, whether it shows anything or not.
    pub(super) fn table(&self, name: &Name) -> Arc<Table> {
        let new = || {
            let (changes, inner, made) = (AtomicU64::new(1), Mutex::default(), Mutex::default());
            Arc::new(Table { name: name.clone(), changes, inner, made })
        };
        Arc::clone(lock(&self.tables).entry(name.clone()).or_insert_with(new))
    }

    /// Forgets tables that nobody publishes or reads.
    pub(super) fn tidy(&self) {
        lock(&self.tables).retain(|_, table| Arc::strong_count(table) > 1 || table.is_used());
    }

    /// The operator's next version of a table.
    pub(crate) fn put(&self, name: &Name, bytes: &[u8]) -> Result<(), TableError> {
        let table = self.table(name);
        let was_shown = table.look().0.is_some();
        let put = table.own(Owner::Operator).and_then(|()| {
            table.publish(&Owner::Operator, None, bytes).map(|_| ()).map_err(|source| {
                if !was_shown {
                    table.disown(&Owner::Operator);
                }
                TableError::System { table: name.clone(), source }
            })
        });
        // What is seen no more is not to be held by who has nothing to do.
        table.wake();
        drop(table);
        self.tidy();
        put
    }

    /// The operator takes a table away.
    pub(crate) fn remove(&self, name: &Name) -> Result<(), TableError> {
        let table = lock(&self.tables).get(name).cloned();
        let owner = table.as_ref().and_then(|table| lock(&table.inner).owner.clone());
        match (table, owner) {
            (Some(table), Some(Owner::Operator)) => {
                table.disown(&Owner::Operator);
            }
            (_, Some(owner)) => return Err(TableError::Owned { table: name.clone(), owner }),
            (_, None) => return Err(TableError::Absent(name.clone())),
        }
        self.tidy();
        Ok(())
    }

    /// Has the operator's tables be those of a configuration, where they were those of another one: all of them, or nothing changes. What is in both, with the
    /// same bytes, stays as it is.
    pub(crate) fn configure(&self, old: &[Sheet], mut new: Vec<Sheet>) -> Result<Configured, TableError> {
        let gone = old.iter().filter(|sheet| !new.iter().any(|other| other.name == sheet.name));
        let gone: Vec<&Name> = gone.map(|sheet| &sheet.name).collect();
        let is_new = |sheet: &&mut Sheet| {
            !old.iter().any(|other| other.name == sheet.name && other.digest == sheet.digest)
        };
        let before = self.before(gone.iter().copied().chain(new.iter().map(|sheet| &sheet.name)));
        let mut notes = Vec::new();
        for name in gone {
            // It may have been removed by hand.
            if self.remove(name).is_ok() {
                notes.push(format!("table {name} is gone"));
            }
        }
        for sheet in new.iter_mut().filter(is_new) {
            if let Err(error) = self.put(&sheet.name, &std::mem::take(&mut sheet.bytes)) {
                self.restore(before);
                return Err(error);
            }
            notes.push(format!("table {} has a new version", sheet.name));
        }
        new.iter_mut().for_each(|sheet| sheet.bytes = Vec::new());
        Ok(Configured { sheets: new, before, notes })
    }

    /// What these tables are, should they have to be so again.
    fn before<'a>(&self, names: impl Iterator<Item = &'a Name>) -> Vec<Before> {
        let before = |name: &Name| {
            let table = lock(&self.tables).get(name).cloned();
            let is_operators = |table: &Arc<Table>| lock(&table.inner).owner == Some(Owner::Operator);
            let shown = table.filter(is_operators).and_then(|table| table.look().0);
            Before { name: name.clone(), shown }
        };
        names.map(before).collect()
    }

    /// Has the operator's tables be what they were.
    pub(crate) fn restore(&self, before: Vec<Before>) {
        for Before { name, shown } in before {
            let table = self.table(&name);
            match shown {
                Some(shown) if table.own(Owner::Operator).is_ok() => {
                    table.show(&Owner::Operator, None, Some(shown));
                    table.wake();
                }
                // It was not there, or it is somebody else's.
                _ => _ = self.remove(&name),
            }
        }
        self.tidy();
    }

    /// Has a session be the only one to publish the tables that it is to.
    pub(crate) fn claim(self: &Arc<Self>, session: &SessionSpec) -> Result<Claims, TableError> {
        let owner = Owner::Session(session.name.clone());
        Claims { shelf: Arc::clone(self), owner, tables: Vec::new() }.more(session)
    }

    /// How they are, for whoever asks.
    pub(crate) fn shots(&self) -> Vec<TableShot> {
        let tables: Vec<Arc<Table>> = lock(&self.tables).values().cloned().collect();
        tables.iter().filter_map(|table| table.shot()).collect()
    }
}

impl Claims {
    /// Those that the session is to publish beside these. They are gone with what is returned, unless it is [taken in](Self::become_those_of).
    pub(crate) fn more(&self, session: &SessionSpec) -> Result<Self, TableError> {
        let mut more = Self { shelf: Arc::clone(&self.shelf), owner: self.owner.clone(), tables: Vec::new() };
        for grant in &session.publish {
            if self.tables.iter().all(|table| table.name != grant.table) {
                let table = self.shelf.table(&grant.table);
                table.own(more.owner.clone())?;
                more.tables.push(table);
            }
        }
        Ok(more)
    }

    /// From now on the session publishes these and [more](Self::more), as far as it is to. The others show nothing, and are anybody's.
    pub(crate) fn become_those_of(&mut self, session: &SessionSpec, mut more: Self) {
        let is_granted = |table: &Arc<Table>| session.publish.iter().any(|grant| grant.table == table.name);
        self.tables.append(&mut more.tables);
        let (stay, go): (Vec<_>, Vec<_>) = std::mem::take(&mut self.tables).into_iter().partition(is_granted);
        // What is left in there is given back with it.
        (self.tables, more.tables) = (stay, go);
    }
}

impl Drop for Claims {
    fn drop(&mut self) {
        for table in self.tables.drain(..) {
            table.disown(&self.owner);
        }
        self.shelf.tidy();
    }
}
