//! The errors of operations on a node, with their messages.

use crate::control::config::NodeConfigError;
use crate::control::spec::SpecError;
use crate::core_thread::runner::{StartError, Stuck};
use crate::sessions::channel_plan::PlanError;
use crate::sessions::compiler_trust::BundleRefusal;
use crate::sessions::link::{OutputError, UnknownLink};
use crate::sessions::tables::TableError;
use crate::sessions::writer::RecordFilesError;
use std::time::Duration;
use weir_compilation::bundle::BundleError;
use weir_datapath::driver::BatchError;
use weir_datapath::egress::LinkError;
use weir_datapath::receive::ReceiveError;
use weir_sandbox::LoadError;
use weir_sched::cpu::ReservationRefusal as CpuRefusal;
use weir_sched::link::{ChannelRefused as LinkRefusal, RateRefused};
use weir_units::{Bytes, Nanos, display_among};
use {
    weir_admission::{ModuleRefusal, Name, Tier},
    weir_session::{ReservationError, StillKept},
};

/// The reason why a compile job was not started. The client can send the request again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompileQueueFull {
    /// The holder's earlier compile jobs have used more CPU time than its share. Contains the time until the share
    /// suffices.
    #[error(
        "earlier requests under this credential have used its share of processor time in advance: try again in {} s", .0.as_secs() + 1
    )]
    Debt(Duration),
    /// The queue was busy with jobs of other holders. Contains the time for which the job has waited.
    #[error("the compile queue is busy with other holders' requests: this request has waited for {} s; try again", .0.as_secs())]
    Others(Duration),
}

