//! Packets inside packets, built of given values. Each value can be changed alone, and all checksums are right.

use super::packets::{be, cat, ones_sum};

/// Everything that a view can hide, as one packet has it in all its headers.
#[derive(Clone, Debug)]
pub struct Values {
    /// The payload, and contents of options and messages that the parser does not know.
    pub secret: [u8; 24],
    pub v4: [[u8; 4]; 2],
    pub v6: [[u8; 16]; 2],
    pub macs: [[u8; 6]; 2],
    pub ports: [u16; 2],
    pub ttl: u8,
    pub dscp: u8,
    pub ip_id: u16,
    pub flow_label: u32,
    pub vlan: u16,
    pub label: u32,
    pub sequence: u32,
    pub acknowledgement: u32,
    pub window: u16,
    pub timestamps: [u8; 8],
    pub echo: [u8; 4],
}

impl Values {
    /// Values derived from a seed. No address begins like an EtherType, and no port is a tunnel's.
    pub fn from_seed(seed: u64) -> Self {
        let mut state = seed;
        let mut byte = || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            u8::try_from((mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb) >> 56).unwrap()
        };
        let mut bytes = |len: usize| (0..len).map(|_| byte() & 0x3f | 0x20).collect::<Vec<u8>>();
        let mut v4 = || bytes(4).try_into().unwrap();
        let v4 = [v4(), v4()];
        let mut v6 = || -> [u8; 16] { cat(&[&[0x2a], &bytes(15)]).try_into().unwrap() };
        let v6 = [v6(), v6()];
        let mut mac = || -> [u8; 6] { cat(&[&[0x0c], &bytes(5)]).try_into().unwrap() };
        let macs = [mac(), mac()];
        let mut word = || u32::from_be_bytes(bytes(4).try_into().unwrap());
        let mut half = || u16::try_from(word() >> 16).unwrap();
        // Ports from 8224 to 24415, except those of tunnels.
        let ports =
            [half() | 1, half() | 1].map(|port| if port == 8472 { 8471 } else { port & 0x3fff | 0x2001 });
        Self {
            v4,
            v6,
            macs,
            ports,
            ip_id: half(),
            window: half(),
            vlan: half() & 0xfff,
            flow_label: word() & 0xf_ffff,
            label: word() & 0xf_ffff,
            sequence: word(),
            acknowledgement: word(),
            secret: bytes(24).try_into().unwrap(),
            timestamps: bytes(8).try_into().unwrap(),
            echo: bytes(4).try_into().unwrap(),
            ttl: bytes(1)[0],
            dscp: bytes(1)[0] & 0x3f,
        }
    }
}

/// The offset and the covered range of a checksum.
#[derive(Clone, Debug)]
pub struct Sum {
    pub field: usize,
    pub from: usize,
    pub end: usize,
    /// The offset of the IP header whose addresses it also covers, and the protocol.
    pub pseudo: Option<(usize, u8)>,
}

/// A packet that begins with an IP header.
#[derive(Clone, Debug)]
pub struct Built {
    pub name: String,
    pub bytes: Vec<u8>,
    pub sums: Vec<Sum>,
    /// The end of the last header, if all headers are understood.
    pub headers: Option<usize>,
}

impl Built {
    pub fn is_v6(&self) -> bool {
        self.bytes[0] >> 4 == 6
    }

    /// The same packet behind other bytes.
    fn behind(mut self, front: &[u8]) -> Self {
        let by = front.len();
        self.bytes = cat(&[front, &self.bytes]);
        for sum in &mut self.sums {
            sum.field += by;
            sum.from += by;
            sum.end += by;
            sum.pseudo = sum.pseudo.map(|(ip, protocol)| (ip + by, protocol));
        }
        self.headers = self.headers.map(|end| end + by);
        self
    }

    /// The packet truncated to `len` bytes, as in an error message.
    fn cut(mut self, len: usize) -> Self {
        self.bytes.truncate(len);
        self.sums.retain(|sum| sum.field + 2 <= len);
        self.headers = self.headers.filter(|end| *end <= len);
        self
    }
}

