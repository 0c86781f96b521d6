//! The node's configuration: one TOML file, which is either accepted as a whole or refused. Defines its sections and
//! checks the parts that need no node.

use crate::control::compiler_config::{CompilationConfig, CompilerConfig, SIGNATURES_MAX};
use crate::control::isolation_config::{FIRST_USER_MAX, FIRST_USER_MIN, IsolationConfig};
use crate::control::link_spec::LinkConfig;
use crate::control::quantity;
use crate::control::renamed_keys::with_advice;
use crate::control::spec::{SessionSpec, SpecError};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use weir_admission::Name;
use weir_datapath::receive::Delivery;
use weir_netio::{Direction, LiveOptions, QueueSet};
use weir_os::child::Cores;
use weir_sched::cpu::{CoreConfig, Ppm};
use weir_trust::grant::{NodeName, NodeNameError};
use weir_trust::key::PublicKey;
use weir_units::{Bytes, Nanos};

/// Maximum length of a configuration, in bytes.
pub const CONFIG_BYTES_MAX: usize = 1 << 20;
/// Maximum number of bytes of a packet that a module can read: the largest IP packet with the headers before it.
/// Longer packets are cut at capture. Packets can be longer than the interface's MTU, because the kernel merges
/// packets (GRO) and weir reassembles datagrams.
pub const PACKET_BYTES_MAX: u32 = (64 << 10) + 256;
/// Default of `blocking`: the longest time for which a module may keep a core.
pub const BLOCKING: Nanos = Nanos(100_000);
/// Maximum number of sessions of a node.
pub const SESSIONS_MAX: usize = 4096;

/// The configuration of a node.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeConfiguration {
    /// Name, files and memory of the node.
    #[serde(default)]
    pub node: NodeConfig,
    /// Remote access; none by default.
    #[serde(default)]
    pub remote: Option<RemoteConfig>,
    /// Folder of the operator's policy, which adds to the profiles, roots of trust and revocation lists of this file.
    #[serde(default)]
    pub policy: Option<PolicyConfig>,
    /// Isolation of the node's child processes.
    #[serde(default)]
    pub isolation: IsolationConfig,
    /// Compilation of modules on the node, and conditions for bundles.
    #[serde(default)]
    pub compilation: CompilationConfig,
    /// Keys of compilers whose machine code the node runs.
    #[serde(default, rename = "compiler")]
    pub compilers: Vec<CompilerConfig>,
    /// Cores and their scheduling.
    #[serde(default)]
    pub cpu: CpuConfig,
    /// Interfaces that packets come from.
    #[serde(default, rename = "interface")]
    pub interfaces: Vec<InterfaceConfig>,
    /// Links that packets are sent on.
    #[serde(default, rename = "link")]
    pub links: Vec<LinkConfig>,
    /// Profiles that sessions can name.
    #[serde(default, rename = "profile")]
    pub profiles: Vec<ProfileConfig>,
    /// Named tables of the operator.
    #[serde(default, rename = "table")]
    pub tables: Vec<TableConfig>,
    /// Sessions that the node creates when it starts.
    #[serde(default, rename = "session")]
    pub sessions: Vec<SessionSpec>,
}

/// Name, files and memory of the node.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NodeConfig {
    /// Name of the node in the ledger and in metrics.
    #[serde(with = "quantity::text")]
    pub name: Name,
    /// Format of the log.
    pub log: crate::log::LogFormat,
    /// Path of the local socket for `weir session`, `weir top` and others.
    pub socket: PathBuf,
    /// State folder, for the ledger and the sessions' records.
    pub state: PathBuf,
    /// True if a restart restores sessions that were created by requests.
    pub restore: bool,
    /// Loopback address of the metrics server (HTTP, path `/metrics`); no server by default.
    pub metrics: Option<SocketAddr>,
    /// Interval at which usage is written to the ledger. A crash loses the usage of at most one interval.
    #[serde(with = "quantity::text")]
    pub ledger_interval: Nanos,
    /// Size at which a record file is completed and the next one begun, in bytes.
    #[serde(with = "quantity::text")]
    pub record_file_size: Bytes,
    /// Age at which a record file is completed and the next one begun.
    #[serde(with = "quantity::text")]
    pub record_file_age: Nanos,
    /// Memory that all sessions together can reserve.
    #[serde(with = "quantity::text")]
    pub memory: Bytes,
    /// Memory for packets that wait for the modules of credential holders, in addition to `memory`. Each party gets at
    /// most a quarter. All holders under one grant of a root are a party; if the policy limits the root, all holders
    /// under the root are. Packets for the operator's sessions are not limited.
    #[serde(with = "quantity::text")]
    pub packet_memory: Bytes,
}

