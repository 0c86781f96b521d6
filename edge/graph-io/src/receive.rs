//! Receiving of packets from interfaces.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use weir_graph::engine::{
    DeviceMethod, DeviceOptions, DeviceState, PacketType, ReceivedPacket, ReceivingDevice,
};
use weir_netio::{
    Block, CaptureFilter, Direction, LiveEvent, LiveOptions, LivePoll, LiveSource, PacketReceiver,
    SocketKind, finish_checksum,
};
use weir_units::{Escape as _, Nanos, Timestamp};
use weir_wire::segment;

/// An interface from which packets are received.
#[derive(Debug)]
pub struct InterfaceReceiver {
    source: LiveSource,
    filter: Option<CaptureFilter>,
    /// The block that is read, and the index of its next packet.
    block: Option<(Block, usize)>,
    /// A copy of the packet that is read: the memory of a block may change.
    bytes: Vec<u8>,
    /// The parts of merged packets that go on before the next packet of the block.
    parts: VecDeque<Vec<u8>>,
    /// The time and the type of the packet of these parts.
    of_parts: (Timestamp, PacketType),
    /// Packets with a checksum that was left open and cannot be computed.
    unfinished: u64,
    /// An event that the first call reports.
    first_event: Option<LiveEvent>,
}

impl InterfaceReceiver {
    /// Opens an interface.
    pub fn open(name: &str, options: &DeviceOptions) -> Result<Self, String> {
        let is_xdp = options.method == DeviceMethod::Xdp;
        let live = LiveOptions {
            kind: if is_xdp { SocketKind::Xdp } else { SocketKind::Packet },
            direction: if options.has_outgoing { Direction::Both } else { Direction::Incoming },
            promiscuous: options.is_promiscuous,
            immediate: true,
            arrivals: true,
            hidden: !is_xdp && !options.is_sniffer,
            ..LiveOptions::default()
        };
        let source = LiveSource::open(name, live).map_err(|error| error.to_string())?;
        let filter = match options.filter.trim() {
            "" => None,
            text => Some(CaptureFilter::with_name_lookup(text).map_err(|error| error.to_string())?),
        };
        if let Some(filter) = &filter {
            filter.check(source.link_type()).map_err(ToString::to_string)?;
        }
        let first_event = (!source.is_up()).then(|| LiveEvent::Down { interface: source.name().to_owned() });
        Ok(Self { filter, first_event, ..Self::of(source) })
    }

    /// Returns the end of a device of the host's network. If it is not set up, that is the first event. What the program
    /// has changed itself is no news.
    pub fn of_host_device(source: LiveSource, is_up: bool) -> Self {
        let first_event = (!is_up).then(|| LiveEvent::Down { interface: source.name().to_owned() });
        let mut this = Self { first_event, ..Self::of(source) };
        loop {
            this.source.expect_events();
            match this.source.next_block(Nanos(0)) {
                Ok(LivePoll::Event(_)) => {}
                Ok(LivePoll::Block(block)) => {
                    let lead = block.lead();
                    this.block = Some((block, lead));
                    return this;
                }
                // An error comes again when packets are received.
                _ => return this,
            }
        }
    }

    fn of(mut source: LiveSource) -> Self {
        // A packet is received as soon as it arrives: the graph gathers packets while it is busy.
        source.gather(0);
        Self {
            source,
            filter: None,
            block: None,
            bytes: Vec::new(),
            parts: VecDeque::new(),
            of_parts: (Timestamp(0), PacketType::Host),
            unfinished: 0,
            first_event: None,
        }
    }

