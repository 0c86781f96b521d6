//! The registry of a node's tables: the owner, publisher, current version and readers of each table.

mod rearrange;

use super::reclaimer::TableReclaimer;
use crate::control::spec::SessionSpec;
use crate::control::status::TableStatus;
use crate::core_thread::runner::Waker;
use crate::sync::{OrderedMutex, rank};
pub(crate) use rearrange::PreparedTables;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_ledger::Digest;
use weir_sandbox::TableVersion;
use weir_units::{Bytes, display_among};
use {weir_admission::Name, weir_session::MemoryReservation};

/// Error of an operation on a table. The operation has changed nothing.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The table has another owner.
    #[error(
        "table `{table}` is published by {owner}; another publisher is possible only after it has been withdrawn"
    )]
    Owned {
        /// Name of the table.
        table: Name,
        /// Its present owner.
        owner: TableOwner,
    },
    /// No table has this name.
    #[error("there is no table `{0}`")]
    Absent(Name),
    /// The session has no grant for a table that a module reads or publishes.
    #[error(
        "module `{module}` {does} table `{table}`, for which session `{session}` has no grant: `weir session change {session} {option} {table}` grants it, or \
         `{option} {table}=NAME` if the table has another name on the node"
    )]
    NotGranted {
        /// Name of the module.
        module: Name,
        /// Verb of the access: `reads` or `publishes`.
        does: &'static str,
        /// Name in the module's manifest.
        table: Name,
        /// Name of the session.
        session: Name,
        /// Option that grants the access.
        option: &'static str,
    },
    /// Another module of the session publishes the table already.
    #[error("session `{session}` has another module that publishes table `{table}`")]
    PublishedByOtherModule {
        /// Name of the session.
        session: Name,
        /// Name of the table.
        table: Name,
    },
    /// The session has no memory for a published table.
    #[error(
        "module `{module}` publishes table `{table}`, which takes {wanted} of memory, twice the declared size, and session `{session}` has {left} left; reserve \
         more memory with `weir session change`",
        wanted = display_among(*wanted, &[*left]), left = display_among(*left, &[*wanted])
    )]
    Memory {
        /// Name of the module.
        module: Name,
        /// Name of the table.
        table: Name,
        /// Memory of two versions of the declared size.
        wanted: Bytes,
        /// Name of the session.
        session: Name,
        /// Memory left in the session's reservation.
        left: Bytes,
    },
    /// The operating system has no memory for a version.
    #[error("there is no memory for table `{table}`: {source}")]
    System {
        /// Name of the table.
        table: Name,
        /// Error of the operating system.
        source: io::Error,
    },
}

/// The owner of a table, who may publish it.
#[derive(Clone, Debug)]
pub enum TableOwner {
    /// The operator of the node.
    Operator,
    /// A session and its memory. A later session of the same name has other memory, so it is another owner.
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

/// A module that reads a table, in the table's list of readers.
#[derive(Clone, Debug)]
pub(super) struct TableReader {
    pub(super) title: String,
    /// Waker of the module's core.
    pub(super) waker: Waker,
    /// Reason why the module sees an empty table.
    pub(super) problem: Option<String>,
}

/// A named table of the node, with its current version, owner and readers.
#[derive(Debug)]
pub(crate) struct SharedTable {
    name: Name,
    /// Count of changes, which readers check before they take the lock.
    changes: AtomicU64,
    inner: OrderedMutex<TableState, { rank::TABLE }>,
    /// Readers, by the numbers of their modules. They have a lock of their own, because waking thousands of readers
    /// takes long, and neither readers nor publishers may wait for it.
    readers: OrderedMutex<BTreeMap<u64, TableReader>, { rank::WOKEN }>,
    /// Number of the last version. The lock is held while a version is made, so that versions are published in order.
    last_number: OrderedMutex<u64, { rank::TABLE_NUMBER }>,
}

/// Owner, publisher and current version of a table.
#[derive(Debug, Default)]
struct TableState {
    owner: Option<TableOwner>,
    /// The owner after a change of the configuration that is being prepared.
    next_owner: Option<TableOwner>,
    /// Number of the publisher, unique on the node; `None` without one, and after a change of the owner.
    publisher: Option<u64>,
    version: Option<Arc<TableVersion>>,
}

/// All tables of a node.
#[derive(Debug, Default)]
pub(crate) struct TableRegistry {
    tables: OrderedMutex<BTreeMap<Name, Arc<SharedTable>>, { rank::TABLES }>,
    /// Number of publishers so far.
    publishers: AtomicU64,
    pub(super) reclaimer: TableReclaimer,
}

/// A table of the node's configuration.
#[derive(Clone, Debug)]
pub(crate) struct TableFile {
    name: Name,
    /// Digest of the table's bytes.
    pub(crate) digest: Digest,
    /// Contents, until they have been published.
    bytes: Vec<u8>,
}

impl TableFile {
    pub(crate) fn new(name: Name, bytes: Vec<u8>) -> Self {
        Self { name, digest: Digest::of_bytes(&bytes), bytes }
    }
}

/// The ownership of a session of the tables that it may publish. Dropping this value ends the ownership.
#[derive(Debug)]
pub(crate) struct TableClaims {
    registry: Arc<TableRegistry>,
    owner: TableOwner,
    tables: Vec<Arc<SharedTable>>,
}

impl SharedTable {
    pub(super) fn name(&self) -> &Name {
        &self.name
    }