impl Default for NodeConfig {
    fn default() -> Self {
        Self {
            name: Name::new("node")
                .unwrap_or_else(|_| unreachable!("the tests check that `node` is a valid name")),
            log: crate::log::LogFormat::default(),
            socket: PathBuf::from("/run/weir/node.sock"),
            state: PathBuf::from("/var/lib/weir"),
            restore: true,
            metrics: None,
            ledger_interval: Nanos::SECOND,
            record_file_size: Bytes(256 << 20),
            record_file_age: Nanos(3600 * Nanos::SECOND.0),
            memory: Bytes(1 << 30),
            packet_memory: Bytes(512 << 20),
        }
    }
}

/// Remote access to a node.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoteConfig {
    /// TCP address to listen at.
    pub listen: SocketAddr,
    /// File of the node's private key, which `weir key new` writes, without a passphrase. The path is relative to the
    /// configuration's file.
    pub key: PathBuf,
    /// Name of the node in credentials, such as `ix-1.example`; by default the `name` in `[node]`.
    #[serde(default, with = "quantity::maybe", skip_serializing_if = "Option::is_none")]
    pub name: Option<NodeName>,
    /// Public keys of roots without a limit. Roots with a limit are in files of the policy's folder.
    #[serde(default, with = "quantity::texts")]
    pub roots: Vec<PublicKey>,
    /// Public keys of remote operators, who need no credential and may make every request; none by default.
    #[serde(default, with = "quantity::texts")]
    pub operators: Vec<PublicKey>,
    /// Files with revocation lists of the roots, relative to the configuration's file. A reload reads them again.
    #[serde(default)]
    pub revocations: Vec<PathBuf>,
}

/// Folder of the operator's policy.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyConfig {
    /// The folder, relative to the configuration's file. A reload reads it again.
    pub dir: PathBuf,
}

/// Cores and their scheduling.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CpuConfig {
    /// Cores on which modules run, with one thread bound to each; by default the last core of the machine.
    pub cores: Vec<u16>,
    /// Maximum time for which a module may keep a core.
    #[serde(rename = "blocking", with = "quantity::text")]
    pub blocking_max: Nanos,
    /// Reservable share of a core, in percent.
    pub reservable: u8,
    /// Core of the receive threads of interfaces without `receive_cores`; any by default.
    pub receive_core: Option<u16>,
    /// True if receive threads poll for packets, false if they wait for them. Polling threads need a core of their own.
    pub poll: bool,
    /// Folder for traces of the schedulers' inputs, from which their decisions can be replayed; no traces by default.
    pub trace: Option<PathBuf>,
}

impl CpuConfig {
    /// Returns the configuration of the scheduler of each core.
    pub(crate) fn scheduler_config(&self) -> CoreConfig {
        let cap = Ppm(u32::from(self.reservable) * 10_000);
        CoreConfig { blocking_max: self.blocking_max, cap, ..CoreConfig::default() }
    }

    /// Returns the cores on which modules run.
    pub fn module_cores(&self) -> Vec<u16> {
        if !self.cores.is_empty() {
            return self.cores.clone();
        }
        let count = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        vec![u16::try_from(count - 1).unwrap_or(0)]
    }
}

impl Default for CpuConfig {
    fn default() -> Self {
        Self {
            cores: Vec::new(),
            blocking_max: BLOCKING,
            reservable: 90,
            receive_core: None,
            poll: false,
            trace: None,
        }
    }
}

/// The longest time for which an interface's packets are gathered, unless a channel forwards them. Waking the threads that
/// handle packets costs as much as many packets.
const GATHER_TIME: Nanos = Nanos(10_000_000);

