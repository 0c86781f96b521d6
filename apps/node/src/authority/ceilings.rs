//! What is held against a credential when a session is created or changed: all of the session as it would be then, and all that there is under the same chain.

use super::rights::is_from;
use super::{Owner, Refusal};
use crate::protocol::UsedShot;
use crate::spec::{ProcessorSpec, Sees, SessionSpec};
use crate::view::Bounds;
use weir_session::Name;
use weir_trust::credential::Verified;
use weir_trust::grant::{Ceilings, CpuShare, Excess, Interface, Part, Request, View};
use weir_trust::key::PublicKey;
use weir_units::{BitsPerSecond, Bytes, beside};
use weir_wire::WriteFields;

/// Holds a session as it would be against its owner's credential. `others` are all sessions of the node that are not the operator's, but for this one.
pub(crate) fn hold<'a>(
    owner: &Owner,
    spec: &SessionSpec,
    others: impl Iterator<Item = (&'a Owner, &'a SessionSpec)>,
) -> Result<(), Refusal> {
    hold_parts(&owner.credential, &owner.given, spec)?;
    let asked = used(spec);
    let mut beyond = Vec::new();
    let (of_root, under) = used_under(&owner.credential, others);
    for (link, before) in owner.credential.chain().iter().zip(&under) {
        // The owner reads their own sum. The sum under an earlier holder includes others, of whom the owner knows nothing.
        let is_told = link.id == owner.credential.id();
        beyond.extend(past_ceilings(&link.holder.to_string(), &link.grant.ceilings, before, &asked, is_told));
    }
    // What the node lets a root grant is for all who have their right from it.
    let whose = of_root_in_words(owner.credential.root());
    beyond.extend(past_ceilings(&whose, &owner.credential.limit().ceilings, &of_root, &asked, false));
    // Of what is asked for too much of, the ceiling that leaves the least: with any other somebody would ask again in vain.
    let first = beyond.first().map(|short| short.part);
    let of_first = beyond.into_iter().filter(|short| Some(short.part) == first);
    match of_first.min_by_key(|short| short.left) {
        Some(short) => Err(short.refusal()),
        None => Ok(()),
    }
}

/// What does not depend on other sessions.
fn hold_parts(credential: &Verified, given: &Name, spec: &SessionSpec) -> Result<(), Refusal> {
    let grant = credential.grant();
    let never = |what: String| Err(Refusal::Never { session: given.clone(), what });
    if let Some(share) = spec.share.iter().find(|share| !is_from(credential, &share.key)) {
        return Err(Refusal::not_from(given, share));
    }
    // Others' names are in none of these, and what they hold is not the holder's.
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
        excesses.extend(grant.refuses(&Request { profile: Some(profile), ..Request::default() }));
    } else if let Some(profiles) = &grant.profiles {
        let given: Vec<&str> = profiles.iter().map(Name::as_str).collect();
        let given = if given.is_empty() { "none".to_owned() } else { given.join(", ") };
        let asked = "the node's own".to_owned();
        excesses.push(Excess { part: Part::Profile, asked, given });
    }
    for channel in &spec.channels {
        let wrong = |_| Refusal::Never {
            session: given.clone(),
            what: format!("`{}` is no interface", channel.interface),
        };
        let interface: Interface = channel.interface.parse().map_err(wrong)?;
        excesses.extend(grant.refuses(&Request { interface: Some(&interface), ..Request::default() }));
        let is_whole = grant.filters.is_empty() && grant.view.is_none_or(|view| view == View::ALL);
        if channel.sees == Sees::All && !is_whole {
            let what = format!(
                "its channel `{}` would see all of the interface's memory (`sees = \"all\"`), and the credential is for a part of it",
                channel.name
            );
            return never(what);
        }
        let bounds = Bounds::of(credential);
        if let Some((missing, _)) =
            bounds.within.iter().find(|within| !channel.bounds.within.contains(within))
        {
            let (asked, given) =
                (format!("packets beside those of it, in channel `{}`", channel.name), missing.clone());
            excesses.push(Excess { part: Part::Traffic, asked, given });
        }
        // Whose it is says by which key it is shown, and what its holder may see by what its own filter selects.
        let is_bound = (channel.bounds.view, channel.bounds.whose) == (bounds.view, bounds.whose);
        if !is_bound || !channel.shows().is_at_most(&bounds.view) {
            let asked = format!("{}, in channel `{}`", channel.shows(), channel.name);
            excesses.push(Excess { part: Part::View, asked, given: bounds.view.to_string() });
        }
    }
    // Who may have packets of these interfaces alone may send into no others.
    for output in &spec.outputs {
        if let Ok(interface) = output.link.parse::<Interface>() {
            let asked = Request { interface: Some(&interface), ..Request::default() };
            excesses.extend(grant.refuses(&asked).into_iter().map(|excess| Excess {
                asked: format!("{}, to send there through output channel `{}`", excess.asked, output.name),
                ..excess
            }));
        }
    }
    let writes = spec.writes.unwrap_or(WriteFields::ALL).iter();
    let writes: Vec<Name> = writes.filter_map(|field| Name::new(field.name()).ok()).collect();
    excesses.extend(grant.refuses(&Request { writes: &writes, ..Request::default() }));
    let processors = spec.all_processors();
    let is_beyond = |cpu: &&ProcessorSpec| cpu.spare || cpu.reservation().is_none();
    if let Some(cpu) = processors.iter().find(is_beyond).filter(|_| grant.ceilings.cpu.is_some()) {
        return never(format!(
            "its virtual processor `{}` would take time beyond what is granted: give it a period and a slice, and no spare time",
            cpu.name
        ));
    }
    if spec.records_per_second.is_none() && grant.ceilings.records_per_second.is_some() {
        return never(
            "it would have more records taken than is granted: give it `records_per_second`".to_owned(),
        );
    }
    if spec.kept_packets.is_none() && grant.ceilings.kept_packets.is_some() {
        return never("it would keep more packets than is granted: give it `kept_packets`".to_owned());
    }
    let unlimited = spec.outputs.iter().find(|output| output.cap.is_none());
    if let Some(output) = unlimited.filter(|_| grant.ceilings.bandwidth.is_some()) {
        return never(format!(
            "its output channel `{}` would take bandwidth beyond what is granted: give it a `cap`",
            output.name
        ));
    }
    if excesses.is_empty() { Ok(()) } else { Err(Refusal::Excess(excesses)) }
}

