//! Packets are received as they are sent.

use crate::frames::{self, ARRIVAL_TIME_MAX, all, assorted, classified, packets, udp};
use crate::net::{self, Sender, ip};
use std::os::fd::AsRawFd;
use weir_abi::{ARENA_BASE, flag};
use weir_netio::{Direction, LiveOptions, LivePoll, LiveSource, PacketReceiver, QueueSet, SocketKind};
use weir_units::{Bytes, Nanos};
use weir_wire::LinkType;

/// A source on `interface` with little memory, so that it is opened quickly.
pub fn open(interface: &str, kind: SocketKind) -> LiveSource {
    LiveSource::open(interface, options(kind)).unwrap()
}

/// Options for a source with little memory.
pub fn options(kind: SocketKind) -> LiveOptions {
    LiveOptions { kind, ring: Bytes(4 << 20), ..LiveOptions::default() }
}

/// Options for a packet socket with a ring of frames.
pub fn immediate() -> LiveOptions {
    LiveOptions { immediate: true, ..options(SocketKind::Packet) }
}

fn all_packets_arrive(options: LiveOptions) {
    if !net::create_veth_pair() {
        return;
    }
    let mut live = LiveSource::open("b", options).unwrap();
    let sender = Sender::new("a");
    let sent = assorted();
    let mut received = Vec::new();
    // In portions that fit every queue on the path.
    for builder in sent.chunks(100) {
        builder.iter().for_each(|frame| sender.send(frame));
        let due = received.len() + builder.len();
        while received.len() < due {
            received.extend(packets(&frames::block(&mut live)));
        }
    }
    assert_eq!(received.len(), sent.len());
    let mut last = 0;
    for (i, (packet, frame)) in received.iter().zip(&sent).enumerate() {
        assert!(packet.bytes == *frame, "packet {i}: {:x?} is not {frame:x?}", packet.bytes);
        assert_eq!(packet.facts(), classified(frame, frame.len(), LinkType::Ethernet), "packet {i}");
        assert_eq!(packet.descriptor.number, i as u32);
        assert!(packet.descriptor.ts_ns >= last, "packet {i}");
        last = packet.descriptor.ts_ns;
    }
    let totals = live.totals();
    assert_eq!(totals.received.packets, sent.len() as u64);
    assert_eq!(totals.received.bytes.0, sent.iter().map(|frame| frame.len() as u64).sum::<u64>());
    assert_eq!(totals.drops.packets(), 0, "{totals:?}");
    assert!(received.iter().any(|packet| packet.descriptor.vlan_count == 2));
}

/// Options for a ring that reports arrivals.
fn with_arrivals(immediate: bool) -> LiveOptions {
    LiveOptions { kind: SocketKind::Packet, immediate, arrivals: true, ..LiveOptions::default() }
}

#[test]
fn packets_whose_arrivals_are_reported_have_identical_bytes_and_true_descriptors() {
    for immediate in [false, true] {
        all_packets_arrive(with_arrivals(immediate));
    }
}

#[test]
fn the_receiver_of_each_packet_is_reported() {
    if !net::create_veth_pair() {
        return;
    }
    ip("link set dev b address 02:00:00:00:00:0b");
    let expected = [
        ([2, 0, 0, 0, 0, 0xb], PacketReceiver::Host),
        ([0xff; 6], PacketReceiver::Broadcast),
        ([1, 0, 0x5e, 0, 0, 1], PacketReceiver::Multicast),
        ([2, 0, 0, 0, 0, 0xc], PacketReceiver::OtherHost),
    ];
    for immediate in [false, true] {
        let mut live = LiveSource::open("b", with_arrivals(immediate)).unwrap();
        let sender = Sender::new("a");
        for (address, _) in expected {
            sender.send(&[&address[..], &[4; 6], &[8, 0], &[0x45; 60]].concat());
        }
        // A tag is put back into the place of the offloads, which are read before.
        sender.send(&[&[0xff; 6][..], &[4; 6], &[0x81, 0, 0, 7, 8, 0], &[0x45; 60]].concat());
        Sender::new("b").send(&[&[0xff; 6][..], &[4; 6], &[8, 0], &[0x45; 60]].concat());
        let mut found = Vec::new();
        while found.len() < 6 {
            let block = frames::block(&mut live);
            found.extend((block.lead()..block.len()).map(|i| block.arrival(i)));
        }
        let receivers: Vec<PacketReceiver> = found.iter().map(|arrival| arrival.receiver).collect();
        let all = expected.map(|(_, receiver)| receiver);
        let last = [PacketReceiver::Broadcast, PacketReceiver::Outgoing];
        assert_eq!(receivers, [&all[..], &last].concat(), "immediate {immediate}");
        assert!(found.iter().all(|arrival| arrival.segment_bytes == 0), "{found:?}");
    }
    // Without the option, nothing is reported.
    let mut live = LiveSource::open("b", immediate()).unwrap();
    Sender::new("a").send(&[0xff; 60]);
    assert_eq!(frames::block(&mut live).arrival(0).receiver, PacketReceiver::Unknown);
}

