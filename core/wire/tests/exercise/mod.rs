//! Runs all of `weir-wire` on arbitrary bytes. Entry point of fuzz targets and property tests.

mod streams;
mod view;

use weir_abi::{Descriptor, flag, tunnel};
use weir_units::Timestamp;
use weir_wire::{
    LinkType, Meta, MoreHeader, PEEK, PEEK_MAX, Reassembled, Reassembler, ReassemblyLimits, TUNNELS_MAX,
    WriteFields, addresses, classify, fragment, patch, verify,
};

pub use streams::streams;
pub use view::view;

/// The bytes of the input that control the run; the rest is the packet.
pub const CONTROL_BYTES: usize = 16;

/// Classifies a packet made of `input`, checks that the descriptor is consistent, patches the packet, and checks that
/// the patch changed nothing that it must not.
///
/// Input: link type (1 byte), kind of length (1), wire length (4), patch offset (2), patch length (1), patch bytes (7), packet.
///
/// # Panics
///
/// If a guarantee of this crate is broken, which is the purpose.
pub fn exercise(input: &[u8]) {
    let Some((control, packet)) = input.split_first_chunk::<CONTROL_BYTES>() else { return };
    let &[link, kind, w0, w1, w2, w3, o0, o1, len, patch_bytes @ ..] = control;
    let captured = u32::try_from(packet.len()).unwrap_or(u32::MAX);
    let wire_len = match kind % 4 {
        0 | 1 => captured,
        2 => captured.saturating_add(u32::from(w0)),
        _ => u32::from_be_bytes([w0, w1, w2, w3]),
    };
    let meta = Meta {
        ts: Timestamp(u64::from(w0)),
        cap_len: captured,
        wire_len,
        link_type: LinkType::ALL[usize::from(link) % LinkType::ALL.len()],
        interface: u16::from(w1),
        number: u64::from(w2),
        data: u32::from(w3),
    };
    let descriptor = described(packet, &meta);
    assert_consistent(&descriptor, &meta);

    let offset = u32::from(u16::from_be_bytes([o0, o1]));
    let bytes = &patch_bytes[..usize::from(len) % (patch_bytes.len() + 1)];
    let mut patched = packet.to_vec();
    let checked = patch::check(&packet[..packet.len().min(PEEK_MAX)], &descriptor, offset, bytes);
    let applied = patch::apply(&mut patched, &descriptor, offset, bytes);
    assert_eq!(checked, applied, "check and apply disagree");
    if WriteFields::ALL.check_common(&descriptor, offset, bytes) {
        assert_eq!(checked, Ok(()), "the descriptor shows a field that may not be written");
    }
    if applied.is_err() {
        assert_eq!(patched, packet, "a refused patch changes nothing");
    } else {
        let after = described(&patched, &meta);
        let changeable = |d: Descriptor| Descriptor {
            flow_hash: 0,
            src_port: 0,
            dst_port: 0,
            tcp_flags: 0,
            ttl: 0,
            tos: 0,
            vlan_tci: 0,
            // A patch can change a port, or data above UDP, into those of a tunnel.
            tunnel: 0,
            tunnel_count: 0,
            inner_flow_hash: 0,
            inner_offset: 0,
            inner_flags: 0,
            inner_l4_offset: 0,
            inner_payload_offset: 0,
            inner_payload_len: 0,
            inner_src_port: 0,
            inner_dst_port: 0,
            inner_ip_proto: 0,
            inner_tcp_flags: 0,
            inner_ttl: 0,
            inner_tos: 0,
            ..d
        };
        assert_eq!(changeable(after), changeable(descriptor), "a patch changed how the packet is parsed");
    }
    // With fewer writable fields no more is written, and a refused patch writes nothing.
    let fields = WriteFields::from_bits(u32::from_be_bytes([w0, w1, w2, w3]));
    let mut by_fields = packet.to_vec();
    let granted = fields.apply(&mut by_fields, &descriptor, offset, bytes);
    assert_eq!(
        fields.check(&packet[..packet.len().min(PEEK_MAX)], &descriptor, offset, bytes),
        granted,
        "check and apply disagree for {fields}"
    );
    if fields.check_common(&descriptor, offset, bytes) {
        assert_eq!(granted, Ok(()), "the descriptor shows a field that is not among {fields}");
    }
    match granted {
        Ok(()) => assert!(applied.is_ok() && by_fields == patched, "{fields} allow more than all do"),
        Err(_) => assert_eq!(by_fields, packet, "a refused patch changes nothing"),
    }
    // The other functions: no input panics, and memory stays bounded.
    let _ = (verify(packet, &descriptor), fragment(packet, &descriptor), addresses(packet, &descriptor));
    let mut reassembler = Reassembler::new(ReassemblyLimits::default());
    let first = reassembler.put(packet, &descriptor);
    assert_eq!(first == Reassembled::NoFragment, descriptor.flags & flag::FRAGMENT == 0, "{descriptor:?}");
    assert!(!matches!(first, Reassembled::Whole(_)), "no fragment is a datagram");
    // Bytes that differ from those described.
    let mut other = packet.to_vec();
    if let Some(first) = other.get_mut(usize::from(w0)) {
        *first ^= w1;
    }
    other.truncate(other.len().saturating_sub(usize::from(w2 & 3)));
    let _ = patch::apply(&mut other, &descriptor, offset, bytes);
    let _ =
        (verify(&other, &descriptor), fragment(&other, &descriptor), reassembler.put(&other, &descriptor));
}

