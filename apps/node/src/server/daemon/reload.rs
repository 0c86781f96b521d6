//! Changes of a running node's configuration and of its links' rates.

use super::compilers::compiler_trust;
use super::{Daemon, DaemonError, LedgerState, LoadedConfig, load_config};
use crate::control::config::NodeConfiguration;
use crate::control::link_spec::LinkConfig;
use crate::control::module_file::module_bytes;
use crate::control::protocol::LinkRateChange;
use crate::control::spec::SessionSpec;
use crate::log::{self, info};
use crate::server::compile_queue;
use crate::sessions::cpu_debit::debit_cpu_time;
use crate::sessions::error::NodeError;
use crate::sessions::inventory::NodeInventory;
use crate::sessions::limits::SessionLimits;
use crate::sessions::link;
use crate::sessions::module_loader::ModuleLoader;
use crate::sessions::node::Node;
use crate::sessions::rearrange::{NewSession, Rearrangement, StoppingModules, Switched};
use crate::sessions::tables::TableFile;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weir_ledger::{CloseReason, Digest, LedgerEvent, LedgerText, UnloadReason};
use {weir_admission::Name, weir_session::MemoryReservation};

/// The part of `[remote]` that cannot change while the node runs: the address and the file of the key.
#[derive(PartialEq, Eq)]
struct FixedRemote<'a> {
    listen_and_key: Option<(std::net::SocketAddr, &'a std::path::Path)>,
}

impl<'a> FixedRemote<'a> {
    fn from_config(config: &'a NodeConfiguration) -> Self {
        Self { listen_and_key: config.remote.as_ref().map(|remote| (remote.listen, remote.key.as_path())) }
    }
}

impl LedgerState {
    /// Appends an entry for each link whose configuration has changed.
    fn append_link_changes(&mut self, links: &[LinkConfig], before: &[LinkConfig]) {
        for link in links.iter().filter(|link| !before.contains(link)) {
            let (rate, reservable) = (link.rate, link.reservable);
            self.append(LedgerEvent::LinkChanged {
                link: LedgerText::new(&link.interface),
                rate,
                reservable,
            });
        }
    }
}

impl Daemon {
    /// Changes the rate of a link, until a reload changes it again. Returns a description of the link's new state.
    pub(crate) fn change_rate(&self, change: &LinkRateChange) -> Result<String, NodeError> {
        let mut ledger = self.ledger.lock();
        let (link, before) = self.node.lock_after(&ledger).change_rate(change)?;
        ledger.append_link_changes(std::slice::from_ref(&link), &before);
        drop(ledger);
        let note = link::note(&link);
        info(&note);
        Ok(note)
    }

    /// Reads the configuration again, and applies all of its changes or none. Sessions that were created by requests are not
    /// affected. Returns notes on the changes.
    pub(crate) fn reload(&self) -> Result<Vec<String>, DaemonError> {
        // Preparing sessions and stopping modules can take long. Until the new configuration is in effect, the revocation
        // lists of the old one are watched.
        let _reload_lock = self.reload_lock.lock();
        let loaded = self.loaded.get();
        let mut new = load_config(&self.setup.config, &self.setup.calibration, self.setup.shipped)?;
        self.check_fixed(&loaded, &new)?;
        // Revocations stay in effect even if the files no longer contain them.
        new.trust = self.with_known_revocations(new.trust.take())?;
        let old = &loaded.config.sessions;
        let removed = old.iter().filter(|old| !new.config.sessions.contains(old));
        let new_sessions = new.config.sessions.iter().filter(|new| !old.contains(new));
        let (removed, new_sessions): (Vec<Name>, Vec<SessionSpec>) =
            (removed.map(|session| session.name.clone()).collect(), new_sessions.cloned().collect());
        let names: Vec<Name> = new_sessions.iter().map(|session| session.name.clone()).collect();
        let links = link::changed(&loaded.config.links, &new.config.links);
        // Sessions are prepared, which takes long, while the node goes on with the old configuration.
        let new_sessions = self.prepare_sessions(&new, new_sessions)?;
        let tables = (loaded.tables.as_slice(), std::mem::take(&mut new.tables));
        let switched = self.apply(&removed, new_sessions, &links, tables, &new)?;
        let Switched { changed, closing, tables, mut notes, .. } = switched;
        new.tables = tables;
        let is_changed = |name: &Name| changed.iter().any(|it| it.session.name == *name);
        let note = |name: &Name, what: &str| format!("session {name} is {what}");
        notes.extend(closing.iter().map(|it| note(&it.session.name, "closed")));
        notes.extend(links.iter().map(link::note));
        notes.extend(
            names.iter().map(|name| note(name, if is_changed(name) { "changed" } else { "created" })),
        );
        new.trust = self.replace_trust(new.trust.take());
        self.root_limits_changed.store(true, Ordering::Release);
        self.loaded.set(new);
        self.close_departed(changed, closing);
        if notes.is_empty() {
            notes.push("no session has changed".to_owned());
        }
        Ok(notes)
    }

