//! The TCP segment of a packet: the fields of its headers that streams need (RFC 9293, 3.1; RFC 7323, 2.2).

use weir_abi::{Descriptor, flag, tunnel};

/// The IP header whose TCP segment is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StreamLayer {
    /// The innermost one that the classifier has found.
    #[default]
    Inner,
    /// The outermost one.
    Outer,
}

impl StreamLayer {
    /// Returns true if the fields about the innermost packet describe the layer of this packet.
    #[inline(always)]
    pub fn is_inside(self, descriptor: &Descriptor) -> bool {
        self == Self::Inner && descriptor.tunnel != tunnel::NONE
    }

    /// Returns the flow hash of the layer.
    #[inline(always)]
    pub fn flow_hash(self, descriptor: &Descriptor) -> u64 {
        if self.is_inside(descriptor) { descriptor.inner_flow_hash } else { descriptor.flow_hash }
    }

    /// Returns the ports of the layer, that of the source first.
    #[inline(always)]
    pub fn ports(self, descriptor: &Descriptor) -> [u16; 2] {
        if self.is_inside(descriptor) {
            [descriptor.inner_src_port, descriptor.inner_dst_port]
        } else {
            [descriptor.src_port, descriptor.dst_port]
        }
    }
}

/// Bits of [`TcpSegment::flags`].
pub(super) mod tcp {
    pub(in super::super) const FIN: u8 = 1;
    pub(in super::super) const SYN: u8 = 2;
    pub(in super::super) const RST: u8 = 4;
    pub(in super::super) const ACK: u8 = 16;
}

/// A TCP segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpSegment {
    /// The packet's time stamp, in ns.
    pub ts_ns: u64,
    /// The flow hash of the layer.
    pub flow_hash: u64,
    /// The source address, as two big-endian halves; IPv4 as ::ffff:a.b.c.d.
    pub src: [u64; 2],
    /// The destination address, in the same form.
    pub dst: [u64; 2],
    /// The source port.
    pub src_port: u16,
    /// The destination port.
    pub dst_port: u16,
    /// The sequence number.
    pub seq: u32,
    /// The acknowledgement number.
    pub ack: u32,
    /// The flags, as in descriptors.
    pub flags: u8,
    /// The window field, without its scale.
    pub window: u16,
    /// The option of a SYN that sets the window's scale.
    pub scale: Option<u8>,
    /// The offset in the packet of the first byte of data.
    pub data: u32,
    /// The number of captured bytes of data.
    pub captured: u32,
    /// The number of bytes of data, captured or not.
    pub len: u32,
    /// The outermost VLAN tag; 0 without a tag.
    pub vlan_tci: u16,
    /// The tunnel; 0 without one.
    pub tunnel: u8,
    /// True for IPv6.
    pub is_v6: bool,
}

/// The reason why a packet has no TCP segment that streams can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoSegment {
    /// The packet is no TCP packet, or its TCP header was not captured.
    NotTcp,
    /// The packet is a fragment of a datagram with a TCP segment.
    Fragment,
}

impl TcpSegment {
    /// Returns true if the packet of a descriptor may have a TCP segment in this layer. This is cheap, and right for
    /// nearly all packets.
    #[inline]
    pub fn may_have(descriptor: &Descriptor, layer: StreamLayer) -> bool {
        let flags = if layer.is_inside(descriptor) { descriptor.inner_flags } else { descriptor.flags };
        flags & flag::TCP != 0
    }

