//! What is said over the node's socket.
//!
//! A message is one line of JSON, of a client at most [`LINE_BYTES_MAX`] long, of a node [`ANSWER_BYTES_MAX`]; one with a `body` is followed by that many bytes, the file of a module or table. The client
//! asks, the node answers each request in its order; a [`Request::Follow`] or [`Request::Watch`] is answered again and again until the client goes.
//! A file that is too long for one message comes before, in [parts](Request::Upload), and the request names it: so it can go on after a connection has broken.
//! Every message carries the protocol's version. A node refuses a request of another version, and says which it speaks.

use crate::counted;
pub use crate::limits::LimitsShot;
use crate::link::OutputSpec;
use crate::offers::{OfferSpec, UseSpec};
use crate::quantity;
use crate::spec::{ChannelSpec, Given, ModuleSpec, ProcessorSpec, SessionSpec};
use crate::tables::TableGrant;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use weir_session::{MODULE_BYTES_MAX, Name};
use weir_trust::grant::ModuleHash;
use weir_trust::revocation::LIST_BYTES_MAX;
use weir_units::{BitsPerSecond, Bytes, Nanos};
use weir_wire::WriteFields;

/// The version that this node speaks.
pub const VERSION: u32 = 1;
/// The longest line of a client.
pub const LINE_BYTES_MAX: usize = 1 << 20;
/// The longest line of a node: one with thousands of sessions has much to say.
pub const ANSWER_BYTES_MAX: usize = 64 << 20;
/// The longest part of a file that comes in parts. It is short enough to arrive within a minute where little does, and long enough that few have to be answered.
pub const PART_BYTES_MAX: usize = 256 << 10;

/// From a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ask {
    /// The protocol's version.
    pub weir: u32,
    /// What is wanted.
    pub ask: Request,
    /// Bytes that follow the line.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub body: u32,
    /// In the place of a body: a file that has come before, in parts.
    #[serde(default, with = "quantity::maybe", skip_serializing_if = "Option::is_none")]
    pub file: Option<ModuleHash>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde calls it with")]
fn is_zero(value: &u32) -> bool {
    *value == 0
}

impl Ask {
    /// A request without a body.
    pub fn new(ask: Request) -> Self {
        Self { weir: VERSION, ask, body: 0, file: None }
    }
}

/// What a client wants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// What the node is and does: [`Reply::Snapshot`].
    Show,
    /// A [`Reply::Snapshot`] now and after each such time.
    Watch {
        /// How often.
        #[serde(with = "quantity::text")]
        every: Nanos,
    },
    /// A session: [`Reply::Done`].
    Create(SessionSpec),
    /// Other reservations for a session: [`Reply::Done`].
    Change(Change),
    /// The end of a session: [`Reply::Done`], when its modules have stopped.
    Close {
        /// Which.
        #[serde(with = "quantity::text")]
        session: Name,
    },
    /// A module for a session; its file is the body, or none where `module` is the name of a shipped one. [`Reply::Done`].
    Load {
        /// Which session.
        #[serde(with = "quantity::text")]
        session: Name,
        /// Which module, and how it is set.
        module: ModuleSpec,
        /// Who vouches for it: texts of [`weir_trust::signature::ModuleSignature`].
        #[serde(default, deserialize_with = "counted::list", skip_serializing_if = "Vec::is_empty")]
        signatures: Vec<String>,
    },
    /// A part of a module's file, which is the body; without one it is asked how much is there: [`Reply::Uploaded`].
    Upload(Part),
    /// The end of a module: [`Reply::Done`].
    Unload {
        /// Which session.
        #[serde(with = "quantity::text")]
        session: Name,
        /// Which module, as it is called there.
        #[serde(with = "quantity::text")]
        module: Name,
    },
    /// The records of a stream as they come: [`Reply::Record`].
    Follow {
        /// Which session.
        #[serde(with = "quantity::text")]
        session: Name,
        /// Which module.
        #[serde(with = "quantity::text")]
        module: Name,
        /// Which of its streams.
        #[serde(with = "quantity::text")]
        stream: Name,
    },
    /// The next version of a named table of the operator's; its bytes are the body: [`Reply::Done`].
    PutTable {
        /// Which.
        #[serde(with = "quantity::text")]
        table: Name,
    },
    /// The end of a named table of the operator's: [`Reply::Done`].
    RemoveTable {
        /// Which.
        #[serde(with = "quantity::text")]
        table: Name,
    },
    /// Another rate for a link: [`Reply::Done`].
    Rate(Rate),
    /// What a credential allows on this node, and whether a request would be fulfilled: [`Reply::Explained`]. With a module's file as the body where that is about one.
    Explain(Box<Explain>),
    /// A newer list of what a root of trust has taken back; its text is the body: [`Reply::Done`]. Anybody may deliver one: what counts is the root's signature.
    Revoke,
    /// Reads the configuration again: [`Reply::Done`].
    Reload,
}

