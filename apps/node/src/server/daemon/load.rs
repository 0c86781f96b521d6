//! Sessions are created and changed, and modules loaded into them: by whoever may, in his turn, and on his bill.

use super::{Daemon, DaemonError, beside, lock, read};
use crate::control::authority::{self, SessionOwner};
use crate::control::protocol::Change;
use crate::control::share::By;
use crate::control::spec::{ModuleSpec, SessionSpec};
use crate::error::NodeError;
use crate::server::turns;
use crate::sessions::filters::{CompiledFilters, FilterRequest};
use crate::sessions::metered::metered;
use crate::sessions::node::Node;
use crate::sessions::premises::NodeInventory;
use std::io;
use std::path::Path;
use std::sync::Arc;
use weir_admission::{MODULE_BYTES_MAX, Name};
use weir_ledger::{CloseReason, Digest, LedgerEvent, LedgerText, Unloaded};
use weir_os::CpuBudget;
use weir_units::Nanos;

/// Finds the bytes of a module's file; none where it is one that comes with weir.
type FileOf<'a> = dyn Fn(&ModuleSpec) -> Result<Option<Vec<u8>>, NodeError> + 'a;

impl Daemon {
    /// A session, and its modules, which are all that come with weir. All or nothing.
    pub(crate) fn create(
        &self,
        spec: SessionSpec,
        owner: Option<SessionOwner>,
        budget: &mut CpuBudget,
    ) -> Result<(), NodeError> {
        self.create_with(spec, owner, &|_| Ok(None), budget)
    }

    /// A session of the configuration: modules can be files, too.
    pub(super) fn create_configured(&self, spec: SessionSpec) -> Result<(), NodeError> {
        self.create_with(spec, None, &|module| self.file(module), &mut turns::budget_for(None))
    }

    fn create_with(
        &self,
        spec: SessionSpec,
        owner: Option<SessionOwner>,
        file: &FileOf<'_>,
        budget: &mut CpuBudget,
    ) -> Result<(), NodeError> {
        crate::server::descriptors::spare(|| self.with_node(Node::tidy))?;
        let (name, modules) = (spec.name.clone(), spec.modules.clone());
        let id = self.create_empty(spec, owner.clone(), budget)?;
        for module in modules {
            let loaded = file(&module)
                .and_then(|file| self.load(&name, (owner.clone(), None), &module, file, &[], budget));
            if let Err(error) = loaded {
                // This one: somebody may have closed it, and made another of its name.
                _ = self.close_for(&name, id, CloseReason::Asked, Unloaded::SessionClosed);
                return Err(error);
            }
        }
        Ok(())
    }

    /// A session without its modules. Its number.
    fn create_empty(
        &self,
        spec: SessionSpec,
        owner: Option<SessionOwner>,
        budget: &mut CpuBudget,
    ) -> Result<u64, NodeError> {
        let name = spec.name.clone();
        let (compiled, used) = self.compiled(owner.as_ref(), budget, |premises| {
            // His right first: what there is here beside it, which the other says, is not for everybody to know.
            self.with_node(|node| node.hold(owner.as_ref(), &spec))?;
            premises.check(&spec)?;
            Ok(premises.filters_of(&spec.channels, &spec.outputs))
        });
        let compiled = compiled?;
        // The books first, as at the end of an interval: what it uses stands behind its beginning.
        let mut books = lock(&self.books);
        let mut node = lock(&self.node);
        // By what his right is now: compiling has taken its time.
        let owner = owner.map(|owner| self.renewed(owner)).transpose()?;
        let holder = owner.as_ref().map(|owner| Box::new(owner.in_ledger()));
        node.create(spec, owner, &compiled)?;
        node.charge(&name, None, used);
        let (session, reserved) = node.reserved(&name).ok_or(NodeError::NoSession(name))?;
        drop(node);
        let id = session.id;
        books.enter(LedgerEvent::SessionCreated { session, reserved, holder });
        Ok(id)
    }