/// The checksum over a range of a packet, with the present value of the field.
pub fn over(bytes: &[u8], sum: &Sum) -> u16 {
    let covered = &bytes[sum.from..sum.end];
    match sum.pseudo {
        None => ones_sum(&[covered]),
        Some((ip, protocol)) => {
            let addresses =
                if bytes[ip] >> 4 == 6 { &bytes[ip + 8..ip + 40] } else { &bytes[ip + 12..ip + 20] };
            ones_sum(&[addresses, &[0, protocol], &be(covered.len()), covered])
        }
    }
}

/// Adds an IP header. If `field` is given, it is the offset of the checksum in the data above, which is then set.
fn ip(values: &Values, is_v6: bool, protocol: u8, above: Built, field: Option<usize>) -> Built {
    ip_with(values, is_v6, protocol, &[], above, field)
}

/// Adds an IP header with IPv4 options or IPv6 extension headers; `protocol` then names the first of those.
fn ip_with(
    values: &Values,
    is_v6: bool,
    protocol: u8,
    between: &[u8],
    above: Built,
    field: Option<usize>,
) -> Built {
    let len = above.bytes.len() + between.len();
    let last = if is_v6 && !between.is_empty() { last_of(between) } else { protocol };
    let header = if is_v6 {
        let first = 0x6000_0000 | u32::from(values.dscp) << 22 | values.flow_label;
        cat(&[&first.to_be_bytes(), &be(len), &[protocol, values.ttl], &values.v6[0], &values.v6[1], between])
    } else {
        let words = u8::try_from(5 + between.len() / 4).unwrap();
        let mut header = cat(&[
            &[0x40 | words, values.dscp << 2],
            &be(20 + len),
            &values.ip_id.to_be_bytes(),
            &[0, 0, values.ttl, protocol, 0, 0],
            &values.v4[0],
            &values.v4[1],
            between,
        ]);
        let sum = ones_sum(&[&header]);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        header
    };
    let at = header.len();
    let mut built = above.behind(&header);
    if !is_v6 {
        built.sums.push(Sum { field: 10, from: 0, end: at, pseudo: None });
    }
    if let Some(field) = field {
        let has_pseudo = is_v6 || last != 1 && last != 2 && last != 47;
        let pseudo = (has_pseudo && last != 47).then_some((0, last));
        let sum = Sum { field: at + field, from: at, end: built.bytes.len(), pseudo };
        built.bytes[sum.field..sum.field + 2].fill(0);
        let value = match over(&built.bytes, &sum) {
            0 if last == 17 => 0xffff,
            value => value,
        };
        built.bytes[sum.field..sum.field + 2].copy_from_slice(&value.to_be_bytes());
        built.sums.push(sum);
    }
    built
}

/// The protocol behind a chain of IPv6 extension headers.
fn last_of(mut chain: &[u8]) -> u8 {
    loop {
        // All extension headers used here count in units of eight bytes; an authentication header is always alone.
        let len = (usize::from(chain[1]) + 1) * 8;
        if chain.len() <= len {
            return chain[0];
        }
        chain = &chain[len..];
    }
}

fn plain(name: &str, bytes: Vec<u8>, headers: Option<usize>) -> Built {
    Built { name: name.to_owned(), bytes, sums: Vec::new(), headers }
}

/// A kind of innermost packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaf {
    Tcp,
    TcpEmpty,
    TcpTimestamps,
    TcpUnknownOption,
    TcpMultipathSum,
    TcpMultipathCapableSum,
    TcpAlternateSum,
    TcpAfterEnd,
    Udp,
    UdpEmpty,
    UdpWithoutSum,
    UdpSurplus,
    Echo,
    EchoReplyEmpty,
    UnknownMessage,
    UnknownMessageShort,
    Igmp,
    UnknownOptionV4,
    UnknownTimestampV4,
    UnknownOptionV6,
    PaddingV6,
    UnknownRouting,
    SegmentRoutingTlv,
    Mobility,
    Authenticated,
    Advertisement,
    Solicitation,
    LinkOptionTooLong,
    Redirect,
    UdpLite,
    Dccp,
    Sctp,
    Esp,
    Unknown,
}

