//! What a module publishes.

use super::TableGrant;
use super::shelf::{SharedTable, TableClaims, TableOwner, TableRegistry, lock};
use crate::control::spec::SessionSpec;
use crate::error::NodeError;
use std::sync::{Arc, Mutex};
use weir_abi::{code, limit};
use weir_sandbox::{TablePublisher, TableVersion};
use weir_units::Bytes;
use {
    weir_admission::Manifest,
    weir_session::{Holding, MemoryReservation, NodeMemory},
};

/// By what one module publishes its tables. They are gone with it.
#[derive(Debug)]
pub(crate) struct Publisher {
    shelf: Arc<TableRegistry>,
    owner: TableOwner,
    /// Tells it from all others of the node.
    number: u64,
    /// By their places in the manifest; nothing where its session may publish it no longer.
    tables: Mutex<Vec<(usize, Option<Arc<SharedTable>>)>>,
    /// The memory of the versions that are shown, and of those that are made. The module keeps it for as long as it is there.
    holdings: Vec<Holding>,
}

impl Publisher {
    pub(super) fn new(shelf: &Arc<TableRegistry>, owner: TableOwner) -> Self {
        let (tables, holdings) = (Mutex::default(), Vec::new());
        Self { shelf: Arc::clone(shelf), owner, number: shelf.next_publisher(), tables, holdings }
    }

    /// Has it publish a table of at most so many bytes. Where it cannot: the memory that there is not, or nothing, where another module does.
    pub(super) fn add(
        &mut self,
        place: usize,
        bytes: u32,
        table: Arc<SharedTable>,
        memory: &Arc<MemoryReservation>,
    ) -> Result<(), Option<Bytes>> {
        let wanted = Bytes(TableVersion::memory_of(bytes).0 * 2);
        let holding = Holding::of(memory, wanted).ok_or(Some(wanted))?;
        if !table.press(&self.owner, self.number) {
            return Err(None);
        }
        lock(&self.tables).push((place, Some(table)));
        self.holdings.push(holding);
        Ok(())
    }

    /// Whether it is the one that publishes each of its tables still.
    pub(super) fn has_all(&self) -> bool {
        lock(&self.tables).iter().all(|(_, table)| table.as_ref().is_some_and(|it| it.is_of(self.number)))
    }

    /// Has it publish these from now on, in the same places. What it publishes no longer shows nothing any more.
    pub(super) fn change(&self, tables: Vec<(usize, Option<Arc<SharedTable>>)>) {
        let mut present = lock(&self.tables);
        let before = std::mem::replace(&mut *present, tables);
        let pairs =
            || before.iter().zip(present.iter()).map(|((_, old), (_, new))| (old.as_ref(), new.as_ref()));
        let changes = || pairs().filter(|(old, new)| old.map(Arc::as_ptr) != new.map(Arc::as_ptr));
        // First all ends: two may have changed places.
        changes().filter_map(|(old, _)| old).for_each(|old| old.end_press(self.number));
        // All of them: one that it had already may have come to its session just now.
        let now = present.iter().filter_map(|(_, table)| table.as_ref());
        now.for_each(|table| table.take_press(&self.owner, self.number));
    }
}

impl TablePublisher for Publisher {
    fn publish(&self, table: u32, bytes: &[u8]) -> i32 {
        let found = {
            let tables = lock(&self.tables);
            let found = tables.iter().find(|(place, _)| u32::try_from(*place) == Ok(table));
            found.map(|(_, table)| table.clone())
        };
        match found {
            None => code::UNKNOWN,
            Some(None) => code::DENIED,
            // A version takes a descriptor, and nobody is waited for here who may let go of some.
            Some(Some(_)) if crate::server::descriptors::check().is_err() => code::FULL,
            Some(Some(table)) => match table.publish(self.number, bytes) {
                Ok(true) => code::OK,
                // Its session is being closed, or has just lost it.
                Ok(false) => code::DENIED,
                Err(_) => code::FULL,
            },
        }
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        let tables = std::mem::take(&mut *lock(&self.tables));
        for table in tables.into_iter().filter_map(|(_, table)| table) {
            table.end_press(self.number);
        }
        self.shelf.tidy();
    }
}

/// A module that publishes its tables on a node of its own, where nobody reads them.
#[derive(Debug)]
struct Alone {
    publisher: Arc<Publisher>,
    _claims: TableClaims,
}

impl TablePublisher for Alone {
    fn publish(&self, table: u32, bytes: &[u8]) -> i32 {
        self.publisher.publish(table, bytes)
    }
}

/// By what a module publishes its tables as on a node, with nobody to read them: for whoever measures what that costs.
///
/// # Errors
///
/// Two of its tables have one name, which no manifest has.
pub fn alone(manifest: &Manifest) -> Result<Arc<dyn TablePublisher>, NodeError> {
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
    let shelf: Arc<TableRegistry> = Arc::default();
    let _claims = shelf.claim(&session, &memory)?;
    let (_, publisher, _) = shelf.bind(&session, &manifest.name, manifest, &memory)?;
    Ok(Arc::new(Alone { publisher, _claims }))
}
