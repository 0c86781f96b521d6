//! `FromHost`: receives packets that the host sends.

use super::host_device_rights;
use super::host_sender::{HEADROOM_MAX, MTU_DEFAULT, SharedHostDevice};
use super::receiver::DeviceReceiver;
use core::net::Ipv4Addr;
use std::any::Any;
use std::rc::Rc;
use weir_graph::arguments::{EthernetAddress, Ipv4Prefix};
use weir_graph::engine::{
    BuiltElement, Effects, Element, ElementClass, ElementContext, ElementCost, EmittingElement, HEADROOM,
    HostDeviceOptions, OrderDependence, Reason, ReceivedPacket, Services, TaskRun, WaitsFor, most_packets,
};
use weir_graph::handlers;

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "FromHost",
    ports: "0/1-2",
    processing: "/h",
    flow: "x/x",
    cost: ElementCost::E2,
    effects: Effects::NONE,
    order: OrderDependence::Ordered,
    manual: "\
receives packets that the host sends on a device of the graph

FromHost(DEVNAME [, PREFIX, keywords TYPE, GATEWAY, ETHER, HEADROOM, MTU, BURST, CAPACITY, CLEAR_ANNO])

FromHost makes a TAP device of this name, and receives the frames that the host sends on it. With PREFIX, the device is set \
up, and the host gets the address on it. A ToHost of the same name sends to the host on this device. The host sends ARP \
queries first, so an ARPResponder has to answer them. While a queue behind FromHost is full, packets wait in the kernel. \
When the graph ends, the device is removed. Needs root, or the capability CAP_NET_ADMIN.

Arguments:
  DEVNAME   the name of the device
  PREFIX    the host's address on the device, and its network; also as keyword DST
  TYPE      ETHER: a TAP device with Ethernet frames. IP: a TUN device with IP packets; other packets go to the second \
output, or are discarded. Default ETHER.
  GATEWAY   an address of that network: the host gets a default route over it
  ETHER     the Ethernet address of the device
  HEADROOM  the bytes of room before a packet, at most 8192. Default 66.
  MTU       the longest packet without its link header. Default 1500.
  BURST     the packets that are received before other tasks run. Default 1; weir takes more of them together where that \
cannot be seen.

CAPACITY and CLEAR_ANNO, arguments of Click's kernel module, are accepted and change nothing.

Handlers:
  dev_name  r   the name of the device
  signal    r   true if there is room behind FromHost
  count     r   the number of packets
  drops     r   the number of packets that were lost in the kernel",
    build: |cx| {
        let mut args = cx.arguments();
        let name: String = args.either("DEVNAME").required();
        let prefix: Option<Ipv4Prefix> = args.either("PREFIX").optional();
        let destination: Option<Ipv4Prefix> = args.keyword("DST").optional();
        let kind = super::read_type(&mut args);
        let gateway: Option<Ipv4Addr> = args.keyword("GATEWAY").optional();
        let ethernet: Option<EthernetAddress> = args.keyword("ETHER").optional();
        let headroom: u32 = args.keyword("HEADROOM").or(u32::try_from(HEADROOM).unwrap_or(0));
        let mtu: u32 = args.keyword("MTU").or(MTU_DEFAULT);
        let burst: u32 = args.keyword("BURST").or(1);
        let _: Option<u32> = args.keyword("CAPACITY").optional();
        let _: Option<bool> = args.keyword("CLEAR_ANNO").optional();
        let address = prefix.or(destination);
        if name.is_empty() {
            args.error("", "must specify device name");
        }
        if let (Some(address), Some(gateway)) = (address, gateway)
            && !address.contains(gateway)
        {
            args.error("", "bad GATEWAY");
        }
        if headroom > HEADROOM_MAX {
            args.error("", "HEADROOM too large");
        }
        args.end()?;
        let device = SharedHostDevice::named(&name, kind);
        let options =
            HostDeviceOptions { name, kind, address, gateway, ethernet, mtu, is_for_sniffers: false };
        Ok(BuiltElement::emitting(FromHost {
            options,
            headroom: headroom as usize,
            burst: burst as usize,
            device,
            receiver: DeviceReceiver::default(),
            is_continued: false,
            waits_for: WaitsFor::Nothing,
            count: 0,
        }))
    },
};

struct FromHost {
    options: HostDeviceOptions,
    headroom: usize,
    burst: usize,
    device: Rc<SharedHostDevice>,
    receiver: DeviceReceiver,
    /// The device comes from an earlier element.
    is_continued: bool,
    waits_for: WaitsFor,
    count: u64,
}

impl FromHost {
    fn emit(&mut self, received: ReceivedPacket<'_>, cx: &mut ElementContext<'_>) {
        self.count += 1;
        let mut packet = super::received(&received, self.headroom, cx);
        if super::is_ip_or_ethernet(&mut packet, self.options.kind) {
            cx.emit(0, packet);
        } else {
            cx.emit_or_discard(1, packet);
        }
    }
}

impl Element for FromHost {
    fn initialize(&mut self, cx: &mut ElementContext<'_>) -> Result<(), Reason> {
        if !self.is_continued {
            let device = cx.services.system.open_host_device(&self.options)?;
            self.receiver.begin(self.device.open(device));
        }
        self.waits_for = cx.wait_for_room(0);
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
            self.count = earlier.count;
        }
    }

    fn shared_state(&self) -> Option<Rc<dyn Any>> {
        let device: Rc<dyn Any> = Rc::<SharedHostDevice>::clone(&self.device);
        Some(device)
    }

    fn rights(&self) -> Option<String> {
        Some(host_device_rights())
    }

    fn run(&mut self, most: usize, cx: &mut ElementContext<'_>) -> TaskRun {
        if !cx.is_active(&self.waits_for) {
            return TaskRun { work: 0, again: false };
        }
        let most = most_packets(most, self.burst);
        let before = self.count;
        let mut receiver = std::mem::take(&mut self.receiver);
        let again = receiver.receive(most, cx, &mut |packet, cx| self.emit(packet, cx));
        self.receiver = receiver;
        TaskRun { work: usize::try_from(self.count - before).unwrap_or(most), again }
    }

    fn finish(&mut self, _: &mut Services) -> Result<(), Reason> {
        self.device.close();
        self.receiver.finish()
    }

    handlers! {
        "dev_name": "the name of the device", read |this, _, _| Ok(this.device.name());
        "signal": "true if there is room behind FromHost",
            read |this, _, cx| Ok(cx.is_active(&this.waits_for).to_string());
        "count": counter "the number of packets", read |this, _, _| Ok(this.count.to_string());
        "drops": counter "the number of packets that were lost in the kernel",
            read |this, _, _| Ok(this.receiver.lost().to_string());
    }
}

impl EmittingElement for FromHost {}
