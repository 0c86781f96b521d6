//! What a module publishes.

use super::shelf::{Owner, Shelf, Table};
use std::sync::Arc;
use weir_abi::code;
use weir_sandbox::TableVersion;
use weir_session::{Holding, MemoryReservation};
use weir_units::Bytes;

/// By what one module publishes its tables. They are gone with it.
#[derive(Debug)]
pub(crate) struct Publisher {
    shelf: Arc<Shelf>,
    owner: Owner,
    /// By their places in the manifest.
    tables: Vec<(usize, Arc<Table>)>,
    /// The memory of the versions that are shown, and of those that are made.
    holdings: Vec<Holding>,
}

impl Publisher {
    pub(super) fn new(shelf: &Arc<Shelf>, owner: Owner) -> Self {
        Self { shelf: Arc::clone(shelf), owner, tables: Vec::new(), holdings: Vec::new() }
    }

    /// Has it publish a table of at most so many bytes. Where it cannot: the memory that there is not, or nothing, where another module does.
    pub(super) fn add(
        &mut self,
        place: usize,
        bytes: u32,
        table: Arc<Table>,
        memory: &Arc<MemoryReservation>,
    ) -> Result<(), Option<Bytes>> {
        let wanted = Bytes(TableVersion::memory_of(bytes).0 * 2);
        let holding = Holding::of(memory, wanted).ok_or(Some(wanted))?;
        if !table.press() {
            return Err(None);
        }
        self.tables.push((place, table));
        self.holdings.push(holding);
        Ok(())
    }
}

impl weir_sandbox::Press for Publisher {
    fn publish(&self, table: u32, bytes: &[u8]) -> i32 {
        let found = self.tables.iter().find(|(place, _)| u32::try_from(*place) == Ok(table));
        match found.map(|(_, table)| table.publish(&self.owner, bytes)) {
            Some(Ok(true)) => code::OK,
            // Its session is being closed.
            Some(Ok(false)) => code::DENIED,
            Some(Err(_)) => code::FULL,
            None => code::UNKNOWN,
        }
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        for (_, table) in self.tables.drain(..) {
            table.withdraw(&self.owner);
            table.end_press();
        }
        self.shelf.tidy();
    }
}
