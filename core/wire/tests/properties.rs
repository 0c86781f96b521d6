//! Properties of every packet.

use crate::exercise::{CONTROL_BYTES, described, exercise};
use crate::oracle;
use etherparse::PacketBuilder;
use proptest::prelude::*;
use weir_abi::{Descriptor, flag};
use weir_units::Timestamp;
use weir_wire::{LinkType, Meta, PEEK_MAX, WriteFields, classify, patch};

fn meta(packet: &[u8], link_type: LinkType) -> Meta {
    let cap_len = u32::try_from(packet.len()).expect("a small packet");
    Meta { ts: Timestamp(0), cap_len, wire_len: cap_len, link_type, interface: 0, number: 0, data: 0 }
}

/// The two endpoints of a flow, and the contents of its packet.
#[derive(Clone, Debug)]
struct Flow {
    v6: bool,
    tags: usize,
    protocol: u8,
    src: [u8; 16],
    dst: [u8; 16],
    ports: (u16, u16),
    payload: Vec<u8>,
    tcp_flags: u8,
    options: usize,
    padding: usize,
}

fn flows() -> impl Strategy<Value = Flow> {
    let ends = (any::<[u8; 16]>(), any::<[u8; 16]>(), any::<(u16, u16)>());
    let form = (any::<bool>(), 0..3_usize, prop::sample::select(vec![1_u8, 6, 17, 50]));
    let rest = (prop::collection::vec(any::<u8>(), 0..80), any::<u8>(), 0..11_usize, 0..20_usize);
    (ends, form, rest).prop_map(
        |((src, dst, ports), (v6, tags, protocol), (payload, tcp_flags, options, padding))| Flow {
            v6,
            tags,
            protocol,
            src,
            dst,
            ports,
            payload,
            tcp_flags,
            options,
            padding,
        },
    )
}

impl Flow {
    fn turned(&self) -> Flow {
        Flow { src: self.dst, dst: self.src, ports: (self.ports.1, self.ports.0), ..self.clone() }
    }

    /// Written by etherparse, with right lengths and checksums.
    fn packet(&self) -> Vec<u8> {
        use etherparse::{
            IpHeaders, Ipv4Header, Ipv6Header, SingleVlanHeader, VlanHeader, VlanId, err::ValueTooBigError,
        };
        let ethernet = PacketBuilder::ethernet2([2, 1, 1, 1, 1, 1], [2, 2, 2, 2, 2, 2]);
        let ip = if self.v6 {
            let header =
                Ipv6Header { source: self.src, destination: self.dst, hop_limit: 9, ..Ipv6Header::default() };
            IpHeaders::Ipv6(header, etherparse::Ipv6Extensions::default())
        } else {
            let four = |a: [u8; 16]| [a[0], a[1], a[2], a[3]];
            let header =
                Ipv4Header::new(0, 64, etherparse::IpNumber(self.protocol), four(self.src), four(self.dst));
            IpHeaders::Ipv4(header.expect("no payload is too long"), etherparse::Ipv4Extensions::default())
        };
        let id = |n: u16| -> Result<VlanId, ValueTooBigError<u16>> { VlanId::try_new(n) };
        let tag = SingleVlanHeader { vlan_id: id(7).expect("12 bits"), ..SingleVlanHeader::default() };
        let ip = match self.tags {
            0 => ethernet.ip(ip),
            1 => ethernet.vlan(VlanHeader::Single(tag)).ip(ip),
            _ => ethernet.double_vlan(id(7).expect("12 bits"), id(8).expect("12 bits")).ip(ip),
        };
        let mut bytes = Vec::new();
        let written = match self.protocol {
            1 if self.v6 => {
                ip.icmpv6_echo_request(self.ports.0, self.ports.1).write(&mut bytes, &self.payload)
            }
            1 => ip.icmpv4_echo_request(self.ports.0, self.ports.1).write(&mut bytes, &self.payload),
            6 => {
                let mut tcp = etherparse::TcpHeader::new(self.ports.0, self.ports.1, 1, 1000);
                tcp.syn = self.tcp_flags & 2 != 0;
                tcp.ack = self.tcp_flags & 16 != 0;
                tcp.urg = self.tcp_flags & 32 != 0;
                tcp.cwr = self.tcp_flags & 128 != 0;
                tcp.set_options_raw(&vec![1; self.options * 4]).expect("at most 40 bytes");
                ip.tcp_header(tcp).write(&mut bytes, &self.payload)
            }
            17 => ip.udp(self.ports.0, self.ports.1).write(&mut bytes, &self.payload),
            other => ip.write(&mut bytes, etherparse::IpNumber(other), &self.payload),
        };
        written.expect("a small packet can be built");
        bytes.resize(bytes.len() + self.padding, 0xee);
        bytes
    }
}

