//! The description of a session, and the change of a session. Both are derived from one table of keys
//! (`derived::session!`), for the node's configuration, requests and command lines.

mod check;
mod derived;
mod error;

pub(crate) use check::distinct;
pub use derived::{Keyed, SpecKey};
pub use error::SpecError;

use crate::control::bounded_list;
use crate::control::link_spec::OutputSpec;
pub use crate::control::preprocessing::{Checksum, ShardField, SubFlowSpec};
use crate::control::process_isolation::Process;
use crate::control::quantity;
use crate::control::record_format::RecordFormat;
use crate::control::resource_keys::{self, AmountKeys};
pub use crate::control::services::{CallPayer, OfferSpec, UseSpec};
use crate::control::share::ShareGrant;
use crate::control::table_grant::TableGrant;
use crate::control::visibility::GrantedVisibility;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use weir_admission::{Name, ParameterSetting};
pub use weir_netio::QUEUE_MAX;
use weir_trust::grant::{Amounts, Resource};
use weir_units::{Bytes, Nanos};
use weir_wire::WriteFields;
use weir_wire::view::RequestedView;

/// Maximum number of channels, of virtual CPUs and of modules of one session, and of entries of any other list
/// of a request.
pub const LIST_ENTRIES_MAX: usize = 64;
/// Maximum length of a filter, in bytes.
pub const FILTER_BYTES_MAX: usize = 4096;
/// Maximum number of packets that wait for a module on a channel without a `queue`.
pub const QUEUE_USUAL: u32 = 4096;
/// Minimum and maximum period of a virtual CPU.
pub const PERIOD: std::ops::RangeInclusive<Nanos> = Nanos(100_000)..=Nanos(10 * Nanos::SECOND.0);

