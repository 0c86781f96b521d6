//! The node's configuration: one TOML file, taken whole or not at all.

use crate::control::quantity;
use crate::control::spec::{SessionSpec, SpecError};
use crate::link::LinkConfig;
use crate::server::isolation::{FIRST_USER_MAX, FIRST_USER_MIN, IsolationConfig};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use weir_admission::Name;
use weir_netio::{Direction, LiveOptions};
use weir_os::child::Cores;
use weir_sched::cpu::{CoreConfig, Ppm};
use weir_trust::grant::{NodeName, NodeNameError};
use weir_trust::key::PublicKey;
use weir_units::{Bytes, Nanos};

/// The longest configuration, in bytes.
pub const CONFIG_BYTES_MAX: usize = 1 << 20;
/// Sessions of a node at most.
pub const SESSIONS_MAX: usize = 4096;

/// What a node is to do.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeConfiguration {
    /// The node itself.
    #[serde(default)]
    pub node: NodeConfig,
    /// How it is reached from elsewhere, and whose credentials count. Not at all where nothing is said.
    #[serde(default)]
    pub remote: Option<RemoteConfig>,
    /// The folder with profiles, roots of trust and what was taken back, beside what of these stands here.
    #[serde(default)]
    pub policy: Option<PolicyConfig>,
    /// The walls around processes that it starts.
    #[serde(default)]
    pub isolation: IsolationConfig,
    /// Its cores.
    #[serde(default)]
    pub cpu: CpuConfig,
    /// Where packets come from.
    #[serde(default, rename = "interface")]
    pub interfaces: Vec<InterfaceConfig>,
    /// Where packets go out.
    #[serde(default, rename = "link")]
    pub links: Vec<LinkConfig>,
    /// Profiles that sessions can name.
    #[serde(default, rename = "profile")]
    pub profiles: Vec<ProfileConfig>,
    /// Named tables of the operator's.
    #[serde(default, rename = "table")]
    pub tables: Vec<TableConfig>,
    /// Sessions that exist from the start.
    #[serde(default, rename = "session")]
    pub sessions: Vec<SessionSpec>,
}

/// The node itself.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NodeConfig {
    /// What it is called, in the ledger and in metrics.
    #[serde(with = "quantity::text")]
    pub name: Name,
    /// How it writes what it has to say.
    pub log: crate::server::log::LogFormat,
    /// The socket for `weir session`, `weir top` and the like.
    pub socket: PathBuf,
    /// Where the ledger and the sessions' records are kept.
    pub state: PathBuf,
    /// Where metrics are served, over HTTP at /metrics: a loopback address. Not at all where none is given.
    pub metrics: Option<SocketAddr>,
    /// How often the ledger is written: what can be lost in a crash.
    #[serde(with = "quantity::text")]
    pub interval: Nanos,
    /// A stream's file is ended when it has so many bytes …
    #[serde(with = "quantity::text")]
    pub records_bytes: Bytes,
    /// … or has been written for so long.
    #[serde(with = "quantity::text")]
    pub records_time: Nanos,
    /// Memory that sessions can reserve together.
    #[serde(with = "quantity::text")]
    pub memory: Bytes,
    /// Memory beside that, in which packets wait for modules of those who come with credentials; a quarter of it for any one of them. What waits for the operator's own is
    /// not limited.
    #[serde(with = "quantity::text")]
    pub packet_memory: Bytes,
}

impl Default for NodeConfig {
    fn default() -> Self {
        Self {
            name: Name::new("node").unwrap_or_else(|_| unreachable!("the tests read it")),
            log: crate::server::log::LogFormat::default(),
            socket: PathBuf::from("/run/weir/node.sock"),
            state: PathBuf::from("/var/lib/weir"),
            metrics: None,
            interval: Nanos::SECOND,
            records_bytes: Bytes(256 << 20),
            records_time: Nanos(3600 * Nanos::SECOND.0),
            memory: Bytes(1 << 30),
            packet_memory: Bytes(512 << 20),
        }
    }
}

/// How a node is reached from elsewhere, and by whom.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoteConfig {
    /// Where it listens (TCP).
    pub listen: SocketAddr,
    /// The file of the node's own private key, as `weir key new` writes it without a passphrase; relative to the configuration's.
    pub key: PathBuf,
    /// What credentials call the node, such as `ix-1.example`; its own name where nothing is said.
    #[serde(default, with = "quantity::maybe", skip_serializing_if = "Option::is_none")]
    pub name: Option<NodeName>,
    /// The operators whose credentials count, for whatever they grant: their public keys. Those that may grant less stand in the policy's folder.
    #[serde(default, with = "quantity::texts")]
    pub roots: Vec<PublicKey>,
    /// Keys of those who may ask for all that the operator may at the node's own socket, without a credential: its operators, from elsewhere. Nobody where nothing is said.
    #[serde(default, with = "quantity::texts")]
    pub operators: Vec<PublicKey>,
    /// Files with what they have taken back, relative to the configuration's. They are read again with the configuration.
    #[serde(default)]
    pub revocations: Vec<PathBuf>,
}

