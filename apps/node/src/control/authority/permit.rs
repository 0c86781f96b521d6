//! From a request to what is done.

use super::{Asker, Needed, RequestRefusal, SessionOwner, SessionRights, SharedRights, needed};
use crate::control::protocol::{Change, ControlRequest};
use crate::control::share::ShareGrant;
use crate::control::spec::{ChannelSpec, ModuleSpec, ProcessorSpec, SessionSpec};
use crate::sessions::view::Bounds;
use std::collections::BTreeSet;
use std::sync::Arc;
use weir_admission::Name;
use weir_trust::credential::VerifiedCredential;
use weir_trust::grant::{
    Amounts, Ceilings, GrantExcess, GrantPart, GrantRequest, Limit, ModuleHash, Resource,
};
use weir_trust::key::PublicKey;
use weir_trust::signature::signers;
use weir_units::Nanos;
use weir_wire::WriteFields;

/// How often the slice of a virtual processor is renewed of which nothing is said.
const PERIOD: Nanos = Nanos(10 * Nanos::MILLISECOND.0);

/// A request that may be carried out.
#[derive(Debug)]
pub(crate) struct Permitted {
    /// With the node's own names.
    pub(crate) ask: ControlRequest,
    /// Whose the session is that it creates or changes, or loads a module into, where a holder asks.
    pub(crate) owner: Option<SessionOwner>,
    /// The share by which another holder than the owner asks. The owner can take it back while the request is carried out.
    pub(crate) by: Option<ShareGrant>,
}

