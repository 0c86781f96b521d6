//! What changes of a node itself while it runs: its configuration, and the rates of its links.

use super::{Daemon, DaemonError, LedgerState, Loaded, load, lock};
use crate::control::config::NodeConfiguration;
use crate::control::protocol::LinkRateChange;
use crate::control::spec::SessionSpec;
use crate::error::NodeError;
use crate::link::{self, LinkConfig};
use crate::server::log::{self, say};
use crate::server::turns;
use crate::sessions::arrival::{Arrival, Departure, Rearrangement, Switched};
use crate::sessions::limits::SessionLimits;
use crate::sessions::metered::metered;
use crate::sessions::node::Node;
use crate::sessions::premises::NodeInventory;
use crate::sessions::tables::TableFile;
use crate::sessions::workshop::ModuleLoader;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weir_ledger::{CloseReason, Digest, LedgerEvent, LedgerText, Unloaded};
use {weir_admission::Name, weir_session::MemoryReservation};

/// What of `[remote]` cannot change.
#[derive(PartialEq, Eq)]
struct Reached<'a> {
    at: Option<(std::net::SocketAddr, &'a std::path::Path)>,
}

impl<'a> Reached<'a> {
    fn of(config: &'a NodeConfiguration) -> Self {
        Self { at: config.remote.as_ref().map(|remote| (remote.listen, remote.key.as_path())) }
    }
}

impl LedgerState {
    /// Enters those of these links that were different before.
    fn enter_links(&mut self, links: &[LinkConfig], before: &[LinkConfig]) {
        for link in links.iter().filter(|link| !before.contains(link)) {
            let (rate, reservable) = (link.rate, link.reservable);
            self.enter(LedgerEvent::LinkChanged { link: LedgerText::new(&link.interface), rate, reservable });
        }
    }
}

impl Daemon {
    /// Another rate for a link, until the configuration says yet another one. Says how it is then.
    pub(crate) fn change_rate(&self, change: &LinkRateChange) -> Result<String, NodeError> {
        // The books first, as at the end of an interval: so the ledger has all changes in their order.
        let mut books = lock(&self.books);
        let (link, before) = lock(&self.node).change_rate(change)?;
        books.enter_links(std::slice::from_ref(&link), &before);
        drop(books);
        let note = link::note(&link);
        say(&note);
        Ok(note)
    }

    /// Reads the configuration again and does what it says, or nothing. Sessions that are not from it stay as they are.
    pub(crate) fn reload(&self) -> Result<Vec<String>, DaemonError> {
        // It can take long to prepare sessions, and for modules to stop: what was taken back meanwhile is noticed by the files of the configuration before.
        let _alone = lock(&self.reloading);
        let loaded = lock(&self.loaded).clone();
        let mut new = load(&self.setup.config, &self.setup.calibration, self.setup.shipped)?;
        self.check_fixed(&loaded, &new)?;
        // What has been taken back stays so, whatever the files say now.
        new.trust = self.remembered(new.trust.take())?;
        let old = &loaded.config.sessions;
        let gone = old.iter().filter(|old| !new.config.sessions.contains(old));
        let come = new.config.sessions.iter().filter(|new| !old.contains(new));
        let (gone, come): (Vec<Name>, Vec<SessionSpec>) =
            (gone.map(|session| session.name.clone()).collect(), come.cloned().collect());
        let names: Vec<Name> = come.iter().map(|session| session.name.clone()).collect();
        let links = link::changed(&loaded.config.links, &new.config.links);
        // All that takes long, while the node goes on as it is.
        let come = self.prepare_all(&new, come)?;
        let tables = (loaded.tables.as_slice(), std::mem::take(&mut new.tables));
        let switched = self.switch(&gone, come, &links, tables, &new)?;
        let Switched { changed, gone, tables, notes: mut all, .. } = switched;
        new.tables = tables;
        let is_changed = |name: &Name| changed.iter().any(|it| it.session.name == *name);
        let note = |name: &Name, what: &str| format!("session {name} is {what}");
        all.extend(gone.iter().map(|it| note(&it.session.name, "closed")));
        all.extend(links.iter().map(link::note));
        all.extend(names.iter().map(|name| note(name, if is_changed(name) { "changed" } else { "created" })));
        new.trust = self.trust_anew(new.trust.take());
        self.is_limited_anew.store(true, Ordering::Release);
        *lock(&self.loaded) = new;
        self.see_off(changed, gone);
        if all.is_empty() {
            all.push("the sessions are as they were".to_owned());
        }
        Ok(all)
    }

