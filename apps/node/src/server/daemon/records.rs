//! Access to stored record files. A client may read the files of a session if it may follow the session's records now,
//! or if the session is a closed one of its own credential. Operators may read all files.

use super::Daemon;
use crate::control::authority::{self, PermittedSession, RequestRefusal, Requester, SessionOwner};
use crate::control::protocol::{ControlRequest, RecordFile, RecordsRequest};
use crate::control::share::ShareGrant;
use crate::sessions::writer::{OpenRecordFile, StoredFile, StoredRecords, StoredSession};
use std::sync::Arc;
use weir_admission::Name;
use weir_trust::credential::VerifiedCredential;
use weir_trust::grant::Resource;
use weir_units::Bytes;

/// The right of a client to read the stored record files of a session.
#[derive(Clone, Debug)]
pub(crate) struct RecordAccess {
    /// The node's name of the session.
    pub(crate) session: Name,
    /// The client's name of the session.
    pub(crate) called: Name,
    /// Open session to whose files the client is restricted: a share gives no right to files of earlier sessions.
    written_by: Option<u64>,
    /// Share by which the client reads; `None` for the owner and for operators.
    share: Option<ShareGrant>,
    /// Rate at which the files are sent, in bytes per second: `record_bytes` of the session. `None` for any rate.
    pub(crate) rate: Option<u64>,
}

/// The record files of one session, as a client may list them.
pub(crate) struct SessionRecords {
    access: RecordAccess,
    /// Number of folders whose files are still being written.
    pub(crate) open_folders: u64,
    files: std::vec::IntoIter<StoredFile>,
}

impl Daemon {
    fn stored_records(&self) -> StoredRecords {
        self.node.lock().writer.stored()
    }

    /// Returns true for a request for record files, if this is the node's name of a session with such files.
    pub(super) fn has_closed_session(&self, request: &ControlRequest, name: &Name) -> bool {
        is_about_records(request) && self.stored_records().session(name).is_some()
    }

    /// Decides whether a client may read the stored record files of the session that it calls `called`. The refusal for
    /// a session of another holder is that for a missing session.
    pub(crate) fn record_access(
        &self,
        requester: &Requester,
        called: &Name,
    ) -> Result<RecordAccess, RequestRefusal> {
        let stored = self.stored_records();
        match self.with_current_credential(requester)? {
            Requester::Operator(_) => match stored.session(called) {
                Some(session) => Ok(operator_access(session.name)),
                None => Err(RequestRefusal::NoSession(called.clone())),
            },
            Requester::Holder(credential) => {
                let live =
                    authority::followable_session(&credential, called, &|name| self.shared_rights(name));
                match live {
                    Ok(permitted) => self.live_access(&stored, called, permitted),
                    // The session may be a closed one.
                    Err(RequestRefusal::NoSession(_)) => {
                        let names = [SessionOwner::name_of(&credential, called), called.clone()];
                        let mut sessions = names.iter().filter_map(|name| stored.session(name));
                        let own = sessions.find(|session| is_closed_session_of(session, &credential));
                        let own = own.ok_or_else(|| RequestRefusal::NoSession(called.clone()))?;
                        Ok(closed_access(&credential, own, called.clone()))
                    }
                    Err(refusal) => Err(refusal),
                }
            }
        }
    }

    /// Checks that a client still has the right by which it reads.
    pub(crate) fn check_record_access(
        &self,
        requester: &Requester,
        access: &RecordAccess,
    ) -> Result<(), RequestRefusal> {
        self.check_share(requester, &access.session, access.share.as_ref())
    }

    fn live_access(
        &self,
        stored: &StoredRecords,
        called: &Name,
        permitted: PermittedSession,
    ) -> Result<RecordAccess, RequestRefusal> {
        let PermittedSession { name, share, .. } = permitted;
        let no_session = || RequestRefusal::NoSession(called.clone());
        let limits = self.with_node(|node| Some(Arc::clone(&node.sessions.get(&name)?.limits)));
        let rate = limits.ok_or_else(no_session)?.get(Resource::RecordBytes);
        let written_by = match &share {
            None => None,
            Some(_) => Some(stored.session(&name).and_then(|session| session.opened).ok_or_else(no_session)?),
        };
        Ok(RecordAccess { session: name, called: called.clone(), written_by, share, rate })
    }

    /// Returns the sessions of which a client may list record files. With a session in the request, it is the only one.
    pub(crate) fn readable_records(
        &self,
        requester: &Requester,
        request: &RecordsRequest,
    ) -> Result<Vec<SessionRecords>, RequestRefusal> {
        let stored = self.stored_records();
        let all = match (&request.session, self.with_current_credential(requester)?) {
            (Some(called), _) => vec![self.record_access(requester, called)?],
            (None, Requester::Operator(_)) => {
                stored.sessions(|_| true).into_iter().map(|it| operator_access(it.name)).collect()
            }
            (None, Requester::Holder(credential)) => {
                let concerns = |state: &SessionOwner| state.relation(&credential).is_some();
                let live: Vec<(Name, SessionOwner)> = self.with_node(|node| {
                    let owned = node.sessions.iter().filter_map(|(name, state)| {
                        Some((name.clone(), state.owner.clone().filter(concerns)?))
                    });
                    owned.collect()
                });
                // Holders use their own names for their own sessions, and the node's names for those of delegates.
                let called = |(name, owner): &(Name, SessionOwner)| {
                    let is_own = owner.credential.id() == credential.id();
                    if is_own { owner.session_name.clone() } else { name.clone() }
                };
                let of_live = live.iter().filter_map(|it| self.record_access(requester, &called(it)).ok());
                let is_live = |name: &Name| live.iter().any(|(live, _)| live == name);
                let closed =
                    stored.sessions(|it| is_closed_session_of(it, &credential) && !is_live(&it.name));
                let of_closed = closed.into_iter().map(|session| {
                    let called = name_given_by(&credential, &session.name);
                    closed_access(&credential, session, called)
                });
                of_live.chain(of_closed).collect()
            }
        };
        let records = all.into_iter().map(|access| SessionRecords {
            open_folders: stored.session(&access.session).map_or(0, |session| session.open_folders),
            files: stored.files(&access.session, access.written_by).into_iter(),
            access,
        });
        Ok(records.collect())
    }

