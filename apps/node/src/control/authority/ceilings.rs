//! Checks of a session against its owner's credential when the session is created or changed: the whole session as it would
//! be, and the usage of all sessions under each delegation of the chain.

use super::rights::is_from;
use super::{RequestRefusal, SessionOwner};
use crate::control::protocol::UsedStatus;
use crate::control::spec::{MappedPackets, ProcessorSpec, SessionSpec};
use crate::control::visibility::GrantedVisibility;
use weir_admission::Name;
use weir_trust::credential::VerifiedCredential;
use weir_trust::grant::{
    Ceilings, GrantExcess, GrantPart, GrantRequest, InterfaceName, PacketView, Resource,
};
use weir_trust::key::PublicKey;
use weir_wire::WriteFields;

/// Checks a session as it would be against its owner's credential. `others` are all other sessions of the node that
/// have an owner.
pub(crate) fn check<'a>(
    owner: &SessionOwner,
    spec: &SessionSpec,
    others: impl Iterator<Item = (&'a SessionOwner, &'a SessionSpec)>,
) -> Result<(), RequestRefusal> {
    check_parts(&owner.credential, &owner.given, spec)?;
    let asked = used(spec);
    let mut beyond = Vec::new();
    let (of_root, under) = used_under(&owner.credential, others);
    for (link, before) in owner.credential.chain().iter().zip(&under) {
        // The owner may learn their own sum. The sum under an earlier holder is withheld, as it includes the use of other
        // holders.
        let is_told = link.id == owner.credential.id();
        beyond.extend(past_ceilings(&link.holder.to_string(), &link.grant.ceilings, before, &asked, is_told));
    }
    // The node's limit of a root applies to all holders under the root together.
    let whose = of_root_in_words(owner.credential.root());
    beyond.extend(past_ceilings(&whose, &owner.credential.limit().ceilings, &of_root, &asked, false));
    // The refusal names, for the first exceeded resource, the ceiling with the least left: after a refusal that names
    // another ceiling, a request that fits it could fail again.
    let first = beyond.first().map(|exceeded| exceeded.resource);
    let of_first = beyond.into_iter().filter(|exceeded| Some(exceeded.resource) == first);
    match of_first.min_by_key(|exceeded| exceeded.left) {
        Some(exceeded) => Err(exceeded.refusal()),
        None => Ok(()),
    }
}

