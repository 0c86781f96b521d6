//! All tables of a node: what each one shows, who publishes it and who reads it.

mod arranged;

use super::attic::TableReclaimer;
use crate::control::protocol::TableStatus;
use crate::control::spec::SessionSpec;
use crate::runner::Waker;
pub(crate) use arranged::Arranged;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use weir_ledger::Digest;
use weir_sandbox::TableVersion;
use weir_units::{Bytes, beside};
use {weir_admission::Name, weir_session::MemoryReservation};

/// Why something cannot be done with a table. Nothing has changed.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// Somebody else publishes it.
    #[error("table `{table}` is published by {owner}; nobody else can do that as long as it is")]
    Owned {
        /// Which.
        table: Name,
        /// By whom.
        owner: TableOwner,
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
         can be reserved with `weir session change`",
        wanted = beside(*wanted, &[*left]), left = beside(*left, &[*wanted])
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
#[derive(Clone, Debug)]
pub enum TableOwner {
    /// Whoever runs the node.
    Operator,
    /// A session, with its memory: a later one of the same name has another, and is somebody else.
    Session(Name, Arc<MemoryReservation>),
}

impl PartialEq for TableOwner {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Operator, Self::Operator) => true,
            (Self::Session(_, one), Self::Session(_, other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

impl fmt::Display for TableOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Operator => f.write_str("the operator"),
            Self::Session(name, _) => write!(f, "session {name}"),
        }
    }
}

/// A module that reads a table.
#[derive(Clone, Debug)]
pub(super) struct TableReader {
    /// Which, for people.
    pub(super) title: String,
    /// Who tells it that there is something new.
    pub(super) waker: Waker,
    /// Why it does not see what is there.
    pub(super) trouble: Option<String>,
}

/// One table.
#[derive(Debug)]
pub(crate) struct SharedTable {
    name: Name,
    /// How often what it shows has changed: who reads looks here first.
    changes: AtomicU64,
    inner: Mutex<Inner>,
    /// Apart, because there can be thousands, and who reads or publishes is not to wait for somebody who goes through them all.
    readers: Mutex<BTreeMap<u64, TableReader>>,
    /// The number of the version that was made last. Held while one is made, so that they come in the order of their numbers.
    made: Mutex<u64>,
}

#[derive(Debug, Default)]
struct Inner {
    owner: Option<TableOwner>,
    /// To whom it is pledged: from then on that one publishes it.
    next: Option<TableOwner>,
    /// The number of the publisher by which a module of its owner does. No other has it, and it goes with the owner.
    press: Option<u64>,
    shown: Option<Arc<TableVersion>>,
}

/// All tables of a node.
#[derive(Debug, Default)]
pub(crate) struct TableRegistry {
    tables: Mutex<BTreeMap<Name, Arc<SharedTable>>>,
    /// How many publishers there have been.
    publishers: AtomicU64,
    pub(super) attic: TableReclaimer,
}

/// A table of the configuration.
#[derive(Clone, Debug)]
pub(crate) struct TableFile {
    name: Name,
    /// Of its bytes.
    pub(crate) digest: Digest,
    /// As long as they have not been shown.
    bytes: Vec<u8>,
}

impl TableFile {
    pub(crate) fn new(name: Name, bytes: Vec<u8>) -> Self {
        Self { name, digest: Digest::of(&bytes), bytes }
    }
}

/// The tables that a session may publish: nobody else may, as long as this exists.
#[derive(Debug)]
pub(crate) struct TableClaims {
    shelf: Arc<TableRegistry>,
    owner: TableOwner,
    tables: Vec<Arc<SharedTable>>,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SharedTable {
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
        (inner.shown.clone(), matches!(inner.owner, Some(TableOwner::Session(..))))
    }

    /// Makes the next version of all, whoever shows it.
    fn make(made: &mut u64, bytes: &[u8]) -> io::Result<Arc<TableVersion>> {
        let version = TableVersion::new(*made + 1, bytes)?;
        *made += 1;
        Ok(Arc::new(version))
    }