/// Where the operator's policy is.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyConfig {
    /// The folder, relative to the configuration's file. It is read again with the configuration.
    pub dir: PathBuf,
}

/// Its cores.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CpuConfig {
    /// The cores on which modules run; one thread is bound to each. The last of the machine where nothing is said.
    pub cores: Vec<u16>,
    /// The longest that a module may keep a core before others are looked at.
    #[serde(with = "quantity::text")]
    pub blocking: Nanos,
    /// The share of a core that can be reserved, in percent.
    pub reservable: u8,
    /// The core of the threads that take packets from interfaces; any where nothing is said.
    pub receive: Option<u16>,
    /// Whether those threads ask for packets all the time, instead of waiting for them. Give them a core of their own then.
    pub poll: bool,
    /// A folder for a record of what each core was told and decided, from which the same decisions can be made again. None where nothing is said.
    pub trace: Option<PathBuf>,
}

impl CpuConfig {
    /// As the scheduler of each core takes it.
    pub(crate) fn of_cores(&self) -> CoreConfig {
        let cap = Ppm(u32::from(self.reservable) * 10_000);
        CoreConfig { blocking: self.blocking, cap, ..CoreConfig::default() }
    }

    /// The cores on which modules run.
    pub fn module_cores(&self) -> Vec<u16> {
        if !self.cores.is_empty() {
            return self.cores.clone();
        }
        let count = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        vec![u16::try_from(count - 1).unwrap_or(0)]
    }

    /// This thread's cores for work that no module waits for: compilers and requests of holders. The core that receives packets is left out if others remain. None if
    /// modules run on all cores.
    pub(crate) fn other_cores(&self) -> Option<Cores> {
        let modules = self.module_cores();
        let with_receiver: Vec<u16> = modules.iter().copied().chain(self.receive).collect();
        Cores::without(&with_receiver).or_else(|| Cores::without(&modules))
    }
}

impl Default for CpuConfig {
    fn default() -> Self {
        Self {
            cores: Vec::new(),
            blocking: Nanos(100_000),
            reservable: 90,
            receive: None,
            poll: false,
            trace: None,
        }
    }
}

/// Where packets come from.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InterfaceConfig {
    /// Its name.
    pub name: String,
    /// How packets are taken from it.
    #[serde(default)]
    pub kind: ReceiveMethod,
    /// Memory for its packets.
    #[serde(with = "quantity::text", default = "arena_default")]
    pub arena: Bytes,
    /// Whether it is to see packets that are not for this machine.
    #[serde(default = "yes")]
    pub promiscuous: bool,
    /// Whether it is to see packets that this machine sends, too. Not where packets are forwarded from.
    #[serde(default = "yes")]
    pub outgoing: bool,
    /// With AF_XDP: whether the card itself writes into the memory that modules read, which takes a driver that can.
    #[serde(default)]
    pub zero_copy: bool,
}

impl InterfaceConfig {
    /// Whether packets that this machine sends are among its packets.
    pub fn sees_outgoing(&self) -> bool {
        self.outgoing && self.kind != ReceiveMethod::Xdp
    }
}

impl InterfaceConfig {
    /// How it is opened.
    pub(crate) fn options(&self) -> LiveOptions {
        LiveOptions {
            kind: match self.kind {
                ReceiveMethod::Auto => weir_netio::SocketKind::Auto,
                ReceiveMethod::Packet => weir_netio::SocketKind::Packet,
                ReceiveMethod::Xdp => weir_netio::SocketKind::Xdp,
            },
            ring: self.arena,
            snap_len: crate::guest::PACKET_BYTES_MAX,
            promiscuous: self.promiscuous,
            direction: if self.sees_outgoing() { Direction::Both } else { Direction::Incoming },
            zero_copy: self.zero_copy,
            dense: true,
            ..LiveOptions::default()
        }
    }
}

fn arena_default() -> Bytes {
    Bytes(64 << 20)
}

fn yes() -> bool {
    true
}

/// How packets are taken from an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReceiveMethod {
    /// The way that suits it.
    #[default]
    Auto,
    /// AF_PACKET: every packet is seen, and goes on to the system all the same.
    Packet,
    /// AF_XDP: packets are taken away before the system sees them.
    Xdp,
}

/// A profile that sessions can name.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProfileConfig {
    /// What it is called.
    #[serde(with = "quantity::text")]
    pub name: Name,
    /// Its file, relative to the configuration's.
    pub file: PathBuf,
}

