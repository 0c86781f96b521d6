//! The tables that a module publishes, and the publication of versions by the module's calls.

use super::registry::{SharedTable, TableClaims, TableOwner, TableRegistry};
use crate::control::spec::SessionSpec;
use crate::control::table_grant::TableGrant;
use crate::sessions::error::NodeError;
use crate::sync::{OrderedMutex, rank};
use std::sync::Arc;
use weir_abi::{code, limit};
use weir_sandbox::{TablePublisher, TableVersion};
use weir_units::Bytes;
use {
    weir_admission::Manifest,
    weir_session::{HeldMemory, MemoryReservation, NodeMemory},
};

/// The publisher of a module's tables. Dropping it withdraws the tables.
#[derive(Debug)]
pub(crate) struct Publisher {
    registry: Arc<TableRegistry>,
    owner: TableOwner,
    /// Number that identifies the publisher on the node.
    number: u64,
    /// Number of the publisher of an older version of the module, whose tables this one takes over.
    replaced: Option<u64>,
    /// The tables by their indices in the manifest; `None` for a table without a grant.
    tables: OrderedMutex<Vec<(usize, Option<Arc<SharedTable>>)>, { rank::TABLE_GRANTS }>,
    /// Memory of the current versions, and of versions that are being made. It is held until the module has ended.
    held_memory: Vec<HeldMemory>,
}

impl Publisher {
    pub(super) fn new(registry: &Arc<TableRegistry>, owner: TableOwner, replaced: Option<u64>) -> Self {
        let (tables, held_memory) = (OrderedMutex::default(), Vec::new());
        let (registry, number) = (Arc::clone(registry), registry.next_publisher());
        Self { registry, owner, number, replaced, tables, held_memory }
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Adds a table of at most `bytes` bytes.
    ///
    /// # Errors
    ///
    /// The wanted memory, if the session has less left; `None` if another module publishes the table.
    pub(super) fn add(
        &mut self,
        index: usize,
        bytes: u32,
        table: Arc<SharedTable>,
        memory: &Arc<MemoryReservation>,
    ) -> Result<(), Option<Bytes>> {
        let wanted = Bytes(TableVersion::memory_of(bytes).0 * 2);
        let holding = HeldMemory::take(memory, wanted).ok_or(Some(wanted))?;
        let is_taken_later = self.replaced.is_some_and(|replaced| table.is_published_by(replaced));
        if !is_taken_later && !table.set_publisher(&self.owner, self.number) {
            return Err(None);
        }
        self.tables.lock().push((index, Some(table)));
        self.held_memory.push(holding);
        Ok(())
    }

    /// Returns true if the module still publishes each of its tables, or the older version does whose tables it takes over.
    pub(super) fn has_all(&self) -> bool {
        let is_ours = |table: &Arc<SharedTable>| {
            table.is_published_by(self.number)
                || self.replaced.is_some_and(|replaced| table.is_published_by(replaced))
        };
        self.tables.lock().iter().all(|(_, table)| table.as_ref().is_some_and(is_ours))
    }

    /// Publishes those of its tables from now on that the publisher `from` publishes. Their current versions stay.
    pub(super) fn take_over(&self, from: u64) {
        let tables = self.tables.lock();
        let tables = tables.iter().filter_map(|(_, table)| table.as_ref());
        tables.for_each(|table| table.pass_publisher(from, self.number));
    }

    /// Replaces the tables of the same indices. Withdraws the tables that the module does not publish any more.
    pub(super) fn change(&self, tables: Vec<(usize, Option<Arc<SharedTable>>)>) {
        let mut present = self.tables.lock();
        let before = std::mem::replace(&mut *present, tables);
        let pairs =
            || before.iter().zip(present.iter()).map(|((_, old), (_, new))| (old.as_ref(), new.as_ref()));
        let changes = || pairs().filter(|(old, new)| old.map(Arc::as_ptr) != new.map(Arc::as_ptr));
        // All earlier tables are withdrawn first, since two tables may have changed places.
        changes().filter_map(|(old, _)| old).for_each(|old| old.end_publisher(self.number));
        // This is done for unchanged tables, too: the session may have become the owner of such a table just now.
        let now = present.iter().filter_map(|(_, table)| table.as_ref());
        now.for_each(|table| table.replace_publisher(&self.owner, self.number));
    }
}

impl TablePublisher for Publisher {
    fn publish(&self, table: u32, bytes: &[u8]) -> i32 {
        let found = {
            let tables = self.tables.lock();
            let found = tables.iter().find(|(place, _)| u32::try_from(*place) == Ok(table));
            found.map(|(_, table)| table.clone())
        };
        match found {
            None => code::UNKNOWN,
            Some(None) => code::DENIED,
            // A version takes a file descriptor, and a module cannot wait for one here.
            Some(Some(_)) if crate::sessions::descriptors::check().is_err() => code::FULL,
            Some(Some(table)) => match table.publish(self.number, bytes) {
                Ok(true) => code::OK,
                // The session is being closed, or has just lost the table.
                Ok(false) => code::DENIED,
                Err(_) => code::FULL,
            },
        }
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        let tables = std::mem::take(&mut *self.tables.lock());
        for table in tables.into_iter().filter_map(|(_, table)| table) {
            table.end_publisher(self.number);
        }
        self.registry.forget_unused();
    }
}

/// A publisher in a registry of its own, so that its tables have no readers.
#[derive(Debug)]
struct UnreadTables {
    publisher: Arc<Publisher>,
    _claims: TableClaims,
}

impl TablePublisher for UnreadTables {
    fn publish(&self, table: u32, bytes: &[u8]) -> i32 {
        self.publisher.publish(table, bytes)
    }
}

/// Creates a publisher of a manifest's tables that have no readers, to measure the cost of publishing.
///
/// # Errors
///
/// Two tables have one name, which no manifest allows.
pub fn publisher_without_readers(manifest: &Manifest) -> Result<Arc<dyn TablePublisher>, NodeError> {
    let most = TableVersion::memory_of(limit::TABLE_BYTES).0 * 2 * u64::from(limit::TABLES);
    let memory = NodeMemory::new(Bytes(most));
    let memory = MemoryReservation::new(&memory, Bytes(most), Bytes(most))
        .map_err(|error| NodeError::of_memory(&manifest.name, error))?;
    let mut session = SessionSpec::new(manifest.name.clone());
    let grant = |table: &weir_admission::DeclaredTable| TableGrant {
        local: table.name.clone(),
        table: table.name.clone(),
    };
    session.publish = manifest.tables.iter().map(grant).collect();
    session.read.clone_from(&session.publish);
    let registry: Arc<TableRegistry> = Arc::default();
    let _claims = registry.claim(&session, &memory)?;
    let (_, publisher, _) = registry.bind(&session, &manifest.name, manifest, &memory, None)?;
    Ok(Arc::new(UnreadTables { publisher, _claims }))
}