    /// Whether it is by this press that a module publishes it.
    pub(super) fn is_of(&self, press: u64) -> bool {
        lock(&self.inner).press == Some(press)
    }

    /// Shows the next version, if it is by this press that a module publishes it. Says whether it is.
    pub(super) fn publish(&self, press: u64, bytes: &[u8]) -> io::Result<bool> {
        // Who does not publish it keeps nobody waiting who does.
        if !self.is_of(press) {
            return Ok(false);
        }
        let mut made = lock(&self.made);
        let version = Self::make(&mut made, bytes)?;
        Ok(self.show(press, version))
    }

    /// Shows the operator's next version, unless somebody else publishes it.
    fn put(&self, bytes: &[u8]) -> Result<(), TableError> {
        // Before it takes memory and time; and again when it is made.
        self.may_own(&lock(&self.inner), &TableOwner::Operator)?;
        let mut made = lock(&self.made);
        let version = Self::make(&mut made, bytes)
            .map_err(|source| TableError::System { table: self.name.clone(), source })?;
        self.show_operators(version)
    }

    /// Shows this version of the operator's, whose table it is from now on, unless somebody else publishes it. Who reads is told: what nobody is to see any
    /// more is not to be held by one who has nothing to do.
    fn show_operators(&self, version: Arc<TableVersion>) -> Result<(), TableError> {
        let before = {
            let mut inner = lock(&self.inner);
            self.may_own(&inner, &TableOwner::Operator)?;
            inner.owner = Some(TableOwner::Operator);
            self.changes.fetch_add(1, Ordering::AcqRel);
            inner.shown.replace(version)
        };
        drop(before);
        self.wake();
        Ok(())
    }