    /// Checks that only sections have changed that a running node can apply.
    fn check_fixed(&self, loaded: &LoadedConfig, new: &LoadedConfig) -> Result<(), DaemonError> {
        let (old, new) = (&loaded.config, &new.config);
        for (part, differs) in [
            ("node", new.node != old.node),
            ("isolation", new.isolation != old.isolation),
            ("cpu", new.cpu != old.cpu),
            ("compilation", new.compilation.compile != old.compilation.compile),
            ("remote", FixedRemote::from_config(new) != FixedRemote::from_config(old)),
            ("interface", new.interfaces != old.interfaces),
            ("link", !link::can_become(&old.links, &new.links)),
        ] {
            if differs {
                return Err(DaemonError::Restart { path: self.setup.config.clone(), part });
            }
        }
        Ok(())
    }

    /// Prepares sessions without the node's lock: compiles their filters, and reads, admits, compiles and starts their
    /// modules.
    fn prepare_sessions(
        &self,
        new: &LoadedConfig,
        new_sessions: Vec<SessionSpec>,
    ) -> Result<Vec<NewSession>, DaemonError> {
        let (inventory, loader) = self.with_node(|node| {
            let (default, profiles) = (new.default.clone(), new.profiles.clone());
            let loader = ModuleLoader { default, profiles, ..node.loader() };
            let loader = loader.with_compilers(compiler_trust(&new.compilers, new.trust.as_deref()));
            (node.inventory().with_profiles(loader.profiles()), loader)
        });
        let prepare = |spec: SessionSpec| {
            let name = spec.name.clone();
            self.prepare(spec, &inventory, &loader).map_err(|error| self.session_error(name, error))
        };
        new_sessions.into_iter().map(prepare).collect()
    }

    fn prepare(
        &self,
        spec: SessionSpec,
        inventory: &NodeInventory,
        loader: &ModuleLoader,
    ) -> Result<NewSession, NodeError> {
        crate::sessions::descriptors::wait_for_free(|| self.with_node(Node::release_unused))?;
        let mut budget = compile_queue::budget_for(None);
        let memory = self.with_node(|node| {
            node.check_ceilings(None, &spec)?;
            Ok::<_, NodeError>(Arc::clone(&node.memory))
        })?;
        inventory.check(&spec)?;
        let filters = inventory.filter_requests(&spec.channels, &spec.outputs);
        let compiled = match loader.filters.cached(&filters) {
            Some(compiled) => compiled,
            None => loader.filters.compile(filters, &mut self.compile_queue.acquire(None, &mut budget)?)?,
        };
        let memory = MemoryReservation::uncounted(&memory, spec.memory, spec.memory_ceiling());
        let limits = Arc::new(SessionLimits::new(&spec, None));
        let mut modules = Vec::new();
        for module in &spec.modules {
            crate::sessions::descriptors::wait_for_free(|| self.with_node(Node::release_unused))?;
            // The file is read once, so that a change of the file during the reload has no effect.
            let file = self.module_file(module)?;
            let shipped = || (self.setup.shipped)(&module.module);
            let code = Digest::of_bytes(module_bytes(file.as_deref().or_else(shipped).unwrap_or_default()));
            let mut permit = self.compile_queue.acquire(None, &mut budget)?;
            let prepared = debit_cpu_time(&mut permit, |permit| {
                loader.prepare(&spec, &memory, &limits, module, file, permit)
            });
            modules.push((prepared?, code));
        }
        let used = budget.used();
        Ok(NewSession { spec, memory, limits, compiled, modules, used })
    }

    /// Applies all changes to the node, or none.
    fn apply(
        &self,
        removed: &[Name],
        new_sessions: Vec<NewSession>,
        links: &[LinkConfig],
        (tables, new_tables): (&[TableFile], Vec<TableFile>),
        new: &LoadedConfig,
    ) -> Result<Switched, DaemonError> {
        let mut ledger = self.ledger.lock();
        let mut node = self.node.lock_after(&ledger);
        let links_before: Vec<LinkConfig> = node.links.values().map(|link| link.config().clone()).collect();
        let wanted = Rearrangement { removed, added: new_sessions, links, tables, new_tables };
        let switched = node.rearrange(wanted).map_err(|(session, error)| match session {
            Some(session) => self.session_error(session, error),
            None => DaemonError::Node(error),
        });
        let mut switched = switched?;
        node.set_policy(new.default.clone(), new.profiles.clone(), Arc::clone(&new.compilers));
        ledger.append_link_changes(links, &links_before);
        std::mem::take(&mut switched.events).into_iter().for_each(|event| ledger.append(event));
        ledger.append(LedgerEvent::NodeReconfigured { configuration: new.digest });
        Ok(switched)
    }

    /// Waits until the replaced modules have stopped, and closes the sessions in `closing`.
    fn close_departed(&self, changed: Vec<StoppingModules>, closing: Vec<StoppingModules>) {
        for StoppingModules { session, leaving: stopping } in changed {
            let (name, id) = (session.name.clone(), session.id);
            if let Err(error) = self.wait_for_unload(Some(session), stopping, UnloadReason::Requested) {
                log::session(&name).warn(&error);
            }
            self.node.lock().end_retired(&name, id);
        }
        let closed = closing.into_iter().map(|StoppingModules { session, leaving: stopping }| {
            self.close_stopped(session, stopping, CloseReason::Node, UnloadReason::SessionClosed)
        });
        for (name, error) in closed.filter_map(Result::err).collect::<Vec<_>>() {
            log::session(&name).warn(&error);
        }
    }
}