    /// Returns the count of changes.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Returns the current version, and true if the table's owner is a session.
    pub(super) fn current(&self) -> (Option<Arc<TableVersion>>, bool) {
        let inner = self.inner.lock();
        (inner.version.clone(), matches!(inner.owner, Some(TableOwner::Session(..))))
    }

    /// Makes a version with the next number, and raises `last_number`.
    fn make(last_number: &mut u64, bytes: &[u8]) -> io::Result<Arc<TableVersion>> {
        let version = TableVersion::new(*last_number + 1, bytes)?;
        *last_number += 1;
        Ok(Arc::new(version))
    }

    /// Returns true if the publisher with this number publishes the table.
    pub(super) fn is_published_by(&self, publisher: u64) -> bool {
        self.inner.lock().publisher == Some(publisher)
    }

    /// Publishes the next version for the publisher with this number. Returns false if that publisher does not publish
    /// the table any more.
    pub(super) fn publish(&self, publisher: u64, bytes: &[u8]) -> io::Result<bool> {
        // The check comes before the lock, so that other publications never wait for a version that is refused.
        if !self.is_published_by(publisher) {
            return Ok(false);
        }
        let mut last_number = self.last_number.lock();
        let version = Self::make(&mut last_number, bytes)?;
        Ok(self.show(publisher, version))
    }

    /// Publishes the operator's next version, unless the table has another owner.
    fn put(&self, bytes: &[u8]) -> Result<(), TableError> {
        // The owner is checked before memory and time are spent on a version, and again when the version is published.
        self.check_owner(&self.inner.lock(), &TableOwner::Operator)?;
        let mut last_number = self.last_number.lock();
        let version = Self::make(&mut last_number, bytes)
            .map_err(|source| TableError::System { table: self.name.clone(), source })?;
        self.show_operators(version)
    }

    /// Replaces the current version by the operator's, and makes the operator the owner, unless the table has another
    /// owner. Readers are woken, so that an idle module does not keep the old version.
    fn show_operators(&self, version: Arc<TableVersion>) -> Result<(), TableError> {
        let before = {
            let mut inner = self.inner.lock();
            self.check_owner(&inner, &TableOwner::Operator)?;
            inner.owner = Some(TableOwner::Operator);
            self.changes.fetch_add(1, Ordering::AcqRel);
            inner.version.replace(version)
        };
        drop(before);
        self.wake();
        Ok(())
    }

    /// Replaces the current version, if the publisher with this number still publishes the table. Returns false
    /// otherwise.
    fn show(&self, publisher: u64, version: Arc<TableVersion>) -> bool {
        let before = {
            let mut inner = self.inner.lock();
            if inner.publisher != Some(publisher) {
                return false;
            }
            self.changes.fetch_add(1, Ordering::AcqRel);
            inner.version.replace(version)
        };
        // Dropping the old version may free its memory, which takes long, so the lock is released first.
        drop(before);
        true
    }