/// An interface that packets come from.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InterfaceConfig {
    /// Name of the interface.
    pub name: String,
    /// Kind of socket that receives packets.
    #[serde(default)]
    pub kind: ReceiveMethod,
    /// Memory for received packets.
    #[serde(with = "quantity::text", default = "arena_default")]
    pub arena: Bytes,
    /// True to receive packets for other machines, too (promiscuous mode).
    #[serde(default = "yes")]
    pub promiscuous: bool,
    /// True to receive packets that this machine sends, too. Must be false if a channel forwards packets of the
    /// interface.
    #[serde(default = "yes")]
    pub outgoing: bool,
    /// Time for which received packets are gathered before channels get them.
    #[serde(default)]
    pub latency: ReceiveLatency,
    /// With AF_XDP: true if the network card writes into the arena directly, which its driver must support.
    #[serde(default)]
    pub zero_copy: bool,
    /// With AF_XDP: receive queues of the network card that are read; all by default.
    #[serde(default)]
    pub queues: Vec<u16>,
    /// Cores of the interface's receive threads, which share its queues (AF_XDP) or its flows; one thread on the
    /// [`receive_core`](CpuConfig::receive_core) by default.
    #[serde(default)]
    pub receive_cores: Vec<u16>,
}

impl InterfaceConfig {
    /// Returns true if the interface's packets include packets that this machine sends.
    pub fn sees_outgoing(&self) -> bool {
        self.outgoing && self.kind != ReceiveMethod::Xdp
    }
}

impl InterfaceConfig {
    /// Returns the number of the interface's receive threads.
    pub(crate) fn receive_threads(&self) -> usize {
        self.receive_cores.len().max(1)
    }

    /// Returns the options for opening the interface.
    pub(crate) fn options(&self) -> LiveOptions {
        LiveOptions {
            kind: match self.kind {
                ReceiveMethod::Auto => weir_netio::SocketKind::Auto,
                ReceiveMethod::Packet => weir_netio::SocketKind::Packet,
                ReceiveMethod::Xdp => weir_netio::SocketKind::Xdp,
            },
            ring: self.arena,
            snap_len: PACKET_BYTES_MAX,
            promiscuous: self.promiscuous,
            direction: if self.sees_outgoing() { Direction::Both } else { Direction::Incoming },
            zero_copy: self.zero_copy,
            // The kernel can hand over each packet at once only if each has a frame of its own. Such a frame has no room for
            // a packet that the kernel or card has merged from several. The other latencies leave room, because a
            // merged packet can be forwarded to a TAP device.
            immediate: self.latency == ReceiveLatency::Low,
            // Only an interface without outgoing packets can have channels that forward.
            retire: if self.outgoing { LiveOptions::default().retire } else { Nanos(1_000_000) },
            queues: QueueSet::of(self.queues.iter().copied().map(u32::from)).filter(|set| !set.is_empty()),
            // A node can receive few packets at a time, so blocks share pages of descriptors.
            dense: true,
            latency: GATHER_TIME,
            ..LiveOptions::default()
        }
    }
}

/// The time for which received packets are gathered before channels get them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReceiveLatency {
    /// As short as blocks of packets allow while a channel forwards packets of the interface, long otherwise.
    #[default]
    Auto,
    /// Short always: each packet has a frame of its own, with room for the interface's MTU.
    Low,
    /// Long always, which takes the least processor time.
    Batch,
}

impl From<ReceiveLatency> for Delivery {
    fn from(latency: ReceiveLatency) -> Self {
        match latency {
            ReceiveLatency::Auto => Self::WhenForwarding,
            ReceiveLatency::Low => Self::AtOnce,
            ReceiveLatency::Batch => Self::Gathered,
        }
    }
}

fn arena_default() -> Bytes {
    Bytes(64 << 20)
}

fn yes() -> bool {
    true
}

/// The kind of socket that receives packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReceiveMethod {
    /// The kind that suits the interface.
    #[default]
    Auto,
    /// AF_PACKET: received packets are copies, and the kernel also processes the originals.
    Packet,
    /// AF_XDP: packets that channels select bypass the kernel's network stack.
    Xdp,
}

/// A profile that sessions can name.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProfileConfig {
    /// Name of the profile.
    #[serde(with = "quantity::text")]
    pub name: Name,
    /// Path of the file, relative to the configuration's file.
    pub file: PathBuf,
}

/// A named table of the operator.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableConfig {
    /// Name of the table.
    #[serde(with = "quantity::text")]
    pub name: Name,
    /// Path of the file with the table's contents, relative to the configuration's file. A reload reads it again.
    pub file: PathBuf,
}