derived::session! {
    fixed {
        /// The session's name, unique on the node.
        #[serde(with = "quantity::text")]
        name: Name;
        /// The memory ceiling of a session without `memory_max` whose modules have changed `memory` by themselves: the
        /// ceiling before their change, up to which they may still extend the reservation.
        #[serde(skip)]
        retained_memory_max: Option<Bytes>;
        /// The stated limits, with a key for each limited [resource](Resource).
        #[serde(flatten, skip_deserializing, serialize_with = "resource_keys::session")]
        limits: Amounts;
        /// The modules.
        #[serde(default, rename = "module", deserialize_with = "bounded_list::list")]
        modules: Vec<ModuleSpec>;
    }
    values {
        /// The reserved memory of all its modules together.
        #[serde(default = "memory_default", with = "quantity::text")]
        memory: Bytes = memory_default(), "memory BYTES", #[serde(with = "quantity::maybe")] change memory;
        /// The process of its modules: the node's process, or a process for each module with only the memory that the module may read [default: node].
        #[serde(default, skip_serializing_if = "quantity::is_default")]
        process: Process = Process::Node, "process node|own";
        /// The format of its record files: Parquet, or that of another tool [default: parquet].
        #[serde(default, skip_serializing_if = "quantity::is_default")]
        record_format: RecordFormat = RecordFormat::Parquet, "record-format parquet|zeek|eve|ipfix";
        /// Order in which sessions lose packets under overload, the lowest first.
        #[serde(default)]
        priority: u8 = 0, "priority PRIORITY", change priority;
    }
    options {
        /// The most memory that its modules may reserve by themselves [default: --memory].
        #[serde(with = "quantity::maybe")]
        memory_max: Bytes, "memory-max BYTES";
        /// Fields of packets that its modules may write, such as ttl,dscp; or none, or all [default: all].
        #[serde(deserialize_with = "bounded_list::writes")]
        writes: WriteFields, "write FIELDS";
        /// The profile by which modules that are loaded from now on are admitted, from the node's configuration.
        #[serde(with = "quantity::maybe")]
        profile: Name, "profile NAME";
    }
    lists {
        /// A virtual CPU: name, core, period, slice, borrow (also take spare time), weight.
        #[serde(deserialize_with = "bounded_list::list")]
        "cpu" processors: ProcessorSpec, "cpu KEY=VALUE[,...]", "virtual CPU" by |cpu| &cpu.name,
        " An existing entry of this name is replaced; otherwise a new one is added";
        /// A channel: name, interface, filter, view (such as payload=none), queue, visibility (selected or all), lag_max, on_lag (drop or close), checksum=verify (drops packets with a wrong one), reassemble, forward (output channel or TAP device), on_no_module (pass or drop). Write \, for a comma in a filter, or put the filter between double quotes.
        #[serde(deserialize_with = "bounded_list::list")]
        "channel" channels: ChannelSpec, "channel KEY=VALUE[,...]", "channel" by |channel| &channel.name,
        " An existing channel of this name is replaced, which must have no module; otherwise a new one is added";
        /// An output channel, a share of a link: name, link, reserve, period, reserve_bytes, cap, weight, queue, filter (of the frames that may be sent), tap.
        #[serde(deserialize_with = "bounded_list::list")]
        #[create(skip_serializing_if = "Vec::is_empty")]
        "output" outputs: OutputSpec, "output KEY=VALUE[,...]", "output channel" by |output| &output.name,
        " An existing entry of this name is replaced; otherwise a new one is added";
        /// A service of its modules that other sessions may call: service, callers (sessions, separated by spaces), queue, payer (callee or caller).
        #[serde(deserialize_with = "bounded_list::list")]
        #[create(skip_serializing_if = "Vec::is_empty")]
        "offer" offers: OfferSpec, "offer KEY=VALUE[,...]", "offer" by |offer| &offer.service,
        " An existing entry of this name is replaced; otherwise a new one is added",
        remove {
            /// Withdraw the offer of this service. Accepted calls are still answered.
            remove_offer: Name, "remove-offer SERVICE"
        };
        /// A service of another session that its modules may call: service, session, cost_max (the most CPU time that a call may cost).
        #[serde(deserialize_with = "bounded_list::list")]
        #[create(skip_serializing_if = "Vec::is_empty")]
        "use" uses: UseSpec, "use KEY=VALUE[,...]", "use" by |used| &used.service,
        " An existing entry of this name is replaced; otherwise a new one is added",
        remove {
            /// Withdraw the use of this service.
            remove_use: Name, "remove-use SERVICE"
        };
        /// A named table that only its modules may publish: NAME, or LOCAL=NAME where their manifests use another name.
        #[serde(with = "bounded_list::texts")]
        #[create(skip_serializing_if = "Vec::is_empty")]
        "publish" publish: TableGrant, "publish TABLE", "own table" by |table| &table.local,
        " An existing entry of this local name is replaced; otherwise a new one is added",
        remove {
            /// Withdraw the right to publish this table, by its local name: its contents are removed, and other sessions may publish it.
            remove_publish: Name, "remove-publish LOCAL"
        };
        /// A named table that its modules may read: NAME, or LOCAL=NAME where their manifests use another name.
        #[serde(with = "bounded_list::texts")]
        #[create(skip_serializing_if = "Vec::is_empty")]
        "read" read: TableGrant, "read TABLE", "readable table" by |table| &table.local,
        " An existing entry of this local name is replaced; otherwise a new one is added",
        remove {
            /// Withdraw the right to read this table, by its local name: the table is empty for the modules from their next call on.
            remove_read: Name, "remove-read LOCAL"
        };
        /// A right over the session for an earlier holder of your credential: follow=KEY (read its records), manage=KEY (load, unload and change). Both let the holder see its channels and modules. Without a share the holder can only close it and read its sums.
        #[serde(with = "bounded_list::texts")]
        #[create(skip_serializing_if = "Vec::is_empty")]
        "share" share: ShareGrant, "share RIGHT=KEY", "share" by |share| share, "",
        remove {
            /// Withdraw this share at once, also from a running `weir follow`.
            remove_share: ShareGrant, "remove-share RIGHT=KEY"
        };
    }
}

resource_keys::deserialize_with_amounts!(SessionSpec, limits, AmountKeys::Session, and written);
resource_keys::deserialize_with_amounts!(Change, limits, AmountKeys::Session, and written);

fn memory_default() -> Bytes {
    Bytes(64 << 20)
}

/// A virtual CPU: a guaranteed slice of a core in each period, or a share of the time that reservations leave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessorSpec {
    /// Name in the session.
    #[serde(with = "quantity::text", default = "main")]
    pub name: Name,
    /// Number of the core; by default the first core with capacity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<u16>,
    /// Period after which the slice is renewed. Given together with `slice`, or not at all.
    #[serde(default, with = "quantity::maybe", skip_serializing_if = "Option::is_none")]
    pub period: Option<Nanos>,
    /// Guaranteed CPU time in each period.
    #[serde(default, with = "quantity::maybe", skip_serializing_if = "Option::is_none")]
    pub slice: Option<Nanos>,
    /// True if the virtual CPU also gets spare time: time of the core that is not reserved or not used.
    #[serde(default)]
    pub borrow: bool,
    /// Weight in the division of spare time.
    #[serde(default = "weight_default")]
    pub weight: u32,
}

fn weight_default() -> u32 {
    100
}

pub(crate) fn main() -> Name {
    // The test below checks that this constant is a valid name.
    Name::new("main").unwrap_or_else(|_| unreachable!())
}

impl Default for ProcessorSpec {
    /// The virtual CPU `main` without a reservation.
    fn default() -> Self {
        Self { name: main(), core: None, period: None, slice: None, borrow: true, weight: weight_default() }
    }
}

