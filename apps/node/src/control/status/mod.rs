//! The state that a node reports. These plain structures are filled in by the node's sessions and sent by the protocol.

mod credentials;
mod findings;
mod followed;
mod limits;

pub use credentials::{CeilingStatus, CredentialTree, DelegationStatus, RootStatus};
pub use findings::{FindingStatus, FindingsStatus};
pub use followed::{FollowedModule, FollowedRow, FollowedStream};
pub use limits::{LimitUsage, LimitsStatus};

use crate::control::quantity;
use crate::control::services::{OfferSpec, UseSpec};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use weir_ledger::Usage;

/// The state of a node. A counter starts when its interface, session, module or other part is created, and never
/// decreases.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Name of the node.
    pub node: String,
    /// Version of weir.
    pub version: String,
    /// Time since the start, in ns.
    pub uptime_ns: u64,
    /// Time of the snapshot, in ns since 1970.
    pub at_ns: u64,
    /// Cores that run modules.
    pub cores: Vec<CoreStatus>,
    /// Interfaces that packets come from.
    pub interfaces: Vec<InterfaceStatus>,
    /// Links that packets are sent on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<LinkStatus>,
    /// Sessions that the requester may see.
    pub sessions: Vec<SessionStatus>,
    /// Processes that the node has started.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<ProcessStatus>,
    /// Count of processes that could not be started.
    #[serde(default)]
    pub refused_processes: u64,
    /// Memory that sessions have reserved, and that they can reserve.
    pub memory: MemoryStatus,
    /// Number of record files that could not be deleted when a storage limit was exceeded.
    #[serde(default)]
    pub record_deletions_failed: u64,
    /// Named tables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tables: Vec<TableStatus>,
    /// Views through which modules see packets now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub views: Vec<ViewStatus>,
    /// Remote access, if it is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<RemoteStatus>,
    /// Revocation counters, if the node accepts credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revocations: Option<RevocationCounts>,
}

/// Counters of remote access.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RemoteStatus {
    /// Accepted connections.
    pub connections: u64,
    /// Handshakes that are half open now.
    pub half_open: u64,
    /// Handshakes whose first message was answered.
    pub answered: u64,
    /// Handshakes whose first message was not answered.
    pub unanswered: u64,
    /// Peers that have proven the possession of their key.
    pub authenticated: u64,
    /// Peers that have proven a right to connect.
    pub authorised: u64,
    /// Clients that are connected now.
    pub clients: u64,
    /// Refused or aborted connections, by cause.
    pub refused: BTreeMap<String, u64>,
}

/// Counters of revocation lists and of revocations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevocationCounts {
    /// Delivered lists by outcome: `accepted`, `known`, or the reason of a refusal.
    pub deliveries: BTreeMap<String, u64>,
    /// Number of revocation entries in effect, by root.
    pub entries: BTreeMap<String, u64>,
}

/// All revocations under one root.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevocationsStatus {
    /// Key of the root.
    pub root: String,
    /// Highest sequence number of the root's lists.
    pub sequence: u64,
    /// Time before which all grants of the root are revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub all_before: Option<String>,
    /// Identifiers that the root has revoked, each with the time at which the credential expires.
    pub entries: Vec<String>,
    /// Revocations by holders of their own delegations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delegated: Vec<DelegatedStatus>,
}

/// Revocations of a holder's delegations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DelegatedStatus {
    /// Key of the holder.
    pub holder: String,
    /// Identifier of the delegation to the holder. Only delegations below it are revoked.
    pub under: String,
    /// Time before which all delegations by the holder are revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub all_before: Option<String>,
    /// Revoked identifiers, each with the time at which the credential expires.
    pub entries: Vec<String>,
}

/// Helper and sandbox processes that the node has started, of one role and isolation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessStatus {
    /// `module`, `compiler`, `external-compiler` (clang), `external-compiler-version` or `key-agent`.
    pub role: String,
    /// Mechanisms of isolation, such as `uid+namespaces+cgroup+sealed`; `seccomp` if there is only the seccomp filter
    /// that each process has.
    pub isolation: String,
    /// Number of processes that were started since the start of the node.
    pub started: u64,
}

