//! Sessions that come, change and go together: all of them, or nothing changes.
//!
//! A [draft] does all that can fail. It makes the new sessions beside the present ones, with their channels, output channels and modules, and proves that the result fits. It is visible nowhere.
//! A [switch] puts the draft in the place of the present sessions, and cannot fail. The node is locked from the beginning of the draft to the end of the switch. So no third party takes what
//! one session gives up for another one.
//!
//! A session that changes keeps its number, its bill and its reservations: only the difference is reserved or given up. Its earlier modules keep their memory, beside that of the new ones, until
//! they have stopped.

mod draft;
mod processors;
mod switch;

use crate::control::spec::SessionSpec;
use crate::error::NodeError;
use crate::link::LinkConfig;
use crate::sessions::filters::CompiledFilters;
use crate::sessions::leaving::Leaving;
use crate::sessions::limits::SessionLimits;
use crate::sessions::node::Node;
use crate::sessions::tables::TableFile;
use crate::sessions::workshop::Prepared;
use std::sync::Arc;
use weir_ledger::{Digest, LedgerEvent, SessionId as Billed};
use weir_units::Nanos;
use {weir_admission::Name, weir_session::MemoryReservation};

/// A session that is to be created, or to replace the present one of its name.
pub(crate) struct Arrival {
    pub(crate) spec: SessionSpec,
    /// The session's memory, which is not yet counted in the node's reservations.
    pub(crate) memory: Arc<MemoryReservation>,
    pub(crate) limits: Arc<SessionLimits>,
    pub(crate) compiled: CompiledFilters,
    /// Its modules, with the hashes of their files.
    pub(crate) modules: Vec<(Prepared, Digest)>,
    /// Processor time that preparing it took.
    pub(crate) used: Nanos,
}

/// Sessions, links and tables that are to change together.
pub(crate) struct Rearrangement<'a> {
    /// Sessions that end or are replaced.
    pub(crate) gone: &'a [Name],
    /// Sessions that are created, or replace those of their names.
    pub(crate) come: Vec<Arrival>,
    /// Links that get other rates.
    pub(crate) links: &'a [LinkConfig],
    /// The operator's present tables.
    pub(crate) tables: &'a [TableFile],
    /// The operator's tables after the change.
    pub(crate) new_tables: Vec<TableFile>,
}

/// A session, with those of its modules that stop.
#[derive(Debug)]
pub(crate) struct Departure {
    pub(crate) session: Billed,
    pub(crate) leaving: Vec<Leaving>,
}

/// The outcome of a rearrangement.
#[derive(Debug)]
pub(crate) struct Switched {
    /// Sessions that go on with other modules.
    pub(crate) changed: Vec<Departure>,
    /// Sessions to close when their modules have stopped.
    pub(crate) gone: Vec<Departure>,
    /// Entries for the ledger.
    pub(crate) events: Vec<LedgerEvent>,
    /// The operator's tables, without their bytes.
    pub(crate) tables: Vec<TableFile>,
    /// Changes of tables, for people.
    pub(crate) notes: Vec<String>,
}

/// The reason for changing nothing, and the session that it is about, if it is about one.
pub(crate) type Refused = (Option<Name>, NodeError);

impl Node {
    /// Makes the whole change, or none of it.
    pub(crate) fn rearrange(&mut self, wanted: Rearrangement<'_>) -> Result<Switched, Refused> {
        let before = self.next_session;
        let mut incoming = Vec::new();
        let switched = match self.draft(&mut incoming, wanted) {
            Ok(draft) => Ok(self.switch(incoming, draft)),
            Err(refused) => {
                self.discard(incoming);
                // No session has these numbers.
                self.next_session = before;
                Err(refused)
            }
        };
        // Selections of sessions that have ended, and of drafted ones that were discarded.
        self.forget_selections();
        switched
    }
}