    /// Compiles the filters that a session of the owner's needs, within the request's budget. Also returns the processor time that it took. Only the requester waits, and
    /// requests under the same grant. `wanted` is called without the node's lock.
    fn compiled(
        &self,
        owner: Option<&SessionOwner>,
        budget: &mut CpuBudget,
        wanted: impl FnOnce(&NodeInventory) -> Result<Vec<FilterRequest>, NodeError>,
    ) -> (Result<CompiledFilters, NodeError>, Nanos) {
        let before = budget.used();
        let compile = || {
            let (filters, premises) =
                self.with_node(|node| (Arc::clone(&node.workshop.filters), node.premises()));
            let wanted = wanted(&premises)?;
            // What is there needs no turn.
            if let Some(compiled) = filters.kept(&wanted) {
                return Ok(compiled);
            }
            let mut turn = self.turns.take(owner, budget)?;
            filters.compile(wanted, &mut turn)
        };
        let compiled = compile();
        (compiled, Nanos(budget.used().0.saturating_sub(before.0)))
    }

    /// What has to be compiled for a change that can be, as far as it can be said of it alone. The node is not to be held.
    pub(super) fn wanted_for(
        &self,
        change: &Change,
        premises: &NodeInventory,
    ) -> Result<Vec<FilterRequest>, NodeError> {
        let present = self.with_node(|node| node.spec(&change.session).cloned())?;
        // As much is reserved as it takes: how much there is, is asked later.
        let spec = SessionSpec { memory_max: None, ..present.changed(change)? };
        self.with_node(|node| {
            let owner = node.sessions.get(&change.session).and_then(|there| there.owner.as_ref());
            node.hold(owner, &spec)
        })?;
        premises.check(&spec)?;
        Ok(premises.filters_of(&change.channels, &change.outputs))
    }