/// Checks all parts that do not depend on other sessions.
fn check_parts(
    credential: &VerifiedCredential,
    given: &Name,
    spec: &SessionSpec,
) -> Result<(), RequestRefusal> {
    let grant = credential.grant();
    let never = |what: String| Err(RequestRefusal::Never { session: given.clone(), what });
    if let Some(share) = spec.share.iter().find(|share| !is_from(credential, &share.key)) {
        return Err(RequestRefusal::not_from(given, share));
    }
    // A grant contains no names of other sessions' tables and services.
    if !spec.publish.is_empty() || !spec.read.is_empty() {
        return never("it would have named tables of others".to_owned());
    }
    if !spec.offers.is_empty() || !spec.uses.is_empty() {
        return never("it would have to do with services of other sessions".to_owned());
    }
    if spec.priority > 0 {
        return never(format!("it would have priority {} before others", spec.priority));
    }
    if let Some(output) = spec.outputs.iter().find(|output| output.tap.is_some()) {
        return never(format!("its output channel `{}` would be a device of the node's system", output.name));
    }
    let mut excesses = Vec::new();
    if let Some(profile) = &spec.profile {
        excesses.extend(grant.refuses(&GrantRequest { profile: Some(profile), ..GrantRequest::default() }));
    } else if let Some(profiles) = &grant.profiles {
        let given: Vec<&str> = profiles.iter().map(Name::as_str).collect();
        let given = if given.is_empty() { "none".to_owned() } else { given.join(", ") };
        let asked = "the node's own".to_owned();
        excesses.push(GrantExcess { part: GrantPart::Profile, asked, given });
    }
    for channel in &spec.channels {
        let wrong = |_| RequestRefusal::Never {
            session: given.clone(),
            what: format!("`{}` is no interface", channel.interface),
        };
        let interface: InterfaceName = channel.interface.parse().map_err(wrong)?;
        excesses
            .extend(grant.refuses(&GrantRequest { interface: Some(&interface), ..GrantRequest::default() }));
        let is_whole = grant.filters.is_empty() && grant.view.is_none_or(|view| view == PacketView::ALL);
        if channel.visibility == MappedPackets::All && !is_whole {
            let what = format!(
                "its channel `{}` would see all of the interface's memory (`visibility = \"all\"`), and the credential is for a part of it",
                channel.name
            );
            return never(what);
        }
        let bounds = GrantedVisibility::from_credential(credential);
        if let Some((missing, _)) =
            bounds.within.iter().find(|within| !channel.bounds.within.contains(within))
        {
            let (asked, given) =
                (format!("packets beside those of it, in channel `{}`", channel.name), missing.clone());
            excesses.push(GrantExcess { part: GrantPart::Traffic, asked, given });
        }
        // `whose` selects the key of pseudonyms, and `view` the packets that the channel's own filter sees.
        let is_bound = (channel.bounds.view, channel.bounds.whose) == (bounds.view, bounds.whose);
        if !is_bound || !channel.shows().is_at_most(&bounds.view) {
            let asked = format!("{}, in channel `{}`", channel.shows(), channel.name);
            excesses.push(GrantExcess { part: GrantPart::View, asked, given: bounds.view.to_string() });
        }
    }
    // A grant for packets of some interfaces allows sending only into these interfaces.
    for output in &spec.outputs {
        if let Ok(interface) = output.link.parse::<InterfaceName>() {
            let asked = GrantRequest { interface: Some(&interface), ..GrantRequest::default() };
            excesses.extend(grant.refuses(&asked).into_iter().map(|excess| GrantExcess {
                asked: format!("{}, to send there through output channel `{}`", excess.asked, output.name),
                ..excess
            }));
        }
    }
    let writes = spec.writes.unwrap_or(WriteFields::ALL).iter();
    let writes: Vec<Name> = writes.filter_map(|field| Name::new(field.name()).ok()).collect();
    excesses.extend(grant.refuses(&GrantRequest { writes: &writes, ..GrantRequest::default() }));
    let processors = spec.all_processors();
    let is_beyond = |cpu: &&ProcessorSpec| cpu.borrow || cpu.reservation().is_none();
    if let Some(cpu) = processors.iter().find(is_beyond).filter(|_| grant.ceilings.cpu.is_some()) {
        return never(format!(
            "its virtual processor `{}` would take time beyond what is granted: give it a period and a slice, and no `borrow`",
            cpu.name
        ));
    }
    let is_unstated =
        |resource: Resource| spec.limit(resource).is_none() && grant.ceilings.get(resource).is_some();
    if let Some((_, limit)) = Resource::limits().find(|(resource, _)| is_unstated(*resource)) {
        return never(limit.unstated.to_owned());
    }
    let unlimited = spec.outputs.iter().find(|output| output.cap.is_none());
    if let Some(output) = unlimited.filter(|_| grant.ceilings.bandwidth.is_some()) {
        return never(format!(
            "its output channel `{}` would take bandwidth beyond what is granted: give it a `cap`",
            output.name
        ));
    }
    if excesses.is_empty() { Ok(()) } else { Err(RequestRefusal::Excess(excesses)) }
}

/// The most that a session can use of each resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Used([u64; Resource::ALL.len()]);

impl Used {
    fn amount(&self, resource: Resource) -> u64 {
        self.0.get(resource as usize).copied().unwrap_or(0)
    }

    fn and(&self, other: &Self) -> Self {
        let mut both = *self;
        both.0.iter_mut().zip(other.0).for_each(|(sum, more)| *sum = sum.saturating_add(more));
        both
    }
}