/// A channel: the packets of an interface that a filter selects, with a queue for each module that reads them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChannelSpec {
    /// Name in the session.
    #[serde(with = "quantity::text", default = "main")]
    pub name: Name,
    /// Interface that the packets come from.
    pub interface: String,
    /// Filter in the language of pcap-filter(7); empty for all packets.
    #[serde(default)]
    pub filter: String,
    /// View of the packets; by default all, or the view of the owner's credential.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub view: Option<RequestedView>,
    /// Restrictions of the owner's credential, set by the node. Neither a configuration nor a request contains them.
    #[serde(skip)]
    pub(crate) granted: GrantedVisibility,
    /// Maximum number of packets that wait for each module, in memory of the session. By default up to [`QUEUE_USUAL`]
    /// packets wait, in memory of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<u32>,
    /// Packets that are mapped for the session's modules.
    #[serde(default)]
    pub visibility: MappedPackets,
    /// Maximum lag: bytes of traffic between the oldest waiting packet and the newest packet of the interface; by
    /// default half of the interface's arena. Only for channels with `visibility = "all"`.
    #[serde(default, with = "quantity::maybe", skip_serializing_if = "Option::is_none")]
    pub lag_max: Option<Bytes>,
    /// Action for a module whose lag exceeds `lag_max`.
    #[serde(default)]
    pub on_lag: OnLag,
    /// Destination of forwarded packets: the name of an output channel of the session, or of its TAP device. The
    /// channel's module decides for each packet whether it is forwarded, and may change the packet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward: Option<String>,
    /// Action for the packets of a forwarding channel while the channel has no module.
    #[serde(default, skip_serializing_if = "quantity::is_default")]
    pub on_no_module: OnNoModule,
    /// Division of the queue for sub-flows, so that no flow fills the whole queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subflows: Option<SubFlowSpec>,
    /// Checksum validation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<Checksum>,
    /// True if modules get reassembled datagrams in place of fragments. Only for channels that see selected packets.
    #[serde(default, skip_serializing_if = "quantity::is_default")]
    pub reassemble: bool,
}

/// Action for packets of a forwarding channel without a module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnNoModule {
    /// Packets are forwarded.
    #[default]
    Pass,
    /// Packets are dropped: for channels whose packets must not be forwarded unchecked.
    Drop,
}

/// Packets that are mapped into the memory of a channel's modules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MappedPackets {
    /// Only the packets that the channel's filter selects, as copies.
    #[default]
    Selected,
    /// All packets of the interface: its arena, without copies.
    All,
}

/// Action for a module whose lag exceeds the channel's `lag_max`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnLag {
    /// The module loses its oldest packets.
    #[default]
    Drop,
    /// The session is closed.
    Close,
}

/// A module of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModuleSpec {
    /// Name in the session; the module's own name by default.
    #[serde(default, with = "quantity::maybe", skip_serializing_if = "Option::is_none")]
    pub name: Option<Name>,
    /// Name of a module that comes with weir, or the path of a file. The path is read only from the configuration;
    /// with a request the file's bytes are sent.
    #[serde(deserialize_with = "bounded_list::module")]
    pub module: String,
    /// Parameters.
    #[serde(default, rename = "set", deserialize_with = "bounded_list::settings")]
    pub settings: BTreeMap<String, TomlValue>,
    /// Channel whose packets the module gets.
    #[serde(with = "quantity::text", default = "main")]
    pub channel: Name,
    /// Virtual CPU that the module runs on.
    #[serde(with = "quantity::text", default = "main")]
    pub cpu: Name,
    /// True if the module runs without a meter, in a process of its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unmetered: bool,
}

/// Value of a parameter, as in TOML and JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum TomlValue {
    /// `true` or `false`.
    Bool(bool),
    /// An integer.
    Whole(i64),
    /// A floating-point number.
    Number(f64),
    /// Text: also durations, prefixes, and quantities with a unit.
    Text(String),
    /// A list.
    List(Vec<TomlValue>),
}

// Values are compared only to detect a changed configuration. NaN, which differs from itself, counts as a change.
impl Eq for TomlValue {}

impl TomlValue {
    /// Returns the value as the words of a command line, one for each entry of a list.
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
    /// Returns the parameters for admission.
    pub fn settings(&self) -> Vec<ParameterSetting> {
        self.settings.iter().map(|(name, given)| (name.clone(), given.words())).collect()
    }
}

impl SessionSpec {
    /// Creates an empty session of this name.
    pub fn new(name: Name) -> Self {
        Self::described(name, None, Amounts::default(), Vec::new())
    }

