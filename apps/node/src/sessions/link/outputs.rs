//! Output channels of a node's sessions.

use super::port::{NodeLink, drops, tell};
use super::rates::rate_of;
use super::spec::OutputSpec;
use crate::control::spec::{ChannelSpec, SessionSpec};
use crate::error::NodeError;
use crate::plan::PlanError;
use crate::sessions::filters::CompiledFilters;
use crate::sessions::node::{Node, SessionState};
use crate::sessions::premises::NodeInventory;
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
    weir_session::{Holding, MemoryReservation},
};

/// Why an output channel is not opened or changed.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// There is no such link.
    #[error(
        "there is no link `{given}`; {}",
        if known.is_empty() { "there are none".to_owned() } else { format!("there is {}", known.join(", ")) }
    )]
    NoLink {
        /// As it was named.
        given: String,
        /// What there is.
        known: Vec<String>,
    },
    /// The link has not as much left.
    #[error("link {link}: {refused}")]
    Refused {
        /// Which.
        link: String,
        /// Why.
        refused: ChannelRefused,
    },
    /// The filter is wrong.
    #[error(transparent)]
    Filter(#[from] PlanError),
    /// The filter is too large.
    #[error("the filter cannot be used: {0}")]
    Join(#[from] JoinError),
    /// The TAP device.
    #[error(transparent)]
    Tap(#[from] TapError),
    /// What a TAP device sends are Ethernet frames, and the link sends something else.
    #[error("a TAP device is Ethernet, and link {link} sends {link_type:?}")]
    TapType {
        /// Which.
        link: String,
        /// What it sends.
        link_type: LinkType,
    },
    /// Its packets are of another kind.
    #[error(
        "its packets are {theirs:?}, and those of channel `{channel}` are {ours:?}: they cannot go on there"
    )]
    LinkType {
        /// The input channel.
        channel: Name,
        /// What goes out.
        theirs: LinkType,
        /// What comes in.
        ours: LinkType,
    },
    /// It stays where it is.
    #[error("its {0} cannot be changed while it is open; close the session and create it anew")]
    Fixed(&'static str),
}

/// An output channel of a session.
#[derive(Debug)]
pub(crate) struct OutputChannel {
    pub(crate) spec: OutputSpec,
    pub(crate) outlet: TxPacketSink,
    /// What may go out; nothing where everything may.
    pub(super) allowed: Option<Arc<Demux>>,
    pub(crate) tap: Option<Arc<Tap>>,
    /// For what may wait in it.
    pub(super) memory: Holding,
}

impl OutputChannel {
    /// Adds what it sent and lost; what went to its device's programs did not go out.
    pub(crate) fn add_to(&self, used: &mut Usage) {
        let tally = self.outlet.tally();
        for (sum, counter) in [(&mut used.packets_out, &tally.packets), (&mut used.bytes_out.0, &tally.bytes)]
        {
            *sum = sum.saturating_add(counter.load(Ordering::Relaxed));
        }
        let of_tap = self.tap.iter().flat_map(|tap| drops(&tap.end.tally));
        for (cause, count) in drops(tally).into_iter().chain(of_tap) {
            used.drops.add(cause, count);
        }
    }
}

/// The output channels of a session.
pub(crate) type SessionOutputs = BTreeMap<Name, OutputChannel>;

impl Node {
    /// Opens these, or none.
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
        self.links.get(&spec.link).ok_or_else(|| OutputError::NoLink {
            given: spec.link.clone(),
            known: self.links.keys().cloned().collect(),
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
        let allowed = allowed(spec, link.link_type(), compiled).map_err(failed)?;
        if spec.tap.is_some() && link.link_type() != LinkType::Ethernet {
            let (link, link_type) = (spec.link.clone(), link.link_type());
            return Err(failed(OutputError::TapType { link, link_type }));
        }
        let memory = hold(memory, session, spec.memory(link.config()))?;
        let refused = |refused| OutputError::Refused { link: spec.link.clone(), refused };
        let outlet = link.open(spec, allowed.clone()).map_err(|error| failed(refused(error)))?;
        let tap = spec.tap.as_ref().map(|device| Tap::start(device, outlet.clone(), tell(&self.notices)));
        match tap.transpose() {
            Ok(tap) => {
                Ok(OutputChannel { spec: spec.clone(), outlet, allowed, tap: tap.map(Arc::new), memory })
            }
            Err(error) => {
                link.close(&outlet);
                Err(failed(error.into()))
            }
        }
    }

    /// Closes these.
    pub(crate) fn close_outputs(&self, outputs: SessionOutputs) {
        outputs.values().for_each(|output| self.close_output(output));
    }

    pub(super) fn close_output(&self, output: &OutputChannel) {
        // First nothing more comes from there.
        if let Some(tap) = &output.tap {
            tap.stop();
        }
        if let Some(link) = self.links.get(&output.spec.link) {
            link.close(&output.outlet);
        }
    }

    /// Ends what goes out of a session that is about to be closed, so that its last bill is whole; and tells the interfaces where its packets go then: nothing is forwarded any more
    /// where there is nowhere to.
    pub(crate) fn silence(&mut self, session: &Name) -> Result<(), NodeError> {
        let Some(there) = self.sessions.get_mut(session) else { return Ok(()) };
        let outputs = std::mem::take(&mut there.outputs);
        let routed = self.route_all(session);
        let mut gone = Usage::default();
        for output in outputs.values() {
            self.close_output(output);
            output.add_to(&mut gone);
        }
        if let Some(there) = self.sessions.get_mut(session) {
            there.gone.merge(&gone);
        }
        routed
    }

    /// Gives a session's output channels other terms, and opens those that there are not yet. All of it or nothing: what takes more comes first,
    /// as it can be refused, and can be given back.
    pub(crate) fn change_outputs(
        &mut self,
        session: &Name,
        changes: &[OutputSpec],
        compiled: &CompiledFilters,
    ) -> Result<(), NodeError> {
        let Some(there) = self.sessions.get(session) else {
            return Err(NodeError::NoSession(session.clone()));
        };
        let failed = |spec: &OutputSpec, error| NodeError::Output { output: spec.name.clone(), error };
        let (known, new): (Vec<_>, Vec<_>) =
            changes.iter().cloned().partition(|spec| there.outputs.contains_key(&spec.name));
        let mut steps = Vec::new();
        for spec in known {
            let Some(before) = there.outputs.get(&spec.name) else { continue };
            for (what, differs) in
                [("link", before.spec.link != spec.link), ("tap", before.spec.tap != spec.tap)]
            {
                if differs {
                    return Err(failed(&spec, OutputError::Fixed(what)));
                }
            }
            let link = self.link_of(&spec).map_err(|error| failed(&spec, error))?;
            let allowed = allowed(&spec, link.link_type(), compiled).map_err(|error| failed(&spec, error))?;
            steps.push((rate_of(&spec) <= rate_of(&before.spec), before, allowed, spec));
        }
        steps.sort_by_key(|(lowers, ..)| *lowers);
        let memory = Arc::clone(&there.memory);
        let grows = steps
            .iter()
            .map(|(_, before, _, spec)| self.output_memory(spec).0.saturating_sub(before.memory.bytes().0));
        let grown = hold(&memory, session, Bytes(grows.fold(0, u64::saturating_add)))?;
        let opened = self.open_outputs(&new, session, &memory, compiled)?;
        for (done, (_, before, allowed, spec)) in steps.iter().enumerate() {
            if let Err(error) = self.give_output(&before.outlet, spec, allowed) {
                for (_, before, ..) in steps.iter().take(done).rev() {
                    // It gives back what it was given a moment ago.
                    if let Err(error) = self.give_output(&before.outlet, &before.spec, &before.allowed) {
                        crate::server::log::warn(&format_args!(
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
        let Some(there) = self.sessions.get_mut(session) else { return Ok(()) };
        // It was held for them.
        drop(grown);
        for (room, allowed, spec) in given {
            if let Some(output) = there.outputs.get_mut(&spec.name) {
                output.memory.set(room);
                (output.spec, output.allowed) = (spec, allowed);
            }
        }
        there.outputs.extend(opened);
        Ok(())
    }

    pub(super) fn give_output(
        &self,
        outlet: &TxPacketSink,
        spec: &OutputSpec,
        allowed: &Option<Arc<Demux>>,
    ) -> Result<(), OutputError> {
        let link = self.link_of(spec)?;
        link.change(outlet, spec, allowed.clone())
            .map_err(|refused| OutputError::Refused { link: spec.link.clone(), refused })
    }
}

impl NodeInventory {
    /// Whether a session's output channels have their links, and what is forwarded is of a kind that can go there, and does not come back.
    pub(crate) fn check_links(&self, spec: &SessionSpec) -> Result<(), NodeError> {
        let links: Vec<String> = self.links.keys().cloned().collect();
        spec.check_links(&links, &self.outgoing)?;
        for channel in &spec.channels {
            let (Some(ours), Some(target)) = (self.interfaces.get(&channel.interface), &channel.forward)
            else {
                continue;
            };
            let sends = |output: &&OutputSpec| output.name.as_str() == target;
            let device = |output: &&OutputSpec| output.tap.as_ref() == Some(target);
            let (output, theirs) = match spec.outputs.iter().find(sends) {
                Some(output) => (output, self.links.get(&output.link).copied()),
                None => match spec.outputs.iter().find(device) {
                    Some(output) => (output, Some(LinkType::Ethernet)),
                    None => continue,
                },
            };
            if let Some(theirs) = theirs.filter(|theirs| theirs != ours) {
                let error = OutputError::LinkType { channel: channel.name.clone(), theirs, ours: *ours };
                return Err(NodeError::Output { output: output.name.clone(), error });
            }
        }
        Ok(())
    }
}

impl Node {
    /// Memory for what may wait in an output channel.
    fn output_memory(&self, spec: &OutputSpec) -> Bytes {
        self.links.get(&spec.link).map_or(Bytes(0), |link| spec.memory(link.config()))
    }

    /// Where the packets of a session's input channel go on; nothing where they do not.
    pub(crate) fn way(&self, session: &SessionState, channel: &ChannelSpec) -> Option<Egress> {
        let (target, outputs) = (channel.forward.as_ref()?, &session.outputs);
        let sends = |output: &&OutputChannel| output.spec.name.as_str() == target;
        if let Some(output) = outputs.values().find(sends) {
            return Some(Egress::Link(output.outlet.clone()));
        }
        let device = outputs.values().find(|output| output.spec.tap.as_ref() == Some(target))?;
        let tap = device.tap.as_ref()?;
        Some(Egress::Tap(Arc::clone(&tap.end)))
    }

    /// The ways out of a session, for its modules.
    pub fn outlets(&self, session: &Name) -> Vec<(Name, TxPacketSink)> {
        let outputs = self.sessions.get(session).into_iter().flat_map(|there| &there.outputs);
        outputs.map(|(name, output)| (name.clone(), output.outlet.clone())).collect()
    }
}

/// What a session has reserved of links, as the ledger keeps it.
pub(crate) fn reserved(session: &SessionState) -> Vec<ReservedLink> {
    let of = |output: &OutputChannel| {
        let spec = &output.spec;
        let reservation = spec.reservation()?;
        let rate = reservation.bits_per_second();
        let (period, limit) = match (spec.period, spec.limit) {
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
            capped: spec.cap.is_some_and(|cap| cap == rate) || (spec.cap.is_none() && spec.share() == 0),
        })
    };
    session.outputs.values().filter_map(of).collect()
}

/// Takes memory for what may wait from what a session has reserved.
pub(super) fn hold(
    memory: &Arc<MemoryReservation>,
    session: &Name,
    wanted: Bytes,
) -> Result<Holding, NodeError> {
    Holding::of(memory, wanted).ok_or_else(|| NodeError::QueueMemory {
        session: session.clone(),
        wanted,
        left: memory.state().left(),
    })
}

/// What may go out, as its link asks for it; nothing where everything may.
pub(super) fn allowed(
    spec: &OutputSpec,
    link_type: LinkType,
    compiled: &CompiledFilters,
) -> Result<Option<Arc<Demux>>, OutputError> {
    if spec.filter.trim().is_empty() {
        return Ok(None);
    }
    let program = compiled.all([spec.filter.as_str()], link_type)?;
    Ok(Some(Arc::new(Demux::new(&[Some(&program)], &JoinLimits::default())?)))
}
