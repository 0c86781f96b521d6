//! Ledger queries: the entries that concern a client, read on the client's processor time.

use super::Daemon;
use crate::control::authority::{RequestRefusal, Requester, SessionOwner};
use crate::control::ledger_view::{LedgerView, TooManySessions};
use crate::control::protocol::{LedgerRequest, Reply};
use crate::log::warn;
use crate::sessions::error::CompileQueueFull;
use crate::sessions::node::SessionState;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use weir_admission::Name;
use weir_ledger::{LedgerEntry, SessionId as LedgerSessionId, VerifyOptions};
use weir_ledger_files::{EntryFilter, LedgerReadError, LedgerReader};
use weir_os::{CpuBudget, ProcessorBudget};
use weir_sandbox::thread_time;
use weir_trust::credential::VerifiedCredential;
use weir_units::Nanos;

/// The maximum number of entries of one reply.
const ENTRIES_MAX: usize = 256;
/// The processor time of one job in the compile queue. It is short, so that compilers do not wait, and so that a holder
/// with a small share can pay for it soon.
const JOB_TIME: Nanos = Nanos(20 * Nanos::MILLISECOND.0);
/// The interval at which the operator gets a reply with the progress.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);
/// The interval at which a holder gets a reply, without the progress. More frequent replies would reveal by their times how
/// many entries other holders have.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// The error of a ledger query.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LedgerQueryError {
    /// The client's right has ended.
    #[error(transparent)]
    Refused(#[from] RequestRefusal),
    /// The compile queue is full.
    #[error(transparent)]
    QueueFull(#[from] CompileQueueFull),
    /// The result is too large.
    #[error(transparent)]
    TooManySessions(#[from] TooManySessions),
    /// The ledger cannot be read; the operator gets the cause.
    #[error(transparent)]
    Ledger(#[from] LedgerReadError),
    /// The ledger cannot be read; holders do not get the cause.
    #[error("the node's ledger cannot be read; its log tells the operator why")]
    Broken,
}

/// A running query of one client.
pub(crate) struct LedgerQuery<'a> {
    daemon: &'a Daemon,
    holder: Option<Arc<VerifiedCredential>>,
    node: Name,
    /// The reader and the client's view; `None` at the end.
    rest: Option<(LedgerReader, LedgerView)>,
    /// Notes for the client, at the end.
    notes: Vec<String>,
    /// The processor time of jobs since the last call of [`Self::take_used`].
    used: Nanos,
}

impl Daemon {
    /// Starts a query. It returns no entries of the current interval, since they are written at the end of the interval.
    pub(crate) fn query_ledger(
        &self,
        requester: &Requester,
        request: &LedgerRequest,
    ) -> Result<LedgerQuery<'_>, LedgerQueryError> {
        let holder = match self.with_current_credential(requester)? {
            Requester::Operator(_) => None,
            Requester::Holder(credential) => Some(credential),
        };
        let (folder, sessions): (PathBuf, Vec<_>) = self.with_node(|node| {
            let visible_session = |(name, state): (&Name, &SessionState)| {
                let session = LedgerSessionId { name: name.clone(), id: state.id };
                Some((
                    session,
                    state.owner.as_ref().filter(|owner| is_visible(owner, holder.as_deref()))?.in_ledger(),
                ))
            };
            (
                node.config.node.state.join(super::LEDGER),
                node.sessions.iter().filter_map(visible_session).collect(),
            )
        });
        // The whole ledger is read and verified, as the meaning of an entry depends on earlier ones.
        let reader = LedgerReader::open(&folder, EntryFilter::default(), VerifyOptions::default());
        let reader = reader.map_err(|error| self.read_error(error, holder.is_some()))?;
        let view = LedgerView::new(holder.as_deref(), request, sessions);
        let rest = Some((reader, view));
        Ok(LedgerQuery { daemon: self, holder, node: self.name(), rest, notes: Vec::new(), used: Nanos(0) })
    }

    /// Returns the error for the client. Holders do not get the cause, which is logged instead.
    fn read_error(&self, error: LedgerReadError, is_holder: bool) -> LedgerQueryError {
        if !is_holder {
            return error.into();
        }
        // The cause is logged only once, so that holders cannot fill the log.
        if !self.is_ledger_error_logged.swap(true, Ordering::Relaxed) {
            warn(&error);
        }
        LedgerQueryError::Broken
    }
}

fn is_visible(owner: &SessionOwner, holder: Option<&VerifiedCredential>) -> bool {
    holder.is_some_and(|holder| owner.is_under(holder))
}

impl LedgerQuery<'_> {
    /// Returns the next reply, or `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Reply>, LedgerQueryError> {
        let Some((mut reader, mut view)) = self.rest.take() else { return Ok(None) };
        let reply_interval = if self.holder.is_some() { KEEPALIVE_INTERVAL } else { PROGRESS_INTERVAL };
        let begin = Instant::now();
        let mut entries: Vec<LedgerEntry> = Vec::new();
        let is_at_end = loop {
            let is_at_end = self.run_job(&mut reader, &mut view, &mut entries)?;
            if is_at_end || entries.len() >= ENTRIES_MAX || begin.elapsed() >= reply_interval {
                break is_at_end;
            }
        };
        let (read, total) = reader.progress();
        let permille = u128::from(read) * 1000 / u128::from(total.max(1));
        let read = self.holder.is_none().then(|| u16::try_from(permille).unwrap_or(1000));
        if is_at_end {
            let (mut rows, notes) = view.finish(&self.node);
            entries.append(&mut rows);
            self.notes = notes;
        } else {
            self.rest = Some((reader, view));
        }
        Ok(Some(Reply::Entries { entries, read }))
    }

    /// Reads entries in one job of the compile queue. Returns true at the end of the ledger.
    fn run_job(
        &mut self,
        reader: &mut LedgerReader,
        view: &mut LedgerView,
        entries: &mut Vec<LedgerEntry>,
    ) -> Result<bool, LedgerQueryError> {
        let mut budget = CpuBudget::new(Nanos(u64::MAX));
        let mut permit = self.daemon.compile_queue.acquire_for(self.holder.as_deref(), &mut budget)?;
        let begin = thread_time();
        let used = || Nanos(thread_time().0.saturating_sub(begin.0));
        let result = loop {
            let Some(entry) = reader.next() else { break Ok(true) };
            let entry = entry.map_err(|error| self.daemon.read_error(error, self.holder.is_some()));
            if let Err(error) = entry.and_then(|entry| Ok(view.add(entry, entries)?)) {
                break Err(error);
            }
            if entries.len() >= ENTRIES_MAX || used() >= JOB_TIME {
                break Ok(false);
            }
        };
        permit.spend_in_caller(used());
        drop(permit);
        self.used.0 = self.used.0.saturating_add(budget.used_in_caller().0);
        result
    }

    /// Returns the processor time of jobs since the last call. The compile queue has charged that time already.
    pub(crate) fn take_used(&mut self) -> Nanos {
        std::mem::take(&mut self.used)
    }

    /// Returns the notes at the end of the query.
    pub(crate) fn notes(self) -> Vec<String> {
        self.notes
    }
}
