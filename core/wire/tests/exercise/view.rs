//! Runs a view on arbitrary bytes. Entry point of the fuzz target `view` and of property tests.

use super::{CONTROL_BYTES, assert_consistent, described};
use std::cell::RefCell;
use weir_abi::{Descriptor, flag};
use weir_units::Timestamp;
use weir_wire::view::{Addresses, Exposure, PacketView, Payload, ShownPart, Transform, ViewKey, ZeroedField};
use weir_wire::{BadChecksum, LinkType, Meta, is_tunnel_port, verify};

/// The number of bytes of the buffer behind the packet.
const BEHIND: usize = 16;
const UNTOUCHED: u8 = 0xd7;

/// Applies a view made of `input` to a packet made of `input`, and checks the guarantees of views: no panic, no more
/// bytes than the packet has, right checksums, and no planted address or payload in the output. The same bytes are
/// also put into a pseudowire, of which nothing may be shown.
///
/// Input: link type (1 byte), components of the view (4), fields (2), wire length (1), kind of pseudowire (3), unused
/// (5), packet.
///
/// # Panics
///
/// If a guarantee is broken, which is the purpose.
pub fn view(input: &[u8]) {
    let Some((control, packet)) = input.split_first_chunk::<CONTROL_BYTES>() else { return };
    let &[link, payload, addresses, exposures, bytes, f0, f1, wire, carriage, first, content, ..] = control;
    let captured = u32::try_from(packet.len()).unwrap_or(u32::MAX);
    let meta = Meta {
        ts: Timestamp(1),
        cap_len: captured,
        wire_len: captured.saturating_add(if wire < 128 { 0 } else { u32::from(wire) * 8 }),
        link_type: LinkType::ALL[usize::from(link) % LinkType::ALL.len()],
        interface: 0,
        number: 0,
        data: 0,
    };
    let exposure = |bit: u8| if exposures >> bit & 1 == 1 { Exposure::Visible } else { Exposure::Zeroed };
    let fields = u16::from_be_bytes([f0, f1]);
    let view = PacketView {
        payload: match payload % 3 {
            0 => Payload::All,
            1 => Payload::NONE,
            _ => Payload::First(bytes.into()),
        },
        addresses: [Addresses::Anonymised, Addresses::Zeroed, Addresses::Visible, Addresses::CryptoPan]
            [usize::from(addresses) % 4],
        macs: exposure(0),
        ports: exposure(1),
        // Half of the inputs zero no field.
        zeroed: (ZeroedField::ALL.iter().zip(0..))
            .filter(|(_, bit)| exposures & 4 != 0 && fields >> bit & 1 == 1)
            .map(|(field, _)| *field)
            .collect(),
    };
    with_transform(view, |transform| {
        check(transform, packet, &meta);
        if view != PacketView::ALL {
            check_pseudowire(transform, packet, [carriage, first, content]);
        }
    });
}

/// Reuses transforms, as precomputing one takes a thousand times as long as using it.
fn with_transform(view: PacketView, work: impl FnOnce(&mut Transform)) {
    thread_local! {
        /// A transform for each visibility of addresses.
        static KNOWN: RefCell<[Option<Transform>; 4]> = const { RefCell::new([const { None }; 4]) };
    }
    KNOWN.with_borrow_mut(|[zeroing, anonymising, crypto_pan, plain]| {
        let known = match view.addresses {
            Addresses::Zeroed => zeroing,
            Addresses::Anonymised => anonymising,
            Addresses::CryptoPan => crypto_pan,
            Addresses::Visible => plain,
        };
        let transform =
            known.get_or_insert_with(|| Transform::new(view, &ViewKey::derive(&[3; 32], b"exercise")));
        transform.set_view(view);
        work(transform);
    });
}

fn check(transform: &mut Transform, packet: &[u8], meta: &Meta) {
    let view = *transform.view();
    let before = described(packet, meta);
    let out = show(transform, packet, &before);
    let after = transform.describe(&out, &before);
    let cap_len = u32::try_from(out.len()).unwrap_or(u32::MAX);
    assert_consistent(&after, &Meta { cap_len, ..*meta });
    if (PacketView { payload: Payload::All, ..view }) != PacketView::ALL {
        let field = usize::from(after.l4_offset) + 6;
        let is_none_over_v6 = after.flags & flag::IPV6 != 0
            && verify(&out, &after) == Err(BadChecksum::Udp)
            && out.get(field..field + 2) == Some(&[0, 0]);
        assert!(is_none_over_v6 || verify(&out, &after).is_ok(), "{view}: {:?}", verify(&out, &after));
    }
    for place in places(&before, &view) {
        plant(transform, packet, &before, &place);
    }
}