/// Error of a configuration. The operator is to blame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NodeConfigError {
    /// The text is no TOML, or has another structure.
    #[error("{}{message}", line.map_or_else(String::new, |line| format!("line {line}: ")))]
    Read {
        /// Line, from 1, if it is known.
        line: Option<usize>,
        /// Description of the fault.
        message: String,
    },
    /// The text is longer than [`CONFIG_BYTES_MAX`].
    #[error("the configuration has {0} bytes; {CONFIG_BYTES_MAX} is the most")]
    TooLong(usize),
    /// A session's description is invalid.
    #[error(transparent)]
    Session(#[from] SpecError),
    /// Two parts of one kind have the same name.
    #[error("there are two {what}s called `{name}`")]
    Duplicate {
        /// Kind of the parts: interface, link, profile, table or session.
        what: &'static str,
        /// Name of the parts.
        name: String,
    },
    /// A table has two publishers.
    #[error("table `{table}` has two publishers: {first}, and session `{second}`")]
    TwoPublishers {
        /// Name of the table.
        table: Name,
        /// First publisher.
        first: String,
        /// Second publisher: a session.
        second: Name,
    },
    /// There are too many sessions.
    #[error("there are {0} sessions in the configuration; {SESSIONS_MAX} is the most")]
    TooMany(usize),
    /// A value is out of range.
    #[error("[{section}]: `{key}` is {given}; it must be {wanted}")]
    Range {
        /// Section of the file.
        section: &'static str,
        /// Key in the section.
        key: &'static str,
        /// The given value.
        given: String,
        /// The allowed values.
        wanted: &'static str,
    },
}

impl NodeConfiguration {
    /// Reads and checks a configuration. Files, interfaces, cores and the sum of reservations are checked by the node.
    pub fn parse(text: &str) -> Result<Self, NodeConfigError> {
        if text.len() > CONFIG_BYTES_MAX {
            return Err(NodeConfigError::TooLong(text.len()));
        }
        let config: Self = toml::from_str(text).map_err(|error| {
            let before = error.span().and_then(|span| text.get(..span.start));
            let line = before.map(|before| before.bytes().filter(|byte| *byte == b'\n').count() + 1);
            NodeConfigError::Read { line, message: with_advice(error.message()) }
        })?;
        config.check()?;
        Ok(config)
    }

    /// Returns the node's name in credentials.
    ///
    /// # Errors
    ///
    /// The configuration has no `name` in `[remote]`, and the node's own name is not valid in credentials.
    pub fn credential_name(&self) -> Result<NodeName, NodeNameError> {
        match self.remote.as_ref().and_then(|remote| remote.name.as_ref()) {
            Some(name) => Ok(name.clone()),
            None => self.node.name.as_str().parse(),
        }
    }

    /// Returns the cores that receive threads are bound to.
    pub(crate) fn receive_cores(&self) -> impl Iterator<Item = u16> {
        let of_interfaces = self.interfaces.iter().flat_map(|interface| interface.receive_cores.iter());
        of_interfaces.copied().chain(self.cpu.receive_core)
    }

    /// Returns the cores for compilers and for holders' requests: the cores that the calling thread may use and on
    /// which no module runs. Receive cores are left out if others remain. `None` if modules run on all cores.
    pub(crate) fn other_cores(&self) -> Option<Cores> {
        let modules = self.cpu.module_cores();
        let with_receivers: Vec<u16> = modules.iter().copied().chain(self.receive_cores()).collect();
        Cores::without(&with_receivers).or_else(|| Cores::without(&modules))
    }

    /// Returns the interfaces that also see packets sent by this machine.
    pub(crate) fn outgoing(&self) -> Vec<String> {
        let seen = self.interfaces.iter().filter(|interface| interface.sees_outgoing());
        seen.map(|interface| interface.name.clone()).collect()
    }

