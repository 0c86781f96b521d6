//! `FromDevice` and `PollDevice`: receive packets from a device.

use super::receiver::DeviceReceiver;
use super::{link_name, sending_rights};
use weir_graph::arguments::{ArgumentFault, ElementArguments, WordArgument};
use weir_graph::engine::{
    BuiltElement, DeviceMethod, DeviceOptions, EXTRA_LENGTH, Effects, Element, ElementClass, ElementContext,
    ElementCost, EmittingElement, HEADROOM, OrderDependence, Reason, ReceivedPacket, Services, TaskRun,
    most_packets,
};
use weir_graph::handlers;

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "FromDevice",
    ports: "0/1-2",
    processing: "/h",
    flow: "x/x",
    cost: ElementCost::E2,
    effects: Effects::NONE,
    order: OrderDependence::Ordered,
    manual: "\
receives packets from a device

FromDevice(DEVNAME [, PROMISC, SNAPLEN, keywords SNIFFER, FORCE_IP, METHOD, BPF_FILTER, PROTOCOL, OUTBOUND, HEADROOM, \
BURST, TIMESTAMP, ENCAP])

FromDevice receives packets from an interface, with their link headers, as they are on the link: VLAN tags that the kernel \
has removed are put back, checksums that a host has left to its card are computed, and packets that a host or a card has \
merged are divided. Each packet gets its time stamp and its type: host, broadcast, multicast, otherhost or outgoing. The \
graph waits without using the processor while no packet is there. Needs root, or the capability CAP_NET_RAW.

Arguments:
  DEVNAME     the interface
  PROMISC     true: receive packets to other hosts as well. Default false.
  SNAPLEN     the most bytes of a packet that go on; the annotation EXTRA_LENGTH has the number of the others. Default: \
all of them.
  SNIFFER     false: the host's own network does not receive the packets of this interface. Default true; with METHOD XDP, \
always false. Needs Linux 6.6 and the capabilities CAP_NET_ADMIN and CAP_BPF.
  FORCE_IP    true: find the IP header, set the network header and the annotation DST_IP, and send packets without IP to \
the second output. Default false.
  METHOD      LINUX: a packet socket. PCAP means the same. XDP: AF_XDP. Default LINUX.
  BPF_FILTER  an expression in tcpdump's language; other packets are ignored
  PROTOCOL    an EtherType; packets of another one are ignored. Default 0, all packets.
  OUTBOUND    true: receive packets that the host sends on this interface as well. Default false.
  HEADROOM    the bytes of room before a packet. Default 66.
  BURST       the packets that are received before other tasks run. Default 1; weir takes more of them together where \
that cannot be seen.
  TIMESTAMP   false: packets have no time stamp. Default true.

ENCAP is accepted and changes nothing: the interface states its link type.

When the interface is down or has been removed, FromDevice says so on standard error and waits for it.

Handlers:
  count         r   the number of received packets
  kernel_drops  r   the number of packets that were lost before they were received
  encap         r   ETHER, or IP for an interface without link headers
  reset_counts  w   sets the count to 0",
    build: |cx| {
        let mut args = cx.arguments();
        let device: String = args.positional("DEVNAME").required();
        let is_promiscuous = args.either("PROMISC").or(false);
        let snap: Option<u32> = args.either("SNAPLEN").checked(is_length).optional();
        let sniffer: Option<bool> = args.keyword("SNIFFER").optional();
        let force_ip = args.keyword("FORCE_IP").or(false);
        let method = read_method(&mut args);
        let filter: String = args.keyword("BPF_FILTER").or(String::new());
        let protocol = args.keyword("PROTOCOL").or(0_u16);
        let has_outgoing = args.keyword("OUTBOUND").or(false);
        let headroom = args.keyword("HEADROOM").or(u16::try_from(HEADROOM).unwrap_or(0));
        let burst = args.keyword("BURST").or(1_u32);
        let has_time = args.keyword("TIMESTAMP").or(true);
        let _: Option<WordArgument> = args.keyword("ENCAP").optional();
        if method == DeviceMethod::Xdp && sniffer == Some(true) {
            args.error("SNIFFER", "with METHOD XDP the host does not receive the packets: use METHOD LINUX");
        }
        if method == DeviceMethod::Xdp && has_outgoing {
            args.error("OUTBOUND", "METHOD XDP has only packets that arrive: use METHOD LINUX");
        }
        args.end()?;
        let options = DeviceOptions {
            is_promiscuous,
            is_sniffer: sniffer.unwrap_or(true),
            has_outgoing,
            method,
            filter,
        };
        Ok(BuiltElement::emitting(FromDevice {
            name: device,
            options,
            snap: snap.map_or(usize::MAX, |snap| snap as usize),
            force_ip,
            protocol,
            headroom: usize::from(headroom),
            burst: burst as usize,
            has_time,
            count: 0,
            receiver: DeviceReceiver::default(),
        }))
    },
};

