//! Output channels and rates of links that change together: a check of the result, and then a change that cannot fail.

use super::OutputError;
use super::outputs::{OutputChannel, SessionOutputs, allowed, hold};
use super::rates::rate_of;
use super::spec::{LinkConfig, OutputSpec};
use crate::error::NodeError;
use crate::server::log::warn;
use crate::sessions::filters::CompiledFilters;
use crate::sessions::node::Node;
use std::sync::Arc;
use weir_datapath::egress::TxPacketSink;
use weir_demux::Demux;
use weir_sched::link::{ChannelRefused, RateRefused};
use weir_units::{BitsPerSecond, Nanos};
use {weir_admission::Name, weir_session::MemoryReservation};

/// An output channel that gives up what it has reserved.
#[derive(Clone, Debug)]
pub(crate) struct ReleasedChannel {
    link: String,
    rate: u64,
}

/// A new output channel, or one with new terms, and its session.
#[derive(Clone, Debug)]
pub(crate) struct Entering<'a> {
    pub(crate) session: &'a Name,
    pub(crate) spec: &'a OutputSpec,
}

/// A change of an output channel, which has reserved `before` until now.
#[derive(Debug)]
pub(crate) struct ChannelChange {
    outlet: TxPacketSink,
    spec: OutputSpec,
    allowed: Option<Arc<Demux>>,
    before: u64,
}

impl OutputSpec {
    /// The same output channel without a guaranteed rate.
    fn unreserved(&self) -> Self {
        Self { reserve: None, limit: None, period: None, weight: Some(1), ..self.clone() }
    }
}

impl OutputChannel {
    /// The reservation that is free when it closes.
    pub(crate) fn given_up(&self) -> ReleasedChannel {
        ReleasedChannel { link: self.spec.link.clone(), rate: rate_of(&self.spec) }
    }

    /// The change that takes its reservation away.
    pub(crate) fn giving_up(&self) -> ChannelChange {
        let (outlet, allowed) = (self.outlet.clone(), self.allowed.clone());
        ChannelChange { outlet, spec: self.spec.unreserved(), allowed, before: rate_of(&self.spec) }
    }

    /// The change that gives it its own terms. It has reserved `before` until then.
    fn given(&self, before: u64) -> ChannelChange {
        let (outlet, allowed) = (self.outlet.clone(), self.allowed.clone());
        ChannelChange { outlet, spec: self.spec.clone(), allowed, before }
    }

    /// Returns true if frames go the same way through both.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.outlet.is_same(&other.outlet)
    }

    /// Returns true if it can go on with these terms, on the same link and TAP device.
    pub(crate) fn becomes(&self, spec: &OutputSpec) -> bool {
        self.spec.link == spec.link && self.spec.tap == spec.tap
    }
}

impl Node {
    /// Prepares an output channel: one that goes on from `before`, or a new one without a reservation. Returns it with the step that gives it its terms.
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
            let step = output.given(0);
            return Ok((output, step));
        };
        let failed = |error| NodeError::Output { output: spec.name.clone(), error };
        let link = self.link_of(spec).map_err(failed)?;
        let allowed = allowed(spec, link.link_type(), compiled).map_err(failed)?;
        let memory = hold(memory, session, spec.memory(link.config()))?;
        let (outlet, tap) = (before.outlet.clone(), before.tap.clone());
        let output = OutputChannel { spec: spec.clone(), outlet, allowed, tap, memory };
        let step = output.given(rate_of(&before.spec));
        Ok((output, step))
    }

    /// Checks that links can keep their promises after a change: with the rates of `links`, without the reservations in `given_up`, and with the output channels in `entering`.
    ///
    /// # Errors
    ///
    /// The refusal, and the session that asks for too much, if it is a session.
    pub(crate) fn check_bandwidth(
        &self,
        links: &[LinkConfig],
        given_up: &[ReleasedChannel],
        entering: &[Entering<'_>],
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
            for Entering { session, spec } in entering.iter().filter(|it| it.spec.link == *name) {
                let wanted = rate_of(spec);
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

    /// Gives links and output channels the terms that were checked to [fit](Self::check_bandwidth).
    pub(crate) fn give_bandwidth(&mut self, links: &[LinkConfig], steps: Vec<ChannelChange>) {
        let lowers = |step: &ChannelChange| rate_of(&step.spec) <= step.before;
        let (lower, raise): (Vec<_>, Vec<_>) = steps.into_iter().partition(lowers);
        let reservable = |link: &LinkConfig| LinkConfig::reservable_of(link.rate, link.reservable).0;
        let grows = |link: &&LinkConfig| {
            self.links.get(&link.interface).is_none_or(|port| reservable(link) >= reservable(port.config()))
        };
        let (wider, narrower): (Vec<_>, Vec<_>) = links.iter().partition(grows);
        wider.into_iter().for_each(|link| self.give_rate(link));
        lower.iter().for_each(|step| self.give_step(step));
        for link in narrower {
            if let Some(port) = self.links.get(&link.interface) {
                port.forgive(BitsPerSecond(reservable(port.config()).saturating_sub(reservable(link))));
            }
            self.give_rate(link);
        }
        raise.iter().for_each(|step| self.give_step(step));
    }

    fn give_rate(&mut self, link: &LinkConfig) {
        if let Err(error) = self.set_rates(std::slice::from_ref(link)) {
            warn(&error);
        }
    }

    fn give_step(&self, step: &ChannelChange) {
        let more = rate_of(&step.spec).saturating_sub(step.before);
        if let Some(port) = self.links.get(&step.spec.link).filter(|_| more > 0) {
            port.forgive(BitsPerSecond(more));
        }
        if let Err(error) = self.give_output(&step.outlet, &step.spec, &step.allowed) {
            warn(&format_args!("output channel `{}`: {error}", step.spec.name));
        }
    }

    /// Closes output channels, except those that go on as one of `now`.
    pub(crate) fn close_outputs_but(&self, outputs: &SessionOutputs, now: &SessionOutputs) {
        for output in outputs.values() {
            if !now.values().any(|other| other.is_same(output)) {
                self.close_output(output);
            }
        }
    }
}
