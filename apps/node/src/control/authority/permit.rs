//! The decision on a request: checks a holder's rights, and converts the request to the one that the node carries out.

use super::{Needed, RequestRefusal, Requester, SessionOwner, SessionRelation, SharedRights, needed};
use crate::control::module_file::module_bytes;
use crate::control::protocol::{Change, ControlRequest};
use crate::control::share::{ShareGrant, ShareableRight};
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
    /// The request to carry out, with the node's names for sessions.
    pub(crate) request: ControlRequest,
    /// Owner of the session that a holder's request creates, changes or loads a module into.
    pub(crate) owner: Option<SessionOwner>,
    /// Share by which another holder than the owner makes the request; `None` if the request needs no share. The owner
    /// can withdraw the share while the request is carried out.
    pub(crate) share: Option<ShareGrant>,
}

/// Decides on a request.
///
/// `rights_over` returns the owner of a session, and the session's shares; `None` for an unknown session and for a session
/// of the operator. `shipped` returns the bytes of a module that comes with weir. `body` is the module that came with the
/// request.
pub(crate) fn permit(
    requester: &Requester,
    request: ControlRequest,
    body: Option<&[u8]>,
    rights_over: &dyn Fn(&Name) -> Option<SharedRights>,
    shipped: &dyn Fn(&str) -> Option<&'static [u8]>,
) -> Result<Permitted, RequestRefusal> {
    let Requester::Holder(credential) = requester else {
        // A module with an invalid signature is refused for the operator, too.
        if let ControlRequest::Load { module, signatures, .. } = &request
            && !signatures.is_empty()
        {
            hash_and_signers(module, body, signatures, shipped)?;
        }
        return Ok(Permitted { request, owner: None, share: None });
    };
    let requests = HolderRequests { credential, rights_over, shipped };
    let needed = needed(&request);
    if let Needed::Operator(what) = needed {
        return Err(RequestRefusal::OperatorOnly(what));
    }
    // From this point on, an existing session has the node's name, also in the request.
    let found = match request.session() {
        Some(called) if !matches!(needed, Needed::New | Needed::StoredRecords) => {
            Some(requests.session(called, needed)?)
        }
        _ => None,
    };
    let Some(PermittedSession { name, owner, share }) = found else {
        let ControlRequest::Create(spec) = request else {
            return Ok(Permitted { request, owner: None, share: None });
        };
        let (spec, owner) = requests.create(spec)?;
        return Ok(Permitted { request: ControlRequest::Create(spec), owner: Some(owner), share: None });
    };
    let request = match request {
        ControlRequest::Change(change) => {
            ControlRequest::Change(HolderRequests::change(change, name, &owner)?)
        }
        ControlRequest::Close { .. } => ControlRequest::Close { session: name },
        ControlRequest::Load { module, signatures, replace, .. } => {
            requests.module(&owner.credential, &module, body, &signatures)?;
            ControlRequest::Load { session: name, module, signatures, replace }
        }
        ControlRequest::Unload { module, .. } => ControlRequest::Unload { session: name, module },
        ControlRequest::Follow { module, streams, .. } => {
            ControlRequest::Follow { session: name, module, streams }
        }
        other => other,
    };
    Ok(Permitted { request, owner: Some(owner), share })
}

/// An existing session over which the requester has the needed right.
pub(crate) struct PermittedSession {
    pub(crate) name: Name,
    pub(crate) owner: SessionOwner,
    pub(crate) share: Option<ShareGrant>,
}

/// Returns the existing session that a holder calls `called`, if the holder may follow its records.
pub(crate) fn followable_session(
    credential: &Arc<VerifiedCredential>,
    called: &Name,
    rights_over: &dyn Fn(&Name) -> Option<SharedRights>,
) -> Result<PermittedSession, RequestRefusal> {
    let requests = HolderRequests { credential, rights_over, shipped: &|_| None };
    requests.session(called, Needed::Shared(ShareableRight::Follow))
}

/// Checks of one holder's requests.
struct HolderRequests<'a> {
    credential: &'a Arc<VerifiedCredential>,
    rights_over: &'a dyn Fn(&Name) -> Option<SharedRights>,
    shipped: &'a dyn Fn(&str) -> Option<&'static [u8]>,
}

