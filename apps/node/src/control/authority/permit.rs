//! Permission: from a holder's request to the request that is carried out.

use super::{Asker, Needed, RequestRefusal, SessionOwner, SessionRelation, SharedRights, needed};
use crate::control::protocol::{Change, ControlRequest};
use crate::control::share::ShareGrant;
use crate::control::spec::{ChannelSpec, ModuleSpec, ProcessorSpec, SessionSpec};
use crate::control::visibility::GrantedVisibility;
use std::collections::BTreeSet;
use std::sync::Arc;
use weir_admission::Name;
use weir_trust::credential::VerifiedCredential;
use weir_trust::grant::{
    Amounts, Ceilings, GrantExcess, GrantPart, GrantRequest, ModuleHash, Resource, SessionLimit,
};
use weir_trust::key::PublicKey;
use weir_trust::signature::signers;
use weir_units::Nanos;
use weir_wire::WriteFields;

/// The default period of a virtual CPU.
const PERIOD: Nanos = Nanos(10 * Nanos::MILLISECOND.0);

/// A request that may be carried out.
#[derive(Debug)]
pub(crate) struct Permitted {
    /// The request, with the node's own names.
    pub(crate) ask: ControlRequest,
    /// Owner of the session that a holder's request creates, changes or loads a module into.
    pub(crate) owner: Option<SessionOwner>,
    /// Share by which another holder than the owner makes the request. The owner can withdraw it while the request is
    /// carried out.
    pub(crate) by: Option<ShareGrant>,
}

/// Decides on a request.
///
/// `owner_of` returns the owner of a session and their shares; `None` for an unknown session or one of the operator.
/// `shipped` returns the bytes of modules that come with weir. `body` has the bytes of a module that comes with the
/// request.
pub(crate) fn permit(
    asker: &Asker,
    ask: ControlRequest,
    body: Option<&[u8]>,
    owner_of: &dyn Fn(&Name) -> Option<SharedRights>,
    shipped: &dyn Fn(&str) -> Option<&'static [u8]>,
) -> Result<Permitted, RequestRefusal> {
    let Asker::Holder(credential) = asker else {
        // Even the operator cannot load a module with an invalid signature.
        if let ControlRequest::Load { module, signatures, .. } = &ask
            && !signatures.is_empty()
        {
            signed(module, body, signatures, shipped)?;
        }
        return Ok(Permitted { ask, owner: None, by: None });
    };
    let requests = HolderRequests { credential, owner_of, shipped };
    let needed = needed(&ask);
    if let Needed::Operator(what) = needed {
        return Err(RequestRefusal::Operator(what));
    }
    // From this point on, an existing session is named by the node's name.
    let found = match ask.session() {
        Some(called) if needed != Needed::New => Some(requests.session(called, needed)?),
        _ => None,
    };
    let Some(PermittedSession { name, owner, by }) = found else {
        let ControlRequest::Create(spec) = ask else { return Ok(Permitted { ask, owner: None, by: None }) };
        let (spec, owner) = requests.create(spec)?;
        return Ok(Permitted { ask: ControlRequest::Create(spec), owner: Some(owner), by: None });
    };
    let ask = match ask {
        ControlRequest::Change(change) => {
            ControlRequest::Change(HolderRequests::change(change, name, &owner)?)
        }
        ControlRequest::Close { .. } => ControlRequest::Close { session: name },
        ControlRequest::Load { module, signatures, .. } => {
            requests.module(&owner.credential, &module, body, &signatures)?;
            ControlRequest::Load { session: name, module, signatures }
        }
        ControlRequest::Unload { module, .. } => ControlRequest::Unload { session: name, module },
        ControlRequest::Follow { module, stream, .. } => {
            ControlRequest::Follow { session: name, module, stream }
        }
        other => other,
    };
    Ok(Permitted { ask, owner: Some(owner), by })
}

/// A session that a holder has a right over.
struct PermittedSession {
    name: Name,
    owner: SessionOwner,
    by: Option<ShareGrant>,
}

/// Checks the requests of a holder.
struct HolderRequests<'a> {
    credential: &'a Arc<VerifiedCredential>,
    owner_of: &'a dyn Fn(&Name) -> Option<SharedRights>,
    shipped: &'a dyn Fn(&str) -> Option<&'static [u8]>,
}