/// The descriptor as a source obtains it: from [`PEEK`] bytes, and from more if requested.
///
/// # Panics
///
/// If more bytes give another result.
pub fn described(packet: &[u8], meta: &Meta) -> Descriptor {
    let whole = classify(packet, meta).expect("all bytes are always enough");
    let most =
        classify(&packet[..packet.len().min(PEEK_MAX)], meta).expect("PEEK_MAX bytes are always enough");
    assert_eq!(most, whole, "more than PEEK_MAX bytes give another answer");
    for head_len in [PEEK, 0, 14, 40, 60, 80, 120, 200, 400] {
        match classify(&packet[..packet.len().min(head_len)], meta) {
            Ok(from_head) => assert_eq!(from_head, whole, "{head_len} bytes give another answer"),
            Err(MoreHeader) => assert!(packet.len() > head_len, "asks for more than there is"),
        }
    }
    whole
}

/// Checks the contract of descriptors.
///
/// # Panics
///
/// If it is broken.
pub fn assert_consistent(d: &Descriptor, meta: &Meta) {
    let has = |bits: u32| d.flags & bits != 0;
    let implies = |a: bool, b: bool, what: &str| assert!(!a || b, "{what}: {d:?}");
    assert_eq!((d.ts_ns, d.data, d.cap_len, d.wire_len), (meta.ts.0, meta.data, meta.cap_len, meta.wire_len));
    assert_eq!(
        (d.interface, d.link_type, u64::from(d.number)),
        (meta.interface, meta.link_type.number(), meta.number & 0xffff_ffff)
    );
    let (ip, upper) = (has(flag::IPV4 | flag::IPV6), has(flag::TCP | flag::UDP | flag::ICMP));
    implies(has(flag::IPV4), !has(flag::IPV6), "one outermost IP header");
    implies(upper || has(flag::L4) || has(flag::FRAGMENT) || has(flag::OPTIONS), ip, "above IP there is IP");
    let kinds = [flag::TCP, flag::UDP, flag::ICMP].into_iter().filter(|&kind| has(kind)).count();
    implies(upper, kinds == 1, "one protocol above IP");
    implies(has(flag::TCP), d.ip_proto == 6, "TCP is protocol 6");
    implies(has(flag::UDP), d.ip_proto == 17, "UDP is protocol 17");
    implies(
        has(flag::LATER_FRAGMENT),
        has(flag::FRAGMENT) && !upper && !has(flag::L4),
        "a later fragment has no header above IP",
    );
    implies(!has(flag::TCP | flag::UDP), d.src_port == 0 && d.dst_port == 0, "only TCP and UDP have ports");
    implies(!has(flag::TCP), d.tcp_flags == 0, "only TCP has TCP flags");
    assert_eq!(has(flag::CUT), d.cap_len < d.wire_len, "CUT: {d:?}");
    assert_eq!(
        (has(flag::VLAN), has(flag::MPLS)),
        (d.vlan_count > 0, d.mpls_count > 0),
        "tags and labels are counted: {d:?}"
    );
    if !ip {
        assert_eq!((d.l3_offset, d.ip_proto, d.ttl, d.tos), (0, 0, 0, 0), "no IP, no fields of IP: {d:?}");
    } else {
        let fixed = if has(flag::IPV4) { 20 } else { 40 };
        assert!(u32::from(d.l3_offset) + fixed <= d.cap_len, "the IP header is captured: {d:?}");
        implies(
            has(flag::L4),
            u32::from(d.l3_offset) + fixed <= u32::from(d.l4_offset),
            "first IP, then what is above it",
        );
    }
    if has(flag::L4) {
        let header = u32::from(d.payload_offset) - u32::from(d.l4_offset);
        let lengths = match d.flags & (flag::TCP | flag::UDP | flag::ICMP) {
            flag::TCP => 20..=60,
            0 => 0..=0,
            _ => 8..=8,
        };
        assert!(lengths.contains(&header), "length of the header above IP: {d:?}");
        assert!(
            u64::from(d.payload_offset) + u64::from(d.payload_len) <= u64::from(d.cap_len),
            "the payload is captured: {d:?}"
        );
    } else {
        assert_eq!((d.l4_offset, d.payload_offset, d.payload_len), (0, 0, 0), "not valid is 0: {d:?}");
    }
    assert_tunnel_consistent(d);
}

fn assert_tunnel_consistent(d: &Descriptor) {
    assert_eq!((d.stream, d.annotation, d.spare), (0, 0, [0; 6]), "nothing is there yet: {d:?}");
    let inner_end = u64::from(d.inner_payload_offset) + u64::from(d.inner_payload_len);
    assert!(inner_end <= u64::from(d.cap_len).max(u64::from(d.inner_payload_offset)), "{d:?}");
    if d.tunnel == 0 {
        assert_eq!((d.inner_flags, d.inner_l4_offset, d.inner_payload_len, d.inner_src_port), (0, 0, 0, 0));
    }
    if d.tunnel == tunnel::NONE {
        assert_eq!((d.inner_flow_hash, d.inner_offset, d.tunnel_count), (0, 0, 0), "no tunnel: {d:?}");
        return;
    }
    assert!(d.tunnel <= tunnel::TEREDO && (1..=TUNNELS_MAX).contains(&d.tunnel_count), "{d:?}");
    assert!(d.flags & flag::L4 != 0 && d.flags & (flag::TCP | flag::ICMP) == 0, "it is above IP: {d:?}");
    assert!(d.inner_offset > d.l3_offset && d.inner_offset >= d.payload_offset, "inside: {d:?}");
    assert!(u32::from(d.inner_offset) + 20 <= d.cap_len, "the inner IP header is captured: {d:?}");
}