/// What a session uses at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Used {
    /// In millionths of a core.
    cpu: u64,
    memory: u64,
    bandwidth: u64,
    records: u64,
    kept: u64,
    sessions: u64,
}

impl Used {
    fn and(&self, other: &Self) -> Self {
        Self {
            cpu: self.cpu.saturating_add(other.cpu),
            memory: self.memory.saturating_add(other.memory),
            bandwidth: self.bandwidth.saturating_add(other.bandwidth),
            records: self.records.saturating_add(other.records),
            kept: self.kept.saturating_add(other.kept),
            sessions: self.sessions.saturating_add(other.sessions),
        }
    }
}

fn used(spec: &SessionSpec) -> Used {
    // One of which nothing is said reserves nothing.
    let cpu = spec.processors.iter().filter_map(ProcessorSpec::reservation).map(|(period, slice)| {
        // A part of a millionth counts as one.
        let ppm = (u128::from(slice.0) * 1_000_000).div_ceil(u128::from(period.0.max(1)));
        u64::try_from(ppm).unwrap_or(u64::MAX)
    });
    let bandwidth = spec.outputs.iter().map(|output| output.cap.or(output.reserve).map_or(0, |rate| rate.0));
    Used {
        cpu: cpu.fold(0, u64::saturating_add),
        // Its modules may reserve so much by themselves.
        memory: spec.memory.0.max(spec.memory_ceiling().0),
        bandwidth: bandwidth.fold(0, u64::saturating_add),
        // One without a number has no limit: where a ceiling came only after it, nothing is left for others.
        records: spec.records_per_second.unwrap_or(u64::MAX),
        kept: spec.kept_packets.unwrap_or(u64::MAX),
        sessions: 1,
    }
}

/// What sessions use together: all under a credential's root, and all under each prefix of its chain.
fn used_under<'a>(
    credential: &Verified,
    sessions: impl Iterator<Item = (&'a Owner, &'a SessionSpec)>,
) -> (Used, Vec<Used>) {
    let chain = credential.chain();
    let (mut of_root, mut under) = (Used::default(), vec![Used::default(); chain.len()]);
    // There can be thousands, most of them others': each is looked at once.
    for (owner, spec) in sessions.filter(|(owner, _)| owner.credential.root() == credential.root()) {
        let used = used(spec);
        of_root = of_root.and(&used);
        // An identifier is that of a chain up to there, so chains that have one in common have all before it.
        let common = chain.iter().zip(owner.credential.chain()).take_while(|(one, other)| one.id == other.id);
        for (sum, _) in under.iter_mut().zip(common) {
            *sum = sum.and(&used);
        }
    }
    (of_root, under)
}

/// A part of what is given, how much of it, and how much is used and asked for.
type Share = (Part, Option<u64>, u64, u64);

