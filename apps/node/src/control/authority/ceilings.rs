//! Checks of a session against its owner's credential, before the session is created or changed. The checks concern
//! the session as it would be after the request, and the usage of all sessions under each delegation of the chain.

use super::rights::has_delegator;
use super::{RequestRefusal, SessionOwner};
use crate::control::protocol::{CeilingStatus, UsedStatus};
use crate::control::spec::{MappedPackets, ProcessorSpec, SessionSpec};
use crate::control::visibility::GrantedVisibility;
use weir_admission::Name;
use weir_trust::credential::VerifiedCredential;
use weir_trust::grant::{
    Ceilings, GrantExcess, GrantPart, GrantRequest, InterfaceName, PacketView, Resource,
};
use weir_trust::key::PublicKey;
use weir_wire::WriteFields;

/// Checks that its owner's credential allows a session with this description. `others` are all other sessions of the
/// node that have an owner.
pub(crate) fn check<'a>(
    owner: &SessionOwner,
    spec: &SessionSpec,
    others: impl Iterator<Item = (&'a SessionOwner, &'a SessionSpec)>,
) -> Result<(), RequestRefusal> {
    check_parts(&owner.credential, &owner.session_name, spec)?;
    let requested = used(spec);
    let mut beyond = Vec::new();
    let (of_root, under) = used_under(&owner.credential, others);
    for (link, before) in owner.credential.chain().iter().zip(&under) {
        // The refusal tells the remaining amount only for the owner's own ceiling. The usage under an earlier holder
        // includes that of other holders, and is withheld.
        let tells_rest = link.id == owner.credential.id();
        beyond.extend(past_ceilings(
            &link.holder.to_string(),
            &link.grant.ceilings,
            before,
            &requested,
            tells_rest,
        ));
    }
    // The node's limit of a root applies to all holders under the root together.
    let ceiling_holder = root_ceiling_holder(owner.credential.root());
    beyond.extend(past_ceilings(
        &ceiling_holder,
        &owner.credential.limit().ceilings,
        &of_root,
        &requested,
        false,
    ));
    // Of the ceilings on the first exceeded resource, the refusal names the one with the smallest remaining amount. A
    // request that fits this ceiling fits the others as well.
    let first = beyond.first().map(|exceeded| exceeded.resource);
    let of_first = beyond.into_iter().filter(|exceeded| Some(exceeded.resource) == first);
    match of_first.min_by_key(|exceeded| exceeded.left) {
        Some(exceeded) => Err(exceeded.refusal()),
        None => Ok(()),
    }
}

