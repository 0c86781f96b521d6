//! How things are on a node, as it says it.

use crate::control::offers::{OfferSpec, UseSpec};
use crate::control::quantity;
use crate::sessions::limits::LimitsStatus;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use weir_ledger::Usage;

/// How things are on a node. Counters count from the start of what they belong to and never go back.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The node's name.
    pub node: String,
    /// What it runs: weir's version.
    pub version: String,
    /// How long it has run, ns.
    pub uptime_ns: u64,
    /// When this was taken, ns since 1970.
    pub at_ns: u64,
    /// Its cores.
    pub cores: Vec<CoreStatus>,
    /// Its interfaces.
    pub interfaces: Vec<InterfaceStatus>,
    /// Its links.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<LinkStatus>,
    /// Its sessions.
    pub sessions: Vec<SessionStatus>,
    /// The processes that it has started.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<ProcessStatus>,
    /// Processes that it could not start.
    #[serde(default)]
    pub refused_processes: u64,
    /// Memory that sessions can reserve, and have reserved, bytes.
    pub memory: Taken,
    /// Tries to delete a record file that have failed.
    #[serde(default)]
    pub record_deletions_failed: u64,
    /// Its named tables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tables: Vec<TableStatus>,
    /// Its views.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub views: Vec<ViewStatus>,
    /// Access from elsewhere, where there is any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<RemoteStatus>,
    /// Revocation, where credentials count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revocations: Option<RevocationCounts>,
}

/// Access to a node from elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RemoteStatus {
    /// Connections that were accepted.
    pub connections: u64,
    /// Handshakes that are half open now.
    pub half_open: u64,
    /// First messages that were answered.
    pub answered: u64,
    /// First messages that had come and were not answered.
    pub unanswered: u64,
    /// Peers that have proven who they are.
    pub authenticated: u64,
    /// Peers that have proven a right to be here.
    pub proven: u64,
    /// Clients that are connected now.
    pub clients: u64,
    /// Connections that were refused or given up, by cause.
    pub refused: BTreeMap<String, u64>,
}

/// Counters of revocation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevocationCounts {
    /// Delivered lists, by outcome: `taken`, `known`, or the reason for which they were refused.
    pub deliveries: BTreeMap<String, u64>,
    /// Entries that are held, by root.
    pub entries: BTreeMap<String, u64>,
}

/// All that is revoked in the name of one root.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevocationsStatus {
    /// The root's key.
    pub root: String,
    /// The highest number of the root's lists.
    pub sequence: u64,
    /// Everything that the root signed before this time is revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub all_before: Option<String>,
    /// The root's entries: identifiers, each with the time at which its credential expires.
    pub entries: Vec<String>,
    /// The entries of holders, for what they passed on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delegated: Vec<DelegatedStatus>,
}

/// Entries of a holder who has passed on a right.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DelegatedStatus {
    /// The holder's key.
    pub holder: String,
    /// The link beneath which they revoke.
    pub under: String,
    /// Everything that the holder passed on before this time is revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub all_before: Option<String>,
    /// Identifiers, each with the time at which its credential expires.
    pub entries: Vec<String>,
}

/// Processes that a node has started, of one role and with the same walls.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessStatus {
    /// `module`, `compiler` or `key-agent`.
    pub role: String,
    /// The walls around them, such as `uid+namespaces+cgroup+sealed`; `seccomp` if there are no more than each process has.
    pub isolation: String,
    /// Their number since the node was started.
    pub started: u64,
}

/// A view by which packets of an interface are shown. All who read it see the same memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ViewStatus {
    /// Its number, which no other view of this node ever had.
    pub number: u64,
    /// The interface.
    pub interface: String,
    /// What it shows.
    pub view: String,
    /// For whom: the first link of their credentials' chains; the operator's own, where there is none.
    pub of: Option<String>,
    /// Packets that were transformed for it, once for all who read it.
    pub packets: u64,
    /// The modules that read it.
    pub readers: Vec<String>,
}

/// A named table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TableStatus {
    /// Its name.
    pub name: String,
    /// Who publishes it; nobody, where it is only waited for.
    pub publisher: Option<String>,
    /// The version that it shows; 0 where it shows none.
    pub version: u64,
    /// The bytes of that.
    pub bytes: Option<u64>,
    /// The modules that read it.
    pub readers: Vec<String>,
    /// Why some of them do not see what is there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub troubles: Vec<String>,
}