fn show(transform: &mut Transform, packet: &[u8], descriptor: &Descriptor) -> Vec<u8> {
    let mut out = vec![UNTOUCHED; packet.len() + BEHIND];
    let ShownPart { len, wire_len } = transform.apply(packet, descriptor, &mut out);
    assert!(len <= packet.len() && wire_len == descriptor.wire_len);
    assert!(out[packet.len()..].iter().all(|byte| *byte == UNTOUCHED), "more was written than there is");
    out.truncate(len);
    out
}

/// Bytes that a view hides.
struct Place {
    at: usize,
    len: usize,
    /// True if nothing depends on the bytes, so that the output is the same whatever they are.
    is_without_trace: bool,
}

fn places(d: &Descriptor, view: &PacketView) -> Vec<Place> {
    let mut places = Vec::new();
    let ip = usize::from(d.l3_offset);
    let is_without_trace = view.addresses == Addresses::Zeroed;
    if view.addresses != Addresses::Visible {
        match d.flags & (flag::IPV4 | flag::IPV6) {
            flag::IPV4 => places.extend([12, 16].map(|at| Place { at: ip + at, len: 4, is_without_trace })),
            flag::IPV6 => places.extend([8, 24].map(|at| Place { at: ip + at, len: 16, is_without_trace })),
            _ => {}
        }
    }
    if view.macs == Exposure::Zeroed && d.link_type == LinkType::Ethernet.number() && d.cap_len >= 14 {
        places.extend([0, 6].map(|at| Place { at, len: 6, is_without_trace: true }));
    }
    let has_payload = d.flags & flag::TCP != 0
        || d.flags & flag::UDP != 0 && !is_tunnel_port(d.src_port) && !is_tunnel_port(d.dst_port);
    if view.payload == Payload::NONE && has_payload && d.payload_len >= 8 {
        places.push(Place { at: usize::from(d.payload_offset), len: 8, is_without_trace: true });
    }
    places
}

/// Plants bytes that occur nowhere else in the packet, and looks for them in the output. An anonymised value can
/// equal the planted one by chance, but not twice.
fn plant(transform: &mut Transform, packet: &[u8], descriptor: &Descriptor, place: &Place) {
    let mut seeds = 1..40_u64;
    let mut shown = Vec::new();
    let mut leaks = 0;
    for _ in 0..2 {
        let Some((planted, secret)) = seeds.find_map(|seed| planted(packet, place, seed)) else { return };
        let out = show(transform, &planted, descriptor);
        let is_there = secret.windows(4).any(|part| out.windows(4).any(|window| window == part));
        leaks += u32::from(is_there);
        shown.push(out);
    }
    let view = transform.view();
    assert!(leaks < 2, "{view} shows what was planted at {}: {:02x?} of {packet:02x?}", place.at, shown[0]);
    let is_same = shown[0] == shown[1];
    assert!(
        is_same || !place.is_without_trace,
        "{view} tells of what is at {}: {shown:02x?} of {packet:02x?}",
        place.at
    );
}