#[test]
fn all_packets_arrive_with_identical_bytes_and_true_descriptors_by_af_packet() {
    all_packets_arrive(options(SocketKind::Packet));
}

#[test]
fn all_packets_arrive_with_identical_bytes_and_true_descriptors_in_frames() {
    all_packets_arrive(immediate());
}

#[test]
fn all_packets_arrive_with_identical_bytes_and_true_descriptors_by_af_xdp() {
    all_packets_arrive(options(SocketKind::Xdp));
}

fn the_window_is_mapped_again(options: LiveOptions) {
    if !net::create_veth_pair() {
        return;
    }
    let kind = options.kind;
    let mut live = LiveSource::open("b", options).unwrap();
    let sender = Sender::new("a");
    sender.send(&udp(7));
    let block = frames::block(&mut live);
    let window = block.window();
    let len = usize::try_from(window.len().0).unwrap();
    // As a sandbox does it: the range is reserved first, and the window mapped in its place.
    // SAFETY: new, inaccessible memory.
    let room = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        libc::mmap(std::ptr::null_mut(), len, libc::PROT_NONE, flags, -1, 0)
    };
    assert_ne!(room, libc::MAP_FAILED);
    let offset = i64::try_from(window.file_offset()).unwrap();
    // SAFETY: replaces the reserved range, which is not in use.
    let at = unsafe {
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        libc::mmap(room, len, libc::PROT_READ, flags, window.parts().next().unwrap().fd.as_raw_fd(), offset)
    };
    assert_eq!(at, room, "{}", std::io::Error::last_os_error());
    let descriptor = block.descriptors()[0];
    let from = (descriptor.data - ARENA_BASE) as usize;
    let frame = udp(7);
    // SAFETY: inside the mapping; the block keeps the bytes unchanged.
    let seen = unsafe { std::slice::from_raw_parts(at.cast::<u8>().add(from), frame.len()) };
    assert_eq!(seen, frame);
    if kind == SocketKind::Xdp {
        // SAFETY: the call must fail, and then changes nothing.
        let done = unsafe { libc::mprotect(at, len, libc::PROT_READ | libc::PROT_WRITE) };
        assert_ne!(done, 0, "a sealed file could be made writable");
    }
    // Packets stay readable after the source is dropped.
    drop(live);
    assert_eq!(packets(&block)[0].bytes, frame);
    assert_eq!(seen, frame);
    // SAFETY: the range mapped above; `seen` is no longer used.
    unsafe { libc::munmap(at, len) };
}

#[test]
fn the_ring_of_a_packet_socket_is_a_window_like_any_other() {
    the_window_is_mapped_again(options(SocketKind::Packet));
    the_window_is_mapped_again(immediate());
}

#[test]
fn the_memory_of_xdp_is_a_window_that_cannot_be_written() {
    the_window_is_mapped_again(options(SocketKind::Xdp));
}

