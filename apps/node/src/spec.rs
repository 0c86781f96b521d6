//! What a session asks for: the same in the node's configuration and in a request to create one.

use crate::amounts::{self, Keys};
use crate::apart::Process;
use crate::counted;
pub use crate::handling::{Checksum, Field, SubFlowSpec};
use crate::link::OutputSpec;
pub use crate::offers::{OfferSpec, Pays, UseSpec};
use crate::quantity;
use crate::share::Share;
use crate::tables::TableGrant;
use crate::view::Bounds;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
pub use weir_netio::QUEUE_MAX;
use weir_sched::cpu::{WEIGHT_MAX, Weight};
use weir_session::{Name, Setting};
use weir_trust::grant::{Amounts, Resource};
use weir_units::{Bytes, Nanos, beside};
use weir_wire::WriteFields;
use weir_wire::view::AskedView;

/// Channels, virtual processors and modules of one session at most, of each; and of whatever else a request lists.
pub const PARTS_MAX: usize = 64;
/// The longest filter expression, in bytes.
pub const FILTER_BYTES_MAX: usize = 4096;
/// Packets that wait for a module of a channel without a `queue` at most.
pub const QUEUE_USUAL: u32 = 4096;
/// The shortest and the longest period of a virtual processor.
pub const PERIOD: std::ops::RangeInclusive<Nanos> = Nanos(100_000)..=Nanos(10 * Nanos::SECOND.0);

/// A session: a principal with reserved CPU and memory, the packets that it gets, and the modules that it runs on them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct SessionSpec {
    /// What it is called. No two sessions of a node have one name.
    #[serde(with = "quantity::text")]
    pub name: Name,
    /// Memory that it may use at most, for all its modules together. It is charged for all of it.
    #[serde(with = "quantity::text", default = "memory_default")]
    pub memory: Bytes,
    /// Memory that its modules may reserve for it by themselves at most; no more than `memory` where nothing is said.
    #[serde(default, with = "quantity::maybe", skip_serializing_if = "Option::is_none")]
    pub memory_max: Option<Bytes>,
    /// What that was when its modules last changed `memory` by themselves, where nothing is said of it: what they can have again at any time is nobody else's meanwhile.
    #[serde(skip)]
    pub memory_max_before: Option<Bytes>,
    /// Its limits, as far as they are stated: a key for each [resource](Resource) that has one.
    #[serde(flatten, skip_deserializing, serialize_with = "amounts::session")]
    pub limits: Amounts,
    /// Fields of packets that its modules may write; all that can be written where nothing is said.
    #[serde(default, deserialize_with = "counted::writes", skip_serializing_if = "Option::is_none")]
    pub writes: Option<WriteFields>,
    /// The operator's profile by which its modules are admitted; the node's own where none is named.
    #[serde(default, with = "quantity::maybe", skip_serializing_if = "Option::is_none")]
    pub profile: Option<Name>,
    /// When an interface's memory is full, those who read it lose packets in the order of this number, the lowest first.
    #[serde(default)]
    pub priority: u8,
    /// Where its modules run.
    #[serde(default, skip_serializing_if = "Process::is_usual")]
    pub process: Process,
    /// Its virtual processors; without any it has one without a reservation, `main`.
    #[serde(default, rename = "cpu", deserialize_with = "counted::list")]
    pub processors: Vec<ProcessorSpec>,
    /// Its channels.
    #[serde(default, rename = "channel", deserialize_with = "counted::list")]
    pub channels: Vec<ChannelSpec>,
    /// Its output channels: shares of links.
    #[serde(
        default,
        rename = "output",
        deserialize_with = "counted::list",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub outputs: Vec<OutputSpec>,
    /// Its modules.
    #[serde(default, rename = "module", deserialize_with = "counted::list")]
    pub modules: Vec<ModuleSpec>,
    /// Services of its modules that others may call.
    #[serde(
        default,
        rename = "offer",
        deserialize_with = "counted::list",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub offers: Vec<OfferSpec>,
    /// Services of others that its modules may call.
    #[serde(
        default,
        rename = "use",
        deserialize_with = "counted::list",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub uses: Vec<UseSpec>,
    /// Named tables that its modules may publish. Nobody else may, as long as it is there.
    #[serde(default, with = "counted::texts", skip_serializing_if = "Vec::is_empty")]
    pub publish: Vec<TableGrant>,
    /// Named tables that its modules may read.
    #[serde(default, with = "counted::texts", skip_serializing_if = "Vec::is_empty")]
    pub read: Vec<TableGrant>,
    /// Rights over the session that its owner shares with earlier holders in their credential's chain.
    #[serde(default, with = "counted::texts", skip_serializing_if = "Vec::is_empty")]
    pub share: Vec<Share>,
}