/// A named table of the operator's.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableConfig {
    /// What it is called.
    #[serde(with = "quantity::text")]
    pub name: Name,
    /// The file with its bytes, relative to the configuration's. It is read again with the configuration.
    pub file: PathBuf,
}

/// Why a configuration cannot be used. To blame is the operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NodeConfigError {
    /// Not TOML, or not this shape of it.
    #[error("{}{message}", line.map_or_else(String::new, |line| format!("line {line}: ")))]
    Read {
        /// Line, from 1, where it is known.
        line: Option<usize>,
        /// What is wrong.
        message: String,
    },
    /// Longer than [`CONFIG_BYTES_MAX`].
    #[error("it has {0} bytes; {CONFIG_BYTES_MAX} is the most")]
    TooLong(usize),
    /// A session that cannot be.
    #[error(transparent)]
    Session(#[from] SpecError),
    /// Two of one name.
    #[error("there are two {what}s called `{name}`")]
    Twice {
        /// Interface, profile or session.
        what: &'static str,
        /// Their name.
        name: String,
    },
    /// Two who publish one table.
    #[error("table `{table}` has two publishers: {first}, and session `{second}`")]
    Published {
        /// Which table.
        table: Name,
        /// Who does.
        first: String,
        /// And who does, too.
        second: Name,
    },
    /// Too many sessions.
    #[error("{0} sessions; {SESSIONS_MAX} is the most")]
    TooMany(usize),
    /// A value out of range.
    #[error("[{section}]: `{key}` is {given}; it must be {wanted}")]
    Range {
        /// The part of the file.
        section: &'static str,
        /// The key.
        key: &'static str,
        /// What it is.
        given: String,
        /// What would be right.
        wanted: &'static str,
    },
}

impl NodeConfiguration {
    /// Reads and checks a configuration. Whether its files are there, its interfaces and cores, and whether what it reserves fits,
    /// only the node can say.
    pub fn parse(text: &str) -> Result<Self, NodeConfigError> {
        if text.len() > CONFIG_BYTES_MAX {
            return Err(NodeConfigError::TooLong(text.len()));
        }
        let config: Self = toml::from_str(text).map_err(|error| {
            let before = error.span().and_then(|span| text.get(..span.start));
            let line = before.map(|before| before.bytes().filter(|byte| *byte == b'\n').count() + 1);
            NodeConfigError::Read { line, message: error.message().to_owned() }
        })?;
        config.check()?;
        Ok(config)
    }

    /// What credentials call the node.
    ///
    /// # Errors
    /// It has no other name than its own, which is none for that.
    pub fn name(&self) -> Result<NodeName, NodeNameError> {
        match self.remote.as_ref().and_then(|remote| remote.name.as_ref()) {
            Some(name) => Ok(name.clone()),
            None => self.node.name.as_str().parse(),
        }
    }

    /// Interfaces whose packets have among them those that this machine sends.
    pub(crate) fn outgoing(&self) -> Vec<String> {
        let seen = self.interfaces.iter().filter(|interface| interface.sees_outgoing());
        seen.map(|interface| interface.name.clone()).collect()
    }

    fn check(&self) -> Result<(), NodeConfigError> {
        self.check_ranges()?;
        twice("interface", self.interfaces.iter().map(|interface| interface.name.as_str()))?;
        twice("link", self.links.iter().map(|link| link.interface.as_str()))?;
        self.links.iter().try_for_each(LinkConfig::check)?;
        twice("profile", self.profiles.iter().map(|profile| profile.name.as_str()))?;
        twice("table", self.tables.iter().map(|table| table.name.as_str()))?;
        twice("session", self.sessions.iter().map(|session| session.name.as_str()))?;
        if self.sessions.len() > SESSIONS_MAX {
            return Err(NodeConfigError::TooMany(self.sessions.len()));
        }
        let interfaces: Vec<String> =
            self.interfaces.iter().map(|interface| interface.name.clone()).collect();
        let mut profiles: Vec<Name> = self.profiles.iter().map(|profile| profile.name.clone()).collect();
        if self.policy.is_some() {
            // Which profiles there are in its folder is seen when that is read.
            profiles.extend(self.sessions.iter().filter_map(|session| session.profile.clone()));
        }
        self.sessions.iter().try_for_each(|session| session.check(&interfaces, &profiles))?;
        self.check_tables()?;
        let links: Vec<String> = self.links.iter().map(|link| link.interface.clone()).collect();
        let outgoing = self.outgoing();
        self.sessions.iter().try_for_each(|session| session.check_links(&links, &outgoing))?;
        Ok(())
    }