    /// Withdraws the current version if `ends` returns true. Readers are woken, so that an idle module does not keep
    /// the withdrawn version.
    fn withdraw_if(&self, ends: impl FnOnce(&mut TableState) -> bool) {
        let before = {
            let mut inner = self.inner.lock();
            if !ends(&mut inner) {
                return;
            }
            self.changes.fetch_add(1, Ordering::AcqRel);
            inner.version.take()
        };
        drop(before);
        self.wake();
    }

    /// Wakes all readers, even those that have no packets.
    fn wake(&self) {
        self.readers.lock().iter().for_each(|(module, reader)| reader.waker.wake_for_event(*module));
    }

    fn check_owner(&self, inner: &TableState, owner: &TableOwner) -> Result<(), TableError> {
        match &inner.owner {
            Some(present) if present != owner => {
                Err(TableError::Owned { table: self.name.clone(), owner: present.clone() })
            }
            _ => match &inner.next_owner {
                Some(next) if next != owner => {
                    Err(TableError::Owned { table: self.name.clone(), owner: next.clone() })
                }
                _ => Ok(()),
            },
        }
    }

    /// Makes `owner` the owner of the table, unless the table has another owner, or will have one after a prepared change.
    fn set_owner(&self, owner: TableOwner) -> Result<(), TableError> {
        let mut inner = self.inner.lock();
        self.check_owner(&inner, &owner)?;
        inner.owner = Some(owner);
        Ok(())
    }

    /// Ends the ownership of `owner` and withdraws the table, if `owner` is the present owner. A concurrent publication
    /// either precedes the withdrawal or is refused.
    fn release(&self, owner: &TableOwner) {
        self.withdraw_if(|inner| {
            let is_owner = inner.owner.as_ref() == Some(owner);
            if is_owner {
                (inner.owner, inner.publisher) = (None, None);
            }
            is_owner
        });
    }

    /// Makes the publisher with this number the table's only publisher. Returns false if `owner` owns the table and has
    /// another publisher. If `owner` does not own the table, returns true without an effect.
    pub(super) fn set_publisher(&self, owner: &TableOwner, publisher: u64) -> bool {
        let mut inner = self.inner.lock();
        if inner.owner.as_ref() != Some(owner) {
            return true;
        }
        let is_free = inner.publisher.is_none_or(|present| present == publisher);
        if is_free {
            inner.publisher = Some(publisher);
        }
        is_free
    }

    /// Makes the publisher with this number the table's only publisher, if `owner` owns the table. An earlier publisher
    /// is refused from then on.
    pub(super) fn replace_publisher(&self, owner: &TableOwner, publisher: u64) {
        self.withdraw_if(|inner| {
            inner.owner.as_ref() == Some(owner)
                && inner.publisher.replace(publisher).is_some_and(|before| before != publisher)
        });
    }

    /// Makes `to` the table's publisher, if `from` is. The current version stays.
    pub(super) fn pass_publisher(&self, from: u64, to: u64) {
        let mut inner = self.inner.lock();
        if inner.publisher == Some(from) {
            inner.publisher = Some(to);
        }
    }

    /// Ends a publisher and withdraws its version.
    pub(super) fn end_publisher(&self, publisher: u64) {
        self.withdraw_if(|inner| {
            let is_publisher = inner.publisher == Some(publisher);
            if is_publisher {
                inner.publisher = None;
            }
            is_publisher
        });
    }

    pub(super) fn add_reader(&self, module: u64, reader: TableReader) {
        self.readers.lock().insert(module, reader);
    }

    pub(super) fn remove_reader(&self, module: u64) {
        self.readers.lock().remove(&module);
    }

    pub(super) fn set_problem(&self, module: u64, problem: Option<String>) {
        if let Some(reader) = self.readers.lock().get_mut(&module) {
            reader.problem = problem;
        }
    }

    fn is_used(&self) -> bool {
        self.inner.lock().owner.is_some()
    }

