//! TAP and TUN devices.

use crate::frames::{ARRIVAL_TIME_MAX, all, classified, ethernet, ipv4};
use crate::net::{self, Sender, ip};
use crate::receiving::open;
use std::net::UdpSocket;
use weir_netio::{LivePoll, SocketKind};
use weir_units::Nanos;
use weir_wire::LinkType;

#[test]
fn frames_from_the_host_are_received_on_a_tap_device_and_frames_to_it_arrive() {
    if !net::new_namespace() {
        return;
    }
    let mut live = open("tap7", SocketKind::Tap);
    assert_eq!((live.name(), live.link_type()), ("tap7", LinkType::Ethernet));
    ip("link set dev tap7 up");
    let sender = Sender::new("tap7");
    let sent: Vec<Vec<u8>> = (0..300).map(crate::frames::udp).collect();
    let mut received = Vec::new();
    for builder in sent.chunks(100) {
        builder.iter().for_each(|frame| sender.send(frame));
        received.extend(all(&mut live, builder.len()));
    }
    assert_eq!(received.len(), sent.len());
    for (packet, frame) in received.iter().zip(&sent) {
        assert!(packet.bytes == *frame);
        assert_eq!(packet.facts(), classified(frame, frame.len(), LinkType::Ethernet));
    }
    // The other direction: a packet socket on the device receives what is written.
    let mut host = open("tap7", SocketKind::Packet);
    let mut sink = live.sink().unwrap();
    let frames: Vec<&[u8]> = sent.iter().map(Vec::as_slice).collect();
    let done = sink.send(&frames);
    assert_eq!((done.consumed, done.sent), (300, 300));
    assert!(all(&mut host, sent.len()).iter().map(|packet| &packet.bytes).eq(&sent));
}

#[test]
fn a_tun_device_has_packets_without_a_link_header() {
    if !net::new_namespace() {
        return;
    }
    let mut live = open("tun7", SocketKind::Tun);
    assert_eq!(live.link_type(), LinkType::Raw);
    ip("addr add 10.7.0.1/24 dev tun7");
    ip("link set dev tun7 up");
    let socket = UdpSocket::bind("10.7.0.1:4000").unwrap();
    socket.send_to(b"to nobody", "10.7.0.2:4001").unwrap();
    let received = all(&mut live, 1);
    assert_eq!(received.len(), 1);
    assert!(received[0].bytes.ends_with(b"to nobody"));
    assert_eq!(received[0].descriptor.dst_port, 4001);
    // AF_PACKET receives the same packet.
    let mut beside = open("tun7", SocketKind::Packet);
    assert_eq!(beside.link_type(), LinkType::Raw);
    socket.send_to(b"twice", "10.7.0.2:4001").unwrap();
    let (there, here) = (all(&mut beside, 1), all(&mut live, 1));
    assert_eq!(there[0].bytes, here[0].bytes);
    assert_eq!(there[0].facts(), here[0].facts());
    // A reply.
    let mut answer = ipv4(1, 5, None);
    answer[12..20].copy_from_slice(&[10, 7, 0, 2, 10, 7, 0, 1]);
    answer[20..24].copy_from_slice(&[0x0f, 0xa1, 0x0f, 0xa0]);
    answer[28..33].copy_from_slice(b"hello");
    let sum = answer[..20].chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum::<u32>();
    let sum = !(((sum & 0xffff) + (sum >> 16)) as u16);
    answer[10..12].copy_from_slice(&sum.to_be_bytes());
    assert_eq!(live.sink().unwrap().send(&[&answer]).sent, 1);
    socket.set_read_timeout(Some(ARRIVAL_TIME_MAX)).unwrap();
    let mut bytes = [0; 16];
    let (len, from) = socket.recv_from(&mut bytes).unwrap();
    assert_eq!((&bytes[..len], from.to_string().as_str()), (&b"hello"[..], "10.7.0.2:4001"));
}

#[test]
fn packets_lost_by_a_slow_reader_of_a_device_are_counted() {
    if !net::new_namespace() {
        return;
    }
    let mut live = open("tap7", SocketKind::Tap);
    ip("link set dev tap7 txqueuelen 50 up");
    let sender = Sender::new("tap7");
    let frame = ethernet(0x0800, &ipv4(1, 100, None));
    (0..200).for_each(|_| sender.send(&frame));
    let received = all(&mut live, 1).len() as u64;
    let totals = live.totals();
    assert!(totals.drops.packets() > 0);
    assert_eq!(received + totals.drops.packets(), 200, "{totals:?}");
}

#[test]
fn a_device_that_is_removed_is_reported() {
    if !net::new_namespace() {
        return;
    }
    let mut live = open("tap7", SocketKind::Tap);
    ip("link set dev tap7 up");
    ip("link del dev tap7");
    let begin = std::time::Instant::now();
    loop {
        assert!(begin.elapsed() < ARRIVAL_TIME_MAX);
        if let LivePoll::Event(event) = live.next_block(Nanos(50_000_000)).unwrap()
            && event.to_string() == "tap7 was removed"
        {
            break;
        }
    }
}