/// Of something that can be reserved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// So much is reserved,
    pub reserved: u64,
    /// of so much.
    pub of: u64,
}

/// A core.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CoreStatus {
    /// Its number.
    pub core: u16,
    /// Reserved of it, in millionths.
    pub reserved_ppm: u32,
    /// Reservable of it, in millionths.
    pub reservable_ppm: u32,
    /// Time in modules and on their behalf, ns.
    pub busy_ns: u64,
    /// Time on deciding and waking, ns.
    pub overhead_ns: u64,
    /// Time that the thread was ready to run and did not get, ns.
    pub stolen_ns: u64,
}

/// An interface.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct InterfaceStatus {
    /// Its name.
    pub name: String,
    /// `up`, or what is the matter with it.
    pub state: String,
    /// Packets that the node got.
    pub packets: u64,
    /// Their bytes on the link.
    pub bytes: u64,
    /// Packets that the kernel had no room for.
    pub missed: u64,
    /// Packets that no channel wanted.
    pub unwanted: u64,
    /// Time that the receiving thread was ready to run and did not get, ns.
    #[serde(default)]
    pub stolen_ns: u64,
    /// Fragments of datagrams, by where they went.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fragments: BTreeMap<String, u64>,
}

/// A link.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkStatus {
    /// Its interface.
    pub name: String,
    /// `up`, or `down`: then what is sent is lost.
    pub state: String,
    /// Bits on the wire per second.
    pub rate_bits: u64,
    /// Bits per second that are reserved.
    pub reserved_bits: u64,
    /// Bits per second that can be reserved.
    pub reservable_bits: u64,
    /// Packets that the interface took.
    pub packets: u64,
    /// Their bytes, without framing.
    pub bytes: u64,
    /// Packets that it did not take.
    pub lost: u64,
}

/// An output channel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OutputStatus {
    /// Its name in its session.
    pub name: String,
    /// The link.
    pub link: String,
    /// The TAP device of programs that send through it.
    pub tap: Option<String>,
    /// Bits on the wire per second that it is guaranteed; 0: none.
    pub reserved_bits: u64,
    /// Bits on the wire per second that it never exceeds; 0: no such limit.
    pub cap_bits: u64,
    /// Its share of what reservations leave; 0: none.
    pub weight: u16,
    /// Frames that wait now.
    pub waiting: u64,
    /// Frames that can wait.
    pub queue: u64,
    /// Frames that the interface took.
    pub packets: u64,
    /// Their bytes, without framing.
    pub bytes: u64,
    /// Bytes on the wire, framing included, that the scheduler has let go.
    pub wire_bytes: u64,
    /// Of these, by the reservation.
    pub reserved_wire_bytes: u64,
    /// Frames that it lost, by cause.
    pub drops: BTreeMap<String, u64>,
    /// Frames that went to the programs behind the TAP device.
    pub tap_packets: u64,
    /// Frames that did not reach them.
    pub tap_lost: u64,
}

/// A session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionStatus {
    /// Its name.
    pub name: String,
    /// The identifier of its owner's credential with the time at which that expires; nothing where it is the operator's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<String>,
    /// Priority under overload.
    pub priority: u8,
    /// Memory that it has reserved, bytes.
    pub memory_reserved: u64,
    /// Memory that it uses of that, bytes.
    pub memory_used: u64,
    /// Memory that it may reserve by itself at most, bytes.
    #[serde(default)]
    pub memory_ceiling: u64,
    /// Times that its memory was low: less than an eighth came to be left, or more was asked for than was left.
    #[serde(default)]
    pub memory_low: u64,
    /// Times that more memory was asked for than was left, and not given.
    #[serde(default)]
    pub memory_refused: u64,
    /// What it is held to beside that.
    #[serde(default, skip_serializing_if = "LimitsStatus::is_none")]
    pub limits: LimitsStatus,
    /// Its virtual processors.
    pub cpu: Vec<VirtualCpuStatus>,
    /// Its channels.
    pub channels: Vec<ChannelStatus>,
    /// Its output channels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<OutputStatus>,
    /// Its modules.
    pub modules: Vec<ModuleStatus>,
    /// Modules that were ended, and not by request, with their last counters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ended: Vec<ModuleStatus>,
    /// Its usage since it was created, as its bills add up.
    #[serde(default)]
    pub used: Usage,
    /// What its modules did by services, all together.
    #[serde(default)]
    pub services: ServicesStatus,
    /// The named tables that its modules may publish, and
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub publish: Vec<String>,
    /// those that they may read: `NAME`, or `LOCAL=NAME`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub read: Vec<String>,
    /// Services that it offers.
    #[serde(default, rename = "offer", skip_serializing_if = "Vec::is_empty")]
    pub offers: Vec<OfferSpec>,
    /// Services of others that it uses.
    #[serde(default, rename = "use", skip_serializing_if = "Vec::is_empty")]
    pub uses: Vec<UseSpec>,
    /// Rights over it that its owner shares: `follow=KEY` or `manage=KEY`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub share: Vec<String>,
    /// True for a delegate's session over which the delegate shares no right with the asker. It shows sums alone: one row for all channels, all output channels and all modules.
    #[serde(default, skip_serializing_if = "quantity::is_default")]
    pub sums_only: bool,
}