impl Request {
    /// The session that it is about.
    pub fn session(&self) -> Option<&Name> {
        match self {
            Self::Create(spec) => Some(&spec.name),
            Self::Change(change) => Some(&change.session),
            Self::Close { session }
            | Self::Load { session, .. }
            | Self::Unload { session, .. }
            | Self::Follow { session, .. } => Some(session),
            Self::Show
            | Self::Watch { .. }
            | Self::Upload(_)
            | Self::PutTable { .. }
            | Self::RemoveTable { .. }
            | Self::Rate(_)
            | Self::Explain(_)
            | Self::Revoke
            | Self::Reload => None,
        }
    }
}

/// A part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// The SHA-256 of the whole file. It is of whoever sends it, and nobody else can go on with it or use it.
    #[serde(with = "quantity::text")]
    pub file: ModuleHash,
    /// The bytes of the whole file.
    pub bytes: u32,
    /// Where in it the part begins: behind all that is there. One that begins elsewhere is not taken.
    pub from: u32,
}

/// What is to be explained.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Explain {
    /// The credential, as text. Whoever has come with one asks about that one, and leaves this out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<String>,
    /// A request that would be made with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ask: Option<Request>,
}

/// What a credential allows on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// What credentials call the node.
    pub node: String,
    /// When, in seconds since 1970.
    pub at: u64,
    /// Whose credential it is.
    pub holder: String,
    /// The root of its chain.
    pub root: String,
    /// Why it is worth nothing here and now; then nothing of the rest is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worthless: Option<String>,
    /// What it allows, part by part, in words.
    #[serde(default)]
    pub allows: Vec<(String, String)>,
    /// What is used, of what is given to each holder of its chain, and to its root.
    #[serde(default)]
    pub used: Vec<UsedShot>,
    /// What would come of the request; nothing where none was named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
}

/// Something that is given, and how much of it is used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsedShot {
    /// To whom it is given.
    pub whose: String,
    /// What.
    pub part: String,
    /// So much is used,
    pub used: String,
    /// of so much.
    pub given: String,
}

/// What would come of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// Why it would be refused; nothing where it would not.
    pub refused: Option<String>,
}

/// What changes of a link; what is missing stays.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    /// Its interface.
    pub link: String,
    /// Bits on the wire per second.
    #[serde(default, with = "quantity::maybe", skip_serializing_if = "Option::is_none")]
    pub rate: Option<BitsPerSecond>,
    /// How much of that can be reserved, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservable: Option<u8>,
}

/// What a request's body is the file of, and how long it can be; no longer than nothing, where no file belongs to it.
pub fn body_of(ask: &Request) -> (&'static str, usize) {
    match ask {
        Request::PutTable { .. } => ("table", weir_abi::limit::TABLE_BYTES as usize),
        Request::Upload(_) => ("part", PART_BYTES_MAX),
        Request::Revoke => ("revocation list", LIST_BYTES_MAX),
        Request::Load { .. } => ("module", MODULE_BYTES_MAX),
        Request::Explain(explain) => match &explain.ask {
            Some(load @ Request::Load { .. }) => body_of(load),
            _ => ("request", 0),
        },
        _ => ("request", 0),
    }
}

