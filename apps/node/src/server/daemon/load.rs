//! Creates and changes sessions, and loads modules into them, within the requester's share of processor time.

use super::replace::SavedFile;
use super::{Daemon, DaemonError, read, resolve_path};
use crate::control::authority::{self, HashAndSigners, SessionOwner};
use crate::control::module_file::module_hash;
use crate::control::protocol::Change;
use crate::control::spec::{ModuleSpec, SessionSpec};
use crate::core_thread::task::ModuleTask;
use crate::server::compile_queue::{self, RequestBudget};
use crate::sessions::compiler_trust::VouchedModule;
use crate::sessions::cpu_debit::debit_cpu_time;
use crate::sessions::error::NodeError;
use crate::sessions::filters::{CompiledFilters, FilterRequest};
use crate::sessions::inventory::NodeInventory;
use crate::sessions::module_loader::StartedModule;
use crate::sessions::node::Node;
use crate::sessions::replace::{OlderVersion, PreparedReplacement};
use crate::sessions::saved::SessionOrigin;
use crate::sessions::shares::PermittedBy;
use std::io;
use std::path::Path;
use std::sync::Arc;
use weir_admission::{MODULE_BYTES_MAX, Name};
use weir_compilation::bundle::Bundle;
use weir_ledger::{CloseReason, Digest, LedgerEvent, LedgerText, UnloadReason};
use weir_trust::grant::ModuleHash;
use weir_units::Nanos;

/// A function that returns the bytes of a module's file, or `None` for a shipped module.
type ModuleFileReader<'a> = dyn Fn(&ModuleSpec) -> Result<Option<Vec<u8>>, NodeError> + 'a;

/// The place of a module that is loaded.
#[derive(Clone, Copy, Debug)]
pub(super) enum Placement {
    /// A new place in the session.
    New,
    /// The place of a saved module, in the session of this number, if the session still lacks it.
    Restored(u64),
    /// The place of the session's module of the same name. At a fault within this time that module returns.
    Replacing(Nanos),
}

/// A module that is ready for its place.
enum PreparedLoad {
    New(Box<StartedModule>, Option<HashAndSigners>),
    /// With the task of the version that it replaces.
    Replacement(Box<(PreparedReplacement, ModuleTask)>),
}

/// A module that was loaded.
pub(super) struct LoadOutcome {
    /// Name of the module in the session.
    pub(super) name: Name,
    /// The version before, if this module replaces one, and the file by which this one is saved after its trial.
    pub(super) older: Option<(Box<OlderVersion>, Option<SavedFile>)>,
}

impl Daemon {
    /// Creates a session with its modules, which must all be shipped modules. After an error the session does not exist.
    pub(crate) fn create(
        &self,
        spec: SessionSpec,
        owner: Option<SessionOwner>,
        budget: &mut RequestBudget,
    ) -> Result<(), NodeError> {
        let name = spec.name.clone();
        self.create_with(spec, owner, SessionOrigin::Request, &|_| Ok(None), budget)?;
        self.save(&name);
        Ok(())
    }

    /// Creates a saved session without its modules.
    pub(super) fn create_saved_session(
        &self,
        spec: SessionSpec,
        owner: Option<SessionOwner>,
        origin: SessionOrigin,
        budget: &mut RequestBudget,
    ) -> Result<(), NodeError> {
        self.create_with(spec, owner, origin, &|_| Ok(None), budget)
    }

    /// Creates a session of the configuration. Its modules can be shipped modules or files.
    pub(super) fn create_configured(&self, spec: SessionSpec) -> Result<(), NodeError> {
        let (origin, mut budget) = (SessionOrigin::Configuration, compile_queue::budget_for(None));
        self.create_with(spec, None, origin, &|module| self.module_file(module), &mut budget)
    }

