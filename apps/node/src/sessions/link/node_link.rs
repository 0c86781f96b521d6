//! A running link of the node: its configuration, and the handle of its link thread.

use crate::control::link_spec::{LinkConfig, OutputSpec};
use crate::core_thread::trace::Trace;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use weir_datapath::egress::{
    self, BeginTrace, LinkError, LinkState, OutputCounters, TraceLine, TxPacketSink,
};
use weir_datapath::event::{EventSink, ObservedEvent};
use weir_demux::Demux;
use weir_ledger::DropCause;
use weir_sched::link::{ChannelCounters, ChannelRefused, ChannelTerms, QueueLimit, RateRefused};
use weir_units::{BitsPerSecond, Bytes};
use weir_wire::LinkType;

/// A link of the node. Sending ends when this value is dropped.
#[derive(Debug)]
pub(crate) struct NodeLink {
    config: LinkConfig,
    tx: egress::TxHandle,
}

impl NodeLink {
    /// Opens the interface and starts the link thread. With a folder `traces`, the scheduler's trace is written to a
    /// file in this folder.
    pub(crate) fn start(
        config: LinkConfig,
        events: &Sender<ObservedEvent>,
        traces: Option<&Path>,
    ) -> Result<Self, LinkError> {
        let name = format!("link-{}", config.interface);
        let trace = traces.map(|folder| -> BeginTrace<'_> {
            Box::new(move |head| {
                let mut trace = Trace::create(folder, &name, head)?;
                Ok(Box::new(move |line| trace.add(line)) as TraceLine)
            })
        });
        let tx = egress::TxHandle::start(&config.interface, config.scheduled(), event_sender(events), trace)?;
        Ok(Self { config, tx })
    }

    /// Returns the configuration, with the present rate.
    pub(crate) fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// Returns the link type of the link's frames.
    pub(crate) fn link_type(&self) -> LinkType {
        self.tx.link_type()
    }

    /// Opens an output channel, if the link has the capacity for its reservation. Only frames that `allowed` selects
    /// are sent.
    pub(crate) fn open(
        &self,
        spec: &OutputSpec,
        allowed: Option<Arc<Demux>>,
    ) -> Result<TxPacketSink, ChannelRefused> {
        let (terms, queue) = self.terms(spec);
        self.tx.open(terms, queue, allowed)
    }

    /// Changes the terms of an output channel, if the link has the capacity for its reservation.
    pub(crate) fn change(
        &self,
        tx_queue: &TxPacketSink,
        spec: &OutputSpec,
        allowed: Option<Arc<Demux>>,
    ) -> Result<(), ChannelRefused> {
        let (terms, queue) = self.terms(spec);
        self.tx.change(tx_queue, terms, queue, allowed)
    }

    fn terms(&self, spec: &OutputSpec) -> (ChannelTerms, QueueLimit) {
        // The session's memory is charged for a queue of frames of maximum length, so the bytes need no limit here.
        let queue = QueueLimit { packets: spec.queue, bytes: Bytes(u64::MAX) };
        (spec.terms(&self.config.scheduled()), queue)
    }

    /// Closes an output channel. Waiting frames are lost and counted.
    pub(crate) fn close(&self, tx_queue: &TxPacketSink) {
        self.tx.close(tx_queue);
    }

    /// Changes the rate of the link, if its reservations still fit.
    pub(crate) fn set_rate(&mut self, rate: BitsPerSecond, reservable: u8) -> Result<(), RateRefused> {
        self.tx.set_rate(rate, LinkConfig::reservable_of(rate, reservable))?;
        (self.config.rate, self.config.reservable) = (rate, reservable);
        Ok(())
    }

    /// Returns the rate that can still be reserved: the reservable rate that is neither reserved nor held back after a
    /// release.
    pub(crate) fn left(&self) -> BitsPerSecond {
        self.tx.unreserved()
    }

    /// Makes the rate `wanted`, which is held back after a release, available to the next reservation.
    pub(crate) fn release_held(&self, wanted: BitsPerSecond) {
        self.tx.release_held(wanted);
    }

    /// Returns the state of the link.
    pub(crate) fn state(&self) -> LinkState {
        self.tx.state()
    }

    /// Returns the bytes that an output channel has sent on the wire, with framing: within its reservation, and beyond
    /// it. Both counts are 0 for a closed channel.
    pub(crate) fn counters(&self, tx_queue: &TxPacketSink) -> ChannelCounters {
        self.tx.counters(tx_queue)
    }
}

/// Returns a sink that sends the events of an interface to the node.
pub(super) fn event_sender(events: &Sender<ObservedEvent>) -> EventSink {
    let events = events.clone();
    Box::new(move |event| _ = events.send(event))
}

/// Returns the number of lost frames of an output channel, for each drop cause.
pub(crate) fn drops(counters: &OutputCounters) -> [(DropCause, u64); 6] {
    let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    [
        (DropCause::LinkQueueFull, get(&counters.queue_full)),
        (DropCause::TooLong, get(&counters.too_long)),
        (DropCause::Refused, get(&counters.filtered)),
        (DropCause::InterfaceDown, get(&counters.down)),
        (DropCause::SendFailed, get(&counters.failed)),
        (DropCause::Closed, get(&counters.closed)),
    ]
}
