//! How modules and sessions end: because somebody asks for it, or because of what they did.

use super::{Daemon, lock};
use crate::control::share::By;
use crate::error::NodeError;
use crate::server::log::{self, warn};
use crate::sessions::leaving::{self, Leaving};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_admission::Name;
use weir_datapath::moment::Moment;
use weir_datapath::notice::ObservedEvent;
use weir_ledger::{CloseReason, LedgerEvent, SessionId as Billed, Unloaded};

/// A session that is ending: nothing of it runs any more but the ends of its modules.
struct Ending {
    name: Name,
    id: u64,
    reason: CloseReason,
    unloaded: Unloaded,
    billed: Option<Billed>,
    leaving: Vec<Leaving>,
}

/// The end of a session waits so long for modules that somebody else has unloaded.
const LEAVING: Duration = Duration::from_secs(20);

impl Daemon {
    /// Does what can take long on a thread of its own: intervals end in time.
    pub(super) fn aside(self: &Arc<Self>, work: impl Fn(&Self) + Send + Sync + 'static) {
        let (daemon, work) = (Arc::clone(self), Arc::new(work));
        let theirs = Arc::clone(&work);
        let thread = std::thread::Builder::new().name("weir-leaving".to_owned());
        if thread.spawn(move || theirs(&daemon)).is_err() {
            work(self);
        }
    }

    pub(super) fn heed(self: &Arc<Self>, notice: ObservedEvent) {
        match notice {
            ObservedEvent::Interface { interface, what } => log::interface(&interface).say(&what),
            ObservedEvent::Failed { interface, what } => log::interface(&interface).warn(&what),
            ObservedEvent::Lagging { owner: id, channel } => {
                // Meanwhile the session may have been closed, or changed; or another one of its readers said so before.
                let session = lock(&self.node).with_channel(id, channel).cloned();
                let Some(session) = session.filter(|_| lock(&self.ending).insert(id)) else { return };
                let what = format_args!("session {session} lags further behind than it may, and is closed");
                log::session(&session).warn(&what);
                self.aside(move |daemon| {
                    _ = daemon.close_for(&session, id, CloseReason::Misbehaved, Unloaded::Lagged);
                    lock(&daemon.ending).remove(&id);
                });
            }
        }
    }

    /// Modules that get no more packets are taken out, when nothing of them runs.
    pub(super) fn unload_ended(self: &Arc<Self>) {
        let ended = lock(&self.node).ended();
        for (session, module, guest, why) in ended {
            self.aside(move |daemon| {
                match daemon.unload_for(&session, &module, guest, why) {
                    Ok(()) => {
                        let why = match why {
                            Unloaded::ProcessEnded => "has no process any more",
                            _ => "was over its limits too often",
                        };
                        let what = format_args!("session {session}, module {module}: {why}, and is unloaded");
                        log::session(&session).module(&module).warn(&what);
                    }
                    // It is being unloaded, or its session closed.
                    Err(NodeError::NoModule { .. } | NodeError::NoSession(_)) => {}
                    Err(error) => log::session(&session).module(&module).warn(&error),
                }
            });
        }
    }

    /// Unloads a module, as it was asked for by this right.
    pub(crate) fn unload(&self, session: &Name, module: &Name, by: &By) -> Result<(), NodeError> {
        let (billed, leaving) = {
            let mut node = lock(&self.node);
            node.still_permitted(session, by)?;
            if node.forget_ended(session, module) {
                return Ok(());
            }
            (node.billed(session), node.begin_unload(session, module, None, Unloaded::Asked)?)
        };
        self.let_leave(billed, vec![leaving], Unloaded::Asked)
    }

    /// Unloads the module with the number `guest`, and no other one that has its name by now.
    fn unload_for(
        &self,
        session: &Name,
        module: &Name,
        guest: u64,
        reason: Unloaded,
    ) -> Result<(), NodeError> {
        let (billed, leaving) = {
            let mut node = lock(&self.node);
            (node.billed(session), node.begin_unload(session, module, Some(guest), reason)?)
        };
        self.let_leave(billed, vec![leaving], reason)
    }

