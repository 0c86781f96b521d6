//! Sending, and the packets that cannot be sent.

use crate::frames::{all, block, udp};
use crate::net::{self, Sender, ip};
use crate::receiving::open;
use weir_netio::{LiveSink, Loss, SocketKind};

fn as_slices(frames: &[Vec<u8>]) -> Vec<&[u8]> {
    frames.iter().map(Vec::as_slice).collect()
}

#[test]
fn packets_arrive_as_they_were_sent() {
    for (out, into) in [
        (SocketKind::Packet, SocketKind::Packet),
        (SocketKind::Xdp, SocketKind::Packet),
        (SocketKind::Xdp, SocketKind::Xdp),
    ] {
        if !net::create_veth_pair() {
            return;
        }
        let mut live = open("b", into);
        let mut sink = LiveSink::open("a", out).unwrap();
        let sent: Vec<Vec<u8>> = (0..2000).map(udp).collect();
        let mut received = Vec::new();
        for builder in sent.chunks(100) {
            let mut rest = &as_slices(builder)[..];
            while !rest.is_empty() {
                let done = sink.send(rest);
                assert_eq!(done.consumed, done.sent);
                rest = &rest[done.consumed..];
            }
            let due = received.len() + builder.len();
            while received.len() < due {
                received.extend(crate::frames::packets(&block(&mut live)));
            }
        }
        received.extend(all(&mut live, 0));
        assert!(received.iter().map(|packet| &packet.bytes).eq(&sent), "{out:?} {into:?}");
        let totals = sink.totals();
        assert_eq!((totals.packets, totals.lost()), (2000, 0));
        assert_eq!(totals.bytes.0, sent.iter().map(|frame| frame.len() as u64).sum::<u64>());
        assert!(sink.room() > 0);
    }
}

#[test]
fn packets_of_a_block_are_forwarded_without_a_copy() {
    for kind in [SocketKind::Packet, SocketKind::Xdp] {
        if !net::create_veth_pair() {
            return;
        }
        ip("link add name c type veth peer name d");
        ip("link set dev c up");
        ip("link set dev d up");
        let (mut live, mut end) = (open("b", kind), open("d", SocketKind::Packet));
        let mut sink = LiveSink::open("c", kind).unwrap();
        let sender = Sender::new("a");
        (0..40).for_each(|number| sender.send(&udp(number)));
        let mut forwarded = 0;
        while forwarded < 20 {
            let block = block(&mut live);
            let odd: Vec<usize> =
                (0..block.len()).filter(|&i| block.descriptors()[i].number % 2 == 1).collect();
            let done = sink.forward(&block, &odd);
            assert_eq!((done.consumed, done.sent), (odd.len(), odd.len()));
            forwarded += odd.len();
        }
        assert_eq!(forwarded, 20);
        let there: Vec<Vec<u8>> = all(&mut end, 20).into_iter().map(|packet| packet.bytes).collect();
        assert!(
            there.iter().eq((0..40).filter(|number| number % 2 == 1).map(udp).collect::<Vec<_>>().iter())
        );
    }
}

#[test]
fn packets_that_cannot_be_sent_are_counted_by_cause_and_the_others_are_sent() {
    if !net::create_veth_pair() {
        return;
    }
    let mut live = open("b", SocketKind::Packet);
    let mut sink = LiveSink::open("a", SocketKind::Packet).unwrap();
    let (good, long, short) = (udp(1), vec![7u8; 1600], vec![1u8; 5]);
    let mut lost = Vec::new();
    let done =
        sink.send_reporting(&[&good, &long, &short, &good, &long], |place, loss| lost.push((place, loss)));
    assert_eq!((done.consumed, done.sent), (5, 2));
    assert_eq!(lost, [(1, Loss::TooLong), (2, Loss::Malformed), (4, Loss::TooLong)]);
    let totals = sink.totals();
    assert_eq!((totals.packets, totals.too_long, totals.malformed, totals.lost()), (2, 2, 1, 3));
    // The kernel's present MTU counts.
    ip("link set dev a mtu 2000");
    ip("link set dev b mtu 2000");
    assert_eq!(sink.send(&[&long]).sent, 1);
    assert!(sink.is_up());
    ip("link set dev a down");
    assert!(!sink.is_up());
    assert_eq!(sink.send(&[&good, &good]).consumed, 2);
    assert_eq!(sink.totals().down, 2);
    ip("link set dev a up");
    net::wait_for_carriers();
    assert_eq!(sink.send(&[&good]).sent, 1);
    assert_eq!(all(&mut live, 4).len(), 4);
}

#[test]
fn truncated_packets_are_not_forwarded() {
    if !net::create_veth_pair() {
        return;
    }
    let options = weir_netio::LiveOptions { snap_len: 100, ..Default::default() };
    let mut live = weir_netio::LiveSource::open("b", options).unwrap();
    let mut sink = LiveSink::open("b", SocketKind::Packet).unwrap();
    let sender = Sender::new("a");
    // Repeats until both are in one block, as time may pass between the two.
    let block = loop {
        sender.send(&udp(30));
        sender.send(&udp(0));
        let block = block(&mut live);
        if block.len() == 2 {
            break block;
        }
        all(&mut live, 2 - block.len());
    };
    let done = sink.forward(&block, &[0, 1, 99]);
    assert_eq!((done.consumed, done.sent, sink.totals().cut), (3, 1, 2));
}

#[test]
fn an_xdp_source_has_one_sink_through_the_same_queue() {
    if !net::create_veth_pair() {
        return;
    }
    let mut live = open("b", SocketKind::Xdp);
    let mut sink = live.sink().unwrap();
    assert_eq!(sink.kind(), SocketKind::Xdp);
    assert!(
        live.sink().unwrap_err().to_string().contains("another socket or program is using this resource")
    );
    let mut other = open("a", SocketKind::Packet);
    assert_eq!(sink.send(&[&udp(5), &vec![0; 5000], &udp(6)]).sent, 2);
    let there: Vec<Vec<u8>> = all(&mut other, 2).into_iter().map(|packet| packet.bytes).collect();
    assert_eq!(there, [udp(5), udp(6)]);
    assert_eq!(sink.totals().too_long, 1);
    ip("link set dev b down");
    let mut taken = 0;
    for _ in 0..3 {
        taken += sink.send(&[&udp(7)]).consumed;
    }
    assert!(taken > 0 && sink.totals().down > 0, "{:?}", sink.totals());
}