impl HolderRequests<'_> {
    /// Returns the session called `called`, if the holder has the needed right over it. For their own sessions,
    /// holders use the names that they gave them; for a delegate's session, the node's name.
    fn session(&self, called: &Name, needed: Needed) -> Result<PermittedSession, RequestRefusal> {
        let own = SessionOwner::name_of(self.credential, called);
        let concerns = |name: Name| {
            let shared = (self.rights_over)(&name)?;
            Some((name, shared.relation(self.credential)?, shared))
        };
        // For a session that does not concern the holder, the refusal is that of a missing session.
        let found = [own, called.clone()].into_iter().find_map(concerns);
        let (name, relation, shared) = found.ok_or_else(|| RequestRefusal::NoSession(called.clone()))?;
        let share = match (relation, needed) {
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
        Ok(PermittedSession { name, owner: shared.owner, share })
    }

    fn create(&self, spec: SessionSpec) -> Result<(SessionSpec, SessionOwner), RequestRefusal> {
        let given = spec.name.clone();
        let mut known = BTreeSet::new();
        // The check of a module hashes all of its bytes, so each module is checked only once.
        for module in
            spec.modules.iter().filter(|module| known.insert((module.module.as_str(), module.unmetered)))
        {
            self.module(self.credential, module, None, &[])?;
        }
        let mut channels = spec.channels;
        restrict_channels(&mut channels, self.credential)?;
        let mut processors = spec.processors;
        if processors.is_empty() {
            processors.extend(self.default_processor());
        }
        let grant = self.credential.grant();
        let profile = spec.profile.or_else(|| grant.profiles.iter().flatten().next().cloned());
        // The grant states the limits that the request leaves out.
        let limits = spec.limits.with_defaults(granted_limits(&grant.ceilings));
        // An unknown name of a field in the grant allows nothing.
        let known = |names: &BTreeSet<Name>| -> WriteFields {
            names.iter().filter_map(|name| WriteFields::find_field(name.as_str()).ok()).collect()
        };
        let writes = spec.writes.or_else(|| grant.writes.as_ref().map(known));
        let name = SessionOwner::name_of(self.credential, &given);
        let owner = SessionOwner { credential: Arc::clone(self.credential), session_name: given };
        let spec = SessionSpec { name, channels, processors, profile, ..spec };
        Ok((SessionSpec { limits, writes, ..spec }, owner))
    }

    fn change(change: Change, session: Name, owner: &SessionOwner) -> Result<Change, RequestRefusal> {
        let mut channels = change.channels;
        // The restrictions are those of the owner. A delegator who manages the owner's session may have fewer.
        restrict_channels(&mut channels, &owner.credential)?;
        Ok(Change { session, channels, ..change })
    }

    /// Returns a virtual CPU with all of the granted CPU time; `None` without a ceiling on CPU time.
    fn default_processor(&self) -> Option<ProcessorSpec> {
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
        let Some(known) = hash_and_signers(module, body, signatures, self.shipped)? else { return Ok(()) };
        known.check(owner, module)
    }
}

/// Returns the limits of a session whose description states none: the granted amount of each resource or its default
/// limit, whichever is lower.
fn granted_limits(ceilings: &Ceilings) -> Amounts {
    let granted = |(resource, limit): (Resource, &SessionLimit)| {
        let most = ceilings.get(resource)?;
        Some((resource, limit.default.map_or(most, |usual| usual.min(most))))
    };
    Resource::limits().filter_map(granted).collect()
}

/// The hash of a module, and the keys of its valid signatures; empty if there is none.
#[derive(Clone, Debug)]
pub(crate) struct HashAndSigners {
    hash: ModuleHash,
    signers: Vec<PublicKey>,
}

impl HashAndSigners {
    /// Checks that a credential allows the module as it is described.
    pub(crate) fn check(
        &self,
        credential: &VerifiedCredential,
        module: &ModuleSpec,
    ) -> Result<(), RequestRefusal> {
        let Self { hash, signers } = self;
        let mut excesses = credential.grant().excesses(&GrantRequest {
            module: Some((*hash, signers)),
            unmetered: module.unmetered,
            ..GrantRequest::default()
        });
        for excess in &mut excesses {
            excess.requested = format!("`{}`, {}", weir_units::escaped(&module.module), excess.requested);
        }
        if excesses.is_empty() { Ok(()) } else { Err(RequestRefusal::Excess(excesses)) }
    }
}

/// Returns the hash and signers of a module, or `None` if its bytes are unknown. An unknown module is refused later,
/// by the module loader.
pub(crate) fn hash_and_signers(
    module: &ModuleSpec,
    body: Option<&[u8]>,
    signatures: &[String],
    shipped: &dyn Fn(&str) -> Option<&'static [u8]>,
) -> Result<Option<HashAndSigners>, RequestRefusal> {
    let Some(bytes) = body.or_else(|| shipped(&module.module)) else { return Ok(None) };
    let hash = ModuleHash::of_bytes(module_bytes(bytes));
    Ok(Some(HashAndSigners { signers: signers(&hash, signatures)?, hash }))
}

/// Checks that a credential allows a module of which only the hash and the signatures are known.
pub(crate) fn check_by_hash(
    credential: &VerifiedCredential,
    module: &ModuleSpec,
    hash: &ModuleHash,
    signatures: &[String],
) -> Result<(), RequestRefusal> {
    HashAndSigners { signers: signers(hash, signatures)?, hash: *hash }.check(credential, module)
}

/// Restricts channels to the filters and the view of a credential.
fn restrict_channels(
    channels: &mut [ChannelSpec],
    credential: &VerifiedCredential,
) -> Result<(), RequestRefusal> {
    let granted = GrantedVisibility::from_credential(credential);
    channels.iter_mut().try_for_each(|channel| {
        channel.restrict(granted.clone()).ok_or_else(|| {
            let of_channel = |requested| format!("{requested}, in channel `{}`", channel.name);
            let (requested, given) =
                (channel.view.map_or_else(String::new, of_channel), granted.view.to_string());
            RequestRefusal::Excess(vec![GrantExcess { part: GrantPart::View, requested, given }])
        })
    })
}