impl Leaf {
    pub const ALL: [Self; 34] = [
        Self::Tcp,
        Self::TcpEmpty,
        Self::TcpTimestamps,
        Self::TcpUnknownOption,
        Self::TcpMultipathSum,
        Self::TcpMultipathCapableSum,
        Self::TcpAlternateSum,
        Self::TcpAfterEnd,
        Self::Udp,
        Self::UdpEmpty,
        Self::UdpWithoutSum,
        Self::UdpSurplus,
        Self::Echo,
        Self::EchoReplyEmpty,
        Self::UnknownMessage,
        Self::UnknownMessageShort,
        Self::Igmp,
        Self::UnknownOptionV4,
        Self::UnknownTimestampV4,
        Self::UnknownOptionV6,
        Self::PaddingV6,
        Self::UnknownRouting,
        Self::SegmentRoutingTlv,
        Self::Mobility,
        Self::Authenticated,
        Self::Advertisement,
        Self::Solicitation,
        Self::LinkOptionTooLong,
        Self::Redirect,
        Self::UdpLite,
        Self::Dccp,
        Self::Sctp,
        Self::Esp,
        Self::Unknown,
    ];

    /// Builds the packet; `None` if the IP version does not have this kind.
    pub fn build(self, values: &Values, is_v6: bool) -> Option<Built> {
        let secret = &values.secret[..];
        let tcp =
            |options: &[u8], data: &[u8]| ip(values, is_v6, 6, segment(values, options, data), Some(16));
        let message = |bytes: &[u8], headers: usize| {
            let (protocol, above) = (if is_v6 { 58 } else { 1 }, plain("", bytes.to_vec(), Some(headers)));
            ip(values, is_v6, protocol, above, Some(2))
        };
        let above_v6 = |chain: &[u8], first: u8| {
            ip_with(values, true, first, chain, segment(values, &[], b""), Some(16))
        };
        let opaque = |protocol: u8, field: Option<usize>| {
            ip(values, is_v6, protocol, plain("", secret.to_vec(), None), field)
        };
        let only_v6 = |built: &dyn Fn() -> Built| is_v6.then(built);
        let built = match self {
            Self::Tcp => Some(tcp(&[], secret)),
            Self::TcpEmpty => Some(tcp(&[], b"")),
            Self::TcpTimestamps => Some(tcp(&cat(&[&[1, 1, 8, 10], &values.timestamps]), secret)),
            Self::TcpUnknownOption => Some(tcp(&cat(&[&[253, 26], secret, &[1, 1]]), b"")),
            Self::TcpMultipathSum => {
                // A data sequence signal with acknowledgement, mapping and checksum (RFC 8684, 3.3). The mapped data
                // have a checksum of their own, which also covers numbers of the option.
                let mapping = cat(&[&[0, 0, 0, 1], &[0, 0, 0, 2], &be(secret.len())]);
                let sum = ones_sum(&[&[0; 4], &mapping, &[0, 0], secret]).to_be_bytes();
                Some(tcp(&cat(&[&[30, 20, 0x20, 5, 9, 9, 9, 9], &mapping, &sum]), secret))
            }
            Self::TcpMultipathCapableSum => {
                let length = be(secret.len());
                let sum = ones_sum(&[&length, secret]).to_be_bytes();
                Some(tcp(&cat(&[&[30, 24, 1, 0x81], &[7; 16], &length, &sum]), secret))
            }
            // An alternate checksum (RFC 1146) over the data.
            Self::TcpAlternateSum => Some(tcp(&cat(&[&[15, 4], &ones_sum(&[secret]).to_be_bytes()]), secret)),
            Self::TcpAfterEnd => Some(tcp(&cat(&[&[0, 0, 0, 0], secret]), b"")),
            Self::Udp => Some(ip(values, is_v6, 17, datagram(values, secret), Some(6))),
            Self::UdpEmpty => Some(ip(values, is_v6, 17, datagram(values, b""), Some(6))),
            Self::UdpWithoutSum => Some(ip(values, is_v6, 17, datagram(values, secret), None)),
            // Behind the datagram, where UDP options are (RFC 9868).
            Self::UdpSurplus => {
                let mut above = datagram(values, b"");
                above.bytes.extend(secret);
                Some(ip(values, is_v6, 17, above, None))
            }
            Self::Echo => {
                let kind = if is_v6 { 128 } else { 8 };
                Some(message(&cat(&[&[kind, 0, 0, 0], &values.echo, secret]), 8))
            }
            Self::EchoReplyEmpty => {
                let kind = if is_v6 { 129 } else { 0 };
                Some(message(&cat(&[&[kind, 0, 0, 0], &values.echo]), 8))
            }
            Self::UnknownMessage => {
                Some(message(&cat(&[&[if is_v6 { 200 } else { 40 }, 0, 0, 0], secret]), 8))
            }
            Self::UnknownMessageShort => {
                Some(message(&cat(&[&[if is_v6 { 139 } else { 42 }, 0, 0, 0], &secret[..4]]), 8))
            }
            Self::Igmp => (!is_v6).then(|| {
                let query = cat(&[&[0x11, 10, 0, 0], &values.v4[0], &[2, 9, 0, 1], &values.v4[1], secret]);
                ip(values, false, 2, plain("", query, Some(16)), Some(2))
            }),
            Self::UnknownOptionV4 => (!is_v6).then(|| {
                let options = cat(&[&[82, 26], secret, &[1, 0]]);
                ip_with(values, false, 6, &options, segment(values, &[], b""), Some(16))
            }),
            // Undefined flags of a timestamp option.
            Self::UnknownTimestampV4 => (!is_v6).then(|| {
                let options = cat(&[&[68, 28, 5, 7], secret]);
                ip_with(values, false, 6, &options, segment(values, &[], b""), Some(16))
            }),
            Self::UnknownOptionV6 => {
                only_v6(&|| above_v6(&cat(&[&[6, 3, 0x1e, 24], secret, &[1, 2, 0, 0]]), 0))
            }
            Self::PaddingV6 => only_v6(&|| above_v6(&cat(&[&[6, 3, 1, 28], secret, &[0; 4]]), 60)),
            Self::UnknownRouting => only_v6(&|| above_v6(&cat(&[&[6, 3, 253, 0], secret, &[0; 4]]), 43)),
            // A segment list with one entry, and a TLV behind it (RFC 8754, 2.1).
            Self::SegmentRoutingTlv => only_v6(&|| {
                let header = cat(&[&[6, 6, 4, 0, 0, 0, 0, 0], &values.v6[1], &[124, 30], secret, &[0; 6]]);
                above_v6(&header, 43)
            }),
            Self::Mobility => only_v6(&|| {
                let header = cat(&[&[6, 3, 7, 0, 0, 0], secret, &[0; 2]]);
                above_v6(&header, 135)
            }),
            Self::Authenticated => only_v6(&|| {
                let header = cat(&[&[6, 7, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1], secret]);
                let mut built = ip_with(values, true, 51, &header, segment(values, &[], b""), None);
                let at = 40 + header.len();
                let sum = Sum { field: at + 16, from: at, end: built.bytes.len(), pseudo: Some((0, 6)) };
                let value = over(&built.bytes, &sum);
                built.bytes[sum.field..sum.field + 2].copy_from_slice(&value.to_be_bytes());
                built.sums.push(sum);
                built
            }),
            // A router advertisement with a search list for DNS (RFC 8106) and a captive portal (RFC 8910).
            Self::Advertisement => only_v6(&|| {
                let fixed = [134, 0, 0, 0, 64, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 2];
                let options = cat(&[&[31, 4, 0, 0, 0, 0, 0, 9], secret, &[37, 4, 0, 0, 0, 0, 0, 0], secret]);
                message(&cat(&[&fixed, &options]), 16 + options.len())
            }),
            Self::Solicitation => only_v6(&|| {
                let fixed = cat(&[&[135, 0, 0, 0, 0, 0, 0, 0], &values.v6[1]]);
                let options = cat(&[&[1, 1], &values.macs[1], &[14, 4, 0, 0, 0, 0, 0, 0], secret]);
                message(&cat(&[&fixed, &options]), 24 + options.len())
            }),
            Self::LinkOptionTooLong => only_v6(&|| {
                let fixed = [133, 0, 0, 0, 0, 0, 0, 0];
                message(&cat(&[&fixed, &[1, 4, 0, 0, 0, 0, 0, 0], secret]), 40)
            }),
            Self::Redirect => only_v6(&|| {
                let fixed = cat(&[&[137, 0, 0, 0, 0, 0, 0, 0], &values.v6[0], &values.v6[1]]);
                message(&cat(&[&fixed, &[4, 4, 0, 0, 0, 0, 0, 0], secret]), 40 + 32)
            }),
            Self::UdpLite => Some(opaque(136, Some(6))),
            Self::Dccp => Some(opaque(33, Some(6))),
            Self::Sctp => Some(opaque(132, None)),
            Self::Esp => Some(opaque(50, None)),
            Self::Unknown => Some(opaque(253, Some(12))),
        };
        built.map(|built| Built { name: format!("{self:?} over IPv{}", if is_v6 { 6 } else { 4 }), ..built })
    }
}