    /// Returns the descriptor that becomes readable once for each change.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.source.fd()
    }

    /// Hands over the next packet of the block, or the parts of a merged one. Returns false at the block's end.
    fn next_of_block(&mut self, each: &mut dyn FnMut(ReceivedPacket<'_>), taken: &mut usize) -> bool {
        let Some((block, index)) = self.block.as_mut() else { return false };
        let Some(descriptor) = block.descriptors().get(*index).copied() else {
            self.block = None;
            return false;
        };
        let (checksum, arrival) = (block.checksum(*index), block.arrival(*index));
        block.copy_packet(*index, &mut self.bytes);
        *index += 1;
        let time = Timestamp(descriptor.ts_ns);
        let link_type = self.source.link_type();
        let packet_type = match arrival.receiver {
            PacketReceiver::Host => PacketType::Host,
            PacketReceiver::Broadcast => PacketType::Broadcast,
            PacketReceiver::Multicast => PacketType::Multicast,
            PacketReceiver::OtherHost => PacketType::OtherHost,
            PacketReceiver::Outgoing => PacketType::Outgoing,
            PacketReceiver::Unknown => by_address(&self.bytes, link_type),
        };
        if let Some(filter) = &self.filter
            && !filter.matches(link_type, descriptor.wire_len, &self.bytes).unwrap_or(false)
        {
            return true;
        }
        let size = usize::from(arrival.segment_bytes);
        if size > 0 && segment(&self.bytes, &descriptor, size, |part| self.parts.push_back(part.to_vec())) {
            self.of_parts = (time, packet_type);
            self.next_part(each, taken);
            return true;
        }
        if !finish_checksum(&mut self.bytes, &descriptor, checksum) {
            self.unfinished += 1;
            return true;
        }
        each(ReceivedPacket { bytes: &self.bytes, wire_length: descriptor.wire_len, time, packet_type });
        *taken += 1;
        true
    }

    /// Hands over the next part of a merged packet. Returns false if there is none.
    fn next_part(&mut self, each: &mut dyn FnMut(ReceivedPacket<'_>), taken: &mut usize) -> bool {
        let Some(bytes) = self.parts.pop_front() else { return false };
        let wire_length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let (time, packet_type) = self.of_parts;
        each(ReceivedPacket { bytes: &bytes, wire_length, time, packet_type });
        *taken += 1;
        true
    }
}

/// Returns the type of an Ethernet packet by its destination address, for sources that report none. An address of one host
/// counts as this host's.
fn by_address(bytes: &[u8], link_type: weir_wire::LinkType) -> PacketType {
    match bytes.get(..6) {
        _ if link_type != weir_wire::LinkType::Ethernet => PacketType::Host,
        Some([0xff, 0xff, 0xff, 0xff, 0xff, 0xff]) => PacketType::Broadcast,
        Some([first, ..]) if first & 1 == 1 => PacketType::Multicast,
        _ => PacketType::Host,
    }
}

/// Returns an event as a line, with what to do.
fn line(event: &LiveEvent) -> String {
    match event {
        LiveEvent::Down { interface } => {
            let name = interface.escaped();
            format!(
                "{event}: no packets arrive until it is up (`ip link set dev {name} up`; or look at its cable)"
            )
        }
        LiveEvent::Removed { .. } => {
            format!("{event}: packets arrive again when an interface of this name exists")
        }
        _ => event.to_string(),
    }
}

impl ReceivingDevice for InterfaceReceiver {
    fn link_type(&self) -> u32 {
        u32::from(self.source.link_type().number())
    }

    fn receive(
        &mut self,
        most: usize,
        each: &mut dyn FnMut(ReceivedPacket<'_>),
        news: &mut Vec<String>,
    ) -> Result<DeviceState, String> {
        news.extend(self.first_event.take().map(|event| line(&event)));
        let (mut taken, mut expects_events) = (0, false);
        while taken < most {
            if self.next_part(each, &mut taken) || self.next_of_block(each, &mut taken) {
                continue;
            }
            match self.source.next_block(Nanos(0)).map_err(|error| error.to_string())? {
                LivePoll::Block(block) => {
                    let lead = block.lead();
                    self.block = Some((block, lead));
                }
                LivePoll::Event(event) => news.push(line(&event)),
                // Without packets, the cause of the call is perhaps an event, which the source looks for at intervals only.
                LivePoll::Quiet if taken == 0 && !expects_events => {
                    expects_events = true;
                    self.source.expect_events();
                }
                // No block is in use, so there is always room.
                LivePoll::Quiet | LivePoll::Full => return Ok(DeviceState::Quiet),
                LivePoll::End => return Ok(DeviceState::End),
            }
        }
        Ok(DeviceState::More)
    }

    fn lost(&mut self) -> u64 {
        self.source.totals().drops.packets() + self.unfinished
    }
}
