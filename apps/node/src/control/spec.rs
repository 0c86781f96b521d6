//! The description of a session: one structure for the node's configuration, requests and command lines, and the change that is derived from it.

mod check;
mod derived;
mod error;

pub(crate) use check::distinct;
pub use derived::{Keyed, SpecKey};
pub use error::SpecError;

use crate::control::amounts::{self, AmountKeys};
use crate::control::apart::Process;
use crate::control::counted;
pub use crate::control::handling::{Checksum, ShardField, SubFlowSpec};
pub use crate::control::offers::{CompileBilling, OfferSpec, UseSpec};
use crate::control::quantity;
use crate::control::share::ShareGrant;
use crate::link::OutputSpec;
use crate::sessions::tables::TableGrant;
use crate::sessions::view::Bounds;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use weir_admission::{Name, ParameterSetting};
pub use weir_netio::QUEUE_MAX;
use weir_trust::grant::{Amounts, Resource};
use weir_units::{Bytes, Nanos};
use weir_wire::WriteFields;
use weir_wire::view::RequestedView;

/// Channels, virtual processors and modules of one session at most, of each; and of whatever else a request lists.
pub const PARTS_MAX: usize = 64;
/// The longest filter expression, in bytes.
pub const FILTER_BYTES_MAX: usize = 4096;
/// Packets that wait for a module of a channel without a `queue` at most.
pub const QUEUE_USUAL: u32 = 4096;
/// The shortest and the longest period of a virtual processor.
pub const PERIOD: std::ops::RangeInclusive<Nanos> = Nanos(100_000)..=Nanos(10 * Nanos::SECOND.0);

derived::session! {
    fixed {
        /// The session's name. No two sessions of a node have one name.
        #[serde(with = "quantity::text")]
        name: Name;
        /// The reservable memory when the session's modules last changed `memory` by themselves, where `memory_max` is not stated: they can have it again at any time.
        #[serde(skip)]
        memory_max_before: Option<Bytes>;
        /// The limits, as far as they are stated: a key for each [resource](Resource) that has one.
        #[serde(flatten, skip_deserializing, serialize_with = "amounts::session")]
        limits: Amounts;
        /// The modules.
        #[serde(default, rename = "module", deserialize_with = "counted::list")]
        modules: Vec<ModuleSpec>;
    }
    values {
        /// Memory that it may use at most, for all its modules together.
        #[serde(default = "memory_default", with = "quantity::text")]
        memory: Bytes = memory_default(), "memory BYTES", #[serde(with = "quantity::maybe")] change memory;
        /// Where its modules run: in the node's process, or each in a process of its own, which has nothing but what the module may see [default: node].
        #[serde(default, skip_serializing_if = "quantity::is_default")]
        process: Process = Process::Node, "process node|own";
        /// Under overload sessions lose packets in the order of this number, the lowest first.
        #[serde(default)]
        priority: u8 = 0, "priority PRIORITY", change priority;
    }
    options {
        /// Memory that its modules may reserve for it by themselves [default: no more than --memory].
        #[serde(with = "quantity::maybe")]
        memory_max: Bytes, "memory-max BYTES";
        /// Fields of packets that its modules may write, such as ttl,dscp; none, or all [default: all].
        #[serde(deserialize_with = "counted::writes")]
        writes: WriteFields, "write FIELDS";
        /// The profile of the node's configuration by which modules are admitted that are loaded from then on.
        #[serde(with = "quantity::maybe")]
        profile: Name, "profile NAME";
    }
    lists {
        /// A virtual processor: name, core, period, slice, spare, weight.
        #[serde(deserialize_with = "counted::list")]
        "cpu" processors: ProcessorSpec, "cpu KEY=VALUE[,...]", "virtual processor" by |cpu| &cpu.name,
        " One that there is (by its name) is changed, another is new";
        /// A channel: name, interface, filter, view (what is shown of its packets, such as payload=none), queue, sees (selected or all), lag, late (lose or terminate), checksum=verify (drops those with a wrong one), reassemble, forward (where its packets go on), unattended (pass or drop). Write \, for a comma in a filter, or put it between double quotes.
        #[serde(deserialize_with = "counted::list")]
        "channel" channels: ChannelSpec, "channel KEY=VALUE[,...]", "channel" by |channel| &channel.name,
        " One that there is (by its name), and that no module is loaded for, is changed, another is new";
        /// An output channel, a share of a link: name, link, reserve, period, limit, cap, weight, queue, filter (what may go out), tap.
        #[serde(deserialize_with = "counted::list")]
        #[create(skip_serializing_if = "Vec::is_empty")]
        "output" outputs: OutputSpec, "output KEY=VALUE[,...]", "output channel" by |output| &output.name,
        " One that there is (by its name) is changed, another is new";
        /// A service of its modules that others may call: service, callers (sessions, with spaces between them), queue, pays (callee or caller).
        #[serde(deserialize_with = "counted::list")]
        #[create(skip_serializing_if = "Vec::is_empty")]
        "offer" offers: OfferSpec, "offer KEY=VALUE[,...]", "offer" by |offer| &offer.service,
        " One that there is (by its name) is changed, another is new",
        gone {
            /// Offer this service no longer; calls that were accepted are still answered.
            withdraw: Name, "withdraw SERVICE"
        };
        /// A service of another session that its modules may call: service, of (the session), pays (what a call may cost it).
        #[serde(deserialize_with = "counted::list")]
        #[create(skip_serializing_if = "Vec::is_empty")]
        "use" uses: UseSpec, "use KEY=VALUE[,...]", "use" by |used| &used.service,
        " One that there is (by its name) is changed, another is new",
        gone {
            /// Use this service no longer.
            forgo: Name, "forgo SERVICE"
        };
        /// A named table that its modules may publish, and nobody else: NAME, or LOCAL=NAME where they call it otherwise.
        #[serde(with = "counted::texts")]
        #[create(skip_serializing_if = "Vec::is_empty")]
        "publish" publish: TableGrant, "publish TABLE", "own table" by |table| &table.local,
        " One that there is (by its local name) is changed, another is new",
        gone {
            /// Its modules may publish this table, by its local name, no longer: it shows nothing any more, and is anybody's.
            revoke_publish: Name, "revoke-publish LOCAL"
        };
        /// A named table that its modules may read: NAME, or LOCAL=NAME where they call it otherwise.
        #[serde(with = "counted::texts")]
        #[create(skip_serializing_if = "Vec::is_empty")]
        "read" read: TableGrant, "read TABLE", "readable table" by |table| &table.local,
        " One that there is (by its local name) is changed, another is new",
        gone {
            /// Its modules may read this table, by its local name, no longer: from their next call on it is empty for them.
            revoke_read: Name, "revoke-read LOCAL"
        };
        /// A right over the session for an earlier holder of your credential: follow=KEY (read its records), manage=KEY (load, unload and change). Both show them its channels and modules. Without a right they can close it and read its sums, and nothing else.
        #[serde(with = "counted::texts")]
        #[create(skip_serializing_if = "Vec::is_empty")]
        "share" share: ShareGrant, "share RIGHT=KEY", "share" by |share| share, "",
        gone {
            /// Share this right no longer: it ends at once, also for a `weir follow` that runs.
            unshare: ShareGrant, "unshare RIGHT=KEY"
        };
    }
}