/// Error of an operation on a node. The operation has changed nothing.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// A session's description is invalid.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The requester's credential does not allow the request.
    #[error(transparent)]
    NotPermitted(#[from] Box<crate::control::authority::RequestRefusal>),
    /// The compile queue has not started the request's compile job.
    #[error(transparent)]
    NotCompiled(#[from] CompileQueueFull),
    /// A reload has removed the profile of the session.
    #[error(
        "profile `{0}` of the session does not exist any more: give the session another profile with `weir session change --profile`"
    )]
    NoProfile(Name),
    /// A session of this name exists already.
    #[error("there is a session `{0}` already")]
    Exists(Name),
    /// No session has this name.
    #[error("there is no session `{0}`")]
    NoSession(Name),
    /// No module of the session has this name.
    #[error("session `{session}` has no module `{module}`")]
    NoModule {
        /// Name of the session.
        session: Name,
        /// Name of the module in the request.
        module: Name,
    },
    /// The session has a module of this name already.
    #[error(
        "session `{session}` has a module `{module}` already; give the new module another name (`--name`)"
    )]
    ModuleExists {
        /// Name of the session.
        session: Name,
        /// Name of the module.
        module: Name,
    },
    /// The session is being closed.
    #[error("session `{0}` is being closed: no module, channel or output channel can be added")]
    Closing(Name),
    /// There are too many sessions.
    #[error("there are {0} sessions; that is the most")]
    TooMany(usize),
    /// The core does not run modules.
    #[error("virtual CPU `{name}`: core {core} is none of the node's ({cores:?})")]
    NoCore {
        /// Name of the virtual CPU.
        name: Name,
        /// The given core.
        core: u16,
        /// Cores that run modules.
        cores: Vec<u16>,
    },
    /// A core refuses a virtual CPU.
    #[error("virtual CPU `{name}`, core {core}: {refusal}")]
    Cpu {
        /// Name of the virtual CPU.
        name: Name,
        /// Number of the core.
        core: u16,
        /// Reason.
        refusal: CpuRefusal,
    },
    /// The node has less memory left than a session would reserve.
    #[error("{wanted} of memory are more than is left: {left}", wanted = display_among(*wanted, &[*left]), left = display_among(*left, &[*wanted]))]
    Memory {
        /// Requested memory.
        wanted: Bytes,
        /// Memory that is left.
        left: Bytes,
    },
    /// The session has less memory left than a module needs at its start.
    #[error(
        "module `{module}` wants {wanted} of memory at its start, and session `{session}` has {left} left of its {reserved}; reserve more memory with `weir session change {session} --memory`",
        wanted = wanted.map_or_else(|| "more".to_owned(), |wanted| display_among(wanted, &[*left, *reserved])),
        left = display_among(*left, &wanted.iter().copied().chain([*reserved]).collect::<Vec<_>>()),
        reserved = display_among(*reserved, &wanted.iter().copied().chain([*left]).collect::<Vec<_>>())
    )]
    SessionMemory {
        /// Name of the session.
        session: Name,
        /// Name of the module.
        module: Name,
        /// Requested memory, if known.
        wanted: Option<Bytes>,
        /// Memory that is left.
        left: Bytes,
        /// Reserved memory of the session.
        reserved: Bytes,
    },
    /// A reservation would be lower than the memory in use.
    #[error("session `{session}` cannot have {wanted} of memory: it uses {used}", wanted = display_among(*wanted, &[*used]), used = display_among(*used, &[*wanted]))]
    MemoryUsed {
        /// Name of the session.
        session: Name,
        /// Requested memory.
        wanted: Bytes,
        /// Memory in use.
        used: Bytes,
    },
    /// The secret of the node's views is not usable.
    #[error(transparent)]
    Views(#[from] crate::sessions::view::SecretError),
    /// A channel's filter is invalid, or the channel does not fit into the forwarding plan of its interface.
    #[error("channel `{channel}`: {error}")]
    Channel {
        /// Name of the channel.
        channel: Name,
        /// Reason.
        error: PlanError,
    },
    /// An output channel cannot be opened or changed.
    #[error("output channel `{output}`: {error}")]
    Output {
        /// Name of the output channel.
        output: Name,
        /// Reason.
        error: OutputError,
    },
    /// The session has less memory left than the queues of output channels need.
    #[error(
        "queues of output channels need {wanted} of memory, and session `{session}` has {left} left; use a shorter `queue` or more `memory`",
        wanted = display_among(*wanted, &[*left]), left = display_among(*left, &[*wanted])
    )]
    QueueMemory {
        /// Name of the session.
        session: Name,
        /// Memory of the queues.
        wanted: Bytes,
        /// Memory that is left.
        left: Bytes,
    },
    /// The session has less memory left than the waiting fragments of a module need.
    #[error(
        "channel `{channel}` reassembles datagrams, in {wanted} of the session's memory for each of its modules, and session `{session}` has {left} left; reserve more memory with `weir session change`",
        wanted = display_among(*wanted, &[*left]), left = display_among(*left, &[*wanted])
    )]
    ReassemblyMemory {
        /// Name of the channel.
        channel: Name,
        /// Memory of the fragments.
        wanted: Bytes,
        /// Name of the session.
        session: Name,
        /// Memory that is left.
        left: Bytes,
    },
    /// The session has less memory left than the record files of a module need.
    #[error(
        "the records of module `{module}` take {wanted} of the session's memory, for {streams} streams with {fields} fields, and session `{session}` has {left} left of its {reserved}; reserve more memory with `weir session change`, or use a module with fewer streams and fields",
        wanted = display_among(*wanted, &[*left, *reserved]), left = display_among(*left, &[*wanted, *reserved]), reserved = display_among(*reserved, &[*wanted, *left])
    )]
    RecordMemory {
        /// Name of the module.
        module: Name,
        /// Number of its record streams.
        streams: usize,
        /// Number of the fields of all its streams.
        fields: usize,
        /// Memory of the record files.
        wanted: Bytes,
        /// Name of the session.
        session: Name,
        /// Memory that is left.
        left: Bytes,
        /// Memory that the session has reserved.
        reserved: Bytes,
    },
    /// The session has less memory left than a module's queue of packets needs.
    #[error(
        "channel `{channel}` has a queue of {queue} packets, which takes {wanted} of the session's memory for each of its modules, and session `{session}` has {left} left; reserve more memory with `weir session change`, or shorten the `queue`"
    )]
    WaitingMemory {
        /// Name of the channel.
        channel: Name,
        /// Length of the queue, in packets.
        queue: u32,
        /// Memory of the queue.
        wanted: Bytes,
        /// Name of the session.
        session: Name,
        /// Memory that is left.
        left: Bytes,
    },
    /// The session has less memory left than the tables of a view need.
    #[error(
        "the view of channel `{channel}` replaces addresses, which takes {wanted} of the session's memory, and session `{session}` has {left} left; reserve more memory with `weir session change`",
        wanted = display_among(*wanted, &[*left]), left = display_among(*left, &[*wanted])
    )]
    ViewMemory {
        /// Name of the channel.
        channel: Name,
        /// Memory of the view's tables.
        wanted: Bytes,
        /// Name of the session.
        session: Name,
        /// Memory that is left.
        left: Bytes,
    },
    /// A link's interface is not usable.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// No link has this name.
    #[error(transparent)]
    NoLink(#[from] UnknownLink),
    /// The new rate or reservable share of a link is invalid.
    #[error(transparent)]
    LinkConfig(#[from] NodeConfigError),
    /// A link cannot have a lower rate, because its reservations would not fit.
    #[error("link {link}: {refused}")]
    Rate {
        /// Interface of the link.
        link: String,
        /// Reason.
        refused: RateRefused,
    },
    /// A forwarding channel has a module already.
    #[error(
        "channel `{channel}` of session `{session}` forwards packets, and module `{module}` decides which: a forwarding channel has only one module"
    )]
    ForwardingModuleExists {
        /// Name of the session.
        session: Name,
        /// Name of the channel.
        channel: Name,
        /// Name of the present module.
        module: Name,
    },
    /// The module is refused by admission.
    #[error("module `{module}`: {refusal}")]
    Refused {
        /// Name of the module in the request.
        module: String,
        /// Reason.
        refusal: ModuleRefusal,
    },
    /// A call of the module could keep a core for too long.
    #[error(
        "module `{module}` can run for {longest} without a suspension, and a module may keep a core for {blocking_max} at most: use a smaller `check-interval` in its \
         profile, or a longer `blocking` in [cpu]"
    )]
    CallTooLong {
        /// Name of the module in the request.
        module: String,
        /// Maximum time between two suspensions of a call.
        longest: Nanos,
        /// Maximum time for which a module may keep a core.
        blocking_max: Nanos,
    },
    /// A module that is not proved would run on a virtual CPU without a reservation.
    #[error(
        "module `{module}` is {tier}, and virtual CPU `{cpu}` has no reservation: a module that is not proved needs one; reserve a period and a slice"
    )]
    BestEffort {
        /// Name of the module in the request.
        module: String,
        /// Tier of the module.
        tier: Tier,
        /// Virtual CPU of the module.
        cpu: Name,
    },
    /// The node has nearly used up its file descriptors.
    #[error(
        "the node has nearly reached its limit of open files ({limit}): close a session, or start the node with a higher limit (ulimit -n; LimitNOFILE= in its unit)"
    )]
    Descriptors {
        /// Limit of descriptors.
        limit: u64,
    },
    /// The module cannot be compiled or started.
    #[error("module `{module}`: {error}")]
    Load {
        /// Name of the module in the request.
        module: String,
        /// Reason.
        error: LoadError,
    },
    /// The file of the module begins like a bundle, and is none.
    #[error("module `{module}`: {error}")]
    Bundle {
        /// Name of the module in the request.
        module: String,
        /// Reason.
        error: BundleError,
    },
    /// The machine code of the module's bundle is not used, and the node compiles no modules.
    #[error(
        "module `{module}`: the machine code of the bundle is not used: {why}. This node has no compiler"
    )]
    NoCode {
        /// Name of the module in the request.
        module: String,
        /// Reason.
        why: Box<BundleRefusal>,
    },
    /// The start call of the module failed.
    #[error("module `{module}` did not start: {fault}")]
    Start {
        /// Name of the module in the request.
        module: String,
        /// Reason.
        fault: String,
    },
    /// The module needs a feature that is not available in a sandbox process.
    #[error(
        "module `{module}` {what}, which is not possible in a process of its own: load the module into a session without `process = \"own\"`"
    )]
    OwnProcess {
        /// Name of the module in the request.
        module: String,
        /// The use of the feature, as a verb with its object.
        what: &'static str,
    },
    /// The name is not that of a shipped module, and no file came with the request.
    #[error(
        "there is no module `{0}`: no module of this name comes with weir, and no file of this name was given"
    )]
    UnknownModule(String),
    /// A module's file cannot be read.
    #[error("module `{module}`: {source}")]
    File {
        /// Name of the module in the request.
        module: String,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// Record files cannot be created.
    #[error(transparent)]
    Records(#[from] RecordFilesError),
    /// Packets cannot be mapped into the sandbox.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// The operating system has no memory for the packets of a channel.
    #[error("there is no memory for the packets of channel `{channel}`: {source}")]
    Selection {
        /// Name of the channel.
        channel: Name,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The packet memory of the owner's party is used up.
    #[error(
        "packets of channel `{0}` have no memory to wait in: waiting packets under this credential use up its share of `packet_memory` in the node's configuration. Use fewer channels, or join several channels into one"
    )]
    PacketMemory(Name),
    /// A virtual CPU has the maximum number of modules.
    #[error("virtual CPU `{0}` has the maximum number of modules")]
    VirtualCpuFull(Name),
    /// A core does not answer.
    #[error(transparent)]
    CoreStuck(#[from] Stuck),
    /// A core's thread does not start.
    #[error(transparent)]
    Core(#[from] StartError),
    /// The new limit of kept packets would be lower than the number of packets kept now.
    #[error(
        "session `{session}`: {error}; set a limit of at least this number, or a lower limit after the modules have released packets"
    )]
    StillKept {
        /// Name of the session.
        session: Name,
        /// Number of kept packets, and the limit.
        error: StillKept,
    },
    /// An interface cannot be opened.
    #[error(transparent)]
    Interface(#[from] ReceiveError),
    /// The records thread does not start.
    #[error("the records thread cannot be started: {0}")]
    Writer(std::io::Error),
    /// A table cannot be used.
    #[error(transparent)]
    Table(#[from] TableError),
    /// A channel with a module cannot be replaced.
    #[error(
        "channel `{channel}` of session `{session}` has a module, {module}, and cannot be replaced while the module is loaded: unload the module, or add a channel of another name"
    )]
    ChannelInUse {
        /// Name of the session.
        session: Name,
        /// Name of the channel.
        channel: Name,
        /// Name and version of the module.
        module: String,
    },
    /// A module that was to be replaced does not come to the end of its call.
    #[error(
        "module `{module}` is in the same call for more than {seconds} s, so it was not replaced; it goes on"
    )]
    Busy {
        /// The module.
        module: Name,
        /// The time for which the node has waited.
        seconds: u64,
    },
    /// No thread can watch the trial of a newer version.
    #[error("no thread can watch the trial of the newer version, so nothing is replaced: {0}; try again")]
    TrialThread(std::io::Error),
    /// A trial that is too long.
    #[error("a trial of {given} is too long: give at most {most}")]
    TrialTooLong {
        /// The given time.
        given: Nanos,
        /// The longest time.
        most: Nanos,
    },
    /// The state of a module that was to be replaced cannot be moved.
    #[error("module `{module}` was not replaced, and goes on: its state cannot be moved: {source}")]
    State {
        /// The module.
        module: Name,
        /// The reason.
        source: std::io::Error,
    },
    /// The session was changed or closed while a module was prepared for it.
    #[error("session `{0}` changed while the module was prepared; try again")]
    Changed(Name),
}

