//! How links and output channels are, for whoever asks.

use super::outputs::OutputChannel;
use super::port::drops;
use crate::control::protocol::{LinkStatus, OutputStatus};
use crate::sessions::node::{Node, SessionState};
use std::sync::atomic::{AtomicU64, Ordering};
use weir_units::BitsPerSecond;

impl Node {
    pub(crate) fn link_shots(&self) -> Vec<LinkStatus> {
        let shot = |(name, link): (&String, &super::NodeLink)| {
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
        self.links.iter().map(shot).collect()
    }

    pub(crate) fn output_shots(&self, session: &SessionState) -> Vec<OutputStatus> {
        session.outputs.values().map(|output| self.output_shot(output)).collect()
    }

    fn output_shot(&self, output: &OutputChannel) -> OutputStatus {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (spec, tally) = (&output.spec, output.outlet.tally());
        let counters =
            self.links.get(&spec.link).map(|link| link.counters(&output.outlet)).unwrap_or_default();
        let lost = drops(tally).into_iter().filter(|(_, count)| *count > 0);
        let tap = output.tap.as_ref().map(|tap| &tap.end.tally);
        OutputStatus {
            name: spec.name.to_string(),
            link: spec.link.clone(),
            tap: spec.tap.clone(),
            reserved_bits: spec.reservation().map_or(0, |it| it.bits_per_second().0),
            cap_bits: spec.cap.unwrap_or(BitsPerSecond(0)).0,
            weight: spec.share(),
            waiting: output.outlet.waiting().into(),
            queue: spec.queue.into(),
            packets: get(&tally.packets),
            bytes: get(&tally.bytes),
            wire_bytes: counters.reserved.bytes.0 + counters.excess.bytes.0,
            reserved_wire_bytes: counters.reserved.bytes.0,
            drops: lost.map(|(cause, count)| (cause.name().to_owned(), count)).collect(),
            tap_packets: tap.map_or(0, |tally| get(&tally.packets)),
            tap_lost: tap.map_or(0, |tally| drops(tally).into_iter().map(|(_, count)| count).sum()),
        }
    }
}