/// What a session's modules did by services.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServicesStatus {
    /// Calls of others' services.
    pub calls: u64,
    /// Calls that were refused.
    pub refused: u64,
    /// Calls that were answered.
    pub answered: u64,
    /// Calls whose deadline passed.
    pub late: u64,
    /// Calls whose callee went or failed.
    pub failed: u64,
    /// Calls of others that were served.
    pub served: u64,
    /// Calls of others that wait.
    pub waiting: u64,
    /// Answers that were not taken.
    pub discarded: u64,
    /// Processor time that others worked for it and that it pays, ns.
    pub owed_ns: u64,
    /// Processor time that it worked for others and that they pay, ns.
    pub earned_ns: u64,
}

/// A virtual processor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VirtualCpuStatus {
    /// Its name in its session.
    pub name: String,
    /// The core that it is on.
    pub core: u16,
    /// Its period, ns; 0 without a reservation.
    pub period_ns: u64,
    /// Its slice, ns.
    pub slice_ns: u64,
    /// Whether it takes spare time.
    pub spare: bool,
    /// Processor time that it had, ns.
    pub used_ns: u64,
    /// Of that, beyond its reservation.
    pub spare_ns: u64,
    /// Periods in which it had work all the time and did not get its slice.
    pub periods_missed: u64,
    /// Times that it ran for longer than it had left.
    pub overruns: u64,
    /// Processor time that was spent for it elsewhere, by others' threads and by whom it has called, and that is missing in its slices, ns.
    #[serde(default)]
    pub debited_ns: u64,
}

/// A channel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ChannelStatus {
    /// Its name in its session.
    pub name: String,
    /// The interface.
    pub interface: String,
    /// The filter; empty for all.
    pub filter: String,
    /// What is shown of its packets; empty for everything.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub view: String,
    /// Packets that wait now.
    pub waiting: u64,
    /// Packets that can wait.
    pub queue: u64,
    /// Packets that came for it.
    pub packets: u64,
    /// Their bytes on the link.
    pub bytes: u64,
    /// Packets that it lost, by cause.
    pub drops: BTreeMap<String, u64>,
    /// What was found out about packets on the way to its modules: wrong checksums, and what became of fragments.
    #[serde(default)]
    pub findings: BTreeMap<String, u64>,
    /// All this is counted before it is known which packets are its own, as that is asked when they are shown. Not for whoever may not know of the others.
    #[serde(skip)]
    pub counts_others: bool,
}

/// A module.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ModuleStatus {
    /// What it is called in its session.
    pub name: String,
    /// What it calls itself, with its version.
    pub module: String,
    /// Its tier.
    pub tier: String,
    /// `running`, or what is the matter with it.
    pub state: String,
    /// Packets that it has seen.
    pub packets: u64,
    /// Records that it has emitted.
    pub records: u64,
    /// Records that were not taken, or could not be written.
    pub records_lost: u64,
    /// Calls that were lost.
    pub faults: u64,
    /// The walls around its process; nothing where it runs in the node's.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub isolation: String,
    /// Strikes against it.
    pub strikes: u64,
    /// Time in it, ns. It includes time that was stolen meanwhile.
    pub used_ns: u64,
    /// Processor time of the node's other threads for it, ns: receiving its packets, writing its records.
    #[serde(default)]
    pub elsewhere_ns: u64,
    /// Memory that it has, bytes.
    pub memory: u64,
    /// The last fault, in words.
    pub last_fault: Option<String>,
    /// Its streams, which can be followed.
    pub streams: Vec<String>,
}
