//! Sessions that are created, changed and closed together, when the configuration is reloaded: all of them, or none.
//!
//! A [draft] does everything that can fail. It prepares the new sessions beside the present ones, with channels, output
//! channels and modules, and checks that the resulting reservations fit. A draft has no effect on running sessions. A
//! [switch] replaces the present sessions by the draft, and cannot fail. The node is locked from the beginning of the
//! draft to the end of the switch, so no other request takes capacity that one session gives up for another.
//!
//! A session that changes keeps its number, usage and reservations: only the difference is reserved or given up. Its
//! earlier modules keep their memory, in addition to the memory of the new modules, until they have stopped.

mod check;
mod draft;
mod processors;
mod switch;

use crate::control::link_spec::LinkConfig;
use crate::control::spec::SessionSpec;
use crate::sessions::close::StoppingModule;
use crate::sessions::error::NodeError;
use crate::sessions::filters::CompiledFilters;
use crate::sessions::limits::SessionLimits;
use crate::sessions::module_loader::StartedModule;
use crate::sessions::node::Node;
use crate::sessions::tables::TableFile;
use std::sync::Arc;
use weir_ledger::{Digest, LedgerEvent, SessionId};
use weir_units::Nanos;
use {weir_admission::Name, weir_session::MemoryReservation};

/// A session that will be created, or will replace the present one of its name.
pub(crate) struct NewSession {
    pub(crate) spec: SessionSpec,
    /// The session's memory, which is not counted in the node's reservations yet.
    pub(crate) memory: Arc<MemoryReservation>,
    pub(crate) limits: Arc<SessionLimits>,
    pub(crate) compiled: CompiledFilters,
    /// The session's modules, with the hashes of their files.
    pub(crate) modules: Vec<(StartedModule, Digest)>,
    /// CPU time of the session's preparation.
    pub(crate) used: Nanos,
}

/// Sessions, links and tables that change together.
pub(crate) struct Rearrangement<'a> {
    /// Names of the sessions that close or are replaced.
    pub(crate) removed: &'a [Name],
    /// Sessions that are created, or replace the present sessions of their names.
    pub(crate) added: Vec<NewSession>,
    /// Links with new rates.
    pub(crate) links: &'a [LinkConfig],
    /// The operator's tables before the change.
    pub(crate) tables: &'a [TableFile],
    /// The operator's tables after the change.
    pub(crate) new_tables: Vec<TableFile>,
}

/// The stopping modules of a session.
#[derive(Debug)]
pub(crate) struct StoppingModules {
    pub(crate) session: SessionId,
    pub(crate) leaving: Vec<StoppingModule>,
}

/// The result of a rearrangement.
#[derive(Debug)]
pub(crate) struct Switched {
    /// Sessions that continue with other modules.
    pub(crate) changed: Vec<StoppingModules>,
    /// Sessions to close when their modules have stopped.
    pub(crate) closing: Vec<StoppingModules>,
    /// Events for the ledger.
    pub(crate) events: Vec<LedgerEvent>,
    /// The operator's tables, without their bytes.
    pub(crate) tables: Vec<TableFile>,
    /// Notes about changed tables for the operator.
    pub(crate) notes: Vec<String>,
}

/// The refusal of a change, with the session to blame; `None` if no session is to blame.
pub(crate) type Refused = (Option<Name>, NodeError);

impl Node {
    /// Makes the whole change, or no part of it.
    pub(crate) fn rearrange(&mut self, wanted: Rearrangement<'_>) -> Result<Switched, Refused> {
        let session_number_before = self.next_session;
        let mut incoming = Vec::new();
        let switched = match self.draft(&mut incoming, wanted) {
            Ok(draft) => Ok(self.switch(incoming, draft)),
            Err(refused) => {
                self.discard(incoming);
                // No session has used these numbers.
                self.next_session = session_number_before;
                Err(refused)
            }
        };
        // The selections of closed sessions and of a discarded draft are not used any more.
        self.drop_unused_selections();
        switched
    }
}