fn segment(values: &Values, options: &[u8], data: &[u8]) -> Built {
    let words = u8::try_from(5 + options.len() / 4).unwrap();
    let [src, dst] = values.ports.map(u16::to_be_bytes);
    let fixed = cat(&[
        &src,
        &dst,
        &values.sequence.to_be_bytes(),
        &values.acknowledgement.to_be_bytes(),
        &[words << 4, 0x18],
        &values.window.to_be_bytes(),
        &[0; 4],
    ]);
    let headers = 20 + options.len();
    plain("", cat(&[&fixed, options, data]), Some(headers))
}

fn datagram(values: &Values, data: &[u8]) -> Built {
    let [src, dst] = values.ports.map(u16::to_be_bytes);
    plain("", cat(&[&src, &dst, &be(8 + data.len()), &[0, 0], data]), Some(8))
}

/// A kind of packet around another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    Ip,
    IpWithOptions,
    FirstFragment,
    LaterFragment,
    Gre,
    GreWithSum,
    FrameInGreWithSum,
    TaggedFrameInGreWithSum,
    LabelInGreWithSum,
    LabelInIp,
    Vxlan,
    FrameInGeneve,
    Geneve,
    LabelInGeneve,
    GtpU,
    GtpUWithExtension,
    Teredo,
    TeredoWithOrigin,
    Error,
    ErrorCut,
    ErrorExtended,
    RedirectMessage,
}