amounts::beside!(SessionSpec, limits, Keys::Session, and written);

fn memory_default() -> Bytes {
    Bytes(64 << 20)
}

/// A virtual processor: a slice of a core in each period, or a share of what others leave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessorSpec {
    /// What it is called in its session.
    #[serde(with = "quantity::text", default = "main")]
    pub name: Name,
    /// The core that it is on; the node chooses one with room where none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<u16>,
    /// How often its slice is renewed. With `slice`, or neither.
    #[serde(default, with = "quantity::maybe", skip_serializing_if = "Option::is_none")]
    pub period: Option<Nanos>,
    /// Processor time that it is guaranteed in each period.
    #[serde(default, with = "quantity::maybe", skip_serializing_if = "Option::is_none")]
    pub slice: Option<Nanos>,
    /// Whether it also takes time that nobody has reserved, or that others do not use.
    #[serde(default)]
    pub spare: bool,
    /// Its share of what is left, relative to others; for those without a reservation, and for spare time.
    #[serde(default = "weight_default")]
    pub weight: u32,
}

fn weight_default() -> u32 {
    100
}

pub(crate) fn main() -> Name {
    // A constant that is a name: the test below reads it.
    Name::new("main").unwrap_or_else(|_| unreachable!())
}

impl Default for ProcessorSpec {
    /// `main`, without a reservation.
    fn default() -> Self {
        Self { name: main(), core: None, period: None, slice: None, spare: true, weight: weight_default() }
    }
}

/// Packets for a session: those of an interface that a filter selects, and a queue for them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChannelSpec {
    /// What it is called in its session.
    #[serde(with = "quantity::text", default = "main")]
    pub name: Name,
    /// The interface that the packets are from.
    pub interface: String,
    /// Which of them, in the language of pcap-filter(7); all where it is empty.
    #[serde(default)]
    pub filter: String,
    /// What is shown of them; everything where nothing is said, or what a credential lets its holder see.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub view: Option<AskedView>,
    /// What a credential makes of it. It is the node's: neither a configuration nor a request says it.
    #[serde(skip)]
    pub(crate) bounds: Bounds,
    /// Packets that wait for each module at most. Memory for them comes from the session's. Without it, [`QUEUE_USUAL`] wait, as far as the node has memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<u32>,
    /// What the session's modules may read.
    #[serde(default)]
    pub sees: Sees,
    /// How far, in bytes of traffic, its oldest packet may lag behind the newest of the interface; half of the interface's arena where
    /// nothing is said. Only for channels that see all.
    #[serde(default, with = "quantity::maybe", skip_serializing_if = "Option::is_none")]
    pub lag: Option<Bytes>,
    /// What becomes of one that lags further.
    #[serde(default)]
    pub late: Late,
    /// Where its packets go on: out through the session's output channel of this name, or to the programs behind a TAP device of one. Its module
    /// decides which, and may change them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward: Option<String>,
    /// What becomes of packets that are to go on while the channel has no module.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub unattended: Unattended,
    /// How the packets are divided, so that none of them pushes out the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subflows: Option<SubFlowSpec>,
    /// Whether checksums are validated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<Checksum>,
    /// Whether modules get datagrams put together instead of their fragments. Only for channels that see what is selected.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reassemble: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde calls it with")]
fn is_usual(unattended: &Unattended) -> bool {
    *unattended == Unattended::default()
}

/// What becomes of packets of a forwarding channel that has no module, or has none any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unattended {
    /// They go on.
    #[default]
    Pass,
    /// They do not: where the module is what makes forwarding safe.
    Drop,
}

/// What is mapped for the modules of a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sees {
    /// A copy of the packets that the filter selects, and nothing else.
    #[default]
    Selected,
    /// The interface's own memory, with every packet of it: nothing is copied.
    All,
}