    fn check(&self) -> Result<(), NodeConfigError> {
        self.check_ranges()?;
        check_unique("interface", self.interfaces.iter().map(|interface| interface.name.as_str()))?;
        check_unique("link", self.links.iter().map(|link| link.interface.as_str()))?;
        self.links.iter().try_for_each(LinkConfig::check)?;
        check_unique("profile", self.profiles.iter().map(|profile| profile.name.as_str()))?;
        check_unique("table", self.tables.iter().map(|table| table.name.as_str()))?;
        check_unique("session", self.sessions.iter().map(|session| session.name.as_str()))?;
        if self.sessions.len() > SESSIONS_MAX {
            return Err(NodeConfigError::TooMany(self.sessions.len()));
        }
        let interfaces: Vec<String> =
            self.interfaces.iter().map(|interface| interface.name.clone()).collect();
        let mut profiles: Vec<Name> = self.profiles.iter().map(|profile| profile.name.clone()).collect();
        if self.policy.is_some() {
            // A session may name a profile of the policy's folder, which is read and checked later.
            profiles.extend(self.sessions.iter().filter_map(|session| session.profile.clone()));
        }
        self.sessions.iter().try_for_each(|session| session.check(&interfaces, &profiles))?;
        self.check_tables()?;
        let links: Vec<String> = self.links.iter().map(|link| link.interface.clone()).collect();
        let outgoing = self.outgoing();
        self.sessions.iter().try_for_each(|session| session.check_links(&links, &outgoing))?;
        Ok(())
    }

    /// Checks that each table has one publisher.
    fn check_tables(&self) -> Result<(), NodeConfigError> {
        let operators = self.tables.iter().map(|table| (&table.name, "the operator".to_owned()));
        let mut publishers: BTreeMap<&Name, String> = operators.collect();
        for session in &self.sessions {
            for grant in &session.publish {
                if let Some(first) = publishers.insert(&grant.table, format!("session `{}`", session.name)) {
                    let (table, second) = (grant.table.clone(), session.name.clone());
                    return Err(NodeConfigError::TwoPublishers { table, first, second });
                }
            }
        }
        Ok(())
    }

    fn check_ranges(&self) -> Result<(), NodeConfigError> {
        let range = |is_right: bool, section, key, given: String, wanted| {
            if is_right { Ok(()) } else { Err(NodeConfigError::Range { section, key, given, wanted }) }
        };
        let (node, cpu) = (&self.node, &self.cpu);
        let interval = node.ledger_interval;
        let seconds = Nanos(100 * Nanos::MILLISECOND.0)..=Nanos(60 * Nanos::SECOND.0);
        range(
            seconds.contains(&interval),
            "node",
            "ledger_interval",
            interval.to_string(),
            "between 100 ms and 60 s",
        )?;
        let time = node.record_file_age;
        range(time >= Nanos::SECOND, "node", "record_file_age", time.to_string(), "at least 1 s")?;
        let bytes = node.record_file_size;
        range(bytes.0 >= 1 << 20, "node", "record_file_size", bytes.to_string(), "at least 1 MiB")?;
        let given = node.packet_memory;
        let wanted =
            "at least 8 MiB, so that a quarter, the share of one party, holds a packet of maximum length";
        range(given.0 >= 8 << 20, "node", "packet_memory", given.to_string(), wanted)?;
        if let Some(address) = node.metrics {
            let wanted = "a loopback address, such as 127.0.0.1:9137: metrics show all sessions";
            range(address.ip().is_loopback(), "node", "metrics", address.to_string(), wanted)?;
        }
        let first = self.isolation.first_uid;
        let users = (FIRST_USER_MIN..=FIRST_USER_MAX).contains(&first);
        range(users, "isolation", "first_uid", first.to_string(), "between 65536 and 2147482623")?;
        let signatures = self.compilation.signatures;
        let wanted = "from 1 to 8";
        let fits = (1..=SIGNATURES_MAX).contains(&signatures);
        range(fits, "compilation", "signatures", signatures.to_string(), wanted)?;
        let blocking_range = Nanos(10_000)..=Nanos(10 * Nanos::MILLISECOND.0);
        let given = cpu.blocking_max.to_string();
        range(
            blocking_range.contains(&cpu.blocking_max),
            "cpu",
            "blocking",
            given,
            "between 10 us and 10 ms",
        )?;
        let given = cpu.reservable.to_string();
        range((1..=100).contains(&cpu.reservable), "cpu", "reservable", given, "between 1 and 100 percent")?;
        range(is_each_once(&cpu.cores), "cpu", "cores", format!("{:?}", cpu.cores), "each core once")?;
        for interface in &self.interfaces {
            let fits = (1 << 20..=1 << 30).contains(&interface.arena.0);
            range(fits, "interface", "arena", interface.arena.to_string(), "between 1 MiB and 1 GiB")?;
            let is_xdp = interface.kind == ReceiveMethod::Xdp;
            let (queues, cores) = (&interface.queues, &interface.receive_cores);
            let is_right = queues.is_empty()
                || is_xdp
                    && is_each_once(queues)
                    && queues.iter().all(|number| u32::from(*number) < QueueSet::QUEUES_MAX);
            let wanted = "each number once, below 256, and needs kind = \"xdp\"";
            range(is_right, "interface", "queues", format!("{queues:?}"), wanted)?;
            let given = || format!("{cores:?}");
            range(is_each_once(cores), "interface", "receive_cores", given(), "each core once")?;
            let exceeded_limit = interface.options().limit_exceeded_by(cores.len());
            let wanted = exceeded_limit.unwrap_or_default();
            range(exceeded_limit.is_none(), "interface", "receive_cores", given(), wanted)?;
        }
        Ok(())
    }
}

