//! From a request to what is done.

use super::{Asker, Owner, Refusal};
use crate::protocol::{Change, Request};
use crate::spec::{ChannelSpec, ModuleSpec, ProcessorSpec, SessionSpec};
use std::sync::Arc;
use weir_session::Name;
use weir_trust::credential::Verified;
use weir_trust::grant::{ModuleHash, Request as Asked};
use weir_units::Nanos;

/// How often the slice of a virtual processor is renewed of which nothing is said.
const PERIOD: Nanos = Nanos(10 * Nanos::MILLISECOND.0);

/// A request that may be carried out.
#[derive(Debug)]
pub(crate) struct Permitted {
    /// With the node's own names.
    pub(crate) ask: Request,
    /// Whose a session is that it creates.
    pub(crate) owner: Option<Owner>,
}

/// Decides on a request.
///
/// `owner_of` says whose a session is: nothing where there is none, or it is the operator's. `shipped` are the bytes of the modules that come with weir; `body` those of a
/// module that comes with the request.
pub(crate) fn permit(
    asker: &Asker,
    ask: Request,
    body: Option<&[u8]>,
    owner_of: &dyn Fn(&Name) -> Option<Owner>,
    shipped: &dyn Fn(&str) -> Option<&'static [u8]>,
) -> Result<Permitted, Refusal> {
    let Asker::Holder(credential) = asker else { return Ok(Permitted { ask, owner: None }) };
    able(credential)?;
    let desk = Desk { credential, owner_of, shipped };
    let mut owner = None;
    let ask = match ask {
        Request::Show | Request::Watch { .. } | Request::Explain(_) | Request::Revoke => ask,
        Request::Create(spec) => {
            let (spec, whose) = desk.create(spec)?;
            owner = Some(whose);
            Request::Create(spec)
        }
        Request::Change(change) => Request::Change(desk.change(change)?),
        Request::Close { session } => Request::Close { session: desk.session(&session)?.0 },
        Request::Load { session, module } => {
            let (session, owner) = desk.session(&session)?;
            desk.module(&owner.credential, &module, body)?;
            Request::Load { session, module }
        }
        Request::Unload { session, module } => Request::Unload { session: desk.session(&session)?.0, module },
        Request::Follow { session, module, stream } => {
            Request::Follow { session: desk.session(&session)?.0, module, stream }
        }
        Request::PutTable { .. } | Request::RemoveTable { .. } => {
            return Err(Refusal::Operator("change named tables"));
        }
        Request::Rate(_) => return Err(Refusal::Operator("change links")),
        Request::Reload => return Err(Refusal::Operator("have the configuration read again")),
    };
    Ok(Permitted { ask, owner })
}

/// A condition that this node does not see to would be worth nothing.
fn able(credential: &Verified) -> Result<(), Refusal> {
    let grant = credential.grant();
    let unable = |what: &str| Err(Refusal::Unable(what.to_owned()));
    if grant.view.is_some_and(|view| view != weir_trust::grant::View::ALL) {
        return unable("a view");
    }
    if grant.writes.is_some() {
        return unable("fields that may be written");
    }
    if grant.ceilings.kept_packets.is_some() {
        return unable("kept packets");
    }
    Ok(())
}

/// Where a holder's requests are looked at.
struct Desk<'a> {
    credential: &'a Arc<Verified>,
    owner_of: &'a dyn Fn(&Name) -> Option<Owner>,
    shipped: &'a dyn Fn(&str) -> Option<&'static [u8]>,
}

impl Desk<'_> {
    /// The node's name of a session that the holder may ask for something about: his own by what he calls it, or that of somebody to whom he passed on the
    /// right, by the node's name.
    fn session(&self, called: &Name) -> Result<(Name, Owner), Refusal> {
        let own = Owner::name_of(self.credential, called);
        let under = |name: Name| {
            let owner = (self.owner_of)(&name).filter(|owner| owner.is_under(self.credential))?;
            Some((name, owner))
        };
        // Others' sessions are as if they were not there.
        [own, called.clone()].into_iter().find_map(under).ok_or_else(|| Refusal::NoSession(called.clone()))
    }

    fn create(&self, spec: SessionSpec) -> Result<(SessionSpec, Owner), Refusal> {
        let given = spec.name.clone();
        for module in &spec.modules {
            self.module(self.credential, module, None)?;
        }
        let mut channels = spec.channels;
        channels.iter_mut().for_each(|channel| narrow(channel, self.credential));
        let mut processors = spec.processors;
        if processors.is_empty() {
            processors.extend(self.processor());
        }
        let grant = self.credential.grant();
        let profile = spec.profile.or_else(|| grant.profiles.iter().flatten().next().cloned());
        // Where nothing is said, all that is granted.
        let records_per_second = spec.records_per_second.or(grant.ceilings.records_per_second);
        let name = Owner::name_of(self.credential, &given);
        let owner = Owner { credential: Arc::clone(self.credential), given };
        Ok((SessionSpec { name, channels, processors, profile, records_per_second, ..spec }, owner))
    }

    fn change(&self, change: Change) -> Result<Change, Refusal> {
        let (session, owner) = self.session(&change.session)?;
        let mut channels = change.channels;
        // Those of its owner, who may be allowed less than who asks.
        channels.iter_mut().for_each(|channel| narrow(channel, &owner.credential));
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
    fn module(&self, owner: &Verified, module: &ModuleSpec, body: Option<&[u8]>) -> Result<(), Refusal> {
        // One that is not known is refused by whoever looks for it.
        let Some(bytes) = body.or_else(|| (self.shipped)(&module.module)) else { return Ok(()) };
        let asked = Asked { module: Some((ModuleHash::of(bytes), &[])), ..Asked::default() };
        let excesses = owner.grant().refuses(&asked);
        if excesses.is_empty() { Ok(()) } else { Err(Refusal::Excess(excesses)) }
    }
}

/// Its packets are among those of every filter of the chain.
fn narrow(channel: &mut ChannelSpec, credential: &Verified) {
    channel.within = credential.grant().filters.iter().map(|filter| filter.as_str().to_owned()).collect();
}
