//! What the ledger says is told, to whom it concerns, and on his time.

use super::{Daemon, lock};
use crate::authority::Asker;
use crate::log::warn;
use crate::protocol::{LedgerAsk, Reply};
use crate::statement::{Statement, TooMany};
use crate::turns::NoTurn;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use weir_ledger::{Filter, ReadError, Reader};
use weir_sandbox::thread_time;
use weir_session::Name;
use weir_session::ledger::{Check, Entry};
use weir_trust::credential::{PrefixId, Verified};
use weir_units::Nanos;

/// Entries of one answer.
const ENTRIES_MAX: usize = 256;
/// What is read in one turn: short enough that a compiler does not wait for it, nor whoever has little of a core for the next one.
const PIECE: Nanos = Nanos(20 * Nanos::MILLISECOND.0);

/// Why the ledger is not told, or no further.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Untold {
    /// It is being told already.
    #[error("the ledger is being read under this credential already: try again")]
    Another,
    /// He has to wait for too long.
    #[error(transparent)]
    NoTurn(#[from] NoTurn),
    /// There is too much of it.
    #[error(transparent)]
    TooMany(#[from] TooMany),
    /// The operator learns what is wrong with it.
    #[error(transparent)]
    Ledger(#[from] ReadError),
    /// Nobody else does.
    #[error("the node's ledger cannot be read: its operator has to look at it")]
    Broken,
}

/// The ledger as it is told to somebody.
pub(crate) struct Telling<'a> {
    daemon: &'a Daemon,
    holder: Option<Arc<Verified>>,
    node: Name,
    /// What is left of it; nothing at the end.
    rest: Option<(Reader, Statement)>,
    _place: Option<Place<'a>>,
}

/// That one is told it at a time of those who have their right from the same.
struct Place<'a> {
    taken: &'a Mutex<BTreeSet<PrefixId>>,
    party: PrefixId,
}

impl<'a> Place<'a> {
    fn take(taken: &'a Mutex<BTreeSet<PrefixId>>, party: PrefixId) -> Option<Self> {
        lock(taken).insert(party).then_some(Self { taken, party })
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        lock(self.taken).remove(&self.party);
    }
}

impl Daemon {
    /// Begins to tell what is asked for. What has happened since the present interval began is not in the ledger yet.
    pub(crate) fn tell(&self, asker: &Asker, ask: LedgerAsk) -> Result<Telling<'_>, Untold> {
        let place = match asker.chain().first() {
            Some(party) => Some(Place::take(&self.tellings, *party).ok_or(Untold::Another)?),
            None => None,
        };
        let holder = match asker {
            Asker::Operator(_) => None,
            Asker::Holder(credential) => Some(Arc::clone(credential)),
        };
        let folder: PathBuf = self.with_node(|node| node.config.node.state.join(super::LEDGER));
        // All of it is read, and verified on the way: what an entry is about stands in earlier ones.
        let reader = Reader::open(&folder, Filter::default(), Check::default());
        let reader = reader.map_err(|error| unread(error, holder.is_some()))?;
        let statement = Statement::new(holder.as_deref(), ask);
        Ok(Telling {
            daemon: self,
            holder,
            node: self.name(),
            rest: Some((reader, statement)),
            _place: place,
        })
    }
}

fn unread(error: ReadError, is_holder: bool) -> Untold {
    if !is_holder {
        return error.into();
    }
    warn(&error);
    Untold::Broken
}

impl Telling<'_> {
    /// The next of it; nothing at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Reply>, Untold> {
        let Some((mut reader, mut statement)) = self.rest.take() else { return Ok(None) };
        let mut turn = self.daemon.turns.take_by(self.holder.as_deref())?;
        let begin = thread_time();
        let used = || Nanos(thread_time().0.saturating_sub(begin.0));
        let mut entries: Vec<Entry> = Vec::new();
        let mut told = Ok(());
        let is_over = loop {
            match reader.next() {
                None => break true,
                Some(Err(error)) => told = Err(unread(error, self.holder.is_some())),
                Some(Ok(entry)) => match statement.take(entry) {
                    Ok(entry) => entries.extend(entry),
                    Err(error) => told = Err(error.into()),
                },
            }
            if told.is_err() || entries.len() >= ENTRIES_MAX || used() >= PIECE {
                break false;
            }
        };
        turn.spent(used());
        drop(turn);
        told?;
        let (read, of) = reader.progress();
        if is_over {
            entries.append(&mut statement.finish(&self.node));
        } else {
            self.rest = Some((reader, statement));
        }
        let read = u128::from(read) * 1000 / u128::from(of.max(1));
        Ok(Some(Reply::Entries { entries, read: u16::try_from(read).unwrap_or(1000) }))
    }
}