impl Carrier {
    pub const ALL: [Self; 22] = [
        Self::Ip,
        Self::IpWithOptions,
        Self::FirstFragment,
        Self::LaterFragment,
        Self::Gre,
        Self::GreWithSum,
        Self::FrameInGreWithSum,
        Self::TaggedFrameInGreWithSum,
        Self::LabelInGreWithSum,
        Self::LabelInIp,
        Self::Vxlan,
        Self::FrameInGeneve,
        Self::Geneve,
        Self::LabelInGeneve,
        Self::GtpU,
        Self::GtpUWithExtension,
        Self::Teredo,
        Self::TeredoWithOrigin,
        Self::Error,
        Self::ErrorCut,
        Self::ErrorExtended,
        Self::RedirectMessage,
    ];

    /// Returns true for a message that quotes a packet, which is not shown completely.
    pub fn is_message(self) -> bool {
        matches!(self, Self::Error | Self::ErrorCut | Self::ErrorExtended | Self::RedirectMessage)
    }

    /// Builds the packet around another one; `None` if the two cannot be combined.
    pub fn wrap(self, values: &Values, is_v6: bool, inner: &Built) -> Option<Built> {
        let (inner, name) =
            (inner.clone(), format!("{self:?} over IPv{} of {}", if is_v6 { 6 } else { 4 }, inner.name));
        let inner_v6 = inner.is_v6();
        let kind: [u8; 2] = if inner_v6 { [0x86, 0xdd] } else { [8, 0] };
        let label = {
            let word = values.label << 12 | u32::from(values.dscp & 7) << 9 | 1 << 8 | u32::from(values.ttl);
            word.to_be_bytes()
        };
        let over_udp = |port: u16, front: &[u8], inner: Built| {
            let mut above = inner.behind(front);
            let header = cat(&[
                &values.ports[0].to_be_bytes(),
                &port.to_be_bytes(),
                &be(8 + above.bytes.len()),
                &[0, 0],
            ]);
            above = above.behind(&header);
            ip(values, is_v6, 17, above, Some(6))
        };
        let gre = |kind: [u8; 2], inner: Built| {
            // Checksum, key and number.
            let mut above = inner.behind(&cat(&[&[0xb0, 0], &kind, &[0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 1]]));
            let sum = ones_sum(&[&above.bytes]);
            above.bytes[4..6].copy_from_slice(&sum.to_be_bytes());
            above.sums.push(Sum { field: 4, from: 0, end: above.bytes.len(), pseudo: None });
            ip(values, is_v6, 47, above, None)
        };
        let message = |kinds: (u8, u8), rest: &[u8], inner: Built| {
            let (kind, protocol) = if is_v6 { (kinds.1, 58) } else { (kinds.0, 1) };
            let above = inner.behind(&cat(&[&[kind, 0, 0, 0], rest]));
            ip(values, is_v6, protocol, above, Some(2))
        };
        let of_family = inner_v6 == is_v6;
        let geneve = |options: &[u8], kind: [u8; 2]| {
            let words = u8::try_from(options.len() / 4).unwrap();
            cat(&[&[words, 0], &kind, &[0, 1, 2, 0], options])
        };
        let secret = &values.secret[..];
        let options = cat(&[&[0, 9, 0x42, 6], secret]);
        let built = match self {
            Self::Ip => ip(values, is_v6, if inner_v6 { 41 } else { 4 }, inner, None),
            Self::IpWithOptions => {
                let protocol = if inner_v6 { 41 } else { 4 };
                let (first, between) = if is_v6 {
                    (60, cat(&[&[protocol, 3, 0x1e, 24], secret, &[1, 2, 0, 0]]))
                } else {
                    (protocol, cat(&[&[94, 26], secret, &[1, 1]]))
                };
                ip_with(values, is_v6, first, &between, inner, None)
            }
            Self::FirstFragment => fragment(values, is_v6, inner, 0, true),
            // Nothing names the datagram that it is a fragment of.
            Self::LaterFragment => {
                let sums = Vec::new();
                fragment(values, is_v6, Built { sums, headers: None, ..inner }, 8, false)
            }
            Self::Gre => ip(values, is_v6, 47, inner.behind(&cat(&[&[0, 0], &kind])), None),
            Self::GreWithSum => gre(kind, inner),
            Self::FrameInGreWithSum => gre([0x65, 0x58], inner.behind(&frame(values, kind, false))),
            Self::TaggedFrameInGreWithSum => gre([0x65, 0x58], inner.behind(&frame(values, kind, true))),
            Self::LabelInGreWithSum => gre([0x88, 0x47], inner.behind(&label)),
            Self::LabelInIp => ip(values, is_v6, 137, inner.behind(&label), None),
            Self::Vxlan => {
                over_udp(4789, &cat(&[&[8, 0, 0, 0, 0, 1, 2, 0], &frame(values, kind, false)]), inner)
            }
            Self::FrameInGeneve => {
                let front = cat(&[&geneve(&options, [0x65, 0x58]), &frame(values, kind, false)]);
                over_udp(6081, &front, inner)
            }
            Self::Geneve => over_udp(6081, &geneve(&options, kind), inner),
            Self::LabelInGeneve => over_udp(6081, &cat(&[&geneve(&[], [0x88, 0x47]), &label]), inner),
            Self::GtpU => over_udp(2152, &[0x30, 255, 0, 0, 1, 2, 3, 4], inner),
            Self::GtpUWithExtension => {
                // A header of 7 words with the secret, and an empty one.
                let extension = cat(&[&[7, 1, 2], secret, &[0x85], &[1, 0, 0, 0]]);
                over_udp(2152, &cat(&[&[0x36, 255, 0, 0, 1, 2, 3, 4, 0, 5, 0, 0xc0], &extension]), inner)
            }
            Self::Teredo if inner_v6 => over_udp(3544, &[], inner),
            Self::TeredoWithOrigin if inner_v6 => {
                let port = values.ports[1].to_be_bytes();
                over_udp(3544, &cat(&[&[0, 0], &port, &values.v4[1]]), inner)
            }
            Self::Error if of_family => message((3, 1), &[0; 4], inner),
            // As much as old routers quote (RFC 792): the IP header and eight bytes.
            Self::ErrorCut if of_family => {
                let header = if is_v6 { 40 } else { usize::from(inner.bytes[0] & 15) * 4 };
                message((11, 3), &[0; 4], inner.cut(header + 8))
            }
            // With an extension structure behind the quoted packet (RFC 4884).
            Self::ErrorExtended if of_family => {
                let unit = if is_v6 { 8 } else { 4 };
                let mut quoted = inner.clone();
                let len = quoted.bytes.len().next_multiple_of(unit);
                quoted.bytes.resize(len, 0);
                let words = u8::try_from(len / unit).unwrap_or(0);
                let object = cat(&[&be(4 + secret.len()), &[1, 1], secret]);
                let sum = ones_sum(&[&[0x20, 0], &object]).to_be_bytes();
                quoted.bytes.extend(cat(&[&[0x20, 0], &sum, &object]));
                let rest = if is_v6 { [words, 0, 0, 0] } else { [0, words, 0, 0] };
                message((3, 1), &rest, quoted)
            }
            Self::RedirectMessage if of_family && !is_v6 => message((5, 0), &values.v4[1], inner),
            Self::Teredo | Self::TeredoWithOrigin | Self::Error | Self::ErrorCut => return None,
            Self::ErrorExtended | Self::RedirectMessage => return None,
        };
        Some(Built { name, ..built })
    }
}