/// What becomes of a reader that lags too far behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Late {
    /// It loses its oldest packets.
    #[default]
    Lose,
    /// Its session is closed.
    Terminate,
}

/// A module in a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModuleSpec {
    /// What it is called in its session; the module's own name where nothing is said.
    #[serde(default, with = "quantity::maybe", skip_serializing_if = "Option::is_none")]
    pub name: Option<Name>,
    /// A shipped module's name, or in the configuration a file's path. A request brings the file's bytes with it.
    #[serde(deserialize_with = "counted::module")]
    pub module: String,
    /// Its parameters.
    #[serde(default, rename = "set", deserialize_with = "counted::settings")]
    pub settings: BTreeMap<String, Given>,
    /// The channel whose packets it gets.
    #[serde(with = "quantity::text", default = "main")]
    pub channel: Name,
    /// The virtual processor that it runs on.
    #[serde(with = "quantity::text", default = "main")]
    pub cpu: Name,
}

/// A parameter's value as TOML and JSON have it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Given {
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Whole(i64),
    /// A number.
    Number(f64),
    /// Text: also durations, prefixes, and what has a unit.
    Text(String),
    /// Several.
    List(Vec<Given>),
}

// A number is what was written: it is compared only to see whether a configuration has changed.
impl Eq for Given {}

impl Given {
    /// As the command line would have it.
    fn words(&self) -> Vec<String> {
        match self {
            Self::Bool(value) => vec![value.to_string()],
            Self::Whole(value) => vec![value.to_string()],
            Self::Number(value) => vec![value.to_string()],
            Self::Text(value) => vec![value.clone()],
            Self::List(values) => values.iter().flat_map(Self::words).collect(),
        }
    }
}

impl ModuleSpec {
    /// Its parameters as admission takes them.
    pub fn settings(&self) -> Vec<Setting> {
        self.settings.iter().map(|(name, given)| (name.clone(), given.words())).collect()
    }
}

/// What is wrong with a session's description. To blame is whoever wrote it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// Its modules are to run in processes of their own, and that is not for those.
    #[error("session `{session}`: with `process = \"own\"` there are no {what}")]
    Apart {
        /// The session.
        session: Name,
        /// What is not there.
        what: &'static str,
    },
    /// Two of one name.
    #[error("session `{session}` has two {what}s called `{name}`")]
    Twice {
        /// The session.
        session: Name,
        /// Channel, virtual processor or module.
        what: &'static str,
        /// Their name.
        name: Name,
    },
    /// Too many.
    #[error("session `{session}` has {count} {what}s; {PARTS_MAX} is the most")]
    TooMany {
        /// The session.
        session: Name,
        /// Of what.
        what: &'static str,
        /// So many.
        count: usize,
    },
    /// Half a reservation.
    #[error(
        "session `{session}`, virtual processor `{name}`: `period` and `slice` belong together, e.g. period = \"10ms\", slice = \"2ms\""
    )]
    Half {
        /// The session.
        session: Name,
        /// The virtual processor.
        name: Name,
    },
    /// A value out of range.
    #[error("session `{session}`, {what} `{name}`: `{key}` is {given}; it must be {wanted}")]
    Range {
        /// The session.
        session: Name,
        /// Channel, virtual processor or module.
        what: &'static str,
        /// Its name.
        name: Name,
        /// The key.
        key: &'static str,
        /// What it is.
        given: String,
        /// What would be right.
        wanted: String,
    },
    /// A session that could not keep what it has.
    #[error("session `{session}`: `memory_max` is {most}, which is less than its memory, {memory}", most = beside(*most, &[*memory]), memory = beside(*memory, &[*most]))]
    Ceiling {
        /// The session.
        session: Name,
        /// What it may reserve.
        most: Bytes,
        /// What it has reserved.
        memory: Bytes,
    },
    /// Packets that this machine sends would be forwarded too.
    #[error(
        "session `{session}`, channel `{channel}` forwards, and on interface {interface} it would see what this machine itself sends there, too:          write `outgoing = false` under that [[interface]]"
    )]
    Outgoing {
        /// The session.
        session: Name,
        /// The channel.
        channel: Name,
        /// The interface.
        interface: String,
    },
    /// A reference to something that is not there.
    #[error("session `{session}`, {what} `{name}`: there is no {missing} `{given}`; {}", there(known))]
    Missing {
        /// The session.
        session: Name,
        /// Channel or module.
        what: &'static str,
        /// Its name.
        name: String,
        /// What is missing.
        missing: &'static str,
        /// As it was named.
        given: String,
        /// What there is.
        known: Vec<String>,
    },
}

