//! `ToHost` and `ToHostSniffers`: send packets to the host.

use super::host_device_rights;
use super::host_sender::{MTU_DEFAULT, SharedHostDevice};
use super::losses::LossCounts;
use std::any::Any;
use std::rc::Rc;
use weir_graph::arguments::ArgumentErrors;
use weir_graph::engine::{
    BuildContext, BuiltElement, Effects, Element, ElementClass, ElementContext, ElementCost, EmittingElement,
    GraphPacket, HostDeviceKind, HostDeviceOptions, OrderDependence, Reason, ReceivingDevice, Services,
};
use weir_graph::handlers;

/// The class of packets that the host's network receives.
pub static CLASS: ElementClass = ElementClass {
    name: "ToHost",
    ports: "1/0",
    processing: "h",
    flow: "x/x",
    cost: ElementCost::E2,
    // Several of them can send on one device.
    effects: Effects::FILES,
    order: OrderDependence::Ordered,
    manual: "\
sends packets to the host

ToHost([DEVNAME, keywords TYPE, SNIFFERS, QUIET])

The host's own network receives the packets as if they had arrived on the device of the FromHost with the name DEVNAME, or \
on that of the only FromHost. Packets need an Ethernet header. The host ignores frames to other Ethernet addresses than that \
of the device.

In a graph without a FromHost, a ToHost without a name makes a TUN device. The host then receives the IP packets behind the \
Ethernet headers, whatever these are; other packets, such as ARP replies, are counted drops. Needs root, or the capability \
CAP_NET_ADMIN.

Arguments:
  DEVNAME   the name of a FromHost's device
  TYPE      ETHER, or IP for packets that begin with the IP header. Default ETHER.
  SNIFFERS  true: as ToHostSniffers. Default false.

QUIET is accepted and changes nothing.

Handlers:
  dev_name      r   the name of the device
  count         r   the number of sent packets
  drops         r   the number of lost packets
  drop_details  r   the lost packets by reason",
    build: |cx| build(cx, false),
};

/// The class of packets for sniffers.
pub static SNIFFERS: ElementClass = ElementClass {
    name: "ToHostSniffers",
    manual: "\
shows packets to sniffers on the host

ToHostSniffers([DEVNAME, keywords TYPE, SNIFFERS, QUIET])

Programs such as tcpdump see the packets on a device. If there is a FromHost with the name DEVNAME, this is its device, and \
the host receives the packets, too. Otherwise ToHostSniffers makes a TAP device `sniff-DEVNAME`, or `sniff0` and so on \
without a name, that has no address. Arguments and handlers are those of ToHost. Needs root, or the capability \
CAP_NET_ADMIN.",
    build: |cx| build(cx, true),
    ..CLASS
};

/// The length of an Ethernet header.
const ETHERNET_HEADER: usize = 14;

/// The longest name of a device in Linux.
const DEVICE_NAME_MAX: usize = 15;

fn build(cx: &mut BuildContext<'_>, is_for_sniffers: bool) -> Result<BuiltElement, ArgumentErrors> {
    let mut args = cx.arguments();
    let name: Option<String> = args.either("DEVNAME").optional();
    let packets = super::read_type(&mut args);
    let is_for_sniffers = args.keyword("SNIFFERS").or(is_for_sniffers);
    let _: Option<bool> = args.keyword("QUIET").optional();
    args.end()?;
    Ok(BuiltElement::emitting(ToHost {
        name,
        packets,
        is_for_sniffers,
        device: Rc::default(),
        own: None,
        is_continued: false,
        count: 0,
        lost: LossCounts::default(),
    }))
}

struct ToHost {
    name: Option<String>,
    /// The packets that come to the input.
    packets: HostDeviceKind,
    is_for_sniffers: bool,
    device: Rc<SharedHostDevice>,
    /// The receiving end of a device of its own, which stays open.
    own: Option<Box<dyn ReceivingDevice>>,
    /// The device comes from an earlier element.
    is_continued: bool,
    count: u64,
    lost: LossCounts,
}

impl ToHost {
    /// Returns the device of a FromHost; `None` if there is none of the name.
    fn find(&self, cx: &mut ElementContext<'_>) -> Option<Rc<SharedHostDevice>> {
        let devices = cx.elements_of_class("FromHost").into_iter();
        let all: Vec<Rc<SharedHostDevice>> =
            devices.filter_map(|index| cx.shared_state(index)?.downcast::<SharedHostDevice>().ok()).collect();
        match (&self.name, &all[..]) {
            (None, [only]) => Some(Rc::clone(only)),
            (None, _) => None,
            (Some(name), all) => all.iter().find(|device| device.name() == *name).map(Rc::clone),
        }
    }

