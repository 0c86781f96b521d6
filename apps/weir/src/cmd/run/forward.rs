//! Forwarding to another interface, through a link (`weir_datapath::egress`) with one channel.
//!
//! Modules never wait for the interface: packets that do not fit into the channel's queue are dropped and counted.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use weir_datapath::egress::{Egress, LinkError, TxHandle, TxPacketSink};
use weir_netio::LiveError;
use weir_sched::link::{
    ChannelRefused, ChannelTerms, Framing, LinkConfigError, LinkSchedulerConfig, Pacing, QUEUE_PACKETS_MAX,
    QueueLimit,
};
use weir_units::{BitsPerSecond, Bytes, Escape as _, Nanos};
use weir_wire::LinkType;

/// Maximum frame length in bytes: the longest that a capture holds whole.
const FRAME_MAX: u32 = 262_144;
/// The scheduler's rate without `--rate`, above that of any interface: the interface limits the rate.
const NO_LIMIT: BitsPerSecond = BitsPerSecond(1 << 44);
/// Minimum and maximum queue size in bytes.
const QUEUE_BYTES: std::ops::RangeInclusive<u64> = 16 << 10..=16 << 20;
/// The queue holds the bytes that the link sends in one second divided by this number.
const QUEUE_PART: u64 = 10;
/// Maximum delay of a wake-up of the sending thread after which it sends faster to catch up.
const CATCH_UP: Nanos = Nanos(2_000_000);
/// Maximum time for sending the rest of the queue at the end of a run.
const DRAIN_MAX: Duration = Duration::from_secs(1);
/// Interval between checks of the queue at the end of a run.
const DRAIN_POLL: Duration = Duration::from_millis(1);

/// Errors of sending packets.
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    /// The interface cannot be opened.
    #[error(transparent)]
    Live(#[from] LiveError),
    /// The rate is not usable.
    #[error("--rate: {0}")]
    Rate(#[from] LinkConfigError),
    /// The queue cannot be set up.
    #[error("--rate: {0}")]
    Queue(#[from] ChannelRefused),
    /// The link types of the two interfaces differ.
    #[error(
        "{}: this interface sends {theirs:?} packets, but the packets read are {ours:?}: they cannot be sent there",
        interface.escaped()
    )]
    LinkType {
        /// The interface to send on.
        interface: String,
        /// Its link type.
        theirs: LinkType,
        /// The link type of the packets.
        ours: LinkType,
    },
    /// The packets are read from the interface to send on, so that sent packets would be read again.
    #[error("{}: the packets are read from there; --send takes another interface", .0.escaped())]
    Same(String),
    /// The sending thread cannot be started.
    #[error("the sending thread cannot be started: {0}")]
    Thread(std::io::Error),
}

impl From<LinkError> for ForwardError {
    fn from(error: LinkError) -> Self {
        match error {
            LinkError::Live(error) => Self::Live(error),
            LinkError::Config { error, .. } => Self::Rate(error),
            LinkError::Trace { source, .. } | LinkError::Thread { source, .. } => Self::Thread(source),
        }
    }
}

impl ForwardError {
    /// Returns true if the command line is wrong.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Rate(_) | Self::Queue(_) | Self::LinkType { .. } | Self::Same(_))
    }
}