    /// Reads the segment of the packet that `descriptor` describes. `fetch` copies bytes of the packet, from an offset on
    /// that is inside the captured bytes; it returns false if they are not captured.
    ///
    /// # Errors
    /// [`NoSegment`] for packets without a segment that can be used.
    pub fn read(
        descriptor: &Descriptor,
        layer: StreamLayer,
        fetch: impl Fn(usize, &mut [u8]) -> bool,
    ) -> Result<Self, NoSegment> {
        let d = descriptor;
        let is_inner = layer.is_inside(d);
        let (flags, l3, l4, data, captured) = if is_inner {
            (d.inner_flags, d.inner_offset, d.inner_l4_offset, d.inner_payload_offset, d.inner_payload_len)
        } else {
            (d.flags, d.l3_offset, d.l4_offset, d.payload_offset, d.payload_len)
        };
        let (tcp_flags, tunnel) =
            if is_inner { (d.inner_tcp_flags, d.tunnel) } else { (d.tcp_flags, tunnel::NONE) };
        let [src_port, dst_port] = layer.ports(d);
        if flags & flag::TCP == 0 {
            return Err(NoSegment::NotTcp);
        }
        if flags & flag::FRAGMENT != 0 {
            return Err(NoSegment::Fragment);
        }
        if flags & flag::L4 == 0 {
            return Err(NoSegment::NotTcp);
        }
        let is_v6 = flags & flag::IPV6 != 0;
        let (l3, l4, data) = (usize::from(l3), usize::from(l4), usize::from(data));
        let mut ip = [0_u8; 40];
        let mut tcp = [0_u8; 20];
        // Headers that adjoin, as those of most packets do, are read at once.
        if !is_v6 && l4 == l3 + 20 {
            if !fetch(l3, &mut ip) {
                return Err(NoSegment::NotTcp);
            }
            tcp = bytes(&ip, 20);
        } else {
            let header = ip.get_mut(..if is_v6 { 40 } else { 20 }).unwrap_or_default();
            if !fetch(l3, header) || !fetch(l4, &mut tcp) {
                return Err(NoSegment::NotTcp);
            }
        }
        let headers = data.saturating_sub(l3);
        let to_the_end = (d.wire_len as usize).saturating_sub(data);
        let (src, dst, len) = if is_v6 {
            let half = |at: usize| u64::from_be_bytes(bytes(&ip, at));
            let stated = usize::from(u16::from_be_bytes(bytes(&ip, 4)));
            let len = if stated == 0 { to_the_end } else { (stated + 40).saturating_sub(headers) };
            ([half(8), half(16)], [half(24), half(32)], len)
        } else {
            let mapped = |at: usize| [0, 0xffff_0000_0000 | u64::from(u32::from_be_bytes(bytes(&ip, at)))];
            let stated = usize::from(u16::from_be_bytes(bytes(&ip, 2)));
            let len = if stated == 0 { to_the_end } else { stated.saturating_sub(headers) };
            (mapped(12), mapped(16), len)
        };
        let len = u32::try_from(len).unwrap_or(u32::MAX).min(weir_abi::limit::PACKET_BYTES).max(captured);
        let scale = if tcp_flags & tcp::SYN == 0 { None } else { window_scale(l4 + 20, data, &fetch) };
        Ok(Self {
            ts_ns: d.ts_ns,
            flow_hash: layer.flow_hash(d),
            src,
            dst,
            src_port,
            dst_port,
            seq: u32::from_be_bytes(bytes(&tcp, 4)),
            ack: u32::from_be_bytes(bytes(&tcp, 8)),
            flags: tcp_flags,
            window: u16::from_be_bytes(bytes(&tcp, 14)),
            scale,
            data: u32::try_from(data).unwrap_or(u32::MAX),
            captured,
            len,
            vlan_tci: if d.flags & flag::VLAN == 0 { 0 } else { d.vlan_tci },
            tunnel,
            is_v6,
        })
    }
}

/// The `N` bytes at `at` of a header; zeros beyond its end.
#[inline(always)]
fn bytes<const N: usize>(header: &[u8], at: usize) -> [u8; N] {
    header.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
}

/// The window scale option between `at` and `end`.
#[inline(never)]
fn window_scale(at: usize, end: usize, fetch: &impl Fn(usize, &mut [u8]) -> bool) -> Option<u8> {
    /// Kinds of options: end of the list, no operation, window scale.
    const END: u8 = 0;
    const NOP: u8 = 1;
    const SCALE: u8 = 3;
    let mut options = [0_u8; 40];
    let options = options.get_mut(..end.checked_sub(at)?.min(40))?;
    if !fetch(at, options) {
        return None;
    }
    let mut rest: &[u8] = options;
    loop {
        rest = match rest {
            [END, ..] | [] => return None,
            [NOP, rest @ ..] => rest,
            [SCALE, 3, scale, ..] => return Some((*scale).min(14)),
            [_, len, ..] => rest.get(usize::from((*len).max(2))..)?,
            [_] => return None,
        };
    }
}