/// Checks the parts of a session that do not depend on other sessions. `session` is the session's name in the request.
fn check_parts(
    credential: &VerifiedCredential,
    session: &Name,
    spec: &SessionSpec,
) -> Result<(), RequestRefusal> {
    let grant = credential.grant();
    let not_grantable = |what: String| Err(RequestRefusal::NotGrantable { session: session.clone(), what });
    if let Some(share) = spec.share.iter().find(|share| !has_delegator(credential, &share.key)) {
        return Err(RequestRefusal::not_from(session, share));
    }
    // A grant cannot name tables or services, so no grant can allow their use.
    if !spec.publish.is_empty() || !spec.read.is_empty() {
        return not_grantable("it would publish or read named tables".to_owned());
    }
    if !spec.offers.is_empty() || !spec.uses.is_empty() {
        return not_grantable("it would offer or use services".to_owned());
    }
    if spec.priority > 0 {
        return not_grantable(format!("it would have priority {}", spec.priority));
    }
    if let Some(output) = spec.outputs.iter().find(|output| output.tap.is_some()) {
        return not_grantable(format!("its output channel `{}` would have a TAP device", output.name));
    }
    let mut excesses = Vec::new();
    if let Some(profile) = &spec.profile {
        excesses.extend(grant.excesses(&GrantRequest { profile: Some(profile), ..GrantRequest::default() }));
    } else if let Some(profiles) = &grant.profiles {
        let given: Vec<&str> = profiles.iter().map(Name::as_str).collect();
        let given = if given.is_empty() { "none".to_owned() } else { given.join(", ") };
        let requested = "the node's own".to_owned();
        excesses.push(GrantExcess { part: GrantPart::Profile, requested, given });
    }
    for channel in &spec.channels {
        let wrong = |_| RequestRefusal::NotGrantable {
            session: session.clone(),
            what: format!("`{}` is not the name of an interface", channel.interface),
        };
        let interface: InterfaceName = channel.interface.parse().map_err(wrong)?;
        excesses
            .extend(grant.excesses(&GrantRequest { interface: Some(&interface), ..GrantRequest::default() }));
        let is_whole = grant.filters.is_empty() && grant.view.is_none_or(|view| view == PacketView::ALL);
        if channel.visibility == MappedPackets::All && !is_whole {
            let what = format!(
                "its channel `{}` would see all of the interface's packets (`visibility = \"all\"`), and the credential allows only some packets or fields",
                channel.name
            );
            return not_grantable(what);
        }
        let granted = GrantedVisibility::from_credential(credential);
        if let Some((missing, _)) =
            granted.filters.iter().find(|filter| !channel.granted.filters.contains(filter))
        {
            let (requested, given) =
                (format!("packets that this filter rejects, in channel `{}`", channel.name), missing.clone());
            excesses.push(GrantExcess { part: GrantPart::Traffic, requested, given });
        }
        // The key of pseudonyms depends on `first_grant`, and the result of the channel's own filter on `view`.
        let is_bound =
            (channel.granted.view, channel.granted.first_grant) == (granted.view, granted.first_grant);
        if !is_bound || !channel.effective_view().is_at_most(&granted.view) {
            let requested = format!("{}, in channel `{}`", channel.effective_view(), channel.name);
            excesses.push(GrantExcess { part: GrantPart::View, requested, given: granted.view.to_string() });
        }
    }
    // A grant for packets of certain interfaces allows sending only into these interfaces.
    for output in &spec.outputs {
        if let Ok(interface) = output.link.parse::<InterfaceName>() {
            let requested = GrantRequest { interface: Some(&interface), ..GrantRequest::default() };
            excesses.extend(grant.excesses(&requested).into_iter().map(|excess| GrantExcess {
                requested: format!(
                    "{}, to send into it through output channel `{}`",
                    excess.requested, output.name
                ),
                ..excess
            }));
        }
    }
    let writes = spec.writes.unwrap_or(WriteFields::ALL).iter();
    let writes: Vec<Name> = writes.filter_map(|field| Name::new(field.name()).ok()).collect();
    excesses.extend(grant.excesses(&GrantRequest { writes: &writes, ..GrantRequest::default() }));
    let processors = spec.all_processors();
    let is_beyond = |cpu: &&ProcessorSpec| cpu.borrow || cpu.reservation().is_none();
    if let Some(cpu) = processors.iter().find(is_beyond).filter(|_| grant.ceilings.cpu.is_some()) {
        return not_grantable(format!(
            "its virtual CPU `{}` would take time beyond what is granted: give it a period and a slice, and no `borrow`",
            cpu.name
        ));
    }
    let is_unstated =
        |resource: Resource| spec.limit(resource).is_none() && grant.ceilings.get(resource).is_some();
    if let Some((_, limit)) = Resource::limits().find(|(resource, _)| is_unstated(*resource)) {
        return not_grantable(limit.refusal_if_unstated.to_owned());
    }
    let unlimited = spec.outputs.iter().find(|output| output.cap.is_none());
    if let Some(output) = unlimited.filter(|_| grant.ceilings.bandwidth.is_some()) {
        return not_grantable(format!(
            "its output channel `{}` would take bandwidth beyond what is granted: give it a `cap`",
            output.name
        ));
    }
    if excesses.is_empty() { Ok(()) } else { Err(RequestRefusal::Excess(excesses)) }
}

/// The maximum amount of each resource that one or more sessions can use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Used([u64; Resource::ALL.len()]);

impl Used {
    pub(super) fn amount(&self, resource: Resource) -> u64 {
        self.0.get(resource as usize).copied().unwrap_or(0)
    }

    pub(super) fn plus(&self, other: &Self) -> Self {
        let mut both = *self;
        both.0.iter_mut().zip(other.0).for_each(|(sum, more)| *sum = sum.saturating_add(more));
        both
    }

    /// Returns the stated ceilings, with this usage under each.
    pub(super) fn under(&self, ceilings: &Ceilings) -> impl Iterator<Item = CeilingStatus> {
        ceilings.stated().map(|(resource, granted)| {
            let (definition, used) = (resource.definition(), self.amount(resource));
            CeilingStatus {
                resource: definition.title.to_owned(),
                used,
                granted,
                used_text: definition.unit.show(used, &[]),
                granted_text: definition.unit.show(granted, &[]),
            }
        })
    }
}

/// Returns the maximum amounts that a session can use.
pub(super) fn used(spec: &SessionSpec) -> Used {
    let mut used = Used::default();
    for (place, resource) in used.0.iter_mut().zip(Resource::ALL) {
        *place = used_of(spec, *resource);
    }
    used
}

fn used_of(spec: &SessionSpec, resource: Resource) -> u64 {
    match resource {
        Resource::Cpu => {
            // A virtual CPU without a reservation reserves nothing.
            let cpu = spec.processors.iter().filter_map(ProcessorSpec::reservation).map(|(period, slice)| {
                // Rounded up to a millionth.
                let ppm = (u128::from(slice.0) * 1_000_000).div_ceil(u128::from(period.0.max(1)));
                u64::try_from(ppm).unwrap_or(u64::MAX)
            });
            cpu.fold(0, u64::saturating_add)
        }
        // The session's modules can extend the reservation up to the memory ceiling.
        Resource::Memory => spec.memory.0.max(spec.memory_ceiling().0),
        Resource::Bandwidth => {
            let rates =
                spec.outputs.iter().map(|output| output.cap.or(output.reserve).map_or(0, |rate| rate.0));
            rates.fold(0, u64::saturating_add)
        }
        Resource::Sessions => 1,
        // A session without a limit counts as unlimited usage: under a ceiling that is set later, nothing is left for
        // other sessions.
        _ => spec.limit(resource).unwrap_or(u64::MAX),
    }
}

