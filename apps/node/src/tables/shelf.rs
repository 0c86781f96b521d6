//! All tables of a node: what each one shows, who publishes it and who reads it.

use super::TableGrant;
use super::publisher::Publisher;
use super::reader::Readings;
use crate::protocol::TableShot;
use crate::runner::Waker;
use crate::spec::SessionSpec;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use weir_sandbox::TableVersion;
use weir_session::ledger::Digest;
use weir_session::{Access, Manifest, MemoryReservation, Name};
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
        "module `{module}` {does} table `{table}`, and session `{session}` may not: create the session with `{option} {table}`, or `{option} {table}=NAME` \
         where it has another name on the node"
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
    /// A module publishes it.
    is_pressed: bool,
    shown: Option<Arc<TableVersion>>,
    readers: BTreeMap<u64, Reader>,
}

/// All tables of a node.
#[derive(Debug, Default)]
pub(crate) struct Shelf {
    tables: Mutex<BTreeMap<Name, Arc<Table>>>,
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
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

    /// Shows the next version, if it is this one who publishes it. Says whether it is.
    pub(super) fn publish(&self, by: &Owner, bytes: &[u8]) -> io::Result<bool> {
        let mut made = lock(&self.made);
        let version = Arc::new(TableVersion::new(*made + 1, bytes)?);
        *made += 1;
        Ok(self.show(by, Some(version)))
    }

    /// Shows nothing any more, if it was this one who published it. Who reads is told, so that nothing is held that nobody sees.
    pub(super) fn withdraw(&self, by: &Owner) {
        if self.show(by, None) {
            self.wake();
        }
    }

    fn show(&self, by: &Owner, version: Option<Arc<TableVersion>>) -> bool {
        let before = {
            let mut inner = lock(&self.inner);
            if inner.owner.as_ref() != Some(by) {
                return false;
            }
            self.changes.fetch_add(1, Ordering::AcqRel);
            std::mem::replace(&mut inner.shown, version)
        };
        // Its memory may be freed now, which takes a while.
        drop(before);
        true
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
        self.withdraw(by);
        let mut inner = lock(&self.inner);
        if inner.owner.as_ref() == Some(by) {
            inner.owner = None;
        }
    }

    /// A module publishes it from now on; nothing, where one does.
    pub(super) fn press(&self) -> bool {
        !std::mem::replace(&mut lock(&self.inner).is_pressed, true)
    }

    pub(super) fn end_press(&self) {
        lock(&self.inner).is_pressed = false;
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

impl Shelf {
    /// The table of this name, whether it shows anything or not.
    fn table(&self, name: &Name) -> Arc<Table> {
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
            table.publish(&Owner::Operator, bytes).map(|_| ()).map_err(|source| {
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
                    table.show(&Owner::Operator, Some(shown));
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
        let mut claims = Claims { shelf: Arc::clone(self), owner, tables: Vec::new() };
        for grant in &session.publish {
            let table = self.table(&grant.table);
            table.own(claims.owner.clone())?;
            claims.tables.push(table);
        }
        Ok(claims)
    }

    /// What a module of a session reads and publishes, as it was granted. What it publishes is gone with its publisher.
    pub(crate) fn bind(
        self: &Arc<Self>,
        session: &SessionSpec,
        module: &Name,
        manifest: &Manifest,
        memory: &Arc<MemoryReservation>,
    ) -> Result<(Readings, Publisher), TableError> {
        let mut readings = Readings::new(self, memory);
        let mut publisher = Publisher::new(self, Owner::Session(session.name.clone()));
        for (place, declared) in manifest.tables.iter().enumerate() {
            let (grants, does, option) = match declared.access {
                Access::Read { .. } => (&session.read, "reads", "--read"),
                Access::Publish => (&session.publish, "publishes", "--publish"),
            };
            let granted = grants.iter().find(|grant| grant.local == declared.name);
            let Some(TableGrant { table, .. }) = granted else {
                let (session, module) = (session.name.clone(), module.clone());
                let table = declared.name.clone();
                return Err(TableError::NotGranted { module, does, table, session, option });
            };
            let table = self.table(table);
            match declared.access {
                Access::Read { .. } => readings.add(place, declared.bytes, table),
                Access::Publish => publisher.add(place, declared.bytes, table, memory).map_err(|wanted| {
                    let (session, module) = (session.name.clone(), module.clone());
                    let table = declared.name.clone();
                    match wanted {
                        Some(wanted) => {
                            let left = memory.state().left();
                            TableError::Memory { module, table, wanted, session, left }
                        }
                        None => TableError::Publishes { session, table },
                    }
                })?,
            }
        }
        Ok((readings, publisher))
    }

    /// How they are, for whoever asks.
    pub(crate) fn shots(&self) -> Vec<TableShot> {
        let tables: Vec<Arc<Table>> = lock(&self.tables).values().cloned().collect();
        tables.iter().filter_map(|table| table.shot()).collect()
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