/// What changes in a session; what is missing stays.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// Which session.
    #[serde(with = "quantity::text")]
    pub session: Name,
    /// Virtual processors: those with a name that there is are changed, others are new.
    #[serde(default, deserialize_with = "counted::list")]
    pub cpu: Vec<ProcessorSpec>,
    /// Channels: those with a name that there is, and that no module is loaded for, are changed, others are new.
    #[serde(
        default,
        rename = "channel",
        deserialize_with = "counted::list",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub channels: Vec<ChannelSpec>,
    /// Output channels: those with a name that there is are changed, others are new.
    #[serde(default, deserialize_with = "counted::list", skip_serializing_if = "Vec::is_empty")]
    pub output: Vec<OutputSpec>,
    /// Services that it offers: those with a name that there is are changed, others are new.
    #[serde(
        default,
        rename = "offer",
        deserialize_with = "counted::list",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub offers: Vec<OfferSpec>,
    /// Services that it offers no longer.
    #[serde(default, with = "counted::texts", skip_serializing_if = "Vec::is_empty")]
    pub withdraw: Vec<Name>,
    /// Services of others that it uses: those with a name that there is are changed, others are new.
    #[serde(
        default,
        rename = "use",
        deserialize_with = "counted::list",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub uses: Vec<UseSpec>,
    /// Services of others that it uses no longer.
    #[serde(default, with = "counted::texts", skip_serializing_if = "Vec::is_empty")]
    pub forgo: Vec<Name>,
    /// Named tables that its modules may read: those with a local name that there is are changed, others are new.
    #[serde(default, with = "counted::texts", skip_serializing_if = "Vec::is_empty")]
    pub read: Vec<TableGrant>,
    /// Tables, by their local names, that its modules may read no longer.
    #[serde(default, with = "counted::texts", skip_serializing_if = "Vec::is_empty")]
    pub revoke_read: Vec<Name>,
    /// Named tables that its modules may publish: those with a local name that there is are changed, others are new.
    #[serde(default, with = "counted::texts", skip_serializing_if = "Vec::is_empty")]
    pub publish: Vec<TableGrant>,
    /// Tables, by their local names, that its modules may publish no longer.
    #[serde(default, with = "counted::texts", skip_serializing_if = "Vec::is_empty")]
    pub revoke_publish: Vec<Name>,
    /// The profile by which modules are admitted that are loaded from then on.
    #[serde(default, with = "quantity::maybe", skip_serializing_if = "Option::is_none")]
    pub profile: Option<Name>,
    /// Memory.
    #[serde(default, with = "quantity::maybe", skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
    /// Memory that it may reserve by itself at most.
    #[serde(default, with = "quantity::maybe", skip_serializing_if = "Option::is_none")]
    pub memory_max: Option<Bytes>,
    /// Records that its modules may have taken in a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub records_per_second: Option<u64>,
    /// Packets that its modules may keep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_packets: Option<u64>,
    /// Fields of packets that its modules may write, in the place of those that they may now.
    #[serde(default, deserialize_with = "counted::writes", skip_serializing_if = "Option::is_none")]
    pub writes: Option<WriteFields>,
    /// Priority under overload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
}

/// From the node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// The protocol's version.
    pub weir: u32,
    /// What it says.
    pub reply: Reply,
}

/// What a node says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// It is done. What the asking party should know beside that.
    Done {
        /// Lines for people.
        notes: Vec<String>,
    },
    /// It is not done, and nothing has changed.
    Refused {
        /// Why, and what to do.
        why: String,
    },
    /// How things are.
    Snapshot(Box<Snapshot>),
    /// A row of a stream: its fields by name.
    Record(BTreeMap<String, Given>),
    /// So much of a file is there, from its beginning.
    Uploaded {
        /// Bytes.
        bytes: u32,
    },
    /// What a credential allows.
    Explained(Box<Explanation>),
    /// Rows that a follower was too slow for.
    Missed {
        /// So many.
        rows: u64,
    },
}

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
    pub cores: Vec<CoreShot>,
    /// Its interfaces.
    pub interfaces: Vec<InterfaceShot>,
    /// Its links.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<LinkShot>,
    /// Its sessions.
    pub sessions: Vec<SessionShot>,
    /// Memory that sessions can reserve, and have reserved, bytes.
    pub memory: Taken,
    /// Its named tables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tables: Vec<TableShot>,
    /// Its views.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub views: Vec<ViewShot>,
}