/// A view of an interface's packets that modules read. The readers share the memory of the transformed packets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ViewStatus {
    /// Number of the view, which is not reused while the node runs.
    pub number: u64,
    /// Interface that the packets come from.
    pub interface: String,
    /// Text of the view.
    pub view: String,
    /// Identifier of the first grant in the readers' delegation chains; `None` for the operator.
    pub owner: Option<String>,
    /// Packets that were transformed. A packet counts once, whatever the number of readers.
    pub packets: u64,
    /// Modules that read the view, as `SESSION/MODULE`.
    pub readers: Vec<String>,
}

/// A named table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TableStatus {
    /// Name of the table.
    pub name: String,
    /// Owner of the table, who may publish it; `None` for a table that only has readers.
    pub publisher: Option<String>,
    /// Number of the current version; 0 for a table without a version.
    pub version: u64,
    /// Length of the current version, in bytes.
    pub bytes: Option<u64>,
    /// Modules that read the table, as `SESSION/MODULE`.
    pub readers: Vec<String>,
    /// Reasons why some of the reading modules see an empty table.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}

/// Reserved and reservable memory of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryStatus {
    /// Memory that sessions have reserved, in bytes.
    pub reserved: u64,
    /// Memory that all sessions together can reserve, in bytes.
    pub reservable: u64,
}

/// A core that runs modules.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CoreStatus {
    /// Number of the core.
    pub core: u16,
    /// Reserved share, in millionths.
    pub reserved_ppm: u32,
    /// Reservable share, in millionths.
    pub reservable_ppm: u32,
    /// Time spent in modules and on their behalf, in ns.
    pub busy_ns: u64,
    /// Time spent on scheduling and waking, in ns.
    pub overhead_ns: u64,
    /// Time for which the thread was ready to run and other programs had the core, in ns.
    pub stolen_ns: u64,
}

/// An interface that packets come from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct InterfaceStatus {
    /// Name of the interface.
    pub name: String,
    /// `up`, or a description of the failure.
    pub state: String,
    /// Received packets.
    pub packets: u64,
    /// Bytes of the received packets, with those that were not captured.
    pub bytes: u64,
    /// Packets that the kernel dropped for lack of memory.
    pub missed: u64,
    /// Packets that no channel selected.
    pub unmatched: u64,
    /// Time for which the receive thread was ready to run and other programs had the core, in ns.
    #[serde(default)]
    pub stolen_ns: u64,
    /// Fragments of datagrams, by the way in which they were handled, such as `first` or `displaced`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fragments: BTreeMap<String, u64>,
}

/// A link that packets are sent on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkStatus {
    /// Interface of the link.
    pub name: String,
    /// `up` or `down`. Packets that are sent while the link is `down` are lost.
    pub state: String,
    /// Rate on the wire, in bits per second.
    pub rate_bits: u64,
    /// Reserved rate, in bits per second.
    pub reserved_bits: u64,
    /// Reservable rate, in bits per second.
    pub reservable_bits: u64,
    /// Sent packets.
    pub packets: u64,
    /// Bytes of the sent packets, without framing.
    pub bytes: u64,
    /// Packets that the interface refused.
    pub lost: u64,
}

/// An output channel of a session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OutputStatus {
    /// Name in the session.
    pub name: String,
    /// Interface of the link.
    pub link: String,
    /// TAP device through which programs send on the channel; `None` without one.
    pub tap: Option<String>,
    /// Guaranteed rate on the wire, in bits per second; 0 for none.
    pub reserved_bits: u64,
    /// Highest rate on the wire, in bits per second; 0 for none.
    pub cap_bits: u64,
    /// Period after which the reservation is renewed, in ns; 0 for a reservation that is evenly spread.
    #[serde(default)]
    pub period_ns: u64,
    /// Filter of the frames that may be sent; empty for all.
    #[serde(default)]
    pub filter: String,
    /// Weight in the division of the bandwidth that reservations leave; 0 for no share of it.
    pub weight: u16,
    /// Frames that wait now.
    pub waiting: u64,
    /// Length of the queue, in frames.
    pub queue: u64,
    /// Sent frames.
    pub packets: u64,
    /// Bytes of the sent frames, without framing.
    pub bytes: u64,
    /// Bytes that the scheduler has sent on the wire, with framing.
    pub wire_bytes: u64,
    /// Part of `wire_bytes` that the reservation covers.
    pub reserved_wire_bytes: u64,
    /// Lost frames, by cause.
    pub drops: BTreeMap<String, u64>,
    /// Frames delivered to the programs behind the TAP device.
    pub tap_packets: u64,
    /// Frames for the programs behind the TAP device that were lost.
    pub tap_lost: u64,
}