/// Returns the usage of all sessions under a credential's root, and of all sessions under each delegation of its chain.
fn used_under<'a>(
    credential: &VerifiedCredential,
    sessions: impl Iterator<Item = (&'a SessionOwner, &'a SessionSpec)>,
) -> (Used, Vec<Used>) {
    let chain = credential.chain();
    let (mut of_root, mut under) = (Used::default(), vec![Used::default(); chain.len()]);
    // There can be thousands of sessions, so each session is visited only once.
    for (owner, spec) in sessions.filter(|(owner, _)| owner.credential.root() == credential.root()) {
        let used = used(spec);
        of_root = of_root.plus(&used);
        // The identifier of a delegation depends on all earlier delegations, so two chains are equal up to their last
        // common identifier.
        let common = chain.iter().zip(owner.credential.chain()).take_while(|(one, other)| one.id == other.id);
        for (sum, _) in under.iter_mut().zip(common) {
            *sum = sum.plus(&used);
        }
    }
    (of_root, under)
}

/// A ceiling that the request would exceed.
struct ExceededCeiling {
    resource: Resource,
    requested: u64,
    given: u64,
    ceiling_holder: String,
    left: u64,
    /// True if the refusal may state the remaining amount.
    tells_rest: bool,
}

impl ExceededCeiling {
    fn refusal(self) -> RequestRefusal {
        let Self { resource, requested, given, ceiling_holder, left, tells_rest } = self;
        let definition = resource.definition();
        let all = [requested, given, left];
        let all = if tells_rest { &all[..] } else { &all[..2] };
        let show = |amount| definition.unit.show(amount, all);
        let (part, left) = (GrantPart::Resource(resource), tells_rest.then(|| show(left)));
        RequestRefusal::CeilingExceeded {
            part,
            requested: show(requested),
            given: show(given),
            ceiling_holder,
            left,
            advice: definition.advice,
        }
    }
}

/// Returns the ceilings of one delegation, or of a root, that the requested amounts would exceed in addition to the
/// present usage `before`.
fn past_ceilings<'a>(
    ceiling_holder: &'a str,
    ceilings: &'a Ceilings,
    before: &'a Used,
    requested: &'a Used,
    tells_rest: bool,
) -> impl Iterator<Item = ExceededCeiling> + use<'a> {
    let exceeded = move |(resource, given): (Resource, u64)| {
        let (left, requested) = (given.saturating_sub(before.amount(resource)), requested.amount(resource));
        (requested > left).then(|| ExceededCeiling {
            resource,
            requested,
            given,
            ceiling_holder: ceiling_holder.to_owned(),
            left,
            tells_rest,
        })
    };
    ceilings.stated().filter_map(exceeded)
}

/// The audience to which usage under a credential is shown. An operator sees more than a holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UsageAudience {
    Operator,
    Holder,
}

/// Returns the usage under a credential: the sum over the sessions of its holder and of the holder's delegates. An
/// operator also gets the sums under each earlier holder of the chain and under the root, which include other holders.
/// `sessions` are all sessions of the node that have an owner.
pub(crate) fn usage<'a>(
    credential: &VerifiedCredential,
    sessions: impl Iterator<Item = (&'a SessionOwner, &'a SessionSpec)>,
    audience: UsageAudience,
) -> Vec<UsedStatus> {
    let (of_root, under) = used_under(credential, sessions);
    let mut all = Vec::new();
    let mut add = |ceiling_holder: String, ceilings: &Ceilings, before: &Used| {
        all.extend(before.under(ceilings).map(|status| UsedStatus {
            holder: ceiling_holder.clone(),
            resource: status.resource,
            used: status.used_text,
            granted: status.granted_text,
        }));
    };
    if audience == UsageAudience::Holder {
        // The ceilings of earlier holders and of the root apply as well, but the usage under them includes other
        // holders.
        let own = under.last().copied().unwrap_or_default();
        add(credential.holder().to_string(), &credential.grant().ceilings, &own);
        return all;
    }
    add(root_ceiling_holder(credential.root()), &credential.limit().ceilings, &of_root);
    for (link, under) in credential.chain().iter().zip(&under) {
        add(link.holder.to_string(), &link.grant.ceilings, under);
    }
    all
}

fn root_ceiling_holder(root: &PublicKey) -> String {
    format!("all credentials of {root} by this node's policy")
}