/// The packet with planted bytes; `None` if a part of those occurs elsewhere in it.
fn planted(packet: &[u8], place: &Place, seed: u64) -> Option<(Vec<u8>, Vec<u8>)> {
    let mut secret = Vec::new();
    for word in 1..=place.len.div_ceil(8) as u64 {
        secret.extend((seed * 32 + word).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    }
    secret.truncate(place.len);
    let mut planted = packet.to_vec();
    planted.get_mut(place.at..place.at + place.len)?.copy_from_slice(&secret);
    let is_elsewhere = secret.windows(4).any(|part| {
        let found = planted.windows(4).enumerate().filter(|(_, window)| *window == part);
        found.count() > 1
    });
    (!is_elsewhere).then_some((planted, secret))
}

/// The least length of a pseudowire's frame, so that it can look like IPv6 with a header above it.
const FRAME_LEAST: usize = 60;

/// Applies a view to a frame in a pseudowire. The test constructs the frame, so it does not rely on the parser to
/// recognise it.
fn check_pseudowire(transform: &mut Transform, input: &[u8], [carriage, first, content]: [u8; 3]) {
    let frame = frame(input, first, content);
    let (packet, begin) = carried(&frame, carriage);
    let captured = u32::try_from(packet.len()).unwrap_or(u32::MAX);
    let (ts, link_type) = (Timestamp(1), LinkType::Ethernet);
    let meta =
        Meta { ts, cap_len: captured, wire_len: captured, link_type, interface: 0, number: 0, data: 0 };
    let out = show(transform, &packet, &described(&packet, &meta));
    let view = *transform.view();
    // Data that are not understood are shown only if all of them may be.
    let is_granted = PacketView { payload: Payload::All, ..view } == PacketView::ALL
        && matches!(view.payload, Payload::First(bytes) if usize::try_from(bytes).is_ok_and(|bytes| bytes >= frame.len()));
    assert!(
        out.len() <= begin || is_granted && out.len() == packet.len(),
        "{view} takes the frame at {begin} for a packet: {out:02x?} of {packet:02x?}"
    );
}

/// A frame whose first hardware address begins like IPv4 or IPv6. If `first` is odd, the frame looks like a complete
/// packet.
fn frame(input: &[u8], first: u8, content: u8) -> Vec<u8> {
    let (macs, rest) = input.split_at(input.len().min(12));
    let mut frame = macs.to_vec();
    frame.resize(12, 0x2c);
    frame[0] = first >> 1 & 0x0f | [0x40, 0x60][usize::from(first >> 7)];
    if content & 0x80 != 0 {
        frame.extend([0x81, 0, 0x20, 7]);
    }
    frame.extend_from_slice(match content % 5 {
        0 => &[0x08, 0x00, 0x45, 0, 0, 200],
        1 => &[0x86, 0xdd, 0x60],
        2 => &[0x08, 0x06],
        3 => &[0x88, 0xe5],
        // A label, with data behind it.
        _ => &[0x88, 0x47, 0, 1, 1, 64],
    });
    frame.extend(rest.iter().take(1400));
    frame.resize(frame.len().max(FRAME_LEAST), 0);
    if first & 1 == 1 {
        look_like_ip(&mut frame);
    }
    frame
}

/// Sets lengths and the checksum to those of a packet.
fn look_like_ip(frame: &mut [u8]) {
    let len = u16::try_from(frame.len()).unwrap_or(u16::MAX);
    if frame[0] >> 4 == 6 {
        frame[4..6].copy_from_slice(&len.saturating_sub(40).to_be_bytes());
        return;
    }
    let header = (frame[0] & 15).max(5);
    frame[0] = 0x40 | header;
    frame[2..4].copy_from_slice(&len.to_be_bytes());
    frame[10..12].fill(0);
    // RFC 1071: the sum of the words with end-around carry.
    let words = frame[..usize::from(header) * 4].chunks_exact(2);
    let sum: u32 = words.map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    let checksum = !u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap_or(0);
    frame[10..12].copy_from_slice(&checksum.to_be_bytes());
}

/// A packet that carries a frame, and the offset of the frame.
fn carried(frame: &[u8], carriage: u8) -> (Vec<u8>, usize) {
    const LABEL: [u8; 4] = [0, 1, 0x21, 63];
    let (protocol, front): (Option<u8>, Vec<u8>) = match carriage % 8 {
        0 => (None, [&[0x88, 0x47][..], &LABEL].concat()),
        1 => (None, [&[0x81, 0, 0, 5, 0x88, 0x48, 0, 2, 0x20, 63][..], &LABEL].concat()),
        // With a control word (RFC 4385).
        2 => (None, [&[0x88, 0x47][..], &LABEL, &[0; 4]].concat()),
        3 => (Some(47), [&[0, 0, 0x88, 0x47][..], &LABEL].concat()),
        4 => (Some(137), LABEL.to_vec()),
        // Over UDP: labels (RFC 7510), a session of GTP-U, and labels in Geneve.
        5 => (Some(17), [&[0xc0, 1, 0x19, 0xeb, 0, 0, 0, 0][..], &LABEL].concat()),
        6 => (Some(17), vec![8, 104, 8, 104, 0, 0, 0, 0, 0x30, 255, 0, 0, 1, 2, 3, 4]),
        _ => (
            Some(17),
            [&[0xc0, 1, 0x17, 0xc1, 0, 0, 0, 0, 0, 0, 0x88, 0x47, 0, 0, 1, 0][..], &LABEL].concat(),
        ),
    };
    let mut packet = vec![2; 12];
    if let Some(protocol) = protocol {
        let len = u16::try_from(20 + front.len() + frame.len()).unwrap_or(u16::MAX).to_be_bytes();
        packet.extend([8, 0, 0x45, 0, len[0], len[1], 0, 1, 0, 0, 64, protocol, 0, 0]);
        packet.extend([192, 0, 2, 1, 198, 51, 100, 2]);
    }
    packet.extend(front);
    let begin = packet.len();
    packet.extend_from_slice(frame);
    (packet, begin)
}