/// The class of the name in Click's kernel module.
pub static POLL_DEVICE: ElementClass = ElementClass {
    name: "PollDevice",
    ports: "0/1",
    manual: "\
receives packets from a device, and takes them away from the host

PollDevice(DEVNAME [, PROMISC, keywords BURST, TIMESTAMP, QUIET, HEADROOM, LENGTH])

PollDevice receives packets from an interface as FromDevice does with SNIFFER false: the host's own network does not receive \
them. Needs root, or the capabilities CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF, and Linux 6.6.

Arguments:
  DEVNAME    the interface
  PROMISC    true: receive packets to other hosts as well. Default false.
  BURST      the packets that are received before other tasks run. Default 8.
  TIMESTAMP  false: packets have no time stamp. Default true.
  HEADROOM   the bytes of room before a packet. Default 66.

QUIET and LENGTH are accepted and change nothing.

Handlers:
  count         r   the number of received packets
  kernel_drops  r   the number of packets that were lost before they were received
  encap         r   ETHER, or IP for an interface without link headers
  reset_counts  w   sets the count to 0",
    build: |cx| {
        let mut args = cx.arguments();
        let name: String = args.positional("DEVNAME").required();
        let is_promiscuous = args.either("PROMISC").or(false);
        let burst = args.keyword("BURST").or(8_u32);
        let has_time = args.keyword("TIMESTAMP").or(true);
        let headroom = args.keyword("HEADROOM").or(u16::try_from(HEADROOM).unwrap_or(0));
        let _: Option<bool> = args.keyword("QUIET").optional();
        let _: Option<u32> = args.keyword("LENGTH").optional();
        args.end()?;
        let options = DeviceOptions {
            is_promiscuous,
            is_sniffer: false,
            has_outgoing: false,
            method: DeviceMethod::PacketSocket,
            filter: String::new(),
        };
        Ok(BuiltElement::emitting(FromDevice {
            name,
            options,
            snap: usize::MAX,
            force_ip: false,
            protocol: 0,
            headroom: usize::from(headroom),
            burst: burst as usize,
            has_time,
            count: 0,
            receiver: DeviceReceiver::default(),
        }))
    },
    ..CLASS
};

/// Reads the argument METHOD of a device.
pub fn read_method(args: &mut ElementArguments<'_, '_>) -> DeviceMethod {
    let method: Option<WordArgument> = args.keyword("METHOD").optional();
    match method.as_ref().map_or("LINUX", |method| &method.0) {
        "LINUX" | "PCAP" => DeviceMethod::PacketSocket,
        "XDP" => DeviceMethod::Xdp,
        other => {
            args.error("METHOD", format!("there is no method '{other}' here: use LINUX or XDP"));
            DeviceMethod::PacketSocket
        }
    }
}

/// The length of an Ethernet header.
const ETHERNET_HEADER: u32 = 14;

fn is_length(snap: &u32) -> Result<(), ArgumentFault> {
    if *snap >= ETHERNET_HEADER {
        Ok(())
    } else {
        Err(ArgumentFault::Other(format!("expected at least {ETHERNET_HEADER} bytes, a link header")))
    }
}

struct FromDevice {
    name: String,
    options: DeviceOptions,
    snap: usize,
    force_ip: bool,
    protocol: u16,
    headroom: usize,
    burst: usize,
    has_time: bool,
    count: u64,
    receiver: DeviceReceiver,
}

impl FromDevice {
    fn emit(&mut self, received: ReceivedPacket<'_>, link_type: u32, cx: &mut ElementContext<'_>) {
        let ReceivedPacket { bytes, wire_length, time, packet_type } = received;
        if self.protocol != 0 && bytes.get(12..14) != Some(&self.protocol.to_be_bytes()) {
            return;
        }
        let bytes = &bytes[..bytes.len().min(self.snap)];
        let mut packet = cx.services.pool.of_length(bytes.len(), self.headroom);
        packet.bytes_mut().copy_from_slice(bytes);
        if self.has_time {
            packet.set_time(time);
        }
        packet.set_packet_type(packet_type);
        let missing = wire_length.saturating_sub(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        packet.annotation_mut(EXTRA_LENGTH).copy_from_slice(&missing.to_ne_bytes());
        self.count += 1;
        if self.force_ip && !crate::headers::find_ip(&mut packet, link_type) {
            cx.emit_or_discard(1, packet);
        } else {
            cx.emit(0, packet);
        }
    }
}

impl Element for FromDevice {
    fn initialize(&mut self, cx: &mut ElementContext<'_>) -> Result<(), Reason> {
        let device = cx.services.system.open_device(&self.name, &self.options)?;
        self.receiver.begin(device);
        cx.add_task(true);
        cx.watch_devices();
        Ok(())
    }

    fn run(&mut self, most: usize, cx: &mut ElementContext<'_>) -> TaskRun {
        let most = most_packets(most, self.burst);
        let before = self.count;
        let mut receiver = std::mem::take(&mut self.receiver);
        let link_type = receiver.link_type();
        let again = receiver.receive(most, cx, &mut |packet, cx| self.emit(packet, link_type, cx));
        self.receiver = receiver;
        TaskRun { work: usize::try_from(self.count - before).unwrap_or(most), again }
    }

    fn rights(&self) -> Option<String> {
        Some(match (self.options.method, self.options.is_sniffer) {
            (DeviceMethod::Xdp, _) => "root or CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF".to_owned(),
            (DeviceMethod::PacketSocket, false) => {
                "root or CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF, for packets that the host does not receive"
                    .to_owned()
            }
            (DeviceMethod::PacketSocket, true) => sending_rights(),
        })
    }

    fn finish(&mut self, _: &mut Services) -> Result<(), Reason> {
        self.receiver.finish()
    }

    handlers! {
        "count": counter "the number of received packets", read |this, _, _| Ok(this.count.to_string());
        "kernel_drops": counter "the number of packets that were lost before they were received",
            read |this, _, _| Ok(this.receiver.lost().to_string());
        "encap": "ETHER, or IP for an interface without link headers",
            read |this, _, _| Ok(link_name(this.receiver.link_type()).to_owned());
        "reset_counts": "sets the count to 0",
            write |this, _, _| {
                this.count = 0;
                Ok(String::new())
            };
    }
}

impl EmittingElement for FromDevice {}
