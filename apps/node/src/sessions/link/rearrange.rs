//! Output channels and link rates that change together: the result is checked first, so the change itself cannot fail.

use super::OutputError;
use super::outputs::{OutputChannel, SessionOutputs, compile_filter, reserve_queue_memory};
use super::rates::reserved_rate;
use crate::control::link_spec::{LinkConfig, OutputSpec};
use crate::log::warn;
use crate::sessions::error::NodeError;
use crate::sessions::filters::CompiledFilters;
use crate::sessions::node::Node;
use std::sync::Arc;
use weir_datapath::egress::TxPacketSink;
use weir_demux::Demux;
use weir_sched::link::{ChannelRefused, RateRefused};
use weir_units::{BitsPerSecond, Nanos};
use {weir_admission::Name, weir_session::MemoryReservation};

/// The reservation that an output channel gives up.
#[derive(Clone, Debug)]
pub(crate) struct ReleasedChannel {
    link: String,
    rate: u64,
}

/// A new output channel, or one with new terms, and its session.
#[derive(Clone, Debug)]
pub(crate) struct IncomingOutput<'a> {
    pub(crate) session: &'a Name,
    pub(crate) spec: &'a OutputSpec,
}

/// A change of an output channel, with its present reservation `before`.
#[derive(Debug)]
pub(crate) struct ChannelChange {
    tx_queue: TxPacketSink,
    spec: OutputSpec,
    allowed: Option<Arc<Demux>>,
    before: u64,
}

impl OutputSpec {
    /// Returns the description without a reservation.
    fn unreserved(&self) -> Self {
        Self { reserve: None, reserve_bytes: None, period: None, weight: Some(1), ..self.clone() }
    }
}

impl OutputChannel {
    /// Returns the reservation that is free once the channel closes.
    pub(crate) fn released(&self) -> ReleasedChannel {
        ReleasedChannel { link: self.spec.link.clone(), rate: reserved_rate(&self.spec) }
    }

    /// Returns the change that gives up the reservation.
    pub(crate) fn release_step(&self) -> ChannelChange {
        let (tx_queue, allowed) = (self.tx_queue.clone(), self.allowed.clone());
        ChannelChange { tx_queue, spec: self.spec.unreserved(), allowed, before: reserved_rate(&self.spec) }
    }

    /// Returns the change to the channel's own terms from the reservation `before`.
    fn grant_step(&self, before: u64) -> ChannelChange {
        let (tx_queue, allowed) = (self.tx_queue.clone(), self.allowed.clone());
        ChannelChange { tx_queue, spec: self.spec.clone(), allowed, before }
    }

    /// Returns true if both send through the same queue.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.tx_queue.is_same(&other.tx_queue)
    }

    /// Returns true if the channel can continue with these terms, on the same link and TAP device.
    pub(crate) fn can_continue_as(&self, spec: &OutputSpec) -> bool {
        self.spec.link == spec.link && self.spec.tap == spec.tap
    }
}

impl Node {
    /// Prepares an output channel that continues `before`, or a new one without a reservation. Returns the channel, and
    /// the step that gives it its terms.
    pub(crate) fn draft_output(
        &self,
        spec: &OutputSpec,
        before: Option<&OutputChannel>,
        session: &Name,
        memory: &Arc<MemoryReservation>,
        compiled: &CompiledFilters,
    ) -> Result<(OutputChannel, ChannelChange), NodeError> {
        let Some(before) = before else {
            let opened = self.open_output(&spec.unreserved(), session, memory, compiled)?;
            let output = OutputChannel { spec: spec.clone(), ..opened };
            let step = output.grant_step(0);
            return Ok((output, step));
        };
        let failed = |error| NodeError::Output { output: spec.name.clone(), error };
        let link = self.link_of(spec).map_err(failed)?;
        let allowed = compile_filter(spec, link.link_type(), compiled).map_err(failed)?;
        let memory = reserve_queue_memory(memory, session, spec.memory(link.config()))?;
        let (tx_queue, tap) = (before.tx_queue.clone(), before.tap.clone());
        let output = OutputChannel { spec: spec.clone(), tx_queue, allowed, tap, memory };
        let step = output.grant_step(reserved_rate(&before.spec));
        Ok((output, step))
    }