/// Decides on a request.
///
/// `owner_of` says whose a session is, and with whom they share it: nothing where there is none, or it is the operator's. `shipped` are the bytes of the modules that come with weir; `body`
/// those of a module that comes with the request.
pub(crate) fn permit(
    asker: &Asker,
    ask: ControlRequest,
    body: Option<&[u8]>,
    owner_of: &dyn Fn(&Name) -> Option<SharedRights>,
    shipped: &dyn Fn(&str) -> Option<&'static [u8]>,
) -> Result<Permitted, RequestRefusal> {
    let Asker::Holder(credential) = asker else {
        // Who may load anything may still not say of a module what is not true.
        if let ControlRequest::Load { module, signatures, .. } = &ask
            && !signatures.is_empty()
        {
            signed(module, body, signatures, shipped)?;
        }
        return Ok(Permitted { ask, owner: None, by: None });
    };
    let desk = Desk { credential, owner_of, shipped };
    let needed = needed(&ask);
    if let Needed::Operator(what) = needed {
        return Err(RequestRefusal::Operator(what));
    }
    // From here on an existing session has the node's name for it.
    let found = match ask.session() {
        Some(called) if needed != Needed::New => Some(desk.session(called, needed)?),
        _ => None,
    };
    let Some(Found { name, owner, by }) = found else {
        let ControlRequest::Create(spec) = ask else { return Ok(Permitted { ask, owner: None, by: None }) };
        let (spec, owner) = desk.create(spec)?;
        return Ok(Permitted { ask: ControlRequest::Create(spec), owner: Some(owner), by: None });
    };
    let ask = match ask {
        ControlRequest::Change(change) => ControlRequest::Change(Desk::change(change, name, &owner)?),
        ControlRequest::Close { .. } => ControlRequest::Close { session: name },
        ControlRequest::Load { module, signatures, .. } => {
            desk.module(&owner.credential, &module, body, &signatures)?;
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
struct Found {
    name: Name,
    owner: SessionOwner,
    by: Option<ShareGrant>,
}

/// Where a holder's requests are looked at.
struct Desk<'a> {
    credential: &'a Arc<VerifiedCredential>,
    owner_of: &'a dyn Fn(&Name) -> Option<SharedRights>,
    shipped: &'a dyn Fn(&str) -> Option<&'static [u8]>,
}

impl Desk<'_> {
    /// A session over which the holder has the right that is needed. Holders name their own sessions as they created them, and a delegate's by the node's name.
    fn session(&self, called: &Name, needed: Needed) -> Result<Found, RequestRefusal> {
        let own = SessionOwner::name_of(self.credential, called);
        let concerns = |name: Name| {
            let shared = (self.owner_of)(&name)?;
            Some((name, shared.standing(self.credential)?, shared))
        };
        // Others' sessions are as if they were not there.
        let found = [own, called.clone()].into_iter().find_map(concerns);
        let (name, standing, shared) = found.ok_or_else(|| RequestRefusal::NoSession(called.clone()))?;
        let by = match (standing, needed) {
            (SessionRights::Own, _) | (SessionRights::Delegator, Needed::Delegator) => None,
            (SessionRights::Delegator, Needed::Shared(right)) => {
                let share = ShareGrant { right, key: *self.credential.holder() };
                if !shared.share.contains(&share) {
                    return Err(RequestRefusal::not_shared(called, share));
                }
                Some(share)
            }
            (SessionRights::Delegator, _) => return Err(RequestRefusal::NotOwner(called.clone())),
        };
        Ok(Found { name, owner: shared.owner, by })
    }

    fn create(&self, spec: SessionSpec) -> Result<(SessionSpec, SessionOwner), RequestRefusal> {
        let given = spec.name.clone();
        let mut known = BTreeSet::new();
        // Each once: all of its bytes are hashed.
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
        // Where nothing is said, all that is granted.
        let limits = spec.limits.or(granted_limits(&grant.ceilings));
        // A name that this node does not know allows nothing here.
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
        // Those of its owner, who may be allowed less than who asks.
        narrow(&mut channels, &owner.credential)?;
        Ok(Change { session, channels, ..change })
    }

    /// All the processor time that is granted, where there is a ceiling and nothing else is said.
    fn processor(&self) -> Option<ProcessorSpec> {
        let share = self.credential.grant().ceilings.cpu?;
        let slice = Nanos(PERIOD.0 / 1_000_000 * share.0.min(1_000_000));
        Some(ProcessorSpec {
            period: Some(PERIOD),
            slice: Some(slice),
            spare: false,
            ..ProcessorSpec::default()
        })
    }

    /// Whether a module may be loaded for the owner of a session.
    fn module(
        &self,
        owner: &VerifiedCredential,
        module: &ModuleSpec,
        body: Option<&[u8]>,
        signatures: &[String],
    ) -> Result<(), RequestRefusal> {
        let Some(signed) = signed(module, body, signatures, self.shipped)? else { return Ok(()) };
        signed.hold(owner, &module.module)
    }
}

/// The limits of a session that states none: all that is granted, and no more than is usual.
fn granted_limits(ceilings: &Ceilings) -> Amounts {
    let granted = |(resource, limit): (Resource, &Limit)| {
        let most = ceilings.get(resource)?;
        Some((resource, limit.default.map_or(most, |usual| usual.min(most))))
    };
    Resource::limits().filter_map(granted).collect()
}

/// What is known of a module that somebody wants to run: its hash, and who has signed it.
#[derive(Clone, Debug)]
pub(crate) struct Signed {
    hash: ModuleHash,
    signers: Vec<PublicKey>,
}

impl Signed {
    /// Holds it against what a credential allows. `name` is what it was asked for by: a hash says little.
    pub(crate) fn hold(&self, credential: &VerifiedCredential, name: &str) -> Result<(), RequestRefusal> {
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

/// A module's hash, and who has signed it. One that is not known is refused by whoever looks for it.
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

/// Holds a module of which only the hash is known against what a credential allows.
pub(crate) fn hold_known(
    credential: &VerifiedCredential,
    name: &str,
    hash: &ModuleHash,
    signatures: &[String],
) -> Result<(), RequestRefusal> {
    Signed { signers: signers(hash, signatures)?, hash: *hash }.hold(credential, name)
}

/// Their packets are among those of every filter of the chain, and they show of them what all views of the chain show.
fn narrow(channels: &mut [ChannelSpec], credential: &VerifiedCredential) -> Result<(), RequestRefusal> {
    let bounds = Bounds::of(credential);
    channels.iter_mut().try_for_each(|channel| {
        channel.bind(bounds.clone()).ok_or_else(|| {
            let of_channel = |asked| format!("{asked}, in channel `{}`", channel.name);
            let (asked, given) = (channel.view.map_or_else(String::new, of_channel), bounds.view.to_string());
            RequestRefusal::Excess(vec![GrantExcess { part: GrantPart::View, asked, given }])
        })
    })
}
