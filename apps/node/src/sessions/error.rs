//! Why a node does not do what it was asked to do.

use crate::control::config::NodeConfigError;
use crate::control::spec::SpecError;
use crate::link::OutputError;
use crate::plan::PlanError;
use crate::runner::{StartError, Stuck};
use crate::sessions::tables::TableError;
use weir_datapath::egress::LinkError;
use weir_datapath::receive::ReceiveError;
use weir_datapath::seat::BatchError;
use weir_records::RecordsError;
use weir_sandbox::LoadError;
use weir_sched::cpu::ReservationRefusal as CpuRefusal;
use weir_sched::link::{ChannelRefused as LinkRefusal, RateRefused};
use weir_units::{Bytes, Nanos, beside};
use {
    weir_admission::{ModuleRefusal, Name, Tier},
    weir_session::{ReservationError, StillKept},
};

/// Why something was not done. Nothing has changed then.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The description makes no sense.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// Its asker's credential does not allow it.
    #[error(transparent)]
    NotPermitted(#[from] Box<crate::control::authority::RequestRefusal>),
    /// Nothing is compiled for its asker now.
    #[error(transparent)]
    NoTurn(#[from] crate::server::turns::CompileQueueFull),
    /// By what modules were to be admitted is not there.
    #[error(
        "there is no profile `{0}` any more, by which the session's modules are admitted: give the session another one with `weir session change --profile`"
    )]
    NoProfile(Name),
    /// There is one already.
    #[error("there is a session `{0}` already")]
    Exists(Name),
    /// There is none.
    #[error("there is no session `{0}`")]
    NoSession(Name),
    /// There is no such module.
    #[error("session `{session}` has no module `{module}`")]
    NoModule {
        /// In which session.
        session: Name,
        /// As it was named.
        module: Name,
    },
    /// There is one already.
    #[error(
        "session `{session}` has a module `{module}` already; give the other one a name of its own (`--name`)"
    )]
    ModuleExists {
        /// In which session.
        session: Name,
        /// As it was named.
        module: Name,
    },
    /// It is about to be there no longer.
    #[error("session `{0}` is being closed: no module, channel or output channel can come to it any more")]
    Closing(Name),
    /// There are no more sessions.
    #[error("there are {0} sessions; that is the most")]
    TooMany(usize),
    /// The core is not one of the node's.
    #[error("virtual processor `{name}`: core {core} is none of the node's ({cores:?})")]
    NoCore {
        /// Whose.
        name: Name,
        /// As it was named.
        core: u16,
        /// The cores that there are.
        cores: Vec<u16>,
    },
    /// A core has no room.
    #[error("virtual processor `{name}`, core {core}: {refusal}")]
    Cpu {
        /// Whose.
        name: Name,
        /// Which core.
        core: u16,
        /// The reason.
        refusal: CpuRefusal,
    },
    /// There is not so much memory.
    #[error("{wanted} of memory are more than is left: {left}", wanted = beside(*wanted, &[*left]), left = beside(*left, &[*wanted]))]
    Memory {
        /// The amount asked for.
        wanted: Bytes,
        /// The amount left.
        left: Bytes,
    },
    /// The session has not so much memory.
    #[error(
        "module `{module}` wants {wanted} of memory at its start, and session `{session}` has {left} left of its {reserved}; more can be reserved with `weir session change {session} --memory`",
        wanted = wanted.map_or_else(|| "more".to_owned(), |wanted| beside(wanted, &[*left, *reserved])),
        left = beside(*left, &wanted.iter().copied().chain([*reserved]).collect::<Vec<_>>()),
        reserved = beside(*reserved, &wanted.iter().copied().chain([*left]).collect::<Vec<_>>())
    )]
    SessionMemory {
        /// The session.
        session: Name,
        /// The module.
        module: Name,
        /// What it wants, where that is known.
        wanted: Option<Bytes>,
        /// The amount left.
        left: Bytes,
        /// Of so much.
        reserved: Bytes,
    },
    /// It cannot be less than what is used.
    #[error("session `{session}` cannot have {wanted} of memory: it uses {used}", wanted = beside(*wanted, &[*used]), used = beside(*used, &[*wanted]))]
    MemoryUsed {
        /// The session.
        session: Name,
        /// The amount asked for.
        wanted: Bytes,
        /// What it uses.
        used: Bytes,
    },
    /// There is no secret for views.
    #[error(transparent)]
    Views(#[from] crate::sessions::view::SecretError),
    /// A filter is wrong, or one too many.
    #[error("channel `{channel}`: {error}")]
    Channel {
        /// The channel.
        channel: Name,
        /// The reason.
        error: PlanError,
    },
    /// An output channel cannot be.
    #[error("output channel `{output}`: {error}")]
    Output {
        /// The output channel.
        output: Name,
        /// The reason.
        error: OutputError,
    },
    /// A session's memory does not suffice for what may wait in its output channels.
    #[error(
        "{wanted} of memory are what may wait in output channels, and session `{session}` has {left} left; a shorter `queue` or more `memory` would do",
        wanted = beside(*wanted, &[*left]), left = beside(*left, &[*wanted])
    )]
    QueueMemory {
        /// The session.
        session: Name,
        /// What may wait.
        wanted: Bytes,
        /// The amount left.
        left: Bytes,
    },
    /// A session's memory does not suffice for the fragments that are to be put together.
    #[error(
        "channel `{channel}` puts datagrams together, in {wanted} of the session's memory for each of its modules, and session `{session}` has {left} left; more can be reserved with `weir session change`",
        wanted = beside(*wanted, &[*left]), left = beside(*left, &[*wanted])
    )]
    ReassemblyMemory {
        /// The channel.
        channel: Name,
        /// For the fragments that wait.
        wanted: Bytes,
        /// The session that it is of.
        session: Name,
        /// The amount left.
        left: Bytes,
    },
    /// A session's memory does not suffice for the packets that wait in a queue.
    #[error(
        "channel `{channel}` has a queue of {queue} packets, which takes {wanted} of the session's memory for each of its modules, and session `{session}` has {left} left; more can be reserved with `weir session change`, or let it have a shorter `queue`"
    )]
    WaitingMemory {
        /// The channel.
        channel: Name,
        /// The longest queue.
        queue: u32,
        /// For its packets.
        wanted: Bytes,
        /// The session that it is of.
        session: Name,
        /// The amount left.
        left: Bytes,
    },
    /// A session's memory does not suffice for what anonymises addresses.
    #[error(
        "channel `{channel}` shows packets with other addresses, which takes {wanted} of the session's memory, for its modules and filters, and session `{session}` has {left} left; more can be reserved with `weir session change`",
        wanted = beside(*wanted, &[*left]), left = beside(*left, &[*wanted])
    )]
    ViewMemory {
        /// The channel.
        channel: Name,
        /// For what is precomputed and remembered.
        wanted: Bytes,
        /// The session that it is of.
        session: Name,
        /// The amount left.
        left: Bytes,
    },
    /// A link cannot be used.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// There is no such link.
    #[error("there is no link `{given}`; {}", if known.is_empty() { "there are none".to_owned() } else { format!("there is {}", known.join(", ")) })]
    NoLink {
        /// As it was named.
        given: String,
        /// The links that there are.
        known: Vec<String>,
    },
    /// No link can be like that.
    #[error(transparent)]
    Terms(#[from] NodeConfigError),
    /// A link cannot have that rate.
    #[error("link {link}: {refused}")]
    Rate {
        /// The link.
        link: String,
        /// The reason.
        refused: RateRefused,
    },
    /// A channel that forwards has one module, which decides.
    #[error(
        "channel `{channel}` of session `{session}` forwards its packets, and module `{module}` decides which: it has no room for another one"
    )]
    Decided {
        /// Which session.
        session: Name,
        /// Which channel.
        channel: Name,
        /// The module that is there.
        module: Name,
    },
    /// The module is not admitted.
    #[error("module `{module}`: {refusal}")]
    Refused {
        /// As it was named.
        module: String,
        /// The reason.
        refusal: ModuleRefusal,
    },
    /// A call of it can take longer than the node lets anybody keep a core.
    #[error(
        "module `{module}`: it cannot be suspended for {longest}, and nobody keeps a core for longer than {blocking}: a smaller `piece` in its \
         profile, or a longer `blocking` in [cpu]"
    )]
    TooLong {
        /// As it was named.
        module: String,
        /// How long.
        longest: Nanos,
        /// What is allowed.
        blocking: Nanos,
    },
    /// Best effort is for modules that are proved.
    #[error(
        "module `{module}` is {tier}, and virtual processor `{cpu}` has no reservation: without one there are only proved modules; reserve a period and a slice"
    )]
    BestEffort {
        /// As it was named.
        module: String,
        /// Its tier.
        tier: Tier,
        /// Where it would have run.
        cpu: Name,
    },
    /// Nearly all descriptors are taken, by sessions, modules and their records.
    #[error(
        "the node has nearly as many files open as it may have ({limit}): close a session, or start the node with a higher limit (ulimit -n; LimitNOFILE= in its unit)"
    )]
    Descriptors {
        /// As many as it may have.
        limit: u64,
    },
    /// The module cannot be loaded.
    #[error("module `{module}`: {error}")]
    Load {
        /// As it was named.
        module: String,
        /// The reason.
        error: LoadError,
    },
    /// It did not start.
    #[error("module `{module}` did not start: {fault}")]
    Start {
        /// As it was named.
        module: String,
        /// The reason.
        fault: String,
    },
    /// It wants something that there is not for a module in a process of its own.
    #[error(
        "module `{module}` {what}, and what is in a process of its own cannot: its session would have to be without `process = \"own\"`"
    )]
    Apart {
        /// As it was named.
        module: String,
        /// What it wants.
        what: &'static str,
    },
    /// There is no such shipped module, and no file came with the request.
    #[error(
        "there is no module `{0}`: it is none of those that come with weir, and no file of that name was given"
    )]
    Unknown(String),
    /// A module's file cannot be read.
    #[error("module `{module}`: {source}")]
    File {
        /// As it was named.
        module: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// Its records cannot be kept.
    #[error(transparent)]
    Records(#[from] RecordsError),
    /// Packets cannot be shown to it.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// There is no memory for a selection.
    #[error("there is no memory for the packets of channel `{channel}`: {source}")]
    Selection {
        /// The channel.
        channel: Name,
        /// What the system said.
        source: std::io::Error,
    },
    /// Its owner has as much as there is for him.
    #[error(
        "packets of channel `{0}` could wait nowhere: those that wait under this credential take all that there is for it. Use fewer channels, or one filter for several; how much there is says `packet_memory` in the node's configuration"
    )]
    PacketRoom(Name),
    /// A virtual processor is full.
    #[error("virtual processor `{0}` has as many modules as it can have")]
    Full(Name),
    /// A core does not answer.
    #[error(transparent)]
    Stuck(#[from] Stuck),
    /// A core's thread does not start.
    #[error(transparent)]
    Core(#[from] StartError),
    /// It cannot be fewer than are kept.
    #[error(
        "session `{session}`: {error}; it can be as many or more, or fewer when they have let go of some"
    )]
    StillKept {
        /// The session.
        session: Name,
        /// How many there are.
        error: StillKept,
    },
    /// An interface cannot be used.
    #[error(transparent)]
    Source(#[from] ReceiveError),
    /// The records' thread does not start.
    #[error("there is no thread for records: {0}")]
    Writer(std::io::Error),
    /// A table cannot be used so.
    #[error(transparent)]
    Table(#[from] TableError),
    /// Modules have the memory of its packets.
    #[error(
        "channel `{channel}` of session `{session}` has a module, {module}, and does not change as long as it is there: unload that, or add a channel of another name"
    )]
    ChannelInUse {
        /// The session that it is of.
        session: Name,
        /// The channel.
        channel: Name,
        /// What it calls itself.
        module: String,
    },
    /// The session has gone, or changed, while a module was prepared for it.
    #[error("session `{0}` changed while the module was prepared; try again")]
    Changed(Name),
}