fn there(known: &[String]) -> String {
    if known.is_empty() { "there are none".to_owned() } else { format!("there is {}", known.join(", ")) }
}

impl SessionSpec {
    /// An empty session of this name.
    pub fn new(name: Name) -> Self {
        Self {
            name,
            memory: memory_default(),
            memory_max: None,
            memory_max_before: None,
            process: Process::default(),
            limits: Amounts::default(),
            writes: None,
            profile: None,
            priority: 0,
            processors: Vec::new(),
            channels: Vec::new(),
            outputs: Vec::new(),
            modules: Vec::new(),
            offers: Vec::new(),
            uses: Vec::new(),
            publish: Vec::new(),
            read: Vec::new(),
            share: Vec::new(),
        }
    }

    /// The limit of a resource: the usual one where none is stated.
    pub fn limit(&self, of: Resource) -> Option<u64> {
        let usual = of.row().limit.as_ref().and_then(|limit| limit.default);
        self.limits.get(of).or(usual).filter(|most| *most < u64::MAX)
    }

    /// What it may reserve of memory by itself.
    pub fn memory_ceiling(&self) -> Bytes {
        self.memory_max.or(self.memory_max_before).unwrap_or(self.memory).max(self.memory)
    }

    /// Its virtual processors, with the one that it has without saying so.
    pub fn all_processors(&self) -> Vec<ProcessorSpec> {
        if self.processors.is_empty() { vec![ProcessorSpec::default()] } else { self.processors.clone() }
    }

    /// Checks what can be checked without a node: names, ranges, references within the session, and to these interfaces and profiles.
    pub fn check(&self, interfaces: &[String], profiles: &[Name]) -> Result<(), SpecError> {
        let session = &self.name;
        let processors = self.all_processors();
        distinct(session, "virtual processor", processors.iter().map(|cpu| &cpu.name))?;
        distinct(session, "channel", self.channels.iter().map(|channel| &channel.name))?;
        distinct(session, "output channel", self.outputs.iter().map(|output| &output.name))?;
        self.outputs.iter().try_for_each(|output| output.check(session))?;
        self.channels.iter().try_for_each(|channel| self.check_forward(channel))?;
        distinct(session, "module", self.modules.iter().filter_map(|module| module.name.as_ref()))?;
        if self.modules.len() > PARTS_MAX {
            return Err(SpecError::TooMany {
                session: session.clone(),
                what: "module",
                count: self.modules.len(),
            });
        }
        distinct(session, "offer", self.offers.iter().map(|offer| &offer.service))?;
        distinct(session, "use", self.uses.iter().map(|used| &used.service))?;
        self.offers.iter().try_for_each(|offer| offer.check(session))?;
        self.check_tables()?;
        self.check_shares()?;
        self.check_process()?;
        if let Some(most) = self.memory_max.filter(|most| *most < self.memory) {
            return Err(SpecError::Ceiling { session: session.clone(), most, memory: self.memory });
        }
        processors.iter().try_for_each(|cpu| cpu.check(session))?;
        self.channels.iter().try_for_each(|channel| channel.check(session, interfaces))?;
        let missing = |what, name: String, missing, given: String, known| SpecError::Missing {
            session: session.clone(),
            what,
            name,
            missing,
            given,
            known,
        };
        if let Some(profile) = self.profile.as_ref().filter(|profile| !profiles.contains(profile)) {
            let known = profiles.iter().map(Name::to_string).collect();
            return Err(missing("session", session.to_string(), "profile", profile.to_string(), known));
        }
        for module in &self.modules {
            let name = || module.name.as_ref().map_or_else(|| module.module.clone(), Name::to_string);
            if !self.channels.iter().any(|channel| channel.name == module.channel) {
                let known = self.channels.iter().map(|channel| channel.name.to_string()).collect();
                return Err(missing("module", name(), "channel", module.channel.to_string(), known));
            }
            if !processors.iter().any(|cpu| cpu.name == module.cpu) {
                let known = processors.iter().map(|cpu| cpu.name.to_string()).collect();
                return Err(missing("module", name(), "virtual processor", module.cpu.to_string(), known));
            }
        }
        Ok(())
    }
}

