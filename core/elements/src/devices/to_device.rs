//! `ToDevice`: sends packets on a device.

use super::from_device::read_method;
use super::losses::LossCounts;
use super::{link_name, sending_rights};
use std::collections::{BTreeSet, VecDeque};
use weir_graph::engine::{
    BuiltElement, Effects, Element, ElementClass, ElementContext, ElementCost, EmittingElement, GraphPacket,
    OrderDependence, Reason, SendingDevice, SentPackets, Services, TaskRun, TextOutput, WaitsFor,
    most_packets,
};
use weir_graph::handlers;
use weir_units::{Nanos, Timestamp};

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "ToDevice",
    ports: "1/0-2",
    processing: "l/h",
    flow: "x/x",
    cost: ElementCost::E2,
    effects: Effects::NONE,
    order: OrderDependence::Ordered,
    manual: "\
sends packets on a device

ToDevice(DEVNAME [, keywords BURST, METHOD, DEBUG, NO_PAD, QUEUE])

ToDevice pulls packets, and sends them on an interface. They need a link header, if the interface has one. If the \
interface has no room at present, packets wait. A packet that cannot be sent is lost: it is longer than the interface's MTU \
and link header, shorter than a link header, or the interface is down or has been removed. Sent packets go to the first \
output, if there is one, and lost packets to the second. Needs root, or the capability CAP_NET_RAW.

Arguments:
  DEVNAME  the interface
  BURST    the packets that are sent before other tasks run. Default 1; weir sends more of them together where that \
cannot be seen.
  METHOD   LINUX, PCAP or XDP: each sends with a packet socket. Default LINUX.

DEBUG, NO_PAD and QUEUE are accepted and change nothing: the driver of a card pads short frames, and the kernel chooses the \
queue.

Handlers:
  count         r   the number of sent packets
  drops         r   the number of lost packets
  drop_details  r   the lost packets by reason
  encap         r   ETHER, or IP for an interface without link headers
  reset_counts  w   sets all counts to 0",
    build: |cx| {
        let mut args = cx.arguments();
        let device: String = args.positional("DEVNAME").required();
        let burst = args.keyword("BURST").or(1_u32);
        let _ = read_method(&mut args);
        let _: Option<bool> = args.keyword("DEBUG").optional();
        let _: Option<bool> = args.keyword("NO_PAD").optional();
        let _: Option<u32> = args.keyword("QUEUE").optional();
        args.end()?;
        Ok(BuiltElement::emitting(ToDevice {
            name: device,
            device: None,
            burst: burst as usize,
            waiting: VecDeque::new(),
            count: 0,
            lost: LossCounts::default(),
            told: BTreeSet::new(),
            link_type: None,
            waits_for: WaitsFor::Nothing,
        }))
    },
};

/// The time after which packets for which there was no room are sent again.
const RETRY_AFTER: Nanos = Nanos(200_000);

struct ToDevice {
    name: String,
    device: Option<Box<dyn SendingDevice>>,
    burst: usize,
    /// The packets that were pulled and not sent yet.
    waiting: VecDeque<GraphPacket>,
    count: u64,
    /// The lost packets by reason.
    lost: LossCounts,
    /// The reasons that were reported.
    told: BTreeSet<&'static str>,
    link_type: Option<u32>,
    waits_for: WaitsFor,
}

impl ToDevice {
    /// Sends the packets that wait, as far as there is room. Returns those that were taken, each with true if it was sent.
    fn send(&mut self) -> Vec<(GraphPacket, bool)> {
        let Some(device) = self.device.as_mut() else { return Vec::new() };
        let bytes: Vec<&[u8]> = self.waiting.iter().map(GraphPacket::bytes).collect();
        let SentPackets { taken, lost } = device.send(&bytes);
        let mut reasons = lost.into_iter().peekable();
        let mut results = Vec::with_capacity(taken);
        for (index, packet) in self.waiting.drain(..taken.min(self.waiting.len())).enumerate() {
            let reason = reasons.next_if(|(lost, _)| *lost == index);
            match reason {
                Some((_, reason)) => self.lost.add(reason),
                None => self.count += 1,
            }
            results.push((packet, reason.is_none()));
        }
        results
    }
}

impl Element for ToDevice {
    fn initialize(&mut self, cx: &mut ElementContext<'_>) -> Result<(), Reason> {
        let device = cx.services.system.open_sender(&self.name)?;
        self.link_type = Some(device.link_type());
        self.device = Some(device);
        self.waits_for = cx.wait_for_packets(0);
        cx.add_task(true);
        Ok(())
    }

    fn run(&mut self, most: usize, cx: &mut ElementContext<'_>) -> TaskRun {
        let most = most_packets(most, self.burst);
        while self.waiting.len() < most
            && let Some(packet) = cx.pull(0)
        {
            self.waiting.push_back(packet);
        }
        if self.waiting.is_empty() {
            return TaskRun { work: 0, again: cx.is_active(&self.waits_for) };
        }
        let results = self.send();
        let work = results.len();
        for (packet, is_sent) in results {
            cx.emit_or_discard(usize::from(!is_sent), packet);
        }
        for reason in self.lost.reasons() {
            if self.told.insert(reason) {
                let name = cx.read_own_name();
                let text = format!("{name}: {}: {reason}; further ones are counted (drops)\n", self.name);
                cx.services.system.write_text(TextOutput::Error, &text);
            }
        }
        if !self.waiting.is_empty() {
            let now = cx.services.now();
            cx.set_timer(Timestamp(now.0.saturating_add(RETRY_AFTER.0)), 0);
            return TaskRun { work, again: false };
        }
        TaskRun { work, again: true }
    }

    fn timer_expired(&mut self, _: u32, cx: &mut ElementContext<'_>) {
        cx.schedule();
    }

    fn rights(&self) -> Option<String> {
        Some(sending_rights())
    }

    fn finish(&mut self, services: &mut Services) -> Result<(), Reason> {
        for (packet, _) in self.send() {
            services.pool.discard(packet);
        }
        self.device = None;
        Ok(())
    }

    handlers! {
        "count": counter "the number of sent packets", read |this, _, _| Ok(this.count.to_string());
        "drops": counter "the number of lost packets", read |this, _, _| Ok(this.lost.total().to_string());
        "drop_details": "the lost packets by reason", read |this, _, _| this.lost.details();
        "encap": "ETHER, or IP for an interface without link headers",
            read |this, _, _| Ok(this.link_type.map_or("ETHER", link_name).to_owned());
        "reset_counts": "sets all counts to 0",
            write |this, _, _| {
                this.count = 0;
                this.lost.clear();
                Ok(String::new())
            };
    }
}

impl EmittingElement for ToDevice {}