#[test]
fn packets_are_cut_at_the_snapshot_length_and_their_length_is_known() {
    for kind in [SocketKind::Packet, SocketKind::Xdp] {
        if !net::create_veth_pair() {
            return;
        }
        let options = LiveOptions { kind, snap_len: 96, ring: Bytes(4 << 20), ..LiveOptions::default() };
        let mut live = LiveSource::open("b", options).unwrap();
        let sender = Sender::new("a");
        let tagged = [&[0, 9, 8, 0][..], &frames::ipv4(1, 500, None)].concat();
        let sent = [frames::ethernet(0x8100, &tagged), udp(300), frames::ethernet(0x0800, &[])];
        sent.iter().for_each(|frame| sender.send(frame));
        let received = all(&mut live, 3);
        assert_eq!(received.len(), 3, "{kind:?}");
        for (packet, frame) in received.iter().zip(&sent) {
            let kept = frame.len().min(96);
            assert_eq!(packet.bytes, frame[..kept], "{kind:?}");
            assert_eq!(packet.facts(), classified(&frame[..kept], frame.len(), LinkType::Ethernet));
            assert_eq!(packet.descriptor.flags & flag::CUT != 0, frame.len() > 96);
        }
    }
}

#[test]
fn packets_sent_by_the_host_are_received_on_request_and_loopback_packets_once() {
    if !net::create_veth_pair() {
        return;
    }
    ip("link set dev lo up");
    for (direction, wanted) in [(Direction::Both, 2), (Direction::Incoming, 1)] {
        let options = LiveOptions { direction, ring: Bytes(1 << 20), ..LiveOptions::default() };
        let (mut cable, mut loopback) =
            (LiveSource::open("b", options).unwrap(), LiveSource::open("lo", options).unwrap());
        Sender::new("a").send(&udp(1));
        Sender::new("b").send(&udp(2));
        assert_eq!(all(&mut cable, wanted).len(), wanted, "{direction:?}");
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.send_to(b"once", socket.local_addr().unwrap()).unwrap();
        let received = all(&mut loopback, 1);
        assert_eq!(received.len(), 1, "{direction:?}");
        assert!(received[0].bytes.ends_with(b"once"));
    }
}

#[test]
fn busy_polling_finds_packets_without_waiting() {
    for kind in [SocketKind::Packet, SocketKind::Xdp] {
        if !net::create_veth_pair() {
            return;
        }
        let mut live = open("b", kind);
        let sender = Sender::new("a");
        (0..50).for_each(|number| sender.send(&udp(number)));
        let (mut received, begin) = (0, std::time::Instant::now());
        while received < 50 && begin.elapsed() < ARRIVAL_TIME_MAX {
            if let LivePoll::Block(block) = live.next_block(Nanos(0)).unwrap() {
                received += block.len();
            }
        }
        assert_eq!(received, 50, "{kind:?}");
    }
}

#[test]
fn sources_on_several_queues_of_xdp_share_a_program_and_have_all_packets_between_them() {
    if !net::new_namespace() {
        return;
    }
    let queues = "numtxqueues 2 numrxqueues 2";
    ip(&format!("link add name a {queues} type veth peer name b {queues}"));
    ip("link set dev a up");
    ip("link set dev b up");
    net::wait_for_carriers();
    let options = LiveOptions { kind: SocketKind::Xdp, ring: Bytes(1 << 20), ..LiveOptions::default() };
    let queue = |queue| LiveOptions { queues: QueueSet::of([queue]), number: queue as u16, ..options };
    let [mut first, mut second] = [0, 1].map(|number| LiveSource::open("b", queue(number)).unwrap());
    let sender = Sender::new("a");
    (0..200).for_each(|number| sender.send(&udp(number)));
    let received = frames::from_two(&mut first, &mut second, 200);
    for (packets, number) in received.iter().zip(0..) {
        assert!(packets.iter().all(|packet| packet.descriptor.interface == number));
    }
    let mut bytes: Vec<_> = received.concat().into_iter().map(|packet| packet.bytes).collect();
    let mut sent: Vec<_> = (0..200).map(udp).collect();
    bytes.sort();
    sent.sort();
    assert!(bytes == sent, "{} packets", bytes.len());
    // The program stays for the other source, and packets of a queue without a source go to the host.
    drop(first);
    let mut host = open("b", SocketKind::Packet);
    (0..200).for_each(|number| sender.send(&udp(number)));
    assert_eq!(frames::from_two(&mut second, &mut host, 200).concat().len(), 200);
}