impl SessionSpec {
    /// Checks that what goes on has somewhere to go, other than where it comes from, and one module at most that decides.
    fn check_forward(&self, channel: &ChannelSpec) -> Result<(), SpecError> {
        let Some(target) = &channel.forward else { return Ok(()) };
        let range = |key, given: String, wanted: &str| SpecError::Range {
            session: self.name.clone(),
            what: "channel",
            name: channel.name.clone(),
            key,
            given,
            wanted: wanted.to_owned(),
        };
        let output = self.outputs.iter().find(|output| output.name.as_str() == target);
        let is_tap = self.outputs.iter().any(|output| output.tap.as_ref() == Some(target));
        if output.is_none() && !is_tap {
            let taps = self.outputs.iter().filter_map(|output| output.tap.clone());
            return Err(SpecError::Missing {
                session: self.name.clone(),
                what: "channel",
                name: channel.name.to_string(),
                missing: "output channel or TAP device",
                given: target.clone(),
                known: self.outputs.iter().map(|output| output.name.to_string()).chain(taps).collect(),
            });
        }
        if output.is_some_and(|output| output.link == channel.interface) {
            let wanted = "an output channel of another link than the interface that the packets come from";
            return Err(range("forward", target.clone(), wanted));
        }
        let deciding = self.modules.iter().filter(|module| module.channel == channel.name).count();
        if deciding > 1 {
            let wanted = "left out where a channel has more than one module: one decides what goes on";
            return Err(range("forward", target.clone(), wanted));
        }
        Ok(())
    }

    /// Checks that its output channels have their links, and that nothing is forwarded from an interface on which what this machine sends is seen too:
    /// it would come back.
    pub fn check_links(&self, links: &[String], outgoing: &[String]) -> Result<(), SpecError> {
        if let Some(output) = self.outputs.iter().find(|output| !links.contains(&output.link)) {
            return Err(SpecError::Missing {
                session: self.name.clone(),
                what: "output channel",
                name: output.name.to_string(),
                missing: "link",
                given: output.link.clone(),
                known: links.to_vec(),
            });
        }
        let comes_back =
            |channel: &&ChannelSpec| channel.forward.is_some() && outgoing.contains(&channel.interface);
        if let Some(channel) = self.channels.iter().find(comes_back) {
            return Err(SpecError::Outgoing {
                session: self.name.clone(),
                channel: channel.name.clone(),
                interface: channel.interface.clone(),
            });
        }
        Ok(())
    }
}

pub(crate) fn distinct<'a>(
    session: &Name,
    what: &'static str,
    names: impl Iterator<Item = &'a Name>,
) -> Result<(), SpecError> {
    let mut seen = BTreeSet::new();
    let mut count = 0;
    for name in names {
        count += 1;
        if !seen.insert(name) {
            return Err(SpecError::Twice { session: session.clone(), what, name: name.clone() });
        }
    }
    if count > PARTS_MAX {
        return Err(SpecError::TooMany { session: session.clone(), what, count });
    }
    Ok(())
}

impl ProcessorSpec {
    /// Period and slice, where it has a reservation.
    pub fn reservation(&self) -> Option<(Nanos, Nanos)> {
        self.period.zip(self.slice)
    }

    fn check(&self, session: &Name) -> Result<(), SpecError> {
        let range = |key, given: String, wanted: String| SpecError::Range {
            session: session.clone(),
            what: "virtual processor",
            name: self.name.clone(),
            key,
            given,
            wanted,
        };
        if self.period.is_some() != self.slice.is_some() {
            return Err(SpecError::Half { session: session.clone(), name: self.name.clone() });
        }
        if let Some((period, slice)) = self.reservation() {
            if !PERIOD.contains(&period) {
                let wanted = format!("between {} and {}", PERIOD.start(), PERIOD.end());
                return Err(range("period", period.to_string(), wanted));
            }
            if slice.0 == 0 || slice > period {
                return Err(range(
                    "slice",
                    slice.to_string(),
                    format!("above 0 and at most the period, {period}"),
                ));
            }
        }
        if Weight::new(self.weight).is_none() {
            return Err(range("weight", self.weight.to_string(), format!("between 1 and {WEIGHT_MAX}")));
        }
        Ok(())
    }
}