    /// Modules of a session stop. This can take long, so nobody waits for it but who asked.
    pub(super) fn let_leave(
        &self,
        session: Option<Billed>,
        leaving: Vec<Leaving>,
        reason: Unloaded,
    ) -> Result<(), NodeError> {
        let mut result = Ok(());
        leaving::wait_for(leaving, |left| {
            // Before it is gone from its session, whose end waits for that: in the ledger that comes last.
            if let Some(session) = session.clone() {
                let module = left.module.clone();
                lock(&self.books).enter(LedgerEvent::ModuleUnloaded { session, module, reason });
            }
            let ended = lock(&self.node).end_unload(left);
            if result.is_ok() {
                result = ended;
            }
        });
        result
    }

    /// Closes a session, as it was asked for by this right.
    pub(crate) fn close(&self, session: &Name, by: &By) -> Result<(), NodeError> {
        // A session keeps its owner. A new one of this name has another number.
        let id = lock(&self.node).still_permitted(session, by)?.id;
        self.close_for(session, id, CloseReason::Asked, Unloaded::SessionClosed)
    }

    /// The session that has this name now.
    pub(super) fn close_now(
        &self,
        name: &Name,
        reason: CloseReason,
        unloaded: Unloaded,
    ) -> Result<(), NodeError> {
        let there = lock(&self.node).billed(name).ok_or_else(|| NodeError::NoSession(name.clone()))?;
        self.close_for(name, there.id, reason, unloaded)
    }

    /// The session with this number, and no other one that has its name by now.
    pub(super) fn close_for(
        &self,
        name: &Name,
        id: u64,
        reason: CloseReason,
        unloaded: Unloaded,
    ) -> Result<(), NodeError> {
        let ending = self.begin_end(name, id, reason, unloaded)?;
        self.finish_end(ending)
    }

    /// Takes out all that runs of a session, so that it has an end now, however long its modules take to stop.
    fn begin_end(
        &self,
        name: &Name,
        id: u64,
        reason: CloseReason,
        unloaded: Unloaded,
    ) -> Result<Ending, NodeError> {
        let mut node = lock(&self.node);
        let (billed, leaving) = (node.billed(name), node.begin_close(name, id, reason)?);
        Ok(Ending { name: name.clone(), id, reason, unloaded, billed, leaving })
    }

    /// Closes a session whose modules have been taken out.
    pub(super) fn end_now(
        &self,
        session: Billed,
        leaving: Vec<Leaving>,
        reason: CloseReason,
        unloaded: Unloaded,
    ) -> Result<(), (Name, NodeError)> {
        let (name, id, billed) = (session.name.clone(), session.id, Some(session));
        match self.finish_end(Ending { name: name.clone(), id, reason, unloaded, billed, leaving }) {
            // It was closed by hand meanwhile.
            Ok(()) | Err(NodeError::NoSession(_)) => Ok(()),
            Err(error) => Err((name, error)),
        }
    }

