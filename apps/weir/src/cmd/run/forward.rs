//! Packets on their way out through another interface: by a link of its own (`weir_datapath::egress`), with one channel.
//!
//! Modules never wait for it. What does not fit into the channel's queue is lost and counted.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use weir_datapath::egress::{Egress, LinkError, TxHandle, TxPacketSink};
use weir_netio::LiveError;
use weir_sched::link::{
    ChannelRefused, ChannelTerms, Framing, LinkConfigError, LinkSchedulerConfig, Pacing, QUEUE_PACKETS_MAX,
    QueueLimit,
};
use weir_units::{BitsPerSecond, Bytes, Nanos, Shown as _};
use weir_wire::LinkType;

/// Longer ones are none that were captured whole.
const FRAME_MAX: u32 = 262_144;
/// Where nobody says how fast, the interface says it. More than any has.
const NO_LIMIT: BitsPerSecond = BitsPerSecond(1 << 44);
/// The most that waits, and the least room for it.
const QUEUE_BYTES: std::ops::RangeInclusive<u64> = 16 << 10..=16 << 20;
/// What waits is at most what goes in a second divided by this.
const QUEUE_PART: u64 = 10;
/// Threads are woken late; so much is made up for.
const CATCH_UP: Nanos = Nanos(2_000_000);
/// How long the end of a run waits for what is still in the queue, and how often it looks.
const LAST: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(1);

/// Why packets cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    /// The interface.
    #[error(transparent)]
    Live(#[from] LiveError),
    /// The rate.
    #[error("--rate: {0}")]
    Rate(#[from] LinkConfigError),
    /// The queue.
    #[error("--rate: {0}")]
    Queue(#[from] ChannelRefused),
    /// One has a link header and the other has not, or another.
    #[error(
        "{}: its packets are {theirs:?}, and those that are read {ours:?}: they cannot be sent there",
        interface.shown()
    )]
    LinkType {
        /// The interface.
        interface: String,
        /// What it takes.
        theirs: LinkType,
        /// What there is.
        ours: LinkType,
    },
    /// What is sent would be read again.
    #[error("{}: the packets are read from there; --send takes another interface", .0.shown())]
    Same(String),
    /// No thread.
    #[error("there is no thread for sending: {0}")]
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
    /// Whether the command line is wrong.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Rate(_) | Self::Queue(_) | Self::LinkType { .. } | Self::Same(_))
    }
}

/// What became of packets that were to be sent.
#[derive(Clone, Debug)]
pub struct Forwarded {
    /// The interface.
    pub interface: String,
    /// Packets that it took.
    pub packets: u64,
    /// Their bytes.
    pub bytes: Bytes,
    /// Packets that were lost, by cause; also the causes that there were not.
    pub lost: [(&'static str, u64); 8],
}

impl Forwarded {
    /// Packets lost, for whatever cause.
    pub fn lost(&self) -> u64 {
        self.lost.iter().map(|(_, packets)| packets).sum()
    }

    /// Returns true where packets were longer than the interface takes.
    pub fn is_too_long(&self) -> bool {
        self.lost.iter().any(|(cause, packets)| *cause == "too_long" && *packets > 0)
    }

    /// The same by cause, in words.
    pub fn losses(&self) -> String {
        let causes = self.lost.iter().filter(|(_, packets)| *packets > 0);
        let causes: Vec<String> =
            causes.map(|(cause, packets)| format!("{packets} {}", cause.replace('_', " "))).collect();
        if causes.is_empty() { "none lost".to_owned() } else { format!("lost: {}", causes.join(", ")) }
    }
}

/// A way out through an interface.
#[derive(Debug)]
pub struct Forwarder {
    port: TxHandle,
    outlet: TxPacketSink,
    egress: Egress,
}

impl Forwarder {
    /// Sends packets of this link type, that are read from `from`, on an interface; no faster than `rate`.
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
        // The summary counts what is lost while the interface is down.
        let port = TxHandle::start(interface, config, Box::new(|_| {}), None)?;
        let (theirs, ours) = (port.link_type(), link_type);
        if theirs != ours {
            return Err(ForwardError::LinkType { interface: interface.to_owned(), theirs, ours });
        }
        let bytes = (config.rate.0 / 8 / QUEUE_PART).clamp(*QUEUE_BYTES.start(), *QUEUE_BYTES.end());
        let queue = QueueLimit { packets: QUEUE_PACKETS_MAX, bytes: Bytes(bytes) };
        // What may wait is limited where packets come in.
        let unlimited = QueueLimit { bytes: Bytes(u64::MAX), ..queue };
        let terms = ChannelTerms { reservation: None, cap: None, weight: 1, queue: unlimited };
        let outlet = port.open(terms, queue, None)?;
        let egress = Egress::Link(outlet.clone());
        Ok(Self { port, outlet, egress })
    }

    /// The interface.
    pub fn interface(&self) -> &str {
        self.port.interface()
    }

    /// What it takes.
    pub fn link_type(&self) -> LinkType {
        self.port.link_type()
    }

    /// The way out, as far as there is room in the queue.
    pub fn egress(&self) -> &Egress {
        &self.egress
    }

    /// Ends, after what waits was sent, or a second.
    pub fn finish(self) -> Forwarded {
        let Self { port, outlet, .. } = self;
        let begin = Instant::now();
        while outlet.waiting() > 0 && begin.elapsed() < LAST {
            std::thread::sleep(LOOK);
        }
        port.close(&outlet);
        let interface = port.interface().to_owned();
        let sent = port.end();
        let tally = outlet.tally();
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        // The channel is the link's only one: what it has lost and the interface has not was lost before.
        let cut = get(&tally.failed).saturating_sub(sent.malformed + sent.refused);
        Forwarded {
            interface,
            packets: sent.packets,
            bytes: sent.bytes,
            lost: [
                ("queue_full", get(&tally.queue_full)),
                ("cut", cut),
                ("too_long", get(&tally.too_long)),
                ("malformed", sent.malformed),
                ("interface_down", sent.down),
                ("interface_gone", sent.gone),
                ("refused", sent.refused),
                ("unsent_at_end", get(&tally.closed) + u64::from(outlet.waiting())),
            ],
        }
    }
}