fn used(spec: &SessionSpec) -> Used {
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
        // The session's modules may reserve memory up to the ceiling by themselves.
        Resource::Memory => spec.memory.0.max(spec.memory_ceiling().0),
        Resource::Bandwidth => {
            let rates =
                spec.outputs.iter().map(|output| output.cap.or(output.reserve).map_or(0, |rate| rate.0));
            rates.fold(0, u64::saturating_add)
        }
        Resource::Sessions => 1,
        // A session without a stated limit is unlimited: if a ceiling is set later, nothing is left for others.
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
    // Other holders can have thousands of sessions, so each session is visited only once.
    for (owner, spec) in sessions.filter(|(owner, _)| owner.credential.root() == credential.root()) {
        let used = used(spec);
        of_root = of_root.and(&used);
        // An identifier stands for a delegation with all delegations before it, so two chains are equal up to their last
        // common identifier.
        let common = chain.iter().zip(owner.credential.chain()).take_while(|(one, other)| one.id == other.id);
        for (sum, _) in under.iter_mut().zip(common) {
            *sum = sum.and(&used);
        }
    }
    (of_root, under)
}

/// A ceiling that the request exceeds.
struct ExceededCeiling {
    resource: Resource,
    asked: u64,
    given: u64,
    whose: String,
    left: u64,
    /// True if the refusal may tell the owner how much is left.
    is_told: bool,
}

impl ExceededCeiling {
    fn refusal(self) -> RequestRefusal {
        let Self { resource, asked, given, whose, left, is_told } = self;
        let definition = resource.definition();
        let all = [asked, given, left];
        let all = if is_told { &all[..] } else { &all[..2] };
        let show = |amount| definition.unit.show(amount, all);
        let (part, left) = (GrantPart::Resource(resource), is_told.then(|| show(left)));
        RequestRefusal::UsedUp {
            part,
            asked: show(asked),
            given: show(given),
            whose,
            left,
            less: definition.advice,
        }
    }
}

/// Returns the ceilings of one delegation, or of a root, that the request exceeds together with the present usage `before`.
fn past_ceilings<'a>(
    whose: &'a str,
    ceilings: &'a Ceilings,
    before: &'a Used,
    asked: &'a Used,
    is_told: bool,
) -> impl Iterator<Item = ExceededCeiling> + use<'a> {
    let exceeded = move |(resource, given): (Resource, u64)| {
        let (left, asked) = (given.saturating_sub(before.amount(resource)), asked.amount(resource));
        (asked > left).then(|| ExceededCeiling {
            resource,
            asked,
            given,
            whose: whose.to_owned(),
            left,
            is_told,
        })
    };
    ceilings.stated().filter_map(exceeded)
}

/// The reader of a report on usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UsageReader {
    Operator,
    Holder,
}

/// Returns the usage under a credential: the sum over its holder and the holder's delegates. The operator also reads
/// the sums under each earlier holder of the chain and under the root, which include other holders. `sessions` are all
/// sessions of the node that have an owner.
pub(crate) fn usage<'a>(
    credential: &VerifiedCredential,
    sessions: impl Iterator<Item = (&'a SessionOwner, &'a SessionSpec)>,
    reader: UsageReader,
) -> Vec<UsedStatus> {
    let (of_root, under) = used_under(credential, sessions);
    let mut all = Vec::new();
    let mut add = |whose: String, ceilings: &Ceilings, before: &Used| {
        for (resource, given) in ceilings.stated() {
            let definition = resource.definition();
            let (used, given) =
                (definition.unit.show(before.amount(resource), &[]), definition.unit.show(given, &[]));
            all.push(UsedStatus {
                holder: whose.clone(),
                resource: definition.title.to_owned(),
                used,
                granted: given,
            });
        }
    };
    if reader == UsageReader::Holder {
        // All ceilings of the chain and of the root hold for the holder, but the usage of others is not shown.
        let own = under.last().copied().unwrap_or_default();
        add(credential.holder().to_string(), &credential.grant().ceilings, &own);
        return all;
    }
    add(of_root_in_words(credential.root()), &credential.limit().ceilings, &of_root);
    for (link, under) in credential.chain().iter().zip(&under) {
        add(link.holder.to_string(), &link.grant.ceilings, under);
    }
    all
}

fn of_root_in_words(root: &PublicKey) -> String {
    format!("all credentials of {root} by this node's policy")
}
