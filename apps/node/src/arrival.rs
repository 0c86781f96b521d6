//! Sessions that come, change and go together: all of them, or nothing changes.
//!
//! A [draft] has all that can fail: sessions beside those that there are, with their channels, output channels and modules, and the proof that
//! everything fits by the result. It is visible nowhere. A [switch] puts it in their place, and has nothing left that can fail. The node is held from the beginning of the one to the end of the
//! other, so no third party takes what one session gives up for another one.
//!
//! A session that changes keeps its number, its bill and what it has reserved: only the difference is reserved or given up. Until its earlier modules have stopped, they have their memory beside
//! that of the new ones.

mod draft;
mod processors;
mod switch;

use crate::error::NodeError;
use crate::filters::Compiled;
use crate::leaving::Leaving;
use crate::limits::Limits;
use crate::link::LinkConfig;
use crate::node::Node;
use crate::spec::SessionSpec;
use crate::tables::Sheet;
use crate::workshop::Prepared;
use std::sync::Arc;
use weir_session::ledger::{Digest, Event, Session as Billed};
use weir_session::{MemoryReservation, Name};
use weir_units::Nanos;

/// A session that is to come, or to take the place of one that there is.
pub(crate) struct Arrival {
    pub(crate) spec: SessionSpec,
    /// Not counted among what the node has reserved yet.
    pub(crate) memory: Arc<MemoryReservation>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) compiled: Compiled,
    /// Its modules, with the hashes of their files.
    pub(crate) modules: Vec<(Prepared, Digest)>,
    /// Processor time that preparing it took.
    pub(crate) used: Nanos,
}

/// Sessions, links and tables that are to change together.
pub(crate) struct Rearrangement<'a> {
    /// Sessions that go, or whose places others take.
    pub(crate) gone: &'a [Name],
    /// Sessions that come, or take the places of those of their names.
    pub(crate) come: Vec<Arrival>,
    /// Links that get other rates.
    pub(crate) links: &'a [LinkConfig],
    /// The operator's tables, as they are …
    pub(crate) tables: &'a [Sheet],
    /// … and as they are to be.
    pub(crate) new_tables: Vec<Sheet>,
}

/// A session of which modules stop.
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
    /// Sessions that are to be closed when their modules have stopped.
    pub(crate) gone: Vec<Departure>,
    /// For the ledger.
    pub(crate) events: Vec<Event>,
    /// The operator's tables, without their bytes.
    pub(crate) tables: Vec<Sheet>,
    /// Changes of tables, for people.
    pub(crate) notes: Vec<String>,
}

/// Why nothing was changed, and because of which session, where it is one.
pub(crate) type Refused = (Option<Name>, NodeError);

impl Node {
    /// Does all of this, or nothing.
    pub(crate) fn rearrange(&mut self, wanted: Rearrangement<'_>) -> Result<Switched, Refused> {
        let before = self.next_session;
        let mut incoming = Vec::new();
        let switched = match self.draft(&mut incoming, wanted) {
            Ok(draft) => Ok(self.switch(incoming, draft)),
            Err(refused) => {
                self.discard(incoming);
                // No session has them.
                self.next_session = before;
                Err(refused)
            }
        };
        // Those that have gone, or that were made and are not to come.
        self.forget_selections();
        switched
    }
}