    /// Returns the description of the session after a change.
    ///
    /// # Errors
    ///
    /// The change removes a missing part, or a list is too long.
    pub(crate) fn changed(&self, change: &Change) -> Result<Self, SpecError> {
        let mut spec = self.clone();
        if change.memory.is_some() {
            spec.retained_memory_max = None;
        }
        spec.limits = change.limits.with_defaults(spec.limits);
        spec.processors = spec.all_processors();
        spec.apply(change)?;
        spec.check_share_count()?;
        Ok(spec)
    }

    /// Returns the limit of a resource: the stated limit, or the default; `None` for an unlimited resource.
    pub fn limit(&self, resource: Resource) -> Option<u64> {
        let default = resource.definition().limit.as_ref().and_then(|limit| limit.default);
        self.limits.get(resource).or(default).filter(|limit| *limit < u64::MAX)
    }

    /// Returns the memory up to which the session's modules may extend the reservation by themselves.
    pub fn memory_ceiling(&self) -> Bytes {
        self.memory_max.or(self.retained_memory_max).unwrap_or(self.memory).max(self.memory)
    }

    /// Returns the session's virtual CPUs, or the default virtual CPU if none is stated.
    pub fn all_processors(&self) -> Vec<ProcessorSpec> {
        if self.processors.is_empty() { vec![ProcessorSpec::default()] } else { self.processors.clone() }
    }
}

impl ProcessorSpec {
    /// Returns period and slice, or `None` for a virtual CPU without a reservation.
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
        channel = [{ name = "web", interface = "eth0", filter = "tcp port 80", visibility = "all", lag_max = "8 MiB", on_lag = "close" }]
        [[module]]
        name = "w"
        module = "worm"
        channel = "web"
        cpu = "fast"
        set = { signatures = ["a", "b"], threshold = 3, window = "1s" }
    "#;

    #[test]
    fn a_session_has_the_same_meaning_in_toml_and_in_json() {
        let spec = checked(WHOLE).unwrap();
        assert_eq!(spec.processors[0].reservation(), Some((Nanos(10_000_000), Nanos(2_500_000))));
        assert_eq!(spec.channels[0].lag_max, Some(Bytes(8 << 20)));
        let words = |list: &[&str]| list.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let settings = [("signatures", &["a", "b"][..]), ("threshold", &["3"]), ("window", &["1s"])];
        assert_eq!(spec.modules[0].settings(), settings.map(|(key, list)| (key.to_owned(), words(list))));
        let json = serde_json::to_string(&spec).unwrap();
        assert_eq!(serde_json::from_str::<SessionSpec>(&json).unwrap(), spec);
    }

    #[test]
    fn missing_keys_have_sensible_defaults() {
        let spec =
            checked("name = \"a\"\nchannel = [{ interface = \"eth0\" }]\nmodule = [{ module = \"rtt\" }]")
                .unwrap();
        assert_eq!(spec.all_processors(), [ProcessorSpec::default()]);
        assert_eq!(
            (spec.channels[0].visibility, spec.channels[0].on_lag),
            (MappedPackets::Selected, OnLag::Drop)
        );
        assert_eq!(spec.modules[0].channel, spec.channels[0].name);
    }

    #[test]
    fn errors_of_a_description_name_their_place() {
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
            ("name = \"a\"\ncpu = [{}, {}]", "two virtual CPUs called `main`"),
            (
                "name = \"a\"\nchannel = [{ interface = \"eth1\" }]",
                "channel `main`: there is no interface `eth1`; there is eth0",
            ),
            (
                "name = \"a\"\nchannel = [{ interface = \"eth0\", queue = 0 }]",
                "`queue` is 0; it must be between 1 and 1000000 packets",
            ),
            (
                "name = \"a\"\nchannel = [{ interface = \"eth0\", visibility = \"all\", reassemble = true }]",
                "`reassemble` is true; it must be false where `visibility` is \"all\"",
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
                "name = \"a\"\nchannel = [{ interface = \"eth0\", view = \"payload=none\", visibility = \"all\" }]",
                "`visibility` is \"all\"; it must be \"selected\" where its packets are shown by a view (`payload=none`)",
            ),
            (
                "name = \"a\"\noutput = [{ name = \"up\", link = \"eth1\" }]\nchannel = [{ interface = \"eth0\", view = \"ttl=zeroed\", forward = \"up\" }]",
                "`forward` is up; it must be left out where its packets are shown by a view (`ttl=zeroed`)",
            ),
            (
                "name = \"a\"\nchannel = [{ interface = \"eth0\", view = \"ports=zeroed\", checksum = \"verify\", subflows = { by = [\"src_port\"], queues = 4 } }]",
                "sub-flows would reveal hidden fields",
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
                "name = \"a\"\nuse = [{ service = \"s\", session = \"b\" }, { service = \"s\", session = \"c\" }]",
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