fn shares(ceilings: &Ceilings, before: &Used, asked: &Used) -> [Share; 6] {
    let Ceilings { cpu, memory, bandwidth, records_per_second, kept_packets, sessions } = *ceilings;
    [
        (Part::Cpu, cpu.map(|share| share.0), before.cpu, asked.cpu),
        (Part::Memory, memory.map(|bytes| bytes.0), before.memory, asked.memory),
        (Part::Bandwidth, bandwidth.map(|rate| rate.0), before.bandwidth, asked.bandwidth),
        (Part::Records, records_per_second, before.records, asked.records),
        (Part::Kept, kept_packets, before.kept, asked.kept),
        (Part::Sessions, sessions, before.sessions, asked.sessions),
    ]
}

/// An amount of a part, in words.
fn shown(part: Part, amount: u64) -> String {
    shown_beside(part, amount, &[])
}

/// An amount of a part, in words that differ from those for other amounts.
fn shown_beside(part: Part, amount: u64, others: &[u64]) -> String {
    match part {
        // To the last digit.
        Part::Cpu => CpuShare(amount).to_string(),
        Part::Memory => beside(Bytes(amount), &others.iter().copied().map(Bytes).collect::<Vec<_>>()),
        Part::Bandwidth => {
            beside(BitsPerSecond(amount), &others.iter().copied().map(BitsPerSecond).collect::<Vec<_>>())
        }
        _ if amount == u64::MAX => "any number".to_owned(),
        _ => amount.to_string(),
    }
}

/// A ceiling that what is asked for does not fit under.
struct Short {
    part: Part,
    asked: u64,
    given: u64,
    whose: String,
    left: u64,
    /// The refusal tells the session's owner how much is left.
    is_told: bool,
}

impl Short {
    fn refusal(self) -> Refusal {
        let Self { part, asked, given, whose, left, is_told } = self;
        let all = [asked, given, left];
        let all = if is_told { &all[..] } else { &all[..2] };
        let left = is_told.then(|| shown_beside(part, left, all));
        let (asked, given) = (shown_beside(part, asked, all), shown_beside(part, given, all));
        Refusal::UsedUp { part, asked, given, whose, left, less: less(part) }
    }
}

/// By what one asks for less of a part.
fn less(part: Part) -> &'static str {
    match part {
        Part::Cpu => "ask for less with `--cpu`",
        Part::Memory => "ask for less with `--memory` and `--memory-max`",
        Part::Bandwidth => "ask for less with `cap=` in `--output`",
        Part::Records => "ask for less with `--records`",
        Part::Kept => "ask for less with `--kept`",
        _ => "do with those that there are",
    }
}

/// The ceilings of one prefix of a chain, or of a root, that what is asked for does not fit under beside what is used.
fn past_ceilings(
    whose: &str,
    ceilings: &Ceilings,
    before: &Used,
    asked: &Used,
    is_told: bool,
) -> impl Iterator<Item = Short> {
    let short = move |(part, given, before, asked): Share| {
        let given = given?;
        let left = given.saturating_sub(before);
        (asked > left).then(|| Short { part, asked, given, whose: whose.to_owned(), left, is_told })
    };
    shares(ceilings, before, asked).into_iter().filter_map(short)
}

/// The reader of a report on usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    /// The node's operator.
    Operator,
    /// The credential's holder.
    Holder,
}

/// Usage under a credential: the sum over its holder and the holder's delegates. The operator also reads the sums under each earlier holder of the chain and under the root,
/// which include other holders. `sessions` are all sessions of the node that belong to holders.
pub(crate) fn usage<'a>(
    credential: &Verified,
    sessions: impl Iterator<Item = (&'a Owner, &'a SessionSpec)>,
    reader: Reader,
) -> Vec<UsedShot> {
    let (of_root, under) = used_under(credential, sessions);
    let mut all = Vec::new();
    let mut say = |whose: String, ceilings: &Ceilings, before: &Used| {
        for (part, given, before, _) in shares(ceilings, before, &Used::default()) {
            let Some(given) = given else { continue };
            let (used, given) = (shown(part, before), shown(part, given));
            all.push(UsedShot { whose: whose.clone(), part: part.to_string(), used, given });
        }
    };
    if reader == Reader::Holder {
        // All ceilings of the chain and of the root hold for the holder, but other holders' parts in them are not shown.
        let own = under.last().copied().unwrap_or_default();
        say(credential.holder().to_string(), &credential.grant().ceilings, &own);
        return all;
    }
    say(of_root_in_words(credential.root()), &credential.limit().ceilings, &of_root);
    for (link, under) in credential.chain().iter().zip(&under) {
        say(link.holder.to_string(), &link.grant.ceilings, under);
    }
    all
}

fn of_root_in_words(root: &PublicKey) -> String {
    format!("all credentials of {root} by this node's policy")
}