amounts::beside!(SessionSpec, limits, AmountKeys::Session, and written);
amounts::beside!(Change, limits, AmountKeys::Session, and written);

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
    pub view: Option<RequestedView>,
    /// What a credential makes of it. It is the node's: neither a configuration nor a request says it.
    #[serde(skip)]
    pub(crate) bounds: Bounds,
    /// Packets that wait for each module at most. Memory for them comes from the session's. Without it, [`QUEUE_USUAL`] wait, as far as the node has memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<u32>,
    /// What the session's modules may read.
    #[serde(default)]
    pub sees: RecordVisibility,
    /// How far, in bytes of traffic, its oldest packet may lag behind the newest of the interface; half of the interface's arena where
    /// nothing is said. Only for channels that see all.
    #[serde(default, with = "quantity::maybe", skip_serializing_if = "Option::is_none")]
    pub lag: Option<Bytes>,
    /// What becomes of one that lags further.
    #[serde(default)]
    pub late: OnLag,
    /// Where its packets go on: out through the session's output channel of this name, or to the programs behind a TAP device of one. Its module
    /// decides which, and may change them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward: Option<String>,
    /// What becomes of packets that are to go on while the channel has no module.
    #[serde(default, skip_serializing_if = "quantity::is_default")]
    pub unattended: OnNoModule,
    /// How the packets are divided, so that none of them pushes out the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subflows: Option<SubFlowSpec>,
    /// Whether checksums are validated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<Checksum>,
    /// Whether modules get datagrams put together instead of their fragments. Only for channels that see what is selected.
    #[serde(default, skip_serializing_if = "quantity::is_default")]
    pub reassemble: bool,
}

/// What becomes of packets of a forwarding channel that has no module, or has none any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnNoModule {
    /// They go on.
    #[default]
    Pass,
    /// They do not: where the module is what makes forwarding safe.
    Drop,
}

/// What is mapped for the modules of a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RecordVisibility {
    /// A copy of the packets that the filter selects, and nothing else.
    #[default]
    Selected,
    /// The interface's own memory, with every packet of it: nothing is copied.
    All,
}

/// What becomes of a reader that lags too far behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnLag {
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
    pub settings: BTreeMap<String, TomlValue>,
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
pub enum TomlValue {
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Whole(i64),
    /// A number.
    Number(f64),
    /// Text: also durations, prefixes, and what has a unit.
    Text(String),
    /// Several.
    List(Vec<TomlValue>),
}

// A number is what was written: it is compared only to see whether a configuration has changed.
impl Eq for TomlValue {}

impl TomlValue {
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
    pub fn settings(&self) -> Vec<ParameterSetting> {
        self.settings.iter().map(|(name, given)| (name.clone(), given.words())).collect()
    }
}

impl SessionSpec {
    /// An empty session of this name.
    pub fn new(name: Name) -> Self {
        Self::described(name, None, Amounts::default(), Vec::new())
    }

    /// The session after a change.
    ///
    /// # Errors
    ///
    /// Something that is to go is not there, or there is too much of something.
    pub(crate) fn changed(&self, change: &Change) -> Result<Self, SpecError> {
        let mut spec = self.clone();
        if change.memory.is_some() {
            spec.memory_max_before = None;
        }
        spec.limits = change.limits.or(spec.limits);
        spec.processors = spec.all_processors();
        spec.take(change)?;
        spec.check_shares()?;
        Ok(spec)
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
}

impl ProcessorSpec {
    /// Period and slice, where it has a reservation.
    pub fn reservation(&self) -> Option<(Nanos, Nanos)> {
        self.period.zip(self.slice)
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
        assert_eq!((spec.channels[0].sees, spec.channels[0].late), (RecordVisibility::Selected, OnLag::Lose));
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