    /// The bytes of a module of the configuration; none where it is one that comes with weir.
    pub(super) fn file(&self, module: &ModuleSpec) -> Result<Option<Vec<u8>>, NodeError> {
        if (self.setup.shipped)(&module.module).is_some() {
            return Ok(None);
        }
        let path = beside(&self.setup.config, Path::new(&module.module));
        let failed = |source| NodeError::File { module: module.module.clone(), source };
        match read(&path, MODULE_BYTES_MAX) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(DaemonError::Read { source, .. }) => Err(failed(source)),
            Err(_) => Err(failed(io::ErrorKind::InvalidData.into())),
        }
    }

    /// Whose right a session is used by. Where a holder asked, it was `permitted` because it was this one's; it may be somebody else's by now, or nobody's, and who asked is not
    /// the operator for that.
    fn owner(
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

    /// Loads a module into a session. `permitted` is the session's owner when the request was permitted, and the share by which another holder asks. The operator's
    /// request has neither.
    pub(crate) fn load(
        &self,
        session: &Name,
        permitted: By,
        module: &ModuleSpec,
        file: Option<Vec<u8>>,
        signatures: &[String],
        budget: &mut CpuBudget,
    ) -> Result<Name, NodeError> {
        crate::server::descriptors::spare(|| self.with_node(Node::tidy))?;
        let (permitted, by) = permitted;
        let owner = self.owner(session, permitted)?;
        let turn = self.turns.take(owner.as_ref(), budget);
        let mut turn = turn.inspect_err(|_| lock(&self.node).count_refusal(session))?;
        let (workshop, spec, memory, limits) = {
            let node = lock(&self.node);
            node.still_of(session, owner.as_ref())?.check_room(session)?;
            let (memory, limits) = (node.memory_of(session)?, node.limits_of(session)?);
            (node.workshop(), node.spec(session)?.clone(), memory, limits)
        };
        // All of its bytes are hashed, and signatures are checked.
        let (signed, code) = metered(&mut turn, |_| {
            let shipped = || (self.setup.shipped)(&module.module);
            let code = Digest::of(file.as_deref().or_else(shipped).unwrap_or_default());
            (authority::signed(module, file.as_deref(), signatures, &self.setup.shipped), code)
        });
        // This takes long, so only the requester waits for it.
        let prepared = match signed {
            Ok(signed) => {
                metered(&mut turn, |turn| workshop.prepare(&spec, &memory, &limits, module, file, turn))
                    .map(|prepared| (signed, prepared))
            }
            Err(why) => Err(Box::new(why).into()),
        };
        let used = turn.used();
        // From here on it is the next one's.
        drop(turn);
        let mut node = lock(&self.node);
        node.charge(session, Some(&module.cpu), used);
        let loaded = prepared.and_then(|(signed, prepared)| {
            node.still_of(session, owner.as_ref())?.check_shared(by.as_ref())?;
            self.renew(&mut node, session)?;
            node.install(session, prepared, signed)
        });
        let Some(billed) = node.billed(session) else { return loaded };
        let event = match &loaded {
            Ok(name) => node.tier(session, name).map(|tier| LedgerEvent::ModuleLoaded {
                session: billed,
                module: name.clone(),
                code,
                tier,
            }),
            Err(error) => {
                node.count_refusal(session);
                Some(LedgerEvent::ModuleRefused {
                    session: billed,
                    module: LedgerText::new(&module.module),
                    code,
                    reason: LedgerText::new(&error.to_string()),
                })
            }
        };
        drop(node);
        // What runs is always entered. To be refused costs nothing, and can be had again and again.
        let takes = || loaded.is_ok() || lock(&self.decisions).takes(owner.as_ref(), false);
        if let Some(event) = event.filter(|_| takes()) {
            lock(&self.books).enter(event);
        }
        loaded
    }

    /// An owner by what his right is now.
    fn renewed(&self, owner: SessionOwner) -> Result<SessionOwner, NodeError> {
        let credential = self.worth(&owner.credential).map_err(Box::new)?;
        Ok(SessionOwner { credential, ..owner })
    }

    /// Gives a session what its owner's right is now: what was permitted a while ago is done by that.
    fn renew(&self, node: &mut Node, session: &Name) -> Result<(), NodeError> {
        if let Some(owner) = node.sessions.get_mut(session).and_then(|there| there.owner.as_mut()) {
            *owner = self.renewed(owner.clone())?;
        }
        Ok(())
    }

    /// Other reservations for a session. `permitted`: whose that was when it was permitted; nobody's, where the operator asks.
    pub(crate) fn change(
        &self,
        change: &Change,
        permitted: By,
        budget: &mut CpuBudget,
    ) -> Result<(), NodeError> {
        if !change.channels.is_empty() {
            // Each can have memory of its own.
            crate::server::descriptors::spare(|| self.with_node(Node::tidy))?;
        }
        let (permitted, by) = permitted;
        let owner = self.owner(&change.session, permitted)?;
        let (compiled, used) =
            self.compiled(owner.as_ref(), budget, |premises| self.wanted_for(change, premises));
        let mut node = lock(&self.node);
        node.charge(&change.session, None, used);
        let before = node.reserved(&change.session);
        let changed = compiled.and_then(|compiled| {
            node.still_of(&change.session, owner.as_ref())?.check_shared(by.as_ref())?;
            // Whoever asks has been asked for his right. The session's owner may have none any more: then it ends in a moment.
            _ = self.renew(&mut node, &change.session);
            node.change(change, &compiled)
        });
        if changed.is_err() {
            node.count_refusal(&change.session);
        }
        let reserved = node.reserved(&change.session).filter(|reserved| Some(reserved) != before.as_ref());
        drop(node);
        changed?;
        // What it is promised is as before, where something else was changed: the decision says so.
        if let Some((session, reserved)) = reserved
            && lock(&self.decisions).takes(owner.as_ref(), true)
        {
            lock(&self.books).enter(LedgerEvent::SessionChanged { session, reserved });
        }
        Ok(())
    }
}
