//! Status of links and output channels.

use super::node_link::drops;
use super::outputs::OutputChannel;
use crate::control::status::{LinkStatus, OutputStatus};
use crate::sessions::node::{Node, SessionState};
use std::sync::atomic::{AtomicU64, Ordering};
use weir_units::BitsPerSecond;

impl Node {
    pub(crate) fn link_statuses(&self) -> Vec<LinkStatus> {
        let status = |(name, link): (&String, &super::NodeLink)| {
            let state = link.state();
            LinkStatus {
                name: name.clone(),
                state: if state.is_up { "up" } else { "down" }.to_owned(),
                rate_bits: state.rate.0,
                reserved_bits: state.reserved.0,
                reservable_bits: state.reservable.0,
                packets: state.sent.packets,
                bytes: state.sent.bytes.0,
                lost: state.sent.lost(),
            }
        };
        self.links.iter().map(status).collect()
    }

    pub(crate) fn output_statuses(&self, session: &SessionState) -> Vec<OutputStatus> {
        session.outputs.values().map(|output| self.output_status(output)).collect()
    }

    fn output_status(&self, output: &OutputChannel) -> OutputStatus {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (spec, queue_counters) = (&output.spec, output.tx_queue.counters());
        let counters =
            self.links.get(&spec.link).map(|link| link.counters(&output.tx_queue)).unwrap_or_default();
        let lost = drops(queue_counters).into_iter().filter(|(_, count)| *count > 0);
        let tap = output.tap.as_ref().map(|tap| &tap.egress.counters);
        OutputStatus {
            name: spec.name.to_string(),
            link: spec.link.clone(),
            tap: spec.tap.clone(),
            reserved_bits: spec.reservation().map_or(0, |it| it.bits_per_second().0),
            cap_bits: spec.cap.unwrap_or(BitsPerSecond(0)).0,
            period_ns: spec.period.map_or(0, |period| period.0),
            filter: spec.filter.clone(),
            weight: spec.effective_weight(),
            waiting: output.tx_queue.waiting().into(),
            queue: spec.queue.into(),
            packets: get(&queue_counters.packets),
            bytes: get(&queue_counters.bytes),
            wire_bytes: counters.reserved.bytes.0 + counters.excess.bytes.0,
            reserved_wire_bytes: counters.reserved.bytes.0,
            drops: lost.map(|(cause, count)| (cause.name().to_owned(), count)).collect(),
            tap_packets: tap.map_or(0, |queue_counters| get(&queue_counters.packets)),
            tap_lost: tap
                .map_or(0, |queue_counters| drops(queue_counters).into_iter().map(|(_, count)| count).sum()),
        }
    }
}