    fn status(&self) -> Option<TableStatus> {
        let (owner, shown) = {
            let inner = self.inner.lock();
            (inner.owner.clone(), inner.version.clone())
        };
        let readers = self.readers.lock();
        if owner.is_none() && readers.is_empty() {
            return None;
        }
        let problems = readers.values().filter_map(|reader| {
            reader.problem.as_ref().map(|problem| format!("{}: {problem}", reader.title))
        });
        Some(TableStatus {
            name: self.name.to_string(),
            publisher: owner.as_ref().map(ToString::to_string),
            version: shown.as_ref().map_or(0, |shown| shown.number()),
            bytes: shown.as_ref().map(|shown| shown.len().into()),
            readers: readers.values().map(|reader| reader.title.clone()).collect(),
            problems: problems.collect(),
        })
    }
}

impl TableRegistry {
    /// Returns a unique number for a publisher.
    pub(super) fn next_publisher(&self) -> u64 {
        self.publishers.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the table of this name, which is created if it is missing.
    pub(super) fn table(&self, name: &Name) -> Arc<SharedTable> {
        let new = || {
            Arc::new(SharedTable {
                name: name.clone(),
                changes: AtomicU64::new(1),
                inner: OrderedMutex::default(),
                readers: OrderedMutex::default(),
                last_number: OrderedMutex::default(),
            })
        };
        Arc::clone(self.tables.lock().entry(name.clone()).or_insert_with(new))
    }

    /// Removes tables without an owner and without readers from the registry.
    pub(super) fn forget_unused(&self) {
        self.tables.lock().retain(|_, table| Arc::strong_count(table) > 1 || table.is_used());
    }

    /// Publishes the next version of an operator's table.
    pub(crate) fn put(&self, name: &Name, bytes: &[u8]) -> Result<(), TableError> {
        let put = self.table(name).put(bytes);
        self.forget_unused();
        put
    }

    /// Removes a table of the operator.
    pub(crate) fn remove(&self, name: &Name) -> Result<(), TableError> {
        let table = self.tables.lock().get(name).cloned();
        let owner = table.as_ref().and_then(|table| table.inner.lock().owner.clone());
        match (table, owner) {
            (Some(table), Some(TableOwner::Operator)) => {
                table.release(&TableOwner::Operator);
            }
            (_, Some(owner)) => return Err(TableError::Owned { table: name.clone(), owner }),
            (_, None) => return Err(TableError::Absent(name.clone())),
        }
        self.forget_unused();
        Ok(())
    }

    /// Replaces the operator's tables by those of a configuration: all of them, or none.
    pub(crate) fn configure(self: &Arc<Self>, new: Vec<TableFile>) -> Result<Vec<TableFile>, TableError> {
        let prepared = self.prepare_change(&[], new, &[], &[]).map_err(|(_, error)| error)?;
        Ok(prepared.commit(std::iter::empty()).files)
    }

    /// Makes a session the owner of the tables that it may publish.
    pub(crate) fn claim(
        self: &Arc<Self>,
        session: &SessionSpec,
        memory: &Arc<MemoryReservation>,
    ) -> Result<TableClaims, TableError> {
        let owner = TableOwner::Session(session.name.clone(), Arc::clone(memory));
        TableClaims { registry: Arc::clone(self), owner, tables: Vec::new() }.claim_more(session)
    }

    /// Returns the status of all tables.
    pub(crate) fn statuses(&self) -> Vec<TableStatus> {
        let tables: Vec<Arc<SharedTable>> = self.tables.lock().values().cloned().collect();
        tables.iter().filter_map(|table| table.status()).collect()
    }
}

impl TableClaims {
    /// Claims the tables that the session may publish according to `session` and does not own yet. Dropping the result
    /// releases them; [`replace`](Self::replace) keeps them.
    pub(crate) fn claim_more(&self, session: &SessionSpec) -> Result<Self, TableError> {
        let mut more =
            Self { registry: Arc::clone(&self.registry), owner: self.owner.clone(), tables: Vec::new() };
        for grant in &session.publish {
            if self.tables.iter().all(|table| table.name != grant.table) {
                let table = self.registry.table(&grant.table);
                table.set_owner(more.owner.clone())?;
                more.tables.push(table);
            }
        }
        Ok(more)
    }