/// A session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionStatus {
    /// Name of the session, as the requester knows it.
    pub name: String,
    /// Number that tells successive sessions with the same name apart, as in the ledger.
    #[serde(default)]
    pub id: u64,
    /// Identifier of the owner's credential, with the time at which the credential expires; `None` for the operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<String>,
    /// Priority under overload.
    pub priority: u8,
    /// Reserved memory, in bytes.
    pub memory_reserved: u64,
    /// Used part of the reserved memory, in bytes.
    pub memory_used: u64,
    /// Memory up to which the session's modules may extend the reservation by themselves, in bytes.
    #[serde(default)]
    pub memory_max: u64,
    /// Number of times that memory became low: less than an eighth of the reservation was left, or a request for memory
    /// exceeded the rest.
    #[serde(default)]
    pub memory_low: u64,
    /// Requests for memory that were refused.
    #[serde(default)]
    pub memory_refused: u64,
    /// Limits beside memory.
    #[serde(default, skip_serializing_if = "LimitsStatus::is_none")]
    pub limits: LimitsStatus,
    /// Virtual CPUs.
    pub cpu: Vec<VirtualCpuStatus>,
    /// Channels.
    pub channels: Vec<ChannelStatus>,
    /// Output channels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<OutputStatus>,
    /// Running modules.
    pub modules: Vec<ModuleStatus>,
    /// Modules that the node stopped without a request, with their last counters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ended: Vec<ModuleStatus>,
    /// Usage since the session was created; the sum of its ledger entries.
    #[serde(default)]
    pub used: Usage,
    /// Service counters of its modules.
    #[serde(default)]
    pub services: ServicesStatus,
    /// Findings of its modules.
    #[serde(default, skip_serializing_if = "quantity::is_default")]
    pub findings: FindingsStatus,
    /// Named tables that its modules may publish: `NAME`, or `LOCAL=NAME`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub publish: Vec<String>,
    /// Named tables that its modules may read: `NAME`, or `LOCAL=NAME`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub read: Vec<String>,
    /// Offered services.
    #[serde(default, rename = "offer", skip_serializing_if = "Vec::is_empty")]
    pub offers: Vec<OfferSpec>,
    /// Used services of other sessions.
    #[serde(default, rename = "use", skip_serializing_if = "Vec::is_empty")]
    pub uses: Vec<UseSpec>,
    /// Rights over the session that its owner shares: `follow=KEY` or `manage=KEY`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub share: Vec<String>,
    /// True if the status has only sums: one entry for all channels, one for all output channels and one for all
    /// modules. This is so for the session of a delegate who does not share it with the requester.
    #[serde(default, skip_serializing_if = "quantity::is_default")]
    pub sums_only: bool,
}

/// Service counters of a session's modules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServicesStatus {
    /// Calls of other sessions' services.
    pub calls: u64,
    /// Calls that were refused.
    pub refused: u64,
    /// Calls that were answered.
    pub answered: u64,
    /// Calls whose deadline passed.
    pub timed_out: u64,
    /// Calls that failed because the called module ended or failed.
    pub failed: u64,
    /// Calls by other sessions' modules that the session's modules have answered.
    pub served: u64,
    /// Calls by other sessions' modules that wait for the session's modules.
    pub waiting: u64,
    /// Answers that were discarded because the caller had ended.
    pub discarded: u64,
    /// CPU time of other sessions' modules that the session pays for, in ns.
    pub debit_ns: u64,
    /// CPU time of the session's modules that other sessions pay for, in ns.
    pub credit_ns: u64,
}