/// Statistics of forwarded packets.
#[derive(Clone, Debug)]
pub struct Forwarded {
    /// The interface that packets are sent on.
    pub interface: String,
    /// Packets sent.
    pub packets: u64,
    /// Bytes sent.
    pub bytes: Bytes,
    /// Packets lost for each cause; zero for a cause without losses.
    pub lost: [(&'static str, u64); 8],
}

impl Forwarded {
    /// Returns the packets lost for all causes together.
    pub fn lost(&self) -> u64 {
        self.lost.iter().map(|(_, packets)| packets).sum()
    }

    /// Returns true if packets were too long for the interface.
    pub fn is_too_long(&self) -> bool {
        self.lost.iter().any(|(cause, packets)| *cause == "too_long" && *packets > 0)
    }

    /// Describes the losses by cause.
    pub fn losses(&self) -> String {
        let causes = self.lost.iter().filter(|(_, packets)| *packets > 0);
        let causes: Vec<String> =
            causes.map(|(cause, packets)| format!("{packets} {}", cause.replace('_', " "))).collect();
        if causes.is_empty() { "none lost".to_owned() } else { format!("lost: {}", causes.join(", ")) }
    }
}

/// Sends packets on an interface.
#[derive(Debug)]
pub struct Forwarder {
    tx: TxHandle,
    sink: TxPacketSink,
    egress: Egress,
}

impl Forwarder {
    /// Starts sending packets of `link_type`, read from `from`, on `interface`, no faster than `rate`.
    pub fn start(
        interface: &str,
        from: &str,
        link_type: LinkType,
        rate: Option<BitsPerSecond>,
    ) -> Result<Self, ForwardError> {
        if interface == from {
            return Err(ForwardError::Same(interface.to_owned()));
        }
        let config = LinkSchedulerConfig {
            rate: rate.unwrap_or(NO_LIMIT),
            reservable: BitsPerSecond(0),
            framing: if link_type == LinkType::Ethernet { Framing::ETHERNET } else { Framing::NONE },
            frame_max: FRAME_MAX,
            pacing: rate.map_or(Pacing::Device, |_| Pacing::Link { catch_up: CATCH_UP }),
            channels_max: 1,
        };
        // Events of the interface are ignored: the summary counts packets lost while the interface is down.
        let tx = TxHandle::start(interface, config, Box::new(|_| {}), None)?;
        let (theirs, ours) = (tx.link_type(), link_type);
        if theirs != ours {
            return Err(ForwardError::LinkType { interface: interface.to_owned(), theirs, ours });
        }
        let bytes = (config.rate.0 / 8 / QUEUE_PART).clamp(*QUEUE_BYTES.start(), *QUEUE_BYTES.end());
        let queue = QueueLimit { packets: QUEUE_PACKETS_MAX, bytes: Bytes(bytes) };
        // `queue` is enforced on entry, so the scheduler needs no limit in bytes.
        let unlimited = QueueLimit { bytes: Bytes(u64::MAX), ..queue };
        let terms = ChannelTerms { reservation: None, cap: None, weight: 1, queue: unlimited };
        let sink = tx.open(terms, queue, None)?;
        let egress = Egress::Link(sink.clone());
        Ok(Self { tx, sink, egress })
    }

    /// Returns the name of the interface.
    pub fn interface(&self) -> &str {
        self.tx.interface()
    }

    /// Returns the link type of the interface.
    pub fn link_type(&self) -> LinkType {
        self.tx.link_type()
    }

    /// Returns the egress, which drops packets while the queue is full.
    pub fn egress(&self) -> &Egress {
        &self.egress
    }

    /// Sends the rest of the queue for up to a second, then closes the link.
    pub fn finish(self) -> Forwarded {
        let Self { tx, sink, .. } = self;
        let begin = Instant::now();
        while sink.waiting() > 0 && begin.elapsed() < DRAIN_MAX {
            std::thread::sleep(DRAIN_POLL);
        }
        tx.close(&sink);
        let interface = tx.interface().to_owned();
        let sent = tx.end();
        let counters = sink.counters();
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        // The link has one channel only, so failures that the interface did not count happened before it.
        let cut = get(&counters.failed).saturating_sub(sent.malformed + sent.refused);
        Forwarded {
            interface,
            packets: sent.packets,
            bytes: sent.bytes,
            lost: [
                ("queue_full", get(&counters.queue_full)),
                ("cut", cut),
                ("too_long", get(&counters.too_long)),
                ("malformed", sent.malformed),
                ("interface_down", sent.down),
                ("interface_gone", sent.gone),
                ("refused", sent.refused),
                ("unsent_at_end", get(&counters.closed) + u64::from(sink.waiting())),
            ],
        }
    }
}
