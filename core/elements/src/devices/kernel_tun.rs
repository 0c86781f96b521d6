//! `KernelTun` and `KernelTap`: exchange packets with the host's own network.

use super::host_device_rights;
use super::host_sender::{HEADROOM_MAX, MTU_DEFAULT, MTU_MIN, SharedHostDevice};
use super::losses::LossCounts;
use super::receiver::DeviceReceiver;
use std::any::Any;
use std::rc::Rc;
use weir_graph::arguments::{ArgumentErrors, EthernetAddress, Ipv4Prefix};
use weir_graph::engine::{
    BuildContext, BuiltElement, Effects, Element, ElementClass, ElementContext, ElementCost, EmittingElement,
    GraphPacket, HEADROOM, HostDeviceKind, HostDeviceOptions, OrderDependence, Reason, ReceivedPacket,
    Services, TaskRun, WaitsFor, most_packets,
};
use weir_graph::handlers;

/// The class with IP packets.
pub static TUN: ElementClass = ElementClass {
    name: "KernelTun",
    ports: "0-1/1-2",
    processing: "a/h",
    flow: "x/y",
    cost: ElementCost::E2,
    effects: Effects::NONE,
    order: OrderDependence::Ordered,
    manual: "\
exchanges IP packets with the host's own network

KernelTun(ADDR/MASK [, GATEWAY, keywords TAP, HEADROOM, BURST, ETHER, MTU, DEVNAME, IGNORE_QUEUE_OVERFLOWS])

KernelTun makes a TUN device, and gives the host the address ADDR on it. Packets that the host sends to other addresses of \
the network come out of KernelTun, with the network header, the annotation DST_IP and the time of their arrival. Packets that \
the host sends and that are not IP go to the second output, or are discarded. The host receives the packets that come to the \
input; they need a network header, and what is before it is removed. When the graph ends, the device is removed. Needs root, \
or the capability CAP_NET_ADMIN.

Arguments:
  ADDR/MASK  the host's address on the device, and its network
  GATEWAY    an address of that network: the host gets a default route over it
  TAP        true: Ethernet frames instead of IP packets, as KernelTap. Default false.
  HEADROOM   the bytes of room before a packet, at most 8192. Default 66.
  BURST      the packets that are received before other tasks run. Default 1; weir takes more of them together where \
that cannot be seen.
  ETHER      the Ethernet address of a TAP device
  MTU        the longest packet without its link header. Longer packets to the host are lost. Default 1500.
  DEVNAME    the name of the device. Default: the next free one.

IGNORE_QUEUE_OVERFLOWS is accepted and changes nothing.

Handlers:
  dev_name        r   the name of the device
  packets         r   the number of packets that the host has sent
  selected_calls  r   the number of times that packets were received
  drops           r   the number of packets to the host that were lost
  drop_details    r   the lost packets by reason",
    build: |cx| build(cx, false),
};

/// The class with Ethernet frames.
pub static TAP: ElementClass = ElementClass {
    name: "KernelTap",
    manual: "\
exchanges Ethernet frames with the host's own network

KernelTap(ADDR/MASK [, GATEWAY, keywords HEADROOM, BURST, ETHER, MTU, DEVNAME, IGNORE_QUEUE_OVERFLOWS])

KernelTap makes a TAP device, and gives the host the address ADDR on it. Frames that the host sends on the device come out of \
KernelTap, and the host receives the frames that come to its input. The host sends ARP queries first, so an ARPResponder has \
to answer them. Arguments and handlers are those of KernelTun. Needs root, or the capability CAP_NET_ADMIN.

The host ignores frames to other Ethernet addresses than that of the device: state it as ETHER, and send to it.",
    build: |cx| build(cx, true),
    ..TUN
};

fn build(cx: &mut BuildContext<'_>, is_tap: bool) -> Result<BuiltElement, ArgumentErrors> {
    let mut args = cx.arguments();
    let address: Ipv4Prefix = args.either("ADDR").required();
    let gateway = args.either("GATEWAY").optional().filter(|it: &core::net::Ipv4Addr| !it.is_unspecified());
    let is_tap = args.keyword("TAP").or(is_tap);
    let headroom: u32 = args.keyword("HEADROOM").or(u32::try_from(HEADROOM).unwrap_or(0));
    let burst: u32 = args.keyword("BURST").or(1);
    let ethernet: Option<EthernetAddress> = args.keyword("ETHER").optional();
    let mtu: u32 = args.keyword("MTU").or(MTU_DEFAULT);
    let _: Option<bool> = args.keyword("IGNORE_QUEUE_OVERFLOWS").optional();
    let old_name: Option<String> = args.keyword("DEV_NAME").optional();
    let name: Option<String> = args.keyword("DEVNAME").optional();
    if gateway.is_some_and(|gateway| !address.contains(gateway)) {
        args.error("", "bad GATEWAY");
    }
    if burst < 1 {
        args.error("", "BURST must be >= 1");
    }
    if mtu < MTU_MIN {
        args.error("", format!("MTU must be greater than {MTU_MIN}"));
    }
    if headroom > HEADROOM_MAX {
        args.error("", "HEADROOM too big");
    }
    args.end()?;
    let kind = if is_tap { HostDeviceKind::Ethernet } else { HostDeviceKind::Ip };
    let name = name.or(old_name).unwrap_or_default();
    let device = SharedHostDevice::named(&name, kind);
    let options = HostDeviceOptions {
        name,
        kind,
        address: Some(address),
        gateway,
        ethernet,
        mtu,
        is_for_sniffers: false,
    };
    Ok(BuiltElement::emitting(KernelTun {
        options,
        headroom: headroom as usize,
        burst: burst as usize,
        device,
        receiver: DeviceReceiver::default(),
        is_continued: false,
        waits_for: WaitsFor::Nothing,
        packets: 0,
        calls: 0,
        lost: LossCounts::default(),
    }))
}