/// A virtual CPU of a session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VirtualCpuStatus {
    /// Name in the session.
    pub name: String,
    /// Number of the core.
    pub core: u16,
    /// Period, in ns; 0 without a reservation.
    pub period_ns: u64,
    /// Slice, in ns.
    pub slice_ns: u64,
    /// True if the virtual CPU also gets spare time: time of the core that is not reserved or not used.
    pub borrow: bool,
    /// Weight in the division of spare time. 0 in the status of an earlier version.
    #[serde(default)]
    pub weight: u32,
    /// CPU time so far, in ns.
    pub used_ns: u64,
    /// Part of `used_ns` beyond the reservation, in ns.
    pub spare_ns: u64,
    /// Periods in which the virtual CPU always had work but did not get its whole slice.
    pub periods_missed: u64,
    /// Runs of modules that exceeded their budget.
    pub overruns: u64,
    /// CPU time that other threads and called services spent for the virtual CPU's modules, and that was debited from
    /// its slices, in ns.
    #[serde(default)]
    pub debited_ns: u64,
}

/// A channel of a session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ChannelStatus {
    /// Name in the session.
    pub name: String,
    /// Interface that the packets come from.
    pub interface: String,
    /// Filter; empty for all packets.
    pub filter: String,
    /// View of the packets; empty for all fields.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub view: String,
    /// Packets that wait now.
    pub waiting: u64,
    /// Length of the queue, in packets.
    pub queue: u64,
    /// Packets that were selected.
    pub packets: u64,
    /// Bytes of the selected packets on the link.
    pub bytes: u64,
    /// Lost packets, by cause.
    pub drops: BTreeMap<String, u64>,
    /// Counts of preprocessing: wrong checksums, and fragments by the way in which they were handled.
    #[serde(default)]
    pub findings: BTreeMap<String, u64>,
    /// True if the counters include packets that a later filter of the channel rejects. Such counters are hidden from
    /// holders who must not learn of these packets.
    #[serde(skip)]
    pub counts_others: bool,
}

/// A module of a session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ModuleStatus {
    /// Name in the session.
    pub name: String,
    /// Name and version in the module's manifest.
    pub module: String,
    /// Name of the module's tier.
    pub tier: String,
    /// Bound on the module's time for a packet, as text; `unbounded` for a module without one, and `None` for a module that
    /// gets no packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<String>,
    /// `running`, or the reason for which the module ended.
    pub state: String,
    /// Packets that were passed to the module.
    pub packets: u64,
    /// Records that the module emitted and the node accepted.
    pub records: u64,
    /// Records that were refused or could not be written.
    pub records_lost: u64,
    /// Calls that trapped or were aborted.
    pub faults: u64,
    /// Isolation of the module's sandbox process; empty for a module in the node's process.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub isolation: String,
    /// Back end: the compiler of the module's code, `Cranelift` or `LLVM`.
    #[serde(default)]
    pub back_end: String,
    /// Keys that vouch for the machine code of the module's bundle; empty for code that the node has compiled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub compiled_by: Vec<String>,
    /// Strikes: calls that were aborted or counted because they exceeded a limit.
    pub strikes: u64,
    /// Time spent in the module, in ns. The time for which other programs had the core during a call is included.
    pub used_ns: u64,
    /// CPU time that other threads spent for the module's packets and records, in ns.
    #[serde(default)]
    pub other_threads_ns: u64,
    /// Memory of the module, in bytes.
    pub memory: u64,
    /// Message of the last fault.
    pub last_fault: Option<String>,
    /// Record streams of the module, which can be followed.
    pub streams: Vec<String>,
    /// Number of findings by severity, with zeros; empty for a module that declares no findings.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub findings: BTreeMap<String, u64>,
}

impl ModuleStatus {
    /// Returns the facts about the module that are words and known, with their names. An earlier version of a node states fewer.
    pub fn facts(&self) -> impl Iterator<Item = (&'static str, String)> {
        let facts = [
            ("back end", self.back_end.clone()),
            ("compiled by", self.compiled_by.join(", ")),
            ("isolation", self.isolation.clone()),
        ];
        facts.into_iter().filter(|(_, value)| !value.is_empty())
    }
}
