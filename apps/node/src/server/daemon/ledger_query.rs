//! What the ledger says is told, to whom it concerns, and on his time.

use super::Daemon;
use crate::control::authority::{Asker, RequestRefusal, SessionOwner};
use crate::control::protocol::{LedgerAsk, Reply};
use crate::control::statement::{LedgerView, TooMany};
use crate::server::log::warn;
use crate::server::turns::CompileQueueFull;
use crate::sessions::node::SessionState;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use weir_admission::Name;
use weir_ledger::{LedgerCheck, LedgerEntry, SessionId as Billed};
use weir_ledger_files::{EntryFilter, LedgerReadError, LedgerReader};
use weir_os::{CpuBudget, CpuMeter};
use weir_sandbox::thread_time;
use weir_trust::credential::VerifiedCredential;
use weir_units::Nanos;

/// Entries of one answer.
const ENTRIES_MAX: usize = 256;
/// What is read in one turn: short enough that a compiler does not wait for it, nor whoever has little of a core for the next one.
const PIECE: Nanos = Nanos(20 * Nanos::MILLISECOND.0);
/// How often the operator sees how far it is,
const PROGRESS: Duration = Duration::from_millis(100);
/// and somebody else only that the node is still reading: how far it is between two of his entries says how much others did.
const SIGN_OF_LIFE: Duration = Duration::from_secs(10);

/// Why the ledger is not told, or no further.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Untold {
    /// He has no right any more.
    #[error(transparent)]
    Refused(#[from] RequestRefusal),
    /// He has to wait for too long.
    #[error(transparent)]
    NoTurn(#[from] CompileQueueFull),
    /// There is too much of it.
    #[error(transparent)]
    TooMany(#[from] TooMany),
    /// The operator learns what is wrong with it.
    #[error(transparent)]
    Ledger(#[from] LedgerReadError),
    /// Nobody else does.
    #[error("the node's ledger cannot be read: its operator has to look at it")]
    Broken,
}

/// The ledger as it is told to somebody.
pub(crate) struct LedgerQuery<'a> {
    daemon: &'a Daemon,
    holder: Option<Arc<VerifiedCredential>>,
    node: Name,
    /// What is left of it; nothing at the end.
    rest: Option<(LedgerReader, LedgerView)>,
    /// Lines for people, when it is at its end.
    notes: Vec<String>,
    /// Processor time of turns that is not accounted elsewhere.
    used: Nanos,
}

impl Daemon {
    /// Begins to tell what is asked for. What has happened since the present interval began is not in the ledger yet.
    pub(crate) fn tell(&self, asker: &Asker, ask: &LedgerAsk) -> Result<LedgerQuery<'_>, Untold> {
        let holder = match self.current(asker)? {
            Asker::Operator(_) => None,
            Asker::Holder(credential) => Some(credential),
        };
        let (folder, there): (PathBuf, Vec<_>) = self.with_node(|node| {
            let owned = |(name, there): (&Name, &SessionState)| {
                let session = Billed { name: name.clone(), id: there.id };
                Some((
                    session,
                    there.owner.as_ref().filter(|owner| is_told(owner, holder.as_deref()))?.in_ledger(),
                ))
            };
            (node.config.node.state.join(super::LEDGER), node.sessions.iter().filter_map(owned).collect())
        });
        // All of it is read, and verified on the way: what an entry is about stands in earlier ones.
        let reader = LedgerReader::open(&folder, EntryFilter::default(), LedgerCheck::default());
        let reader = reader.map_err(|error| self.unread(error, holder.is_some()))?;
        let statement = LedgerView::new(holder.as_deref(), ask, there);
        let rest = Some((reader, statement));
        Ok(LedgerQuery { daemon: self, holder, node: self.name(), rest, notes: Vec::new(), used: Nanos(0) })
    }

    fn unread(&self, error: LedgerReadError, is_holder: bool) -> Untold {
        if !is_holder {
            return error.into();
        }
        // Once: how often somebody asks is not to fill the log.
        if !self.is_ledger_broken.swap(true, Ordering::Relaxed) {
            warn(&error);
        }
        Untold::Broken
    }
}

fn is_told(owner: &SessionOwner, holder: Option<&VerifiedCredential>) -> bool {
    holder.is_some_and(|holder| owner.is_under(holder))
}

impl LedgerQuery<'_> {
    /// The next of it; nothing at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Reply>, Untold> {
        let Some((mut reader, mut statement)) = self.rest.take() else { return Ok(None) };
        let every = if self.holder.is_some() { SIGN_OF_LIFE } else { PROGRESS };
        let begin = Instant::now();
        let mut entries: Vec<LedgerEntry> = Vec::new();
        let is_over = loop {
            let is_over = self.piece(&mut reader, &mut statement, &mut entries)?;
            if is_over || entries.len() >= ENTRIES_MAX || begin.elapsed() >= every {
                break is_over;
            }
        };
        let (read, of) = reader.progress();
        let read = u128::from(read) * 1000 / u128::from(of.max(1));
        let read = self.holder.is_none().then(|| u16::try_from(read).unwrap_or(1000));
        if is_over {
            let (mut rows, notes) = statement.finish(&self.node);
            entries.append(&mut rows);
            self.notes = notes;
        } else {
            self.rest = Some((reader, statement));
        }
        Ok(Some(Reply::Entries { entries, read }))
    }

    /// Reads for a moment. Says whether that was the end.
    fn piece(
        &mut self,
        reader: &mut LedgerReader,
        statement: &mut LedgerView,
        entries: &mut Vec<LedgerEntry>,
    ) -> Result<bool, Untold> {
        let mut budget = CpuBudget::new(Nanos(u64::MAX));
        let mut turn = self.daemon.turns.take_by(self.holder.as_deref(), &mut budget)?;
        let begin = thread_time();
        let used = || Nanos(thread_time().0.saturating_sub(begin.0));
        let told = loop {
            let Some(entry) = reader.next() else { break Ok(true) };
            let told = entry.map_err(|error| self.daemon.unread(error, self.holder.is_some()));
            if let Err(error) = told.and_then(|entry| Ok(statement.take(entry, entries)?)) {
                break Err(error);
            }
            if entries.len() >= ENTRIES_MAX || used() >= PIECE {
                break Ok(false);
            }
        };
        turn.spend_here(used());
        drop(turn);
        self.used.0 = self.used.0.saturating_add(budget.here().0);
        told
    }

    /// The processor time of its turns since the last call. The requester has paid for it.
    pub(crate) fn take_used(&mut self) -> Nanos {
        std::mem::take(&mut self.used)
    }

    /// What there is to say at its end.
    pub(crate) fn notes(self) -> Vec<String> {
        self.notes
    }
}