struct KernelTun {
    options: HostDeviceOptions,
    headroom: usize,
    burst: usize,
    device: Rc<SharedHostDevice>,
    receiver: DeviceReceiver,
    /// The device comes from an earlier element.
    is_continued: bool,
    waits_for: WaitsFor,
    packets: u64,
    calls: u64,
    lost: LossCounts,
}

/// The link header of Ethernet.
const ETHERNET_HEADER: usize = 14;

/// The shortest IP packet.
const IP_HEADER: usize = 20;

impl KernelTun {
    fn emit(&mut self, received: ReceivedPacket<'_>, cx: &mut ElementContext<'_>) {
        self.packets += 1;
        let mut packet = super::received(&received, self.headroom, cx);
        let is_ip = super::is_ip_or_ethernet(&mut packet, self.options.kind);
        if is_ip {
            cx.emit(0, packet);
        } else {
            cx.emit_or_discard(1, packet);
        }
    }

    /// Returns the bytes of a packet that the host is to receive, or the reason why it cannot.
    fn for_host<'p>(&self, packet: &'p GraphPacket) -> Result<&'p [u8], &'static str> {
        let (bytes, length) = match self.options.kind {
            HostDeviceKind::Ethernet => {
                let bytes = packet.bytes();
                (bytes, bytes.len().checked_sub(ETHERNET_HEADER).ok_or("packet too small")?)
            }
            HostDeviceKind::Ip => {
                let bytes = packet.network_bytes().filter(|bytes| bytes.len() >= IP_HEADER);
                let bytes = bytes.ok_or("no network header")?;
                if !matches!(bytes[0] >> 4, 4 | 6) {
                    return Err("unknown IP version");
                }
                (bytes, bytes.len())
            }
        };
        if length > self.options.mtu as usize { Err("packet larger than MTU") } else { Ok(bytes) }
    }

    fn send(&mut self, packet: GraphPacket, cx: &mut ElementContext<'_>) {
        match self.for_host(&packet) {
            Ok(bytes) => self.device.send(bytes, &mut self.lost),
            Err(reason) => self.lost.add(reason),
        }
        cx.services.pool.discard(packet);
    }
}

impl Element for KernelTun {
    fn initialize(&mut self, cx: &mut ElementContext<'_>) -> Result<(), Reason> {
        if !self.is_continued {
            let device = cx.services.system.open_host_device(&self.options)?;
            self.receiver.begin(self.device.open(device));
        }
        if cx.ports().inputs_pull.first() == Some(&true) {
            self.waits_for = cx.wait_for_packets(0);
        }
        cx.add_task(true);
        cx.watch_devices();
        Ok(())
    }

    fn continues(&mut self, earlier: &dyn Any) -> bool {
        let earlier = earlier.downcast_ref::<Self>();
        self.is_continued = earlier.is_some_and(|earlier| earlier.options == self.options);
        self.is_continued
    }

    fn take_state(&mut self, earlier: &mut dyn Any, _: &mut ElementContext<'_>) {
        if let Some(earlier) = earlier.downcast_mut::<Self>() {
            self.device.continue_from(&earlier.device);
            self.receiver = std::mem::take(&mut earlier.receiver);
            (self.packets, self.calls) = (earlier.packets, earlier.calls);
            self.lost = earlier.lost.clone();
        }
    }

    fn rights(&self) -> Option<String> {
        Some(host_device_rights())
    }

    fn run(&mut self, most: usize, cx: &mut ElementContext<'_>) -> TaskRun {
        let most = most_packets(most, self.burst);
        let before = self.packets;
        self.calls += 1;
        let mut receiver = std::mem::take(&mut self.receiver);
        let mut again = receiver.receive(most, cx, &mut |packet, cx| self.emit(packet, cx));
        self.receiver = receiver;
        let mut work = usize::try_from(self.packets - before).unwrap_or(most);
        if cx.ports().inputs_pull.first() == Some(&true) {
            let pulled = cx.pull_each(0, most, |cx, packet| self.send(packet, cx));
            work += pulled;
            again |= pulled == most || cx.is_active(&self.waits_for);
        }
        TaskRun { work, again }
    }

    fn finish(&mut self, _: &mut Services) -> Result<(), Reason> {
        self.device.close();
        self.receiver.finish()
    }

    handlers! {
        "dev_name": "the name of the device", read |this, _, _| Ok(this.device.name());
        "packets": counter "the number of packets that the host has sent", read |this, _, _| Ok(this.packets.to_string());
        "selected_calls": "the number of times that packets were received",
            read |this, _, _| Ok(this.calls.to_string());
        "drops": counter "the number of packets to the host that were lost",
            read |this, _, _| Ok(this.lost.total().to_string());
        "drop_details": "the lost packets by reason", read |this, _, _| this.lost.details();
    }
}

impl EmittingElement for KernelTun {
    fn push(&mut self, _: usize, packet: GraphPacket, cx: &mut ElementContext<'_>) {
        self.send(packet, cx);
    }
}