    fn create_with(
        &self,
        spec: SessionSpec,
        owner: Option<SessionOwner>,
        origin: SessionOrigin,
        read_file: &ModuleFileReader<'_>,
        budget: &mut RequestBudget,
    ) -> Result<(), NodeError> {
        crate::sessions::descriptors::wait_for_free(|| self.with_node(Node::release_unused))?;
        let (name, modules) = (spec.name.clone(), spec.modules.clone());
        let id = self.create_empty(spec, owner.clone(), origin, budget)?;
        for module in modules {
            let loaded = read_file(&module)
                .and_then(|file| self.load(&name, (owner.clone(), None), &module, file, &[], budget));
            if let Err(error) = loaded {
                // The session is closed by its number: another request may have closed it, and created a new session of
                // this name.
                _ = self.close_by_id(&name, id, CloseReason::Requested, UnloadReason::SessionClosed);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Creates a session without its modules. Returns its number.
    fn create_empty(
        &self,
        spec: SessionSpec,
        owner: Option<SessionOwner>,
        origin: SessionOrigin,
        budget: &mut RequestBudget,
    ) -> Result<u64, NodeError> {
        let name = spec.name.clone();
        let (compiled, used) = self.compile_filters(owner.as_ref(), budget, |inventory| {
            // The owner's right is checked first, so that a refusal reveals nothing about the node.
            self.with_node(|node| node.check_ceilings(owner.as_ref(), &spec))?;
            inventory.check(&spec)?;
            Ok(inventory.filter_requests(&spec.channels, &spec.outputs))
        });
        let compiled = compiled?;
        // The ledger is locked first, so that the entry of the session's creation comes before those of its usage.
        let mut ledger = self.ledger.lock();
        let mut node = self.node.lock_after(&ledger);
        // The owner's right is verified again, as compiling has taken time.
        let owner = owner.map(|owner| self.reverified_owner(owner)).transpose()?;
        let holder = owner.as_ref().map(|owner| Box::new(owner.in_ledger()));
        node.create(spec, owner, &compiled)?;
        if let Some(state) = node.sessions.get_mut(&name) {
            state.set_origin(origin);
        }
        node.charge(&name, None, used);
        let (session, reserved) = node.reserved(&name).ok_or(NodeError::NoSession(name))?;
        drop(node);
        let id = session.id;
        ledger.append(LedgerEvent::SessionCreated { session, reserved, holder });
        Ok(id)
    }

    /// Compiles the filters that a session of this owner needs, within the request's budget. Also returns the used processor
    /// time. The job waits in the compile queue. `filter_requests` is called without the node's lock.
    fn compile_filters(
        &self,
        owner: Option<&SessionOwner>,
        budget: &mut RequestBudget,
        filter_requests: impl FnOnce(&NodeInventory) -> Result<Vec<FilterRequest>, NodeError>,
    ) -> (Result<CompiledFilters, NodeError>, Nanos) {
        let before = budget.used();
        let compile = || {
            let (filters, inventory) =
                self.with_node(|node| (Arc::clone(&node.loader.filters), node.inventory()));
            let filter_requests = filter_requests(&inventory)?;
            // Filters in the cache need no job in the compile queue.
            if let Some(compiled) = filters.cached(&filter_requests) {
                return Ok(compiled);
            }
            let mut permit = self.compile_queue.acquire(owner, budget)?;
            filters.compile(filter_requests, &mut permit)
        };
        let compiled = compile();
        (compiled, Nanos(budget.used().0.saturating_sub(before.0)))
    }

    /// Checks a change as far as possible without executing it, and returns the filters that it needs. The caller must not
    /// hold the node's lock.
    pub(super) fn filters_of_change(
        &self,
        change: &Change,
        inventory: &NodeInventory,
    ) -> Result<Vec<FilterRequest>, NodeError> {
        let present = self.with_node(|node| node.spec(&change.session).cloned())?;
        // The free memory is checked only when the change is executed.
        let spec = SessionSpec { memory_max: None, ..present.changed(change)? };
        self.with_node(|node| {
            let owner = node.sessions.get(&change.session).and_then(|state| state.owner.as_ref());
            node.check_ceilings(owner, &spec)
        })?;
        inventory.check(&spec)?;
        Ok(inventory.filter_requests(&change.channels, &change.outputs))
    }

    /// Reads the file of a module of the configuration. Returns `None` for a shipped module.
    pub(super) fn module_file(&self, module: &ModuleSpec) -> Result<Option<Vec<u8>>, NodeError> {
        if (self.setup.shipped)(&module.module).is_some() {
            return Ok(None);
        }
        let path = resolve_path(&self.setup.config, Path::new(&module.module));
        let failed = |source| NodeError::File { module: module.module.clone(), source };
        match read(&path, MODULE_BYTES_MAX) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(DaemonError::Read { source, .. }) => Err(failed(source)),
            Err(_) => Err(failed(io::ErrorKind::InvalidData.into())),
        }
    }

    /// Returns the present owner of a session; `None` for the operator's sessions. `permitted` is the owner at the time
    /// when a holder's request was permitted; `None` for a request of the operator.
    ///
    /// # Errors
    ///
    /// The session of this name now belongs to another owner or to the operator, so it does not exist for the requester.
    fn current_owner(
        &self,
        session: &Name,
        permitted: Option<SessionOwner>,
    ) -> Result<Option<SessionOwner>, NodeError> {
        let owner = self.owner_of(session);
        let id = |owner: &SessionOwner| owner.credential.id();
        if permitted.is_some() && owner.as_ref().map(id) != permitted.as_ref().map(id) {
            return Err(NodeError::NoSession(session.clone()));
        }
        Ok(owner)
    }

    /// Loads a module into a session. `permitted` is the right by which the request was permitted.
    pub(crate) fn load(
        &self,
        session: &Name,
        permitted: PermittedBy,
        module: &ModuleSpec,
        file: Option<Vec<u8>>,
        signatures: &[String],
        budget: &mut RequestBudget,
    ) -> Result<Name, NodeError> {
        let placement = Placement::New;
        let loaded = self.load_into(session, placement, permitted, module, (file, signatures), budget)?;
        Ok(loaded.name)
    }

    /// Loads a module into a session.
    pub(super) fn load_into(
        &self,
        session: &Name,
        placement: Placement,
        permitted: PermittedBy,
        module: &ModuleSpec,
        (file, signatures): (Option<Vec<u8>>, &[String]),
        budget: &mut RequestBudget,
    ) -> Result<LoadOutcome, NodeError> {
        crate::sessions::descriptors::wait_for_free(|| self.with_node(Node::release_unused))?;
        let (permitted, share) = permitted;
        let owner = self.current_owner(session, permitted)?;
        let permit = self.compile_queue.acquire(owner.as_ref(), budget);
        let mut permit = permit.inspect_err(|_| self.node.lock().count_refusal(session))?;
        let (loader, spec, memory, limits) = {
            let node = self.node.lock();
            node.session_of_owner(session, owner.as_ref())?.check_module_count(session)?;
            let (memory, limits) = (node.memory_of(session)?, node.limits_of(session)?);
            let loader = match placement {
                Placement::Replacing(_) => node.loader().replacing(node.publishers_of(session)),
                Placement::New | Placement::Restored(_) => node.loader(),
            };
            (loader, node.spec(session)?.clone(), memory, limits)
        };
        let is_file = file.is_some();
        // Hashing all bytes and verifying signatures is debited, too.
        let (identified, hashes) = debit_cpu_time(&mut permit, |_| {
            let shipped = || (self.setup.shipped)(&module.module);
            let bytes = file.as_deref().or_else(shipped).unwrap_or_default();
            let file_hash = ModuleHash::of_bytes(bytes);
            let hashes = (file_hash, Digest(module_hash(bytes, file_hash).0));
            (authority::hash_and_signers(module, file.as_deref(), signatures, &self.setup.shipped), hashes)
        });
        let (file_hash, code) = hashes;
        let loader = loader.with_compilers(self.compiler_trust());
        // A bundle is saved as a whole.
        let bundle = file.as_ref().filter(|file| Bundle::is_bundle(file)).cloned();
        // Preparing the module takes long, so the node is not locked meanwhile.
        let allowed = identified.and_then(|known| {
            if let (Some(owner), Some(known)) = (&owner, &known) {
                known.check(&*self.reverify(&owner.credential)?, module)?;
            }
            Ok(known)
        });
        let prepared = match allowed {
            Ok(hash_and_signers) => debit_cpu_time(&mut permit, |permit| {
                loader.prepare(&spec, &memory, &limits, module, file, permit)
            })
            .map(|prepared| (hash_and_signers, prepared)),
            Err(why) => Err(Box::new(why).into()),
        };
        let used = permit.used();
        // The permit is given back at once, so that the next job can run.
        drop(permit);
        let admitted = prepared.as_ref().ok().map(|(_, prepared)| Arc::clone(&prepared.admitted));
        let may_load = |node: &mut Node| {
            node.session_of_owner(session, owner.as_ref())?.check_shared(share.as_ref())?;
            self.reverify_owner(node, session)
        };
        // The present version leaves its core without the node's lock.
        let (mut older, mut ended) = (None, None);
        let prepared = match placement {
            Placement::Replacing(_) => prepared.and_then(|(hash_and_signers, prepared)| {
                let mut node = self.node.lock();
                may_load(&mut node)?;
                let replacement = node.begin_replacement(session, prepared, hash_and_signers)?;
                drop(node);
                Ok(PreparedLoad::Replacement(Box::new(self.release_present(replacement)?)))
            }),
            Placement::New | Placement::Restored(_) => prepared
                .map(|(hash_and_signers, prepared)| PreparedLoad::New(Box::new(prepared), hash_and_signers)),
        };
        let mut node = self.node.lock();
        node.charge(session, Some(&module.cpu), used);
        let loaded = prepared.and_then(|prepared| {
            let allowed = may_load(&mut node);
            let name = match (prepared, placement) {
                (PreparedLoad::New(prepared, hash_and_signers), _) => {
                    allowed?;
                    if let (Placement::Restored(id), Some(name)) = (placement, &module.name) {
                        node.check_unrestored(session, id, name)?;
                    }
                    node.install(session, *prepared, hash_and_signers)?
                }
                (PreparedLoad::Replacement(replacement), placement) => {
                    let (replacement, present) = *replacement;
                    if let Err(error) = allowed {
                        ended = node.undo_replacement(replacement, present);
                        return Err(error);
                    }
                    let trial = if let Placement::Replacing(trial) = placement { trial } else { Nanos(0) };
                    let version =
                        node.switch_version(replacement, present, trial).map_err(|(error, version)| {
                            ended = version;
                            error
                        })?;
                    let name = version.place().1.clone();
                    older = Some(version);
                    name
                }
            };
            // The saved module of this name is restored now, or replaced by the new module.
            if let Some(id) = node.sessions.get(session).map(|state| state.id) {
                node.forget_unrestored(session, id, &name);
            }
            node.set_module_origin(
                session,
                &name,
                super::save::module_origin(is_file, file_hash, signatures),
            );
            Ok(name)
        });
        let event = node.session_id(session).and_then(|session_id| match &loaded {
            Ok(name) => node.tier(session, name).map(|tier| LedgerEvent::ModuleLoaded {
                session: session_id,
                module: name.clone(),
                code,
                tier,
                compiled: node.vouched(session, name).map(VouchedModule::in_ledger),
            }),
            Err(error) => {
                node.count_refusal(session);
                Some(LedgerEvent::ModuleRefused {
                    session: session_id,
                    module: LedgerText::new(&module.module),
                    code,
                    reason: LedgerText::new(&error.to_string()),
                })
            }
        });
        drop(node);
        ended.into_iter().for_each(|version| self.drop_version(*version));
        // A loaded module always gets an entry. Entries of refusals are limited, as a client can cause any number of them.
        let is_recorded = || {
            loaded.is_ok() || self.decisions.with(|decisions| decisions.lists_outcome(owner.as_ref(), false))
        };
        if let Some(event) = event.filter(|_| is_recorded()) {
            let mut ledger = self.ledger.lock();
            if let Some(version) = &older {
                let (session, module) = version.place();
                let (session, module, reason) = (session.clone(), module.clone(), UnloadReason::Replaced);
                ledger.append(LedgerEvent::ModuleUnloaded { session, module, reason });
            }
            ledger.append(event);
        }
        let name = loaded?;
        let admitted = admitted.filter(|_| is_file);
        let file = admitted.as_ref().map(|admitted| bundle.as_deref().unwrap_or(admitted.bytes()));
        // A version on trial is saved when it has passed.
        let older = older.map(|version| (version, file.map(|file| (file_hash, file.to_vec()))));
        if let Some(file) = file.filter(|_| older.is_none()) {
            self.save_module(session, file_hash, file);
        }
        self.save(session);
        Ok(LoadOutcome { name, older })
    }

    /// Verifies an owner's credential again.
    fn reverified_owner(&self, owner: SessionOwner) -> Result<SessionOwner, NodeError> {
        let credential = self.reverify(&owner.credential).map_err(Box::new)?;
        Ok(SessionOwner { credential, ..owner })
    }

    /// Verifies the credential of a session's owner again, so that a request is executed by the owner's present right.
    pub(super) fn reverify_owner(&self, node: &mut Node, session: &Name) -> Result<(), NodeError> {
        if let Some(owner) = node.sessions.get_mut(session).and_then(|state| state.owner.as_mut()) {
            *owner = self.reverified_owner(owner.clone())?;
        }
        Ok(())
    }

    /// Changes a session. `permitted` is the right by which the request was permitted.
    pub(crate) fn change(
        &self,
        change: &Change,
        permitted: PermittedBy,
        budget: &mut RequestBudget,
    ) -> Result<(), NodeError> {
        if !change.channels.is_empty() {
            // Each channel can need a file descriptor for its memory.
            crate::sessions::descriptors::wait_for_free(|| self.with_node(Node::release_unused))?;
        }
        let (permitted, share) = permitted;
        let owner = self.current_owner(&change.session, permitted)?;
        let (compiled, used) = self
            .compile_filters(owner.as_ref(), budget, |inventory| self.filters_of_change(change, inventory));
        let mut node = self.node.lock();
        node.charge(&change.session, None, used);
        let before = node.reserved(&change.session);
        let changed = compiled.and_then(|compiled| {
            node.session_of_owner(&change.session, owner.as_ref())?.check_shared(share.as_ref())?;
            // The requester's right has been checked. An error is ignored: if the owner's right has ended, the session is
            // closed soon.
            _ = self.reverify_owner(&mut node, &change.session);
            node.change(change, &compiled)
        });
        if changed.is_err() {
            node.count_refusal(&change.session);
        }
        let reserved = node.reserved(&change.session).filter(|reserved| Some(reserved) != before.as_ref());
        drop(node);
        changed?;
        // If no reservation has changed, only the decision has a ledger entry.
        if let Some((session, reserved)) = reserved
            && self.decisions.with(|decisions| decisions.lists_outcome(owner.as_ref(), true))
        {
            self.ledger.lock().append(LedgerEvent::SessionChanged { session, reserved });
        }
        self.save(&change.session);
        Ok(())
    }
}