    /// Each table has one publisher.
    fn check_tables(&self) -> Result<(), NodeConfigError> {
        let operators = self.tables.iter().map(|table| (&table.name, "the operator".to_owned()));
        let mut publishers: BTreeMap<&Name, String> = operators.collect();
        for session in &self.sessions {
            for grant in &session.publish {
                if let Some(first) = publishers.insert(&grant.table, format!("session `{}`", session.name)) {
                    let (table, second) = (grant.table.clone(), session.name.clone());
                    return Err(NodeConfigError::Published { table, first, second });
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
        let interval = node.interval;
        let seconds = Nanos(100 * Nanos::MILLISECOND.0)..=Nanos(60 * Nanos::SECOND.0);
        range(
            seconds.contains(&interval),
            "node",
            "interval",
            interval.to_string(),
            "between 100 ms and 60 s",
        )?;
        let time = node.records_time;
        range(time >= Nanos::SECOND, "node", "records_time", time.to_string(), "at least 1 s")?;
        let bytes = node.records_bytes;
        range(bytes.0 >= 1 << 20, "node", "records_bytes", bytes.to_string(), "at least 1 MiB")?;
        let given = node.packet_memory;
        let wanted =
            "at least 8 MiB: of that one party has a quarter, in which one long packet has to find room";
        range(given.0 >= 8 << 20, "node", "packet_memory", given.to_string(), wanted)?;
        if let Some(address) = node.metrics {
            let wanted =
                "a loopback address, such as 127.0.0.1:9137: whoever reads metrics sees all sessions";
            range(address.ip().is_loopback(), "node", "metrics", address.to_string(), wanted)?;
        }
        let first = self.isolation.first_user;
        let users = (FIRST_USER_MIN..=FIRST_USER_MAX).contains(&first);
        range(users, "isolation", "first_user", first.to_string(), "between 65536 and 2147482623")?;
        let blocking = Nanos(10_000)..=Nanos(10 * Nanos::MILLISECOND.0);
        let given = cpu.blocking.to_string();
        range(blocking.contains(&cpu.blocking), "cpu", "blocking", given, "between 10 us and 10 ms")?;
        let given = cpu.reservable.to_string();
        range((1..=100).contains(&cpu.reservable), "cpu", "reservable", given, "between 1 and 100 percent")?;
        let mut cores = cpu.cores.clone();
        cores.sort_unstable();
        cores.dedup();
        range(cores.len() == cpu.cores.len(), "cpu", "cores", format!("{:?}", cpu.cores), "each core once")?;
        for interface in &self.interfaces {
            let fits = (1 << 20..=1 << 30).contains(&interface.arena.0);
            range(fits, "interface", "arena", interface.arena.to_string(), "between 1 MiB and 1 GiB")?;
        }
        Ok(())
    }
}

fn twice<'a>(what: &'static str, names: impl Iterator<Item = &'a str>) -> Result<(), NodeConfigError> {
    let mut seen = std::collections::BTreeSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(NodeConfigError::Twice { what, name: name.to_owned() });
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
        assert_eq!((config.cpu.blocking, config.cpu.reservable), (Nanos(100_000), 90));
    }

    #[test]
    fn the_example_is_right() {
        let config = NodeConfiguration::parse(include_str!("../../../../docs/node/node.toml")).unwrap();
        // What it says of what holds without it is so.
        let example = NodeConfig { metrics: None, ..config.node };
        assert_eq!(example, NodeConfig::default());
        assert_eq!(config.cpu, CpuConfig::default());
        assert_eq!(config.sessions.len(), 1);
    }

    #[test]
    fn a_configuration_is_read_whole() {
        let config = NodeConfiguration::parse(
            r#"
            [node]
            name = "ix-1"
            metrics = "127.0.0.1:9137"
            interval = "500ms"
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
        assert_eq!(config.node.interval, Nanos(500_000_000));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (text, says) in [
            ("[node]\n\nnmae = \"x\"", "line 3: unknown field `nmae`"),
            ("[node]\nname = ", "line 2: "),
            ("[node]\nname = \"A b\"", "line 2: `A b` is not a name"),
            (
                "[node]\nmetrics = \"0.0.0.0:1\"",
                "[node]: `metrics` is 0.0.0.0:1; it must be a loopback address",
            ),
            ("[node]\ninterval = \"1ms\"", "`interval` is 1 ms; it must be between 100 ms and 60 s"),
            ("[node]\npacket_memory = \"4 MiB\"", "`packet_memory` is 4 MiB; it must be at least 8 MiB"),
            ("[cpu]\ncores = [1, 1]", "[cpu]: `cores` is [1, 1]; it must be each core once"),
            ("[cpu]\nreservable = 0", "`reservable` is 0"),
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