impl ChannelSpec {
    fn check(&self, session: &Name, interfaces: &[String]) -> Result<(), SpecError> {
        let range = |key, given: String, wanted: String| SpecError::Range {
            session: session.clone(),
            what: "channel",
            name: self.name.clone(),
            key,
            given,
            wanted,
        };
        if !interfaces.contains(&self.interface) {
            return Err(SpecError::Missing {
                session: session.clone(),
                what: "channel",
                name: self.name.to_string(),
                missing: "interface",
                given: self.interface.clone(),
                known: interfaces.to_vec(),
            });
        }
        if let Some(queue) = self.queue.filter(|queue| !(1..=QUEUE_MAX).contains(queue)) {
            return Err(range("queue", queue.to_string(), format!("between 1 and {QUEUE_MAX} packets")));
        }
        if self.filter.len() > FILTER_BYTES_MAX {
            let given = format!("{} bytes long", self.filter.len());
            return Err(range("filter", given, format!("at most {FILTER_BYTES_MAX}")));
        }
        self.check_handling().map_err(|(key, given, wanted)| range(key, given, wanted))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<SessionSpec, String> {
        toml::from_str(text).map_err(|error| error.message().to_owned())
    }

    fn checked(text: &str) -> Result<SessionSpec, String> {
        let spec = read(text)?;
        let strict = Name::new("strict").map_err(|error| error.to_string())?;
        spec.check(&["eth0".to_owned()], &[strict]).map_err(|error| error.to_string())?;
        Ok(spec)
    }

    const WHOLE: &str = r#"
        name = "alice"
        memory = "32 MiB"
        profile = "strict"
        priority = 7
        cpu = [{ name = "fast", period = "10ms", slice = "2.5ms" }, { name = "rest", weight = 50 }]
        channel = [{ name = "web", interface = "eth0", filter = "tcp port 80", sees = "all", lag = "8 MiB", late = "terminate" }]
        [[module]]
        name = "w"
        module = "worm"
        channel = "web"
        cpu = "fast"
        set = { signatures = ["a", "b"], threshold = 3, window = "1s" }
    "#;

    #[test]
    fn a_session_says_the_same_in_toml_and_in_json() {
        let spec = checked(WHOLE).unwrap();
        assert_eq!(spec.processors[0].reservation(), Some((Nanos(10_000_000), Nanos(2_500_000))));
        assert_eq!(spec.channels[0].lag, Some(Bytes(8 << 20)));
        let words = |list: &[&str]| list.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let settings = [("signatures", &["a", "b"][..]), ("threshold", &["3"]), ("window", &["1s"])];
        assert_eq!(spec.modules[0].settings(), settings.map(|(key, list)| (key.to_owned(), words(list))));
        let json = serde_json::to_string(&spec).unwrap();
        assert_eq!(serde_json::from_str::<SessionSpec>(&json).unwrap(), spec);
    }

    #[test]
    fn what_is_not_said_is_sensible() {
        let spec =
            checked("name = \"a\"\nchannel = [{ interface = \"eth0\" }]\nmodule = [{ module = \"rtt\" }]")
                .unwrap();
        assert_eq!(spec.all_processors(), [ProcessorSpec::default()]);
        assert_eq!((spec.channels[0].sees, spec.channels[0].late), (Sees::Selected, Late::Lose));
        assert_eq!(spec.modules[0].channel, spec.channels[0].name);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        for (text, says) in [
            ("name = \"A\"", "`A` is not a name"),
            ("name = \"a\"\ncolour = 1", "unknown field `colour`"),
            ("name = \"a\"\nmemory = \"much\"", "`much` is not a number of bytes"),
            (
                "name = \"a\"\nmemory = \"8 MiB\"\nmemory_max = \"4 MiB\"",
                "`memory_max` is 4 MiB, which is less than its memory, 8 MiB",
            ),
            ("name = \"a\"\ncpu = [{ period = \"1ms\" }]", "`period` and `slice` belong together"),
            (
                "name = \"a\"\ncpu = [{ period = \"1ms\", slice = \"2ms\" }]",
                "`slice` is 2 ms; it must be above 0 and at most the period, 1 ms",
            ),
            (
                "name = \"a\"\ncpu = [{ period = \"1us\", slice = \"1us\" }]",
                "`period` is 1 us; it must be between 100 us and 10 s",
            ),
            ("name = \"a\"\ncpu = [{ weight = 0 }]", "`weight` is 0"),
            ("name = \"a\"\ncpu = [{}, {}]", "two virtual processors called `main`"),
            (
                "name = \"a\"\nchannel = [{ interface = \"eth1\" }]",
                "channel `main`: there is no interface `eth1`; there is eth0",
            ),
            (
                "name = \"a\"\nchannel = [{ interface = \"eth0\", queue = 0 }]",
                "`queue` is 0; it must be between 1 and 1000000 packets",
            ),
            (
                "name = \"a\"\nchannel = [{ interface = \"eth0\", sees = \"all\", reassemble = true }]",
                "`reassemble` is true; it must be false where `sees` is \"all\"",
            ),
            (
                "name = \"a\"\nchannel = [{ interface = \"eth0\", checksum = \"repair\" }]",
                "unknown variant `repair`",
            ),
            (
                "name = \"a\"\nchannel = [{ interface = \"eth0\", subflows = { by = [\"src_addr\"], queues = 1 } }]",
                "`subflows.queues` is 1; it must be between 2 and 1024, and at most `queue`",
            ),
            (
                "name = \"a\"\nchannel = [{ interface = \"eth0\", queue = 3, subflows = { by = [\"vlan\"], queues = 4 } }]",
                "`subflows.queues` is 4",
            ),
            (
                "name = \"a\"\nchannel = [{ interface = \"eth0\", subflows = { by = [], queues = 4 } }]",
                "`subflows.by` is empty; it must be at least one of src_addr",
            ),
            (
                "name = \"a\"\nchannel = [{ interface = \"eth0\", subflows = { by = [\"ttl\"], queues = 4 } }]",
                "unknown variant `ttl`",
            ),
            (
                "name = \"a\"\nchannel = [{ interface = \"eth0\", view = \"payload=some\" }]",
                "`payload` cannot be `some`; it is `all`, `none`, or a number of bytes",
            ),
            (
                "name = \"a\"\nchannel = [{ interface = \"eth0\", view = \"payload=none\", sees = \"all\" }]",
                "`sees` is \"all\"; it must be \"selected\" where its packets are shown by a view (`payload=none`)",
            ),
            (
                "name = \"a\"\noutput = [{ name = \"up\", link = \"eth1\" }]\nchannel = [{ interface = \"eth0\", view = \"ttl=zeroed\", forward = \"up\" }]",
                "`forward` is up; it must be left out where its packets are shown by a view (`ttl=zeroed`)",
            ),
            (
                "name = \"a\"\nchannel = [{ interface = \"eth0\", view = \"ports=zeroed\", checksum = \"verify\", subflows = { by = [\"src_port\"], queues = 4 } }]",
                "they would be divided by what is hidden",
            ),
            (
                "name = \"a\"\nmodule = [{ module = \"rtt\" }]",
                "module `rtt`: there is no channel `main`; there are none",
            ),
            (
                "name = \"a\"\noffer = [{ service = \"s\", callers = [\"b\"], queue = 0 }]",
                "offer `s`: `queue` is 0; it must be between 1 and 64 calls",
            ),
            (
                "name = \"a\"\nuse = [{ service = \"s\", of = \"b\" }, { service = \"s\", of = \"c\" }]",
                "two uses called `s`",
            ),
            ("name = \"a\"\nprofile = \"lax\"", "there is no profile `lax`; there is strict"),
            (
                "name = \"a\"\nwrites = [\"checksum\"]",
                "`checksum` is no field that can be written; there are macs",
            ),
            ("name = \"a\"\nkept_packets = -1", "invalid value"),
        ] {
            let error = checked(text).unwrap_err();
            assert!(error.contains(says), "{text}\n{error}");
        }
    }
}
