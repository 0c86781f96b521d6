//! A link as the node has it: configured, and told of in the node's log.

use super::spec::{LinkConfig, OutputSpec};
use crate::trace::Trace;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use weir_datapath::egress::{self, Line, LinkError, OutputCounters, PortState, Tracing, TxPacketSink};
use weir_datapath::notice::{ObservedEvent, Tell};
use weir_demux::Demux;
use weir_ledger::DropCause;
use weir_sched::link::{ChannelCounters, ChannelRefused, ChannelTerms, QueueLimit, RateRefused};
use weir_units::{BitsPerSecond, Bytes};
use weir_wire::LinkType;

/// A link of the node. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct NodeLink {
    config: LinkConfig,
    port: egress::TxHandle,
}

impl NodeLink {
    /// Opens the interface, and begins to send what comes. With a folder for `traces`, all that its scheduler decides is written there.
    pub(crate) fn start(
        config: LinkConfig,
        notices: &Sender<ObservedEvent>,
        traces: Option<&Path>,
    ) -> Result<Self, LinkError> {
        let name = format!("link-{}", config.interface);
        let trace = traces.map(|folder| -> Tracing<'_> {
            Box::new(move |head| {
                let mut trace = Trace::create(folder, &name, head)?;
                Ok(Box::new(move |line| trace.add(line)) as Line)
            })
        });
        let port = egress::TxHandle::start(&config.interface, config.scheduled(), tell(notices), trace)?;
        Ok(Self { config, port })
    }

    /// How it was set up, with its present rate.
    pub(crate) fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// What its frames begin with.
    pub(crate) fn link_type(&self) -> LinkType {
        self.port.link_type()
    }

    /// Opens a channel, if the link has left what it is to be guaranteed. Only frames that `allowed` selects go out.
    pub(crate) fn open(
        &self,
        spec: &OutputSpec,
        allowed: Option<Arc<Demux>>,
    ) -> Result<TxPacketSink, ChannelRefused> {
        let (terms, queue) = self.terms(spec);
        self.port.open(terms, queue, allowed)
    }

    /// Gives a channel other terms from now on, if the link has left what it is to be guaranteed.
    pub(crate) fn change(
        &self,
        outlet: &TxPacketSink,
        spec: &OutputSpec,
        allowed: Option<Arc<Demux>>,
    ) -> Result<(), ChannelRefused> {
        let (terms, queue) = self.terms(spec);
        self.port.change(outlet, terms, queue, allowed)
    }

    fn terms(&self, spec: &OutputSpec) -> (ChannelTerms, QueueLimit) {
        // What waits in it is in the session's memory, which is charged by the frame.
        let queue = QueueLimit { packets: spec.queue, bytes: Bytes(u64::MAX) };
        (spec.terms(&self.config.scheduled()), queue)
    }

    /// Closes a channel. What it had waiting is lost, and counted.
    pub(crate) fn close(&self, outlet: &TxPacketSink) {
        self.port.close(outlet);
    }

    /// Gives the link another rate, if what is promised of it can still be kept.
    pub(crate) fn set_rate(&mut self, rate: BitsPerSecond, reservable: u8) -> Result<(), RateRefused> {
        self.port.set_rate(rate, LinkConfig::reservable_of(rate, reservable))?;
        (self.config.rate, self.config.reservable) = (rate, reservable);
        Ok(())
    }

    /// The rate that can still be reserved: neither reserved nor held for a while.
    pub(crate) fn left(&self) -> BitsPerSecond {
        self.port.left()
    }

    /// Has so much left for what is reserved next, where what others have just given up is held for a while.
    pub(crate) fn forgive(&self, wanted: BitsPerSecond) {
        self.port.forgive(wanted);
    }

    /// What it does.
    pub(crate) fn state(&self) -> PortState {
        self.port.state()
    }

    /// What a channel was sent by its reservation, and with what others left: bytes on the wire, framing included. Nothing where it is closed.
    pub(crate) fn counters(&self, outlet: &TxPacketSink) -> ChannelCounters {
        self.port.counters(outlet)
    }
}

/// Has news of an interface noticed.
pub(super) fn tell(notices: &Sender<ObservedEvent>) -> Tell {
    let notices = notices.clone();
    Box::new(move |notice| _ = notices.send(notice))
}

/// Each cause for which frames of an output channel were lost with its count, as the ledger names them.
pub(crate) fn drops(tally: &OutputCounters) -> [(DropCause, u64); 6] {
    let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    [
        (DropCause::LinkQueueFull, get(&tally.queue_full)),
        (DropCause::TooLong, get(&tally.too_long)),
        (DropCause::Refused, get(&tally.refused)),
        (DropCause::InterfaceDown, get(&tally.down)),
        (DropCause::SendFailed, get(&tally.failed)),
        (DropCause::Closed, get(&tally.closed)),
    ]
}