    /// Adds further claims, and releases the tables that the session may not publish any more.
    pub(crate) fn replace(&mut self, session: &SessionSpec, mut more: Self) {
        let is_granted =
            |table: &Arc<SharedTable>| session.publish.iter().any(|grant| grant.table == table.name);
        self.tables.append(&mut more.tables);
        let (granted, revoked): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.tables).into_iter().partition(is_granted);
        // Dropping `more` releases the revoked tables.
        (self.tables, more.tables) = (granted, revoked);
    }
}

impl Drop for TableClaims {
    fn drop(&mut self) {
        for table in self.tables.drain(..) {
            table.release(&self.owner);
        }
        self.registry.forget_unused();
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

    /// A session that publishes `t`, and the manifest of its module.
    fn publishing() -> (SessionSpec, Manifest) {
        let manifest = "name = 'm'\nversion = '1'\nabi = 2\nlicense = 'MIT'\nsummary = 's'\n\
            [[table]]\nname = 't'\naccess = 'publish'\nbytes = '1 KiB'\n";
        let spec = toml::from_str("name = \"a\"\npublish = [\"t\"]").unwrap();
        (spec, Manifest::parse(manifest.as_bytes()).unwrap())
    }

    /// Returns number and length of the current version of `t`.
    fn shown(registry: &TableRegistry) -> Option<(u64, u32)> {
        registry.table(&name("t")).current().0.map(|version| (version.number(), version.len()))
    }

    #[test]
    fn modules_of_a_closed_session_do_not_affect_a_later_session_of_its_name() {
        let registry: Arc<TableRegistry> = Arc::default();
        let ((spec, manifest), module) = (publishing(), name("m"));
        let (before, now) = (memory(), memory());
        let claims = registry.claim(&spec, &before).unwrap();
        let (_, old, _) = registry.bind(&spec, &module, &manifest, &before, None).unwrap();
        assert_eq!((old.publish(0, b"old"), shown(&registry)), (code::OK, Some((1, 3))));
        drop(claims);
        assert_eq!((old.publish(0, b"old"), shown(&registry)), (code::DENIED, None));
        // The old module has not stopped yet, and there is a new session of the same name.
        let claims = registry.claim(&spec, &now).unwrap();
        assert_eq!((old.publish(0, b"old"), shown(&registry)), (code::DENIED, None));
        let (_, new, _) = registry.bind(&spec, &module, &manifest, &now, None).unwrap();
        assert_eq!(new.publish(0, b"newer"), code::OK);
        let is_shown = shown(&registry);
        // Its end neither withdraws the other's version nor allows a third publisher.
        drop(old);
        assert_eq!((shown(&registry), is_shown.unwrap().1), (is_shown, 5));
        let third = registry.bind(&spec, &module, &manifest, &now, None).unwrap_err();
        assert!(matches!(third, TableError::PublishedByOtherModule { .. }), "{third}");
        drop((new, claims));
        assert!(registry.tables.lock().is_empty());
    }

    #[test]
    fn a_newer_version_takes_over_a_table_with_its_version_and_gives_it_back() {
        let registry: Arc<TableRegistry> = Arc::default();
        let ((spec, manifest), module, memory) = (publishing(), name("m"), memory());
        let bind = |replaced| registry.bind(&spec, &module, &manifest, &memory, replaced);
        let _claims = registry.claim(&spec, &memory).unwrap();
        let (_, old, older) = bind(None).unwrap();
        assert_eq!((old.publish(0, b"old"), shown(&registry)), (code::OK, Some((1, 3))));
        // Only the version that is replaced has its tables taken over.
        assert!(bind(Some(old.number() + 100)).is_err());
        let (_, new, newer) = bind(older.publisher_number()).unwrap();
        assert!(newer.is_unchanged(&spec));
        assert_eq!((new.publish(0, b"newer"), old.publish(0, b"older")), (code::DENIED, code::OK));
        newer.take_over(&older);
        assert_eq!((old.publish(0, b"x"), shown(&registry)), (code::DENIED, Some((2, 5))));
        assert_eq!((new.publish(0, b"newest"), shown(&registry)), (code::OK, Some((3, 6))));
        older.take_over(&newer);
        older.change(&spec);
        assert_eq!((new.publish(0, b"x"), shown(&registry)), (code::DENIED, Some((3, 6))));
        drop(new);
        assert_eq!((old.publish(0, b"last"), shown(&registry)), (code::OK, Some((4, 4))));
        // The older version ends after a trial without withdrawing the table of the newer one.
        let (_, new, newer) = bind(older.publisher_number()).unwrap();
        newer.take_over(&older);
        drop(old);
        assert_eq!(shown(&registry), Some((4, 4)));
        drop(new);
        assert_eq!(shown(&registry), None);
    }

    #[test]
    fn a_binding_does_not_survive_a_withdrawal_of_its_table() {
        let registry: Arc<TableRegistry> = Arc::default();
        let ((spec, manifest), module, memory) = (publishing(), name("m"), memory());
        let bind = || registry.bind(&spec, &module, &manifest, &memory, None).unwrap();
        let claims = registry.claim(&spec, &memory).unwrap();
        let (_, _before, before) = bind();
        assert!(before.is_unchanged(&spec));
        drop(claims);
        let (_, _between, between) = bind();
        // The same session gets the table again. Otherwise both modules would publish without readers.
        let _claims = registry.claim(&spec, &memory).unwrap();
        assert_eq!((before.is_unchanged(&spec), between.is_unchanged(&spec)), (false, false));
        let (_, after, binding) = bind();
        assert!(binding.is_unchanged(&spec));
        assert_eq!((after.publish(0, b"x"), shown(&registry)), (code::OK, Some((1, 1))));
    }

    #[test]
    fn a_version_published_during_a_release_of_the_table_is_not_visible() {
        let owner = TableOwner::Session(name("a"), memory());
        for _ in 0..300 {
            let registry = TableRegistry::default();
            let table = registry.table(&name("t"));
            table.set_owner(owner.clone()).unwrap();
            assert!(table.set_publisher(&owner, 1));
            std::thread::scope(|scope| {
                scope.spawn(|| while table.publish(1, b"x").unwrap() {});
                while shown(&registry).is_none() {
                    std::thread::yield_now();
                }
                table.release(&owner);
            });
            assert_eq!(shown(&registry), None);
        }
    }

    #[test]
    fn a_version_that_cannot_be_published_changes_nothing() {
        let registry = TableRegistry::default();
        let long = vec![0; limit::TABLE_BYTES as usize + 1];
        let error = registry.put(&name("t"), &long).unwrap_err();
        assert!(matches!(error, TableError::System { .. }), "{error}");
        assert!(registry.tables.lock().is_empty());
        registry.put(&name("t"), b"one").unwrap();
        assert!(registry.put(&name("t"), &long).is_err());
        assert_eq!(shown(&registry), Some((1, 3)));
    }

    #[test]
    fn a_prepared_change_that_is_discarded_changes_nothing() {
        let registry: Arc<TableRegistry> = Arc::default();
        let file = |bytes: &[u8]| vec![TableFile::new(name("t"), bytes.to_vec())];
        let first = registry.configure(file(b"one")).unwrap();
        let prepared = registry.prepare_change(&first, file(b"second"), &[], &[]).unwrap();
        assert_eq!(shown(&registry), Some((1, 3)));
        drop(prepared);
        registry.put(&name("t"), b"other").unwrap();
        let other = shown(&registry);
        // The operator gives the table up for a session. No other party gets it meanwhile.
        let ((spec, _), session, thief) = (publishing(), memory(), memory());
        let come = [(&spec, &session)];
        let prepared = registry.prepare_change(&first, Vec::new(), &come, &[]).unwrap();
        assert_eq!(shown(&registry), other);
        assert!(registry.put(&name("t"), b"third").is_err());
        registry.remove(&name("t")).unwrap();
        assert!(registry.claim(&spec, &thief).is_err(), "it is pledged");
        let mut claims = TableClaims::none(&registry, &spec.name, &session);
        let done = prepared.commit(std::iter::once(&mut claims));
        assert!(done.files.is_empty() && registry.claim(&spec, &thief).is_err());
        // From one session to another, whose memory is gone.
        let next = memory();
        assert!(registry.prepare_change(&[], Vec::new(), &[(&spec, &next)], &[thief]).is_err());
        let prepared = registry.prepare_change(&[], Vec::new(), &[(&spec, &next)], &[session]).unwrap();
        let mut now = TableClaims::none(&registry, &spec.name, &next);
        prepared.commit(std::iter::once(&mut now));
        // The claims of the earlier session have no effect any more.
        drop(claims);
        assert!(registry.put(&name("t"), b"x").is_err());
        drop(now);
        assert!(registry.tables.lock().is_empty());
    }
}