    /// Waits until its modules have stopped, and closes it.
    fn finish_end(&self, ending: Ending) -> Result<(), NodeError> {
        let Ending { name, id, reason, unloaded, billed, leaving } = ending;
        let name = &name;
        let begin = Instant::now();
        self.let_leave(billed, leaving, unloaded)?;
        while lock(&self.node).has_leaving(name, id) && begin.elapsed() < LEAVING {
            std::thread::sleep(Duration::from_millis(1));
        }
        // The books first, as at the end of an interval.
        let mut books = lock(&self.books);
        let mut node = lock(&self.node);
        node.still(name, id)?;
        if let Err(error) = node.silence(name) {
            warn(&error);
        }
        let (begin, end, length) = books.interval.until(Moment::now());
        let last = node.sessions.get(name).map(|session| books.bill.usage(&node, name, session, length));
        let closed = node.billed(name);
        let owner = node.sessions.get(name).and_then(|session| session.owner.clone());
        node.close(name)?;
        if let (Some(used), Some(session)) = (last, closed) {
            books.bill.forget(session.id);
            used.events().for_each(|event| books.ledger.push(begin, end, event));
            books.enter(LedgerEvent::SessionClosed { session, reason });
        }
        // What was made under a session of somebody is not to go on without him. Where all end, each has its own reason.
        let orphans = match &owner {
            Some(owner) if reason != CloseReason::Node => node.orphans_of(&owner.credential),
            _ => Vec::new(),
        };
        drop((node, books));
        // None of them goes on while another one takes its time. It may be closed already.
        let begin = |(orphan, id): (Name, u64)| {
            log::session(&orphan).say(&format_args!(
                "session {orphan} is closed, as the last one of whom its owner has his right from was"
            ));
            self.begin_end(&orphan, id, CloseReason::Parent, Unloaded::SessionClosed).ok()
        };
        let orphans: Vec<Ending> = orphans.into_iter().filter_map(begin).collect();
        for orphan in orphans {
            _ = self.finish_end(orphan);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::control::authority::SessionOwner;
    use crate::control::authority::tests::{chain, name};
    use crate::control::share::{By, ShareGrant, ShareableRight};
    use crate::error::NodeError;
    use crate::server::daemon::{Daemon, Setup, load, lock};
    use crate::sessions::filters::CompiledFilters;
    use std::path::Path;
    use std::sync::Arc;
    use weir_admission::Calibration;
    use weir_os::private::PrivateFolder;
    use weir_trust::grant::Grant;
    use weir_trust::key::Identity;

    /// A daemon without interfaces, which keeps what it keeps in this folder.
    fn daemon(folder: &Path) -> Daemon {
        let (config, state) = (folder.join("node.toml"), folder.join("state"));
        PrivateFolder::make(&state).unwrap();
        let text = format!("[node]\nsocket = \"{0}/socket\"\nstate = \"{0}/state\"\n", folder.display());
        std::fs::write(&config, text).unwrap();
        let setup = Setup { config, calibration: Calibration::default(), shipped: |_| None };
        let loaded = load(&setup.config, &setup.calibration, setup.shipped).unwrap();
        let ledger = weir_ledger_files::LedgerFolder::open(&state.join(super::super::LEDGER)).unwrap();
        Daemon::start(setup, loaded, ledger, None).unwrap().0
    }

    #[test]
    fn what_was_permitted_is_done_only_as_long_as_the_right_to_it_holds() {
        let folder = tempfile::tempdir().unwrap();
        let daemon = daemon(folder.path());
        let (session, module) = (name("s"), name("m"));
        let share = ShareGrant { right: ShareableRight::Manage, key: Identity::from_seed(&[1; 32]).public() };
        let owner = |holders: usize| {
            let credential = chain(&vec![Grant::default(); holders]);
            SessionOwner { credential, given: name("s") }
        };
        let (owner, other) = (owner(2), owner(3));
        let create = |owner: &SessionOwner| {
            let spec = toml::from_str(&format!("name = \"s\"\nshare = [\"{share}\"]")).unwrap();
            lock(&daemon.node).create(spec, Some(owner.clone()), &CompiledFilters::default()).unwrap();
        };
        create(&owner);
        let shared = (Some(owner.clone()), Some(share));
        // It is permitted, and there is no such module.
        let unload = |by: &By| daemon.unload(&session, &module, by);
        assert!(matches!(unload(&shared), Err(NodeError::NoModule { .. })));
        // The share is taken back between the decision and the act.
        lock(&daemon.node).sessions.get_mut(&session).unwrap().spec.share.clear();
        assert!(matches!(unload(&shared), Err(NodeError::NotPermitted(_))));
        assert!(matches!(unload(&(Some(owner.clone()), None)), Err(NodeError::NoModule { .. })));

        // The session is replaced by another owner's between the two.
        lock(&daemon.node).close(&session).unwrap();
        create(&other);
        let before = (Some(owner.clone()), None);
        assert!(matches!(unload(&before), Err(NodeError::NoSession(_))));
        assert!(matches!(daemon.close(&session, &before), Err(NodeError::NoSession(_))));
        assert!(
            lock(&daemon.node).sessions.contains_key(&session),
            "another owner's is closed by nothing of that"
        );
        assert!(Arc::ptr_eq(
            &lock(&daemon.node).sessions[&session].owner.as_ref().unwrap().credential,
            &other.credential
        ));
        daemon.close(&session, &(Some(other.clone()), None)).unwrap();
        assert!(!lock(&daemon.node).sessions.contains_key(&session));
        create(&other);
        daemon.close(&session, &(None, None)).unwrap();
        assert!(matches!(daemon.close(&session, &(None, None)), Err(NodeError::NoSession(_))));
    }
}
