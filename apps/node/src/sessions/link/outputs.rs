//! The output channels of a node's sessions: opening, changes, closing, and their use as egress of forwarding channels.

use super::UnknownLink;
use super::node_link::{NodeLink, drops, event_sender};
use super::rates::reserved_rate;
use crate::control::link_spec::OutputSpec;
use crate::control::spec::{ChannelSpec, SessionSpec};
use crate::sessions::channel_plan::PlanError;
use crate::sessions::error::NodeError;
use crate::sessions::filters::CompiledFilters;
use crate::sessions::inventory::NodeInventory;
use crate::sessions::node::{Node, SessionState};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weir_datapath::egress::{Egress, Tap, TapError, TxPacketSink};
use weir_demux::{Demux, JoinError, JoinLimits};
use weir_ledger::{LedgerText, ReservedLink, Usage};
use weir_sched::link::ChannelRefused;
use weir_units::{Bytes, Nanos};
use weir_wire::LinkType;
use {
    weir_admission::Name,
    weir_session::{HeldMemory, MemoryReservation},
};

/// Error of an output channel that is opened or changed.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// The output channel names an unknown link.
    #[error(transparent)]
    NoLink(#[from] UnknownLink),
    /// The link lacks capacity.
    #[error("link {link}: {refused}")]
    Refused {
        /// Interface of the link.
        link: String,
        /// Reason of the refusal.
        refused: ChannelRefused,
    },
    /// The filter is invalid.
    #[error(transparent)]
    Filter(#[from] PlanError),
    /// The compiled filter is too large.
    #[error("the filter of the output channel cannot be used: {0}")]
    Join(#[from] JoinError),
    /// Error of the TAP device.
    #[error(transparent)]
    Tap(#[from] TapError),
    /// A TAP device sends Ethernet frames, and the link has another type.
    #[error("a TAP device has Ethernet frames, and the frames of link {link} are {link_type:?}")]
    TapType {
        /// Interface of the link.
        link: String,
        /// Link type of the link's frames.
        link_type: LinkType,
    },
    /// The packets of a channel that forwards to the output channel have another link type.
    #[error(
        "its link type is {output_type:?}, and that of channel `{channel}` is {input_type:?}: the channel cannot forward packets to it"
    )]
    LinkType {
        /// Name of the forwarding channel.
        channel: Name,
        /// Link type of the output channel.
        output_type: LinkType,
        /// Link type of the forwarding channel's packets.
        input_type: LinkType,
    },
    /// The link or TAP device of an open output channel cannot change.
    #[error("its {0} cannot be changed while it is open; close the session and create it again")]
    Unchangeable(&'static str),
}

/// An output channel of a session.
#[derive(Debug)]
pub(crate) struct OutputChannel {
    pub(crate) spec: OutputSpec,
    pub(crate) tx_queue: TxPacketSink,
    /// Filter of the frames that may be sent; `None` for all.
    pub(super) allowed: Option<Arc<Demux>>,
    pub(crate) tap: Option<Arc<Tap>>,
    /// Reserved memory of the channel's queue.
    pub(super) memory: HeldMemory,
}

impl OutputChannel {
    /// Adds the channel's sent and lost packets to the usage. Frames that are delivered to programs behind the TAP
    /// device do not count as sent.
    pub(crate) fn add_to(&self, used: &mut Usage) {
        let counters = self.tx_queue.counters();
        for (sum, counter) in
            [(&mut used.packets_out, &counters.packets), (&mut used.bytes_out.0, &counters.bytes)]
        {
            *sum = sum.saturating_add(counter.load(Ordering::Relaxed));
        }
        let of_tap = self.tap.iter().flat_map(|tap| drops(&tap.egress.counters));
        for (cause, count) in drops(counters).into_iter().chain(of_tap) {
            used.drops.add(cause, count);
        }
    }
}

/// The output channels of a session.
pub(crate) type SessionOutputs = BTreeMap<Name, OutputChannel>;

impl Node {
    /// Opens all of these output channels, or none.
    pub(crate) fn open_outputs(
        &self,
        specs: &[OutputSpec],
        session: &Name,
        memory: &Arc<MemoryReservation>,
        compiled: &CompiledFilters,
    ) -> Result<SessionOutputs, NodeError> {
        let mut outputs = SessionOutputs::new();
        for spec in specs {
            match self.open_output(spec, session, memory, compiled) {
                Ok(output) => _ = outputs.insert(spec.name.clone(), output),
                Err(error) => {
                    self.close_outputs(outputs);
                    return Err(error);
                }
            }
        }
        Ok(outputs)
    }

    pub(super) fn link_of(&self, spec: &OutputSpec) -> Result<&NodeLink, OutputError> {
        self.links.get(&spec.link).ok_or_else(|| {
            let (given, known) = (spec.link.clone(), self.links.keys().cloned().collect());
            UnknownLink { given, known }.into()
        })
    }

    pub(super) fn open_output(
        &self,
        spec: &OutputSpec,
        session: &Name,
        memory: &Arc<MemoryReservation>,
        compiled: &CompiledFilters,
    ) -> Result<OutputChannel, NodeError> {
        let failed = |error: OutputError| NodeError::Output { output: spec.name.clone(), error };
        let link = self.link_of(spec).map_err(failed)?;
        let allowed = compile_filter(spec, link.link_type(), compiled).map_err(failed)?;
        if spec.tap.is_some() && link.link_type() != LinkType::Ethernet {
            let (link, link_type) = (spec.link.clone(), link.link_type());
            return Err(failed(OutputError::TapType { link, link_type }));
        }
        let memory = reserve_queue_memory(memory, session, spec.memory(link.config()))?;
        let refused = |refused| OutputError::Refused { link: spec.link.clone(), refused };
        let tx_queue = link.open(spec, allowed.clone()).map_err(|error| failed(refused(error)))?;
        let tap =
            spec.tap.as_ref().map(|device| Tap::start(device, tx_queue.clone(), event_sender(&self.events)));
        match tap.transpose() {
            Ok(tap) => {
                Ok(OutputChannel { spec: spec.clone(), tx_queue, allowed, tap: tap.map(Arc::new), memory })
            }
            Err(error) => {
                link.close(&tx_queue);
                Err(failed(error.into()))
            }
        }
    }

    pub(crate) fn close_outputs(&self, outputs: SessionOutputs) {
        outputs.values().for_each(|output| self.close_output(output));
    }

    pub(super) fn close_output(&self, output: &OutputChannel) {
        // The TAP device is stopped first, because it is a source of frames.
        if let Some(tap) = &output.tap {
            tap.stop();
        }
        if let Some(link) = self.links.get(&output.spec.link) {
            link.close(&output.tx_queue);
        }
    }

    /// Closes the output channels of a session that is about to close, and adds their usage to the session. Sets the
    /// routes of its channels again, because they cannot forward any more.
    pub(crate) fn stop_outputs(&mut self, session: &Name) -> Result<(), NodeError> {
        let Some(state) = self.sessions.get_mut(session) else { return Ok(()) };
        let outputs = std::mem::take(&mut state.outputs);
        let routed = self.route_session(session);
        let mut closed_usage = Usage::default();
        for output in outputs.values() {
            self.close_output(output);
            output.add_to(&mut closed_usage);
        }
        if let Some(state) = self.sessions.get_mut(session) {
            state.closed_usage.merge(&closed_usage);
        }
        routed
    }

    /// Changes a session's output channels and opens new ones: all of them, or none. Changes to higher reservations,
    /// which can be refused, are applied before changes to lower reservations, which cannot.
    pub(crate) fn change_outputs(
        &mut self,
        session: &Name,
        changes: &[OutputSpec],
        compiled: &CompiledFilters,
    ) -> Result<(), NodeError> {
        let Some(state) = self.sessions.get(session) else {
            return Err(NodeError::NoSession(session.clone()));
        };
        let failed = |spec: &OutputSpec, error| NodeError::Output { output: spec.name.clone(), error };
        let (known, new): (Vec<_>, Vec<_>) =
            changes.iter().cloned().partition(|spec| state.outputs.contains_key(&spec.name));
        let mut steps = Vec::new();
        for spec in known {
            let Some(before) = state.outputs.get(&spec.name) else { continue };
            for (what, differs) in
                [("link", before.spec.link != spec.link), ("tap", before.spec.tap != spec.tap)]
            {
                if differs {
                    return Err(failed(&spec, OutputError::Unchangeable(what)));
                }
            }
            let link = self.link_of(&spec).map_err(|error| failed(&spec, error))?;
            let allowed =
                compile_filter(&spec, link.link_type(), compiled).map_err(|error| failed(&spec, error))?;
            steps.push((reserved_rate(&spec) <= reserved_rate(&before.spec), before, allowed, spec));
        }
        steps.sort_by_key(|(lowers, ..)| *lowers);
        let memory = Arc::clone(&state.memory);
        let grows = steps
            .iter()
            .map(|(_, before, _, spec)| self.output_memory(spec).0.saturating_sub(before.memory.bytes().0));
        let grown = reserve_queue_memory(&memory, session, Bytes(grows.fold(0, u64::saturating_add)))?;
        let opened = self.open_outputs(&new, session, &memory, compiled)?;
        for (done, (_, before, allowed, spec)) in steps.iter().enumerate() {
            if let Err(error) = self.apply_output(&before.tx_queue, spec, allowed) {
                for (_, before, ..) in steps.iter().take(done).rev() {
                    // The undone changes have only raised reservations, so undoing them is not refused.
                    if let Err(error) = self.apply_output(&before.tx_queue, &before.spec, &before.allowed) {
                        crate::log::warn(&format_args!(
                            "output channel `{}` stays changed: {error}",
                            before.spec.name
                        ));
                    }
                }
                self.close_outputs(opened);
                return Err(failed(spec, error));
            }
        }
        let given: Vec<_> = steps.into_iter().map(|(.., allowed, spec)| (allowed, spec)).collect();
        let given: Vec<_> =
            given.into_iter().map(|(allowed, spec)| (self.output_memory(&spec), allowed, spec)).collect();
        let Some(state) = self.sessions.get_mut(session) else { return Ok(()) };
        // The reserved memory is freed, and then taken by the channels.
        drop(grown);
        for (memory, allowed, spec) in given {
            if let Some(output) = state.outputs.get_mut(&spec.name) {
                output.memory.set(memory);
                (output.spec, output.allowed) = (spec, allowed);
            }
        }
        state.outputs.extend(opened);
        Ok(())
    }

    pub(super) fn apply_output(
        &self,
        tx_queue: &TxPacketSink,
        spec: &OutputSpec,
        allowed: &Option<Arc<Demux>>,
    ) -> Result<(), OutputError> {
        let link = self.link_of(spec)?;
        link.change(tx_queue, spec, allowed.clone())
            .map_err(|refused| OutputError::Refused { link: spec.link.clone(), refused })
    }
}

impl NodeInventory {
    /// Checks that output channels name known links, that forwarded packets have the link type of the output channel,
    /// and that no channel forwards packets of an interface that also receives packets sent by this machine.
    pub(crate) fn check_links(&self, spec: &SessionSpec) -> Result<(), NodeError> {
        let links: Vec<String> = self.links.keys().cloned().collect();
        spec.check_links(&links, &self.outgoing)?;
        for channel in &spec.channels {
            let (Some(input_type), Some(target)) =
                (self.interfaces.get(&channel.interface), &channel.forward)
            else {
                continue;
            };
            let sends = |output: &&OutputSpec| output.name.as_str() == target;
            let device = |output: &&OutputSpec| output.tap.as_ref() == Some(target);
            let (output, output_type) = match spec.outputs.iter().find(sends) {
                Some(output) => (output, self.links.get(&output.link).copied()),
                None => match spec.outputs.iter().find(device) {
                    Some(output) => (output, Some(LinkType::Ethernet)),
                    None => continue,
                },
            };
            if let Some(output_type) = output_type.filter(|output_type| output_type != input_type) {
                let error = OutputError::LinkType {
                    channel: channel.name.clone(),
                    output_type,
                    input_type: *input_type,
                };
                return Err(NodeError::Output { output: output.name.clone(), error });
            }
        }
        Ok(())
    }
}

impl Node {
    /// Returns the memory for the frames that can wait in an output channel.
    fn output_memory(&self, spec: &OutputSpec) -> Bytes {
        self.links.get(&spec.link).map_or(Bytes(0), |link| spec.memory(link.config()))
    }

    /// Returns the egress of a channel's packets; `None` if the channel does not forward.
    pub(crate) fn egress_of(&self, session: &SessionState, channel: &ChannelSpec) -> Option<Egress> {
        let (target, outputs) = (channel.forward.as_ref()?, &session.outputs);
        let sends = |output: &&OutputChannel| output.spec.name.as_str() == target;
        if let Some(output) = outputs.values().find(sends) {
            return Some(Egress::Link(output.tx_queue.clone()));
        }
        let device = outputs.values().find(|output| output.spec.tap.as_ref() == Some(target))?;
        let tap = device.tap.as_ref()?;
        Some(Egress::Tap(Arc::clone(&tap.egress)))
    }

    /// Returns the queues of a session's output channels.
    pub fn output_queues(&self, session: &Name) -> Vec<(Name, TxPacketSink)> {
        let outputs = self.sessions.get(session).into_iter().flat_map(|state| &state.outputs);
        outputs.map(|(name, output)| (name.clone(), output.tx_queue.clone())).collect()
    }
}

/// Returns the bandwidth that a session has reserved on links, in the form of the ledger.
pub(crate) fn reserved(session: &SessionState) -> Vec<ReservedLink> {
    let reserved_link = |output: &OutputChannel| {
        let spec = &output.spec;
        let reservation = spec.reservation()?;
        let rate = reservation.bits_per_second();
        let (period, limit) = match (spec.period, spec.reserve_bytes) {
            (Some(period), Some(limit)) => (period, limit),
            (Some(period), None) => {
                let bytes = u128::from(rate.0) * u128::from(period.0) / (8 * u128::from(Nanos::SECOND.0));
                (period, Bytes(u64::try_from(bytes).unwrap_or(u64::MAX)))
            }
            _ => (Nanos::SECOND, Bytes(rate.0 / 8)),
        };
        Some(ReservedLink {
            channel: spec.name.clone(),
            interface: LedgerText::new(&spec.link),
            period,
            limit,
            capped: spec.cap.is_some_and(|cap| cap == rate)
                || (spec.cap.is_none() && spec.effective_weight() == 0),
        })
    };
    session.outputs.values().filter_map(reserved_link).collect()
}

/// Takes memory for waiting frames from a session's reservation.
pub(super) fn reserve_queue_memory(
    memory: &Arc<MemoryReservation>,
    session: &Name,
    wanted: Bytes,
) -> Result<HeldMemory, NodeError> {
    HeldMemory::take(memory, wanted).ok_or_else(|| NodeError::QueueMemory {
        session: session.clone(),
        wanted,
        left: memory.state().left(),
    })
}

/// Returns the compiled filter of an output channel for its link type; `None` if the channel has no filter.
pub(super) fn compile_filter(
    spec: &OutputSpec,
    link_type: LinkType,
    compiled: &CompiledFilters,
) -> Result<Option<Arc<Demux>>, OutputError> {
    if spec.filter.trim().is_empty() {
        return Ok(None);
    }
    let program = compiled.conjunction([spec.filter.as_str()], link_type)?;
    Ok(Some(Arc::new(Demux::new(&[Some(&program)], &JoinLimits::default())?)))
}