/// A view by which packets of an interface are shown. All who read it see the same memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ViewShot {
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
pub struct TableShot {
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
pub struct CoreShot {
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
pub struct InterfaceShot {
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
    /// Fragments of datagrams, by where they went.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fragments: BTreeMap<String, u64>,
}

/// A link.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkShot {
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
pub struct OutputShot {
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
pub struct SessionShot {
    /// Its name.
    pub name: String,
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
    #[serde(default, skip_serializing_if = "LimitsShot::is_none")]
    pub limits: LimitsShot,
    /// Its virtual processors.
    pub cpu: Vec<ProcessorShot>,
    /// Its channels.
    pub channels: Vec<ChannelShot>,
    /// Its output channels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<OutputShot>,
    /// Its modules.
    pub modules: Vec<ModuleShot>,
    /// What its modules did by services, all together.
    #[serde(default)]
    pub services: ServicesShot,
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
}

/// What a session's modules did by services.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServicesShot {
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
pub struct ProcessorShot {
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
pub struct ChannelShot {
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
pub struct ModuleShot {
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
    /// Strikes against it.
    pub strikes: u64,
    /// Processor time in it, ns.
    pub used_ns: u64,
    /// Memory that it has, bytes.
    pub memory: u64,
    /// The last fault, in words.
    pub last_fault: Option<String>,
    /// Its streams, which can be followed.
    pub streams: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_read_as_they_were_written_and_look_like_this() {
        let name = |text| Name::new(text).unwrap();
        let load = Request::Load {
            session: name("alice"),
            module: toml::from_str("module = \"theirs.wasm\"\nset = { port = 53 }").unwrap(),
            signatures: Vec::new(),
        };
        for (ask, line) in [
            (Ask::new(Request::Show), r#"{"weir":1,"ask":"show"}"#),
            (
                Ask::new(Request::Watch { every: Nanos(500_000_000) }),
                r#"{"weir":1,"ask":{"watch":{"every":"500000000ns"}}}"#,
            ),
            (
                Ask::new(Request::Close { session: name("alice") }),
                r#"{"weir":1,"ask":{"close":{"session":"alice"}}}"#,
            ),
            (
                Ask { file: Some(ModuleHash([0xab; 32])), ..Ask::new(load.clone()) },
                &format!(
                    r#"{{"weir":1,"ask":{{"load":{{"session":"alice","module":{{"module":"theirs.wasm","set":{{"port":53}},"channel":"main","cpu":"main"}}}}}},"file":"{}"}}"#,
                    "ab".repeat(32)
                ),
            ),
            (
                Ask {
                    body: 2,
                    ..Ask::new(Request::Upload(Part { file: ModuleHash([1; 32]), bytes: 9, from: 7 }))
                },
                &format!(
                    r#"{{"weir":1,"ask":{{"upload":{{"file":"{}","bytes":9,"from":7}}}},"body":2}}"#,
                    "01".repeat(32)
                ),
            ),
            (
                Ask { body: 4, ..Ask::new(load) },
                r#"{"weir":1,"ask":{"load":{"session":"alice","module":{"module":"theirs.wasm","set":{"port":53},"channel":"main","cpu":"main"}}},"body":4}"#,
            ),
        ] {
            assert_eq!(serde_json::to_string(&ask).unwrap(), line);
            assert_eq!(serde_json::from_str::<Ask>(line).unwrap(), ask);
        }
    }

    #[test]
    fn what_is_no_request_is_refused_with_a_reason() {
        for (line, says) in [
            ("{", "EOF"),
            (r#"{"weir":1}"#, "missing field `ask`"),
            (r#"{"weir":1,"ask":"explode"}"#, "unknown variant `explode`"),
            (r#"{"weir":1,"ask":{"close":{"session":"../x"}}}"#, "is not a name"),
            (r#"{"weir":1,"ask":"show","more":1}"#, "unknown field `more`"),
            (r#"{"weir":1,"ask":"show","file":"../x"}"#, "is no hash of a module"),
            (r#"{"weir":1,"ask":{"upload":{"file":"00","bytes":1,"from":0}}}"#, "is no hash of a module"),
        ] {
            let error = serde_json::from_str::<Ask>(line).unwrap_err().to_string();
            assert!(error.contains(says), "{line}: {error}");
        }
    }
}