/// A message about a session, which names the session once.
pub(crate) fn of_session(session: &Name, what: &dyn std::fmt::Display) -> String {
    let (what, name) = (what.to_string(), format!("session `{session}`"));
    if what.contains(&name) { what } else { format!("{name}: {what}") }
}

impl NodeError {
    /// The message for the holder of a credential, without sums over the sessions of others. It tells only that less is left than was asked for.
    pub(crate) fn for_holder(&self) -> String {
        match self {
            Self::Memory { wanted, .. } => format!("{wanted} of memory are more than is left on the node"),
            Self::Cpu { name, core, refusal: CpuRefusal::NoRoom { period, slice, .. } } => format!(
                "virtual processor `{name}`, core {core}: {slice} in each {period} is more than this core has left"
            ),
            Self::Output {
                output,
                error: OutputError::Refused { link, refused: LinkRefusal::OverReserved { wanted, .. } },
            } => format!(
                "output channel `{output}`: link {link}: {wanted} more is to be reserved than is left"
            ),
            other => other.to_string(),
        }
    }
}

impl NodeError {
    /// The packets of a channel have no memory.
    pub(crate) fn of_selection(channel: &Name, source: std::io::Error) -> Self {
        match source.kind() {
            std::io::ErrorKind::OutOfMemory => Self::PacketRoom(channel.clone()),
            _ => Self::Selection { channel: channel.clone(), source },
        }
    }

    /// A session's reservation cannot be what is asked for.
    pub(crate) fn of_memory(session: &Name, error: ReservationError) -> Self {
        match error {
            ReservationError::Left { wanted, left } => Self::Memory { wanted, left },
            ReservationError::Used { wanted, used } => {
                Self::MemoryUsed { session: session.clone(), wanted, used }
            }
            // Whoever is not a module has no other ceiling than what there is.
            ReservationError::Ceiling { wanted, ceiling } => Self::Memory { wanted, left: ceiling },
        }
    }
}