/// A fragment that contains a part of another packet.
fn fragment(values: &Values, is_v6: bool, inner: Built, offset: u16, has_more: bool) -> Built {
    let protocol = if inner.is_v6() { 41 } else { 4 };
    if is_v6 {
        let [high, low] = (offset | u16::from(has_more)).to_be_bytes();
        let header = cat(&[&[protocol, 0, high, low, 0, 0], &values.ip_id.to_be_bytes()]);
        return ip_with(values, true, 44, &header, inner, None);
    }
    let mut built = ip(values, false, protocol, inner, None);
    let word = (offset / 8) | if has_more { 0x2000 } else { 0 };
    built.bytes[6..8].copy_from_slice(&word.to_be_bytes());
    built.bytes[10..12].fill(0);
    let sum = ones_sum(&[&built.bytes[..20]]);
    built.bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    built
}

fn frame(values: &Values, kind: [u8; 2], is_tagged: bool) -> Vec<u8> {
    let [dst, src] = &values.macs;
    if is_tagged {
        cat(&[dst, src, &[0x81, 0], &values.vlan.to_be_bytes(), &kind])
    } else {
        cat(&[dst, src, &kind])
    }
}

/// An Ethernet frame with the packet, behind a VLAN tag.
pub fn framed(values: &Values, built: &Built) -> Built {
    let kind = if built.is_v6() { [0x86, 0xdd] } else { [8, 0] };
    built.clone().behind(&frame(values, kind, true))
}