    /// Opens a device of its own.
    fn open(&mut self, cx: &mut ElementContext<'_>) -> Result<(), Reason> {
        let kind = match (self.is_for_sniffers, self.packets) {
            (true, HostDeviceKind::Ethernet) => HostDeviceKind::Ethernet,
            _ => HostDeviceKind::Ip,
        };
        let name = match (&self.name, self.is_for_sniffers) {
            (Some(name), _) => format!("sniff-{name}").chars().take(DEVICE_NAME_MAX).collect(),
            (None, true) => "sniff%d".to_owned(),
            (None, false) => "tohost%d".to_owned(),
        };
        let options = HostDeviceOptions {
            name: name.clone(),
            kind,
            address: None,
            gateway: None,
            ethernet: None,
            mtu: MTU_DEFAULT,
            is_for_sniffers: true,
        };
        self.device = SharedHostDevice::named(&name, kind);
        self.own = Some(self.device.open(cx.services.system.open_host_device(&options)?));
        Ok(())
    }

    fn for_host<'p>(&self, packet: &'p GraphPacket) -> Result<&'p [u8], &'static str> {
        let bytes = packet.bytes();
        if self.packets == HostDeviceKind::Ethernet && bytes.len() < ETHERNET_HEADER {
            return Err("packet too small");
        }
        let bytes = match (self.packets, self.device.kind()) {
            (HostDeviceKind::Ethernet, HostDeviceKind::Ip) => {
                crate::headers::ethernet_payload(bytes).and_then(|offset| bytes.get(offset..))
            }
            _ => Some(bytes),
        };
        bytes.filter(|bytes| !bytes.is_empty()).ok_or("no IP packet")
    }
}

impl Element for ToHost {
    fn initialize(&mut self, cx: &mut ElementContext<'_>) -> Result<(), Reason> {
        match (self.find(cx), &self.name) {
            (Some(device), _) => self.device = device,
            (None, Some(name)) if !self.is_for_sniffers => {
                return Err(format!(
                    "ToHost({name}) requires an initialized FromHost with the same dev_name"
                ));
            }
            (None, _) if self.is_continued => return Ok(()),
            (None, _) => self.open(cx)?,
        }
        if self.packets == HostDeviceKind::Ip && self.device.kind() == HostDeviceKind::Ethernet {
            return Err("TYPE IP needs a FromHost with TYPE IP".to_owned());
        }
        Ok(())
    }

    fn continues(&mut self, earlier: &dyn Any) -> bool {
        let choices = |it: &Self| (it.name.clone(), it.packets, it.is_for_sniffers);
        let earlier = earlier.downcast_ref::<Self>().filter(|it| it.own.is_some());
        self.is_continued = earlier.is_some_and(|it| choices(it) == choices(self));
        true
    }

    fn take_state(&mut self, earlier: &mut dyn Any, _: &mut ElementContext<'_>) {
        let Some(earlier) = earlier.downcast_mut::<Self>() else { return };
        if self.is_continued && self.own.is_none() && self.device.name().is_empty() {
            (self.device, self.own) = (Rc::clone(&earlier.device), earlier.own.take());
        }
        self.count = earlier.count;
        self.lost = earlier.lost.clone();
    }

    fn rights(&self) -> Option<String> {
        self.own.as_ref().map(|_| host_device_rights())
    }

    fn finish(&mut self, _: &mut Services) -> Result<(), Reason> {
        if self.own.take().is_some() {
            self.device.close();
        }
        Ok(())
    }

    handlers! {
        "dev_name": "the name of the device", read |this, _, _| Ok(this.device.name());
        "count": counter "the number of sent packets", read |this, _, _| Ok(this.count.to_string());
        "drops": counter "the number of lost packets", read |this, _, _| Ok(this.lost.total().to_string());
        "drop_details": "the lost packets by reason", read |this, _, _| this.lost.details();
    }
}

impl EmittingElement for ToHost {
    fn push(&mut self, _: usize, packet: GraphPacket, cx: &mut ElementContext<'_>) {
        let lost = self.lost.total();
        match self.for_host(&packet) {
            Ok(bytes) => self.device.send(bytes, &mut self.lost),
            Err(reason) => self.lost.add(reason),
        }
        self.count += u64::from(self.lost.total() == lost);
        cx.services.pool.discard(packet);
    }
}