fn described_ethernet(packet: &[u8]) -> Descriptor {
    described(packet, &meta(packet, LinkType::Ethernet))
}

/// The ports of the tunnels above UDP (VXLAN, Geneve, GTP-U, Teredo), and one without a meaning.
const PORTS: [u16; 5] = [4789, 6081, 2152, 3544, 40_000];

/// A patch can make a tunnel of a datagram, or of a tunnel a datagram. No more may depend on it.
#[test]
fn patches_of_ports_at_every_place_of_the_fuzzer_s_seeds_break_no_guarantee() {
    let seeds = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/classify");
    let mut tunnels = 0;
    for seed in std::fs::read_dir(seeds).expect("the seeds are in the repository") {
        let seed = std::fs::read(seed.expect("an entry").path()).expect("a file");
        let (control, packet) = seed.split_first_chunk::<CONTROL_BYTES>().expect("a seed is longer");
        for (at, port) in (0..).zip(packet.windows(2)).flat_map(|(at, _)| PORTS.map(|port| (at, port))) {
            let mut input = *control;
            input[6..8].copy_from_slice(&u16::to_be_bytes(at));
            input[8] = 2;
            input[9..11].copy_from_slice(&port.to_be_bytes());
            exercise(&[&input, packet].concat());
            let before = described_ethernet(packet);
            let mut patched = packet.to_vec();
            if patch::apply(&mut patched, &before, u32::from(at), &port.to_be_bytes()).is_ok() {
                tunnels += u32::from(described_ethernet(&patched).tunnel != before.tunnel);
            }
        }
    }
    assert!(tunnels > 10, "patches make and remove tunnels: {tunnels}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_the_descriptor_alone_allows_is_allowed(flow in flows(), bits in any::<u32>(), noise in any::<[u8; 4]>()) {
        let packet = flow.packet();
        let descriptor = described(&packet, &meta(&packet, LinkType::Ethernet));
        let head = &packet[..packet.len().min(PEEK_MAX)];
        let limited = WriteFields::from_bits(bits);
        for (offset, len) in (0..packet.len().min(120)).flat_map(|offset| (1..=4).map(move |len| (offset, len))) {
            let Some(old) = packet.get(offset..offset + len) else { continue };
            // Other bytes, and bytes with the same upper halves.
            let new = [noise[..len].to_vec(), old.iter().zip(noise).map(|(old, new)| old ^ (new & 15)).collect()];
            for (bytes, fields) in new.iter().flat_map(|bytes| [(bytes, WriteFields::ALL), (bytes, limited)]) {
                let offset = u32::try_from(offset).expect("a small packet");
                let is_common = fields.check_common(&descriptor, offset, bytes);
                let checked = fields.check(head, &descriptor, offset, bytes);
                prop_assert!(!is_common || checked.is_ok(), "{}+{} of {:?}: {:?}", offset, len, fields, checked);
            }
        }
        // The fields that modules write most.
        let at = u32::from(descriptor.l3_offset) + if flow.v6 { 7 } else { 8 };
        let is_common = WriteFields::ALL.check_common(&descriptor, at, &[64]);
        prop_assert_eq!(is_common, descriptor.flags & (flag::L4 | flag::MALFORMED) == flag::L4);
    }

    #[test]
    fn arbitrary_bytes_neither_panic_nor_break_a_guarantee(input in prop::collection::vec(any::<u8>(), 0..200)) {
        exercise(&input);
    }

    #[test]
    fn damaged_packets_neither_panic_nor_break_a_guarantee(
        control in any::<[u8; CONTROL_BYTES]>(),
        flow in flows(),
        damage in prop::collection::vec((0..120_usize, any::<u8>()), 0..6),
        cut in 0..120_usize,
    ) {
        let mut packet = flow.packet();
        for (at, byte) in damage {
            if let Some(place) = packet.get_mut(at) {
                *place = byte;
            }
        }
        packet.truncate(packet.len().saturating_sub(cut / 2));
        let mut input = control.to_vec();
        // Mostly Ethernet, with patches that mostly are inside the packet.
        if control[0] < 220 {
            input[0] = 1;
        }
        input[6] = 0;
        input[7] %= 128;
        input.extend(packet);
        exercise(&input);
    }

    #[test]
    fn etherparse_sees_the_same(flow in flows()) {
        let packet = flow.packet();
        let d = described_ethernet(&packet);
        prop_assert!(oracle::comparable(&d, LinkType::Ethernet), "a well-formed packet: {d:?}");
        prop_assert_eq!(Some(oracle::ours(&d)), oracle::etherparse(&packet, LinkType::Ethernet));
        prop_assert_eq!(usize::from(d.vlan_count), flow.tags);
        prop_assert_eq!(d.vlan_tci, if flow.tags == 0 { 0 } else { 7 });
    }

    #[test]
    fn both_directions_of_a_flow_have_one_hash_and_other_flows_have_others(flow in flows(), port in any::<u16>()) {
        let hash = |flow: &Flow| described_ethernet(&flow.packet()).flow_hash;
        prop_assert_eq!(hash(&flow), hash(&flow.turned()));
        let other = Flow { ports: (port, flow.ports.1), ..flow.clone() };
        let same = !matches!(flow.protocol, 6 | 17) || port == flow.ports.0;
        prop_assert_eq!(hash(&flow) == hash(&other), same, "ports count for TCP and UDP alone");
        let mut elsewhere = flow.clone();
        elsewhere.dst[3] ^= 1;
        prop_assert_ne!(hash(&flow), hash(&elsewhere));
    }

    #[test]
    fn all_fragments_of_a_datagram_have_one_hash(flow in flows(), offset in 1..0x1fff_u16) {
        let flow = Flow { v6: false, tags: 0, ..flow };
        let fragment = |bits: u16| {
            let mut packet = flow.packet();
            packet[20..22].copy_from_slice(&bits.to_be_bytes());
            described_ethernet(&packet)
        };
        let (first, later, last) = (fragment(0x2000), fragment(0x2000 | offset), fragment(offset));
        prop_assert_eq!((first.flow_hash, later.flow_hash), (last.flow_hash, last.flow_hash));
        prop_assert_eq!(first.flags & (flag::FRAGMENT | flag::LATER_FRAGMENT), flag::FRAGMENT);
        prop_assert_eq!(later.flags & (flag::FRAGMENT | flag::LATER_FRAGMENT), flag::FRAGMENT | flag::LATER_FRAGMENT);
        prop_assert_eq!(later.flags & (flag::TCP | flag::UDP | flag::ICMP | flag::L4), 0);
    }

    #[test]
    fn long_chains_of_tags_are_followed_up_to_the_parsing_limit(tags in 0..400_usize) {
        let mut packet = vec![0; 12];
        for _ in 0..tags {
            packet.extend([0x81, 0, 0, 1]);
        }
        packet.extend([8, 0]);
        packet.extend(&Flow::packet(&Flow { v6: false, tags: 0, protocol: 6, src: [1; 16], dst: [2; 16], ports: (1, 2),
            payload: vec![0; 1200], tcp_flags: 0, options: 0, padding: 0 })[14..]);
        let d = described_ethernet(&packet);
        let seen = 14 + tags * 4 + 20 <= PEEK_MAX;
        prop_assert_eq!(d.flags & flag::IPV4 != 0, seen);
        prop_assert!(seen || d.flags & flag::MALFORMED != 0);
        prop_assert_eq!(usize::from(d.vlan_count), tags.min((PEEK_MAX - 14) / 4));
    }
}

#[test]
fn a_packet_without_bytes_gets_a_descriptor_for_every_link_type() {
    for link_type in LinkType::ALL {
        let d = classify(&[], &meta(&[], link_type)).expect("there are no more bytes to ask for");
        assert_eq!(d.flags & (flag::IPV4 | flag::IPV6), 0);
    }
}