/// Returns true if no number occurs twice.
fn is_each_once(numbers: &[u16]) -> bool {
    numbers.iter().collect::<std::collections::BTreeSet<_>>().len() == numbers.len()
}

fn check_unique<'a>(what: &'static str, names: impl Iterator<Item = &'a str>) -> Result<(), NodeConfigError> {
    let mut seen = std::collections::BTreeSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(NodeConfigError::Duplicate { what, name: name.to_owned() });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_configuration_is_a_node_with_nothing_to_do() {
        let config = NodeConfiguration::parse("").unwrap();
        assert_eq!(config.node.name.as_str(), "node");
        assert_eq!((config.cpu.blocking_max, config.cpu.reservable), (Nanos(100_000), 90));
    }

    #[test]
    fn the_example_configuration_is_valid_and_its_comments_are_true() {
        let config = NodeConfiguration::parse(include_str!("../../../../docs/node/node.toml")).unwrap();
        // The comments of the example state the defaults.
        let example = NodeConfig { metrics: None, ..config.node };
        assert_eq!(example, NodeConfig::default());
        assert_eq!(config.cpu, CpuConfig::default());
        assert_eq!(config.sessions.len(), 1);
    }

    #[test]
    fn all_sections_of_a_configuration_are_read() {
        let config = NodeConfiguration::parse(
            r#"
            [node]
            name = "ix-1"
            metrics = "127.0.0.1:9137"
            ledger_interval = "500ms"
            [cpu]
            cores = [1]
            blocking = "50us"
            [[interface]]
            name = "eth0"
            kind = "packet"
            arena = "16 MiB"
            [[profile]]
            name = "strict"
            file = "strict.toml"
            [[session]]
            name = "alice"
            profile = "strict"
            channel = [{ interface = "eth0", filter = "tcp" }]
            module = [{ module = "rtt" }]
            "#,
        )
        .unwrap();
        assert_eq!(config.interfaces[0].kind, ReceiveMethod::Packet);
        assert_eq!(config.sessions[0].modules[0].module, "rtt");
        assert_eq!(config.node.ledger_interval, Nanos(500_000_000));
    }

    #[test]
    fn errors_of_a_configuration_name_their_line() {
        for (text, says) in [
            ("[node]\n\nnmae = \"x\"", "line 3: unknown field `nmae`"),
            ("[node]\nname = ", "line 2: "),
            ("[node]\nname = \"A b\"", "line 2: `A b` is not a name"),
            (
                "[node]\nmetrics = \"0.0.0.0:1\"",
                "[node]: `metrics` is 0.0.0.0:1; it must be a loopback address",
            ),
            (
                "[node]\nledger_interval = \"1ms\"",
                "`ledger_interval` is 1 ms; it must be between 100 ms and 60 s",
            ),
            ("[node]\npacket_memory = \"4 MiB\"", "`packet_memory` is 4 MiB; it must be at least 8 MiB"),
            ("[cpu]\ncores = [1, 1]", "[cpu]: `cores` is [1, 1]; it must be each core once"),
            ("[cpu]\nreservable = 0", "`reservable` is 0"),
            (
                "[[interface]]\nname = \"b\"\nqueues = [1]",
                "`queues` is [1]; it must be each number once, below 256, and needs kind = \"xdp\"",
            ),
            ("[[interface]]\nname = \"b\"\nkind = \"xdp\"\nqueues = [256]", "`queues` is [256]"),
            ("[[interface]]\nname = \"b\"\nkind = \"xdp\"\nqueues = [1, 1]", "`queues` is [1, 1]"),
            (
                "[[interface]]\nname = \"b\"\nreceive_cores = [1, 1]",
                "`receive_cores` is [1, 1]; it must be each core once",
            ),
            (
                "[[interface]]\nname = \"b\"\narena = \"2 MiB\"\nreceive_cores = [0, 1, 2]",
                "`receive_cores` is [0, 1, 2]; it must be at most 64 receive threads for a packet socket",
            ),
            ("[cpu]\nblocking = \"1s\"", "`blocking` is 1 s"),
            ("[[interface]]\nname = \"a\"\narena = \"2 GiB\"", "`arena` is 2 GiB"),
            ("[[interface]]\nname = \"a\"\n[[interface]]\nname = \"a\"", "two interfaces called `a`"),
            ("[[session]]\nname = \"a\"\n[[session]]\nname = \"a\"", "two sessions called `a`"),
            ("[[link]]\ninterface = \"e\"", "missing field `rate`"),
            (
                "[[table]]\nname = \"t\"\nfile = \"a\"\n[[table]]\nname = \"t\"\nfile = \"b\"",
                "two tables called `t`",
            ),
            (
                "[[table]]\nname = \"t\"\nfile = \"a\"\n[[session]]\nname = \"s\"\npublish = [\"own=t\"]",
                "table `t` has two publishers: the operator, and session `s`",
            ),
            (
                "[[session]]\nname = \"r\"\npublish = [\"t\"]\n[[session]]\nname = \"s\"\npublish = [\"t\"]",
                "table `t` has two publishers: session `r`, and session `s`",
            ),
            ("[[link]]\ninterface = \"e/f\"\nrate = \"1 Mbit/s\"", "[link]: `interface` is e/f"),
            ("[[link]]\ninterface = \"e\"\nrate = \"1 bit/s\"", "[link]: `rate` is 1 bit/s"),
            (
                "[[link]]\ninterface = \"e\"\nrate = \"1 Mbit/s\"\nreservable = 101",
                "`reservable` is 101; it must be a percentage",
            ),
            (
                "[[link]]\ninterface = \"e\"\nrate = \"1 Mbit/s\"\n[[link]]\ninterface = \"e\"\nrate = \"1 Mbit/s\"",
                "two links called `e`",
            ),
            (
                "[[session]]\nname = \"a\"\noutput = [{ link = \"e\" }]",
                "output channel `main`: there is no link `e`; there are none",
            ),
            (
                "[[interface]]\nname = \"e\"\n[[session]]\nname = \"a\"\nchannel = [{ interface = \"e\", forward = \"up\" }]",
                "channel `main`: there is no output channel or TAP device `up`; there are none",
            ),
            (
                "[[link]]\ninterface = \"e\"\nrate = \"1 Mbit/s\"\n[[interface]]\nname = \"e\"\noutgoing = false\n[[session]]\nname = \"a\"\noutput = [{ link = \"e\" }]\nchannel = [{ interface = \"e\", forward = \"main\" }]",
                "`forward` is main; it must be an output channel of another link",
            ),
            (
                "[[link]]\ninterface = \"e\"\nrate = \"1 Mbit/s\"\n[[interface]]\nname = \"f\"\n[[session]]\nname = \"a\"\noutput = [{ link = \"e\" }]\nchannel = [{ interface = \"f\", forward = \"main\" }]",
                "write `outgoing = false` under that [[interface]]",
            ),
            (
                "[[session]]\nname = \"a\"\nchannel = [{ interface = \"x\" }]",
                "there is no interface `x`; there are none",
            ),
        ] {
            let error = NodeConfiguration::parse(text).unwrap_err().to_string();
            assert!(error.contains(says), "{text}\n{error}");
        }
        assert_eq!(
            NodeConfiguration::parse(&" ".repeat(CONFIG_BYTES_MAX + 1)),
            Err(NodeConfigError::TooLong(CONFIG_BYTES_MAX + 1))
        );
    }
}
