//! Changes of several output channels and link rates at once, when the configuration is reloaded. The result is
//! checked first, so the change itself cannot fail.

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

/// The reservation of an output channel that is given up.
#[derive(Clone, Debug)]
pub(crate) struct ReleasedChannel {
    link: String,
    rate: u64,
}

/// An output channel that is new or gets new terms, with its session.
#[derive(Clone, Debug)]
pub(crate) struct IncomingOutput<'a> {
    pub(crate) session: &'a Name,
    pub(crate) spec: &'a OutputSpec,
}

/// A change of an output channel's terms, as a step of a larger change.
#[derive(Debug)]
pub(crate) struct ChannelChange {
    tx_queue: TxPacketSink,
    spec: OutputSpec,
    allowed: Option<Arc<Demux>>,
    /// Reserved rate before the change, in bits per second.
    rate_before: u64,
}

impl OutputSpec {
    /// Returns this description with the reservation left out.
    fn unreserved(&self) -> Self {
        Self { reserve: None, reserve_bytes: None, period: None, weight: Some(1), ..self.clone() }
    }
}

impl OutputChannel {
    /// Returns the channel's reservation, to be counted as given up.
    pub(crate) fn released(&self) -> ReleasedChannel {
        ReleasedChannel { link: self.spec.link.clone(), rate: reserved_rate(&self.spec) }
    }

    /// Returns the change that gives up the reservation.
    pub(crate) fn release_step(&self) -> ChannelChange {
        let (tx_queue, allowed) = (self.tx_queue.clone(), self.allowed.clone());
        ChannelChange {
            tx_queue,
            spec: self.spec.unreserved(),
            allowed,
            rate_before: reserved_rate(&self.spec),
        }
    }

    /// Returns the change that gives the channel the terms of its description. `rate_before` is its reserved rate
    /// until then.
    fn grant_step(&self, rate_before: u64) -> ChannelChange {
        let (tx_queue, allowed) = (self.tx_queue.clone(), self.allowed.clone());
        ChannelChange { tx_queue, spec: self.spec.clone(), allowed, rate_before }
    }

    /// Returns true if both channels use the same tx queue.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.tx_queue.is_same(&other.tx_queue)
    }

    /// Returns true if the channel can continue with this description: link and TAP device are the same.
    pub(crate) fn can_continue_as(&self, spec: &OutputSpec) -> bool {
        self.spec.link == spec.link && self.spec.tap == spec.tap
    }
}

impl Node {
    /// Prepares an output channel: one that continues `before`, or a new one, which has no reservation yet. Returns
    /// the channel, and the change that gives it its terms.
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

    /// Checks that all reservations on links fit after a change to the rates in `links`, without the reservations in
    /// `given_up` and with the output channels in `entering`.
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
        for (name, link) in &self.links {
            let config = links.iter().find(|it| it.interface == *name).unwrap_or(link.config());
            let reservable = LinkConfig::reservable_of(config.rate, config.reservable);
            let state = link.state();
            let given: u64 = given_up.iter().filter(|it| it.link == *name).map(|it| it.rate).sum();
            let held_back = state.reservable.0.saturating_sub(state.reserved.0).saturating_sub(link.left().0);
            let others = state.reserved.0.saturating_sub(given);
            let Some(mut left) = reservable.0.checked_sub(others.saturating_add(held_back)) else {
                let (reserved, held) = (BitsPerSecond(others), BitsPerSecond(held_back));
                let refused = RateRefused::OverReserved { reservable, reserved, held, until: Nanos(0) };
                return Err((None, NodeError::Rate { link: name.clone(), refused }));
            };
            for IncomingOutput { session, spec } in entering.iter().filter(|it| it.spec.link == *name) {
                let wanted = reserved_rate(spec);
                let Some(rest) = left.checked_sub(wanted) else {
                    let (wanted, left, held) =
                        (BitsPerSecond(wanted), BitsPerSecond(left), BitsPerSecond(held_back));
                    let refused =
                        ChannelRefused::OverReserved { wanted, unreserved: left, held, until: Nanos(0) };
                    let error = OutputError::Refused { link: name.clone(), refused };
                    let error = NodeError::Output { output: spec.name.clone(), error };
                    return Err((Some((*session).clone()), error));
                };
                left = rest;
            }
        }
        Ok(())
    }

    /// Applies changes of links and output channels that [`check_bandwidth`](Self::check_bandwidth) has checked.
    /// Capacity is freed before it is reserved.
    pub(crate) fn apply_bandwidth(&mut self, links: &[LinkConfig], steps: Vec<ChannelChange>) {
        let lowers = |step: &ChannelChange| reserved_rate(&step.spec) <= step.rate_before;
        let (lower, raise): (Vec<_>, Vec<_>) = steps.into_iter().partition(lowers);
        let reservable = |link: &LinkConfig| LinkConfig::reservable_of(link.rate, link.reservable).0;
        let grows = |link: &&LinkConfig| {
            self.links
                .get(&link.interface)
                .is_none_or(|present| reservable(link) >= reservable(present.config()))
        };
        let (wider, narrower): (Vec<_>, Vec<_>) = links.iter().partition(grows);
        wider.into_iter().for_each(|link| self.apply_rate(link));
        lower.iter().for_each(|step| self.apply_step(step));
        for link in narrower {
            if let Some(present) = self.links.get(&link.interface) {
                present.release_held(BitsPerSecond(
                    reservable(present.config()).saturating_sub(reservable(link)),
                ));
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
        let more = reserved_rate(&step.spec).saturating_sub(step.rate_before);
        if let Some(link) = self.links.get(&step.spec.link).filter(|_| more > 0) {
            link.release_held(BitsPerSecond(more));
        }
        if let Err(error) = self.apply_output(&step.tx_queue, &step.spec, &step.allowed) {
            warn(&format_args!("output channel `{}`: {error}", step.spec.name));
        }
    }

    /// Closes the output channels in `outputs` whose tx queue no channel in `now` uses.
    pub(crate) fn close_outputs_but(&self, outputs: &SessionOutputs, now: &SessionOutputs) {
        for output in outputs.values() {
            if !now.values().any(|other| other.is_same(output)) {
                self.close_output(output);
            }
        }
    }
}