    /// Checks that links keep all guarantees after a change: with the rates of `links`, without the reservations in
    /// `given_up`, and with the output channels in `entering`.
    ///
    /// # Errors
    ///
    /// The refusal, with the session that exceeds the capacity; `None` if the new rate of a link is too low for the
    /// present reservations.
    pub(crate) fn check_bandwidth(
        &self,
        links: &[LinkConfig],
        given_up: &[ReleasedChannel],
        entering: &[IncomingOutput<'_>],
    ) -> Result<(), (Option<Name>, NodeError)> {
        for (name, port) in &self.links {
            let config = links.iter().find(|link| link.interface == *name).unwrap_or(port.config());
            let reservable = LinkConfig::reservable_of(config.rate, config.reservable);
            let state = port.state();
            let given: u64 = given_up.iter().filter(|it| it.link == *name).map(|it| it.rate).sum();
            let held = state.reservable.0.saturating_sub(state.reserved.0).saturating_sub(port.left().0);
            let others = state.reserved.0.saturating_sub(given);
            let Some(mut left) = reservable.0.checked_sub(others.saturating_add(held)) else {
                let (reserved, held) = (BitsPerSecond(others), BitsPerSecond(held));
                let refused = RateRefused::Promised { reservable, reserved, held, until: Nanos(0) };
                return Err((None, NodeError::Rate { link: name.clone(), refused }));
            };
            for IncomingOutput { session, spec } in entering.iter().filter(|it| it.spec.link == *name) {
                let wanted = reserved_rate(spec);
                let Some(rest) = left.checked_sub(wanted) else {
                    let (wanted, left, held) =
                        (BitsPerSecond(wanted), BitsPerSecond(left), BitsPerSecond(held));
                    let refused = ChannelRefused::OverReserved { wanted, left, held, until: Nanos(0) };
                    let error = OutputError::Refused { link: name.clone(), refused };
                    let error = NodeError::Output { output: spec.name.clone(), error };
                    return Err((Some((*session).clone()), error));
                };
                left = rest;
            }
        }
        Ok(())
    }

    /// Gives links and output channels the terms that [were checked](Self::check_bandwidth).
    pub(crate) fn apply_bandwidth(&mut self, links: &[LinkConfig], steps: Vec<ChannelChange>) {
        let lowers = |step: &ChannelChange| reserved_rate(&step.spec) <= step.before;
        let (lower, raise): (Vec<_>, Vec<_>) = steps.into_iter().partition(lowers);
        let reservable = |link: &LinkConfig| LinkConfig::reservable_of(link.rate, link.reservable).0;
        let grows = |link: &&LinkConfig| {
            self.links.get(&link.interface).is_none_or(|port| reservable(link) >= reservable(port.config()))
        };
        let (wider, narrower): (Vec<_>, Vec<_>) = links.iter().partition(grows);
        wider.into_iter().for_each(|link| self.apply_rate(link));
        lower.iter().for_each(|step| self.apply_step(step));
        for link in narrower {
            if let Some(port) = self.links.get(&link.interface) {
                port.release_held(BitsPerSecond(reservable(port.config()).saturating_sub(reservable(link))));
            }
            self.apply_rate(link);
        }
        raise.iter().for_each(|step| self.apply_step(step));
    }

    fn apply_rate(&mut self, link: &LinkConfig) {
        if let Err(error) = self.set_rates(std::slice::from_ref(link)) {
            warn(&error);
        }
    }

    fn apply_step(&self, step: &ChannelChange) {
        let more = reserved_rate(&step.spec).saturating_sub(step.before);
        if let Some(port) = self.links.get(&step.spec.link).filter(|_| more > 0) {
            port.release_held(BitsPerSecond(more));
        }
        if let Err(error) = self.apply_output(&step.tx_queue, &step.spec, &step.allowed) {
            warn(&format_args!("output channel `{}`: {error}", step.spec.name));
        }
    }

    /// Closes output channels, except those that continue in `now`.
    pub(crate) fn close_outputs_but(&self, outputs: &SessionOutputs, now: &SessionOutputs) {
        for output in outputs.values() {
            if !now.values().any(|other| other.is_same(output)) {
                self.close_output(output);
            }
        }
    }
}
