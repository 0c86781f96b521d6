//! Captures built byte by byte from the format descriptions, without the code under test.

/// The byte order of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Little,
    Big,
}

impl Order {
    pub fn u16(self, value: u16) -> [u8; 2] {
        if self == Order::Big { value.to_be_bytes() } else { value.to_le_bytes() }
    }
    pub fn u32(self, value: u32) -> [u8; 4] {
        if self == Order::Big { value.to_be_bytes() } else { value.to_le_bytes() }
    }
    pub fn u64(self, value: u64) -> [u8; 8] {
        if self == Order::Big { value.to_be_bytes() } else { value.to_le_bytes() }
    }
}

pub const MICROSECONDS: u32 = 0xa1b2_c3d4;
pub const NANOSECONDS: u32 = 0xa1b2_3c4d;

/// A UDP packet from port 1000 + `n` to port 53, as Ethernet carries it, with `payload` bytes.
pub fn udp(n: u16, payload: u16) -> Vec<u8> {
    let mut packet = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
    packet.extend((28 + payload).to_be_bytes());
    packet.extend([0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    packet.extend((1000 + n).to_be_bytes());
    packet.extend(53u16.to_be_bytes());
    packet.extend((8 + payload).to_be_bytes());
    packet.extend([0, 0]);
    packet.extend((0..payload).map(|i| u8::try_from((i ^ n) & 0xff).unwrap()));
    packet
}

pub struct Pcap {
    pub bytes: Vec<u8>,
    order: Order,
}

impl Pcap {
    pub fn new(order: Order, magic: u32, link_type: u32) -> Pcap {
        Self::with(order, magic, [2, 4], 262_144, link_type)
    }

    pub fn with(order: Order, magic: u32, version: [u16; 2], snap_len: u32, link_type: u32) -> Pcap {
        let mut bytes = order.u32(magic).to_vec();
        bytes.extend(version.map(|v| order.u16(v)).concat());
        bytes.extend([0; 8]);
        bytes.extend(order.u32(snap_len));
        bytes.extend(order.u32(link_type));
        Pcap { bytes, order }
    }

    /// A record with the stated lengths, whatever the packet's length.
    pub fn record(mut self, seconds: u32, fraction: u32, lengths: [u32; 2], packet: &[u8]) -> Self {
        for field in [seconds, fraction, lengths[0], lengths[1]] {
            self.bytes.extend(self.order.u32(field));
        }
        self.bytes.extend(packet);
        self
    }

    pub fn packet(self, seconds: u32, fraction: u32, packet: &[u8]) -> Self {
        let len = u32::try_from(packet.len()).unwrap();
        self.record(seconds, fraction, [len, len], packet)
    }
}

/// A little-endian pcap of `count` UDP packets, a millisecond apart, of various lengths.
pub fn many(count: u16) -> Vec<u8> {
    let mut pcap = Pcap::new(Order::Little, MICROSECONDS, 1);
    for n in 0..count {
        pcap = pcap.packet(1_600_000_000, u32::from(n) * 10, &udp(n % 1000, n.wrapping_mul(37) % 1400));
    }
    pcap.bytes
}

pub struct Pcapng {
    pub bytes: Vec<u8>,
    order: Order,
}

impl Pcapng {
    pub fn new(order: Order) -> Pcapng {
        Pcapng { bytes: vec![], order }.section(order)
    }

    /// Starts another section.
    pub fn section(mut self, order: Order) -> Self {
        self.order = order;
        let body = [&order.u32(0x1a2b_3c4d)[..], &order.u16(1), &order.u16(0), &order.u64(u64::MAX)].concat();
        self.block(0x0a0d_0d0a, &body)
    }

    pub fn block(mut self, kind: u32, body: &[u8]) -> Self {
        let padding = body.len().next_multiple_of(4) - body.len();
        let len = self.order.u32(u32::try_from(12 + body.len() + padding).unwrap());
        for part in [&self.order.u32(kind)[..], &len, body, &[0; 3][..padding], &len] {
            self.bytes.extend(part);
        }
        self
    }

    /// An interface with options (code, value).
    pub fn interface(self, link_type: u16, snap_len: u32, options: &[(u16, &[u8])]) -> Self {
        let order = self.order;
        let mut body = [&order.u16(link_type)[..], &[0, 0], &order.u32(snap_len)].concat();
        for (code, value) in options {
            body.extend(order.u16(*code));
            body.extend(order.u16(u16::try_from(value.len()).unwrap()));
            body.extend(*value);
            body.resize(body.len().next_multiple_of(4), 0);
        }
        if !options.is_empty() {
            body.extend([0; 4]);
        }
        self.block(1, &body)
    }

    pub fn enhanced(self, interface: u32, ticks: u64, packet: &[u8]) -> Self {
        let order = self.order;
        let len = u32::try_from(packet.len()).unwrap();
        let (high, low) = (u32::try_from(ticks >> 32).unwrap(), u32::try_from(ticks & 0xffff_ffff).unwrap());
        let mut body = [interface, high, low, len, len].map(|field| order.u32(field)).concat();
        body.extend(packet);
        self.block(6, &body)
    }

    /// The packet block of older versions.
    pub fn obsolete(self, interface: u16, ticks: u64, packet: &[u8]) -> Self {
        let order = self.order;
        let len = u32::try_from(packet.len()).unwrap();
        let (high, low) = (u32::try_from(ticks >> 32).unwrap(), u32::try_from(ticks & 0xffff_ffff).unwrap());
        let mut body = [order.u16(interface), order.u16(0)].concat();
        body.extend([high, low, len, len].map(|field| order.u32(field)).concat());
        body.extend(packet);
        self.block(2, &body)
    }

    pub fn simple(self, wire_len: u32, packet: &[u8]) -> Self {
        let body = [&self.order.u32(wire_len)[..], packet].concat();
        self.block(3, &body)
    }
}
