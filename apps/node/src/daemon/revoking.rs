//! What roots of trust have taken back: lists that come, and what becomes of sessions.

use super::{Daemon, DaemonError, lock, now};
use crate::authority::{Asker, Refusal};
use crate::log::{self, say, warn};
use crate::revoked;
use crate::trust::{Trust, TrustError};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weir_session::ledger::{Closed, Event, Text, Unloaded};
use weir_trust::credential::Refusal as Worthless;
use weir_trust::grant::Second;
use weir_trust::revocation::RevocationError;

/// Why a list was not taken: nothing has changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotTaken {
    /// Nobody is let in here, so nobody can be kept out.
    #[error("this node is not reached from elsewhere: it has no roots of trust")]
    Alone,
    /// Because of the list.
    #[error(transparent)]
    List(#[from] RevocationError),
}

impl Daemon {
    /// Takes a newer list of a root, from anybody. It holds at once, for those who are connected and for sessions that run; what it says in words.
    pub(crate) fn revoke(&self, text: &str) -> Result<String, NotTaken> {
        let _revoking = lock(&self.revoking);
        let trust = self.trust().ok_or(NotTaken::Alone)?;
        let Some((trust, list)) = trust.with_list(text)? else {
            return Ok("this list is known already".to_owned());
        };
        *lock(&self.trust) = Some(Arc::new(trust));
        let said = format!(
            "revocation list {} of {} holds, with {} taken back in all",
            list.sequence(),
            list.root(),
            list.ids().len()
        );
        say(&said);
        let (root, list_number) = (Text::new(&list.root().to_string()), list.sequence());
        lock(&self.books).enter(Event::Revoked { root, list: list_number, ids: list.ids().len() as u64 });
        let folder = self.with_node(|node| node.config.node.state.clone());
        match revoked::keep(&folder, &list) {
            Ok(()) => Ok(said),
            Err(error) => {
                let lost = format!("it is forgotten when the node ends, as it cannot be kept: {error}");
                warn(&lost);
                Ok(format!("{said}; {lost}"))
            }
        }
    }

    /// A trust that forgets nothing: with the lists that hold now, and those that were kept.
    pub(super) fn remembered(&self, trust: Option<Arc<Trust>>) -> Result<Option<Arc<Trust>>, DaemonError> {
        let Some(trust) = trust else { return Ok(None) };
        let state = self.with_node(|node| node.config.node.state.clone());
        let mut known = revoked::kept(&state)?;
        if let Some(before) = self.trust() {
            known.extend(before.lists().cloned());
        }
        let trust = trust.remembering(known).map_err(|error| DaemonError::Trust {
            path: self.setup.config.clone(),
            source: TrustError::Revocation(error),
        })?;
        Ok(Some(Arc::new(trust)))
    }

    /// What holds from the start on.
    pub(super) fn remember(&self) -> Result<(), DaemonError> {
        let trust = self.remembered(self.trust())?;
        *lock(&self.trust) = trust;
        self.keep_lists();
        Ok(())
    }

    /// Keeps the lists that hold, for whatever becomes of their files.
    pub(super) fn keep_lists(&self) {
        let Some(trust) = self.trust() else { return };
        let state = self.with_node(|node| node.config.node.state.clone());
        let kept = revoked::kept(&state).unwrap_or_default();
        for list in trust.lists().filter(|list| !kept.contains(list)) {
            if let Err(error) = revoked::keep(&state, list) {
                warn(&format_args!("the revocation list of {} cannot be kept: {error}", list.root()));
            }
        }
    }

    /// Ends sessions that have more than their root may grant, after that has changed.
    pub(super) fn close_what_is_beyond(self: &Arc<Self>) {
        if !self.is_limited_anew.swap(false, Ordering::AcqRel) {
            return;
        }
        let Some(trust) = self.trust() else { return };
        let now = Second::of(now());
        let beyond = lock(&self.node).hold_again(|credential| trust.current(credential, now).ok());
        for (session, id, refusal) in beyond {
            self.end_aside(session, id, Closed::Expired, &refusal.to_string());
        }
    }

    /// Sessions whose right has ended, by its time or because it was revoked.
    pub(crate) fn close_expired(self: &Arc<Self>) {
        self.close_what_is_beyond();
        let owned: Vec<_> = {
            let node = lock(&self.node);
            let owned = node
                .sessions
                .iter()
                .filter_map(|(name, session)| Some((name, session.id, session.owner.as_ref()?)));
            owned
                .map(|(name, id, owner)| (name.clone(), id, Asker::Holder(Arc::clone(&owner.credential))))
                .collect()
        };
        for (session, id, asker) in owned {
            if let Err(why) = self.still(&asker) {
                let is_revoked =
                    matches!(&why, Refusal::Worthless(why) if matches!(**why, Worthless::Revoked { .. }));
                let reason = if is_revoked { Closed::Revoked } else { Closed::Expired };
                self.end_aside(session, id, reason, &why.to_string());
            }
        }
    }

    /// Ends a session whose right has ended. Nobody waits for that.
    fn end_aside(self: &Arc<Self>, session: weir_session::Name, id: u64, reason: Closed, why: &str) {
        if !lock(&self.ending).insert(id) {
            return;
        }
        log::session(&session).say(&format_args!("session {session} is closed: {why}"));
        self.aside(move |daemon| {
            _ = daemon.close_for(&session, id, reason, Unloaded::SessionClosed);
            lock(&daemon.ending).remove(&id);
        });
    }
}
