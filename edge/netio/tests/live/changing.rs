//! Interfaces that change while they are open.

use crate::frames::{ARRIVAL_TIME_MAX, all, block, events, udp};
use crate::net::{self, Sender, ip};
use crate::receiving::open;
use weir_netio::{LiveOptions, LivePoll, LiveSink, LiveSource, SocketKind};
use weir_units::{Bytes, Nanos};

/// Sends `count` packets. Returns the number of those that arrive.
fn send_and_count(live: &mut LiveSource, count: u32) -> usize {
    let sender = Sender::new("a");
    (0..count).for_each(|number| sender.send(&udp(number)));
    all(live, count as usize).len()
}

/// Returns events up to `last`.
fn events_until(live: &mut LiveSource, last: &str) -> Vec<String> {
    let (mut events, begin) = (Vec::new(), std::time::Instant::now());
    while events.last().map(String::as_str) != Some(last) {
        assert!(begin.elapsed() < ARRIVAL_TIME_MAX, "{events:?}");
        if let LivePoll::Event(event) = live.next_block(Nanos(50_000_000)).unwrap() {
            events.push(event.to_string());
        }
    }
    events
}

#[test]
fn down_and_up_are_reported_and_packets_arrive_again() {
    for kind in [SocketKind::Packet, SocketKind::Xdp] {
        if !net::create_veth_pair() {
            return;
        }
        let mut live = open("b", kind);
        assert_eq!(send_and_count(&mut live, 10), 10);
        ip("link set dev b down");
        assert_eq!(events(&mut live, 1), ["b is down"], "{kind:?}");
        assert!(!live.is_up());
        ip("link set dev b up");
        events_until(&mut live, "b is up");
        assert!(live.is_up());
        // Until the kernel has activated `a` too, it drops what `a` sends.
        net::wait_for_carriers();
        assert_eq!(send_and_count(&mut live, 10), 10, "{kind:?}");
        // The other end of the veth pair.
        ip("link set dev a down");
        events_until(&mut live, "b is down");
        assert_eq!(live.totals().received.packets, 20);
    }
}

#[test]
fn a_new_name_and_a_new_mtu_are_reported_and_change_nothing() {
    if !net::create_veth_pair() {
        return;
    }
    let mut live = open("b", SocketKind::Packet);
    ip("link set dev b mtu 3000");
    ip("link set dev a mtu 3000");
    assert_eq!(events(&mut live, 1), ["b: the MTU was 1500 and is 3000"]);
    assert_eq!(live.mtu(), 3000);
    let long: Vec<u8> = (0..3014u32).map(|i| i as u8).collect();
    Sender::new("a").send(&long);
    assert_eq!(all(&mut live, 1)[0].bytes, long);
    ip("link set dev b name other");
    assert_eq!(events(&mut live, 1), ["b is now called other"]);
    assert_eq!(live.name(), "other");
    assert_eq!(send_and_count(&mut live, 10), 10);
}

#[test]
fn a_removed_interface_is_opened_again_when_it_comes_back() {
    for kind in [SocketKind::Packet, SocketKind::Xdp] {
        if !net::create_veth_pair() {
            return;
        }
        let mut live = open("b", kind);
        let mut sink = LiveSink::open("b", SocketKind::Packet).unwrap();
        assert_eq!(send_and_count(&mut live, 10), 10);
        // Packets received before are still returned, and blocks outlive the interface.
        let sender = Sender::new("a");
        sender.send(&udp(77));
        let block = block(&mut live);
        ip("link del dev b");
        events_until(&mut live, "b was removed");
        assert_eq!(sink.send(&[&udp(1)]).consumed, 1);
        assert_eq!(sink.totals().gone, 1);
        assert!(all(&mut live, 0).is_empty());
        net::add_veth_pair();
        events_until(&mut live, "b exists again and was opened");
        net::wait_for_carriers();
        assert_eq!(send_and_count(&mut live, 20), 20, "{kind:?}");
        let mut copy = Vec::new();
        block.copy_packet(0, &mut copy);
        assert_eq!(copy, udp(77));
        let totals = live.totals();
        assert_eq!((totals.received.packets, totals.reopened), (31, 1));
        std::thread::sleep(std::time::Duration::from_millis(120));
        assert_eq!(sink.send(&[&udp(1)]).sent, 1, "{:?}", sink.totals());
    }
}

#[test]
fn a_removed_interface_that_is_not_to_be_opened_again_ends_the_source() {
    if !net::create_veth_pair() {
        return;
    }
    let options = LiveOptions { reopen: false, ring: Bytes(1 << 20), ..LiveOptions::default() };
    let mut live = LiveSource::open("b", options).unwrap();
    ip("link del dev b");
    events_until(&mut live, "b was removed");
    let begin = std::time::Instant::now();
    while !matches!(live.next_block(Nanos(50_000_000)).unwrap(), LivePoll::End) {
        assert!(begin.elapsed() < ARRIVAL_TIME_MAX);
    }
}

#[test]
fn lost_netlink_messages_are_recovered_by_reading_the_state() {
    if !net::create_veth_pair() {
        return;
    }
    let mut live = open("b", SocketKind::Packet);
    // Many more than fit into the socket's buffer while it is not read.
    net::batch(&(0..1000).map(|i| format!("link set dev a alias number{i}\n")).collect::<String>());
    ip("link set dev b mtu 1600");
    ip("link set dev b name other");
    assert_eq!(events(&mut live, 2), ["b is now called other", "other: the MTU was 1500 and is 1600"]);
    net::batch(&(0..1000).map(|i| format!("link set dev a alias number{i}\n")).collect::<String>());
    ip("link del dev other");
    events_until(&mut live, "other was removed");
}