    fn show(&self, press: u64, version: Arc<TableVersion>) -> bool {
        let before = {
            let mut inner = lock(&self.inner);
            if inner.press != Some(press) {
                return false;
            }
            self.changes.fetch_add(1, Ordering::AcqRel);
            inner.shown.replace(version)
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
        lock(&self.readers).iter().for_each(|(guest, reader)| reader.waker.wake_for_news(*guest));
    }

    fn may_own(&self, inner: &Inner, owner: &TableOwner) -> Result<(), TableError> {
        match &inner.owner {
            Some(there) if there != owner => {
                Err(TableError::Owned { table: self.name.clone(), owner: there.clone() })
            }
            _ => match &inner.next {
                Some(next) if next != owner => {
                    Err(TableError::Owned { table: self.name.clone(), owner: next.clone() })
                }
                _ => Ok(()),
            },
        }
    }

    /// From now on this one publishes it, who may do so already.
    fn own(&self, owner: TableOwner) -> Result<(), TableError> {
        let mut inner = lock(&self.inner);
        self.may_own(&inner, &owner)?;
        inner.owner = Some(owner);
        Ok(())
    }

    /// From now on nobody publishes it, and it shows nothing, if it was this one's. At once: whoever publishes just now does so before or in vain.
    fn disown(&self, by: &TableOwner) {
        self.end(|inner| {
            let is_theirs = inner.owner.as_ref() == Some(by);
            if is_theirs {
                (inner.owner, inner.press) = (None, None);
            }
            is_theirs
        });
    }

    /// A module of this one's publishes it from now on, by this press. Says whether it does, and none does by another one. Of one whose table it is no
    /// longer, nobody will see anything.
    pub(super) fn press(&self, by: &TableOwner, press: u64) -> bool {
        let mut inner = lock(&self.inner);
        if inner.owner.as_ref() != Some(by) {
            return true;
        }
        let is_free = inner.press.is_none_or(|there| there == press);
        if is_free {
            inner.press = Some(press);
        }
        is_free
    }

    /// The same in any case: whoever does by another press is not on the node yet, and will see that it has lost it.
    pub(super) fn take_press(&self, by: &TableOwner, press: u64) {
        self.end(|inner| {
            inner.owner.as_ref() == Some(by)
                && inner.press.replace(press).is_some_and(|before| before != press)
        });
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

    pub(super) fn enter(&self, guest: u64, reader: TableReader) {
        lock(&self.readers).insert(guest, reader);
    }

    pub(super) fn leave(&self, guest: u64) {
        lock(&self.readers).remove(&guest);
    }

    pub(super) fn note(&self, guest: u64, trouble: Option<String>) {
        if let Some(reader) = lock(&self.readers).get_mut(&guest) {
            reader.trouble = trouble;
        }
    }

    fn is_used(&self) -> bool {
        lock(&self.inner).owner.is_some()
    }

    fn shot(&self) -> Option<TableStatus> {
        let (owner, shown) = {
            let inner = lock(&self.inner);
            (inner.owner.clone(), inner.shown.clone())
        };
        let readers = lock(&self.readers);
        if owner.is_none() && readers.is_empty() {
            return None;
        }
        let troubles = readers.values().filter_map(|reader| {
            reader.trouble.as_ref().map(|trouble| format!("{}: {trouble}", reader.title))
        });
        Some(TableStatus {
            name: self.name.to_string(),
            publisher: owner.as_ref().map(ToString::to_string),
            version: shown.as_ref().map_or(0, |shown| shown.number()),
            bytes: shown.as_ref().map(|shown| shown.len().into()),
            readers: readers.values().map(|reader| reader.title.clone()).collect(),
            troubles: troubles.collect(),
        })
    }
}

impl TableRegistry {
    /// A number that no publisher had before.
    pub(super) fn next_publisher(&self) -> u64 {
        self.publishers.fetch_add(1, Ordering::Relaxed)
    }

    /// The table of this name, whether it shows anything or not.
    pub(super) fn table(&self, name: &Name) -> Arc<SharedTable> {
        let new = || {
            let (changes, inner, made) = (AtomicU64::new(1), Mutex::default(), Mutex::default());
            Arc::new(SharedTable { name: name.clone(), changes, inner, readers: Mutex::default(), made })
        };
        Arc::clone(lock(&self.tables).entry(name.clone()).or_insert_with(new))
    }

    /// Forgets tables that nobody publishes or reads.
    pub(super) fn tidy(&self) {
        lock(&self.tables).retain(|_, table| Arc::strong_count(table) > 1 || table.is_used());
    }

    /// The operator's next version of a table.
    pub(crate) fn put(&self, name: &Name, bytes: &[u8]) -> Result<(), TableError> {
        let put = self.table(name).put(bytes);
        self.tidy();
        put
    }

    /// The operator takes a table away.
    pub(crate) fn remove(&self, name: &Name) -> Result<(), TableError> {
        let table = lock(&self.tables).get(name).cloned();
        let owner = table.as_ref().and_then(|table| lock(&table.inner).owner.clone());
        match (table, owner) {
            (Some(table), Some(TableOwner::Operator)) => {
                table.disown(&TableOwner::Operator);
            }
            (_, Some(owner)) => return Err(TableError::Owned { table: name.clone(), owner }),
            (_, None) => return Err(TableError::Absent(name.clone())),
        }
        self.tidy();
        Ok(())
    }

    /// Has the operator's tables be those of a configuration: all of them, or nothing changes.
    pub(crate) fn configure(self: &Arc<Self>, new: Vec<TableFile>) -> Result<Vec<TableFile>, TableError> {
        let arranged = self.arrange(&[], new, &[], &[]).map_err(|(_, error)| error)?;
        Ok(arranged.commit(std::iter::empty()).sheets)
    }

    /// Has a session be the only one to publish the tables that it is to.
    pub(crate) fn claim(
        self: &Arc<Self>,
        session: &SessionSpec,
        memory: &Arc<MemoryReservation>,
    ) -> Result<TableClaims, TableError> {
        let owner = TableOwner::Session(session.name.clone(), Arc::clone(memory));
        TableClaims { shelf: Arc::clone(self), owner, tables: Vec::new() }.more(session)
    }

    /// How they are, for whoever asks.
    pub(crate) fn shots(&self) -> Vec<TableStatus> {
        let tables: Vec<Arc<SharedTable>> = lock(&self.tables).values().cloned().collect();
        tables.iter().filter_map(|table| table.shot()).collect()
    }
}

impl TableClaims {
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
        let is_granted =
            |table: &Arc<SharedTable>| session.publish.iter().any(|grant| grant.table == table.name);
        self.tables.append(&mut more.tables);
        let (stay, go): (Vec<_>, Vec<_>) = std::mem::take(&mut self.tables).into_iter().partition(is_granted);
        // What is left in there is given back with it.
        (self.tables, more.tables) = (stay, go);
    }
}

impl Drop for TableClaims {
    fn drop(&mut self) {
        for table in self.tables.drain(..) {
            table.disown(&self.owner);
        }
        self.shelf.tidy();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_abi::{code, limit};
    use weir_sandbox::TablePublisher;
    use {weir_admission::Manifest, weir_session::NodeMemory};

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    fn memory() -> Arc<MemoryReservation> {
        MemoryReservation::new(&NodeMemory::new(Bytes(1 << 20)), Bytes(1 << 20), Bytes(1 << 20)).unwrap()
    }

    /// A session that publishes `t`, and a module that does so.
    fn publishing() -> (SessionSpec, Manifest) {
        let manifest = "name = 'm'\nversion = '1'\nabi = 2\nlicense = 'MIT'\nsummary = 's'\n\
            [[table]]\nname = 't'\naccess = 'publish'\nbytes = '1 KiB'\n";
        let spec = toml::from_str("name = \"a\"\npublish = [\"t\"]").unwrap();
        (spec, Manifest::parse(manifest.as_bytes()).unwrap())
    }

    /// The version that `t` shows, and how long it is.
    fn shown(shelf: &TableRegistry) -> Option<(u64, u32)> {
        shelf.table(&name("t")).look().0.map(|version| (version.number(), version.len()))
    }

    #[test]
    fn what_is_left_of_a_session_has_nothing_to_do_with_the_next_one_of_its_name() {
        let shelf: Arc<TableRegistry> = Arc::default();
        let ((spec, manifest), module) = (publishing(), name("m"));
        let (before, now) = (memory(), memory());
        let claims = shelf.claim(&spec, &before).unwrap();
        let (_, old, _) = shelf.bind(&spec, &module, &manifest, &before).unwrap();
        assert_eq!((old.publish(0, b"old"), shown(&shelf)), (code::OK, Some((1, 3))));
        drop(claims);
        assert_eq!((old.publish(0, b"old"), shown(&shelf)), (code::DENIED, None));
        // Its module has not ended yet, and there is a session of the same name again.
        let claims = shelf.claim(&spec, &now).unwrap();
        assert_eq!((old.publish(0, b"old"), shown(&shelf)), (code::DENIED, None));
        let (_, new, _) = shelf.bind(&spec, &module, &manifest, &now).unwrap();
        assert_eq!(new.publish(0, b"newer"), code::OK);
        let is_shown = shown(&shelf);
        // It ends: that takes nothing away from the other, and makes no room for a third one.
        drop(old);
        assert_eq!((shown(&shelf), is_shown.unwrap().1), (is_shown, 5));
        let third = shelf.bind(&spec, &module, &manifest, &now).unwrap_err();
        assert!(matches!(third, TableError::Publishes { .. }), "{third}");
        drop((new, claims));
        assert!(lock(&shelf.tables).is_empty());
    }

    #[test]
    fn who_was_bound_to_a_table_that_was_taken_away_meanwhile_does_not_go_on_as_if_it_had_not_been() {
        let shelf: Arc<TableRegistry> = Arc::default();
        let ((spec, manifest), module, memory) = (publishing(), name("m"), memory());
        let bind = || shelf.bind(&spec, &module, &manifest, &memory).unwrap();
        let claims = shelf.claim(&spec, &memory).unwrap();
        let (_, _before, before) = bind();
        assert!(before.holds(&spec));
        drop(claims);
        let (_, _between, between) = bind();
        // The same session has it again: both would publish what nobody sees.
        let _claims = shelf.claim(&spec, &memory).unwrap();
        assert_eq!((before.holds(&spec), between.holds(&spec)), (false, false));
        let (_, after, binding) = bind();
        assert!(binding.holds(&spec));
        assert_eq!((after.publish(0, b"x"), shown(&shelf)), (code::OK, Some((1, 1))));
    }

    #[test]
    fn nothing_is_shown_of_what_is_published_while_the_table_is_taken_away() {
        let owner = TableOwner::Session(name("a"), memory());
        for _ in 0..300 {
            let shelf = TableRegistry::default();
            let table = shelf.table(&name("t"));
            table.own(owner.clone()).unwrap();
            assert!(table.press(&owner, 1));
            std::thread::scope(|scope| {
                scope.spawn(|| while table.publish(1, b"x").unwrap() {});
                while shown(&shelf).is_none() {
                    std::thread::yield_now();
                }
                table.disown(&owner);
            });
            assert_eq!(shown(&shelf), None);
        }
    }

    #[test]
    fn what_cannot_be_put_changes_nothing() {
        let shelf = TableRegistry::default();
        let long = vec![0; limit::TABLE_BYTES as usize + 1];
        let error = shelf.put(&name("t"), &long).unwrap_err();
        assert!(matches!(error, TableError::System { .. }), "{error}");
        assert!(lock(&shelf.tables).is_empty());
        shelf.put(&name("t"), b"one").unwrap();
        assert!(shelf.put(&name("t"), &long).is_err());
        assert_eq!(shown(&shelf), Some((1, 3)));
    }

    #[test]
    fn what_is_arranged_and_does_not_take_effect_changes_nothing() {
        let shelf: Arc<TableRegistry> = Arc::default();
        let sheet = |bytes: &[u8]| vec![TableFile::new(name("t"), bytes.to_vec())];
        let first = shelf.configure(sheet(b"one")).unwrap();
        let arranged = shelf.arrange(&first, sheet(b"second"), &[], &[]).unwrap();
        assert_eq!(shown(&shelf), Some((1, 3)));
        drop(arranged);
        shelf.put(&name("t"), b"other").unwrap();
        let other = shown(&shelf);
        // The operator gives it up, and a session gets it: meanwhile no other party does.
        let ((spec, _), session, thief) = (publishing(), memory(), memory());
        let come = [(&spec, &session)];
        let arranged = shelf.arrange(&first, Vec::new(), &come, &[]).unwrap();
        assert_eq!(shown(&shelf), other);
        assert!(shelf.put(&name("t"), b"third").is_err());
        shelf.remove(&name("t")).unwrap();
        assert!(shelf.claim(&spec, &thief).is_err(), "it is pledged");
        let mut claims = TableClaims::none(&shelf, &spec.name, &session);
        let done = arranged.commit(std::iter::once(&mut claims));
        assert!(done.sheets.is_empty() && shelf.claim(&spec, &thief).is_err());
        // From one session to another: the one whose memory is gone.
        let next = memory();
        assert!(shelf.arrange(&[], Vec::new(), &[(&spec, &next)], &[thief]).is_err());
        let arranged = shelf.arrange(&[], Vec::new(), &[(&spec, &next)], &[session]).unwrap();
        let mut now = TableClaims::none(&shelf, &spec.name, &next);
        arranged.commit(std::iter::once(&mut now));
        // What the earlier session gives up is its no more.
        drop(claims);
        assert!(shelf.put(&name("t"), b"x").is_err());
        drop(now);
        assert!(lock(&shelf.tables).is_empty());
    }
}