    /// Checks that nothing has changed that a running node cannot change.
    fn check_fixed(&self, loaded: &Loaded, new: &Loaded) -> Result<(), DaemonError> {
        let (old, new) = (&loaded.config, &new.config);
        for (part, differs) in [
            ("node", new.node != old.node),
            ("isolation", new.isolation != old.isolation),
            ("cpu", new.cpu != old.cpu),
            ("remote", Reached::of(new) != Reached::of(old)),
            ("interface", new.interfaces != old.interfaces),
            ("link", !link::can_become(&old.links, &new.links)),
        ] {
            if differs {
                return Err(DaemonError::Restart { path: self.setup.config.clone(), part });
            }
        }
        Ok(())
    }

    /// Prepares sessions as far as that can be done without the node: their filters are compiled, and their modules read, admitted, compiled and started.
    fn prepare_all(&self, new: &Loaded, come: Vec<SessionSpec>) -> Result<Vec<Arrival>, DaemonError> {
        let (premises, workshop) = self.with_node(|node| {
            let (default, profiles) = (new.default.clone(), new.profiles.clone());
            let workshop = ModuleLoader { default, profiles, ..node.workshop() };
            (node.premises().with_profiles(workshop.profiles()), workshop)
        });
        let prepare = |spec: SessionSpec| {
            let name = spec.name.clone();
            self.prepare(spec, &premises, &workshop).map_err(|error| self.of_configuration(name, error))
        };
        come.into_iter().map(prepare).collect()
    }

    fn prepare(
        &self,
        spec: SessionSpec,
        premises: &NodeInventory,
        workshop: &ModuleLoader,
    ) -> Result<Arrival, NodeError> {
        crate::server::descriptors::spare(|| self.with_node(Node::tidy))?;
        let mut budget = turns::budget_for(None);
        let memory = self.with_node(|node| {
            node.hold(None, &spec)?;
            Ok::<_, NodeError>(Arc::clone(&node.memory))
        })?;
        premises.check(&spec)?;
        let filters = premises.filters_of(&spec.channels, &spec.outputs);
        let compiled = match workshop.filters.kept(&filters) {
            Some(compiled) => compiled,
            None => workshop.filters.compile(filters, &mut self.turns.take(None, &mut budget)?)?,
        };
        let memory = MemoryReservation::apart(&memory, spec.memory, spec.memory_ceiling());
        let limits = Arc::new(SessionLimits::of(&spec, None));
        let mut modules = Vec::new();
        for module in &spec.modules {
            crate::server::descriptors::spare(|| self.with_node(Node::tidy))?;
            // From here on the file may change or go: its bytes are here.
            let file = self.file(module)?;
            let shipped = || (self.setup.shipped)(&module.module);
            let code = Digest::of(file.as_deref().or_else(shipped).unwrap_or_default());
            let mut turn = self.turns.take(None, &mut budget)?;
            let prepared =
                metered(&mut turn, |turn| workshop.prepare(&spec, &memory, &limits, module, file, turn));
            modules.push((prepared?, code));
        }
        let used = budget.used();
        Ok(Arrival { spec, memory, limits, compiled, modules, used })
    }

    /// Has everything take effect, or nothing.
    fn switch(
        &self,
        gone: &[Name],
        come: Vec<Arrival>,
        links: &[LinkConfig],
        (tables, new_tables): (&[TableFile], Vec<TableFile>),
        new: &Loaded,
    ) -> Result<Switched, DaemonError> {
        // The books first, as at the end of an interval: so the ledger has all changes in their order.
        let mut books = lock(&self.books);
        let mut node = lock(&self.node);
        let links_before: Vec<LinkConfig> = node.links.values().map(|port| port.config().clone()).collect();
        let wanted = Rearrangement { gone, come, links, tables, new_tables };
        let switched = node.rearrange(wanted).map_err(|(session, error)| match session {
            Some(session) => self.of_configuration(session, error),
            None => DaemonError::Node(error),
        });
        let mut switched = switched?;
        node.set_profiles(new.default.clone(), new.profiles.clone());
        books.enter_links(links, &links_before);
        std::mem::take(&mut switched.events).into_iter().for_each(|event| books.enter(event));
        books.enter(LedgerEvent::NodeReconfigured { configuration: new.digest });
        Ok(switched)
    }

    /// Waits for the modules that stop, and closes what has gone with them.
    fn see_off(&self, changed: Vec<Departure>, gone: Vec<Departure>) {
        for Departure { session, leaving } in changed {
            let (name, id) = (session.name.clone(), session.id);
            if let Err(error) = self.let_leave(Some(session), leaving, Unloaded::Asked) {
                log::session(&name).warn(&error);
            }
            lock(&self.node).end_retired(&name, id);
        }
        let gone = gone.into_iter().map(|Departure { session, leaving }| {
            self.end_now(session, leaving, CloseReason::Node, Unloaded::SessionClosed)
        });
        for (name, error) in gone.filter_map(Result::err).collect::<Vec<_>>() {
            log::session(&name).warn(&error);
        }
    }
}