    /// Reads the next record file of a list. Returns `None` at the end, and `Some(None)` for a file that does not match the
    /// request or was deleted meanwhile.
    pub(crate) fn next_record_file(
        &self,
        records: &mut SessionRecords,
        request: &RecordsRequest,
    ) -> Option<Option<RecordFile>> {
        let stored = self.stored_records();
        let SessionRecords { access, files, .. } = records;
        let StoredFile { folder, name, completed } = files.next()?;
        let place = (&*folder, name.as_str());
        let Ok(Some(open)) = stored.open(&access.session, place, access.written_by) else {
            return Some(None);
        };
        let summary = stored.summary(&access.session, place, &open);
        let times = summary.and_then(|summary| summary.times);
        // Rows without times are selected by the time in which they were written.
        let written = || (open.created.map_or(completed, |created| created.min(completed)), completed);
        let (from, to) = times.unwrap_or_else(written);
        let is_selected = request.since_ns.is_none_or(|since| to.0 >= since)
            && request.until_ns.is_none_or(|until| from.0 <= until);
        Some(is_selected.then(|| RecordFile {
            session: access.called.to_string(),
            folder: folder.to_string(),
            bytes: open.bytes,
            rows: summary.map(|summary| summary.rows),
            from_ns: times.map(|(from, _)| from.0),
            to_ns: times.map(|(_, to)| to.0),
            completed_ns: completed.0,
            sha256: open.digest,
            file: name,
        }))
    }

    /// Opens a stored record file. Returns `None` if it is not stored for this client.
    pub(crate) fn open_record_file(
        &self,
        access: &RecordAccess,
        place: (&str, &str),
    ) -> std::io::Result<Option<OpenRecordFile>> {
        self.stored_records().open(&access.session, place, access.written_by)
    }

    /// Remembers the hash of a record file.
    pub(crate) fn set_record_digest(
        &self,
        access: &RecordAccess,
        place: (&str, &str),
        open: &OpenRecordFile,
        digest: weir_ledger::Digest,
    ) {
        self.stored_records().set_digest(&access.session, place, open, digest);
    }

    /// Charges an open session for bytes of its stored record files that were sent to a client. What an operator reads
    /// of a holder's session is not charged to the holder.
    pub(crate) fn charge_fetched(&self, requester: &Requester, session: &Name, bytes: Bytes) {
        let is_holder = matches!(requester, Requester::Holder(_));
        let limits = self.with_node(|node| {
            let state = node.sessions.get(session).filter(|state| is_holder || state.owner.is_none())?;
            Some(Arc::clone(&state.limits))
        });
        if let Some(limits) = limits {
            limits.report(Resource::RecordBytes, |_, used| {
                used.record_bytes_fetched.0 = used.record_bytes_fetched.0.saturating_add(bytes.0);
            });
        }
    }

    /// Returns the reason why a client may not read the files of a request; `None` for other requests.
    pub(super) fn records_refusal(
        &self,
        requester: &Requester,
        request: &ControlRequest,
    ) -> Option<RequestRefusal> {
        let session = request.session().filter(|_| is_about_records(request))?;
        self.record_access(requester, session).err()
    }
}

fn is_about_records(request: &ControlRequest) -> bool {
    matches!(request, ControlRequest::Records(_) | ControlRequest::FetchRecords(_))
}

fn operator_access(session: Name) -> RecordAccess {
    RecordAccess { called: session.clone(), session, written_by: None, share: None, rate: None }
}

fn closed_access(credential: &VerifiedCredential, session: StoredSession, called: Name) -> RecordAccess {
    let grants = credential.chain().iter().map(|delegation| &delegation.grant);
    let ceilings = std::iter::once(credential.limit()).chain(grants);
    let granted = ceilings.filter_map(|grant| grant.ceilings.get(Resource::RecordBytes)).min();
    let default = || Resource::RecordBytes.definition().limit.as_ref().and_then(|limit| limit.default);
    let rate = granted.or_else(default);
    RecordAccess { session: session.name, called, written_by: None, share: None, rate }
}

/// Returns true for a closed session that was created with this credential.
fn is_closed_session_of(session: &StoredSession, credential: &VerifiedCredential) -> bool {
    session.opened.is_none() && session.owner == Some(credential.id())
}

/// Returns the name that a holder gave a closed session, or the node's name if the former is too long to be found in
/// the latter.
fn name_given_by(credential: &VerifiedCredential, session: &Name) -> Name {
    let given = session.as_str().rsplit_once('-').and_then(|(given, _)| Name::new(given).ok());
    let is_right = |given: &Name| SessionOwner::name_of(credential, given) == *session;
    given.filter(is_right).unwrap_or_else(|| session.clone())
}

impl SessionRecords {
    /// Returns the right by which the files are listed.
    pub(crate) fn access(&self) -> &RecordAccess {
        &self.access
    }
}