/// Returns a message about a session. The session's name is added unless the message contains it.
pub(crate) fn of_session(session: &Name, what: &dyn std::fmt::Display) -> String {
    let (what, name) = (what.to_string(), format!("session `{session}`"));
    if what.contains(&name) { what } else { format!("{name}: {what}") }
}

impl NodeError {
    /// Returns the message for the holder of a credential. It omits amounts that depend on the sessions of other
    /// holders.
    pub(crate) fn for_holder(&self) -> String {
        match self {
            Self::Memory { wanted, .. } => format!("{wanted} of memory are more than is left on the node"),
            Self::Cpu { name, core, refusal: CpuRefusal::NoRoom { period, slice, .. } } => format!(
                "virtual CPU `{name}`, core {core}: {slice} in each {period} is more than this core has left"
            ),
            Self::Output {
                output,
                error: OutputError::Refused { link, refused: LinkRefusal::OverReserved { wanted, .. } },
            } => format!(
                "output channel `{output}`: link {link}: {wanted} is more than this link has left to reserve"
            ),
            other => other.to_string(),
        }
    }
}

impl NodeError {
    /// Converts an error of the memory for a channel's packets.
    pub(crate) fn of_selection(channel: &Name, source: std::io::Error) -> Self {
        match source.kind() {
            std::io::ErrorKind::OutOfMemory => Self::PacketMemory(channel.clone()),
            _ => Self::Selection { channel: channel.clone(), source },
        }
    }

    /// Converts an error of a session's memory reservation.
    pub(crate) fn of_memory(session: &Name, error: ReservationError) -> Self {
        match error {
            ReservationError::Left { wanted, left } => Self::Memory { wanted, left },
            ReservationError::Used { wanted, used } => {
                Self::MemoryUsed { session: session.clone(), wanted, used }
            }
            // The ceiling limits only the requests of modules, so a client's request does not get this error.
            ReservationError::Ceiling { wanted, ceiling } => Self::Memory { wanted, left: ceiling },
        }
    }
}