impl HolderRequests<'_> {
    /// Returns a session over which the holder has the needed right. Holders name their own sessions as they created
    /// them, and a delegate's by the node's name.
    fn session(&self, called: &Name, needed: Needed) -> Result<PermittedSession, RequestRefusal> {
        let own = SessionOwner::name_of(self.credential, called);
        let concerns = |name: Name| {
            let shared = (self.owner_of)(&name)?;
            Some((name, shared.relation(self.credential)?, shared))
        };
        // Sessions of others are treated as missing.
        let found = [own, called.clone()].into_iter().find_map(concerns);
        let (name, relation, shared) = found.ok_or_else(|| RequestRefusal::NoSession(called.clone()))?;
        let by = match (relation, needed) {
            (SessionRelation::Own, _) | (SessionRelation::Delegator, Needed::Delegator) => None,
            (SessionRelation::Delegator, Needed::Shared(right)) => {
                let share = ShareGrant { right, key: *self.credential.holder() };
                if !shared.share.contains(&share) {
                    return Err(RequestRefusal::not_shared(called, share));
                }
                Some(share)
            }
            (SessionRelation::Delegator, _) => return Err(RequestRefusal::NotOwner(called.clone())),
        };
        Ok(PermittedSession { name, owner: shared.owner, by })
    }

    fn create(&self, spec: SessionSpec) -> Result<(SessionSpec, SessionOwner), RequestRefusal> {
        let given = spec.name.clone();
        let mut known = BTreeSet::new();
        // Each module is checked only once, because all of its bytes are hashed.
        for module in spec.modules.iter().filter(|module| known.insert(module.module.as_str())) {
            self.module(self.credential, module, None, &[])?;
        }
        let mut channels = spec.channels;
        narrow(&mut channels, self.credential)?;
        let mut processors = spec.processors;
        if processors.is_empty() {
            processors.extend(self.processor());
        }
        let grant = self.credential.grant();
        let profile = spec.profile.or_else(|| grant.profiles.iter().flatten().next().cloned());
        // Limits that the request does not state are those of the grant.
        let limits = spec.limits.with_defaults(granted_limits(&grant.ceilings));
        // A field that this node does not know allows nothing.
        let known = |names: &BTreeSet<Name>| -> WriteFields {
            names.iter().filter_map(|name| WriteFields::named(name.as_str()).ok()).collect()
        };
        let writes = spec.writes.or_else(|| grant.writes.as_ref().map(known));
        let name = SessionOwner::name_of(self.credential, &given);
        let owner = SessionOwner { credential: Arc::clone(self.credential), given };
        let spec = SessionSpec { name, channels, processors, profile, ..spec };
        Ok((SessionSpec { limits, writes, ..spec }, owner))
    }

    fn change(change: Change, session: Name, owner: &SessionOwner) -> Result<Change, RequestRefusal> {
        let mut channels = change.channels;
        // The owner's bounds apply: a requester who manages the owner's session may have wider bounds.
        narrow(&mut channels, &owner.credential)?;
        Ok(Change { session, channels, ..change })
    }

    /// Returns a virtual CPU with all the CPU time that is granted, if there is a ceiling.
    fn processor(&self) -> Option<ProcessorSpec> {
        let share = self.credential.grant().ceilings.cpu?;
        let slice = Nanos(PERIOD.0 / 1_000_000 * share.0.min(1_000_000));
        Some(ProcessorSpec {
            period: Some(PERIOD),
            slice: Some(slice),
            borrow: false,
            ..ProcessorSpec::default()
        })
    }

    /// Checks that a module may be loaded for the owner of a session.
    fn module(
        &self,
        owner: &VerifiedCredential,
        module: &ModuleSpec,
        body: Option<&[u8]>,
        signatures: &[String],
    ) -> Result<(), RequestRefusal> {
        let Some(signed) = signed(module, body, signatures, self.shipped)? else { return Ok(()) };
        signed.check(owner, &module.module)
    }
}

/// Returns the limits of a session that states none: the granted amounts, but no more than the defaults.
fn granted_limits(ceilings: &Ceilings) -> Amounts {
    let granted = |(resource, limit): (Resource, &SessionLimit)| {
        let most = ceilings.get(resource)?;
        Some((resource, limit.default.map_or(most, |usual| usual.min(most))))
    };
    Resource::limits().filter_map(granted).collect()
}

/// The hash of a module and the keys of its valid signatures.
#[derive(Clone, Debug)]
pub(crate) struct Signed {
    hash: ModuleHash,
    signers: Vec<PublicKey>,
}

impl Signed {
    /// Checks a module against a credential. `name` is the module's name in the request, for the refusal.
    pub(crate) fn check(&self, credential: &VerifiedCredential, name: &str) -> Result<(), RequestRefusal> {
        let Self { hash, signers } = self;
        let mut excesses = credential
            .grant()
            .refuses(&GrantRequest { module: Some((*hash, signers)), ..GrantRequest::default() });
        for excess in &mut excesses {
            excess.asked = format!("`{}`, {}", weir_units::shown(name), excess.asked);
        }
        if excesses.is_empty() { Ok(()) } else { Err(RequestRefusal::Excess(excesses)) }
    }
}

/// Returns the hash and signers of a module, or `None` if its bytes are unknown. The loader refuses an unknown module
/// later.
pub(crate) fn signed(
    module: &ModuleSpec,
    body: Option<&[u8]>,
    signatures: &[String],
    shipped: &dyn Fn(&str) -> Option<&'static [u8]>,
) -> Result<Option<Signed>, RequestRefusal> {
    let Some(bytes) = body.or_else(|| shipped(&module.module)) else { return Ok(None) };
    let hash = ModuleHash::of(bytes);
    Ok(Some(Signed { signers: signers(&hash, signatures)?, hash }))
}

/// Checks a module by its hash alone against a credential.
pub(crate) fn check_known(
    credential: &VerifiedCredential,
    name: &str,
    hash: &ModuleHash,
    signatures: &[String],
) -> Result<(), RequestRefusal> {
    Signed { signers: signers(hash, signatures)?, hash: *hash }.check(credential, name)
}

/// Restricts channels to the filters and the view of a credential's chain.
fn narrow(channels: &mut [ChannelSpec], credential: &VerifiedCredential) -> Result<(), RequestRefusal> {
    let bounds = GrantedVisibility::from_credential(credential);
    channels.iter_mut().try_for_each(|channel| {
        channel.bind(bounds.clone()).ok_or_else(|| {
            let of_channel = |asked| format!("{asked}, in channel `{}`", channel.name);
            let (asked, given) = (channel.view.map_or_else(String::new, of_channel), bounds.view.to_string());
            RequestRefusal::Excess(vec![GrantExcess { part: GrantPart::View, asked, given }])
        })
    })
}
